"""Upsampling with antialiasing filters (linear, cubic, Lanczos), and its gradient.

Dimensions are resized one after the other. An output element is a weighted sum over its *window*, the input elements that its
filter reaches. Windows differ in width, so the taps past the end of a window read a 0 that is appended to the input. So infinities
and NaNs affect the same elements as in eager. uint8 has neither, and is summed by a matrix product.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.decomps.math.interpolation import in_bytes, ratio_of, rounded, spread_to_taps, sum_of_taps
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import HALF, in_type, widened
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_float, wide_of

aten = torch.ops.aten


# -- filters ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Filter:
    """A filter: `weights` maps distances to weights, which are 0 from `reach` on. The unit is an element of the coarser side."""

    reach: int
    weights: Callable[[Tensor], Tensor]


def _triangle(x: Tensor) -> Tensor:
    return aten.clamp.default(aten.add.Scalar(aten.neg.default(aten.abs.default(x)), 1), 0)  # type: ignore[no-any-return]


def _keys(x: Tensor) -> Tensor:
    """Return Keys' cubic, a = -0.5 (plain bicubic has -0.75): ``-0.5 e (e - 1)^2 + m^2 (2 m + 1)``, m = min(e, 0).

    `e` is the distance minus 1. The cubic is 0 at distance 1. This form does not cancel there; eager's polynomial, with fused
    multiply-adds, has rounding errors.
    """
    e = aten.sub.Scalar(aten.clamp.default(aten.abs.default(x), None, 2), 1)
    far = aten.mul.Tensor(aten.mul.Scalar(e, -0.5), aten.pow.Tensor_Scalar(aten.sub.Scalar(e, 1), 2))
    m = aten.clamp.default(e, None, 0)
    near = aten.mul.Tensor(aten.mul.Tensor(m, m), aten.add.Scalar(aten.mul.Scalar(m, 2), 1))
    return aten.add.Tensor(far, near)  # type: ignore[no-any-return]


def _lanczos(x: Tensor) -> Tensor:
    """Return ``sinc(x) * sinc(x / 3)`` for distances below 3, and 0 beyond."""
    angle = aten.mul.Scalar(x, math.pi)
    third = aten.div.Scalar(angle, 3)
    sines = aten.mul.Tensor(aten.sin.default(angle), aten.sin.default(third))
    value = aten.div.Tensor(sines, aten.mul.Tensor(angle, third))
    one = aten.full.default([], 1, dtype=x.dtype, device=x.device)
    value = aten.where.self(aten.eq.Scalar(x, 0), one, value)
    zero = aten.full.default([], 0, dtype=x.dtype, device=x.device)
    return aten.where.self(aten.lt.Scalar(aten.abs.default(x), 3), value, zero)  # type: ignore[no-any-return]


LINEAR, CUBIC, LANCZOS = _Filter(1, _triangle), _Filter(2, _keys), _Filter(3, _lanczos)


# -- windows ------------------------------------------------------------------------------------------------------

#: Windows whose widths are computed one by one, which takes 0.3 us each in Python; of more, the width is bounded.
_MANY = 4096


@dataclass(frozen=True)
class _FilteredAxis:
    """A dimension resized from `size` to `count` elements, with eager's constants for it, rounded as in eager."""

    size: int
    count: int
    ratio: float  # elements of the input to one of the output
    support: float  # half a window
    shrunk: float  # distances in elements of the coarser side

    def width(self, dtype: torch.dtype) -> int:
        """Return the size of the widest window; among very many windows, one more than it has without rounding errors."""
        if self.count > _MANY:
            return min(math.ceil(2 * self.support) + 1, self.size)
        widest = 1
        for number in range(self.count):
            centre = rounded(self.ratio * (number + 0.5), dtype)
            start, end = (int(rounded(centre + side, dtype) + 0.5) for side in (-self.support, self.support))
            widest = max(widest, min(end, self.size) - max(start, 0))
        return min(widest, 2 * math.ceil(self.support) + 1)


def _axis(filtered: _Filter, size: int, count: int, align_corners: bool, scale: float | None, dtype: torch.dtype) -> _FilteredAxis:
    ratio = rounded(ratio_of(size, count, align_corners, scale), dtype)
    shrink = max(ratio, 1.0)
    return _FilteredAxis(size, count, ratio, rounded(filtered.reach * shrink, dtype), rounded(1 / shrink, dtype))


def _centres(axis: _FilteredAxis, like: Tensor) -> Tensor:
    halves = aten.arange.start_step(0.5, axis.count, 1, dtype=wide_of(like.dtype), device=like.device)
    return aten.mul.Scalar(halves, axis.ratio)  # type: ignore[no-any-return]


