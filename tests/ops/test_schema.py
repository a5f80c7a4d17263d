"""Facts come from schemas and tags, not from names; calls are converted to arguments and back unchanged."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of, functional_variant

aten = torch.ops.aten

EVERY_ATEN_OP = [op for name in op_names() if name.startswith("aten::") and (op := overload(name)) is not None]


# -- kinds --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("op", "kind"),
    [
        (aten.add.Tensor, "functional"),
        (aten.add_.Tensor, "in place"),
        (aten.max.dim_max, "out"),  # an out= op whose overload name has no "out" in it
        (aten.geqrf.a, "out"),
        (aten._slow_conv2d_backward.output_mask, "functional"),  # an op with "out" in its name that writes nothing
        (aten.__and__.Tensor, "functional"),  # a trailing underscore does not mean in-place
        (aten.record_stream.default, "in place"),  # and in-place ops may have none
        (aten.set_.source_Tensor, "in place"),
        (aten.unbind.int, "view"),
        (aten.t_.default, "in place"),
        (aten._native_batch_norm_legit.default, "writes others"),  # running statistics, neither first nor keyword-only
        (aten._foreach_add_.Scalar, "in place"),
        (aten.full.out, "out"),  # the written tensor is the only tensor argument
    ],
    ids=str,
)
def test_the_kind_of_an_op_is_read_from_its_schema(op: Any, kind: str) -> None:
    facts = facts_of(op)
    read = {
        "functional": facts.is_functional,
        "in place": facts.is_inplace,
        "out": facts.is_out,
        "view": facts.returns_alias and not facts.mutated,
        "writes others": bool(facts.mutated) and not facts.is_inplace and not facts.is_out,
    }
    assert [name for name, holds in read.items() if holds] == [kind]


def test_every_aten_op_has_at_most_one_kind_and_mutates_what_its_schema_says() -> None:
    for op in EVERY_ATEN_OP:
        facts = facts_of(op)
        assert bool(facts.mutated) is op._schema.is_mutable, op
        assert not (facts.is_out and facts.is_inplace), op
        assert not (facts.is_functional and (facts.is_out or facts.is_inplace)), op
        # Ops that torch tags as out= and we do not also write to another argument (running statistics).
        others = [position for position in facts.mutated if not facts.arguments[position].kwarg_only]
        assert facts.is_out is (torch.Tag.out in op.tags and not others), op


# -- functional variants -----------------------------------------------------------------------------------------------------


def test_every_variant_of_aten_matches_by_schema() -> None:
    found = 0
    for op in EVERY_ATEN_OP:
        variant = functional_variant(op)
        if variant is None:
            continue
        found += 1
        facts, theirs = facts_of(op), facts_of(variant)
        assert not theirs.mutated, f"{op} -> {variant}: the functional variant writes"
        assert not theirs.returns_alias, f"{op} -> {variant}: the functional variant returns a view"
        # The functional variant takes the op's arguments in the same order and of the same types, without those that are only
        # written. It takes more only where eager reads it off the written tensor: dtype, layout, device, memory format.
        given_by_op = [a for i, a in enumerate(facts.arguments) if not (facts.is_out and i in facts.mutated)]
        ours = [(a.name, a.kind, a.is_list, a.optional, a.optional_items) for a in given_by_op]
        taken = [(a.name, a.kind, a.is_list, a.optional, a.optional_items) for a in theirs.arguments]
        more = [argument for argument in taken if argument not in ours]
        assert [argument for argument in taken if argument in ours] == ours, f"{op} -> {variant}"
        assert {argument[0] for argument in more} <= {"dtype", "layout", "device", "pin_memory", "memory_format"}, (
            f"{op} -> {variant}"
        )
        # One new value for each written argument.
        assert len(variant._schema.returns) in (len(facts.mutated), len(op._schema.returns)), f"{op} -> {variant}"
        written = [facts.arguments[position].is_list for position in facts.mutated]
        fresh = ["List" in str(value.real_type) for value in variant._schema.returns]
        if len(written) == len(fresh):
            assert written == fresh, f"{op} -> {variant}: lists do not match"
    assert found > 1000


# -- calls and arguments ----------------------------------------------------------------------------------------------------

TENSOR = torch.ones(2)

numbers = st.sampled_from([0, 1, True, False, 1.0, 0.0, -0.0, 2, -1, math.inf, math.nan, 1j])
CALLS: dict[Any, list[st.SearchStrategy[Any]]] = {
    aten.add.Tensor: [st.just(TENSOR), st.just(TENSOR), numbers],
    aten.add.Scalar: [st.just(TENSOR), numbers, numbers],
    aten.addmm.default: [st.just(TENSOR), st.just(TENSOR), st.just(TENSOR), numbers, numbers],
    aten.clamp.default: [st.just(TENSOR), st.none() | numbers, st.none() | numbers],
    aten.sum.dim_IntList: [
        st.just(TENSOR),
        st.none() | st.lists(st.integers(-1, 1)),
        st.booleans(),
        st.sampled_from([None, torch.float64]),
    ],
    aten.gelu.default: [st.just(TENSOR), st.sampled_from(["none", "tanh"])],
    aten.slice.Tensor: [
        st.just(TENSOR),
        st.integers(0, 1),
        st.none() | st.integers(0, 2),
        st.none() | st.integers(0, 2),
        st.just(1),
    ],
    aten.uniform_.default: [st.just(TENSOR), st.sampled_from([0.0, -0.0, 0.5]), st.sampled_from([1.0, 2.0]), st.none()],
    aten.elu.default: [st.just(TENSOR), numbers, numbers, numbers],
}


def same(left: Any, right: Any) -> bool:
    if isinstance(left, (list, tuple)):
        return type(left) is type(right) and len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, (float, complex)):
        return type(left) is type(right) and repr(left) == repr(right)
    return left is right or (type(left) is type(right) and left == right)


@pytest.mark.full
@given(data=st.data())
@pytest.mark.parametrize("op", CALLS, ids=str)
def test_arguments_survive_conversion_to_a_call_and_back(op: Any, data: st.DataObject) -> None:
    values = [data.draw(strategy) for strategy in CALLS[op]]
    args, kwargs = call_of(op, values)
    assert same(arguments_of(op, args, kwargs), values)
