"""The models of the model table. Each family is a module."""

from __future__ import annotations

import importlib
from dataclasses import replace

from conformance.models.entry import Entry, missing_extras

__all__ = ["FAMILIES", "Entry", "entries", "missing_extras"]

#: Module -> the title of its family in the table. Modules import other packages than torch only when a model is created.
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
    """Return all entries, in the table's order."""
    found: list[Entry] = []
    for module, title in FAMILIES.items():
        family = importlib.import_module(f"conformance.models.{module}")
        found += [replace(entry, family=title) for entry in family.ENTRIES]
    return found
