"""Kept composites under functional transforms, autocast and subclasses, and in traced and compiled graphs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from kept_composites import (
    CASES,
    Tensors,
    aten_targets,
    detached_copies,
    dispatch_table,
    forward_and_backward,
    random_leaves,
    run_with_kept,
)
from on_core import CORE
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import has_kernel

aten = torch.ops.aten

# -- ambient state -------------------------------------------------------------------------------------------------------------


def test_forward_mode_ad_equals_eager() -> None:
    x, tangent, weight = random_leaves((3, 4), (3, 4), (5, 4))
    x, tangent = x.detach(), tangent.detach()

    def run(w: torch.Tensor) -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            out = torch.autograd.forward_ad.unpack_dual(F.layer_norm(F.linear(dual, w), [5]))
            return out.primal, out.tangent

    for one in (weight, weight.detach()):
        want = run(one)
        assert want[1] is not None
        assert_same(run_with_kept(lambda: run(one), aten.linear, aten.layer_norm, times=0), want)  # noqa: B023 - called at once


TRANSFORMS: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda y: f(y).sum()))(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "hessian": lambda f, x: torch.func.hessian(lambda y: f(y).square().sum())(x[0]),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_functional_transforms_equal_eager(name: str) -> None:
    weight = torch.randn(5, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.linear(x, weight), [5])

    x = torch.randn(3, 4)
    want = TRANSFORMS[name](f, x)
    assert_same(run_with_kept(lambda: TRANSFORMS[name](f, x), aten.linear, aten.layer_norm, times=None), want)


@pytest.mark.parametrize("name", ["linear", "layer_norm", "rms_norm", "einsum", "group_norm", "conv2d"])
def test_dtypes_and_values_under_autocast_equal_eager(name: str) -> None:
    op, fn, shapes = CASES[name]
    tensors = random_leaves(*shapes)

    def run(tensors: Tensors) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return forward_and_backward(fn, tensors)

    plain = detached_copies(tensors)
    assert_same(run_with_kept(lambda: run(tensors), op, times=None), run(plain))
    whole = int(has_kernel(op.default if not isinstance(op, torch._ops.OpOverload) else op, "AutocastCPU"))
    run_with_kept(lambda: run(tensors), op, times=whole)


def test_subclasses_sparse_and_conjugate_tensors_equal_eager() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    x = torch.randn(3, 4)
    pair = TwoTensor(x, x + 1)
    got = run_with_kept(lambda: F.linear(pair, weight), aten.linear, times=0)
    assert_same([got.a, got.b], [F.linear(x, weight), F.linear(x + 1, weight)])
    sparse = torch.eye(4).to_sparse()
    assert_same(
        run_with_kept(lambda: F.linear(sparse, weight), aten.linear, times=None, on_unsupported="fallback"),
        F.linear(sparse, weight),
    )
    z = torch.randn(3, 4, dtype=torch.complex64)
    w = torch.randn(5, 4, dtype=torch.complex64, requires_grad=True)
    run = lambda: forward_and_backward(lambda w: F.linear(z.conj(), w), [w])  # noqa: E731
    assert_same(run_with_kept(run, aten.linear), run())


# -- tracing -------------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("inside", [True, False])
def test_make_fx_records_kept_ops_as_single_nodes(tracing: str, inside: bool) -> None:
    mode = ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm, aten.scaled_dot_product_attention])

    def forward(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        y = F.layer_norm(F.linear(x, w), [4])
        return F.scaled_dot_product_attention(y, y, y)

    def backward(x: torch.Tensor, w: torch.Tensor) -> Any:
        return torch.autograd.grad(F.layer_norm(F.linear(x, w), [4]).sum(), [x, w])

    def traced(fn: Callable[..., Any], *args: torch.Tensor) -> torch.fx.GraphModule:
        if not inside:
            with mode:
                return make_fx(fn, tracing_mode=tracing)(*args)

        def entered(*tensors: torch.Tensor) -> Any:
            with mode:
                return fn(*tensors)

        return make_fx(entered, tracing_mode=tracing)(*args)

    x, w = random_leaves((2, 3, 4), (4, 4))
    graph = traced(forward, x.detach(), w.detach())
    kernels = [name for name in aten_targets(graph) if "sym_" not in name]
    assert kernels == ["aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"]
    assert_same(graph(x.detach(), w.detach()), forward(x.detach(), w.detach()))
    graph = traced(backward, x, w)
    assert aten_targets(graph).count("aten.linear.default") == 1
    assert "aten.layer_norm.default" in aten_targets(graph)
    assert_same(tuple(graph(x, w)), backward(*detached_copies([x, w])))
    left = make_fx(forward)(x.detach(), w.detach())
    assert "aten.linear.default" not in aten_targets(left)


@pytest.mark.full
def test_gradients_are_kept_where_a_fallthrough_kernel_would_lose_them() -> None:
    """With a fallthrough at the autograd key and a composite kernel at the backend's key, autograd records nothing below a mode."""
    tensors = random_leaves((3, 4), (5, 4))
    want = forward_and_backward(F.linear, detached_copies(tensors))

    class Plain(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    ways: dict[str, Callable[[Tensors], Any]] = {
        "eager": lambda given: forward_and_backward(F.linear, given),
        "mode": lambda given: under(Plain(), given),
        "compiled": lambda given: forward_and_backward(torch.compile(F.linear, backend="aot_eager"), given),
    }

    def under(mode: Any, given: Tensors) -> Any:
        with mode:
            return forward_and_backward(F.linear, given)

    with torch.library._scoped_library("aten", "IMPL") as library:
        body = lambda x, w, b=None: torch.addmm(b, x, w.t()) if b is not None else torch.mm(x, w.t())  # noqa: E731
        library.impl("linear", torch.library.fallthrough_kernel, "AutogradCPU")
        library.impl("linear", body, "CPU")
        lost = [name for name, way in ways.items() if not way(detached_copies(tensors))[1]]
        fallen = dispatch_table()
        for way in ways.values():  # a fallthrough kernel has no gradient: ours replaces it during the mode
            torch._dynamo.reset()
            with ed.EagerDecompMode(CORE, keep=[aten.linear]):
                assert_same(way(detached_copies(tensors)), want)
        assert dispatch_table() == fallen
    torch._dynamo.reset()
    assert lost == ["mode", "compiled"]
    keeping = ed.EagerDecompMode(CORE, keep=[aten.linear])
    for way in ways.values():
        with keeping:
            assert_same(way(detached_copies(tensors)), want)
        assert_same(way(detached_copies(tensors)), want)
    torch._dynamo.reset()
