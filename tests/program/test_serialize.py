"""Literals, keys, columns and programs as text: what is written reads back the same, and nothing else is taken."""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.program.ir import KernelCall, Program, Slot, evaluate
from eagerdecomp.program.key import Column, exact_columns
from eagerdecomp.program.serialize import (
    _IN_KEYS,
    _IN_PROGRAMS,
    Unreadable,
    Unwritable,
    _read,
    _written,
    column_text,
    key_text,
    program_text,
    read_column,
    read_op,
    read_program,
)
from eagerdecomp.program.symbolic_sizes import OPERATORS, Expression
from eagerdecomp.program.validate import LITERALS
from eagerdecomp.runtime.cache import ProgramCache

aten = torch.ops.aten


def told(value: Any) -> Any:
    """A value with its types: equal only where nothing tells two apart."""
    if isinstance(value, (list, tuple)):
        return (type(value), *map(told, value))
    if isinstance(value, Expression):
        return (Expression, value.operator, *map(told, value.operands))
    return (type(value), value.hex() if type(value) is float else repr(value))


def through(value: Any, tags: frozenset[str]) -> Any:
    return _read(json.loads(json.dumps(_written(value))), tags)


SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(1 << 64) + 1, (1 << 64) - 1)
    | st.floats().map(lambda x: float("nan") if x != x else x)
    | st.complex_numbers(allow_nan=False)
    | st.text(max_size=20)
    | st.sampled_from([torch.float16, torch.int64, torch.complex64, torch.strided, torch.channels_last, torch.preserve_format])
    | st.sampled_from([torch.device("cpu"), torch.device("meta"), torch.device("cuda:1")])
)
SLOTS = st.integers(0, 99).map(Slot)
SIZES = st.recursive(
    st.builds(lambda slot, dim: Expression("size", (slot, dim)), SLOTS, st.integers(0, 8))
    | st.builds(lambda slot: Expression("numel", (slot,)), SLOTS),
    lambda inner: (
        st.builds(
            lambda sign, one, other: Expression(sign, (one, other)),
            st.sampled_from(sorted(set(OPERATORS) - {"size", "numel", "negative"})),
            inner | st.integers(-9, 9),
            inner | st.integers(-9, 9) | st.floats(allow_nan=False, allow_infinity=False),
        )
        | st.builds(lambda one: Expression("negative", (one,)), inner)
    ),
    max_leaves=6,
)


@given(st.recursive(SCALARS | SLOTS | SIZES, lambda inner: st.lists(inner, max_size=4) | st.lists(inner, max_size=4).map(tuple)))
def test_a_literal_of_a_program_reads_back_the_same(value: Any) -> None:
    assert told(through(value, _IN_PROGRAMS)) == told(value)


@given(
    st.recursive(
        SCALARS | st.sampled_from([int, float, bool, complex]) | st.lists(st.integers(0, 9)).map(torch.Size),
        lambda inner: st.lists(inner, max_size=4).map(tuple),
    )
)
def test_a_key_reads_back_the_same_and_finds_what_it_found(key: Any) -> None:
    again = through(key, _IN_KEYS)
    assert told(again) == told(key)
    assert hash(again) == hash(key) or key != key or "nan" in repr(key)


@pytest.mark.parametrize("value", [1 << 64, object(), torch.ones(1), torch.Generator(), float, torch.nn.Linear, {1: 2}, b"x", len])
def test_what_has_no_text_is_not_written(value: Any) -> None:
    if value is float:  # a type of numbers stands in keys, and in no program
        with pytest.raises(Unreadable):
            through(value, _IN_PROGRAMS)
        return
    with pytest.raises(Unwritable):
        key_text((value,))


