"""Ops of one library or device that equal another ATen op, or a short formula of ATen ops."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# -- grids --------------------------------------------------------------------------------------------------------------------

_BILINEAR, _ZEROS = 0, 0


@rule("aten.cudnn_affine_grid_generator.default", recorded=True)
def _affine_grid(theta: Tensor, N: int, C: int, H: int, W: int) -> Any:
    return aten.affine_grid_generator.default(theta, [N, C, H, W], True)


@rule("aten.cudnn_affine_grid_generator_backward.default", recorded=True)
def _affine_grid_backward(grad: Tensor, N: int, C: int, H: int, W: int) -> Any:
    return aten.affine_grid_generator_backward.default(grad, [N, C, H, W], True)


@rule("aten.cudnn_grid_sampler.default", recorded=True)
def _grid_sampler(self: Tensor, grid: Tensor) -> Any:
    return aten.grid_sampler_2d.default(self, grid, _BILINEAR, _ZEROS, True)


@rule("aten.cudnn_grid_sampler_backward.default", recorded=True)
def _grid_sampler_backward(self: Tensor, grid: Tensor, grad_output: Tensor) -> Any:
    return aten.grid_sampler_2d_backward.default(grad_output, self, grid, _BILINEAR, _ZEROS, True, [True, True])


# -- normalization ------------------------------------------------------------------------------------------------------------


@rule("aten.miopen_batch_norm.default", recorded=True)
def _batch_norm(*args: Any) -> Any:
    return aten.native_batch_norm.default(*args)


# -- products -----------------------------------------------------------------------------------------------------------------


def _wide_product(op: Any, self: Tensor, mat2: Tensor, out_dtype: torch.dtype) -> Any:
    """Return a product of float16 or bfloat16 matrices in float32, or in their own dtype, as CUDA does."""
    for one in (self, mat2):
        if one.dtype is not out_dtype and not (one.dtype in HALF and out_dtype is torch.float32):
            raise Declined
    return op(in_type(self, out_dtype), in_type(mat2, out_dtype))


@rule("aten.mm.dtype", recorded=True)
def _mm(self: Tensor, mat2: Tensor, out_dtype: torch.dtype) -> Any:
    return _wide_product(aten.mm.default, self, mat2, out_dtype)


@rule("aten.bmm.dtype", recorded=True)
def _bmm(self: Tensor, mat2: Tensor, out_dtype: torch.dtype) -> Any:
    return _wide_product(aten.bmm.default, self, mat2, out_dtype)


@rule("aten.addmm.dtype", recorded=True)
def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1) -> Any:
    return _added(self, _wide_product(aten.mm.default, mat1, mat2, out_dtype), beta, alpha)


@rule("aten.baddbmm.dtype", recorded=True)
def _baddbmm(self: Tensor, batch1: Tensor, batch2: Tensor, out_dtype: torch.dtype, *, beta: float = 1, alpha: float = 1) -> Any:
    """Compute the product in `out_dtype`. torch's decomposition passes the dtype in the place of a factor."""
    return _added(self, _wide_product(aten.bmm.default, batch1, batch2, out_dtype), beta, alpha)


def _added(self: Tensor, product: Tensor, beta: float, alpha: float) -> Any:
    """Return ``beta * self + alpha * product``. If beta is 0, `self` is not read."""
    product = product if alpha == 1 else aten.mul.Scalar(product, alpha)
    if beta == 0:
        return product
    return aten.add.Tensor(product, in_type(self, product.dtype), alpha=beta)


@rule("aten.linear_backward.default", recorded=True)
def _linear_backward(self: Tensor, grad_output: Tensor, weight: Tensor, output_mask: Sequence[bool]) -> Any:
    """Return the gradients of x, w and b for ``y = x w^T + b``."""
    rows = aten.reshape.default(self, [-1, weight.size(1)])
    grads = aten.reshape.default(grad_output, [-1, weight.size(0)])
    of_input = of_weight = of_bias = None
    if output_mask[0]:
        of_input = aten.view.default(aten.mm.default(grads, weight), list(self.shape))
    if output_mask[1]:
        of_weight = aten.mm.default(aten.permute.default(grads, [1, 0]), rows)
    if output_mask[2]:
        of_bias = aten.sum.dim_IntList(grads, [0])
    return of_input, of_weight, of_bias


