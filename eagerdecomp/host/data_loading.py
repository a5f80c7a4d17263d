"""Detect code that draws for the host: whether `torch.utils.data` or `torch.quasirandom`, or code that they call, is running."""

from __future__ import annotations

import sys
from types import FrameType

__all__ = ["in_data_loading"]

_PACKAGES = ("torch.utils.data", "torch.quasirandom")
_BELOW = tuple(f"{name}." for name in _PACKAGES)


def in_data_loading() -> bool:
    """Return whether a frame of `torch.utils.data` or `torch.quasirandom` is on the stack of this thread.

    This is so while a `DataLoader`, a sampler, `random_split` or a `SobolEngine` runs, and while they call a user's dataset,
    sampler, collate function or worker. Such code runs on the host, whatever the device. The search takes about 0.1 us per frame.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        name = frame.f_globals.get("__name__")
        if isinstance(name, str) and (name in _PACKAGES or name.startswith(_BELOW)):
            return True
        frame = frame.f_back
    return False
