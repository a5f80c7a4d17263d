"""Normalisation: batch norm by Core ATen's own kernels, its gradient, weight norm and root-mean-square norm.

Batch norm returns the mean and the inverse deviation for its backward pass, with eager's values and dtypes. So a set may contain
the forward op, the backward op, both or neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import HALF, in_type, widened
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.writeback import write_out

aten = torch.ops.aten
# -- batch norm, forward ----------------------------------------------------------------------------------------------------


def _batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Call Core ATen's kernel for batch norm, or return NotImplemented if none supports the call."""
    if running_mean is not None and running_var is not None:
        if training:
            return aten._native_batch_norm_legit.default(input, weight, bias, running_mean, running_var, True, momentum, eps)
        return aten._native_batch_norm_legit_no_training.default(input, weight, bias, running_mean, running_var, momentum, eps)
    if running_mean is not running_var or not training:
        return NotImplemented
    return aten._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)


rule("aten.native_batch_norm.default")(_batch_norm)


def _of_two_types(op: OpOverload) -> Callable[..., Any]:
    """Support float16 and bfloat16 inputs with wider parameters and statistics.

    Eager computes mean and deviation in the wider dtype; torch's table entry rounds them to the input's dtype.
    """

    def run(input: Tensor, *rest: Any) -> Any:
        wider = any(isinstance(one, Tensor) and one.dtype is torch.float32 for one in rest[:4])
        if input.dtype not in HALF or not wider:
            return NotImplemented
        result, *kept = op(widened(input), *rest)
        return (in_type(result, input.dtype), *kept)

    return run


@rule("aten._native_batch_norm_legit.default", recorded=True)
def _legit(input: Tensor, *rest: Any) -> Any:
    """Handle one value per channel, which has no variance. torch's table entry divides by a Python zero; eager's result is NaN."""
    result, (weight, bias, running_mean, running_var, training, momentum, eps) = _legit_of_two_types(input, *rest), rest
    if result is not NotImplemented or not training or input.dim() < 2 or not input.numel() or input.numel() != input.size(1):
        return result
    results = aten._native_batch_norm_legit.no_stats(input, weight, bias, True, momentum, eps)
    mean, kept = widened(aten.reshape.default(input, [-1])), aten.mul.Scalar(widened(running_mean), 1 - momentum)
    aten.copy_.default(running_mean, aten.add.Tensor(kept, aten.mul.Scalar(mean, momentum)))
    aten.copy_.default(running_var, aten.full.default([], math.nan, dtype=running_var.dtype, device=running_var.device))
    return results


_legit_of_two_types = _of_two_types(op_called("aten._native_batch_norm_legit.default"))


@rule("aten._native_batch_norm_legit_functional.default")
def _legit_functional(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor, running_var: Tensor, *options: Any
) -> Any:
    mean, var = aten.clone.default(running_mean), aten.clone.default(running_var)
    return (*_batch_norm(input, weight, bias, mean, var, *options), mean, var)


