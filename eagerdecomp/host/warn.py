"""Issue warnings that name the line of the user's program, however many frames of the library are in between."""

from __future__ import annotations

import os
import sys
import warnings
from pathlib import Path

__all__ = ["warn_caller"]

_PACKAGE = str(Path(__file__).parents[1]) + os.sep


def warn_caller(message: str, category: type[Warning] = UserWarning) -> None:
    """Issue a warning at the innermost line that is neither in this library nor in code that it generated."""
    level, frame = 2, sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith((_PACKAGE, "<")):
        level, frame = level + 1, frame.f_back
    warnings.warn(message, category, stacklevel=level)
