"""A key contains only facts that the rule reads: one program runs for all calls with equal facts."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from programs import planner_for
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.modes import without_torch_function
from eagerdecomp.eager.layouts import has_default_strides
from eagerdecomp.ops.schema import arguments_of
from eagerdecomp.program.key import program_arguments
from eagerdecomp.program.symbolic_sizes import Expression
from eagerdecomp.rules.rule import Rule
from eagerdecomp.tracing.recorder import Recorder, Recording

aten = torch.ops.aten
pytestmark = pytest.mark.usefixtures("rules_are_toys")
OP = aten.hypot.default  # an op with two tensors; each test gives it a toy rule

X, Y = torch.arange(1.0, 7).view(2, 3), torch.ones(2, 3)


def observed(fn: Callable[..., Any], *args: Any, op: Any = OP, source: str = "own") -> tuple[Recording, Any]:
    """Record one run of a rule; return the recording and the result."""
    rule = Rule(op, fn, source, "here")
    values = arguments_of(op, args, {})
    recorder = Recorder(planner_for(ed.core_aten()).decide, op, program_arguments(op, values), call=values)
    with without_torch_function():
        result = recorder.run((rule,), args, {})
    return recorder.recording(result), result


def guards(fn: Callable[..., Any], *args: Any, **options: Any) -> dict[str, Any] | None:
    """Return the guards as text; None if all facts are guards."""
    recording, _ = observed(fn, *args, **options)
    assert recording.program is not None, recording.why_not
    return None if recording.guards is None else {one.text: value for one, value in recording.guards.items()}


def literals(fn: Callable[..., Any], *args: Any, **options: Any) -> list[Any]:
    """Return the arguments of the first kernel call after its first tensor."""
    recording, _ = observed(fn, *args, **options)
    assert recording.program is not None
    return list(recording.program.calls[0].args[1:])


# -- facts of arguments -----------------------------------------------------------------------------------------------------


_DEFAULT_STRIDES = "self.is_contiguous() and (1 not in self.shape or _has_default_strides(self))"


def asks(question: Callable[[Tensor], Any]) -> Callable[..., Any]:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        question(self)
        return aten.add.Tensor(self, other)  # type: ignore[no-any-return]

    return rule


@pytest.mark.parametrize(
    ("question", "read"),
    [
        (lambda x: None, {}),
        (lambda x: x.dtype, {"self.dtype": torch.float32}),
        (lambda x: x.is_floating_point(), {"self.dtype": torch.float32}),
        (lambda x: torch.is_complex(x), {"self.dtype": torch.float32}),
        (lambda x: x.itemsize, {"self.dtype": torch.float32}),
        (lambda x: x.device, {"self.device": torch.device("cpu")}),
        (lambda x: x.device.type == "cpu", {"self.device": torch.device("cpu")}),
        (lambda x: x.is_cpu, {"self.device": torch.device("cpu")}),
        (lambda x: x.is_cuda, {"self.device": torch.device("cpu")}),
        (lambda x: x.is_meta, {"self.device": torch.device("cpu")}),
        (lambda x: x.dim(), {"self.dim()": 2}),
        (lambda x: x.ndim, {"self.dim()": 2}),
        (lambda x: x.stride(), {"self.stride()": (3, 1)}),
        (lambda x: x.is_contiguous(), {"self.is_contiguous()": True}),
        (has_default_strides, {_DEFAULT_STRIDES: True}),
        (lambda x: x.storage_offset(), {"self.storage_offset()": 0}),
        (lambda x: len(x), {"self.shape[0]": 2}),
        (lambda x: x.shape, {"self.dim()": 2}),
        (lambda x: x.shape[-1] > 1, {"self.dim()": 2, "(self.shape[1] > 1)": True}),
        (lambda x: x.size(0) == 1, {"self.dim()": 2, "(self.shape[0] == 1)": False}),
        (lambda x: x.numel() % 2 == 0, {"((self.numel() % 2) == 0)": True}),
        (lambda x: list(range(x.shape[0])), {"self.dim()": 2, "self.shape[0]": 2}),
        (lambda x: x.layout, {}),
        (lambda x: x.is_contiguous(memory_format=torch.channels_last), {"self.shape": (2, 3), "self.stride()": (3, 1)}),
        (lambda x: x.stride(0), {"self.shape": (2, 3), "self.stride()": (3, 1)}),
    ],
)
def test_each_fact_that_a_rule_reads_becomes_a_guard(question: Callable[[Tensor], Any], read: dict[str, Any]) -> None:
    assert guards(asks(question), X, Y) == read


def test_shapes_of_two_arguments_are_compared_in_one_guard() -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        return aten.add.Tensor(self, other) if self.shape == other.shape else aten.mul.Tensor(self, other)  # type: ignore[no-any-return]

    assert guards(rule, X, Y) == {"self.dim()": 2, "other.dim()": 2, "self.shape == other.shape": True}
    assert guards(rule, X, Y[0]) == {"self.dim()": 2, "other.dim()": 1, "self.shape == other.shape": False}


@pytest.mark.parametrize(
    "question",
    [lambda x: x.data_ptr(), lambda x: x.untyped_storage(), lambda x: x._base, lambda x: x.grad_fn],
    ids=["address", "storage", "base", "graph"],
)
def test_an_unknown_attribute_adds_all_guards(question: Callable[[Tensor], Any]) -> None:
    assert guards(asks(question), X, Y) is None


def test_an_empty_call_does_not_add_guards_to_other_calls() -> None:
    with ed.EagerDecompMode(ed.core_aten(), cache=ed.ProgramCache()) as mode:
        for rows in (2, 3, 0, 2, 4, 5, 0, 6):
            OP(torch.ones(rows, 3), torch.ones(rows, 3))
    assert mode.stats()[OP].misses <= 3


# -- facts of what kernels made ---------------------------------------------------------------------------------------------


def asks_a_sum(question: Callable[[Tensor], Any]) -> Callable[..., Any]:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        made = aten.add.Tensor(self, other)
        question(made)
        return made  # type: ignore[no-any-return]

    return rule


TYPES = {"self.dtype": torch.float32, "self.dim()": 2, "other.dtype": torch.float32, "other.dim()": 2}


@pytest.mark.parametrize(
    ("question", "read"),
    [
        (lambda x: x.dtype, TYPES),
        (lambda x: torch.result_type(x, 2), TYPES),
        (lambda x: x.device, {"self.device": torch.device("cpu"), "other.device": torch.device("cpu")}),
        (lambda x: x.dim(), {"self.dim()": 2, "other.dim()": 2}),
        (lambda x: x.shape[0], {"self.dim()": 2, "other.dim()": 2}),
        (lambda x: x.shape[0] > 1, None),
        (lambda x: x.stride(), None),
        (lambda x: x.is_contiguous(), {"self.is_contiguous()": True, "other.is_contiguous()": True}),
        (lambda x: aten.permute.default(x, [1, 0]).is_contiguous(), None),
    ],
)
def test_facts_of_kernel_results_add_guards_on_the_arguments(question: Any, read: dict[str, Any] | None) -> None:
    assert guards(asks_a_sum(question), X, Y) == read


# -- functions that are called -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "call",
    [
        lambda x, y: aten.add.Tensor(x, y),
        lambda x, y: aten.add(x, y),
        lambda x, y: torch.add(x, y),
        lambda x, y: x + y,
        lambda x, y: x.add(y),
        lambda x, y: torch.full([2], 1.0),
        lambda x, y: x.to(torch.float64).dtype and x,
    ],
)
def test_functions_that_call_one_op_add_no_guards(call: Callable[..., Any]) -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        return aten.exp.default(call(self, other))  # type: ignore[no-any-return]

    read = guards(rule, X, Y)
    assert read is not None
    assert not any("shape" in text or "stride" in text for text in read)


@pytest.mark.parametrize(
    "call", [lambda x, y: torch.matmul(x, y.t()), lambda x, y: x.reshape(3, 2), lambda x, y: x[0], lambda x, y: aten.linear(x, y)]
)
def test_composites_in_cpp_add_all_guards(call: Callable[..., Any]) -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        return aten.exp.default(call(self, other))  # type: ignore[no-any-return]

    assert guards(rule, X, Y) is None


# -- sizes in programs --------------------------------------------------------------------------------------------------------


def flat(self: Tensor, other: Tensor) -> Tensor:
    rows, guards_ = self.shape
    return aten.view.default(self, [rows * guards_])  # type: ignore[no-any-return]


def test_sizes_passed_to_kernels_add_no_guards() -> None:
    assert guards(flat, X, Y) == {"self.dim()": 2}
    (size,) = literals(flat, X, Y)[0]
    assert isinstance(size, Expression)
    assert repr(size) == "(%0.shape[0] * %0.shape[1])"


@pytest.mark.parametrize(
    "fn",
    [
        lambda self, other: aten.view.default(self, [self.shape[1], self.shape[0]]),
        lambda self, other: torch.sum(aten.expand.default(other, [self.shape[0], self.shape[1]]), 0),
        lambda self, other: aten.full.default([self.size(0), 2], 1.5),
        lambda self, other: aten.mul.Scalar(self, 1 / self.numel()),
        lambda self, other: aten.view.default(aten.add.Tensor(self, other), [-1, aten.exp.default(self).shape[0]]),
        lambda self, other: aten.native_layer_norm.default(self, [self.shape[-1]], None, None, 1e-5)[0],
    ],
    ids=["view", "expand", "factory", "quotient", "of what a kernel made", "decomposed"],
)
def test_one_program_runs_for_every_shape(fn: Callable[..., Any]) -> None:
    ops = ed.core_aten() - ["aten.native_layer_norm"]
    rule = Rule(OP, fn, "own", "here")
    with ed.EagerDecompMode(ops, cache=ed.ProgramCache()) as mode:
        planner = mode._runtime.planner
        planner._user = {OP: rule}  # type: ignore[assignment]  # a user's rule would get plain numbers
        for rows, length in [(2, 3), (4, 3), (5, 7), (2, 2), (8, 2)]:
            x, y = torch.rand(rows, length), torch.rand(rows, length)
            assert_same(OP(x, y), fn(x, y))
    if "layer" not in fn.__code__.co_names.__repr__():
        assert mode.stats()[OP].misses == 1, mode.why_missed(OP)


def test_torchs_rules_get_plain_ints_and_guards_on_whole_shapes() -> None:
    seen: list[Any] = []

    def rule(self: Tensor, other: Tensor) -> Tensor:
        seen.append(self.shape[0])
        return aten.add.Tensor(self, other)  # type: ignore[no-any-return]

    assert guards(rule, X, Y, source="core") == {"self.shape": (2, 3)}
    assert type(seen[0]) is int


@pytest.mark.parametrize("op", [aten.rsub.Scalar, aten.mul_.Scalar], ids=str)
def test_sizes_are_plain_ints_once_all_guards_are_added(op: Any) -> None:
    def rule(self: Tensor, other: Tensor) -> Any:
        size = self.size(0)
        self.data_ptr()  # from here on all facts are guards
        return op(torch.clone(self), size)  # its own rule may pass the scalar on instead of a tensor

    recording, result = observed(rule, X, Y)
    assert recording.program is not None
    assert recording.guards is None
    assert_same(result, op(X.clone(), 2))


# -- rules of users -----------------------------------------------------------------------------------------------------------


def caught(self: Tensor, other: Tensor) -> Tensor:
    try:
        return self + torch.ones(3)
    except RuntimeError:
        return self * 5


def out_of_range(self: Tensor, other: Tensor) -> Tensor:
    try:
        return self * self.size(1)
    except IndexError:
        return self * 7


BRANCHES: list[tuple[Callable[..., Tensor], Tensor, Tensor]] = [
    (caught, torch.randn(4), torch.randn(3)),
    (caught, torch.randn(3), torch.randn(4)),
    (out_of_range, torch.randn(3), torch.randn(3, 2)),
    (out_of_range, torch.randn(3, 2), torch.randn(3)),
]


@pytest.mark.parametrize(("fn", "first", "second"), BRANCHES)
def test_a_users_rule_may_depend_on_errors(fn: Callable[..., Tensor], first: Tensor, second: Tensor) -> None:
    rule = ed.register_decomposition(OP)(fn)
    with ed.EagerDecompMode(ed.core_aten(), rules=[rule], cache=ed.ProgramCache()):
        for _ in range(4):
            OP(first, first)
        for _ in range(4):
            assert_same(OP(second, second), fn(second, second))


UNKEYED: dict[str, Callable[[Tensor], float]] = {
    "list": lambda x: sum(x.tolist()),
    "numpy": lambda x: float(x.numpy().sum()),
    "text": lambda x: float(len(repr(x))),
    "tensor of tensors": lambda x: torch.tensor([x[0], x[1]]).sum().item(),
    "gradient": lambda x: 2.0 if x.requires_grad else 3.0,
    "address": lambda x: float(x.data_ptr() % 1024),
}


@pytest.mark.parametrize("name", UNKEYED)
def test_facts_that_no_guard_covers_are_read_at_every_call(name: str) -> None:
    def fn(self: Tensor, other: Tensor) -> Tensor:
        return other * UNKEYED[name](self)

    rule, x, y = ed.register_decomposition(OP)(fn), torch.ones(3), torch.full((3,), 2.125)
    with ed.EagerDecompMode(ed.core_aten(), rules=[rule], cache=ed.ProgramCache()) as mode:
        for one in (x, x, x, y, y, x):
            assert_same(OP(one, x), fn(one, x))
    assert mode.stats()[OP].hits == 0
    assert "no guard can cover" in mode.stats()[OP].why_bypassed or "reads the data" in mode.stats()[OP].why_bypassed


def test_values_do_not_depend_on_the_order_in_which_guards_are_added() -> None:
    """A table with a new guard drops its programs, and older handlers still work."""

    @ed.register_decomposition(OP)
    def rule(self: Tensor, other: Tensor) -> Any:
        if self.dtype is torch.float64:
            return self * 2 if self.shape[0] > 2 else self * 3
        return self + (1 if other.stride()[0] > 3 else 2) if self.dtype is torch.float32 else self - 1

    calls = [torch.ones(2, 3), torch.ones(4, 3, dtype=torch.float64), torch.ones(2, 3, dtype=torch.float64), torch.ones(3, 4)]
    with ed.EagerDecompMode(ed.core_aten() - ["aten.hypot"], rules=[rule], cache=ed.ProgramCache()) as mode:
        for _ in range(4):
            got = [OP(x, x)[0, 0].item() for x in calls]
            assert got == [3, 2, 3, 2]
    assert mode.stats()[OP].misses <= 8


CONTIGUOUS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "amax": lambda x, y: aten.amax.default(x, [1]),
    "cumsum": lambda x, y: aten.cumsum.default(x, 1),
    "bmm": lambda x, y: aten.bmm.default(x, aten.view.default(x, [x.shape[0], x.shape[2], x.shape[1]])),
    "cat": lambda x, y: aten.cat.default([x, x], 1),
    "repeat": lambda x, y: aten.repeat.default(x, [2, 1, 3]),
    "gather": lambda x, y: aten.gather.default(x, 1, aten.full.default([x.shape[0], 2, x.shape[2]], 0, dtype=torch.int64)),
    "pad": lambda x, y: aten.constant_pad_nd.default(x, [1, 2], 0.0),
    "broadcast": lambda x, y: aten.add.Tensor(x, y),
}


@pytest.mark.parametrize("name", CONTIGUOUS)
def test_results_that_are_assumed_contiguous_are_contiguous(name: str) -> None:
    """For all sizes, including 1, because the key contains only the arguments' layout."""
    make = CONTIGUOUS[name]
    read = guards(lambda self, other: make(self, other) if make(self, other).is_contiguous() else self, X.view(2, 1, 3), Y)
    assert read is not None
    assert read["self.is_contiguous()"]
    for shape in itertools.product((1, 2, 5), repeat=3):
        for other in ((1,), shape[2:], (shape[1], 1), (shape[0], 1, 1), (1, *shape[1:]), shape):
            assert make(torch.rand(shape), torch.rand(other)).is_contiguous(), (shape, other)


def test_lists_of_tensors_add_all_guards() -> None:
    def cat(tensors: list[Tensor], dim: int = 0) -> Tensor:
        return aten.add.Tensor(*tensors)  # type: ignore[no-any-return]

    assert guards(cat, [X, Y], op=aten.cat.default) is None


def test_a_rank_that_depends_on_sizes_adds_all_guards() -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        made = aten.squeeze.dims(aten.add.Tensor(self, other), [0])
        return aten.view.default(made, [-1] + [1] * made.dim())  # type: ignore[no-any-return]

    assert guards(rule, X, Y) is None


def test_a_rule_that_resizes_an_argument_adds_all_guards() -> None:
    def rule(self: Tensor, other: Tensor) -> Tensor:
        aten.resize_.default(self, [3])
        aten.copy_.default(self, other)
        return self

    assert guards(rule, torch.ones(2), torch.ones(3)) is None
