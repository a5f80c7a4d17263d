"""Gradients of upsampling. Every mode is linear and separable, so its gradient is a product with a small matrix per dimension.

The matrix of a dimension is what upsampling makes of the identity: it comes from the forward op itself, with its corners, scales
and clamping, so the two cannot disagree. Two products replace the scatter of the fused kernels; the matrices depend on sizes alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten

#: ``along(identity [1, I, I], size, align_corners, scale) -> [1, I, O]``: one dimension upsampled.
Along = Callable[[Tensor, int, bool, "float | None"], Tensor]


def _nearest(identity: Tensor, size: int, align_corners: bool, scale: float | None) -> Tensor:
    return aten.upsample_nearest1d.default(identity, [size], scale)  # type: ignore[no-any-return]


def _nearest_exact(identity: Tensor, size: int, align_corners: bool, scale: float | None) -> Tensor:
    return aten._upsample_nearest_exact1d.default(identity, [size], scale)  # type: ignore[no-any-return]


def _linear(identity: Tensor, size: int, align_corners: bool, scale: float | None) -> Tensor:
    return aten.upsample_linear1d.default(identity, [size], align_corners, scale)  # type: ignore[no-any-return]


def _cubic(identity: Tensor, size: int, align_corners: bool, scale: float | None) -> Tensor:
    column = aten.unsqueeze.default(identity, 3)
    return aten.squeeze.dim(aten.upsample_bicubic2d.default(column, [size, 1], align_corners, scale, None), 3)  # type: ignore[no-any-return]


def _gradient(along: Along, *, corners: bool) -> Callable[..., Any]:
    """The backward rule of a mode; with `corners` the op has an ``align_corners`` before its scales."""

    def run(grad_output: Tensor, output_size: Sequence[int], input_size: Sequence[int], *rest: Any) -> Any:
        dims = len(output_size)
        align_corners = bool(rest[0]) if corners else False
        scales = list(rest[1:] if corners else rest)
        scales += [None] * (dims - len(scales))
        _check(grad_output, output_size, input_size)
        wide = torch.float32 if grad_output.dtype in (torch.float16, torch.bfloat16) else grad_output.dtype
        grad = aten._to_copy.default(grad_output, dtype=wide) if wide is not grad_output.dtype else grad_output
        shape = list(grad.shape)
        for dim in range(dims - 1, -1, -1):
            size = input_size[2 + dim]
            identity = aten.eye.default(size, dtype=wide, device=grad.device)
            matrix = aten.squeeze.dim(along(aten.unsqueeze.default(identity, 0), output_size[dim], align_corners, scales[dim]), 0)
            grad = _contract(grad, shape, 2 + dim, matrix)
            shape[2 + dim] = size
        if wide is not grad_output.dtype:
            grad = aten._to_copy.default(grad, dtype=grad_output.dtype)
        return _like(grad, grad_output)

    return run


def _contract(grad: Tensor, shape: Sequence[int], dim: int, matrix: Tensor) -> Tensor:
    """``sum_o matrix[i, o] * grad[..., o, ...]`` over dimension `dim`."""
    outer, inner = 1, 1
    for size in shape[:dim]:
        outer *= size
    for size in shape[dim + 1 :]:
        inner *= size
    result = [*shape[:dim], matrix.size(0), *shape[dim + 1 :]]
    if inner == 1:
        rows = aten.reshape.default(grad, [outer, shape[dim]])
        return aten.view.default(aten.mm.default(rows, aten.permute.default(matrix, [1, 0])), result)  # type: ignore[no-any-return]
    planes = aten.reshape.default(grad, [outer, shape[dim], inner])
    spread = aten.expand.default(matrix, [outer, *matrix.shape])
    return aten.view.default(aten.bmm.default(spread, planes), result)  # type: ignore[no-any-return]


def _like(grad: Tensor, grad_output: Tensor) -> Tensor:
    """In the memory format that the kernels choose: channels last where the incoming gradient is."""
    for dims, form in ((4, torch.channels_last), (5, torch.channels_last_3d)):
        if grad.dim() == dims and not grad_output.is_contiguous() and grad_output.is_contiguous(memory_format=form):
            return aten.clone.default(grad, memory_format=form)  # type: ignore[no-any-return]
    return grad


def _check(grad_output: Tensor, output_size: Sequence[int], input_size: Sequence[int]) -> None:
    rank = len(output_size) + 2
    expected = [*input_size[:2], *output_size]
    if grad_output.dim() != rank:
        raise RuntimeError(f"Expected grad_output to be a tensor of dimension {rank} but got: dimension {grad_output.dim()}")
    for dim, (got, want) in enumerate(zip(grad_output.shape, expected, strict=True)):
        if got != want:
            raise RuntimeError(
                "Expected grad_output to have the same shape as output; "
                f"output.size({dim}) = {want} but got grad_output.size({dim}) = {got}"
            )


RULES: tuple[Rule, ...] = (
    own(aten.upsample_nearest1d_backward.default, _gradient(_nearest, corners=False)),
    own(aten.upsample_nearest2d_backward.default, _gradient(_nearest, corners=False)),
    own(aten.upsample_nearest3d_backward.default, _gradient(_nearest, corners=False)),
    own(aten._upsample_nearest_exact1d_backward.default, _gradient(_nearest_exact, corners=False)),
    own(aten._upsample_nearest_exact2d_backward.default, _gradient(_nearest_exact, corners=False)),
    own(aten._upsample_nearest_exact3d_backward.default, _gradient(_nearest_exact, corners=False)),
    own(aten.upsample_linear1d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_bilinear2d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_trilinear3d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_bicubic2d_backward.default, _gradient(_cubic, corners=True)),
)
