"""Hooks that raise: of modules, tensors, saved tensors, a backend, and an outer mode."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import Interrupted, in_another_thread, state
from on_core import CORE
from torch import nn
from torch.autograd.graph import saved_tensors_hooks

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode

SMALL = CORE - ["aten.native_layer_norm", "aten.gelu", "aten.gelu_backward", "aten.native_layer_norm_backward"]
X = torch.arange(6.0).view(2, 3)


class Mine(Exception):
    """The error of a hook."""


def fault(*args: Any, **kwargs: Any) -> Any:
    raise Mine("of a hook")


def net() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4), nn.Mish(), nn.Linear(4, 2))


def step(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    given = x.clone().requires_grad_()
    return list(torch.autograd.grad(model(given).square().sum(), [given, *model.parameters()]))


def under_saved(pack: Callable[..., Any], unpack: Callable[..., Any]) -> Callable[[nn.Module, torch.Tensor], Any]:
    def run(model: nn.Module, x: torch.Tensor) -> Any:
        with saved_tensors_hooks(pack, unpack):
            return step(model, x)

    return run


def with_hook(place: int, name: str) -> Callable[[nn.Module, torch.Tensor], Any]:
    def run(model: Any, x: torch.Tensor) -> Any:
        handle = getattr(model[place], name)(fault)
        try:
            return step(model, x)
        finally:
            handle.remove()

    return run


def on_tensor(model: Any, x: torch.Tensor) -> Any:
    given = x.clone().requires_grad_()
    middle = model[:3](given)
    middle.register_hook(fault)
    model[3:](middle).sum().backward()


class Failing(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(x)
        return F.silu(x)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> Any:
        F.gelu(ctx.saved_tensors[0])
        raise Mine("of a hook")


HOOKS: dict[str, Callable[[nn.Module, torch.Tensor], Any]] = {
    "forward": with_hook(1, "register_forward_hook"),
    "full backward": with_hook(1, "register_full_backward_hook"),
    "tensor": on_tensor,
    "pack": under_saved(fault, lambda x: x),
    "unpack": under_saved(lambda x: x, fault),
    "function": lambda model, x: Failing.apply(model(x)).sum().backward(),
}


WAYS: dict[str, Callable[[ed.ProgramCache], AbstractContextManager[Any]]] = {
    "mode": lambda cache: ed.EagerDecompMode(SMALL, cache=cache, keep={"aten.linear"}),
    "recorded": lambda cache: RecordingMode(SMALL, cache=cache),
    "preflight": lambda cache: ed.EagerDecompMode(SMALL, cache=cache, preflight=True),
    "verified": lambda cache: ed.EagerDecompMode(SMALL, cache=cache, verify="cpu"),
    "installed": lambda cache: ed.install(SMALL, "cpu", cache=cache),
}


@pytest.mark.full
@pytest.mark.parametrize("way", WAYS)
def test_an_error_of_a_hook_propagates_and_the_next_step_is_right(way: str) -> None:
    model = net()
    want = step(model, X)
    before = state()
    with WAYS[way](ed.ProgramCache()):
        inside = state()
        for name, run in HOOKS.items():
            for _ in range(2):
                given = X.clone()
                left = weakref.ref(given)
                with pytest.raises(Mine, match="of a hook"):
                    run(model, given)
                del given
                gc.collect()
                assert left() is None, name
                assert state() == inside, name
            torch.testing.assert_close(step(model, X), want)
    assert state() == before


# -- the hook that compiles -----------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("kind", [Mine, Interrupted, SystemExit, torch.OutOfMemoryError])
@pytest.mark.parametrize("fails", [1, 3])
def test_a_compile_hook_that_raises_is_called_again_and_results_are_right(kind: type[BaseException], fails: int) -> None:
    asked: list[Any] = []

    def hook(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        asked.append(weakref.ref(graph))
        if len(asked) <= fails:
            raise kind("of a hook")
        return graph

    want, raised, before = F.gelu(X), 0, state()
    got: list[torch.Tensor] = []
    with ed.EagerDecompMode(ed.Backend("fuses", SMALL, compile=hook), cache=ed.ProgramCache()):
        inside = state()
        for _ in range(40):
            try:
                got.append(F.gelu(X))
            except (ed.HookError, kind) as error:
                raised += 1
                assert isinstance(error, kind) or isinstance(error.__cause__, kind)  # noqa: PT017
                assert state() == inside
                assert in_another_thread(lambda: True)
    assert state() == before
    assert len(got) == 40 - fails
    for one in got:
        torch.testing.assert_close(one, want)
    assert (raised, len(asked)) == (fails, fails + 1)
    gc.collect()
    assert [one() for one in asked[:fails]] == [None] * fails
