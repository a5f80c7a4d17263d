"""Scaled products of float8 matrices, as ATen's emulation on the CPU computes them: in float32, rounded once.

`_scaled_mm` and `_scaled_mm_v2` take one scale per matrix, or one per row of the left and one per column of the right matrix.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)

#: The result dtypes that are multiplied by the reciprocal of `scale_result`.
_SCALED = (torch.float8_e4m3fn, torch.float8_e5m2)

#: The value of `at::blas::ScalingType` for one scale per matrix.
_OF_ALL = 0


@rule("aten._scaled_mm.default", by_schema=True)
def _scaled_mm(call: Any) -> Any:
    scale_a, scale_b = call.scale_a, call.scale_b
    alone = scale_a.numel() == scale_b.numel() == 1
    # For column scales ATen checks the transpose, whose dimension of size 1 may have any stride.
    if not (alone or (scale_a.is_contiguous() and scale_b.is_contiguous())):
        return NotImplemented
    found = _product(call.self, call.mat2, scale_a, scale_b, call.bias, alone)
    if call.scale_result is not None and call.out_dtype in _SCALED:
        found = aten.mul.Tensor(found, aten.reciprocal.default(aten.view.default(call.scale_result, [])))
    dtype = call.out_dtype or call.self.dtype
    if dtype in _FLOAT8 and not call.self.is_cpu:  # there eager saturates; on the CPU it overflows to NaN or infinity
        largest = torch.finfo(dtype).max
        found = aten.clamp.default(found, -largest, largest)
    return aten._to_copy.default(found, dtype=dtype)


@rule("aten._scaled_mm_v2.default", recorded=True)
def _scaled_mm_v2(self: Tensor, mat2: Tensor, *rest: Any) -> Tensor:
    scale_a, recipe_a, _, scale_b, _, _, bias, out_dtype, *_ = rest
    dtype = self.dtype if out_dtype is None else out_dtype
    if not self.numel() or not mat2.size(1):
        nothing = aten.full.default([self.size(0), mat2.size(1)], 0.0, dtype=torch.float32, device=self.device)
        return aten._to_copy.default(nothing, dtype=dtype)  # type: ignore[no-any-return]
    alone = recipe_a[0] == _OF_ALL
    if not alone and (scale_a[0].stride(1) != 1 or scale_b[0].stride(1) != 1 or scale_b[0].numel() != mat2.size(1)):
        raise Declined
    found = _product(self, mat2, scale_a[0], scale_b[0], bias, alone)
    # Without `out_dtype`, torch allocates the result in the dtype of the left matrix and rounds to it.
    return aten._to_copy.default(found, dtype=dtype)  # type: ignore[no-any-return]


@rule("aten._scaled_addmm.default", recorded=True)
def _scaled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *scaling: Any, beta: float = 1, alpha: float = 1, use_fast_accum: bool = False
) -> Any:
    """Return ``beta * self + alpha * (mat1 @ mat2)`` in the dtype of `self`. The product is computed in float32."""
    product = _scaled_mm_v2(mat1, mat2, *scaling[:6], None, torch.float32)
    product = product if alpha == 1 else aten.mul.Scalar(product, alpha)
    if beta != 0:
        product = aten.add.Tensor(product, aten._to_copy.default(self, dtype=torch.float32), alpha=beta)
    return aten._to_copy.default(product, dtype=self.dtype)


def _product(left: Tensor, right: Tensor, scale_a: Tensor, scale_b: Tensor, bias: Tensor | None, alone: bool) -> Tensor:
    if alone:  # of any number of dimensions
        scale_a, scale_b = aten.view.default(scale_a, []), aten.view.default(scale_b, [])
    wide = (
        aten.mul.Tensor(aten._to_copy.default(one, dtype=torch.float32, memory_format=torch.contiguous_format), scale)
        for one, scale in ((left, scale_a), (right, scale_b))
    )
    found = aten.mm.default(*wide)
    if bias is None:
        return found  # type: ignore[no-any-return]
    shape = list(found.shape)
    found = aten.add.Tensor(found, bias)
    if bias.numel() != right.size(1) or list(found.shape) != shape:
        raise Declined
    return found if found.dtype == torch.float32 else aten._to_copy.default(found, dtype=torch.float32)  # type: ignore[no-any-return]
