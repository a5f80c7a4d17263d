"""Specs of softmax and of norms over batches, groups and layers, with their gradients.

Inputs with a mean far from zero detect variances computed from sums of squares, which lose precision. Large and infinite scores
detect a softmax that does not subtract the maximum first.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.checks import compared
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FAITHFUL, FLOATS, HALVES, LAYOUTS, TAILS, shape, tensor
from eagerdecomp.conformance.spec import Call, Fault, Near, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.spec_arguments import OUTPUT_MASKS, dim_of, not_asked_for, wrong
from eagerdecomp.eager.observe import Caught

__all__ = ["SPECS"]

_aten = torch.ops.aten

# For float64 there is no wider dtype for the true values, so the tolerance includes eager's own rounding.
_FLOAT64 = 2e6

# -- softmax -----------------------------------------------------------------------------------------------------------------

_SCORES = ("normal", "lattice", "tens", "thousands", "infinite", "nonfinite", "special", "ones", "hundreds")


def _softmax(draw: Draw) -> Call:
    dtype = draw.pick("dtype", FLOATS)
    sizes = shape(draw)
    masked = draw.pick("masked", ("no", "some", "before", "behind"))
    if masked in ("before", "behind") and draw.flag("one row"):  # long enough for several blocks, some of them fully masked
        sizes = [draw.pick("row", (33, 1025, 257, 4099))]
    dim = dim_of(draw, "dim", len(sizes))
    layouts = LAYOUTS if masked == "no" else FAITHFUL
    scores = tensor(draw, "self", dtype, sizes, _SCORES if masked == "no" else ("normal", "tens"), layouts)
    if masked in ("before", "behind") and scores.numel() and sizes:  # as in attention: all scores before or after a position
        size = sizes[dim]
        place = draw.pick("place", (size // 2, size - 1, 1))
        scores.narrow(dim, *((0, place) if masked == "before" else (place, size - place))).fill_(-math.inf)
    elif masked == "some":  # also masks some whole rows
        draws = draw.generator()
        scores[torch.rand(sizes, generator=draws) < 0.6] = -math.inf
    return Call([scores, dim, False])


def _refused_softmax(draw: Draw) -> Call:
    rank = draw.pick("rank", (2, 1, 0, 3))
    dim = draw.pick("dim", (max(rank, 1), -max(rank, 1) - 1, 7))
    return Call([torch.ones([3] * rank), dim, False])


def _along(call: Call) -> int:
    scores, dim, _ = call.args
    return int(scores.shape[dim]) if scores.dim() else 1


def _half_to_float(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check `half_to_float=True` for float16 and bfloat16, which eager's CPU kernel rejects and other kernels may support."""
    call = spec.call(draw)
    scores, dim, _ = call.args
    if scores.dtype not in HALVES:
        raise Skip("only for float16 and bfloat16")
    asked = Call([scores, dim, True])
    with Caught() as caught:
        kernel.run(scores.to(kernel.device), dim, True)
    if caught.error is not None:
        raise Skip("refused, as on eager's CPU")

    def native(one: Tensor, at: int, wider: bool) -> Any:
        return kernel.native(one.float() if one.dtype in HALVES else one, at, False)

    return compared(replace(kernel, native=native), spec, asked)


def _near_softmax(least: float) -> Callable[[Call], Near]:
    def near(call: Call) -> Near:
        if call.args[0].dtype is torch.float64:
            return Near(_FLOAT64 / 10, zeros=False, least=least)
        # Allow the rounding error of the logarithm of the sum. That logarithm is about as large as the largest score.
        away = _largest(call.args[0][call.args[0].isfinite()])
        return Near(
            8.0 + math.sqrt(_along(call)) + (0.0 if least else 2 * away), "inputs", zeros=False, least=least * max(1.0, away)
        )

    return near


def _of_softmax(near: Callable[[Call], Near]) -> Spec:
    return Spec(
        _softmax,
        near,
        refused=_refused_softmax,
        properties=(Property("half to float", _half_to_float, 0.1),),
        varies={"half_to_float": "eager's CPU kernel rejects it; a property tests it"},
    )


# -- norms -------------------------------------------------------------------------------------------------------------------

