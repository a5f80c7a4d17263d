"""Shared code of these scripts: a line for each thing seen, and an exit code."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "npu"))

__all__ = ["Shown", "changed", "dispatcher"]


class Shown:
    """Prints what was seen, and remembers whether all of it was what it should be."""

    def __init__(self) -> None:
        self.failed = 0

    def __call__(self, what: str, seen: Any, wanted: Any = True) -> None:
        well = bool(seen == wanted)
        self.failed += not well
        print(f"{'ok' if well else 'NO'}  {what}: {seen}" + ("" if well else f" for {wanted}"))


def dispatcher() -> dict[str, str]:
    """Return torch's registrations, op by op."""
    return {name: torch._C._dispatch_dump(name) for name in torch._C._dispatch_get_all_op_names()}


def changed(before: dict[str, str]) -> int:
    """How many entries are not what they were."""
    now = dispatcher()
    return sum(now[name] != entry for name, entry in before.items())