@rule("aten._native_batch_norm_legit_functional.default", recorded=True)
def _legit_functional_without_writes(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    """Train without writes, for graphs that contain none: those of `torch.export` and AOTAutograd.

    The result is given its memory format again, because torch's meta kernel returns the input's strides and the kernel does not.
    """
    if not training:
        return NotImplemented
    wide = widened(input)
    wider = any(one is not None and one.dtype is not input.dtype for one in (weight, bias, running_mean, running_var))
    given = wide if wider else input
    result, save_mean, save_rstd = aten._native_batch_norm_legit.no_stats(given, weight, bias, True, momentum, eps)
    dims = all_but_channels(input)
    mean = _moved(running_mean, aten.mean.dim(wide, dims), momentum)
    var = _moved(running_var, aten.var.correction(wide, dims, correction=1), momentum)
    return in_type(in_format_of(result, input), input.dtype), save_mean, save_rstd, mean, var


def _moved(running: Tensor, value: Tensor, momentum: float) -> Tensor:
    """Return running statistics moved towards those of a batch."""
    moved = aten.add.Tensor(aten.mul.Scalar(widened(running), 1 - momentum), value, alpha=momentum)
    return in_type(moved, running.dtype)


def _reserve(like: Tensor) -> Any:
    """Return the memory that cuDNN's kernels reserve for the backward pass: an empty tensor."""
    return aten.full.default([0], 0, dtype=torch.uint8, device=like.device)


@rule("aten._batch_norm_with_update.default")
def _with_update(input: Tensor, *rest: Any) -> Any:
    return (*_batch_norm(input, *rest[:4], *(True, *rest[4:])), _reserve(input))


@rule("aten._batch_norm_with_update_functional.default")
def _with_update_functional(input: Tensor, *rest: Any) -> Any:
    *result, mean, var = aten._native_batch_norm_legit_functional.default(input, *rest[:4], True, *rest[4:])
    return (*result, _reserve(input), mean, var)


@rule("aten._batch_norm_no_update.default")
def _no_update(input: Tensor, *rest: Any) -> Any:
    result = _batch_norm(input, *rest[:4], *(False, *rest[4:]))
    return result if result is NotImplemented else (*result, _reserve(input))


@rule("aten.batch_norm_update_stats.default", recorded=True)
def _update_stats(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float) -> Any:
    """Return the statistics of a batch, with biased variance, and update the running statistics, with unbiased variance."""
    kind = input.dtype if running_mean is None else running_mean.dtype
    given, dims = widened(input), all_but_channels(input)
    mean = aten.mean.dim(given, dims)
    var = aten.var.correction(given, dims, correction=0)
    count = _per_channel(input)
    for running, value, share in (
        (running_mean, mean, momentum),
        (running_var, var, momentum * count / (count - 1) if count != 1 else math.inf),
    ):
        if running is not None:
            moved = aten.add.Tensor(aten.mul.Scalar(widened(running), 1 - momentum), value, alpha=share)
            aten.copy_.default(running, moved)
    return in_type(mean, kind), in_type(var, kind)


def _written_out(op: OpOverload, names: Sequence[str]) -> Callable[..., Any]:
    """Return an ``out=`` op that also updates running statistics: run its functional variant, and write each result."""

    def written(*args: Any, **targets: Any) -> Any:
        results = op(*args)
        return tuple(write_out(targets[name], result, args) for name, result in zip(names, results, strict=True))

    return written


# -- batch norm, backward ---------------------------------------------------------------------------------------------------


def all_but_channels(input: Tensor) -> list[int]:
    """Return the dimensions that batch norm reduces."""
    return [dim for dim in range(input.dim()) if dim != 1]


def _per_channel(input: Tensor) -> int:
    return input.numel() // max(input.size(1), 1)


@rule("aten.native_batch_norm_backward.default")
def _native_batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_invstd: Tensor | None,
    train: bool,
    eps: float,
    output_mask: Sequence[bool],
) -> Any:
    """Compute the gradient of batch norm, with fifteen kernels in training (views included).

    The mean is subtracted from the input before it is multiplied with the gradient, as in eager. The sums of plain products in the
    backward kernel of group norm lose their digits if the mean is large.
    """
    mean, known = (save_mean, save_invstd) if train else (running_mean, running_var)
    if mean is None or known is None or not grad_out.dtype.is_floating_point:
        return NotImplemented
    of_input, of_weight, of_bias = output_mask
    size = input.shape
    dims, shape = _LIKE_CHANNELS.get(len(size)) or _like_channels(len(size))

    def spread(channels: Any) -> Any:
        return channels if shape is None else aten.view.default(channels, shape)

    params = (mean if weight is None else weight).dtype
    grad = widened(grad_out)
    deviation = widened(known) if train else aten.rsqrt.default(aten.add.Scalar(widened(known), eps))
    grad_input: Any = None
    grad_weight: Any = None
    grad_bias: Any = None
    if of_bias or (train and of_input):
        grad_bias = aten.sum.dim_IntList(grad, dims)
    if of_weight or (train and of_input):
        centred = aten.sub.Tensor(widened(input), spread(widened(mean)))
        grad_weight = aten.mul.Tensor(aten.sum.dim_IntList(aten.mul.Tensor(grad, centred), dims), deviation)
    if of_input:
        if train:
            share = 1 / max(input.numel() // max(size[1], 1), 1)
            centred = aten.mul.Tensor(centred, spread(aten.mul.Tensor(grad_weight, deviation)))
            grad = aten.sub.Tensor(grad, centred, alpha=share)
            del centred
            grad = aten.sub.Tensor(grad, spread(grad_bias), alpha=share)
        grad_input = aten.mul.Tensor(grad, spread(deviation if weight is None else aten.mul.Tensor(deviation, widened(weight))))
        del grad
        grad_input = in_type(grad_input, input.dtype)
        if not (grad_out.is_contiguous() and input.is_contiguous()):
            form = suggested_memory_format(input)
            if not grad_input.is_contiguous(memory_format=form):
                grad_input = aten.clone.default(grad_input, memory_format=form)
    return (
        grad_input,
        in_type(grad_weight, params) if of_weight else None,
        in_type(grad_bias, params) if of_bias else None,
    )


def _like_channels(rank: int) -> tuple[list[int], list[int] | None]:
    """Return all dimensions except the channels', and the shape of one number per channel; None if no reshape is needed."""
    return [dim for dim in range(rank) if dim != 1], None if rank == 2 else [1, -1] + [1] * (rank - 2)


_LIKE_CHANNELS = {rank: _like_channels(rank) for rank in range(2, 6)}


@rule("aten.batch_norm_backward.default", recorded=True)
def _batch_norm_backward(*args: Any) -> Any:
    """Leave out cuDNN's memory. On the CPU, `save_var` contains the inverse deviation."""
    return aten.native_batch_norm_backward.default(*args[:-1])


# -- layer and group norm ---------------------------------------------------------------------------------------------------


def _standardized(rows: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Return rows minus their mean divided by their deviation, the mean, and the inverse deviation.

    The mean is subtracted before squaring, so that a row of equal numbers gives zeros.
    """
    mean = aten.mean.dim(rows, dims, True)
    centred = aten.sub.Tensor(rows, mean)
    rstd = aten.rsqrt.default(aten.add.Scalar(aten.mean.dim(aten.mul.Tensor(centred, centred), dims, True), eps))
    return aten.mul.Tensor(centred, rstd), mean, rstd


def _scaled(rows: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        rows = aten.mul.Tensor(rows, weight)
    return rows if bias is None else aten.add.Tensor(rows, bias)


def _statistics_type(input: Tensor, *params: Tensor | None) -> torch.dtype:
    """Return the dtype of the statistics: the input's, but float32 for float16 or bfloat16 inputs with float32 parameters."""
    return torch.float32 if any(x is not None and x.dtype is torch.float32 for x in params) else input.dtype


@rule("aten.native_layer_norm.default", recorded=True)
def _native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    shape = list(normalized_shape)
    if (
        not shape
        or list(input.shape[-len(shape) :]) != shape
        or any(x is not None and list(x.shape) != shape for x in (weight, bias))
    ):
        return NotImplemented  # so that its error names what does not fit
    kind = _statistics_type(input, weight, bias)
    rows, mean, rstd = _standardized(widened(in_format_of(input, None)), list(range(-len(shape), 0)), eps)
    weight, bias = (x if x is None else in_format_of(x, None) for x in (weight, bias))
    return in_type(_scaled(rows, weight, bias), input.dtype), in_type(mean, kind), in_type(rstd, kind)


@rule("aten.native_group_norm.default", recorded=True)
def _native_group_norm(
    input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float
) -> Any:
    if group < 1 or C % group or input.numel() != N * C * HxW or not input.numel():
        return NotImplemented
    kind = _statistics_type(input, weight, bias)
    rows, mean, rstd = _standardized(aten.reshape.default(widened(input), [N, group, C // group * HxW]), [-1], eps)
    spread = [1, C] + [1] * (input.dim() - 2)
    weight, bias = (x if x is None else aten.view.default(x, spread) for x in (weight, bias))
    scaled = in_type(_scaled(aten.view.default(rows, input.shape), weight, bias), input.dtype)
    mean, rstd = (in_type(aten.view.default(x, [N, group]), kind) for x in (mean, rstd))
    return in_format_of(scaled, input), mean, rstd


@rule("aten.native_group_norm_backward.default", recorded=True)
def _native_group_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    mean: Tensor,
    rstd: Tensor,
    weight: Tensor | None,
    N: int,
    C: int,
    HxW: int,
    group: int,
    output_mask: Sequence[bool],
) -> Any:
    """Handle groups without elements, for which torch's table entry divides by 0. The gradient of the weight stays NaN."""
    wants_input, *wants = output_mask
    if N * C * HxW or (weight is None and any(wants)):
        return NotImplemented
    grads: list[Tensor | None] = [aten.empty_like.default(input) if wants_input else None, None, None]
    if weight is not None and wants[0]:
        none = aten.mul.Tensor(aten.mul.Scalar(mean, 0), rstd)
        spread = aten.expand.default(aten.unsqueeze.default(none, -1), [N, group, C // group])
        grads[1] = in_type(aten.sum.dim_IntList(aten.reshape.default(spread, [N, C]), [0]), weight.dtype)
    if weight is not None and wants[1]:
        grads[2] = aten.zeros_like.default(weight)
    return tuple(grads)


# -- root mean square -------------------------------------------------------------------------------------------------------


@rule("aten._fused_rms_norm.default", recorded=True)
def _fused_rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Any:
    shape = list(normalized_shape)
    fits = len(shape) > 0 and list(input.shape[max(input.dim() - len(shape), 0) :]) == shape
    if not (fits and input.dtype.is_floating_point and (weight is None or list(weight.shape) == shape)):
        return NotImplemented
    if not input.is_contiguous():  # eager's result is contiguous whatever the input
        input = aten.clone.default(input, memory_format=torch.contiguous_format)
    wide = widened(input)
    square = aten.mean.dim(aten.mul.Tensor(wide, wide), list(range(-len(shape), 0)), True)
    rstd = aten.rsqrt.default(aten.add.Scalar(square, torch.finfo(wide.dtype).eps if eps is None else eps))
    result = aten.mul.Tensor(wide, rstd)
    if weight is not None:
        result = aten.mul.Tensor(result, weight)
    return in_type(result, input.dtype), rstd


# -- weight norm ------------------------------------------------------------------------------------------------------------


def _of_each_slice(total: Tensor, dim: int) -> Any:
    """Return the sums over all dimensions but `dim`."""
    dims = [other for other in range(total.dim()) if other != dim]
    return aten.sum.dim_IntList(total, dims, True) if dims else total  # no dimensions would mean all


@rule("aten._weight_norm_interface.default", recorded=True)
def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    wide = widened(v)
    norms = aten.sqrt.default(_of_each_slice(aten.mul.Tensor(wide, wide), dim))
    weight = aten.mul.Tensor(wide, aten.div.Tensor(aten.view.default(widened(g), norms.shape), norms))
    return in_type(weight, v.dtype), aten.view.default(norms, g.shape)


@rule("aten._weight_norm_interface_backward.default", recorded=True)
def _weight_norm_interface_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int) -> Any:
    grad, v = widened(grad_w), widened(saved_v)
    grad_g = aten.div.Tensor(_of_each_slice(aten.mul.Tensor(grad, v), dim), saved_norms)
    across = aten.sub.Tensor(grad, aten.mul.Tensor(v, aten.div.Tensor(grad_g, saved_norms)))
    grad_v = aten.mul.Tensor(across, aten.div.Tensor(widened(saved_g), saved_norms))
    return in_type(grad_v, saved_v.dtype), in_type(grad_g, saved_g.dtype)


rule("aten._native_batch_norm_legit.no_stats", recorded=True)(_of_two_types(op_called("aten._native_batch_norm_legit.no_stats")))

rule("aten._native_batch_norm_legit.out")(
    _written_out(op_called("aten._native_batch_norm_legit.default"), ("out", "save_mean", "save_invstd"))
)
rule("aten._batch_norm_with_update.out")(
    _written_out(op_called("aten._batch_norm_with_update.default"), ("out", "save_mean", "save_invstd", "reserve"))
)