_VALUES = ("normal", "offset", "lattice", "tens", "small", "uniform", "ones", "thousands")
_VARIED = tuple(one for one in _VALUES if one != "ones")
_EPS = (1e-5, 1e-3, 0.1, 1.0, 1e-6)
_VECTORS = ("contiguous", "guarded", "strided", "expanded")


def _types(draw: Draw) -> tuple[torch.dtype, torch.dtype]:
    """Draw the dtype of the input, and that of weights and statistics: the same, or float32."""
    dtype = draw.pick("dtype", FLOATS)
    return dtype, torch.float32 if dtype in HALVES and draw.flag("float32 weights") else dtype


def _with_nan(draw: Draw, given: Tensor) -> Tensor:
    """Sometimes set one element to NaN, which shows which means depend on it.

    Infinities are not used, because the result depends on the algorithm.
    """
    if given.numel() and draw.pick("with nan", (False, False, False, True)):
        given[tuple(draw.below(size) for size in given.shape)] = math.nan
    return given


def _weights(
    draw: Draw, dtype: torch.dtype, sizes: Sequence[int], *names: str, layouts: Sequence[str] | None = None
) -> list[Tensor | None]:
    layouts = layouts or (_VECTORS if len(sizes) == 1 else LAYOUTS)
    fills = ("normal", "positive", "lattice")
    return [tensor(draw, name, dtype, sizes, fills, layouts) if draw.flag(name) else None for name in names]


def _largest(*values: Any) -> float:
    return max((float(one.double().abs().nan_to_num(0.0).max()) for one in values if one is not None and one.numel()), default=0.0)


def _near_norm(given: Tensor, eps: float, dims: Sequence[int], weight: Tensor | None, bias: Tensor | None) -> Near:
    """Return the tolerance. It allows for the rounding of the input before the mean is subtracted."""
    wide = given.double()
    if not given.numel():
        return Near(zeros=False)
    scale = (wide.var(list(dims), correction=0, keepdim=True) + eps).rsqrt()
    least = _largest(wide * scale) * (1.0 if weight is None else _largest(weight)) + _largest(bias)
    count = math.sqrt(given.numel())
    return Near(_FLOAT64 if given.dtype is torch.float64 else 16.0 + count / 4, zeros=False, least=max(1.0, least, _largest(given)))


def _near_batch_norm(call: Call) -> Near:
    given, weight, bias = call.args[:3]
    if len(call.args) == 7 or (len(call.args) == 8 and not call.args[5]):
        mean, variance = call.args[3:5]
        least = max(1.0, _largest(given, mean)) * float((variance.double() + call.args[-1]).rsqrt().max())
        least = least * (1.0 if weight is None else max(1.0, _largest(weight))) + _largest(bias)
        return Near(_FLOAT64 if given.dtype is torch.float64 else 8.0, zeros=False, least=least)
    return _near_norm(given, call.args[-1], [0, *range(2, given.dim())], weight, bias)


def _near_group_norm(call: Call) -> Near:
    given, weight, bias, batch, _, _, group, eps = call.args
    return _near_norm(given.reshape(batch, group, -1), eps, [2], weight, bias)


def _near_layer_norm(call: Call) -> Near:
    given, sizes, weight, bias, eps = call.args
    return _near_norm(given, eps, list(range(-len(sizes), 0)), weight, bias)


def _near_gradient(call: Call) -> Near:
    grad, given, *rest = call.args
    tensors = [one for one in rest if isinstance(one, Tensor)]
    rstd = _largest(tensors[1])
    least = max(1.0, _largest(grad)) * max(1.0, rstd) * max(1.0, _largest(*tensors[2:])) * 4.0
    wide = given.dtype is torch.float64
    return Near(_FLOAT64 if wide else 16.0 + math.sqrt(given.numel()) / 4, "value" if wide else "inputs", zeros=False, least=least)


def _asked(weight: Tensor | None, bias: Tensor | None) -> list[list[bool]]:
    """Return the possible output masks. They do not request the gradient of an absent weight, for which eager raises."""
    return [mask for mask in OUTPUT_MASKS if not (mask[1] and weight is None) and not (mask[2] and bias is None)]


