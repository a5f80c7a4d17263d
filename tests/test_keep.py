"""Composites that reach the backend whole, with eager's values and gradients: `keep=`."""

from __future__ import annotations

import contextlib
import copy
import gc
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from on_core import CORE, gradient, on
from torch.fx.experimental.proxy_tensor import make_fx
from torch.testing._internal.two_tensor import TwoTensor

import eagerdecomp as ed
from eagerdecomp._torch import has_kernel
from eagerdecomp.schema import is_composite

aten = torch.ops.aten

Tensors = list[torch.Tensor]


def kept(run: Callable[[], Any], *keep: Any, times: int | None = 1, **options: Any) -> Any:
    """What `run` gives where these ops are kept; the first of them arrived so often, and nothing came from outside the set."""
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, keep=keep, **options) as mode:
        result = run()
    assert not seen.outside(mode.backend.ops), seen.outside(mode.backend.ops)
    first = keep[0].default if not isinstance(keep[0], torch._ops.OpOverload) else keep[0]
    if times is not None:
        assert seen.ops[first] == times, seen.ops
    return result


def leaves(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def fresh(tensors: Iterable[torch.Tensor]) -> Tensors:
    return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]


def step(fn: Callable[..., Any], tensors: Tensors) -> tuple[Any, Any]:
    """Results and gradients of one run, random numbers from one seed."""
    torch.manual_seed(3)
    answer = fn(*tensors)
    answers = [one for one in (answer if isinstance(answer, (list, tuple)) else [answer]) if one.requires_grad]
    weights = [(torch.arange(one.numel()) % 7 - 2).to(one.dtype).view(one.shape) for one in answers]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    return answer, torch.autograd.grad(answers, wanted, weights, allow_unused=True) if answers else ()


IMAGE = (2, 4, 5, 5)
HEADS = (2, 2, 6, 4)
MASK = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) > 0.3
TARGET = torch.tensor([1, 0, 2])

