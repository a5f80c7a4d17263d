"""Kernels that raise in a program, also out of memory: the error propagates, no state is left, and the next call works."""

from __future__ import annotations

import gc
import sys
import traceback
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import state
from on_core import CORE
from opaque import OPAQUE
from sampled import SEED

import eagerdecomp as ed

pytestmark = pytest.mark.full

aten = torch.ops.aten
X = torch.arange(1.0, 7).view(2, 3)


class Broken(Exception):
    """An error of a kernel's author, which takes what errors of Python do not."""

    def __init__(self, *, code: int) -> None:
        super().__init__(code)
        self.code = code


class Stopped(BaseException):
    """No Exception, as the one that a framework stops its threads by."""


ERRORS: dict[str, Callable[[], BaseException]] = {
    "of the user": lambda: Broken(code=7),
    "no exception": lambda: Stopped("stop"),
    "out of memory": lambda: torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
    "stop iteration": lambda: StopIteration(3),
}


class Kernels:
    """Kernels that compute as eager does, but for one call of them, at which they raise; what they make is watched."""

    def __init__(self) -> None:
        self.calls = 0
        self.fails_at = -1
        self.error: BaseException | None = None
        self.made: list[weakref.ref[torch.Tensor]] = []

    def _run(self, op: Callable[..., Any]) -> Callable[..., Any]:
        def kernel(*args: Any, **kwargs: Any) -> Any:
            self.calls += 1
            if self.calls - 1 == self.fails_at:
                self._fail()
            result = op(*args, **kwargs)
            self.made.append(weakref.ref(result))
            return result

        return kernel

    def _fail(self) -> None:
        assert self.error is not None
        raise self.error

    def backend(self, hook: Any = None) -> ed.Backend:
        ops = (aten.mul.Tensor, aten.add.Tensor, aten.cos.default, aten.sin.default)
        kernels = {str(op): self._run(op) for op in ops}
        return ed.Backend("raises", CORE, kernels=kernels, compile=hook)


def opaque(x: torch.Tensor) -> torch.Tensor:
    y = x * x + torch.cos(x)
    return torch.sin(y) * y + x


@ed.register_decomposition("aten.mish.default")
def forward(x: torch.Tensor) -> torch.Tensor:
    return OPAQUE(x) * x


@ed.register_decomposition("aten.mish_backward.default")
def backward(grad: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    return grad * OPAQUE(x) + torch.cos(grad)


RULES = [ed.register_decomposition(OPAQUE)(opaque), forward, backward]


def in_mode(backend: ed.Backend) -> AbstractContextManager[Any]:
    return ed.EagerDecompMode(backend, rules=RULES, cache=ed.ProgramCache())


def installed(backend: ed.Backend) -> AbstractContextManager[Any]:
    return ed.install(backend, "cpu", rules=RULES, cache=ed.ProgramCache())


def plain(x: torch.Tensor) -> torch.Tensor:
    return F.mish(x.detach())


def trained(x: torch.Tensor) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    F.mish(leaf).sum().backward()
    assert leaf.grad is not None
    return leaf.grad


WANT = {plain: opaque(X) * X, trained: opaque(X) + torch.cos(torch.ones_like(X))}


@pytest.mark.parametrize("way", [in_mode, installed])
@pytest.mark.parametrize("run", WANT)
@pytest.mark.parametrize("warm", [0, 1, 2, 4])  # recorded, evaluated, compiled, hit
def test_a_kernel_that_raises_in_a_program_leaves_no_state_and_the_next_call_is_right(way: Any, run: Any, warm: int) -> None:
    def trial(at: int, name: str) -> int:
        kernels, before = Kernels(), state()
        mode = way(kernels.backend())
        with mode:
            inside = state()
            for _ in range(warm):
                run(X)
            kernels.calls, kernels.made = 0, []
            kernels.fails_at, kernels.error = at, ERRORS[name]()
            given = X.clone()
            left = weakref.ref(given)
            if at < sys.maxsize:
                with pytest.raises(type(kernels.error)) as caught:
                    run(given)
                assert caught.value is kernels.error
                assert [frame.name for frame in traceback.extract_tb(caught.tb)][-2:] == ["kernel", "_fail"]
                assert caught.value.__cause__ is caught.value.__context__ is None
                del caught
            else:
                run(given)
            kernels.error, kernels.fails_at, count = None, -1, kernels.calls
            del given
            if left() is not None or any(one() is not None for one in kernels.made):
                gc.collect()
            assert left() is None
            assert [one() for one in kernels.made] == [None] * len(kernels.made)
            assert state() == inside
            for _ in range(3):
                torch.testing.assert_close(run(X), WANT[run])
        assert state() == before
        return count

    moments = trial(sys.maxsize, "of the user")
    assert moments >= 6
    names = list(ERRORS)
    step = 4 if way is installed else 1  # to install takes its time
    for at in range(SEED % step, moments, step):
        trial(at, names[at % len(names)])


HUGE: dict[str, Callable[[], Any]] = {
    "expanded, then copied": lambda: torch.ones(1).expand(2**60).clone(),
    "silu of what is expanded": lambda: F.silu(torch.ones(1).expand(2**60)),
    "gelu": lambda: F.gelu(torch.ones(1).expand(2**60)),
    "a program": lambda: torch.logaddexp2(torch.ones(1).expand(2**60), torch.ones(1)),
}


@pytest.mark.parametrize("name", HUGE)
@pytest.mark.parametrize("way", [in_mode, installed])
def test_an_impossible_allocation_raises_eagers_error(name: str, way: Any) -> None:
    with pytest.raises(RuntimeError) as eager:
        HUGE[name]()
    before = state()
    with way(ed.Backend("plain", CORE)):
        for _ in range(3):
            with pytest.raises(type(eager.value)) as caught:
                HUGE[name]()
            assert type(caught.value) is type(eager.value)
            assert ("memory" in str(caught.value)) == ("memory" in str(eager.value)), str(caught.value)
        torch.testing.assert_close(F.gelu(X), X * 0.5 * (1 + torch.erf(X / 2**0.5)))
    assert state() == before


def fused(kernels: Kernels, error: list[BaseException], made: list[Any]) -> Callable[..., Any]:
    def hook(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        def run(*tensors: Any) -> Any:
            results = graph(*tensors)
            made.extend(weakref.ref(one) for one in results)
            if error:
                raise error[0]
            return results

        return run

    return hook


@pytest.mark.parametrize("calls", [17, 18, 25])  # its first call, checked; the next; a later one
@pytest.mark.parametrize("run", WANT)
def test_a_fused_program_that_raises_leaves_no_state_and_runs_again(run: Any, calls: int) -> None:
    error: list[BaseException] = []
    made: list[Any] = []
    kernels = Kernels()
    with in_mode(kernels.backend(fused(kernels, error, made))):
        for _ in range(calls):
            run(X)
        fault = Broken(code=1)
        error.append(fault)
        given = X.clone()
        left = weakref.ref(given)
        with pytest.raises((Broken, ed.HookError)) as caught:
            run(given)
        assert fault in (caught.value, caught.value.__cause__)
        error.clear()
        del given, caught, fault
        gc.collect()
        assert left() is None
        assert made
        assert all(one() is None for one in made)
        for _ in range(3):
            torch.testing.assert_close(run(X), WANT[run])