def _inside(draw: Draw, least: int) -> list[int]:
    """Draw the sizes after the channels."""
    options: tuple[list[int], ...] = (
        [2, 3],
        [3],
        [],
        [1],
        [1, 1],
        [5, 7],
        [2, 3, 2],
        [33, 33],
        [1031],
        [4, 4],
        [1, 1, 1],
        [65],
        [3, 129],
    )
    return draw.pick("inside", [one for one in options if math.prod(one) >= least])


def _batch_norm(draw: Draw, stats: str) -> Call:
    dtype, wide = _types(draw)
    training = draw.flag("training") if stats != "fixed" else False
    batch = draw.pick("batch", (2, 3, 5, *TAILS[:3], 1))
    channels = draw.pick("channels", (3, 1, 2, 4, 8, *TAILS))
    inside = _inside(draw, 2 if batch == 1 else 1)  # one value has no variance, and modules reject it
    if batch * channels * math.prod(inside) > 12000:
        channels, batch = min(channels, 3), min(batch, 3)
    given = _with_nan(draw, tensor(draw, "input", dtype, [batch, channels, *inside], _VALUES))
    args: list[Any] = [given, *_weights(draw, wide, [channels], "weight", "bias")]
    if stats != "none":
        args.append(tensor(draw, "running_mean", wide, [channels], ("normal", "tens", "zeros"), _VECTORS[:3]))
        args.append(tensor(draw, "running_var", wide, [channels], ("positive", "ones"), _VECTORS[:3]))
    if stats != "fixed":
        args.append(True if stats == "none" else training)
    return Call([*args, draw.pick("momentum", (0.1, 0.0, 1.0, 0.5, 0.9)), draw.pick("eps", _EPS)])


def _group_norm(draw: Draw, fills: Sequence[str] = _VALUES) -> tuple[Tensor, Tensor | None, Tensor | None, int, list[int]]:
    dtype, wide = _types(draw)
    group = draw.pick("group", (1, 2, 3, 5))
    channels = group * draw.pick("channels", (2, 1, 3, 8, *TAILS[:4]))
    batch = draw.pick("batch", (2, 1, 3))
    inside = _inside(draw, 1)
    if batch * channels * math.prod(inside) > 12000:
        channels = group
    # Eager's kernel needs contiguous or channels_last input, which modules provide.
    sizes = [batch, channels, *inside]
    layouts = ("contiguous", "channels_last", "guarded") if len(inside) in (2, 3) else ("contiguous", "guarded")
    given = tensor(draw, "input", dtype, sizes, fills, layouts)
    # Without a weight, it reads past a bias whose elements are apart.
    weight, bias = _weights(draw, wide, [channels], "weight", "bias", layouts=("contiguous", "guarded"))
    return given, weight, bias, group, [batch, channels, math.prod(inside)]


def _group_norm_forward(draw: Draw) -> Call:
    given, weight, bias, group, counts = _group_norm(draw)
    return Call([_with_nan(draw, given), weight, bias, *counts, group, draw.pick("eps", _EPS)])


def _group_norm_backward(draw: Draw) -> Call:
    given, weight, bias, group, counts = _group_norm(draw, _VARIED)
    known = next((one for one in (weight, bias) if one is not None), None)
    ones = None if known is None else torch.ones(counts[1], dtype=known.dtype)  # its dtype decides the dtype of the statistics
    _, mean, rstd = _aten.native_group_norm(given, ones, None, *counts, group, 1e-5)
    grad = torch.empty_like(given).copy_(
        tensor(draw, "grad", given.dtype, given.shape, ("normal", "lattice", "tens"), ("contiguous",))
    )
    # In channels_last eager's kernel always writes the gradient of the input, out of bounds if it is not requested.
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    last = given.dim() in formats and given.is_contiguous(memory_format=formats[given.dim()])
    masks = [mask for mask in _asked(weight, weight) if mask[0] or not last]
    return Call([grad, given, mean, rstd, weight, *counts, group, draw.pick("output_mask", masks)])


def _wrong_group_norms() -> Sequence[Sequence[Any]]:
    given, weight, bias = torch.ones(2, 4, 3), torch.ones(4), torch.ones(4)
    return (
        [given, weight, bias, 2, 4, 3, 3, 1e-5],
        [given, torch.ones(3), bias, 2, 4, 3, 2, 1e-5],
        [given, weight, torch.ones(5), 2, 4, 3, 2, 1e-5],
        [given, torch.ones(4, 1), bias, 2, 4, 3, 2, 1e-5],
        [given, torch.ones(1), bias, 2, 4, 3, 2, 1e-5],
        [given, weight, torch.ones(1), 2, 4, 3, 2, 1e-5],
        [given, weight, bias, 2, 4, 3, 0, 1e-5],
    )


