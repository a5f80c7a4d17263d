"""Linked rules: cached scalars, formulas in one floating-point dtype, and the linking of overloads and helpers."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from types import FunctionType, ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from dispatch_recorders import OpRecorder
from torch import Tensor
from torch._ops import OpOverload, OpOverloadPacket
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_called, op_names, overload, torch_release
from eagerdecomp.decomps import families, our_rules
from eagerdecomp.rules.compute import Constant, kept_number, kept_numbers
from eagerdecomp.rules.link import Linkable, RunnerOf, link, link_on_call, may_decline
from eagerdecomp.rules.name_chains import name_chains
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import dropped_rules, make_rule, rule, rules_of

aten = torch.ops.aten
families()
DROPPED = dropped_rules()


def counted() -> tuple[RunnerOf, list[Any]]:
    """Return a `RunnerOf` that returns the ops themselves, and the list of calls through it."""
    calls: list[Any] = []

    def call(op: Any) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            calls.append(op)
            return op(*args, **kwargs)

        return run

    return call, calls


def test_values_that_only_compare_equal_are_distinguished() -> None:
    number, x = link(kept_numbers(), counted()[0]), torch.ones(2)
    for value in (0.0, -0.0, 0.0, 1, True, math.nan, -0.0):
        got = number(x, value)
        assert str(got) == str(torch.full([], value, dtype=torch.float32))


@pytest.mark.parametrize("devices", [("cpu", "meta"), ("meta", "cpu")])
def test_a_scalar_tensor_is_created_once_per_device(devices: tuple[str, str]) -> None:
    call, calls = counted()
    half, number = link(kept_number(0.5), call), link(kept_numbers(), call)
    for device in devices * 2:
        like = torch.ones(2, device=device)
        assert half(like).device == number(like, 0.5).device == like.device
    assert calls == [aten.full.default] * 4


def silu(self: Tensor) -> Any:
    return aten.mul.Tensor(self, aten.sigmoid.default(self))


def declining(x: Tensor) -> Any:
    return NotImplemented if x.dim() else calls_back(x)


def calls_back(x: Tensor) -> Any:
    return declining(x) if x.numel() else aten.exp.default(x)


def calls_none(x: Tensor, then: Callable[..., Any] = silu) -> Any:
    return calls_none(x) if x.dim() else then(x)


def test_a_rule_may_decline_by_itself_or_by_a_helper() -> None:
    nested = (lambda helper: lambda x: helper(x))(calls_back)
    for _ in range(2):  # the second time from the cache
        assert may_decline(calls_back)
        assert may_decline(nested)
        assert may_decline(lambda x, then=declining: then(x))
        assert may_decline(Linkable(lambda call: calls_back))
        assert may_decline(lambda x: [declining(one) for one in x])
        assert not may_decline(calls_none)
        assert not may_decline(silu)


# -- linking ------------------------------------------------------------------------------------------------------------------

HALF = Constant(0.5)
TABLE = {"exp": aten.exp.default, "log": (aten.log.default, 1)}


def helper(x: Tensor) -> Any:
    return aten.neg.default(other_helper(x))


def other_helper(x: Tensor) -> Any:
    return x if x.dim() else aten.add.Tensor(helper(aten.unsqueeze.default(x, 0)), HALF(x))


def by_default(x: Tensor, op: Any = aten.sqrt.default) -> Any:
    return op(x)


def enclosing(op: Any) -> Callable[..., Any]:
    return lambda x: [op(one) for one in (x, x)]


def by_table(x: Tensor) -> Any:
    return TABLE["exp"](x)


@pytest.mark.parametrize(
    ("fn", "ops"),
    [
        (helper, {"neg.default", "add.Tensor", "unsqueeze.default", "full.default"}),
        (by_default, {"sqrt.default"}),
        (enclosing(aten.sin.default), {"sin.default"}),
        (by_table, {"exp.default", "log.default"}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_linking_replaces_every_overload_that_a_function_calls(fn: Callable[..., Any], ops: set[str]) -> None:
    asked: set[str] = set()
    called: list[str] = []

    def call(op: Any) -> Callable[..., Any]:
        asked.add(str(op).removeprefix("aten."))

        def run(*args: Any, **kwargs: Any) -> Any:
            called.append(str(op))
            return op(*args, **kwargs)

        return run

    linked = link(fn, call)
    assert asked == ops
    x = torch.rand(3)
    with OpRecorder() as seen:
        got = linked(x)
    assert sorted(called) == sorted(map(str, seen.ops))  # none goes by the kernels
    torch.testing.assert_close(got, fn(x))


@pytest.mark.full
def test_no_linked_rule_of_the_library_keeps_an_overload() -> None:
    """An overload that is not linked would run natively, below the mode."""
    found = [
        f"{rule}: {path}"
        for op in map(overload, op_names())
        if op is not None
        for rule in our_rules(op)
        if rule.linked
        for path in kept(rule.bind(lambda op: Linked(op)).formula)
    ]
    assert not found


class Linked:
    """A stand-in for a kernel."""

    def __init__(self, op: Any) -> None:
        self.op = op

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.op(*args, **kwargs)


def kept(value: Any, seen: set[int] | None = None, path: str = "") -> Iterator[str]:
    """Return the overloads that a linked function still references, except in helpers that are linked at their first call."""
    seen = set() if seen is None else seen
    if id(value) in seen or hasattr(value, "__wrapped__"):
        return
    seen.add(id(value))
    if isinstance(value, OpOverload):
        yield f"{path} {value}"
    elif isinstance(value, FunctionType):
        for cell in value.__closure__ or ():
            yield from kept(cell.cell_contents, seen, f"{path}/{value.__name__}")
        for name, *attributes in name_chains(value.__code__):
            found = value.__globals__.get(name)
            for attribute in attributes:
                if isinstance(found, (ModuleType, OpOverloadPacket)):
                    found = getattr(found, attribute, None)
            yield from kept(found, seen, f"{path}/{value.__name__}")
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from kept(one, seen, path)
    elif isinstance(value, dict):
        for one in value.values():
            yield from kept(one, seen, path)


@pytest.mark.skipif(torch_release() != "2.13", reason="other releases lack some")
def test_every_op_that_a_rule_names_is_one_of_torchs() -> None:
    later = ("_cudnn_attention_forward_no_dropout_inplace", "_philox_randint", "_philox_randint_", "_scaled_addmm")
    of_2_14 = ("aten._philox_key_fold_in.Tensor", "aten.linalg_matrix_sqrth.default", "aten.linalg_polar.default")
    assert {*of_2_14, *(f"aten.{name}.default" for name in later)} == {*DROPPED}, "those are of 2.14 and 2.15"


def _by_two_ways(self: Tensor) -> Tensor:
    return aten.no_such_op.default(self) if self.dim() else aten.neg.no_such_overload(self)


_of_a_table = op_called("aten.no_such_op.default")


@pytest.mark.parametrize("fn", [_by_two_ways, lambda x: _of_a_table(x), lambda x, op=_of_a_table: op(x)])
@pytest.mark.parametrize("recorded", [False, True])
def test_a_rule_that_calls_an_op_which_this_torch_lacks_has_no_route(fn: Callable[..., Any], recorded: bool) -> None:
    library = torch.library.Library("of_test_link", "DEF")
    try:
        library.define("f(Tensor x) -> Tensor")
        op = torch.ops.of_test_link.f.default
        mode = ed.EagerDecompMode(ed.infra(), rules=[make_rule(op, fn, recorded=recorded)])
        x = torch.ones(2)
        with mode, pytest.raises(ed.UnsupportedOpError, match=r"needs aten\.no_such_op(\.default)?, which has no route"):
            op(x)
    finally:
        library._destroy()


def test_the_cache_of_scalars_is_bounded() -> None:
    call, calls = counted()
    number, x = link(kept_numbers(), call), torch.ones(2)
    for value in range(1, 200):
        assert number(x, value).item() == value
    del calls[:]
    for value in range(1, 200):
        number(x, value)
    assert 100 < len(calls) < 199


def test_fake_tensors_get_fake_scalars_which_are_not_cached() -> None:
    x = torch.randn(3)
    with ed.EagerDecompMode(ed.core_aten()):
        with FakeTensorMode() as fakes:
            made = aten.gelu_backward(torch.ones(3), torch.ones(3))
        assert made.fake_mode is fakes
        got = aten.gelu_backward(x, x)
        with FakeTensorMode():
            aten.gelu_backward(torch.ones(3), torch.ones(3))
        inside = aten.gelu_backward(x, x)
    torch.testing.assert_close(got, aten.gelu_backward(x, x))
    assert torch.equal(got, inside)


def test_a_scalar_created_in_inference_mode_works_outside() -> None:
    cache = ed.ProgramCache()
    x = torch.randn(4, requires_grad=True)
    with ed.EagerDecompMode(ed.core_aten(), cache=cache):
        with torch.inference_mode():
            aten.threshold_backward(torch.ones(4), torch.ones(4), 0.5)
        F.gelu(x).sum().backward()
        (grad,) = torch.autograd.grad(F.relu(x).sum(), x)
    assert grad.tolist() == (x > 0).float().tolist()


def with_a_helper_of_two(x: Tensor) -> Any:
    return rare_helper(x)


@link_on_call
def rare_helper(x: Tensor) -> Any:
    return of_two(x)


def of_two(x: Tensor) -> Any:
    return aten.erfinv.default(aten.exp.default(x))


def test_a_rare_helper_without_a_route_raises_at_every_call() -> None:
    def call(op: Any) -> Any:
        if op is aten.erfinv.default:
            raise NoRoute(op)
        return op

    linked = link(with_a_helper_of_two, call)
    for _ in range(2):
        with pytest.raises(NoRoute):
            linked(torch.rand(2))


def test_an_op_that_this_torch_lacks_has_no_rule() -> None:
    before = rules_of(__name__)
    rule("aten.no_such_op.default")(silu)
    assert rules_of(__name__) == before
    assert "aten.no_such_op.default" in dropped_rules()


def test_the_next_rule_replaces_a_rule_that_calls_an_op_which_this_torch_lacks() -> None:
    made = make_rule(aten.silu.default, _by_two_ways)
    x = torch.randn(3)
    expected = aten.silu.default(x)
    with ed.EagerDecompMode(ed.core_aten(), rules=[made]):
        torch.testing.assert_close(aten.silu.default(x), expected)
