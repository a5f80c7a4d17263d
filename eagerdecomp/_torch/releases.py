"""The releases of torch: which one runs, and which are tested."""

from __future__ import annotations

import torch

__all__ = ["BASELINE", "TESTED", "newer_than_tested", "torch_release"]

#: The release that CI runs with, by which tests say what torch does; of others ``tests/releases`` says what differs.
BASELINE = "2.13"

#: The newest release of those in docs/numbers/versions.md.
TESTED = "2.15"


def torch_release() -> str:
    """Return the release that footprints hold for: ``"2.13"`` of ``"2.13.0+cpu"``."""
    return ".".join(torch.__version__.split(".")[:2])


def newer_than_tested() -> bool:
    """Return whether the torch that runs is newer than the tests know."""
    running, tested = (tuple(map(int, release.split("."))) for release in (torch_release(), TESTED))
    return running > tested
