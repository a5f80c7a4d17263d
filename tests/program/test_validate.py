"""Calls held to schemas: what is refused, and that the tables let pass nothing that torch would not take."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from eagerdecomp._torch.ops import op_names, overload
from eagerdecomp.ops.schema import kind_of
from eagerdecomp.program.ir import Slot
from eagerdecomp.program.symbolic_sizes import Expression
from eagerdecomp.program.validate import TAKE_NUMBERS, Made, answer_fault, call_fault, take_parameters

aten = torch.ops.aten
X, Y, OUT, GENERATOR = Slot(0), Slot(1), Slot(7), Slot(3)
ROWS = Expression("size", (X, 0))


def made() -> Made:
    return Made({X, Y, GENERATOR, Slot(4)}, {X, Y}, {GENERATOR})


FITTING: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
    (aten.add.Tensor, (X, Y), {}),
    (aten.add.Tensor, (X, 2.5), {"alpha": 1 + 2j}),
    (aten.sub.Tensor, (1, X), {}),
    (aten.mul_.Tensor, (X, ROWS), {}),
    (aten._to_copy.default, (X,), {"dtype": torch.int8, "device": "cpu", "memory_format": torch.preserve_format}),
    (aten.sum.dim_IntList, (X, [0, ROWS]), {"dtype": None}),
    (aten.sum.dim_IntList, (X, 0), {}),
    (aten.full.default, ([ROWS, 2], True), {"layout": torch.strided}),
    (aten.bernoulli.p, (X, 0.5), {"generator": GENERATOR}),
    (aten.index.Tensor, (X, [None, Y]), {}),
    (aten.gelu.default, (X,), {"approximate": "tanh"}),
    (aten.arange.default, ((1 << 64) - 1,), {}),
    (aten.clamp.default, (X, None, 3), {}),
    (aten.mul.Scalar, (X, Expression("/", (ROWS, 2))), {}),
]


@pytest.mark.parametrize(("op", "args", "kwargs"), FITTING)
def test_a_call_as_its_schema_says_fits_and_makes_its_result(op: Any, args: Any, kwargs: dict[str, Any]) -> None:
    values = made()
    assert call_fault(op, args, tuple(kwargs.items()), (OUT,), False, values) == ""
    assert OUT in values.tensors


UNFIT: list[tuple[Any, tuple[Any, ...], tuple[tuple[Any, Any], ...], str]] = [
    (aten._to_copy.default, (X,), (("dtype", -1),), "'-1' is no dtype"),
    (aten._to_copy.default, (X,), (("memory_format", 1),), "is no memory_format"),
    (aten._to_copy.default, (X,), (("device", "exec"),), "'exec' is no device"),
    (aten._to_copy.default, (True,), (), "'True' is no self"),
    (aten.relu.default, (1.0,), (), "'1.0' is no self"),
    (aten.add_.Tensor, (1, X), (), "'1' is no self"),
    (aten.relu.default, (None,), (), "'None' is no self"),
    (aten.relu.default, (), (), "is given no self"),
    (aten.bernoulli.p, (X,), (), "is given no p"),
    (aten.relu.default, (X, X), (), "no 2 positional arguments"),
    (aten.add.Tensor, (X, Y), (("other", Y),), "given twice"),
    (aten.add.Tensor, (X,), (("other", Y), ("other", Y)), "given twice"),
    (aten.add.Tensor, (X, Y), (("beta", 1),), "takes no 'beta'"),
    (aten.add.Tensor, (X, Y), ((["alpha"], 1),), "takes no"),
    (aten.add.Tensor, (X, OUT), (), "'%7' is no other"),
    (aten.add.Tensor, (X, Slot(4)), (), "'%4' is no other"),
    (aten.add.Tensor, (X, GENERATOR), (), "'%3' is no other"),
    (aten.bernoulli.p, (X, 0.5), (("generator", Y),), "'%1' is no generator"),
    (aten.sum.dim_IntList, (X, [Y]), (), "is no dim"),
    (aten.sum.dim_IntList, (X, [1 << 63]), (), "is no dim"),
    (aten.sum.dim_IntList, (X, [0.5]), (), "is no dim"),
    (aten.sum.dim_IntList, (X, [[0]]), (), "is no dim"),
    (aten.full.default, (3, 1), (), "'3' is no size"),
    (aten.full.default, ([Expression("/", (ROWS, 2))], 1), (), "is no size"),
    (aten.full.default, ([Expression("size", (OUT, 0))], 1), (), "is no size"),
    (aten.cat.default, ([X, None],), (), "is no tensors"),
    (aten.cat.default, (X,), (), "is no tensors"),
    (aten.gelu.default, (X,), (("approximate", 1),), "is no approximate"),
    (aten.mul.Scalar, (X, "2"), (), "is no other"),
]


@pytest.mark.parametrize(("op", "args", "kwargs", "why"), UNFIT)
def test_a_call_that_its_schema_does_not_know_has_a_fault(op: Any, args: Any, kwargs: Any, why: str) -> None:
    assert why in call_fault(op, args, kwargs, (OUT,), False, made())


@pytest.mark.parametrize(
    ("op", "args", "results", "packed"),
    [
        (aten.relu.default, (X,), (OUT,), True),
        (aten.relu.default, (X,), (OUT, Slot(8)), False),
        (aten.relu.default, (X,), (), False),
        (aten.relu.default, (X,), (X,), False),
        (aten.relu.default, (X,), (Slot(4),), False),
        (aten.max.dim, (X, 0), (OUT,), False),
        (aten.max.dim, (X, 0), (OUT, OUT), True),
        (aten.max.dim, (X, 0), (OUT, None, None), True),
        (aten.unbind.int, (X,), (OUT,), False),
        (aten.equal.default, (X, Y), (OUT,), False),
        (aten._foreach_add_.Scalar, ([X], 1), (OUT,), False),
        (aten._foreach_add_.Scalar, ([X], 1), (), True),
    ],
)
def test_results_that_an_op_has_not_are_a_fault(op: Any, args: Any, results: Any, packed: bool) -> None:
    assert "are not the results" in call_fault(op, args, (), results, packed, made())


@pytest.mark.parametrize(
    ("op", "args", "results", "packed"),
    [
        (aten.relu_.default, (X,), (None,), False),
        (aten.max.dim, (X, 0), (OUT, None), True),
        (aten.unbind.int, (X,), (OUT, Slot(8), None), True),
        (aten.equal.default, (X, Y), (None,), False),
        (aten._foreach_add_.Scalar, ([X], 1), (None,), False),
    ],
)
def test_results_that_an_op_has_are_made(op: Any, args: Any, results: Any, packed: bool) -> None:
    values = made()
    assert call_fault(op, args, (), results, packed, values) == ""
    assert values.tensors == {X, Y} | {slot for slot in results if slot is not None}


@pytest.mark.parametrize(
    ("op", "answer", "right"),
    [
        (aten.relu.default, X, True),
        (aten.relu.default, "exec", False),
        (aten.relu.default, 1, False),
        (aten.relu.default, [X], False),
        (aten.relu.default, OUT, False),
        (aten.relu.default, GENERATOR, False),
        (aten.max.dim, (X, Y), True),
        (aten.max.dim, [X], False),
        (aten.max.dim, X, False),
        (aten.native_layer_norm_backward.default, (X, None, None), True),
        (aten.unbind.int, [X, Y], True),
        (aten.unbind.int, X, False),
        (aten.unbind.int, [X, None], False),
        (aten._foreach_add_.Scalar, None, True),
        (aten._foreach_add_.Scalar, [X], False),
        (aten.equal.default, True, True),
        (aten.equal.default, "yes", False),
    ],
)
def test_an_answer_is_what_its_op_returns(op: Any, answer: Any, right: bool) -> None:
    fault = answer_fault(op, answer, made())
    assert (fault == "") is right
    assert right or f"is not what {op} answers" in fault


def test_parameters_are_the_tensors_and_generators_of_an_op() -> None:
    values = Made()
    assert take_parameters(aten.bernoulli.p, [X, GENERATOR], values)
    assert (values.tensors, values.generators) == ({X}, {GENERATOR})
    values = Made()
    assert take_parameters(aten.index.Tensor, [X, [Y, X]], values)
    assert values.tensors == {X, Y}
    values = Made()
    assert take_parameters(aten.cat.default, [X], values)
    assert (values.every, values.tensors) == ({X}, set())
    for op, wrong in ((aten.relu.default, []), (aten.relu.default, [[X]]), (aten.relu.default, [X, Y]), (aten.bernoulli.p, [X, X])):
        assert not take_parameters(op, wrong, Made())


# -- torch's word ------------------------------------------------------------------------------------------------------------------

SAMPLES: tuple[Any, ...] = (
    *(True, 3, 1.5, 2j, "cpu", torch.float32, torch.strided, torch.channels_last, torch.device("cpu")),
    *([], [1], (1, 2), [1.5], [True], ["a"], None),
)
LIBRARY = torch.library.Library("edfitting", "DEF")
TYPES = ("int", "bool", "float", "Scalar", "str", "ScalarType", "Layout", "Device", "MemoryFormat", "int[]", "SymInt[]", "int[2]")
TYPES += (
    "bool[]",
    "float[]",
    "float[1]",
    "Scalar[]",
    "str[]",
    "int?",
    "Device?",
    "int[]?",
    "float[]?",
    "Tensor",
    "Tensor?[]",
    "Generator",
)


@pytest.mark.parametrize("kind", TYPES)
def test_what_the_tables_let_pass_torch_takes(kind: str) -> None:
    name = "takes_" + "".join(letter if letter.isalnum() else "_" for letter in kind.replace("?", "optional"))
    LIBRARY.define(f"{name}({kind} given) -> Tensor")
    LIBRARY.impl(name, lambda given: torch.ones(()), "CompositeExplicitAutograd")
    op = getattr(torch.ops.edfitting, name).default
    passed = [value for value in SAMPLES if not call_fault(op, (value,), (), (OUT,), False, Made())]
    assert passed or kind in ("Tensor", "Generator")
    for value in passed:
        assert op(value).shape == ()


class Reached(Exception):
    """A call came to the dispatcher: torch took its arguments."""


class Stops(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise Reached


PLAIN: dict[str, Any] = {"Tensor": torch.ones(2, 2), "int": 0, "bool": False, "float": 0.0, "number": 1, "str": "floor"}
PLAIN |= {"ScalarType": torch.float32, "Device": torch.device("cpu"), "Layout": torch.strided}


def _takes_a_number(op: Any, position: int) -> bool | None:
    """Whether torch takes a number at this position; None where we have nothing to put beside it."""
    args: list[Any] = []
    for index, one in enumerate(op._schema.arguments[: len(op._schema.arguments)]):
        kind, optional, is_list, _ = kind_of(str(one.real_type))
        if one.kwarg_only or (index > position and one.has_default_value()):
            continue
        if not optional and kind not in PLAIN:
            return None
        value = None if optional else [PLAIN[kind]] if is_list else PLAIN[kind]
        args.append(1.5 if index == position else value)
    try:
        with Stops():
            op(*args)
    except Reached:
        return True
    except RuntimeError as refusal:
        return "Expected a value of type 'Tensor'" not in str(refusal)
    return True


def test_numbers_pass_for_tensors_where_torch_takes_them_and_nowhere_else() -> None:
    """Of the first two arguments: of `copy` and others that take them too, no program has one there."""
    without = {f"aten::{name}" for name in ("_conj", "_to_copy", "copy", "copy_", "to")} | {f"{name}_" for name in TAKE_NUMBERS}
    found = {
        (op._schema.name, position)
        for name in op_names()
        if name.startswith("aten::") and (op := overload(name)) is not None and "out" not in op._overloadname
        for position, one in enumerate(op._schema.arguments[:2])
        if str(one.real_type) == "Tensor" and not one.kwarg_only
        if op._schema.name not in without and _takes_a_number(op, position)
    }
    assert found == {(name, position) for name in TAKE_NUMBERS for position in (0, 1)}
