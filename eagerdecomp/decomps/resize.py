"""Upsampling: gradients of every mode, and the antialiased modes both ways.

Every mode is linear and separable, so it and its gradient are a product with a small matrix per dimension; the matrices depend on
sizes alone. That of a plain mode is what upsampling makes of the identity: it comes from the forward op itself, with its corners,
scales and clamping, so the two cannot disagree. That of an antialiased mode is the filter at the distances of places.

A product spreads what is infinite: inf or NaN in a gradient makes NaN of its whole row and column, where the fused kernels keep it
to its own sources. A step that meets one is lost either way.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import suggested_memory_format
from eagerdecomp.layouts import in_format_of
from eagerdecomp.rules import Rule, own
from eagerdecomp.writeback import not_implemented

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


def _gradient(along: Along, *, corners: bool, formed: bool = True) -> Callable[..., Any]:
    """The backward rule of a mode; with `corners` the op has an ``align_corners`` before its scales, and where it is `formed` its
    kernel answers channels last where the incoming gradient is."""

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
        return in_format_of(grad, grad_output if formed else None)

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


# -- antialiased --------------------------------------------------------------------------------------------------

#: The weights of distances, in elements of the coarser side; 0 from where the filter ends.
Filter = Callable[[Tensor], Tensor]


def _triangle(x: Tensor) -> Tensor:
    return aten.clamp.default(aten.add.Scalar(aten.neg.default(aten.abs.default(x)), 1), 0)  # type: ignore[no-any-return]


def _keys(x: Tensor) -> Tensor:
    """The cubic with -0.5 for its parameter; the plain bicubic mode has -0.75."""
    x = aten.abs.default(x)
    square = aten.mul.Tensor(x, x)
    near = aten.add.Scalar(aten.mul.Tensor(aten.sub.Scalar(aten.mul.Scalar(x, 1.5), 2.5), square), 1)
    far = aten.mul.Tensor(aten.add.Scalar(aten.mul.Scalar(x, -0.5), 2.5), square)
    far = aten.add.Scalar(aten.sub.Tensor(far, aten.mul.Scalar(x, 4)), 2)
    return _within(x, 1, near, _within(x, 2, far, None))


def _lanczos(x: Tensor) -> Tensor:
    """``sinc(x) * sinc(x / 3)`` for distances below 3."""
    angle = aten.mul.Scalar(x, math.pi)
    third = aten.div.Scalar(angle, 3)
    sines = aten.mul.Tensor(aten.sin.default(angle), aten.sin.default(third))
    value = aten.div.Tensor(sines, aten.mul.Tensor(angle, third))
    one = aten.full.default([], 1, dtype=x.dtype, device=x.device)
    return _within(aten.abs.default(x), 3, aten.where.self(aten.eq.Scalar(x, 0), one, value), None)


def _within(x: Tensor, limit: float, value: Tensor, other: Tensor | None) -> Tensor:
    if other is None:
        other = aten.full.default([], 0, dtype=x.dtype, device=x.device)
    return aten.where.self(aten.lt.Scalar(x, limit), value, other)  # type: ignore[no-any-return]


def _weights(filtered: Filter, size: int, count: int, align_corners: bool, scale: float | None, like: Tensor) -> Tensor:
    """How much each of `size` elements counts for each of `count`, [count, size]. In float64: the distances lose most digits."""
    if align_corners:
        ratio = (size - 1) / (count - 1) if count > 1 else 0.0
    else:
        ratio = 1 / scale if scale is not None and scale > 0 else size / count
    shrink = max(ratio, 1.0)
    options = {"dtype": torch.float64, "device": like.device}
    step = ratio / shrink or 1.0  # of 0 there is one centre, at 0
    start = ratio / shrink / 2
    centres = aten.arange.start_step(start, start + (count - 0.5) * step, step, **options)
    places = aten.arange.start_step(0.5 / shrink, size / shrink, 1 / shrink, **options)
    weights = filtered(aten.sub.Tensor(places, aten.unsqueeze.default(centres, 1)))
    weights = aten.div.Tensor(weights, aten.sum.dim_IntList(weights, [1], True))
    if like.dtype is not torch.float64:
        weights = aten._to_copy.default(weights, dtype=like.dtype)
    return weights  # type: ignore[no-any-return]


def _antialiased(filtered: Filter) -> Callable[..., Any]:
    def run(
        self: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        if len(output_size) != 2:
            raise RuntimeError(f"It is expected output_size equals to 2, but got size {len(output_size)}")
        if self.dim() != 4:
            raise RuntimeError(f"It is expected input_size equals to 4, but got size {self.dim()}")
        if min(*self.shape[2:], *output_size) < 1:
            raise RuntimeError(
                f"Input and output sizes should be greater than 0, but got input (H: {self.size(2)}, W: {self.size(3)}) "
                f"output (H: {output_size[0]}, W: {output_size[1]})"
            )
        if not self.size(1):
            raise RuntimeError(f"Non-empty 4D data tensor expected but got a tensor with sizes {list(self.shape)}")
        if self.dtype is torch.uint8:
            return NotImplemented  # in whole numbers, by weights of sixteen bits
        _check_real("compute_index_ranges_weights", self)
        shape, result = list(self.shape), self
        for dim, scale in ((3, scales_w), (2, scales_h)):
            if shape[dim] == output_size[dim - 2]:  # the kernels leave it alone, whatever the scale
                continue
            weights = _weights(filtered, shape[dim], output_size[dim - 2], bool(align_corners), scale, self)
            result = _contract(result, shape, dim, weights)
            shape[dim] = output_size[dim - 2]
        if result is self:
            return aten.clone.default(self, memory_format=suggested_memory_format(self))
        return in_format_of(result, self)

    return run


def _antialiased_gradient(filtered: Filter, name: str, *, formed: bool = False) -> Callable[..., Any]:
    def run(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        _check(grad_output, output_size, input_size)
        _check_real(name, grad_output)
        shape, grad = list(grad_output.shape), grad_output
        for dim, scale in ((2, scales_h), (3, scales_w)):
            weights = _weights(filtered, input_size[dim], output_size[dim - 2], bool(align_corners), scale, grad_output)
            grad = _contract(grad, shape, dim, aten.permute.default(weights, [1, 0]))
            shape[dim] = input_size[dim]
        return in_format_of(grad, grad_output if formed else None)

    return run


def _check_real(name: str, x: Tensor) -> None:
    if x.dtype not in (torch.float32, torch.float64):
        raise not_implemented(name, x.dtype)


RULES: tuple[Rule, ...] = (
    own(aten._upsample_bilinear2d_aa.default, _antialiased(_triangle)),
    own(aten._upsample_bicubic2d_aa.default, _antialiased(_keys)),
    own(aten._upsample_lanczos2d_aa.default, _antialiased(_lanczos)),
    own(
        aten._upsample_bilinear2d_aa_backward.default,
        _antialiased_gradient(_triangle, "upsample_bilinear2d_aa_backward_cpu", formed=True),
    ),
    own(aten._upsample_bicubic2d_aa_backward.default, _antialiased_gradient(_keys, "upsample_bicubic2d_aa_backward_cpu")),
    own(aten._upsample_lanczos2d_aa_backward.default, _antialiased_gradient(_lanczos, "upsample_lanczos2d_aa_backward_cpu")),
    own(aten.upsample_nearest1d_backward.default, _gradient(_nearest, corners=False)),
    own(aten.upsample_nearest2d_backward.default, _gradient(_nearest, corners=False)),
    own(aten.upsample_nearest3d_backward.default, _gradient(_nearest, corners=False, formed=False)),
    own(aten._upsample_nearest_exact1d_backward.default, _gradient(_nearest_exact, corners=False)),
    own(aten._upsample_nearest_exact2d_backward.default, _gradient(_nearest_exact, corners=False)),
    own(aten._upsample_nearest_exact3d_backward.default, _gradient(_nearest_exact, corners=False, formed=False)),
    own(aten.upsample_linear1d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_bilinear2d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_trilinear3d_backward.default, _gradient(_linear, corners=True)),
    own(aten.upsample_bicubic2d_backward.default, _gradient(_cubic, corners=True, formed=False)),
)
