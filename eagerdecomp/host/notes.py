"""Notes on exceptions, which tracebacks show below the message."""

from __future__ import annotations

import sys

__all__ = ["add_note"]


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception. Its type, message and arguments stay the same.

    Python 3.10 does not show notes; they are stored as Python 3.11 stores them, so that tools can.
    """
    if sys.version_info >= (3, 11):
        error.add_note(note)
    else:
        error.__notes__ = [*getattr(error, "__notes__", []), note]
