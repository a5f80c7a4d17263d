"""Helpers of the tests of `keep=`: calls of composites, and runs in a mode that keeps them whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.nn.functional as F
from on_core import CORE

import eagerdecomp as ed

aten = torch.ops.aten

Tensors = list[torch.Tensor]


def run_with_kept(run: Callable[[], Any], *keep: Any, times: int | None = 1, **options: Any) -> Any:
    """Return `run()` in a mode that keeps these ops.

    Check that only they and ops of Core ATen reach the backend, and that the first one is called ``times`` times.
    """
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, keep=keep, host_random="decomposed", **options) as mode:
        result = run()
    assert not seen.outside(mode.backend.ops), seen.outside(mode.backend.ops)
    first = keep[0].default if not isinstance(keep[0], torch._ops.OpOverload) else keep[0]
    if times is not None:
        assert seen.ops[first] == times, seen.ops
    return result


def random_leaves(*shapes: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensors:
    generator = torch.Generator().manual_seed(len(shapes))
    return [torch.randn(shape, dtype=dtype, generator=generator).requires_grad_() for shape in shapes]


def detached_copies(tensors: Iterable[torch.Tensor]) -> Tensors:
    return [tensor.detach().clone().requires_grad_(tensor.requires_grad) for tensor in tensors]


def forward_and_backward(fn: Callable[..., Any], tensors: Tensors) -> tuple[Any, Any]:
    """Return results and gradients of one run with a fixed seed."""
    torch.manual_seed(3)
    result = fn(*tensors)
    results = [one for one in (result if isinstance(result, (list, tuple)) else [result]) if one.requires_grad]
    weights = [(torch.arange(one.numel()) % 7 - 2).to(one.dtype).view(one.shape) for one in results]
    wanted = [tensor for tensor in tensors if tensor.requires_grad]
    return result, torch.autograd.grad(results, wanted, weights, allow_unused=True) if results else ()


IMAGE = (2, 4, 5, 5)
HEADS = (2, 2, 6, 4)
MASK = torch.rand(6, 6, generator=torch.Generator().manual_seed(0)) > 0.3
TARGET = torch.tensor([1, 0, 2])

#: Name of a case -> the composite, a function that calls it, and the shapes of its tensors.
CASES: dict[str, tuple[Any, Callable[..., Any], tuple[tuple[int, ...], ...]]] = {
    "linear": (aten.linear, F.linear, ((3, 4), (5, 4), (5,))),
    "linear of one vector": (aten.linear, F.linear, ((4,), (5, 4), (5,))),
    "linear without bias": (aten.linear, F.linear, ((2, 3, 4), (5, 4))),
    "linear of no rows": (aten.linear, F.linear, ((0, 4), (5, 4), (5,))),
    "layer_norm": (aten.layer_norm, lambda x, w, b: F.layer_norm(x, [4], w, b), ((3, 4), (4,), (4,))),
    "rms_norm": (aten.rms_norm, lambda x, w: F.rms_norm(x, [4], w), ((3, 4), (4,))),
    "group_norm": (aten.group_norm, lambda x, w, b: F.group_norm(x, 2, w, b), (IMAGE, (4,), (4,))),
    "batch_norm": (aten.batch_norm, lambda x, w, b: F.batch_norm(x, None, None, w, b, training=True), (IMAGE, (4,), (4,))),
    "attention": (aten.scaled_dot_product_attention, F.scaled_dot_product_attention, (HEADS,) * 3),
    "masked attention": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, attn_mask=MASK),
        (HEADS,) * 3,
    ),
    "attention with dropout": (
        aten.scaled_dot_product_attention,
        lambda q, k, v: F.scaled_dot_product_attention(q, k, v, dropout_p=0.4),
        (HEADS,) * 3,
    ),
    "dropout": (aten.dropout, lambda x: F.dropout(x, 0.5), ((8, 9),)),
    "alpha dropout": (aten.alpha_dropout, lambda x: F.alpha_dropout(x, 0.5, training=True), ((8, 9),)),
    "dropout in place": (aten.dropout_, lambda x: F.dropout(x * 2, 0.5, inplace=True), ((8, 9),)),
    "matmul": (aten.matmul, torch.matmul, ((2, 3, 4), (4, 5))),
    "einsum": (aten.einsum, lambda a, b: torch.einsum("bij,jk->bik", a, b), ((2, 3, 4), (4, 5))),
    "conv2d": (aten.conv2d, lambda x, w, b: F.conv2d(x, w, b, 2, 1, groups=2), (IMAGE, (6, 2, 3, 3), (6,))),
    "conv_transpose2d": (aten.conv_transpose2d.input, F.conv_transpose2d, (IMAGE, (4, 3, 3, 3), (3,))),
    "max_pool2d": (aten.max_pool2d, lambda x: F.max_pool2d(x, 2), (IMAGE,)),
    "cross_entropy": (aten.cross_entropy_loss, lambda x: F.cross_entropy(x, TARGET, label_smoothing=0.1), ((3, 4),)),
    "pad": (aten.pad, lambda x: F.pad(x, (1, 2, 1, 1), mode="reflect"), (IMAGE,)),
    "selu in place": (aten.selu_, lambda x: F.selu(x * 2, inplace=True), ((3, 4),)),
    "two results": (aten.std_mean.dim, lambda x: torch.std_mean(x, 1), ((3, 4),)),
    "a list of results": (aten.gradient.scalararray, lambda x: torch.gradient(x, spacing=2.0, dim=[2, 3]), (IMAGE,)),
    "a list of tensors": (aten.hstack, lambda a, b: torch.hstack([a, b]), ((3, 4), (3, 2))),
    "by a number": (aten.multiply.Scalar, lambda x: aten.multiply.Scalar(x, 3), ((3, 4),)),
    "with conjugates inside": (aten.fft_hfftn, lambda x: torch.fft.hfftn(x), ((3, 4, 5),)),
    "recurrent": (aten.gru_cell, torch.gru_cell, ((3, 4), (3, 5), (15, 4), (15, 5), (15,), (15,))),
}


def aten_targets(graph: torch.fx.GraphModule) -> list[str]:
    return [str(node.target) for node in graph.graph.nodes if node.op == "call_function" and "aten" in str(node.target)]


def dispatch_table(op: str = "aten::linear") -> str:
    return str(torch._C._dispatch_dump_table(op))
