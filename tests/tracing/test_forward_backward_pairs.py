"""Forward and backward ops match: forward saves what backward expects, also if the set contains only one of the two.

For each function below, each op that eager dispatches and that is not in Core ATen is added to Core ATen on its own. So its kernel
runs together with the decompositions of all others. Core ops that save something for their backward, or use it, are also removed
in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check
from torch import Tensor, nn

import eagerdecomp as ed

aten = torch.ops.aten

#: Core ops with a partner: one saves what the other reads.
PARTNERS = frozenset(
    {
        aten.native_group_norm.default,
        aten.native_group_norm_backward.default,
        aten.native_layer_norm.default,
        aten.native_layer_norm_backward.default,
        aten.max_pool2d_with_indices.default,
        aten.max_pool2d_with_indices_backward.default,
        aten.max_pool3d_with_indices.default,
        aten._embedding_bag.default,
        aten.embedding_dense_backward.default,
        aten.convolution_backward.default,
        aten._softmax.default,
        aten._log_softmax.default,
    }
)

#: What batch norm decomposes to on Core ATen.
BATCH_NORMS = ["aten._native_batch_norm_legit", "aten._native_batch_norm_legit_no_training"]

_INDICES, _OFFSETS = torch.tensor([0, 2, 1, 2, 4, 2]), torch.tensor([0, 2, 2])
_MASK = torch.ones(4, 4, dtype=torch.bool).tril()
_CLASSES, _WEIGHTS = torch.tensor([1, 2, 0]), torch.tensor([1.0, 2, 3, 4])
#: Few distinct values, so that windows tie.
_VOLUMES = (torch.randn(2, 3, 3, 5, 4, generator=torch.Generator().manual_seed(0)) * 4).round()
_SPECIAL = torch.tensor([0.0, -0.0, 0.3, -0.3, 1.0, -1.0, 2.5, -6.5, 21.0, -40.0, 40.0, 1e-5])
_SEGMENTS = torch.tensor([1.0, 5, 5, torch.nan, 2, 0, 3, 0, 0, -2, 4, torch.nan, 0, torch.inf, torch.nan, torch.nan, 3, 2, 0, 4])
_SEGMENT_LENGTHS = torch.tensor([3, 0, 2, 2, 2, 1, 2, 2, 3, 3])


def _ctc(lengths: Any, target_lengths: Any, **options: Any) -> Callable[[Tensor], Tensor]:
    targets = torch.tensor([[1, 1, 3], [2, 2, 2], [3, 1, 1]])
    return lambda x: F.ctc_loss(x.log_softmax(2), targets, lengths, target_lengths, **options)


def _bag(mode: str) -> Callable[[Tensor], Tensor]:
    return lambda w: F.embedding_bag(_INDICES, w, _OFFSETS, mode=mode, padding_idx=2)


def _recurrent(kind: str) -> Callable[..., Tensor]:
    def run(x: Tensor, *weights: Tensor) -> Tensor:
        state: Any = torch.zeros(1, 2, 4)
        state = (state, state) if kind == "lstm" else state
        result: Tensor = getattr(torch, kind)(x, state, list(weights), True, 1, 0.0, True, False, False)[0]
        return result

    return run


#: Name -> the function, and its inputs, or their shapes. They require gradients.
CASES: dict[str, tuple[Callable[..., Tensor], tuple[Any, ...]]] = {
    "batch norm": (lambda x, w, b: F.batch_norm(x, None, None, w, b, True), ((4, 3, 5), (3,), (3,))),
    "batch norm, running": (
        lambda x, w, b: F.batch_norm(x, torch.zeros(3), torch.ones(3), w, b, True),
        ((4, 3, 5), (3,), (3,)),
    ),
    "batch norm, evaluated": (
        lambda x, w, b: F.batch_norm(x, torch.full((3,), 0.5), torch.full((3,), 2.0), w, b),
        ((4, 3, 5), (3,), (3,)),
    ),
    "instance norm": (lambda x, w, b: F.instance_norm(x, None, None, w, b), ((4, 3, 5), (3,), (3,))),
    "layer norm": (lambda x, w, b: F.layer_norm(x, (5,), w, b), ((4, 3, 5), (5,), (5,))),
    "group norm": (lambda x, w, b: F.group_norm(x, 2, w, b), ((4, 6, 5), (6,), (6,))),
    "weight norm": (lambda v, g: torch._weight_norm(v, g, 0), ((4, 3), (4, 1))),
    "attention": (F.scaled_dot_product_attention, ((2, 2, 4, 8),) * 3),
    "attention, masked": (lambda q, k, v: F.scaled_dot_product_attention(q, k, v, _MASK), ((2, 2, 4, 8),) * 3),
    "max pool 2d": (lambda x: F.max_pool2d(x, 3, 2, 1), (_VOLUMES[:, 0],)),
    "max pool 3d": (lambda x: F.max_pool3d(x, 3, 1, 1), (_VOLUMES,)),
    "adaptive max pool 2d": (lambda x: F.adaptive_max_pool2d(x, (2, 3)), (_VOLUMES[:, 0],)),
    "adaptive max pool 3d": (lambda x: F.adaptive_max_pool3d(x, (2, 3, 3)), (_VOLUMES,)),
    "fractional max pool 2d": (
        lambda x: F.fractional_max_pool2d(x, 2, output_size=3, _random_samples=torch.full((2, 3, 2), 0.3)),
        ((2, 3, 7, 7),),
    ),
    **{f"embedding bag, {mode}": (_bag(mode), ((5, 3),)) for mode in ("sum", "mean", "max")},
    "embedding bag, weighted": (
        lambda w, p: F.embedding_bag(_INDICES, w, _OFFSETS, mode="sum", per_sample_weights=p),
        ((5, 3), (6,)),
    ),
    "ctc": (_ctc(torch.tensor([7, 5, 6]), torch.tensor([3, 0, 2])), ((7, 3, 4),)),
    "ctc, lists": (_ctc([7, 5, 6], [3, 0, 2], zero_infinity=True), ((7, 3, 4),)),
    "cross entropy": (lambda x: F.cross_entropy(x, _CLASSES, label_smoothing=0.1), ((3, 4),)),
    **{
        f"nll, {how}": (lambda x, how=how: F.nll_loss(x, _CLASSES, _WEIGHTS, ignore_index=2, reduction=how), ((3, 4),))
        for how in ("none", "mean", "sum")
    },
    "multilabel margin": (lambda x: F.multilabel_margin_loss(x, torch.tensor([[1, 2, -1, 0]] * 3)), ((3, 4),)),
    "multi margin": (lambda x: F.multi_margin_loss(x, _CLASSES), ((3, 4),)),
    **{
        f"log sigmoid, {dtype}": (F.logsigmoid, (_SPECIAL.to(dtype),))
        for dtype in (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    },
    "softmax": (lambda x: x.softmax(-1), ((3, 4),)),
    "lstm": (_recurrent("lstm"), ((5, 2, 3), (16, 3), (16, 4), (16,), (16,))),
    "gru": (_recurrent("gru"), ((5, 2, 3), (12, 3), (12, 4), (12,), (12,))),
    "cdist": (lambda a, b: torch.cdist(a, b, p=1.5), ((3, 4), (5, 4))),
    "pdist": (F.pdist, ((5, 4),)),
    "convolution": (lambda x, w, b: F.conv2d(x, w, b, 2, 1, 1, 2), ((2, 4, 7, 7), (6, 2, 3, 3), (6,))),
    "learned quantization": (
        lambda *given: torch._fake_quantize_learnable_per_tensor_affine(*given, -8, 7, 0.5),
        ((4, 3), torch.tensor([0.3]), torch.tensor([2.0])),
    ),
    **{
        f"segments, {how}": (lambda x, how=how: torch.segment_reduce(x, how, lengths=_SEGMENT_LENGTHS), (_SEGMENTS,))
        for how in ("sum", "mean", "max", "min", "prod")
    },
    "upsample": (lambda x: F.interpolate(x, size=(7, 5), mode="bicubic"), ((2, 3, 4, 5),)),
}


def gradients(function: Callable[..., Tensor], *inputs: Tensor) -> list[Tensor]:
    """Return the result, and the gradients of all inputs for a non-constant cotangent."""
    leaves = [x.detach().requires_grad_() for x in inputs]
    result = function(*leaves)
    cotangent = torch.linspace(0.5, 1.5, result.numel()).view(result.shape) if result.dim() else torch.tensor(0.5)
    return [result.detach(), *torch.autograd.grad(result, leaves, cotangent.to(result.dtype))]


def inputs_of(name: str) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [one if isinstance(one, Tensor) else torch.randn(one, generator=generator) for one in CASES[name][1]]


def sets() -> Iterator[Any]:
    """Yield each case with sets in which one op is native and its partners are decomposed, or the other way round."""
    for name, (function, _) in CASES.items():
        inputs = inputs_of(name)
        with ed.BackendRecorder() as seen:
            gradients(function, *inputs)
        outside = {op for op in seen.ops if op not in CORE and op._schema.name != "aten::linspace"}
        for op in sorted(outside, key=str):
            yield pytest.param(name, CORE | {op}, id=f"{name} with {op}")
        for op in sorted(PARTNERS & seen.ops.keys(), key=str):
            yield pytest.param(name, CORE - {op}, id=f"{name} without {op}")
            if outside:
                yield pytest.param(name, CORE - {op} | outside, id=f"{name} with all others than {op}")
        if aten.native_batch_norm_backward.default in outside:
            yield pytest.param(
                name, CORE - BATCH_NORMS | {aten.native_batch_norm_backward.default}, id=f"{name} without its forward"
            )
        yield pytest.param(name, CORE, id=name)


@pytest.mark.full
@pytest.mark.parametrize(("name", "op_set"), [*sets()])
def test_gradients_do_not_depend_on_which_half_is_native(name: str, op_set: ed.OpSet) -> None:
    function, _ = CASES[name]
    check(gradients, function, *inputs_of(name), ops=op_set)


def test_a_native_backward_kernel_gets_no_workspace_of_a_decomposed_forward() -> None:
    """oneDNN's LSTM: the backward kernel crashes on a workspace that its own forward kernel did not write."""
    layer = nn.LSTM(3, 4)
    x = torch.randn(5, 2, 3)
    backward = aten.mkldnn_rnn_layer_backward.default
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE | {backward}):
        layer(x)[0].sum().backward()
    assert backward not in seen.ops
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE | {backward, aten.mkldnn_rnn_layer.default}):
        layer(x)[0].sum().backward()
    assert backward in seen.ops
