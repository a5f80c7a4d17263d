"""Every overload of ATen is closed on Core ATen or outside with a reason, and the example calls equal eager."""

from __future__ import annotations

import importlib
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from first_calls import observe_call
from on_core import CORE
from torch.utils._pytree import tree_map

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_named
from eagerdecomp._torch.releases import BASELINE, torch_release
from eagerdecomp.coverage.outside import REASONS
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.eager.compare import difference
from eagerdecomp.eager.observe import copied
from eagerdecomp.ops.schema import tensors_in

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.full

#: Those of which not every call that eager takes closes, with why.
PARTLY = {
    "aten._compute_linear_combination.default": "eager reads the memory of coefficients of another type than the input's real one",
    "aten._compute_linear_combination.out": "the same",
    "aten.avg_pool3d_backward.default": "the gradient of integers, which needs a convolution of integers",
    "aten.avg_pool3d_backward.grad_input": "the same",
}

#: Those that draw from another stream than eager's, or choose: tests of their distributions stand with their rules.
OWN_NUMBERS = {
    "aten._sample_dirichlet.default",
    "aten._standard_gamma.default",
    "aten.poisson.default",
    "aten.binomial.default",
    "aten.randint.generator",
    "aten.randint.low_generator",
    "aten._fused_sdp_choice.default",
    "aten._make_dep_token.default",
}


MODE = ed.EagerDecompMode(CORE)


@pytest.fixture(scope="module")
def plan() -> Plan:
    return ed.plan(CORE)


@pytest.mark.skipif(torch_release() != BASELINE, reason="other releases have other ops")
def test_each_overload_is_in_one_class(plan: Plan) -> None:
    assert plan.counts.keys() == {"supported", "passes", "closed", "partly", "outside"}
    assert {one.op for one in plan.with_status("partly")} == PARTLY.keys()
    assert plan.counts["outside"] == 255
    named = {"names of dimensions, which torch 2.13 dropped"}
    assert Counter(one.reason for one in plan.with_status("outside")).keys() == REASONS.keys() - named


def test_a_model_with_an_outside_op_is_not_closed() -> None:
    found = ed.plan(CORE, ops=["aten._spsolve.default"])
    assert found.failing("closed")
    assert "outside: sparse tensors in compressed rows, columns or blocks" in found.unmet("closed")


def uncommon() -> Iterator[tuple[str, Any]]:
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        calls = importlib.import_module("uncommon_calls").uncommon_calls()
        torch.manual_seed(0)
        for number, (op, args, kwargs) in enumerate(calls):
            yield f"{op}-{number}", (str(op), args, kwargs)
    finally:
        sys.path.remove(str(ROOT / "tools"))


def retyped(value: Any, dtype: torch.dtype) -> Any:
    """A copy, floats of 32 bits as others."""
    if not isinstance(value, torch.Tensor):
        return value
    return value.to(dtype) if value.dtype is torch.float32 else value.clone()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("made", [pytest.param(made, id=name) for name, made in uncommon()])
def test_calls_that_are_not_in_torchs_database_equal_eager(made: Any, dtype: torch.dtype) -> None:
    """Where eager has a kernel on the CPU, and takes the dtype; elsewhere that they run, on kernels of the set alone."""
    name, args, kwargs = made
    op = op_named(name)
    if dtype is not torch.float32 and not any(one.dtype is torch.float32 for one in tensors_in([args, kwargs])):
        pytest.skip("has no floats")
    given, named = tree_map(lambda one: retyped(one, dtype), (args, kwargs))
    with torch.no_grad():
        want = observe_call(op, *copied(op, given, named), None)
        found = observe_call(op, *copied(op, given, named), MODE)
    if want.error is None and name not in OWN_NUMBERS:
        assert difference(op, given, named, want, found, op) is None
    elif want.error is None or (dtype is torch.float32 and isinstance(want.error, NotImplementedError)):
        assert found.error is None
