"""Softmax and its gradients along one dimension, in few kernels, fully masked rows included.

The gradient equals torch's entry, but is linked: a new size takes 15 us instead of 1,100.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import number_like
from eagerdecomp.rules.blocks import rows_in_blocks
from eagerdecomp.rules.compute import Constant
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_ZERO = Constant(0.0)


def _softmax_backward(name: str, formula: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule for a gradient along a dimension, in float32 and float64. The result is contiguous, as in eager."""
    op = op_called(name)

    def softmax_backward(grad_output: Tensor, output: Tensor, dim: int, input_dtype: torch.dtype) -> Any:
        dtype = grad_output.dtype
        if input_dtype is not dtype and (dtype is not torch.float32 or input_dtype is not torch.float16):
            # The result is of this dtype only for a float16 softmax that was computed in float32.
            return op(grad_output, output, dim, dtype)
        held = dtype is torch.float32 or dtype is torch.float64
        if not held or output.dtype is not dtype or input_dtype is not dtype or output.shape != grad_output.shape:
            return NotImplemented
        grad = rows_in_blocks(formula, grad_output, output, dim)
        return as_contiguous(grad)

    return softmax_backward


def _of_softmax(grad_output: Tensor, output: Tensor, dim: int) -> Any:
    each = aten.mul.Tensor(grad_output, output)
    return aten.sub.Tensor(each, aten.mul.Tensor(output, aten.sum.dim_IntList(each, [dim], True)))


def _of_log_softmax(grad_output: Tensor, output: Tensor, dim: Any) -> Any:
    return aten.sub.Tensor(grad_output, aten.mul.Tensor(aten.exp.default(output), aten.sum.dim_IntList(grad_output, [dim], True)))


@rule("aten._safe_softmax.default")
def _safe_softmax(self: Tensor, dim: int, dtype: torch.dtype | None = None) -> Any:
    """Return zeros for rows that contain only -inf (fully masked rows)."""
    if not self.dim() or not self.numel():
        return NotImplemented
    scores = self if dtype is None or self.dtype is dtype else aten._to_copy.default(self, dtype=dtype)
    if not scores.dtype.is_floating_point:
        return NotImplemented
    result = aten._softmax.default(scores, dim, False)
    return aten.where.self(aten.eq.Scalar(aten.amax.default(self, [dim], True), -math.inf), _ZERO(result), result)


def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> Any:
    if grad_output.shape != mask.shape:
        return NotImplemented
    dim = output.dim() - 1 if dim is None else dim
    zero = number_like(grad_output, 0.0)
    grad = aten._softmax_backward_data.default(aten.where.self(mask, zero, grad_output), output, dim, output.dtype)
    return aten.where.self(mask, zero, grad)  # the output is NaN where a whole row is masked


rule("aten._masked_softmax_backward.default", recorded=True)(_masked_softmax_backward)

rule("aten._softmax_backward_data.default")(_softmax_backward("aten._softmax_backward_data.default", _of_softmax))
rule("aten._log_softmax_backward_data.default")(_softmax_backward("aten._log_softmax_backward_data.default", _of_log_softmax))
