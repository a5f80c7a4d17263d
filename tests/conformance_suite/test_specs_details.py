"""Specs: shapes that eager refuses to broadcast are drawn, and helpers of the specs are right."""

from __future__ import annotations

import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.specs import random as random_specs
from eagerdecomp.conformance.specs.products import _only_padding
from eagerdecomp.ops.opset import resolve_ops


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