def _layer_norm(draw: Draw, fills: Sequence[str] = _VALUES) -> tuple[Tensor, list[int], Tensor | None, Tensor | None]:
    dtype, wide = _types(draw)
    inner = draw.pick(
        "normalized_shape", ([4], [3, 2], [1], [17], [64], [65], [5, 1, 3], [1025], [4099], [1, 1], [8], [33, 31], [33], [129])
    )
    outer = draw.pick("outer", ([3], [2, 3], [], [1], [17], [2, 1, 2], [0], [33], [65], [3, 43], [257]))
    if math.prod(outer) * math.prod(inner) > 40_000:
        inner = inner[-1:] if inner[-1] < 150 else [129]
    # Do not expand a row: all its values would be equal, and a small eps would amplify the rounding error of the mean.
    given = tensor(draw, "input", dtype, [*outer, *inner], fills, FAITHFUL)
    if outer and outer[0] and draw.pick("rows alike", (False, False, False, True)):
        given = given[:1].expand(given.shape)
    weight, bias = _weights(draw, wide, inner, "weight", "bias")
    return given, inner, weight, bias


def _layer_norm_forward(draw: Draw) -> Call:
    given, inner, weight, bias = _layer_norm(draw)
    return Call([_with_nan(draw, given), inner, weight, bias, draw.pick("eps", _EPS)])


def _layer_norm_backward(draw: Draw) -> Call:
    given, inner, weight, bias = _layer_norm(draw, _VARIED)
    if weight is None and bias is not None:  # eager's kernel ignores the bias then, but rejects a wider dtype
        bias = bias.to(given.dtype)
    _, mean, rstd = _aten.native_layer_norm(given, inner, weight, bias, 1e-5)
    grad = tensor(draw, "grad", given.dtype, given.shape, ("normal", "lattice", "tens"))
    return Call([grad, given, inner, mean, rstd, weight, bias, draw.pick("output_mask", _asked(weight, bias))])


def _wrong_layer_norms() -> Sequence[Sequence[Any]]:
    given = torch.ones(2, 3, 4)
    return (
        [given, [3], None, None, 1e-5],
        [given, [], None, None, 1e-5],
        [given, [2, 2, 3, 4], None, None, 1e-5],
        [given, [4], torch.ones(3), None, 1e-5],
        [given, [4], None, torch.ones(3, 4), 1e-5],
        [given, [4], torch.ones(1), None, 1e-5],
        [given, [4], torch.ones(4), torch.ones(1), 1e-5],
        [given, [3, 4], torch.ones(4), None, 1e-5],
        [given, [3, 4], None, torch.ones(1, 4), 1e-5],
        [given, [4, 3], None, None, 1e-5],
    )


SPECS: dict[str, Spec] = {
    "aten._softmax.default": _of_softmax(_near_softmax(0.0)),
    "aten._log_softmax.default": _of_softmax(_near_softmax(1.0)),
    "aten._native_batch_norm_legit.default": Spec(lambda draw: _batch_norm(draw, "written"), _near_batch_norm),
    "aten._native_batch_norm_legit.no_stats": Spec(
        lambda draw: _batch_norm(draw, "none"),
        _near_batch_norm,
        varies={"training": "without it eager reads statistics that are not there, and crashes"},
    ),
    "aten._native_batch_norm_legit_no_training.default": Spec(lambda draw: _batch_norm(draw, "fixed"), _near_batch_norm),
    "aten.native_group_norm.default": Spec(_group_norm_forward, _near_group_norm, refused=wrong(_wrong_group_norms)),
    "aten.native_group_norm_backward.default": Spec(_group_norm_backward, _near_gradient, optional=not_asked_for, steady=False),
    "aten.native_layer_norm.default": Spec(_layer_norm_forward, _near_layer_norm, refused=wrong(_wrong_layer_norms)),
    "aten.native_layer_norm_backward.default": Spec(_layer_norm_backward, _near_gradient, optional=not_asked_for),
}
