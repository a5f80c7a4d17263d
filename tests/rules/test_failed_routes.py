"""Rules are tried in order. An error in a rule that eager raises propagates; one that eager does not raise is a failed route."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.verdict import refusal
from eagerdecomp.rules.link import Linkable
from eagerdecomp.rules.no_route import NoRoute, first_applicable
from eagerdecomp.rules.rule import Rule, make_rule

aten = torch.ops.aten

NO_GROUP_NORM = CORE - ["aten.native_group_norm.default", "aten.view.default"]


def channels_last() -> Tensor:
    return torch.randn(2, 6, 4, 4).to(memory_format=torch.channels_last)


@pytest.mark.parametrize("ops", [ed.infra(), NO_GROUP_NORM], ids=["infra", "core less view"])
def test_a_rule_that_cannot_view_its_input_is_a_failed_route(ops: ed.OpSet) -> None:
    x = channels_last()
    with ed.EagerDecompMode(ops), pytest.raises(ed.UnsupportedOpError) as caught:
        F.group_norm(x, 3)
    assert caught.value.op == "aten.native_group_norm.default"
    reasons = [one.reason for one in caught.value.tried if one.op == "aten.native_group_norm.default"]
    assert any(reason == "needs aten.view.default, which has no route" for reason in reasons)


# -- rules made for these tests, in place of the library's -------------------------------------------------------------------------

SILU = aten.silu.default


def view_badly(x: Tensor) -> Tensor:
    return aten.mul.Tensor(x, aten.view.default(x, [-1]))


def in_sigmoids(x: Tensor) -> Tensor:
    return aten.mul.Tensor(x, aten.sigmoid.default(x))


def linked_badly(call: Callable[[Any], Callable[..., Any]]) -> Callable[..., Tensor]:
    view, mul = call(aten.view.default), call(aten.mul.Tensor)
    return lambda x: mul(x, view(x, [-1]))


def writes_first(x: Tensor) -> Tensor:
    aten.add_.Tensor(x, 1)
    return aten.view.default(x, [-1])


def with_rules(monkeypatch: pytest.MonkeyPatch, *rules: Rule) -> None:
    """Make these the only rules of silu."""
    monkeypatch.setattr(
        "eagerdecomp.planner.planner.Planner._rules", lambda self, op, name: rules if op is SILU else RULES(self, op, name)
    )


RULES = ed.EagerDecompMode(CORE)._engine.planner.__class__._rules

TRANSPOSED = torch.randn(3, 4).t()

VIEWS = CORE | ["aten.add_.Tensor"]


def in_mode(run: Callable[[], Any], ops: Any = VIEWS, **options: Any) -> tuple[Any, ed.EagerDecompMode]:
    with ed.EagerDecompMode(ops, cache=ed.ProgramCache(), **options) as mode:
        return run(), mode


@pytest.mark.parametrize(
    "first", [make_rule(SILU, view_badly, recorded=True), make_rule(SILU, Linkable(linked_badly))], ids=["recorded", "linked"]
)
@pytest.mark.parametrize("grad", [False, True])
def test_the_next_rule_is_tried(first: Rule, grad: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, first, make_rule(SILU, in_sigmoids, recorded=True))
    x = TRANSPOSED.clone(memory_format=torch.preserve_format).requires_grad_(grad)
    for _ in range(3):
        got, _ = in_mode(lambda: F.silu(x))
        torch.testing.assert_close(got, F.silu(x))


@pytest.mark.parametrize("bits", [False, True], ids=["", "unrecorded"])
def test_a_failed_inner_rule_does_not_fail_the_outer_one(bits: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, make_rule(SILU, Linkable(linked_badly)), make_rule(SILU, in_sigmoids, recorded=True))

    @ed.register_decomposition("aten.mish.default", effects=bits)
    def mish(x: Tensor) -> Tensor:
        return aten.silu.default(x)

    got, _ = in_mode(lambda: F.mish(TRANSPOSED), rules=[mish])
    torch.testing.assert_close(got, F.silu(TRANSPOSED))


def test_a_rule_that_has_written_is_not_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, make_rule(SILU, writes_first, recorded=True), make_rule(SILU, in_sigmoids, recorded=True))
    x = TRANSPOSED.clone(memory_format=torch.preserve_format)
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        in_mode(lambda: F.silu(x))
    torch.testing.assert_close(x, TRANSPOSED + 1)


def failing(*args: Any) -> Tensor:
    FAILED.append(args)
    raise RuntimeError("out of work")


FAILED: list[Any] = []


@pytest.mark.parametrize(
    "first", [make_rule(SILU, in_sigmoids, recorded=True), make_rule(SILU, Linkable(lambda call: call(aten.sigmoid.default)))]
)
@pytest.mark.parametrize("on_unsupported", ["error", "fallback"])
def test_an_error_of_a_kernel_propagates(first: Rule, on_unsupported: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, first, make_rule(SILU, lambda x: aten.exp.default(x), recorded=True))
    FAILED.clear()
    backend = ed.Backend("failing", CORE, {"aten.sigmoid.default": failing})
    with pytest.raises(RuntimeError, match="out of work"):
        in_mode(lambda: F.silu(TRANSPOSED), backend, on_unsupported=on_unsupported)
    assert len(FAILED) == 1


NOTHING = ed.infra() | ["aten.as_strided"]
BYTES = torch.tensor([1, 0, 2], dtype=torch.uint8)

#: Calls that eager accepts. On a set without their kernels, the code of some rule raises for the arguments.
ACCEPTED: dict[str, Callable[[], Any]] = {
    "a wrapped number within a composition": lambda: torch.copysign(TRANSPOSED, 2.0),
    "bytes as a condition": lambda: torch.where(BYTES, TRANSPOSED[0, 0], 2.0),
    "bytes as a condition of numbers": lambda: torch.where(BYTES, 1.0, 2.0),
}


@pytest.mark.parametrize("call", ACCEPTED)
def test_a_call_that_eager_accepts_is_unsupported_without_its_kernels(call: str) -> None:
    ACCEPTED[call]()
    with pytest.raises(ed.UnsupportedOpError):
        in_mode(ACCEPTED[call], NOTHING)


def rules_returning(*results: Any) -> list[Rule]:
    return [make_rule(aten.silu.default, lambda result=result: result, recorded=True) for result in results]


def apply(rule: Rule) -> Any:
    result = rule()
    if isinstance(result, Exception):
        raise result
    return result


def test_effects_of_a_rule_that_declines_are_undone_before_the_next_runs() -> None:
    events: list[str] = []

    def noted(rule: Rule) -> Any:
        events.append("ran")
        return apply(rule)

    first_applicable(
        aten.silu.default,
        rules_returning(NotImplemented, NoRoute(aten.sin.default), "result"),
        noted,
        undo=lambda: events.append("undone"),
    )
    assert events == ["ran", "undone", "ran", "undone", "ran"]


def test_if_all_rules_decline_every_attempt_is_reported_with_its_reason() -> None:
    inner = NoRoute(aten.sin.default)
    rules = rules_returning(NotImplemented, inner)
    undone: list[int] = []
    with pytest.raises(NoRoute) as caught:
        first_applicable(aten.silu.default, rules, apply, undo=lambda: undone.append(1))
    assert caught.value.op is aten.silu.default
    assert caught.value.attempts == ((rules[0], "does not cover this call", None), (rules[1], "", inner))
    assert undone == [1, 1]


def test_memory_and_interrupts_propagate(monkeypatch: pytest.MonkeyPatch) -> None:
    for error in (MemoryError, torch.OutOfMemoryError, KeyboardInterrupt):

        def raising(x: Tensor, error: Any = error) -> Tensor:
            raise error("enough")

        with monkeypatch.context() as patch:
            with_rules(patch, make_rule(SILU, raising, recorded=True), make_rule(SILU, in_sigmoids, recorded=True))
            with pytest.raises(error, match="enough"):
                in_mode(lambda: F.silu(TRANSPOSED))


def picks(x: Tensor) -> Tensor:
    return aten.index_select.default(x, 0, torch.tensor([7]))


@pytest.mark.parametrize("ops", [ed.infra(), NO_GROUP_NORM], ids=["infra", "core less view"])
def test_a_failed_rule_falls_back(ops: ed.OpSet) -> None:
    x = channels_last()
    want = F.group_norm(x, 3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with ed.EagerDecompMode(ops, on_unsupported="fallback") as mode:
            got = F.group_norm(x, 3)
    assert torch.equal(got, want)
    assert got.stride() == want.stride()
    assert mode.stats()["aten.native_group_norm.default"].fell_back == 1


def test_explain_lists_the_failed_rule() -> None:
    found = ed.explain("aten.native_group_norm", channels_last(), None, None, 2, 6, 16, 3, 1e-5, supported_ops=NO_GROUP_NORM)
    assert found.verdict.startswith("no route")
    assert any(way.verdict.startswith("needs aten.view.default") for way in found.rules)


def test_after_an_error_that_eager_does_not_raise_the_next_rule_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    with_rules(monkeypatch, make_rule(SILU, picks, recorded=True), make_rule(SILU, in_sigmoids, recorded=True))
    got, _ = in_mode(lambda: F.silu(TRANSPOSED))
    torch.testing.assert_close(got, F.silu(TRANSPOSED))


def test_an_error_of_a_users_rule_propagates() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(x: Tensor) -> Tensor:
        return x.view(-1)

    with pytest.raises(RuntimeError, match="view size is not compatible"):
        in_mode(lambda: F.silu(TRANSPOSED), rules=[silu])


@pytest.mark.parametrize(
    ("op", "args", "accepted"),
    [
        (aten.view.default, (TRANSPOSED, [12]), False),
        (aten.view.default, (TRANSPOSED, [4, 3]), True),
        (aten.view_copy.default, (TRANSPOSED, [12]), True),
        (aten._unsafe_view.default, (TRANSPOSED, [12]), False),
        (aten.native_group_norm.default, (channels_last(), None, None, 2, 6, 16, 3, 1e-5), True),
        (aten.mm.default, (torch.ones(2, 3), torch.ones(2, 3)), False),
        (aten.nonzero.default, (TRANSPOSED,), True),
    ],
)
def test_fake_tensors_decide_whether_eager_accepts_a_call(op: Any, args: Any, accepted: bool) -> None:
    assert (refusal(op, args, {}) is None) is accepted


def test_the_check_whether_eager_accepts_a_call_raises_no_warning() -> None:
    x = torch.arange(16.0).view(4, 4)
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        with ed.EagerDecompMode(CORE), pytest.raises(RuntimeError, match="refer to a single memory location"):
            torch.add(x[:2], 1, out=x)
    assert not seen
