"""The model table's entries, a family a file."""

from __future__ import annotations

import importlib
from dataclasses import replace

from conformance.models.entry import Entry, missing_extras

__all__ = ["FAMILIES", "Entry", "entries", "missing_extras"]

#: Module -> what the table calls its family. A module imports nothing but torch until an entry of it is made.
FAMILIES = {
    "plain": "Plain torch",
    "generative": "Generative",
    "features": "Training",
    "vision": "Vision",
    "multimodal": "Multimodal",
    "audio": "Audio",
    "language": "Language",
}


def entries() -> list[Entry]:
    """All entries, in the table's order."""
    found: list[Entry] = []
    for module, title in FAMILIES.items():
        family = importlib.import_module(f"conformance.models.{module}")
        found += [replace(entry, family=title) for entry in family.ENTRIES]
    return found
