"""The number of kernels that a cached call runs on Core ATen, as `tests/kernel_counts.txt` has it.

A line is a call and its number. If a rule changes, run the test and edit the line.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from on_core import kernel_calls

from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import resolve_ops

LINES = [
    line.rpartition("  ") for line in (Path(__file__).parents[1] / "kernel_counts.txt").read_text(encoding="utf-8").splitlines()
]


@pytest.mark.parametrize(("call", "count"), [(call.strip(), int(count)) for call, _, count in LINES])
def test_a_cached_call_runs_as_many_kernels(call: str, count: int) -> None:
    name, _, arguments = call.removesuffix(")").partition("(")
    (op,) = resolve_ops([name])
    args, kwargs = parse_call(arguments)
    assert kernel_calls(lambda: op(*args, **kwargs)) == count
