"""Ctrl-C at any point: while a mode is entered, a call recorded, a program compiled or run, a file written, a mode exited."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import Interrupted, at_call, at_line, in_another_thread, state
from on_core import CORE
from opaque import OPAQUE
from sampled import SEED

import eagerdecomp as ed
from eagerdecomp.dispatcher import composites

pytestmark = pytest.mark.full

X = torch.arange(5.0)
WEIGHT = torch.eye(5) * 2
KEEP = {"aten.linear", "aten.layer_norm"}


@ed.register_decomposition(OPAQUE)
def spread(x: torch.Tensor) -> torch.Tensor:
    return F.silu(torch.stack([x, x * 2])).sum() + x


@ed.register_decomposition("aten.softplus.default")
def softplus(x: torch.Tensor, beta: float = 1, threshold: float = 20) -> torch.Tensor:
    return OPAQUE(x) + F.gelu(x)  # rules of three kinds under it: the user's, linked ones of ours, compositions


def make() -> ed.EagerDecompMode:
    return ed.EagerDecompMode(CORE, rules=[spread, softplus], cache=ed.ProgramCache(), keep=KEEP)


def work(x: torch.Tensor) -> torch.Tensor:
    return F.layer_norm(F.linear(F.softplus(x), WEIGHT), [5])


def in_mode(mode: Any, x: torch.Tensor) -> torch.Tensor:
    with mode:
        return work(x)


@contextmanager
def nothing_left(mode: Any) -> Iterator[list[torch.Tensor]]:
    """Around an interrupted call on the tensor in the list that it gives: all is as it was afterwards, the next calls are right."""
    before = state()
    given = [X.clone()]
    left = weakref.ref(given[0])
    yield given
    given.clear()
    assert state() == before
    assert not composites._installed, "a kept op has its kernels still"
    if left() is not None:
        gc.collect()
    assert left() is None, "the argument is still alive"
    for _ in range(3):
        torch.testing.assert_close(in_mode(mode, X), WANT)
    assert state() == before
    torch.testing.assert_close(in_another_thread(lambda: in_mode(mode, X)), WANT)


WANT = in_mode(make(), X)


def sweep(at: Callable[[int, Callable[[], Any]], tuple[Any, int]], warm: int, step: int) -> None:
    """Interrupts in the call behind so many, at every `step`-th moment of it."""

    def trial(moment: int) -> Any:
        mode = make()
        for _ in range(warm):
            in_mode(mode, X)
        with nothing_left(mode) as given:
            got, seen = at(moment, lambda: in_mode(mode, given.pop()))
        return got, seen

    trial(sys.maxsize)  # takes more steps than any other: what is asked of an operator is asked once
    got, moments = trial(sys.maxsize)
    torch.testing.assert_close(got, WANT)
    assert moments > 50
    for moment in range(SEED % step, moments, step):
        got, _ = trial(moment)
        assert isinstance(got, Interrupted) or moment > 0.97 * moments, f"moment {moment} of {moments} was not reached"


# Call 0 records, 1 evaluates, 2 optimises and compiles, 3 runs what was compiled.
@pytest.mark.parametrize("steps", [(733, 197, 257, 61), pytest.param((1, 1, 1, 1), marks=pytest.mark.nightly)])
@pytest.mark.parametrize("warm", range(4))
@pytest.mark.parametrize("at", [at_line, at_call], ids=["line", "signal"])
def test_an_interrupt_at_some_points_of_a_call_leaves_no_state(at: Any, warm: int, steps: tuple[int, ...]) -> None:
    sweep(at, warm, steps[warm])


def test_an_interrupt_of_an_installed_backend_leaves_no_state() -> None:
    with ed.install(CORE, "cpu", rules=[spread, softplus], cache=ed.ProgramCache()) as handle:
        moments = at_line(sys.maxsize, lambda: work(X))[1]
        before = state()
        for moment in range(SEED % 97, moments, 97):
            handle._engine.cache.clear()
            got, _ = at_line(moment, lambda: work(X))
            assert state() == before
            torch.testing.assert_close(work(X), WANT)
            torch.testing.assert_close(in_another_thread(lambda: work(X)), WANT)
            del got
    torch.testing.assert_close(F.softplus(X), torch.log1p(torch.exp(X)))
