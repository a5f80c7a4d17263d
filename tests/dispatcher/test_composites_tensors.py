"""Kept composites and autograd: writes before backward, aliases, hooks, checkpoints and random numbers."""

from __future__ import annotations

import copy
import gc
import weakref
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from kept_composites import IMAGE, aten_targets, detached_copies, random_leaves, run_with_kept
from on_core import CORE
from torch.fx.experimental.proxy_tensor import make_fx

import eagerdecomp as ed

aten = torch.ops.aten


def test_writes_before_backward_that_eager_permits_are_permitted() -> None:
    def run() -> Any:
        x, weight, bias = random_leaves((3, 4), (5, 4), (5,))
        frozen = weight.detach()
        y = x * 1
        out = F.linear(y, frozen, bias)
        with torch.no_grad():
            bias.add_(1)
            y.data.add_(0)
        y.detach().add_(1)  # the gradient of a frozen layer's input does not need the input
        return torch.autograd.grad(out.sum(), [x, bias])

    assert_same(run_with_kept(run, aten.linear), run())


def test_running_statistics_are_written_once() -> None:
    for training in (True, False):
        plain = torch.nn.BatchNorm2d(4).train(training)
        ours = copy.deepcopy(plain)
        x = torch.randn(IMAGE)
        plain(x).square().sum().backward()
        run_with_kept(lambda: ours(x).square().sum().backward(), aten.batch_norm)  # noqa: B023 - called at once
        assert_same(list(ours.buffers()), list(plain.buffers()))
        assert_same([p.grad for p in ours.parameters()], [p.grad for p in plain.parameters()])


def test_a_result_that_is_the_argument_itself_is_so_in_autograd_too() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    out = run_with_kept(lambda: F.dropout(y, 0.5, training=False), aten.dropout)
    assert out is y
    z = run_with_kept(lambda: torch.einsum("ij->ji", y.view(2, 2)), aten.einsum)
    z.mul_(3)  # a view: writes to y and changes y's gradient
    assert_same(torch.autograd.grad(y.sum(), x), (torch.full((4,), 6.0),))


def test_hooks_retained_graphs_and_accumulation_work() -> None:
    def run() -> Any:
        x, weight = random_leaves((3, 4), (5, 4))
        observed: list[torch.Tensor] = []
        weight.register_hook(lambda g: observed.append(g) or g * 2)
        out = F.layer_norm(F.linear(x, weight), [5])
        out.retain_grad()
        loss = out.square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad, weight.grad, out.grad, observed

    assert_same(run_with_kept(run, aten.linear, aten.layer_norm), run())
    loss = run_with_kept(lambda: F.rms_norm(random_leaves((3, 4))[0], [4]).sum(), aten.rms_norm)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_graphs_are_freed() -> None:
    x = torch.randn(3, 4, requires_grad=True)
    held = torch.randn(5, 4, requires_grad=True) * 1
    with ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm]):
        out = F.layer_norm(F.linear(x, held), [5])
    gone = weakref.ref(held)
    gc.disable()
    try:
        del held
        assert gone() is not None
        del out
        assert gone() is None
    finally:
        gc.enable()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoints_of_kept_ops_have_the_same_gradients_and_masks(reentrant: bool) -> None:
    def run() -> Any:
        x, weight = random_leaves((8, 4), (5, 4))
        torch.manual_seed(0)

        def block(y: torch.Tensor) -> torch.Tensor:
            return F.dropout(F.layer_norm(F.linear(y, weight), [5]), 0.5)

        out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
        out.square().sum().backward()
        return out, x.grad, weight.grad

    assert_same(run_with_kept(run, aten.linear, aten.layer_norm, aten.dropout, times=2), run())


# -- random numbers ------------------------------------------------------------------------------------------------------------


def test_backward_recomputes_the_same_mask_and_restores_the_rng_state() -> None:
    def run() -> Any:
        x = torch.ones(1000, requires_grad=True)
        torch.manual_seed(0)
        first, second = F.dropout(x, 0.5), F.dropout(x, 0.3)
        between = torch.rand(3)
        grads = torch.autograd.grad(first.sum(), x)[0], torch.autograd.grad(second.sum(), x)[0]
        assert torch.equal(grads[0], first.detach())
        assert torch.equal(grads[1], second.detach())
        return grads, between, torch.rand(3)

    assert_same(run_with_kept(run, aten.dropout, times=2), run())


