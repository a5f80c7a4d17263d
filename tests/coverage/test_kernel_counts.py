"""The kernel calls in a plan equal those that the mode makes, for every op of torch's operator database on Core ATen."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_named
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.planner.rule_calls import load_calls

pytestmark = pytest.mark.full

CORE = ed.core_aten()
GROUPS = 20

#: What examples raise whose texts alone make no call that eager takes: pivots of zero, matrices that are not definite.
REFUSED = (RuntimeError, ValueError, IndexError)


@functools.cache
def database() -> list[str]:
    return sorted(name for name, seen in load_calls().items() if seen.eager and op_named(name) is not None)


def kernels_of_mode(mode: ed.EagerDecompMode, op: Any, call: str) -> dict[str, int] | None:
    """Count the backend's calls during the fourth of four calls; None where eager refuses the call."""
    try:
        args, kwargs = parse_call(call)
        op(*args, **kwargs)
    except REFUSED:
        return None
    for _ in range(4):
        args, kwargs = parse_call(call)
        with ed.BackendRecorder() as seen, mode:
            op(*args, **kwargs)
    return {str(kernel): count for kernel, count in seen.ops.items()}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("group", range(GROUPS))
def test_a_plan_counts_the_kernel_calls_that_the_mode_makes(group: int) -> None:
    names = database()[group::GROUPS]
    ed.plan(CORE, ops=names)  # some of torch's entries keep numbers from their first call on
    different, counted, refused = [], 0, 0
    with torch.no_grad():
        for one in ed.plan(CORE, ops=names).ops:
            mode = ed.EagerDecompMode(CORE)
            for route in one.routes:
                if route.missing:
                    continue
                kernels = kernels_of_mode(mode, op_named(one.op), route.call)
                refused += kernels is None
                counted += kernels is not None
                if kernels is not None and (kernels != dict(route.kernels) or not route.counted):
                    different.append((one.op, route.call, kernels, dict(route.kernels)))
    assert different == []
    assert counted > 60
    assert refused < 0.2 * counted


def test_the_plan_of_all_of_aten_is_a_summary_and_says_so() -> None:
    made = ed.plan(CORE)
    assert not any(route.counted for one in made.ops for route in one.routes)
    assert any("before passes shorten the program" in note for note in made.notes)
    named = ed.plan(CORE, ops=["aten.silu.default"])
    assert all(route.counted for route in named["aten.silu.default"].routes)
    assert not any("before passes shorten the program" in note for note in named.notes)