#: op -> calls of it, each with the shapes of its tensors.
CASES: dict[str, tuple[Any, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (aten.linear, F.linear, ((3, 4), (5, 4), (5,))),
    "linear of one vector": (aten.linear, F.linear, ((4,), (5, 4), (5,))),
    "linear of four dimensions": (aten.linear, F.linear, ((2, 3, 2, 4), (5, 4), (5,))),
    "linear without bias": (aten.linear, F.linear, ((2, 3, 4), (5, 4))),
    "linear of a transposed tensor": (aten.linear, lambda x, w: F.linear(x.t(), w), ((4, 3), (5, 4))),
    "linear of one row": (aten.linear, F.linear, ((3, 4), (4,))),
    "linear of no rows": (aten.linear, F.linear, ((0, 4), (5, 4), (5,))),
    "layer_norm": (aten.layer_norm, lambda x, w, b: F.layer_norm(x, [4], w, b), ((3, 4), (4,), (4,))),
    "layer_norm bare": (aten.layer_norm, lambda x: F.layer_norm(x, [3, 4]), ((2, 3, 4),)),
    "rms_norm": (aten.rms_norm, lambda x, w: F.rms_norm(x, [4], w), ((3, 4), (4,))),
    "group_norm": (aten.group_norm, lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, (4,), (4,))),
    "instance_norm": (aten.instance_norm, lambda x, w, b: F.instance_norm(x, weight=w, bias=b), (IMAGE, (4,), (4,))),
    "batch_norm": (aten.batch_norm, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (IMAGE, (4,), (4,))),
    "attention": (aten.scaled_dot_product_attention, F.scaled_dot_product_attention, (HEADS,) * 3),
    "attention of itself": (aten.scaled_dot_product_attention, lambda q: F.scaled_dot_product_attention(q, q, q), (HEADS,)),
    "causal attention": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=0.3),
        (HEADS,) * 3,
    ),
    "masked attention": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK),
        (HEADS,) * 3,
    ),
    "attention with a learned mask": (aten.scaled_dot_product_attention, F.scaled_dot_product_attention, (*(HEADS,) * 3, (6, 6))),
    "attention of grouped queries": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, enable_gqa=True),
        ((2, 4, 6, 4), HEADS, HEADS),
    ),
    "attention with dropout": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.4),
        (HEADS,) * 3,
    ),
    "dropout": (aten.dropout, lambda x: F.dropout(x, 0.5), ((8, 9),)),
    "dropout of channels": (aten.feature_dropout, lambda x: F.dropout2d(x, 0.5), (IMAGE,)),
    "alpha dropout": (aten.alpha_dropout, lambda x: F.alpha_dropout(x, 0.5, training=True), ((8, 9),)),
    "dropout in place": (aten.dropout_, lambda x: F.dropout(x * 2, 0.5, inplace=True), ((8, 9),)),
    "matmul": (aten.matmul, torch.matmul, ((2, 3, 4), (4, 5))),
    "matmul of vectors": (aten.matmul, torch.matmul, ((4,), (4,))),
    "einsum": (aten.einsum, lambda a, b: torch.einsum("bij,jk->bik", a, b), ((2, 3, 4), (4, 5))),
    "conv1d": (aten.conv1d, F.conv1d, ((2, 4, 9), (3, 4, 3), (3,))),
    "conv2d": (aten.conv2d, lambda x, w, b: F.conv2d(x, w, b, 2, 1, groups=2), (IMAGE, (6, 2, 3, 3), (6,))),
    "conv2d same": (aten.conv2d.padding, lambda x, w: F.conv2d(x, w, padding="same"), (IMAGE, (3, 4, 3, 3))),
    "conv_transpose2d": (aten.conv_transpose2d.input, F.conv_transpose2d, (IMAGE, (4, 3, 3, 3), (3,))),
    "max_pool2d": (aten.max_pool2d, lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "cross_entropy": (aten.cross_entropy_loss, lambda x: F.cross_entropy(x, TARGET, label_smoothing=0.1), ((3, 4),)),
    "margin loss": (aten.margin_ranking_loss, lambda a, b: F.margin_ranking_loss(a, b, torch.ones(3)), ((3,), (3,))),
    "pad": (aten.pad, lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"), (IMAGE,)),
    "softmax": (aten.softmax.int, lambda x: F.softmax(x, 1), ((3, 4),)),
    "selu in place": (aten.selu_, lambda x: F.selu(x * 2, inplace=True), ((3, 4),)),
    "two results": (aten.std_mean.dim, lambda x: torch.std_mean(x, 1), ((3, 4),)),
    "a list of results": (aten.gradient.scalararray, lambda x: torch.gradient(x, spacing=2.0, dim=[2, 3]), (IMAGE,)),
    "a list of tensors": (aten.hstack, lambda a, b: torch.hstack([a, b]), ((3, 4), (3, 2))),
    "by a number": (aten.multiply.Scalar, lambda x: aten.multiply.Scalar(x, 3), ((3, 4),)),
    "with conjugates inside": (aten.fft_hfftn, lambda x: torch.fft.hfftn(x), ((3, 4, 5),)),
    "recurrent": (
        aten.gru_cell,
        torch.gru_cell,
        ((3, 4), (3, 5), (15, 4), (15, 5), (15,), (15,)),
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_kept_op_arrives_whole_with_eagers_values_and_gradients(name: str) -> None:
    op, fn, shapes = CASES[name]
    tensors = leaves(*shapes)
    want = step(fn, fresh(tensors))
    got = kept(lambda: step(fn, tensors), op)
    assert_same(got, want)
    some = fresh(tensors)
    for tensor in some[1:]:
        tensor.requires_grad_(False)
    assert_same(kept(lambda: step(fn, some), op), step(fn, fresh(some)))


@pytest.mark.parametrize("name", CASES)
def test_a_kept_op_without_a_gradient_is_the_op_alone(name: str) -> None:
    op, fn, shapes = CASES[name]
    plain = [tensor.detach() for tensor in leaves(*shapes)]
    torch.manual_seed(5)
    want = fn(*plain)
    for ambient in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with ambient():
            torch.manual_seed(5)
            assert_same(kept(lambda: fn(*plain), op), want)


SMOOTH = [name for name in CASES if name not in ("max_pool2d", "margin loss", "a list of results", "pad")]


@pytest.mark.parametrize("name", SMOOTH)
def test_the_gradient_of_a_kept_op_can_be_differentiated_again_where_eagers_can(name: str) -> None:
    op, fn, shapes = CASES[name]
    doubles = leaves(*shapes, dtype=torch.float64)
    small = [tensor.detach()[:2].requires_grad_() if name.startswith(("dropout", "alpha")) else tensor for tensor in doubles]

    def seeded(*tensors: torch.Tensor) -> Any:
        torch.manual_seed(3)
        return fn(*tensors)

    def second(*tensors: torch.Tensor) -> Any:
        answer = seeded(*tensors)
        answer = answer[0] if isinstance(answer, tuple) else answer
        (first,) = torch.autograd.grad(answer.square().sum(), tensors[:1], create_graph=True)
        return torch.autograd.grad(first.square().sum(), tensors, allow_unused=True)

    try:
        want = second(*fresh(small))
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error).partition("'")[0][:40]):
            kept(lambda: second(*fresh(small)), op, times=None)
        return
    assert_same(kept(lambda: second(*fresh(small)), op, times=None), want)


@pytest.mark.parametrize("name", ["linear", "linear of four dimensions", "layer_norm", "rms_norm", "einsum"])
def test_gradcheck_holds_twice(name: str) -> None:
    op, fn, shapes = CASES[name]
    doubles = tuple(leaves(*shapes, dtype=torch.float64))
    assert kept(lambda: torch.autograd.gradcheck(fn, doubles), op, times=None)
    assert kept(lambda: torch.autograd.gradgradcheck(fn, doubles), op, times=None)


# -- which ops ---------------------------------------------------------------------------------------------------------------


def composites(ops: Iterable[Any]) -> list[str]:
    return [str(op) for op in ops if is_composite(op)]


def test_a_set_that_holds_a_composite_keeps_it() -> None:
    x, weight = leaves((3, 4), (5, 4))
    with on(CORE | ["aten.linear"]) as (_, seen):
        F.linear(x, weight).sum().backward()
    assert seen.ops[aten.linear.default] == 1


def test_core_aten_and_prims_keep_nothing() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    with on(CORE) as (mode, seen):
        F.avg_pool1d(x, 2).sum().backward()
    assert seen.ops[aten.avg_pool1d.default] == 0
    assert mode.kept is None
    assert ed.EagerDecompMode(ed.prims()).kept is None
    assert "aten.avg_pool1d.default" in composites(CORE)


def test_a_composite_of_core_aten_is_kept_where_it_is_named_or_has_a_kernel() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    kept(lambda: F.avg_pool1d(x, 2).sum().backward(), aten.avg_pool1d)
    calls: list[int] = []

    def mine(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return aten.avg_pool1d(*args, **kwargs)

    with ed.EagerDecompMode(ed.Backend("mine", CORE, {"aten.avg_pool1d.default": mine})):
        F.avg_pool1d(x, 2)
    assert calls == [1]


def test_an_op_that_eager_leaves_whole_is_in_the_set_by_keep_and_no_more() -> None:
    x = torch.randn(3, requires_grad=True)
    with on(CORE | ["aten.silu", "aten.silu_backward"]) as (mode, seen):
        want = gradient(lambda y: F.silu(y).sum(), x)
    assert seen.ops[aten.silu_backward.default] == 1
    assert_same(kept(lambda: gradient(lambda y: F.silu(y).sum(), x), aten.silu_backward, aten.silu), want)
    assert aten.silu_backward.default in mode.backend.ops
    assert ed.EagerDecompMode(CORE, keep=["aten.embedding_dense_backward"]).kept is None


@pytest.mark.parametrize("op", ["aten.reshape", "aten.contiguous", "aten.split.sizes", "aten.chunk", "aten.requires_grad_"])
def test_what_answers_a_view_cannot_be_kept_and_the_error_says_why(op: str) -> None:
    with pytest.raises(ed.OpSetError, match=r"keep: aten\..*(view|what a tensor is)"):
        ed.EagerDecompMode(CORE, keep=[op])
    with ed.EagerDecompMode(CORE | [op]):  # in a set it is what it was: whole where eager hands it on
        x = torch.randn(4, requires_grad=True) * 2
        x.reshape(2, 2).mul_(2)


def test_a_backends_kernel_gets_the_call_and_a_packet_is_all_overloads() -> None:
    calls: list[tuple[Any, ...]] = []

    def mine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        calls.append((x, weight, bias))
        out = x @ weight.t()
        return out if bias is None else out + bias

    tensors = leaves((3, 4), (5, 4), (5,))
    mode = ed.EagerDecompMode(CORE, keep={aten.linear}, kernels={"aten.linear.default": mine})
    with mode:
        got = step(F.linear, tensors)
    assert len(calls) == 1
    assert_same(got, step(F.linear, fresh(tensors)))
    assert "aten.linear" in mode.backend.ops
    assert mode.stats()["aten.linear.default"].direct == 1


def test_a_predicate_that_turns_a_call_down_leaves_it_to_the_rules() -> None:
    ops = CORE.with_predicate("aten.linear.default", lambda x, *_: x.dim() == 2)
    flat, deep, weight = leaves((3, 4), (2, 3, 4), (5, 4))
    with on(ops) as (_, seen):
        got = step(F.linear, [flat, weight]), step(F.linear, [deep, weight])
    assert seen.ops[aten.linear.default] == 1
    assert_same(got, (step(F.linear, fresh([flat, weight])), step(F.linear, fresh([deep, weight]))))


def test_composites_of_composites_are_kept_inside_them() -> None:
    layer = torch.nn.LSTM(3, 4, proj_size=2)
    x = torch.randn(5, 2, 3)
    want = layer(x)[0]
    with on(CORE | ["aten.linear"]) as (_, seen):
        got = layer(x)[0]
        got.sum().backward()
    assert_same(got, want, strides=False)
    assert seen.ops[aten.linear.default] > 0


def test_a_device_of_ones_own_decides_where_ops_are_kept() -> None:
    x, weight = leaves((3, 4), (5, 4))
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.Backend("other", CORE, device_type="cuda"), keep=[aten.linear]):
        F.linear(x, weight)
    assert seen.ops[aten.linear.default] == 0
    with (
        pytest.raises(ed.OpSetError, match="knows no device type 'nowhere'"),
        ed.EagerDecompMode(ed.Backend("other", CORE, device_type="nowhere"), keep=[aten.linear]),
    ):
        pass


# -- what the program does with its tensors ------------------------------------------------------------------------------------


def test_what_eager_lets_a_program_write_before_backward_it_may_write() -> None:
    def run() -> Any:
        x, weight, bias = leaves((3, 4), (5, 4), (5,))
        frozen = weight.detach()
        y = x * 1
        out = F.linear(y, frozen, bias)
        with torch.no_grad():
            bias.add_(1)
            y.data.add_(0)
        y.detach().add_(1)  # the gradient of a frozen layer's input reads no input
        return torch.autograd.grad(out.sum(), [x, bias])

    assert_same(kept(run, aten.linear), run())


def test_what_eager_refuses_to_have_been_written_is_refused() -> None:
    x, weight = leaves((3, 4), (5, 4))

    def run() -> None:
        out = F.linear(x, weight)
        with torch.no_grad():
            weight.add_(1)
        out.sum().backward()

    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        kept(run, aten.linear)


def test_running_statistics_are_written_once() -> None:
    for training in (True, False):
        plain = torch.nn.BatchNorm2d(4).train(training)
        ours = copy.deepcopy(plain)
        x = torch.randn(IMAGE)
        plain(x).square().sum().backward()
        kept(lambda: ours(x).square().sum().backward(), aten.batch_norm)  # noqa: B023 - called at once
        assert_same(list(ours.buffers()), list(plain.buffers()))
        assert_same([p.grad for p in ours.parameters()], [p.grad for p in plain.parameters()])


def test_an_in_place_op_writes_its_tensor_counts_the_write_and_refuses_a_leaf() -> None:
    def run() -> Any:
        x = torch.ones(40, requires_grad=True)
        y = x * 2
        before = y._version
        torch.manual_seed(0)
        answer = torch.dropout_(y, 0.5, True)
        assert answer is y
        return y, y._version > before, torch.autograd.grad(y.sum(), x)

    assert_same(kept(run, aten.dropout_), run())
    leaf = torch.ones(40, requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        kept(lambda: torch.dropout_(leaf, 0.5, True), aten.dropout_)
    assert_same(leaf, torch.ones(40, requires_grad=True))
    with torch.no_grad():
        plain = torch.ones(40)
        kept(lambda: torch.dropout_(plain, 0.5, True), aten.dropout_)
        assert plain._version > 0


def test_an_in_place_op_on_a_view_reaches_its_base() -> None:
    def run() -> Any:
        x = torch.linspace(-2, 2, 6).requires_grad_()
        y = x * 2
        aten.multiply_.Scalar(y.view(2, 3)[0], 3)
        return y, torch.autograd.grad(y.square().sum(), x)

    assert_same(kept(run, aten.multiply_.Scalar, times=0), run())


def test_an_in_place_op_on_what_it_reads_is_refused_in_backward_as_in_eager() -> None:
    def run() -> Any:
        x = torch.linspace(-2, 2, 6).requires_grad_()
        y = x * 2
        aten.multiply_.Tensor(y, y)
        return torch.autograd.grad(y.sum(), x)

    for one in (run, lambda: kept(run, aten.multiply_.Tensor, times=0)):
        with pytest.raises(RuntimeError, match="modified by an inplace operation"):
            one()


def test_an_answer_that_is_the_argument_is_that_in_autograd_too() -> None:
    x = torch.ones(4, requires_grad=True)
    y = x * 2
    out = kept(lambda: F.dropout(y, 0.5, training=False), aten.dropout)
    assert out is y
    z = kept(lambda: torch.einsum("ij->ji", y.view(2, 2)), aten.einsum)
    z.mul_(3)  # a view: writes to y, and y's gradient knows
    assert_same(torch.autograd.grad(y.sum(), x), (torch.full((4,), 6.0),))


def test_out_is_written_and_refused_as_in_eager() -> None:
    a, b = torch.randn(3, 4), torch.randn(4, 5)
    out = torch.empty(3, 5)
    assert kept(lambda: torch.matmul(a, b, out=out), aten.matmul.out) is out
    assert_same(out, a @ b)
    with pytest.raises(RuntimeError, match="don't support automatic differentiation"):
        kept(lambda: torch.matmul(a.requires_grad_(), b, out=out), aten.matmul.out, times=None)


def test_no_gradient_comes_of_none_and_of_integers() -> None:
    x, y = leaves((3, 4), (3, 4))

    def run() -> Any:
        deviation, mean = torch.std_mean(x, 1)
        return torch.autograd.grad(mean.sum(), x), mean.requires_grad, deviation.requires_grad

    assert_same(kept(run, aten.std_mean.dim), run())
    assert not kept(lambda: torch.argwhere(x > 0), aten.argwhere).requires_grad
    equal = kept(lambda: torch.isclose(x, y), aten.isclose)
    assert not equal.requires_grad
    assert_same(equal, torch.isclose(x, y))


def test_hooks_retained_graphs_and_accumulation_work() -> None:
    def run() -> Any:
        x, weight = leaves((3, 4), (5, 4))
        heard: list[torch.Tensor] = []
        weight.register_hook(lambda g: heard.append(g) or g * 2)
        out = F.layer_norm(F.linear(x, weight), [5])
        out.retain_grad()
        loss = out.square().sum()
        loss.backward(retain_graph=True)
        loss.backward()
        return x.grad, weight.grad, out.grad, heard

    assert_same(kept(run, aten.linear, aten.layer_norm), run())
    loss = kept(lambda: F.rms_norm(leaves((3, 4))[0], [4]).sum(), aten.rms_norm)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()


def test_backward_may_run_after_the_mode_is_left() -> None:
    tensors = leaves((3, 4), (5, 4))
    out = kept(lambda: F.layer_norm(F.linear(*tensors), [5]).square().sum(), aten.linear, aten.layer_norm)
    plain = fresh(tensors)
    want = torch.autograd.grad(F.layer_norm(F.linear(*plain), [5]).square().sum(), plain)
    assert_same(torch.autograd.grad(out, tensors), want)


def test_nothing_keeps_a_graph_alive() -> None:
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
        x, weight = leaves((8, 4), (5, 4))
        torch.manual_seed(0)

        def block(y: torch.Tensor) -> torch.Tensor:
            return F.dropout(F.layer_norm(F.linear(y, weight), [5]), 0.5)

        out = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=reentrant)
        out.square().sum().backward()
        return out, x.grad, weight.grad

    assert_same(kept(run, aten.linear, aten.layer_norm, aten.dropout, times=2), run())


# -- random numbers ------------------------------------------------------------------------------------------------------------


def test_a_mask_is_drawn_again_and_other_draws_go_on_undisturbed() -> None:
    def run() -> Any:
        x = torch.ones(1000, requires_grad=True)
        torch.manual_seed(0)
        first, second = F.dropout(x, 0.5), F.dropout(x, 0.3)
        between = torch.rand(3)
        grads = torch.autograd.grad(first.sum(), x)[0], torch.autograd.grad(second.sum(), x)[0]
        assert torch.equal(grads[0], first.detach())
        assert torch.equal(grads[1], second.detach())
        return grads, between, torch.rand(3)

    assert_same(kept(run, aten.dropout, times=2), run())


def test_a_kernel_that_draws_other_numbers_than_the_composition_is_found_out_in_backward() -> None:
    def mine(x: torch.Tensor, p: float, train: bool) -> torch.Tensor:
        return torch.where(torch.rand(x.shape).flip(0) < p, 0, x / (1 - p))

    x = torch.ones(100, requires_grad=True)
    with ed.EagerDecompMode(CORE, keep=[aten.dropout], kernels={"aten.dropout": mine}):
        out = F.dropout(x, 0.5)
        with pytest.raises(ed.OpSetError, match="draws other random numbers"):
            out.sum().backward()


def test_a_random_op_that_needs_a_gradient_is_in_parts_while_it_is_traced() -> None:
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
    assert targets(ed.trace(lambda x: F.dropout(x, 0.5), CORE, keep=[aten.dropout])(x.detach())) == ["aten.dropout.default"]


# -- ambient state -------------------------------------------------------------------------------------------------------------


def test_forward_mode_differentiation_is_eagers() -> None:
    x, tangent, weight = leaves((3, 4), (3, 4), (5, 4))
    x, tangent = x.detach(), tangent.detach()

    def run(w: torch.Tensor) -> Any:
        with torch.autograd.forward_ad.dual_level():
            dual = torch.autograd.forward_ad.make_dual(x, tangent)
            out = torch.autograd.forward_ad.unpack_dual(F.layer_norm(F.linear(dual, w), [5]))
            return out.primal, out.tangent

    for one in (weight, weight.detach()):
        want = run(one)
        assert want[1] is not None
        assert_same(kept(lambda: run(one), aten.linear, aten.layer_norm, times=0), want)  # noqa: B023 - called at once


TRANSFORMS: dict[str, Callable[[Callable[..., Any], torch.Tensor], Any]] = {
    "grad": lambda f, x: torch.func.grad(lambda y: f(y).sum())(x),
    "vmap": lambda f, x: torch.vmap(f)(x),
    "vmap of grad": lambda f, x: torch.vmap(torch.func.grad(lambda y: f(y).sum()))(x),
    "jvp": lambda f, x: torch.func.jvp(f, (x,), (torch.ones_like(x),)),
    "vjp": lambda f, x: torch.func.vjp(f, x)[1](torch.ones_like(f(x))),
    "hessian": lambda f, x: torch.func.hessian(lambda y: f(y).square().sum())(x[0]),
    "jacrev": lambda f, x: torch.func.jacrev(f)(x),
}


@pytest.mark.parametrize("name", TRANSFORMS)
def test_transforms_of_functions_are_eagers(name: str) -> None:
    weight = torch.randn(5, 4, requires_grad=True)

    def f(x: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.linear(x, weight), [5])

    x = torch.randn(3, 4)
    want = TRANSFORMS[name](f, x)
    assert_same(kept(lambda: TRANSFORMS[name](f, x), aten.linear, aten.layer_norm, times=None), want)


def test_a_gradient_of_eager_over_transforms_and_back() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    x = torch.randn(3, 4)

    def run() -> Any:
        out = torch.vmap(lambda row: F.linear(row, weight))(x) + F.linear(x, weight)
        return torch.autograd.grad(out.square().sum(), weight)

    assert_same(kept(run, aten.linear, times=None), run())


@pytest.mark.parametrize("name", ["linear", "layer_norm", "rms_norm", "einsum", "group_norm", "conv2d"])
def test_under_autocast_types_and_values_are_eagers(name: str) -> None:
    op, fn, shapes = CASES[name]
    tensors = leaves(*shapes)

    def run(tensors: Tensors) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return step(fn, tensors)

    plain = fresh(tensors)
    assert_same(kept(lambda: run(tensors), op, times=None), run(plain))
    whole = int(has_kernel(op.default if not isinstance(op, torch._ops.OpOverload) else op, "AutocastCPU"))
    kept(lambda: run(tensors), op, times=whole)


def test_attention_under_autocast_has_eagers_types() -> None:
    tensors = leaves(*(HEADS,) * 3)

    def run() -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            return step(F.scaled_dot_product_attention, tensors)

    got, want = kept(run, aten.scaled_dot_product_attention), run()
    assert_same(got[0], want[0])
    torch.testing.assert_close(got[1], want[1], rtol=0.2, atol=0.05)  # bfloat16 within


def test_inference_tensors_among_those_with_gradients_fail_as_in_eager() -> None:
    with torch.inference_mode():
        x = torch.randn(3, 4)
    weight = torch.randn(5, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        kept(lambda: F.linear(x, weight), aten.linear, times=None)


def test_subclasses_sparse_and_conjugate_tensors_are_eagers() -> None:
    weight = torch.randn(5, 4, requires_grad=True)
    x = torch.randn(3, 4)
    pair = TwoTensor(x, x + 1)
    got = kept(lambda: F.linear(pair, weight), aten.linear, times=0)
    assert_same([got.a, got.b], [F.linear(x, weight), F.linear(x + 1, weight)])
    sparse = torch.eye(4).to_sparse()
    assert_same(
        kept(lambda: F.linear(sparse, weight), aten.linear, times=None, on_unsupported="fallback"), F.linear(sparse, weight)
    )
    z = torch.randn(3, 4, dtype=torch.complex64)
    w = torch.randn(5, 4, dtype=torch.complex64, requires_grad=True)
    run = lambda: step(lambda w: F.linear(z.conj(), w), [w])  # noqa: E731
    assert_same(kept(run, aten.linear), run())


# -- tracing -------------------------------------------------------------------------------------------------------------------


def targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function" and "aten" in str(node.target)]


@pytest.mark.parametrize("tracing", ["real", "fake", "symbolic"])
@pytest.mark.parametrize("inside", [True, False])
def test_make_fx_keeps_them_as_single_nodes(tracing: str, inside: bool) -> None:
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

    x, w = leaves((2, 3, 4), (4, 4))
    graph = traced(forward, x.detach(), w.detach())
    kernels = [name for name in targets(graph) if "sym_" not in name]
    assert kernels == ["aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"]
    assert_same(graph(x.detach(), w.detach()), forward(x.detach(), w.detach()))
    graph = traced(backward, x, w)
    assert targets(graph).count("aten.linear.default") == 1
    assert "aten.layer_norm.default" in targets(graph)
    assert_same(tuple(graph(x, w)), backward(*fresh([x, w])))
    left = make_fx(forward)(x.detach(), w.detach())
    assert "aten.linear.default" not in targets(left)


def test_trace_holds_kept_ops_as_single_nodes() -> None:
    def fn(x: torch.Tensor, w: torch.Tensor) -> Any:
        y = F.gelu(F.linear(x, w))
        return y, torch.autograd.grad(y.sum(), [x, w])

    x, w = leaves((3, 4), (5, 4))
    graph = ed.trace(fn, CORE - ["aten.gelu"], keep=["aten.linear"])(x, w)
    assert targets(graph)[0] == "aten.linear.default"
    assert targets(graph).count("aten.linear.default") == 1
    assert "aten.gelu.default" not in targets(graph)
    assert "aten.linear.default" not in targets(ed.trace(fn, CORE)(x, w))
    assert_same(graph(x, w), fn(*fresh([x, w])))
    symbolic = ed.trace(lambda x, w: F.linear(x, w), CORE, keep=["aten.linear"], symbolic={"x": 0})(x.detach(), w.detach())
    assert targets(symbolic) == ["aten.linear.default"]
    assert_same(symbolic(torch.ones(7, 4), w.detach()), F.linear(torch.ones(7, 4), w.detach()))


def test_gradients_of_a_compiled_function_are_eagers() -> None:
    torch._dynamo.reset()
    tensors = leaves((3, 4), (5, 4), (5,))

    @torch.compile(backend="aot_eager")
    def fn(x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        return F.layer_norm(F.linear(x, w, b), [5]).square()

    want = step(lambda x, w, b: F.layer_norm(F.linear(x, w, b), [5]).square(), fresh(tensors))
    try:
        for _ in range(2):
            assert_same(kept(lambda: step(fn, tensors), aten.linear, aten.layer_norm, times=None), want)
        assert_same(step(fn, tensors), want)
    finally:
        torch._dynamo.reset()


def test_gradients_are_not_lost_where_a_fall_through_with_a_body_loses_them() -> None:
    """Autograd falls through, a body at the backend's key composes: right in eager, but below a mode nothing is recorded."""
    tensors = leaves((3, 4), (5, 4))
    want = step(F.linear, fresh(tensors))

    class Plain(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    ways: dict[str, Callable[[Tensors], Any]] = {
        "eager": lambda given: step(F.linear, given),
        "mode": lambda given: under(Plain(), given),
        "compiled": lambda given: step(torch.compile(F.linear, backend="aot_eager"), given),
    }

    def under(mode: Any, given: Tensors) -> Any:
        with mode:
            return step(F.linear, given)

    with torch.library._scoped_library("aten", "IMPL") as library:
        body = lambda x, w, b=None: torch.addmm(b, x, w.t()) if b is not None else torch.mm(x, w.t())  # noqa: E731
        library.impl("linear", torch.library.fallthrough_kernel, "AutogradCPU")
        library.impl("linear", body, "CPU")
        lost = [name for name, way in ways.items() if not way(fresh(tensors))[1]]
        fallen = table()
        for way in ways.values():  # what only passes on is no one's gradient: ours takes its place for a while
            torch._dynamo.reset()
            with ed.EagerDecompMode(CORE, keep=[aten.linear]):
                assert_same(way(fresh(tensors)), want)
        assert table() == fallen
    torch._dynamo.reset()
    assert lost == ["mode", "compiled"]
    keeping = ed.EagerDecompMode(CORE, keep=[aten.linear])
    for way in ways.values():
        with keeping:
            assert_same(way(fresh(tensors)), want)
        assert_same(way(fresh(tensors)), want)
    torch._dynamo.reset()


# -- told beforehand ---------------------------------------------------------------------------------------------------------


def test_a_plan_of_a_model_counts_the_composites_that_the_mode_would_keep() -> None:
    ops = CORE | ["aten.linear"]

    def factory() -> Any:
        return torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.SiLU(), torch.nn.Linear(4, 4)), torch.randn(3, 4)

    made = ed.plan(ops, model=factory)
    assert {one.op for one in made.ops} >= {"aten.linear.default"}
    assert "aten.addmm.default" not in {one.op for one in made.ops}
    assert "aten.linear.default" not in {one.op for one in ed.plan(CORE, model=factory).ops}


def test_explain_says_of_a_composite_what_becomes_of_it() -> None:
    tensors = leaves((3, 4), (5, 4))
    assert "kept whole" in str(ed.explain("aten.linear", *tensors, supported_ops=CORE | ["aten.linear"]))
    assert "except in inference mode" in str(ed.explain("aten.linear", *tensors, supported_ops=CORE))


# -- what is registered, and its end ---------------------------------------------------------------------------------------------


def table(op: str = "aten::linear") -> str:
    return str(torch._C._dispatch_dump_table(op))


def test_leaving_the_last_mode_leaves_the_dispatcher_as_it_was() -> None:
    before = table(), table("aten::layer_norm")
    first = ed.EagerDecompMode(CORE, keep=[aten.linear])
    second = ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm])
    with first:
        inner = table()
        assert inner != before[0]
        with second, first:
            assert table("aten::layer_norm") != before[1]
        assert (table(), table("aten::layer_norm")) == (inner, before[1])
    assert (table(), table("aten::layer_norm")) == before
    with pytest.raises(ZeroDivisionError), second:
        raise ZeroDivisionError
    assert (table(), table("aten::layer_norm")) == before


def test_a_kernel_of_someone_else_is_left_alone_and_the_error_says_so() -> None:
    before = table("aten::layer_norm")
    with torch.library._scoped_library("aten", "IMPL") as library:
        library.impl("linear", lambda x, w, b=None: x, "AutogradCPU")
        theirs = table()
        with (
            pytest.raises(ed.OpSetError, match="someone else has registered"),
            ed.EagerDecompMode(CORE, keep=[aten.layer_norm, aten.linear]),
        ):
            pass
        assert (table(), table("aten::layer_norm")) == (theirs, before)
        assert len(torch.utils._python_dispatch._get_current_dispatch_mode_stack()) == 0


def test_other_threads_run_as_before_and_threads_share_by_turns() -> None:
    before = table()
    x, weight, bias = leaves((3, 4), (5, 4), (5,))
    faults: list[Any] = []

    def outside() -> None:
        with ed.BackendRecorder() as seen:
            out = F.linear(x, weight, bias)
        if type(out.grad_fn).__name__ != "AddmmBackward0" or seen.ops[aten.linear.default]:
            faults.append((out.grad_fn, seen.ops))

    with ed.EagerDecompMode(CORE, keep=[aten.linear]):
        thread = threading.Thread(target=outside)
        thread.start()
        thread.join()
    assert not faults
    want = step(F.linear, fresh([x, weight, bias]))

    def inside(number: int) -> None:
        for _ in range(20):
            tensors = fresh([x, weight, bias])
            with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, keep=[aten.linear]):
                out = F.linear(*tensors)
            if seen.ops[aten.linear.default] != 1:
                faults.append(seen.ops)
            if not torch.equal(
                torch.autograd.grad(out.sum(), tensors)[0], torch.autograd.grad(F.linear(*tensors).sum(), tensors)[0]
            ):
                faults.append(number)

    threads = [threading.Thread(target=inside, args=(number,)) for number in range(4)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    assert not faults
    assert table() == before
    assert_same(step(F.linear, fresh([x, weight, bias])), want)


def test_gradients_computed_in_autograds_threads_are_right() -> None:
    tensors = leaves((3, 4), (5, 4))
    want = step(F.linear, fresh(tensors))[1]
    got: list[Any] = []
    with ed.EagerDecompMode(CORE, keep=[aten.linear, aten.layer_norm]):
        out = F.linear(*tensors)
        weights = (torch.arange(out.numel()) % 7 - 2).float().view(out.shape)
    thread = threading.Thread(target=lambda: got.append(torch.autograd.grad(out, tensors, weights)))
    thread.start()
    thread.join()
    assert_same(got, [want])


def test_a_model_trains_as_in_eager() -> None:
    def run(context: Any) -> Any:
        torch.manual_seed(0)
        model = torch.nn.TransformerEncoderLayer(8, 2, 16, dropout=0.1, batch_first=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
        losses = []
        with context:
            for _ in range(4):
                optimizer.zero_grad()
                loss = model(torch.randn(3, 5, 8)).square().mean()
                loss.backward()
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
                optimizer.step()
                losses.append(loss.detach())
        return losses, list(model.state_dict().values())

    keep = [aten.linear, aten.layer_norm, aten.scaled_dot_product_attention, aten.dropout]
    with ed.BackendRecorder() as seen:
        got = run(ed.EagerDecompMode(CORE, keep=keep))
    assert_same(got, run(contextlib.nullcontext()), strides=False)
    for op in keep:
        assert seen.ops[op.default] >= 4, op


def test_keeping_says_nothing_on_a_fresh_interpreter() -> None:
    code = """
import torch, eagerdecomp as ed
with ed.EagerDecompMode(ed.core_aten(), keep=[torch.ops.aten.linear, torch.ops.aten.layer_norm]):
    torch.nn.Linear(3, 3)(torch.ones(2, 3)).sum().backward()
print("torch._dynamo" in __import__("sys").modules)
"""
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True, check=False)
    assert (done.stdout.strip(), done.stderr) == ("False", "")
