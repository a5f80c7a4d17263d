"""Specs: shapes that eager refuses to broadcast are drawn, and helpers of the specs are right."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from spec_trials import run_trial
from torch import Tensor

from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.specs import random as random_specs
from eagerdecomp.conformance.specs.products import _only_padding
from eagerdecomp.ops.opset import resolve_ops

aten = torch.ops.aten


def _of(vector: Any, count: int) -> Any:
    """A vector as it would broadcast."""
    return vector.expand(count).contiguous() if isinstance(vector, Tensor) and vector.shape == (1,) else vector


def _layer_norm_of_one(one: Tensor, sizes: list[int], weight: Any, bias: Any, eps: float, which: str) -> Any:
    given = {"weight": weight, "bias": bias}
    given[which] = _of(given[which], sizes[0]) if len(sizes) == 1 else given[which]
    return aten.native_layer_norm(one, sizes, given["weight"], given["bias"], eps)


def _group_norm_of_one(one: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float, which: str) -> Any:
    given = {"weight": weight, "bias": bias}
    given[which] = _of(given[which], c)
    return aten.native_group_norm(one, given["weight"], given["bias"], n, c, hw, group, eps)


def _convolution_of_one(given: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    return aten.convolution(given, weight, _of(bias, weight.shape[1] * rest[5] if rest[3] else weight.shape[0]), *rest)


BROADCASTING: list[tuple[str, Callable[..., Any]]] = [
    ("convolution", _convolution_of_one),
    *(("native_layer_norm", functools.partial(_layer_norm_of_one, which=which)) for which in ("weight", "bias")),
    *(("native_group_norm", functools.partial(_group_norm_of_one, which=which)) for which in ("weight", "bias")),
]


@pytest.mark.full
@pytest.mark.parametrize(("op", "kernel"), BROADCASTING)
def test_kernels_that_broadcast_what_eager_refuses_are_caught(op: str, kernel: Callable[..., Any]) -> None:
    (found,) = run_trial(f"aten.{op}.default", kernel).found
    assert found.fault.kind == "errors"


@given(st.data())
def test_where_a_kernel_meets_only_padding(data: st.DataObject) -> None:
    """Its gradient there is zero where all else is one."""
    rank, whole = data.draw(st.integers(1, 2)), st.integers(1, 3)
    transposed = data.draw(st.booleans())
    sizes, kernel, stride, dilation = (data.draw(st.lists(whole, min_size=rank, max_size=rank)) for _ in range(4))
    padding = data.draw(st.lists(st.integers(0, 2), min_size=rank, max_size=rank))
    results = [
        (s - 1) * t - 2 * p + d * (k - 1) + 1 if transposed else (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, d, p in zip(sizes, kernel, stride, dilation, padding, strict=True)
    ]
    assume(min(results) > 0)
    x, weight, shape = torch.ones(1, 1, *sizes), torch.ones(1, 1, *kernel), [1, 1, *results]
    rest = [stride, padding, dilation, transposed, [0] * rank, 1]
    gradient = torch.ops.aten.convolution_backward(torch.ones(shape), x, weight, None, *rest, [False, True, False])[1]
    assert _only_padding(x, weight, shape, rest) == bool((gradient == 0).any())


def test_trying_a_kernel_leaves_the_generator_where_it_was() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    (op,) = resolve_ops(["aten.rand.default"])
    for prop in random_specs.SPECS["aten.rand.default"].properties:
        assert prop.find_fault(TestedKernel(op, op, op), random_specs.SPECS["aten.rand.default"], random_specs.Draw()) is None
    assert torch.equal(torch.rand(4), expected)
