"""Data that was measured on one torch release and is shipped in ``data/torch-<release>``."""

from __future__ import annotations

import gzip
from importlib import resources

from eagerdecomp._torch.ops import torch_release

__all__ = ["shipped_data"]


def shipped_data(name: str) -> str | None:
    """Return the text of a data file for the torch release that runs, decompressed where its name ends in ``.gz``; None where none
    was measured on it."""
    file = resources.files("eagerdecomp").joinpath("data", f"torch-{torch_release()}", name)
    if not file.is_file():
        return None
    content = file.read_bytes()
    return (gzip.decompress(content) if name.endswith(".gz") else content).decode()
