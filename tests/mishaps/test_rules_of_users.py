"""Users' rules that are wrong, raise, or do not end: the error names the rule, and no state is left."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import state
from on_core import CORE
from opaque import OPAQUE

import eagerdecomp as ed
from eagerdecomp.rules import result_checks
from eagerdecomp.rules.rule import Rule

aten = torch.ops.aten
X = torch.arange(6.0).view(2, 3)


def fails(rules: Any, run: Callable[[], Any], kind: type[Exception], words: str) -> None:
    before = state()
    mode = ed.EagerDecompMode(CORE, rules=rules, cache=ed.ProgramCache())
    for _ in range(3):
        with pytest.raises(kind, match=words), mode:
            run()
        assert state() == before
        with mode:  # the state is usable: other ops, in the same mode
            torch.testing.assert_close(F.gelu(X), X * 0.5 * (1 + torch.erf(X / 2**0.5)))


WRONG: dict[str, tuple[str, Callable[..., Any], str]] = {
    "dtype": (
        "aten.silu",
        lambda x: (x * 1).double(),
        r"returned torch.float64 \[2, 3\] where its op returns torch.float32 \[2, 3\]",
    ),
    "device": (
        "aten.silu",
        lambda x: (x * 1).to("meta"),
        r"returned torch.float32 \[2, 3\] on meta where its op returns torch.float32 \[2, 3\] on cpu",
    ),
    "one of two": ("aten.max.dim", lambda x, dim, keepdim=False: x.amax(dim), "returned a Tensor where its op returns 2"),
    "too short a list": ("aten.unbind_copy.int", lambda x, dim=0: [x[0] * 1], "returned 1 tensors where its op returns 2"),
    "a copy of a view": (
        "aten.t",
        lambda x: x.transpose(0, 1).clone(),
        "returned memory of its own where its op returns an argument or a view of one",
    ),
    "what it wrote to": ("aten.silu", lambda x: x.mul_(x.sigmoid()) + 0, "wrote to its argument self"),
}
RUNS: dict[str, Callable[[], Any]] = {
    "aten.silu": lambda: F.silu(X.clone()),
    "aten.t": lambda: X.t(),
    "aten.max.dim": lambda: torch.max(X, 1),
    "aten.unbind_copy.int": lambda: torch.unbind_copy(X),
}


@pytest.mark.parametrize("what", WRONG)
def test_a_rule_whose_results_do_not_fit_its_op_is_named(what: str) -> None:
    op, fn, words = WRONG[what]
    ops = CORE - [op]
    rule = ed.register_decomposition(op if op.count(".") == 2 else f"{op}.default")(fn)
    before = state()
    mode = ed.EagerDecompMode(ops, rules=[rule], cache=ed.ProgramCache())
    for _ in range(2):
        with pytest.raises(ed.RuleError, match=words) as caught, mode:
            RUNS[op]()
        assert rule.where in str(caught.value)
        assert state() == before
        assert mode.cache.info().programs == 0


def test_results_that_eager_returns_are_never_rejected() -> None:
    calls: list[tuple[Any, tuple[Any, ...], dict[str, Any]]] = [
        (aten.max.dim, (X, 1), {}),
        (aten.unbind_copy.int, (X,), {}),
        (aten.native_layer_norm.default, (X, [3], None, None, 1e-5), {}),
        (
            aten.convolution_backward.default,
            (X.view(1, 2, 3), X.view(1, 2, 3), torch.ones(2, 2, 1), [0], [1], [0], [1], False, [0], 1, [True, False, False]),
            {},
        ),
        (aten.nonzero.default, (X,), {}),
        (aten.rand_like.default, (X,), {}),
        (aten.add.out, (X, X), {"out": torch.empty(0)}),
        (aten.reshape.default, (X.t(), [6]), {}),
        (aten.dropout.default, (X, 0.5, False), {}),
    ]
    for op, args, kwargs in calls:
        rule = Rule(op, lambda *given: None, "user", "here")
        torch.manual_seed(0)
        expected = result_checks.expected_of(rule.op, args, kwargs)
        drawn = torch.rand(1)
        torch.manual_seed(0)
        assert torch.equal(drawn, torch.rand(1)), "it drew numbers"
        result_checks.checked_result(rule, expected, args, kwargs, op(*args, **kwargs))


# -- rules without an end ---------------------------------------------------------------------------------------------------


def larger(x: torch.Tensor) -> torch.Tensor:
    return torch.cat([x, x[:1]])


ENDLESS: dict[str, Any] = {
    "itself": [(OPAQUE, lambda x: OPAQUE(x))],
    "itself, larger each time": [(OPAQUE, lambda x: OPAQUE(larger(x))[:-1])],
    "each other": [(OPAQUE, lambda x: F.mish(x)), ("aten.mish.default", lambda x: OPAQUE(x))],
    "each other, larger each time": [
        (OPAQUE, lambda x: F.mish(larger(x))[:-1]),
        ("aten.mish.default", lambda x: OPAQUE(larger(x))[:-1]),
    ],
}


@pytest.mark.parametrize("effects", [False, True])
@pytest.mark.parametrize("name", list(ENDLESS)[:2])
def test_a_rule_that_reaches_its_own_op_raises_with_the_chain(name: str, effects: bool) -> None:
    rules = [ed.register_decomposition(op, effects=effects)(fn) for op, fn in ENDLESS[name]]
    fails(rules, lambda: OPAQUE(X), ed.UnsupportedOpError, "leads back to")


@pytest.mark.full
@pytest.mark.parametrize("name", list(ENDLESS)[2:])
def test_rules_that_call_each_other_are_abandoned_for_another_rule(name: str) -> None:
    mode = ed.EagerDecompMode(CORE, rules=[ed.register_decomposition(op)(fn) for op, fn in ENDLESS[name]], cache=ed.ProgramCache())
    before = state()
    for _ in range(3):
        with mode:  # mish has rules of ours behind the user's, opaque has none
            got = F.mish(X)
        torch.testing.assert_close(got[:2], F.mish(X))
    assert state() == before


@pytest.mark.full
@pytest.mark.parametrize("effects", [False, True])
def test_a_rule_may_call_its_own_op_on_smaller_tensors_up_to_a_reported_limit(effects: bool) -> None:
    def count(x: torch.Tensor) -> torch.Tensor:
        return x * 1 if x.numel() == 1 else torch.cat([x[:1], OPAQUE(x[1:]) + 1])

    def run(size: int) -> None:
        with ed.EagerDecompMode(CORE, rules=[rule], cache=ed.ProgramCache()):
            for _ in range(2):
                assert OPAQUE(torch.zeros(size)).tolist() == list(range(size))

    rule = ed.register_decomposition(OPAQUE, effects=effects)(count)
    run(40)
    with pytest.raises(ed.UnsupportedOpError, match=r"leads back to .*, on other arguments each time, [4-6]\d rules deep"):
        run(66)
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(2 * limit)
    try:
        run(64)
        with pytest.raises(ed.UnsupportedOpError, match=", 65 rules deep"):
            run(66)
    finally:
        sys.setrecursionlimit(limit)


@pytest.mark.parametrize("effects", [False, True])
def test_a_rule_whose_arguments_grow_is_abandoned_before_memory_is_full(effects: bool) -> None:
    sizes: list[int] = []

    def doubled(x: torch.Tensor) -> torch.Tensor:
        sizes.append(x.numel())
        return OPAQUE(torch.cat([x, x]))[: len(x)]

    fails([ed.register_decomposition(OPAQUE, effects=effects)(doubled)], lambda: OPAQUE(X), ed.UnsupportedOpError, "leads back to")
    assert max(sizes) <= 8 * X.numel()


# -- many and long ------------------------------------------------------------------------------------------------------------


def test_a_program_of_a_thousand_kernels_is_right_forward_and_backward() -> None:
    @ed.register_decomposition("aten.mish.default")
    def long(x: torch.Tensor) -> torch.Tensor:
        for _ in range(500):
            x = torch.sin(x) * 1.001
        return x

    want = X
    for _ in range(500):
        want = torch.sin(want) * 1.001
    mode = ed.EagerDecompMode(CORE, rules=[long], cache=ed.ProgramCache())
    for _ in range(4):
        leaf = X.clone().requires_grad_()
        with mode:
            got = F.mish(leaf)
            got.sum().backward()
        torch.testing.assert_close(got.detach(), want)
        torch.testing.assert_close(leaf.grad, torch.autograd.grad(F.mish(leaf).sum(), leaf)[0])  # eager's formula of mish
    assert mode.stats()["aten.mish.default"].hits == 3


def test_a_rule_deep_in_the_stack_is_abandoned_before_a_recursion_error() -> None:
    rule = ed.register_decomposition(OPAQUE)(ENDLESS["itself, larger each time"][0][1])

    def down(levels: int) -> None:
        if levels:
            down(levels - 1)
        else:
            fails([rule], lambda: OPAQUE(X), ed.UnsupportedOpError, "leads back to")

    down(400)


@pytest.mark.full
def test_an_error_of_a_rule_keeps_nothing_alive() -> None:
    @ed.register_decomposition(OPAQUE)
    def broken(x: torch.Tensor) -> torch.Tensor:
        made = x * 2
        left.append(weakref.ref(made))
        raise ValueError("mine")

    left: list[Any] = []
    mode = ed.EagerDecompMode(CORE, rules=[broken], cache=ed.ProgramCache())
    for _ in range(5):
        with pytest.raises(ValueError, match="mine"), mode:
            OPAQUE(torch.ones(3))
    gc.collect()
    assert [one() for one in left] == [None] * 5