@given(
    st.lists(st.integers(0, 4), max_size=4), st.permutations(range(4)), st.sampled_from([torch.float64, torch.bool, torch.bfloat16])
)
def test_a_constant_reads_back_with_its_strides_and_bits(shape: list[int], order: list[int], dtype: torch.dtype) -> None:
    laid = [dim for dim in order if dim < len(shape)]
    value = torch.randn([shape[dim] for dim in laid]).to(dtype).permute([laid.index(dim) for dim in range(len(shape))])
    call = KernelCall(aten.add.Tensor, (Slot(0), Slot(1)), (), (Slot(2),), False)
    program = Program(aten.silu.default, (Slot(0),), ((Slot(1), value),), (call,), Slot(2))
    again = read_program(aten.silu.default, json.loads(json.dumps(program_text(program))), lambda op: True)
    ((slot, found),) = again.constants
    assert (slot, found.dtype, found.shape, found.stride()) == (Slot(1), dtype, value.shape, value.stride())
    assert torch.equal(found, value)
    assert again.calls == program.calls
    if dtype is torch.float64:
        x = torch.ones(shape, dtype=dtype)
        assert torch.equal(evaluate(again, lambda op: op, (x,)), value + 1)


@pytest.mark.parametrize(
    "value",
    [
        torch.ones(4)[1:],
        torch.ones(4)[:2],
        torch.ones(1, dtype=torch.complex64).conj(),
        torch.ones(2, requires_grad=True),
        torch.nn.Parameter(torch.ones(2)),
        torch.ones(1 << 19),
        torch.ones(2, device="meta"),
        torch.eye(2).to_sparse(),
    ],
)
def test_a_constant_that_bytes_do_not_tell_is_not_written(value: torch.Tensor) -> None:
    program = Program(aten.silu.default, (Slot(0),), ((Slot(1), value),), (), Slot(0))
    with pytest.raises(Unwritable):
        program_text(program)


def test_the_columns_of_every_op_read_back_the_same() -> None:
    for name in op_names():
        op = overload(name) if name.startswith("aten::") else None
        if op is not None:
            for one in exact_columns(op, offsets=True):
                assert read_column(op, json.loads(json.dumps(column_text(one)))) == one


@pytest.mark.parametrize(
    "text",
    [
        "self.shape[0]",
        "(((self.shape[1] * self.shape[2]) * 3) != 0)",
        "(self.numel() == 0)",
        "self.numel() == 0",
        "grad_output.shape == self.shape",
        "self.is_contiguous()",
        "((-self.shape[0]) // 2)",
        "(self.shape[0] / 2.5)",
        "self.storage_offset()",
    ],
)
def test_columns_that_recordings_make_are_taken(text: str) -> None:
    one = Column(text, (), ("self.dim() > 1",))
    assert read_column(aten.reflection_pad2d_backward.default, json.loads(json.dumps(column_text(one)))) == one


def test_every_argument_of_every_op_may_hold_its_default_and_kinds_that_programs_hold() -> None:
    """A kind that the table lacks would keep every program with such an argument out of files."""
    without = {"Storage", "Stream", "__torch__.torch.classes.rnn.CellParamsBase"}
    for name in op_names():
        op = overload(name) if name.startswith(("aten::", "prims::")) else None
        for argument in facts_of(op).arguments if op is not None else ():
            assert argument.kind in LITERALS or argument.kind in without, (name, argument)


@pytest.mark.parametrize(
    "name", ["aten.add", "aten.add.nothing", "torch.nn.Linear", "aten..Tensor", "", 3, None, "aten.add.Tensor "]
)
def test_what_is_no_name_of_an_operator_is_refused(name: Any) -> None:
    with pytest.raises(Unreadable):
        read_op(name)


def test_an_operators_name_reads_back_as_the_operator() -> None:
    for op in (aten.add.Tensor, aten.silu.default, aten.__and__.Scalar, torch.ops.prims.add.default):
        assert read_op(str(op)) is op


def test_every_program_of_the_measured_calls_can_be_written_and_read() -> None:
    """By a hook that declines, so that what is linked elsewhere is recorded too."""
    from eagerdecomp.bench.cases import TINY, chosen

    cache = ProgramCache()
    backend = ed.Backend("hooked", ed.core_aten(), compile=lambda graph, inputs: None)
    with ed.EagerDecompMode(backend, cache=cache):
        for case in chosen(False):
            case.op(*case.args(TINY), **case.kwargs(TINY))
    count = 0
    for space in cache._spaces.values():
        for op, table in space.items():
            for program in table.listings.values():
                again = read_program(op, json.loads(json.dumps(program_text(program))), lambda op: True)
                assert str(again) == str(program)
                assert told([(c.args, c.kwargs) for c in again.calls]) == told([(c.args, c.kwargs) for c in program.calls])
                count += 1
    assert count > 40
