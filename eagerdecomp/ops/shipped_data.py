"""Data that was measured on one torch release and is shipped in ``data/torch-<release>``."""

from __future__ import annotations

from importlib import resources

from eagerdecomp._torch.ops import torch_release

__all__ = ["shipped_data"]


def shipped_data(name: str) -> str | None:
    """Return the text of a data file for the torch release that runs; None where none was measured on it."""
    file = resources.files("eagerdecomp").joinpath("data", f"torch-{torch_release()}", name)
    return file.read_text(encoding="utf-8") if file.is_file() else None
