"""Upsampling and its gradient: nearest, linear and cubic.

Every mode is linear and separable. Along a dimension, an output element is a weighted sum of a few input elements, its *taps*.
Forward gathers the taps; backward scatters the gradient to them. So infinities affect the same elements as in eager.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.decomps.math.interpolation import in_bytes, ratio_of, rounded, spread_to_taps, sum_of_taps
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_float, wide_of

aten = torch.ops.aten


# -- taps ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Axis:
    """A dimension resized from `size` to `count` elements; `ratio` is the step in the input between output elements."""

    dim: int
    size: int
    count: int
    ratio: float


#: For each axis: the indices of its taps, [taps, count], and their weights.
Taps = list[tuple[Tensor, Tensor]]


def _axes(
    sizes: Sequence[int], counts: Sequence[int], align_corners: bool, scales: Sequence[float | None], dtype: torch.dtype
) -> list[_Axis]:
    given = [*scales, *[None] * (len(counts) - len(scales))]
    return [
        _Axis(2 + number, size, count, _ratio(size, count, align_corners, scale, dtype))
        for number, (size, count, scale) in enumerate(zip(sizes, counts, given, strict=True))
    ]


def _ratio(size: int, count: int, align_corners: bool, scale: float | None, dtype: torch.dtype) -> float:
    """Return the scale, rounded as in eager: positions far from the start depend on its last bit."""
    return rounded(ratio_of(size, count, align_corners, scale), dtype)


def _places(axes: Sequence[_Axis], offset: float, like: Tensor, shift: float | None = None) -> Tensor:
    """Return the input positions of the output elements, for all axes in one row. If the axes are alike, do so for one only.

    The position of output element `i` is ``ratio * (i + offset) - shift``; `shift` is `offset` by default. Each position is rounded
    once, as by a fused multiply-add: the terms that are added here are exact.
    """
    options = {"dtype": wide_of(like.dtype), "device": like.device}
    rows = []
    for axis in axes[:1] if _alike(axes) else axes:
        terms, shifted = [], offset if shift is None else shift
        if not axis.ratio or axis.ratio * axis.count < abs(shifted) * 2.0**-54:  # all places are one, in float64 too
            rows.append(aten.full.default([axis.count], -shifted, **options))
            continue
        if like.dtype is torch.float32 and not has_float64():
            # A float32 `arange` may round the step and the product. These steps are exact.
            halves = aten.arange.start_step(offset, offset + axis.count - 0.5, 1, **options)
            rows.append(aten.sub.Scalar(aten.mul.Scalar(halves, axis.ratio), shifted))
            continue
        for step in _short_terms(axis.ratio):
            start = offset * step - shifted
            terms.append(aten.arange.start_step(start, start + (axis.count - 0.5) * step, step, **options))
            shifted = 0.0
        rows.append(terms[0] if len(terms) == 1 else aten.add.Tensor(*terms))
    return in_type(rows[0] if len(rows) == 1 else aten.cat.default(rows), like.dtype)


def _short_terms(ratio: float) -> list[float]:
    """Return numbers of at most 27 significant bits whose sum is `ratio`. float64 holds their multiples exactly.

    A ratio that is a float32 is the only term.
    """
    fraction, exponent = math.frexp(ratio)
    head = math.ldexp(math.floor(fraction * 2**26), exponent - 26)
    return [head] if head == ratio else [head, ratio - head]


def _alike(axes: Sequence[_Axis]) -> bool:
    """Return whether one row of positions serves all axes, as for squares."""
    first = axes[0]
    return all((axis.size, axis.count, axis.ratio) == (first.size, first.count, first.ratio) for axis in axes[1:])


def _split(axes: Sequence[_Axis], index: Tensor, weights: Tensor) -> Taps:
    if _alike(axes):
        return [(aten.clamp.default(index, 0, axes[0].size - 1), weights)] * len(axes)
    counts = [axis.count for axis in axes]
    indexes = aten.split_with_sizes.default(index, counts, 1)
    shares = aten.split_with_sizes.default(weights, counts, 1)
    inside = (aten.clamp.default(index, 0, axis.size - 1) for axis, index in zip(axes, indexes, strict=True))
    return list(zip(inside, shares, strict=True))


def _reach(first: int, end: int, step: int, like: Tensor) -> Tensor:
    return aten.unsqueeze.default(aten.arange.start_step(first, end, step, dtype=torch.int64, device=like.device), 1)  # type: ignore[no-any-return]


def _linear(axes: Sequence[_Axis], align_corners: bool, like: Tensor) -> Taps:
    """Return two taps per element: the weight of each neighbour is the distance to the other one."""
    if len(axes) > 1 and any(_passes_end(axis, align_corners) for axis in axes):
        return [taps for axis in axes for taps in _linear([axis], align_corners, like)]
    places = _places(axes, 0.0 if align_corners else 0.5, like)
    if not align_corners:
        places = aten.clamp.default(places, 0)
    below = aten._to_copy.default(in_type(places, torch.float32), dtype=torch.int64)
    places, below = _guarded(axes[0], places, below, align_corners)
    others = aten.add.Tensor(below, _reach(1, -1, -1, like))
    weights = aten.abs.default(aten.sub.Tensor(places, others))
    return _split(axes, aten.flip.default(others, [0]), weights)


def _guarded(axis: _Axis, places: Tensor, below: Tensor, align_corners: bool) -> tuple[Tensor, Tensor]:
    """Return the positions and the elements before them, bounded as by eager's ``guard_index_and_lambda``.

    Eager rounds positions to float32 before ``floorf``, in float64 too. A position just before an element may be rounded up to it.
    Then eager moves the position to that element.
    """
    if _passes_end(axis, align_corners):
        places, below = aten.clamp.default(places, None, axis.size), aten.clamp.default(below, None, axis.size - 1)
    if places.dtype is torch.float64:
        places = aten.maximum.default(places, below)
    return places, below


def _passes_end(axis: _Axis, align_corners: bool) -> bool:
    """Return whether positions lie beyond the last input element by a quarter or more: only if scale and size do not agree."""
    return not align_corners and axis.ratio * (axis.count - 0.5) - 0.5 > axis.size - 0.25


def _cubic(axes: Sequence[_Axis], align_corners: bool, like: Tensor) -> Taps:
    """Return the taps of Keys' cubic, a = -0.75: ``-0.75 e (e - 1)^2 + 2 min(e, 0)^3``, e = distance - 1.

    The weights are computed in the wide dtype because of cancellation.
    """
    if len(axes) > 1 and any(_passes_end(axis, align_corners) for axis in axes):
        return [taps for axis in axes for taps in _cubic([axis], align_corners, like)]
    places = _places(axes, 0.0 if align_corners else 0.5, like)
    below = aten.floor.default(in_type(places, torch.float32))
    places, below = _guarded(axes[0], places, below, align_corners)
    reach = _reach(-1, 3, 1, like)
    part = aten.sub.Tensor(places, below)
    part = in_type(part, wide_of(part.dtype))
    e = aten.sub.Scalar(aten.abs.default(aten.sub.Tensor(part, reach)), 1)
    far = aten.mul.Tensor(aten.mul.Scalar(e, -0.75), aten.pow.Tensor_Scalar(aten.sub.Scalar(e, 1), 2))
    near = aten.pow.Tensor_Scalar(aten.clamp.default(e, None, 0), 3)
    weights = in_type(aten.add.Tensor(far, near, alpha=2), like.dtype)
    return _split(axes, aten.add.Tensor(aten._to_copy.default(below, dtype=torch.int64), reach), weights)


#: A function that computes the taps of a mode.
TapsOf = Callable[[Sequence[_Axis], bool, Tensor], Taps]


def _nearest_index(axis: _Axis, exact: bool, like: Tensor, *, centred: bool = False) -> Tensor:
    """Return the index of the input element for each output element, [count]. Positions are rounded in the dtype of `like`.

    Then they are rounded to float32, as by eager's ``floorf``. With `centred`, the half that eager's kernel subtracts from
    positions and adds again is rounded, too.
    """
    places = _places([axis], 0.5 if exact else 0.0, like, 0.5 if centred else 0.0)
    if centred:
        places = aten.add.Scalar(places, 0.5)
    index: Tensor = aten._to_copy.default(in_type(places, torch.float32), dtype=torch.int64)
    # Only a scale that disagrees with the size leads past the end. Most calls thus need no `clamp`, for which no route is recorded
    # on some small sets: these would use torch's table entry, which is wrong in float64.
    last = axis.ratio * (axis.count - (0.5 if exact else 1.0))
    if last < axis.size * (1 - 2.0**-22):  # positions are rounded to float32
        return index
    return aten.clamp.default(index, None, axis.size - 1)  # type: ignore[no-any-return]


def _turn(axis: _Axis, *, gradient: bool = False) -> tuple[bool, int]:
    """Return the sort key of a dimension: those that shrink come first, and later dimensions before earlier ones.

    So no intermediate result is larger than both the input and the output.
    """
    grows = axis.size > axis.count if gradient else axis.count > axis.size
    return grows, -axis.dim


def _plain_ratios(axes: Sequence[_Axis]) -> list[_Axis]:
    """Return the axes as in eager's ``nearest_idx``, which ignores the scale if the size is kept or doubled."""
    plain = {1: 1.0, 2: 0.5}
    return [
        _Axis(
            axis.dim,
            axis.size,
            axis.count,
            plain[axis.count // axis.size] if axis.count in (axis.size, 2 * axis.size) else axis.ratio,
        )
        for axis in axes
    ]


# -- forward ------------------------------------------------------------------------------------------------------


def _weighted(taps_of: TapsOf, dims: int) -> Callable[..., Any]:
    """Make the rule for a linear or cubic mode."""

    def run(self: Tensor, output_size: Sequence[int], align_corners: bool, *scales: float | None) -> Any:
        whole = self.dtype is torch.uint8 and dims == 2
        result = aten._to_copy.default(self, dtype=wide_float()) if whole else widened(self)
        axes = _axes(self.shape[2:], output_size, bool(align_corners), scales, result.dtype)
        if whole:
            return in_format_of(in_type(_in_whole_numbers(result, axes, taps_of, bool(align_corners)), torch.uint8), self)
        moved = [axis for axis in axes if taps_of is _cubic or axis.size != axis.count]
        if len(moved) < len(axes):
            result = aten.add.Tensor(result, aten.mul.Scalar(result, 0))  # eager's second tap, of no weight
        if moved:
            taps = taps_of(moved, bool(align_corners), result)
            for axis, (index, weights) in sorted(zip(moved, taps, strict=True), key=lambda one: _turn(one[0])):
                result = sum_of_taps(result, axis.dim, index, weights)
        return in_format_of(in_type(result, self.dtype), self)

    return run


def _in_whole_numbers(x: Tensor, axes: Sequence[_Axis], taps_of: TapsOf, align_corners: bool) -> Tensor:
    """Interpolate uint8 with 16-bit weights, and round after each dimension. In float64 all of this is exact; in float32 nearly."""
    for axis in reversed(axes):
        if axis.size == axis.count:  # the kernels leave it alone, whatever the scale
            continue
        ((index, weights),) = taps_of([axis], align_corners, x)
        zeros = aten.full.default([axis.size, axis.count], 0, dtype=x.dtype, device=x.device)
        matrix = aten.scatter_add.default(zeros, 0, index, weights)
        x = in_bytes(x, axis.dim, aten.permute.default(matrix, [1, 0]))
    return x


def _nearest(exact: bool, dims: int) -> Callable[..., Any]:
    def run(self: Tensor, output_size: Sequence[int], *scales: float | None) -> Any:
        by_pixel = _is_copied_by_pixel(self, output_size, dims)
        wide = torch.float64 if self.dtype is torch.float64 and not by_pixel else torch.float32
        axes = _axes(self.shape[2:], output_size, False, scales, wide)
        if by_pixel and not exact:
            axes = _plain_ratios(axes)
        like = aten.empty.memory_format([0], dtype=wide, device=self.device)
        indexes = [_nearest_index(axis, exact, like, centred=exact and not by_pixel) for axis in axes]
        for number, index in enumerate(indexes):
            inner = dims - 1 - number
            indexes[number] = aten.view.default(index, [-1, *[1] * inner]) if inner else index
        return in_format_of(aten.index.Tensor(self, [None, None, *indexes]), self)

    return run


def _is_copied_by_pixel(x: Tensor, output_size: Sequence[int], dims: int) -> bool:
    """Return whether eager's vectorized kernel for nearest modes runs. It computes positions in float32, for each dtype."""
    if dims == 2 and output_size[0] + output_size[1] <= 128:
        return True
    form = {2: torch.channels_last, 3: torch.channels_last_3d}.get(dims)
    return form is not None and x.size(1) > 3 and x.is_contiguous(memory_format=form)


def _vec(other: Callable[..., Any]) -> Callable[..., Any]:
    """Make the rule for a ``.vec`` overload."""

    def run(input: Tensor, output_size: Sequence[int] | None, *rest: Any) -> Any:
        *flags, scales = rest if rest else (None,)
        size = _scaled(input, scales) if output_size is None else output_size
        return other(input, size, *flags, *(scales or ()))

    return run


def _scaled(x: Tensor, scales: Sequence[float]) -> list[int]:
    return [int(size * scale) for size, scale in zip(x.shape[2:], scales, strict=True)]


# -- gradients ----------------------------------------------------------------------------------------------------


def _weighted_gradient(taps_of: TapsOf, *, formed: bool = True) -> Callable[..., Any]:
    """Make the backward rule for a linear or cubic mode.

    With `formed`, the result is channels last if the incoming gradient is.
    """

    def run(
        grad_output: Tensor, output_size: Sequence[int], input_size: Sequence[int], align_corners: bool, *scales: float | None
    ) -> Any:
        if list(grad_output.shape) != [*input_size[:2], *output_size]:
            return NotImplemented
        grad = widened(grad_output)
        axes = _axes(input_size[2:], output_size, bool(align_corners), scales, grad.dtype)
        moved = [axis for axis in axes if axis.size != axis.count]
        if taps_of is _cubic and moved:
            moved = axes  # a scale counts there, of the same size too
        if len(moved) < len(axes) and taps_of is _linear:
            grad = aten.add.Tensor(grad, aten.mul.Scalar(grad, 0))  # eager's second tap, of no weight
        taps = taps_of(moved, bool(align_corners), grad) if moved else []
        for axis, (index, weights) in sorted(zip(moved, taps, strict=True), key=lambda one: _turn(one[0], gradient=True)):
            grad = spread_to_taps(grad, axis.dim, axis.size, index, weights)
        return _result(grad, grad_output, formed)

    return run


def _nearest_gradient(exact: bool, *, formed: bool = True) -> Callable[..., Any]:
    def run(grad_output: Tensor, output_size: Sequence[int], input_size: Sequence[int], *scales: float | None) -> Any:
        if list(grad_output.shape) != [*input_size[:2], *output_size]:
            return NotImplemented
        grad = widened(grad_output)
        axes = _axes(input_size[2:], output_size, False, scales, torch.float32)
        moved = axes if exact else [axis for axis in _plain_ratios(axes) if axis.size != axis.count]
        like = aten.empty.memory_format([0], dtype=torch.float32, device=grad.device)
        for axis in sorted(moved, key=lambda axis: _turn(axis, gradient=True)):
            grad = spread_to_taps(grad, axis.dim, axis.size, _nearest_index(axis, exact, like), None)
        return _result(grad, grad_output, formed)

    return run


def _result(grad: Tensor, grad_output: Tensor, formed: bool) -> Tensor:
    if grad is grad_output:
        form = suggested_memory_format(grad) if formed else torch.contiguous_format
        return aten.clone.default(grad, memory_format=form)  # type: ignore[no-any-return]
    return in_format_of(in_type(grad, grad_output.dtype), grad_output if formed else None)


def _by_vec(op: OpOverload, vec: OpOverload, flags: int) -> None:
    """Register a rule that calls the ``.vec`` overload, which is in Core ATen.

    That overload accepts sizes or scales, but not both.
    """

    @rule(op)
    def by_vec(self: Tensor, output_size: Sequence[int], *rest: Any, **named: Any) -> Any:
        corners, scales = rest[:flags], rest[flags:]
        if named or self.dim() != 4 or len(output_size) != 2 or min(*self.shape[1:], *output_size) < 1:
            return op(self, output_size, *rest, **named)
        if not any(scales) or (corners and corners[0]):
            return vec(self, output_size, *corners, None)
        sizes = zip(self.shape[2:], scales, output_size, strict=False)
        if len(scales) == 2 and all(scales) and all(int(size * scale) == count for size, scale, count in sizes):
            return vec(self, None, *corners, list(scales))
        return op(self, output_size, *rest)


_BILINEAR = _weighted(_linear, 2)

rule("aten.upsample_nearest1d.default", recorded=True)(_nearest(False, 1))
rule("aten.upsample_nearest2d.default", recorded=True)(_nearest(False, 2))
rule("aten.upsample_nearest2d.vec", recorded=True)(_vec(_nearest(False, 2)))
rule("aten.upsample_nearest3d.default", recorded=True)(_nearest(False, 3))
rule("aten._upsample_nearest_exact1d.default", recorded=True)(_nearest(True, 1))
rule("aten._upsample_nearest_exact2d.default", recorded=True)(_nearest(True, 2))
rule("aten._upsample_nearest_exact3d.default", recorded=True)(_nearest(True, 3))
rule("aten.upsample_linear1d.default", recorded=True)(_weighted(_linear, 1))
rule("aten.upsample_bilinear2d.default", recorded=True)(_BILINEAR)
rule("aten.upsample_bilinear2d.vec", recorded=True)(_vec(_BILINEAR))
rule("aten.upsample_trilinear3d.default", recorded=True)(_weighted(_linear, 3))
rule("aten.upsample_bicubic2d.default", recorded=True)(_weighted(_cubic, 2))
rule("aten.upsample_nearest1d_backward.default", recorded=True)(_nearest_gradient(False))
rule("aten.upsample_nearest2d_backward.default", recorded=True)(_nearest_gradient(False))
rule("aten.upsample_nearest3d_backward.default", recorded=True)(_nearest_gradient(False, formed=False))
rule("aten._upsample_nearest_exact1d_backward.default", recorded=True)(_nearest_gradient(True))
rule("aten._upsample_nearest_exact2d_backward.default", recorded=True)(_nearest_gradient(True))
rule("aten._upsample_nearest_exact3d_backward.default", recorded=True)(_nearest_gradient(True, formed=False))
rule("aten.upsample_linear1d_backward.default", recorded=True)(_weighted_gradient(_linear))
rule("aten.upsample_bilinear2d_backward.default", recorded=True)(_weighted_gradient(_linear))
rule("aten.upsample_trilinear3d_backward.default", recorded=True)(_weighted_gradient(_linear))
rule("aten.upsample_bicubic2d_backward.default", recorded=True)(_weighted_gradient(_cubic, formed=False))

_by_vec(op_called("aten.upsample_nearest2d.default"), op_called("aten.upsample_nearest2d.vec"), 0)
_by_vec(op_called("aten.upsample_bilinear2d.default"), op_called("aten.upsample_bilinear2d.vec"), 1)
