"""Releases of torch: the installed one, and those that are tested."""

from __future__ import annotations

import torch

__all__ = ["BASELINE", "TESTED", "newer_than_tested", "torch_release"]

#: The release that CI uses. Tests state its behavior; ``tests/releases`` lists what differs in other releases.
BASELINE = "2.13"

#: The newest release in docs/numbers/versions.md.
TESTED = "2.15"


def torch_release() -> str:
    """Return the installed release, by which recorded data is found: ``"2.13"`` for ``"2.13.0+cpu"``."""
    return ".".join(torch.__version__.split(".")[:2])


def newer_than_tested() -> bool:
    """Return whether the installed torch is newer than all tested releases."""
    running, tested = (tuple(map(int, release.split("."))) for release in (torch_release(), TESTED))
    return running > tested
