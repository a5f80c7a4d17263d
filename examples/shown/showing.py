"""Shared code of these scripts: print a line for each check, and compute the exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "npu"))

__all__ = ["Checks", "changed", "dispatcher"]


class Checks:
    """Print a line for each check, and count those that fail."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, got: Any, expected: Any = True) -> None:
        """Check that `got` equals `expected`."""
        passed = bool(got == expected)
        self.failed += not passed
        print(f"{'ok' if passed else 'NO'}  {what}: {got}" + ("" if passed else f", expected {expected}"))


def dispatcher() -> dict[str, str]:
    """Return op -> text of its registrations in torch's dispatcher."""
    return {name: torch._C._dispatch_dump(name) for name in torch._C._dispatch_get_all_op_names()}


def changed(before: dict[str, str]) -> int:
    """Return the number of ops whose registrations have changed."""
    now = dispatcher()
    return sum(now[name] != entry for name, entry in before.items())