def test_backward_raises_if_a_kernel_uses_other_random_numbers_than_the_composite() -> None:
    def mine(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        return torch.where(torch.rand(x.shape).flip(0) < p, 0, x / (1 - p))

    x = torch.ones(100, requires_grad=True)
    with ed.EagerDecompMode(CORE, keep=[aten.dropout], kernels={"aten.dropout": mine}):
        out = F.dropout(x, 0.5)
        with pytest.raises(ed.OpSetError, match="draws other random numbers"):
            out.sum().backward()


def test_a_random_op_that_needs_a_gradient_is_decomposed_while_tracing() -> None:
    x = torch.ones(100, requires_grad=True)

    def fn(x: torch.Tensor) -> Any:
        out = F.dropout(x, 0.5)
        return out, torch.autograd.grad(out.sum(), x)[0]

    mode = ed.EagerDecompMode(CORE, keep=[aten.dropout])

    def entered(x: torch.Tensor) -> Any:
        with mode:
            return fn(x)

    with mode:
        graphs = [make_fx(fn)(x), make_fx(entered)(x), ed.trace(fn, CORE, keep=[aten.dropout])(x)]
    for graph in graphs:
        out, grad = graph(x)
        assert torch.equal(out.detach(), grad), graph.code
    assert aten_targets(ed.trace(lambda x: F.dropout(x, 0.5), CORE, keep=[aten.dropout])(x.detach())) == ["aten.dropout.default"]


def test_writes_before_backward_that_eager_rejects_raise() -> None:
    x, weight = random_leaves((3, 4), (5, 4))

    def run() -> None:
        out = F.linear(x, weight)
        with torch.no_grad():
            weight.add_(1)
        out.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        run_with_kept(run, aten.linear)


def test_an_in_place_op_writes_bumps_the_version_and_rejects_a_leaf() -> None:
    def run() -> Any:
        x = torch.ones(40, requires_grad=True)
        y = x * 2
        before = y._version
        torch.manual_seed(0)
        result = torch.dropout_(y, 0.5, True)
        assert result is y
        return y, y._version > before, torch.autograd.grad(y.sum(), x)

    assert_same(run_with_kept(run, aten.dropout_), run())
    leaf = torch.ones(40, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        run_with_kept(lambda: torch.dropout_(leaf, 0.5, True), aten.dropout_)
    assert_same(leaf, torch.ones(40, requires_grad=True))
    with torch.no_grad():
        plain = torch.ones(40)
        run_with_kept(lambda: torch.dropout_(plain, 0.5, True), aten.dropout_)
        assert plain._version > 0


def test_an_in_place_op_on_a_view_reaches_its_base() -> None:
    def run() -> Any:
        x = torch.linspace(-2, 2, 6).requires_grad_()
        y = x * 2
        aten.multiply_.Scalar(y.view(2, 3)[0], 3)
        return y, torch.autograd.grad(y.square().sum(), x)

    assert_same(run_with_kept(run, aten.multiply_.Scalar, times=0), run())


def test_an_in_place_op_on_a_saved_tensor_raises_in_backward_as_in_eager() -> None:
    def run() -> Any:
        x = torch.linspace(-2, 2, 6).requires_grad_()
        y = x * 2
        aten.multiply_.Tensor(y, y)
        return torch.autograd.grad(y.sum(), x)

    for one in (run, lambda: run_with_kept(run, aten.multiply_.Tensor, times=0)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            one()


def test_out_is_written_or_rejected_as_in_eager() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    out = torch.empty(3, 5)
    assert run_with_kept(lambda: torch.matmul(a, b, out=out), aten.matmul.out) is out
    assert_same(out, a @ b)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        run_with_kept(lambda: torch.matmul(a.requires_grad_(), b, out=out), aten.matmul.out, times=None)


def test_none_and_integers_get_no_gradient() -> None:
    x, y = random_leaves((3, 4), (3, 4))

    def run() -> Any:
        deviation, mean = torch.std_mean(x, 1)
        return torch.autograd.grad(mean.sum(), x), mean.requires_grad, deviation.requires_grad

    assert_same(run_with_kept(run, aten.std_mean.dim), run())
    assert not run_with_kept(lambda: torch.argwhere(x > 0), aten.argwhere).requires_grad
    equal = run_with_kept(lambda: torch.isclose(x, y), aten.isclose)
    assert not equal.requires_grad
    assert_same(equal, torch.isclose(x, y))


def test_backward_may_run_after_the_mode_exits() -> None:
    tensors = random_leaves((3, 4), (5, 4))
    out = run_with_kept(lambda: F.layer_norm(F.linear(*tensors), [5]).square().sum(), aten.linear, aten.layer_norm)
    plain = detached_copies(tensors)
    want = torch.autograd.grad(F.layer_norm(F.linear(*plain), [5]).square().sum(), plain)
    assert_same(torch.autograd.grad(out, tensors), want)
