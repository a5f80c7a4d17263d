"""The error of a call that a predicate or `Backend.dtypes` refuses: which call was refused, why, and what called it."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor
from without_float64 import by_dtypes

import eagerdecomp as ed

x = torch.ones(3, dtype=torch.float64)


def single(left: Tensor, right: Tensor) -> bool:
    return left.dtype is torch.float32


FEW = (ed.infra() | ["aten.mul.Tensor", "aten.sigmoid"]).with_predicate("aten.mul.Tensor", single)


def raised(backend: ed.Backend | ed.OpSet, run: Callable[[], object]) -> ed.UnsupportedOpError:
    with pytest.raises(ed.UnsupportedOpError) as caught, ed.EagerDecompMode(backend):
        run()
    return caught.value


def test_a_refused_call_in_a_rule_names_the_predicate_and_the_rule() -> None:
    error = raised(FEW, lambda: F.silu(x))
    (refused,) = error.refused
    call, _, caller = refused.partition("; ")
    assert call.startswith(f"aten.mul.Tensor(f64[3], f64[3]): its predicate {__name__}.single:")
    assert "silu" in caller
    assert caller.endswith("called it")
    assert ("aten.mul.Tensor",) not in error.kernels_to_add
    assert "aten.mul.Tensor" not in error.additions
    assert refused in str(error)
    assert "accept a refused call" in str(error)


def test_a_dtype_that_the_backend_does_not_take() -> None:
    error = raised(by_dtypes(ed.core_aten()), lambda: F.silu(x))
    (refused,) = error.refused
    assert refused.startswith("aten.sigmoid.default(f64[3]): torch.float64 is not among the dtypes of backend 'narrow'; ")
    assert not error.kernels_to_add, "no kernel helps: it would be refused too"
    assert not error.hint, "the memory ops are in the set"


def test_preflight_reports_the_refused_call_of_a_gradient() -> None:
    def refuse(*args: object, **kwargs: object) -> bool:
        return False

    ops = (ed.core_aten() | ["aten.silu", "aten.silu_backward"]) - ["aten.sigmoid", "aten.exp", "aten.tanh"]
    ops = ops.with_predicate("aten.silu_backward", refuse)
    given = torch.ones(3, requires_grad=True)
    with pytest.raises(ed.UnsupportedGradientError) as caught, ed.EagerDecompMode(ops, preflight=True):
        F.silu(given)
    assert any(one.startswith("aten.silu_backward.default(") for one in caught.value.refused)
