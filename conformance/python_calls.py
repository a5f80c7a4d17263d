"""Count the calls of Python functions: a measure of work that does not depend on the machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

__all__ = ["PythonCalls", "python_calls"]


class PythonCalls:
    """Counts the calls of Python functions in a ``with`` block: ``with PythonCalls() as counted: ...; counted.calls``."""

    def __init__(self) -> None:
        self.calls = 0

    def __enter__(self) -> PythonCalls:
        self._before = sys.getprofile()
        sys.setprofile(self._count)
        return self

    def __exit__(self, *error: object) -> None:
        sys.setprofile(self._before)

    def _count(self, frame: FrameType, event: str, _: Any) -> None:
        self.calls += event == "call"


def python_calls(run: Callable[[], Any]) -> int:
    """Return how many Python functions a call runs."""
    with PythonCalls() as counted:
        run()
    return counted.calls