@rule("aten.matmul_backward.default", recorded=True)
def _matmul_backward(grad: Tensor, self: Tensor, other: Tensor, mask: Sequence[bool]) -> Any:
    """Return ``grad b^T`` and ``a^T grad`` for ``y = a b``.

    A vector is used as a matrix of one row or column. Broadcast dimensions are summed.
    """
    left = aten.unsqueeze.default(self, 0) if self.dim() == 1 else self
    right = aten.unsqueeze.default(other, 1) if other.dim() == 1 else other
    if other.dim() == 1:
        grad = aten.unsqueeze.default(grad, -1)
    if self.dim() == 1:
        grad = aten.unsqueeze.default(grad, -2)
    of_left = of_right = None
    if mask[0]:
        of_left = _summed_to(aten.matmul.default(grad, aten.transpose.int(right, -2, -1)), left.shape)
        of_left = aten.view.default(of_left, list(self.shape))
    if mask[1]:
        of_right = _summed_to(aten.matmul.default(aten.transpose.int(left, -2, -1), grad), right.shape)
        of_right = aten.view.default(of_right, list(other.shape))
    return of_left, of_right


def _summed_to(grad: Tensor, shape: Sequence[int]) -> Any:
    """Sum over the broadcast dimensions."""
    extra = grad.dim() - len(shape)
    dims = [*range(extra), *(extra + dim for dim, size in enumerate(shape) if size == 1 and grad.size(extra + dim) != 1)]
    return aten.view.default(aten.sum.dim_IntList(grad, dims), list(shape)) if dims else grad


# -- the rest -----------------------------------------------------------------------------------------------------------------


@rule("aten.max_pool2d_backward.default", by_schema=True)
def _max_pool_backward(call: Any) -> Any:
    """Compute the indices of the maxima again, and call the backward op that uses them."""
    windows = call.kernel_size, call.stride, call.padding, call.dilation, call.ceil_mode
    _, indices = aten.max_pool2d_with_indices.default(call.self, *windows)
    return aten.max_pool2d_with_indices_backward.default(call.grad_output, call.self, *windows, indices)


@rule("aten._masked_scale.default", recorded=True)
def _masked_scale(self: Tensor, mask: Tensor, scale: float) -> Any:
    return aten.mul.Scalar(aten.mul.Tensor(self, in_type(mask, self.dtype)), scale)


@rule("aten._cummax_helper.default", recorded=True)
def _cummax(self: Tensor, values: Tensor, indices: Tensor, dim: int) -> None:
    _written(aten.cummax.default(self, dim), values, indices)


@rule("aten._cummin_helper.default", recorded=True)
def _cummin(self: Tensor, values: Tensor, indices: Tensor, dim: int) -> None:
    _written(aten.cummin.default(self, dim), values, indices)


def _written(found: Sequence[Tensor], *targets: Tensor) -> None:
    for target, one in zip(targets, found, strict=True):
        aten.copy_.default(target, one)


@rule("aten._resize_output_.default", recorded=True)
def _resize_output(self: Tensor, size: Sequence[int], device: torch.device) -> Any:
    if self.device != torch.device(device):
        raise RuntimeError(f"out Tensor doesn't have the correct device set: expected {device}, got {self.device}")
    return aten.resize_.default(self, size)


@rule("aten._resize_output.default", recorded=True)
def _resized_output(self: Tensor, size: Sequence[int], device: torch.device) -> Any:
    return _resize_output(aten.clone.default(self), size, device)


@rule("aten._use_cudnn_ctc_loss.default", "aten._use_cudnn_ctc_loss.Tensor")
@rule("aten._use_miopen_ctc_loss.default", "aten._use_miopen_ctc_loss.Tensor")
def _use_no_library(*args: Any, **kwargs: Any) -> bool:
    """Return False: there is no such library."""
    return False


# -- products of groups -------------------------------------------------------------------------------------------------------

#: `at::blas::ScalingType.RowWise`.
_OF_ROWS = 1


@rule("aten._scaled_grouped_mm.default", by_schema=True)
def _scaled_grouped_mm(call: Any) -> Any:
    """Multiply float8 matrices by the scales of rows (left) and columns (right), then call `_grouped_mm`.

    Declined for groups along the dimension that is summed over: their scales differ by group.
    """
    if call.self.dim() == call.mat2.dim() == 2 or call.scale_result is not None:
        return NotImplemented
    left = aten.mul.Tensor(aten._to_copy.default(call.self, dtype=torch.float32), aten.unsqueeze.default(call.scale_a, -1))
    right = aten.mul.Tensor(aten._to_copy.default(call.mat2, dtype=torch.float32), aten.unsqueeze.default(call.scale_b, -2))
    return in_type(aten._grouped_mm.default(left, right, call.offs, call.bias), call.out_dtype or torch.bfloat16)


@rule("aten._scaled_grouped_mm_v2.default", by_schema=True)
def _scaled_grouped_mm_v2(call: Any) -> Any:
    """Compute with scales of rows and columns. Block scales depend on the device's memory format, and are declined."""
    if list(call.recipe_a) != [_OF_ROWS] or list(call.recipe_b) != [_OF_ROWS]:
        return NotImplemented
    call.scale_a, call.scale_b, call.scale_result = call.scale_a[0], call.scale_b[0], None
    return _scaled_grouped_mm(call)
