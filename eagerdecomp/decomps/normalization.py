"""Normalisation: batch norm by Core ATen's own kernels, its gradient, weight norm and root-mean-square norm.

Batch norm keeps mean and inverse deviation for its backward pass. They are what eager keeps, to the type, so that a backend may
hold the forward op, the backward op, both or neither.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.layouts import LAYOUTS, in_format_of, laid_out
from eagerdecomp.precision import HALF, in_type, widened
from eagerdecomp.rules import Call, Rule, linked, own
from eagerdecomp.spelling import not_implemented, scalar_type_name
from eagerdecomp.writeback import out_writer

__all__ = ["RULES"]

aten = torch.ops.aten
# -- batch norm, forward ----------------------------------------------------------------------------------------------------


def _no_reserve(like: Tensor) -> Tensor:
    """The memory that cuDNN's kernels keep for the backward pass; there is none here."""
    return aten.full.default([0], 0, dtype=torch.uint8, device=like.device)  # type: ignore[no-any-return]


def _native_batch_norm(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    if running_mean is None or running_var is None:
        if running_mean is not running_var:
            raise ValueError("running_mean and running_var must either both be None or neither be None")
        return aten._native_batch_norm_legit.no_stats(input, weight, bias, training, momentum, eps) if training else NotImplemented
    if training:
        return aten._native_batch_norm_legit.default(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return aten._native_batch_norm_legit_no_training.default(input, weight, bias, running_mean, running_var, momentum, eps)


def _legit_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    training: bool,
    momentum: float,
    eps: float,
) -> Any:
    mean, var = aten.clone.default(running_mean), aten.clone.default(running_var)
    return (*_native_batch_norm(input, weight, bias, mean, var, training, momentum, eps), mean, var)


def _with_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    answer = _native_batch_norm(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*answer, _no_reserve(input))


def _with_update_functional(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor,
    running_var: Tensor,
    momentum: float,
    eps: float,
) -> Any:
    *answer, mean, var = _legit_functional(input, weight, bias, running_mean, running_var, True, momentum, eps)
    return (*answer, _no_reserve(input), mean, var)


def _no_update(
    input: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    momentum: float,
    eps: float,
) -> Any:
    answer = _native_batch_norm(input, weight, bias, running_mean, running_var, False, momentum, eps)
    return answer if answer is NotImplemented else (*answer, _no_reserve(input))


def _update_stats(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, momentum: float) -> Any:
    """The statistics of a batch, the variance biased; the running ones follow them, the variance unbiased."""
    kind = input.dtype if running_mean is None else running_mean.dtype
    given, dims = widened(input), _all_but_channels(input)
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


def _written_out(op: OpOverload, names: Sequence[str]) -> Callable[[Call], Callable[..., Any]]:
    """An ``out=`` op that updates running statistics besides: its functional namesake, each result then written."""

    def link(call: Call) -> Callable[..., Any]:
        compute, write = call(op), out_writer(call)

        def run(*args: Any, **targets: Any) -> Any:
            results = compute(*args)
            return tuple(write(targets[name], result, args) for name, result in zip(names, results, strict=True))

        return run

    return link


# -- batch norm, backward ---------------------------------------------------------------------------------------------------


def _all_but_channels(input: Tensor) -> list[int]:
    return [dim for dim in range(input.dim()) if dim != 1]


def _per_channel(input: Tensor) -> int:
    return input.numel() // max(input.size(1), 1)


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
    """Seventeen kernels in training, views included. The mean goes off the input before it meets the gradient, as in eager's:
    sums of plain products, those of group norm's backward kernel, lose their digits where the mean is large."""
    mean = save_mean if train else running_mean
    known = save_invstd if train else running_var
    if mean is None or known is None:
        return NotImplemented
    params = mean.dtype if weight is None else weight.dtype
    dims, shape = _all_but_channels(input), [1, -1] + [1] * (input.dim() - 2)

    def spread(channels: Tensor) -> Tensor:
        return channels if len(shape) == 2 else aten.view.default(channels, shape)

    grad, scale = widened(grad_out), None if weight is None else widened(weight)
    deviation = widened(known) if train else aten.rsqrt.default(aten.add.Scalar(widened(known), eps))
    if scale is not None:
        scale = aten.mul.Tensor(deviation, scale)
    grad_input = grad_weight = grad_bias = None
    if output_mask[2] or (train and output_mask[0]):
        grad_bias = aten.sum.dim_IntList(grad, dims)
    if output_mask[1] or (train and output_mask[0]):
        centred = aten.sub.Tensor(widened(input), spread(widened(mean)))
        grad_weight = aten.mul.Tensor(aten.sum.dim_IntList(aten.mul.Tensor(grad, centred), dims), deviation)
    if output_mask[0]:
        if train:
            share = 1 / max(_per_channel(input), 1)
            slope = aten.mul.Tensor(aten.mul.Scalar(grad_weight, share), deviation)
            grad = aten.sub.Tensor(grad, aten.mul.Tensor(centred, spread(slope)))
            grad = aten.sub.Tensor(grad, spread(aten.mul.Scalar(grad_bias, share)))
        grad_input = in_type(aten.mul.Tensor(grad, spread(deviation if scale is None else scale)), input.dtype)
    return (
        grad_input,
        in_type(grad_weight, params) if output_mask[1] and grad_weight is not None else None,
        in_type(grad_bias, params) if output_mask[2] and grad_bias is not None else None,
    )


def _batch_norm_backward(
    grad_out: Tensor,
    input: Tensor,
    weight: Tensor,
    running_mean: Tensor | None,
    running_var: Tensor | None,
    save_mean: Tensor | None,
    save_var: Tensor | None,
    update: bool,
    eps: float,
    output_mask: Sequence[bool],
    reserve: Tensor,
) -> Any:
    """On the CPU what is saved as a variance is the inverse deviation."""
    return aten.native_batch_norm_backward.default(
        grad_out, input, weight, running_mean, running_var, save_mean, save_var, update, eps, output_mask
    )


# -- layer and group norm ---------------------------------------------------------------------------------------------------


def _standardized(rows: Tensor, dims: Sequence[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    """Rows less their mean, over their deviation; the mean; the inverse deviation. The mean goes off before anything is squared: a
    row of equal numbers comes to zeros."""
    mean = aten.mean.dim(rows, dims, True)
    centred = aten.sub.Tensor(rows, mean)
    rstd = aten.rsqrt.default(aten.add.Scalar(aten.mean.dim(aten.mul.Tensor(centred, centred), dims, True), eps))
    return aten.mul.Tensor(centred, rstd), mean, rstd


def _scaled(rows: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    if weight is not None:
        rows = aten.mul.Tensor(rows, weight)
    return rows if bias is None else aten.add.Tensor(rows, bias)


def _statistics_type(input: Tensor, *params: Tensor | None) -> torch.dtype:
    """The input's own, but float32 where a half input meets parameters of float32."""
    return torch.float32 if any(x is not None and x.dtype is torch.float32 for x in params) else input.dtype


def _native_layer_norm(
    input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, bias: Tensor | None, eps: float
) -> Any:
    shape = list(normalized_shape)
    if (
        not shape
        or list(input.shape[-len(shape) :]) != shape
        or any(x is not None and list(x.shape) != shape for x in (weight, bias))
    ):
        return NotImplemented  # to be told what does not fit
    kind = _statistics_type(input, weight, bias)
    rows, mean, rstd = _standardized(widened(in_format_of(input, None)), list(range(-len(shape), 0)), eps)
    return in_type(_scaled(rows, weight, bias), input.dtype), in_type(mean, kind), in_type(rstd, kind)


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


# -- root mean square -------------------------------------------------------------------------------------------------------


def _fused_rms_norm(input: Tensor, normalized_shape: Sequence[int], weight: Tensor | None, eps: float | None) -> Any:
    shape = list(normalized_shape)
    fits = len(shape) > 0 and list(input.shape[max(input.dim() - len(shape), 0) :]) == shape
    if not (fits and input.dtype.is_floating_point and (weight is None or list(weight.shape) == shape)):
        return NotImplemented
    if not input.is_contiguous():  # eager's result is row-major whatever the input
        input = aten.clone.default(input, memory_format=torch.contiguous_format)
    wide = widened(input)
    square = aten.mean.dim(aten.mul.Tensor(wide, wide), list(range(-len(shape), 0)), True)
    rstd = aten.rsqrt.default(aten.add.Scalar(square, torch.finfo(wide.dtype).eps if eps is None else eps))
    answer = aten.mul.Tensor(wide, rstd)
    if weight is not None:
        answer = aten.mul.Tensor(answer, weight)
    return in_type(answer, input.dtype), rstd


# -- weight norm ------------------------------------------------------------------------------------------------------------


def _weight_norm_dims(v: Tensor, dim: int) -> list[int]:
    if dim not in (0, v.dim() - 1):
        raise RuntimeError("_weight_norm_interface: expected dim to be the first or the last dimension")
    if v.dtype not in (torch.float32, torch.float64, *HALF):
        raise not_implemented("weight_norm_kernel", v.dtype)
    return [other for other in range(v.dim()) if other != dim]


def _check_same_type(v: Tensor, *others: Tensor) -> None:
    for other in others:
        if other.dtype is not v.dtype:
            raise RuntimeError(f"expected scalar type {scalar_type_name(v.dtype)} but found {scalar_type_name(other.dtype)}")


def _weight_norm_interface(v: Tensor, g: Tensor, dim: int = 0) -> Any:
    dims = _weight_norm_dims(v, dim)
    _check_same_type(v, g)
    wide = widened(v)
    norms = aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(wide, wide), dims, True))
    return in_type(aten.mul.Tensor(wide, aten.div.Tensor(widened(g), norms)), v.dtype), norms


def _weight_norm_interface_backward(grad_w: Tensor, saved_v: Tensor, saved_g: Tensor, saved_norms: Tensor, dim: int) -> Any:
    dims = _weight_norm_dims(saved_v, dim)
    _check_same_type(saved_v, grad_w, saved_g)
    grad, v = widened(grad_w), widened(saved_v)
    grad_g = aten.div.Tensor(aten.sum.dim_IntList(aten.mul.Tensor(grad, v), dims, True), saved_norms)
    across = aten.sub.Tensor(grad, aten.mul.Tensor(v, aten.div.Tensor(grad_g, saved_norms)))
    grad_v = aten.mul.Tensor(across, aten.div.Tensor(widened(saved_g), saved_norms))
    return in_type(grad_v, saved_v.dtype), in_type(grad_g, saved_g.dtype)


RULES: tuple[Rule, ...] = (
    own(aten.native_batch_norm.default, _native_batch_norm),
    own(aten.native_layer_norm.default, _native_layer_norm),
    own(aten.native_group_norm.default, _native_group_norm),
    own(aten._native_batch_norm_legit_functional.default, _legit_functional),
    own(aten._batch_norm_with_update.default, _with_update),
    own(aten._batch_norm_with_update_functional.default, _with_update_functional),
    own(aten._batch_norm_no_update.default, _no_update),
    linked(
        aten._native_batch_norm_legit.out, _written_out(aten._native_batch_norm_legit.default, ("out", "save_mean", "save_invstd"))
    ),
    linked(
        aten._batch_norm_with_update.out,
        _written_out(aten._batch_norm_with_update.default, ("out", "save_mean", "save_invstd", "reserve")),
    ),
    own(aten.batch_norm_update_stats.default, _update_stats),
    own(
        aten.native_batch_norm_backward.default,
        laid_out(_native_batch_norm_backward, LAYOUTS["aten.native_batch_norm_backward.default"]),
    ),
    own(aten.batch_norm_backward.default, _batch_norm_backward),
    own(aten._fused_rms_norm.default, _fused_rms_norm),
    own(aten._weight_norm_interface.default, _weight_norm_interface),
    own(aten._weight_norm_interface_backward.default, _weight_norm_interface_backward),
)
