"""The parts of batch norm over several processes (`torch.nn.SyncBatchNorm`), which only CUDA has kernels for.

Each process computes the statistics of its own batch. They are gathered, and each process normalizes by the statistics of the
whole. Formulas: Ioffe and Szegedy 2015; statistics of parts are combined as in Chan, Golub and LeVeque 1979, equation 2.1.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.training.normalization import all_but_channels
from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _per_channel(values: Tensor, input: Tensor) -> Any:
    """View ``[C]`` so that it broadcasts over the channels of an input of any rank."""
    return aten.view.default(values, [1, -1] + [1] * (input.dim() - 2))


@rule("aten.batch_norm_stats.default", recorded=True)
def _stats(input: Tensor, eps: float) -> Any:
    """Return the mean and the inverse standard deviation of each channel, in float32 for float16 and bfloat16."""
    given, dims = widened(input), all_but_channels(input)
    var = aten.var.correction(given, dims, correction=0)
    return aten.mean.dim(given, dims), aten.rsqrt.default(aten.add.Scalar(var, eps))


@rule("aten.batch_norm_elemt.default", recorded=True)
def _elemt(input: Tensor, weight: Tensor | None, bias: Tensor | None, mean: Tensor, invstd: Tensor, eps: float) -> Any:
    """Return ``(input - mean) * invstd * weight + bias`` per channel."""
    scale = widened(invstd) if weight is None else aten.mul.Tensor(widened(invstd), widened(weight))
    centred = aten.sub.Tensor(widened(input), _per_channel(widened(mean), input))
    found = aten.mul.Tensor(centred, _per_channel(scale, input))
    if bias is not None:
        found = aten.add.Tensor(found, _per_channel(widened(bias), input))
    return in_type(found, input.dtype)


@rule("aten.batch_norm_gather_stats.default", recorded=True)
def _gather(input: Tensor, mean: Tensor, *rest: Any) -> Any:
    counts = aten.full.default([mean.size(0)], rest[-1], dtype=mean.dtype, device=mean.device)
    return aten.batch_norm_gather_stats_with_counts.default(input, mean, *rest[:-1], counts)


@rule("aten.batch_norm_gather_stats_with_counts.default", recorded=True)
def _gather_with_counts(input: Tensor, mean: Tensor, invstd: Tensor, *rest: Any) -> Any:
    """Combine statistics ``[parts, channels]`` and the count of each part to the mean and inverse deviation of the whole.

    The running statistics are updated.
    """
    running_mean, running_var, momentum, eps, counts = rest
    means, weights = widened(mean), aten.unsqueeze.default(in_type(counts, widened(mean).dtype), 1)
    variances = aten.sub.Scalar(aten.reciprocal.default(aten.pow.Tensor_Scalar(widened(invstd), 2)), eps)
    total = aten.sum.dim_IntList(weights, [0])
    whole = aten.div.Tensor(aten.sum.dim_IntList(aten.mul.Tensor(means, weights), [0]), total)
    apart = aten.pow.Tensor_Scalar(aten.sub.Tensor(means, whole), 2)
    squares = aten.sum.dim_IntList(aten.mul.Tensor(aten.add.Tensor(variances, apart), weights), [0])
    for running, value in (
        (running_mean, whole),
        (running_var, aten.div.Tensor(squares, aten.sub.Scalar(total, 1))),
    ):
        if running is not None:
            kept = aten.mul.Scalar(widened(running), 1 - momentum)
            aten.copy_.default(running, aten.add.Tensor(kept, aten.mul.Scalar(value, momentum)))
    return whole, aten.rsqrt.default(aten.add.Scalar(aten.div.Tensor(squares, total), eps))


@rule("aten.batch_norm_backward_reduce.default", recorded=True)
def _backward_reduce(grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *wanted: bool) -> Any:
    """Return the sums of ``dy`` and of ``dy * (x - mean)`` per channel, and the gradients of weight and bias.

    Results that are not requested are None.
    """
    (input_g, weight_g, bias_g), dims, grad = wanted, all_but_channels(input), widened(grad_out)
    total = aten.sum.dim_IntList(grad, dims)
    centred = aten.sub.Tensor(widened(input), _per_channel(widened(mean), input))
    with_input = aten.sum.dim_IntList(aten.mul.Tensor(grad, centred), dims)
    kind = input.dtype if weight is None else weight.dtype
    grad_weight = in_type(aten.mul.Tensor(with_input, widened(invstd)), kind) if weight_g else None
    grad_bias = in_type(aten.clone.default(total), kind) if bias_g else None
    return (total if input_g else None), (with_input if input_g else None), grad_weight, grad_bias


@rule("aten.batch_norm_backward_elemt.default", recorded=True)
def _backward_elemt(grad_out: Tensor, input: Tensor, mean: Tensor, invstd: Tensor, weight: Tensor | None, *sums: Tensor) -> Any:
    """Return ``(dy - sum_dy / n - (x - mean) * invstd^2 * sum_dy_xmu / n) * invstd * weight``, n the sum of `count`."""
    (sum_dy, sum_dy_xmu, count), deviation = sums, widened(invstd)
    share = aten.reciprocal.default(in_type(aten.sum.default(count), deviation.dtype))
    slope = aten.mul.Tensor(aten.mul.Tensor(widened(sum_dy_xmu), share), aten.pow.Tensor_Scalar(deviation, 2))
    centred = aten.sub.Tensor(widened(input), _per_channel(widened(mean), input))
    inner = aten.sub.Tensor(widened(grad_out), _per_channel(aten.mul.Tensor(widened(sum_dy), share), input))
    inner = aten.sub.Tensor(inner, aten.mul.Tensor(centred, _per_channel(slope, input)))
    scale = deviation if weight is None else aten.mul.Tensor(deviation, widened(weight))
    return in_type(aten.mul.Tensor(inner, _per_channel(scale, input)), input.dtype)
