"""Scaled products of float8 matrices, as ATen's emulation on the CPU computes them: in float32, rounded once.

`_scaled_mm` and `_scaled_mm_v2` take one scale per matrix, or one per row of the left and one per column of the right matrix.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import scalar_type_name
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

_FLOAT8 = (torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)

#: The result dtypes that are multiplied by the reciprocal of `scale_result`.
_SCALED = (torch.float8_e4m3fn, torch.float8_e5m2)

#: The values of `at::blas::ScalingType` and `SwizzleType` that the CPU supports.
_OF_ALL, _OF_ROWS, _NO_SWIZZLE = 0, 1, 0


@rule("aten._scaled_mm.default", recorded=True)
def _scaled_mm(
    self: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: Tensor | None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
) -> Tensor:
    if not (self.dim() and mat2.dim()):
        _check_shapes(self, mat2, "mat1", "mat2")
    rows = _is_float32(scale_a, self, 0) and _is_float32(scale_b, mat2, 1)
    alone = scale_a.numel() == scale_b.numel() == 1 and scale_a.dtype == scale_b.dtype == torch.float32
    if self.dtype not in _FLOAT8 or mat2.dtype not in _FLOAT8 or not (alone or rows):
        raise _invalid(self, mat2, scale_a, scale_b)
    _check_shapes(self, mat2, "mat1", "mat2")
    if scale_result is not None and (scale_result.numel() != 1 or scale_result.dtype != torch.float32):
        raise RuntimeError("scale_result must be a float scalar")
    _check_bias(bias, mat2, RuntimeError)
    found = _product(self, mat2, scale_a, scale_b, bias, alone)
    if scale_result is not None and out_dtype in _SCALED:
        found = aten.mul.Tensor(found, aten.reciprocal.default(aten.view.default(scale_result, [])))
    dtype = out_dtype or self.dtype
    if dtype in _FLOAT8 and not self.is_cpu:  # there eager saturates; on the CPU it overflows to NaN or infinity
        largest = torch.finfo(dtype).max
        found = aten.clamp.default(found, -largest, largest)
    return aten._to_copy.default(found, dtype=dtype)  # type: ignore[no-any-return]


@rule("aten._scaled_mm_v2.default", recorded=True)
def _scaled_mm_v2(
    self: Tensor,
    mat2: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    bias: Tensor | None,
    out_dtype: torch.dtype | None,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
) -> Tensor:
    _check_matrices(self, mat2, "mat_a", "mat_b", ValueError)
    dtype = self.dtype if out_dtype is None else out_dtype
    if not self.numel() or not mat2.size(1):
        nothing = aten.full.default([self.size(0), mat2.size(1)], 0.0, dtype=torch.float32, device=self.device)
        return aten._to_copy.default(nothing, dtype=dtype)  # type: ignore[no-any-return]
    if contraction_dim:
        if len(contraction_dim) != 2:
            raise ValueError("contraction_dim must have exactly 2 elements")
        left, right = contraction_dim
        if self.size(left) != mat2.size(right):
            raise ValueError(f"{_not_multiplied(self, mat2)} with contraction dims mat_a: {left}, mat_b: {right}")
    elif self.size(1) != mat2.size(0):
        raise ValueError(_not_multiplied(self, mat2))
    _check_bias(bias, mat2, ValueError)
    if bias is not None and bias.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        raise ValueError(f"Bias must be Float32 or BFloat16 or Half, but got {scalar_type_name(bias.dtype)}")
    if (*swizzle_a[:1], *swizzle_b[:1]) != (_NO_SWIZZLE, _NO_SWIZZLE):
        raise ValueError("CPU does not support swizzle.")
    recipes = (*recipe_a, *recipe_b)
    alone = recipes == (_OF_ALL, _OF_ALL) and _are_float32(scale_a, 1) and _are_float32(scale_b, 1)
    rows = recipes == (_OF_ROWS, _OF_ROWS) and _are_float32(scale_a) and _are_float32(scale_b)
    if self.dtype not in _FLOAT8 or mat2.dtype not in _FLOAT8 or not (alone or rows):
        raise _invalid(self, mat2, *scale_a[:1], *scale_b[:1])
    if rows:
        _check_rows(self, mat2, scale_a[0], scale_b[0])
    _check_shapes(self, mat2, "mat_a", "mat_b")
    found = _product(self, mat2, scale_a[0], scale_b[0], bias, alone)
    # Without `out_dtype`, torch allocates the result in the dtype of the left matrix and rounds to it.
    return aten._to_copy.default(found, dtype=dtype)  # type: ignore[no-any-return]


@rule("aten._scaled_addmm.default", recorded=True)
def _scaled_addmm(
    self: Tensor, mat1: Tensor, mat2: Tensor, *scaling: Any, beta: float = 1, alpha: float = 1, use_fast_accum: bool = False
) -> Any:
    """Return ``beta * self + alpha * (mat1 @ mat2)`` in the dtype of `self`. The product is computed in float32."""
    scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, *contraction = scaling
    dims = contraction[0] if contraction else ()
    product = _scaled_mm_v2(
        mat1, mat2, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, None, torch.float32, dims, use_fast_accum
    )
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
    if bias.dtype.is_complex:
        name = scalar_type_name(bias.dtype)
        raise RuntimeError(f"result type {name} can't be cast to the desired output type Float")
    shape = list(found.shape)
    found = aten.add.Tensor(found, bias)
    if list(found.shape) != shape:
        raise RuntimeError(f"output with shape {shape} doesn't match the broadcast shape {list(found.shape)}")
    return found if found.dtype == torch.float32 else aten._to_copy.default(found, dtype=torch.float32)  # type: ignore[no-any-return]


# -- checks -------------------------------------------------------------------------------------------------------------------


def _is_float32(scale: Tensor, of: Tensor, dim: int) -> bool:
    """Return whether `scale` has one float32 value for each row (dim 0) or column (dim 1) of a matrix."""
    shape = [of.size(dim), 1] if dim == 0 else [1, of.size(dim)]
    # For column scales ATen checks the transpose, whose dimension of size 1 may have any stride.
    return scale.dtype == torch.float32 and list(scale.shape) == shape and scale.is_contiguous()


def _are_float32(scales: Sequence[Tensor], numel: int | None = None) -> bool:
    return len(scales) == 1 and scales[0].dtype == torch.float32 and numel in (None, scales[0].numel())


def _check_rows(left: Tensor, right: Tensor, scale_a: Tensor, scale_b: Tensor) -> None:
    rows, columns = left.size(0), right.size(1)
    if scale_a.size(0) != rows or scale_a.size(1) != 1:
        raise ValueError(f"scale_a must have shape [{rows}, 1], got [{list(scale_a.shape)}]")
    if scale_b.numel() != columns:
        raise ValueError(f"scale_b must have {columns} Float elements, got {scale_b.numel()}")
    for scale, name in ((scale_a, "scale_a"), (scale_b, "scale_b")):
        if scale.stride(1) != 1:
            raise ValueError(f"expected {name}.stride(1) to be 1, but got {scale.stride(1)}")


def _check_shapes(left: Tensor, right: Tensor, left_name: str, right_name: str) -> None:
    _check_matrices(left, right, left_name, right_name, RuntimeError)
    if left.size(1) != right.size(0):
        raise RuntimeError(_not_multiplied(left, right))


def _check_matrices(left: Tensor, right: Tensor, left_name: str, right_name: str, error: type[Exception]) -> None:
    for one, name in ((left, left_name), (right, right_name)):
        if one.dim() != 2:
            raise error(f"{name} must be a matrix")


def _not_multiplied(left: Tensor, right: Tensor) -> str:
    sizes = f"{left.size(0)}x{left.size(1)} and {right.size(0)}x{right.size(1)}"
    return f"mat_a and mat_b shapes cannot be multiplied ({sizes})"


def _check_bias(bias: Tensor | None, right: Tensor, error: type[Exception]) -> None:
    if bias is not None and bias.numel() != right.size(1):
        raise error(f"Bias must be size {right.size(1)} but got {bias.numel()}")


def _invalid(left: Tensor, right: Tensor, *scales: Tensor) -> ValueError:
    shapes = [f"{scalar_type_name(scale.dtype)} of {list(scale.shape)}" for scale in scales]
    return ValueError(
        "Invalid scaling configuration.\n"
        "- For TensorWise scaling, a and b should be float8, scales should be float and singletons.\n"
        "- For RowWise scaling, a and b should be float8, scales should be float, scale_a should be "
        f"({left.size(0)}, 1) and scale_b should be (1, {right.size(-1)}), and both should be contiguous.\n"
        f"Got matrices of {scalar_type_name(left.dtype)} and {scalar_type_name(right.dtype)}, scales {' and '.join(shapes)}"
    )
