"""Specs: each op of Core ATen has one, each argument of its schema is varied, and others vary recorded calls."""

from __future__ import annotations

import functools

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sampled import part_of

import eagerdecomp as ed
from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import OpOverload, dispatcher_name
from eagerdecomp.backends.reference import BACKEND
from eagerdecomp.conformance import run_conformance
from eagerdecomp.conformance.choices import Coverage, Draw
from eagerdecomp.conformance.generic_spec import examples_of, spec_of_any
from eagerdecomp.conformance.spec import Call, Skip, TestedKernel, tensors_of
from eagerdecomp.conformance.specs import SPECS
from eagerdecomp.conformance.specs import random as random_specs
from eagerdecomp.conformance.specs.products import _only_padding
from eagerdecomp.conformance.trial import Effort, try_kernel
from eagerdecomp.coverage.analysis import aten_ops
from eagerdecomp.ops.call_text import call_text, value_text
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import arguments_of, facts_of

#: One part in so many of the kernels is tried thoroughly each time.
PARTS = 8
DRAWS = 300

NAMES = sorted(map(str, ed.core_aten()))


def test_every_op_of_core_aten_and_infra_has_a_spec() -> None:
    assert sorted(SPECS) == NAMES
    assert {str(op) for op in ed.infra()} <= set(SPECS)


@pytest.mark.parametrize("name", NAMES)
def test_every_argument_of_the_schema_is_varied(name: str) -> None:
    op, spec = resolve_ops([name])[0], SPECS[name]
    coverage = Coverage(0)
    given: dict[str, set[str]] = {argument.name: set() for argument in facts_of(op).arguments}
    for _ in range(DRAWS):
        try:
            call = spec.call(Draw(coverage=coverage))
        except Skip:
            continue
        for argument, value in zip(given, arguments_of(op, call.args, call.kwargs), strict=True):
            given[argument].add(value_text(value))
        if all(len(seen) > 1 for argument, seen in given.items() if argument not in spec.varies):
            break
    assert [argument for argument, seen in given.items() if len(seen) < 2] == sorted(spec.varies, key=list(given).index)


@pytest.mark.parametrize("name", NAMES)
def test_the_same_choices_draw_the_same_call(name: str) -> None:
    coverage = Coverage(1)
    for _ in range(5):
        draw = Draw(coverage=coverage)
        try:
            call = SPECS[name].call(draw)
        except Skip:
            continue
        again = SPECS[name].call(Draw(draw.choices))
        assert call_text(call.args, call.kwargs) == call_text(again.args, again.kwargs)
        for one, other in zip(call.args, again.args, strict=True):
            if isinstance(one, torch.Tensor) and one.numel() and one.layout is torch.strided:
                torch.testing.assert_close(one, other, rtol=0, atol=0, equal_nan=True)


@pytest.mark.full
def test_torchs_own_kernels_are_right() -> None:
    """A part of them each time."""
    names = part_of(NAMES, PARTS)
    report = run_conformance(BACKEND, ops=names, profile="quick")
    assert [(str(one.op), one.property, one.message, one.example) for one in report.failures] == []
    assert {verdict.state for verdict in report.results} == {"right"}
    assert [str(verdict.op) for verdict in report.results] == names


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(20))
def test_torchs_own_kernels_are_right_by_every_seed(seed: int) -> None:
    report = run_conformance(BACKEND, profile="standard", seed=seed)
    assert [(str(one.op), one.property, one.message, one.example) for one in report.failures] == []
    assert report.counts["right"] == len(NAMES)
    assert report.consequences == ()


@pytest.mark.nightly
@pytest.mark.parametrize("seed", range(4))
def test_three_hundred_pass_through_kernels_raise_no_alarm(seed: int) -> None:
    others = [
        op for op in aten_ops() if str(op) not in SPECS and has_computed_kernel(dispatcher_name(op), "CPU") and spec_of_any(op)
    ]
    ops = [*ed.core_aten(), *part_of(others, len(others) // 100)]
    backend = ed.Backend("the same", ops, {op: functools.partial(OpOverload.__call__, op) for op in ops})
    report = run_conformance(backend, ops=ops, profile="standard", seed=seed)
    assert [(str(one.op), one.property, one.message, one.example) for one in (*report.failures, *report.accepts)] == []
    assert report.counts["right"] >= 300


def drawn(name: str, count: int = 60) -> list[Call]:
    spec = spec_of_any(resolve_ops([name])[0])
    assert spec is not None
    coverage = Coverage(0)
    return [spec.call(Draw(coverage=coverage)) for _ in range(count)]


def drawn_shapes(name: str, count: int = 60) -> list[list[tuple[int, ...]]]:
    return [[tuple(one.shape) for one in tensors_of(call)] for call in drawn(name, count)]


def test_sizes_vary_and_equal_ones_mostly_stay_equal() -> None:
    shapes = drawn_shapes("aten.addmv.default")
    assert len({shape for call in shapes for shape in call}) > 20
    assert len(shapes) / 2 < sum(matrix[-1] == vector[0] for _, matrix, vector in shapes) < len(shapes)


def test_pointwise_ops_get_any_shape() -> None:
    assert {len(shape) for (shape,) in drawn_shapes("aten.silu.default")} >= {0, 1, 2, 3, 4}


def test_out_keeps_its_size() -> None:
    assert len({tuple(call) for call in drawn_shapes("aten.cummax.out", 40)}) <= len(
        examples_of(resolve_ops(["aten.cummax.out"])[0])
    )


def test_scalars_vary() -> None:
    calls = drawn("aten.logsumexp.default")
    assert {tuple(call.args[1]) for call in calls} >= {(0,), (1,), (-1,)}
    assert {call.args[2] for call in calls if len(call.args) > 2} == {True}  # the default is left out
    assert any(len(call.args) == 2 for call in calls)


def test_a_fault_that_needs_two_scalars_is_found() -> None:
    (op,) = resolve_ops(["aten.searchsorted.Scalar"])
    left = TestedKernel(op, lambda *args, right=False, **kwargs: op(*args, **kwargs), op)
    spec = spec_of_any(op)
    assert spec is not None
    assert try_kernel(left, spec, Effort(1500, 60.0, 1, faults=1), 0).found


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