def _windows(filtered: _Filter, axis: _FilteredAxis, like: Tensor) -> tuple[Tensor, Tensor]:
    """Return index and weights of the taps, [taps, count]. A tap outside its window has index `size` and weight 0."""
    options = {"dtype": like.dtype, "device": like.device}
    centres = in_type(_centres(axis, like), like.dtype)
    first = aten.floor.default(aten.clamp.default(aten.add.Scalar(aten.sub.Scalar(centres, axis.support), 0.5), 0))
    width = axis.width(like.dtype)
    places = aten.add.Tensor(first, aten.unsqueeze.default(aten.arange.start_step(0.5, width, 1, **options), 1))
    inside = aten.le.Tensor(places, aten.clamp.default(aten.add.Scalar(centres, axis.support), None, axis.size))
    weights = _normalized(filtered, aten.sub.Tensor(places, centres), axis, inside)
    outside = aten.full.default([], axis.size, **options)
    return aten._to_copy.default(aten.where.self(inside, places, outside), dtype=torch.int64), weights


def _normalized(filtered: _Filter, distances: Tensor, axis: _FilteredAxis, inside: Tensor | None) -> Tensor:
    """Return the normalized weights of distances, [taps, count]."""
    if axis.shrunk != 1.0:
        distances = aten.mul.Scalar(distances, axis.shrunk)
    weights = filtered.weights(distances)
    if inside is not None:
        weights = aten.mul.Tensor(weights, inside)
    total = aten.sum.dim_IntList(weights, [0], True)
    one = aten.full.default([], 1, dtype=total.dtype, device=total.device)
    # A scale that disagrees with the sizes leads to windows beyond the input, whose weights are 0.
    return aten.div.Tensor(weights, aten.where.self(aten.eq.Scalar(total, 0), one, total))  # type: ignore[no-any-return]


def _matrix(filtered: _Filter, axis: _FilteredAxis, like: Tensor) -> Tensor:
    """Return the weight of each input element in each output element, [count, size]."""
    places = aten.arange.start_step(0.5, axis.size, 1, dtype=wide_of(like.dtype), device=like.device)
    distances = aten.sub.Tensor(aten.unsqueeze.default(places, 1), _centres(axis, like))
    return aten.permute.default(_normalized(filtered, distances, axis, None), [1, 0])  # type: ignore[no-any-return]


# -- rules --------------------------------------------------------------------------------------------------------


def _forward(filtered: _Filter) -> Callable[..., Any]:
    def run(
        self: Tensor,
        output_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        whole = self.dtype is torch.uint8
        fits = self.dim() == 4 and len(output_size) == 2 and min(*self.shape[1:], *output_size) > 0
        if fits and list(self.shape[2:]) == list(output_size):  # a copy, of any dtype
            return aten.clone.default(self, memory_format=suggested_memory_format(self))
        if not fits or not (whole or _is_real(self)):
            return NotImplemented
        result = in_type(self, wide_float()) if whole else widened(self)
        for dim, scale in ((3, scales_w), (2, scales_h)):
            size, count = self.size(dim), output_size[dim - 2]
            if size == count:  # the kernels leave it alone, whatever the scale
                continue
            axis = _axis(filtered, size, count, bool(align_corners), scale, result.dtype)
            if whole:
                result = in_bytes(result, dim, _matrix(filtered, axis, result))
            else:
                padded = aten.constant_pad_nd.default(result, [0, 0] * (3 - dim) + [0, 1])
                result = sum_of_taps(padded, dim, *_windows(filtered, axis, result))
        return in_format_of(in_type(result, self.dtype), self)

    return run


def _gradient(filtered: _Filter, *, formed: bool = False) -> Callable[..., Any]:
    def run(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        align_corners: bool,
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        fits = len(input_size) == 4 and list(grad_output.shape) == [*input_size[:2], *output_size]
        if not fits or min(*input_size[1:], *output_size) < 1 or not _is_real(grad_output):
            return NotImplemented
        grad = widened(grad_output)
        for dim, scale in ((2, scales_h), (3, scales_w)):
            size = input_size[dim]
            axis = _axis(filtered, size, output_size[dim - 2], bool(align_corners), scale, grad.dtype)
            # Taps outside their window are added to one extra element.
            grad = spread_to_taps(grad, dim, size + 1, *_windows(filtered, axis, grad))
            grad = aten.slice.Tensor(grad, dim, 0, size)
        return in_format_of(in_type(grad, grad_output.dtype), grad_output if formed else None)

    return run


def _is_real(x: Tensor) -> bool:
    """Return whether eager's kernels take a float dtype; only the CPU's refuse float16 and bfloat16."""
    return x.dtype in (torch.float32, torch.float64) or (x.dtype in HALF and not x.is_cpu)


# 57 to 87 kernel calls: some 25 per dimension to build the windows, 10 more for the weights of cubic and Lanczos, 9 more to round
# uint8.
rule("aten._upsample_bilinear2d_aa.default", recorded=True)(_forward(LINEAR))
rule("aten._upsample_bicubic2d_aa.default", recorded=True)(_forward(CUBIC))
rule("aten._upsample_lanczos2d_aa.default", recorded=True)(_forward(LANCZOS))
rule("aten._upsample_bilinear2d_aa_backward.default", recorded=True)(_gradient(LINEAR, formed=True))
rule("aten._upsample_bicubic2d_aa_backward.default", recorded=True)(_gradient(CUBIC))
rule("aten._upsample_lanczos2d_aa_backward.default", recorded=True)(_gradient(LANCZOS))
