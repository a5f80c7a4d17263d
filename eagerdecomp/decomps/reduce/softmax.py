"""Softmax and its gradients along one dimension, in few kernels: of rows that a mask has emptied, too."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.layouts import LAYOUTS, laid_out
from eagerdecomp.eager.messages import scalar_type_name
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.link import kept_number
from eagerdecomp.rules.rule import Call, Rule, linked, own

__all__ = ["RULES"]

aten = torch.ops.aten


def _softmax_backward(kernel: Callable[[Call], Callable[..., Any]], op: OpOverload) -> Rule:
    """The rule of a gradient along a dimension: of float32 and float64 linked, row-major as eager's kernel answers it."""

    def link(call: Call) -> Callable[..., Any]:
        compute, clone, others = kernel(call), call(aten.clone.default), call(op)

        def run(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Any:
            dtype = grad_output.dtype
            if not (dtype is torch.float32 or dtype is torch.float64) or output.dtype is not dtype or input_dtype is not dtype:
                return others(grad_output, output, dim, input_dtype)
            grad = compute(grad_output, output, dim)
            return grad if grad.is_contiguous() else clone(grad, memory_format=torch.contiguous_format)

        return run

    return linked(op, link)


def _of_softmax(call: Call) -> Callable[..., Any]:
    mul, total, sub = call(aten.mul.Tensor), call(aten.sum.dim_IntList), call(aten.sub.Tensor)

    def compute(grad_output: Tensor, output: Tensor, dim: int) -> Any:
        each = mul(grad_output, output)
        return sub(each, mul(output, total(each, [dim], True)))

    return compute


def _of_log_softmax(call: Call) -> Callable[..., Any]:
    exp, total, mul, sub = call(aten.exp.default), call(aten.sum.dim_IntList), call(aten.mul.Tensor), call(aten.sub.Tensor)
    return lambda grad_output, output, dim: sub(grad_output, mul(exp(output), total(grad_output, [dim], True)))


def _safe_softmax(call: Call) -> Callable[..., Any]:
    """A row of nothing but -inf, which a mask has emptied, answers zeros."""
    softmax, amax, to = call(aten._softmax.default), call(aten.amax.default), call(aten._to_copy.default)
    equal, where, zero = call(aten.eq.Scalar), call(aten.where.self), kept_number(call, 0.0)
    others = call(aten._safe_softmax.default)

    def run(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
        if not self.dim() or not self.numel():
            return others(self, dim, dtype)
        scores = self if dtype is None or self.dtype is dtype else to(self, dtype=dtype)
        if not scores.dtype.is_floating_point:
            return others(self, dim, dtype)
        answer = softmax(scores, dim, False)
        return where(equal(amax(self, [dim], True), -math.inf), zero(answer), answer)

    return run


def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Any:
    if grad_output.shape != mask.shape:
        raise RuntimeError("Mask shape should match grad shape")
    if mask.dtype is not torch.bool:
        raise RuntimeError("Mask should be a boolean tensor")
    if output.dtype is not grad_output.dtype:
        wanted, found = scalar_type_name(grad_output.dtype), scalar_type_name(output.dtype)
        raise RuntimeError(f"expected scalar type {wanted} but found {found}")
    dim = output.dim() - 1 if dim is None else dim
    zero = number_like(grad_output, 0.0)
    grad = aten._softmax_backward_data.default(aten.where.self(mask, zero, grad_output), output, dim, output.dtype)
    return aten.where.self(mask, zero, grad)  # the output is NaN where a whole row is masked


RULES: tuple[Rule, ...] = (
    linked(aten._safe_softmax.default, _safe_softmax),
    _softmax_backward(_of_softmax, aten._softmax_backward_data.default),
    _softmax_backward(_of_log_softmax, aten._log_softmax_backward_data.default),
    own(
        aten._masked_softmax_backward.default,
        laid_out(_masked_softmax_backward, LAYOUTS["aten._softmax_backward_data.default"]),
    ),
)
