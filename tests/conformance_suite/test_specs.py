"""Specs: each op of Core ATen has one, each argument of its schema is varied, and torch's own kernels are right by it."""

from __future__ import annotations

import pytest
import torch
from sampled import part_of

import eagerdecomp as ed
from eagerdecomp.backends.reference import BACKEND
from eagerdecomp.conformance import run_conformance
from eagerdecomp.conformance.choices import Coverage, Draw
from eagerdecomp.conformance.spec import Skip
from eagerdecomp.conformance.specs import SPECS
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
