"""Specs of products: matrices, convolutions, distances.

Sums and products of "lattice" values (small integers) are exact in any order, so that all right kernels return the same; float16
and bfloat16 are summed in float32 and rounded once. Other values detect further errors: rounded factors, and sums in 16-bit floats.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import FLOATS, HALVES, NUMBERS, TAILS, WIDE_FLOATS, tensor
from eagerdecomp.conformance.spec import Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import OUTPUT_MASKS, alike, not_asked_for, several, wrong, wrong_variants

__all__ = ["SPECS"]

_DTYPES = (*FLOATS, torch.complex64, *(one for one in NUMBERS if not one.is_floating_point), torch.complex128)
_SIDES = (2, 3, 1, 4, 5, 8, 16, 17, 33, 64, 65, 0)
_CONTRACTED = (2, 3, 1, 5, 8, 16, 17, 64, 65, 129, 1025, 4099, 0)
_FILLS = ("lattice", "normal", "positive_lattice", "small", "nonfinite", "wide")
_EXACT = ("lattice", "positive_lattice", "ones")


def _summed(*places: int) -> Callable[[Call], Near]:
    """Return a function that computes the tolerance from the number of terms per sum.

    The number is estimated by the elements of these arguments, divided by the smaller of their first two sizes.
    """

    def near(call: Call) -> Near:
        terms = max(call.args[place].numel() / max(1, min(call.args[place].shape[:2])) for place in places)
        return Near(4.0 + math.sqrt(terms), "terms", zeros=False)

    return near


def _fill(draw: Draw, dtype: torch.dtype) -> str:
    kind = draw.pick("values", _FILLS)
    # The order of summation decides which partial sums of large values overflow, and the results of infinite complex numbers.
    # Integers wrap.
    unclear = (dtype.is_complex and kind == "nonfinite") or (kind == "wide" and (dtype.is_floating_point or dtype.is_complex))
    return "normal" if unclear else kind


def _conjugated(draw: Draw, name: str, made: Tensor) -> Tensor:
    """Sometimes set the conj bit of a complex operand, as in a program that conjugates it."""
    return made.conj() if made.is_complex() and draw.flag(f"{name}.conjugated") else made


def _matrices(draw: Draw, batch: Sequence[int]) -> tuple[Tensor, Tensor, bool]:
    dtype = draw.pick("dtype", _DTYPES)
    rows, contracted, columns = draw.pick("rows", _SIDES), draw.pick("contracted", _CONTRACTED), draw.pick("columns", _SIDES)
    count = math.prod(batch) or 1
    pair = draw.pick("pair", ("any",) * 7 + ("itself", "with its transpose", "row with columns"))  # the last as `Linear` at batch 1
    if pair in ("itself", "with its transpose"):
        rows = contracted = columns = min(rows, 33)
    elif pair == "row with columns":
        rows, contracted = 1, columns
    if count <= 2 and draw.pick("large", (False,) * 39 + (True,)):  # several blocks in every direction
        rows, contracted, columns = draw.pick("large.sizes", ((200, 200, 200), (260, 40, 270), (193, 300, 7)))
        pair = pair if rows == contracted == columns else "any"
        return _pair(draw, dtype, [*batch, rows, contracted], [*batch, contracted, columns], pair)
    if contracted > 64:
        rows, columns = min(rows, 17), min(columns, 5)
    if count * rows * columns > 2000:
        rows, columns = min(rows, 33), min(columns, max(3, 2000 // (count * 33)))
    return _pair(draw, dtype, [*batch, rows, contracted], [*batch, contracted, columns], pair)


def _pair(draw: Draw, dtype: torch.dtype, left: Sequence[int], right: Sequence[int], pair: str) -> tuple[Tensor, Tensor, bool]:
    kind = _fill(draw, dtype)
    one = tensor(draw, "left", dtype, left, (kind,))
    if pair in ("itself", "with its transpose"):
        one = _conjugated(draw, "left", one)
        return one, one if pair == "itself" else one.mT, kind in _EXACT
    other = tensor(draw, "right", dtype, right, (kind,))
    if pair == "row with columns":
        other = other.mT.contiguous().mT
    return _conjugated(draw, "left", one), _conjugated(draw, "right", other), kind in _EXACT


def _mm(draw: Draw) -> Call:
    one, other, exact = _matrices(draw, [])
    return Call([one, other], exact=exact)


def _bmm(draw: Draw) -> Call:
    batch = draw.pick("batch", (2, 1, 3, 5, 17, 0))
    one, other, exact = _matrices(draw, [batch])
    which = draw.pick("same for all", ("none", "left", "right"))
    if batch and which != "none" and one is not other:  # an expanded batch, as for a broadcast matrix
        one = one[:1].expand(one.shape) if which == "left" else one
        other = other[:1].expand(other.shape) if which == "right" else other
    return Call([one, other], exact=exact)


def _factor(draw: Draw, name: str, dtype: torch.dtype) -> Any:
    options: tuple[Any, ...] = (None, 0, 1, 2, -1, -3)
    if dtype.is_floating_point or dtype.is_complex:
        options = (None, 0, 0.5, 2, -1.0, 0.3, 1, -0.0, 1.7)
    if dtype.is_complex:
        options = (*options, 2j, 0.5 - 1j)
    return draw.pick(name, options)


def _addmm(draw: Draw) -> Call:
    one, other, exact = _matrices(draw, [])
    factors = {name: _factor(draw, name, one.dtype) for name in ("beta", "alpha")}
    rows, columns = one.shape[0], other.shape[1]
    shape = draw.pick("self", ([columns], [rows, columns], [1, columns], [rows, 1], [], [1], [1, 1]))
    fills: tuple[str, ...] = ("lattice", "positive_lattice") if exact else ("normal", "small")
    if factors["beta"] == 0:
        fills = ("nonfinite", "lattice")  # with beta=0 the values do not matter, not even NaN
    bias = tensor(draw, "self", one.dtype, shape, fills)
    if factors["alpha"] == 0 and not exact:
        # With alpha=0, as BLAS defines it, the product does not matter, not even NaN. Eager's kernels of 16-bit floats compute it.
        by_blas = (one.is_floating_point() or one.is_complex()) and one.dtype not in HALVES
        value = draw.pick("product", (math.nan, math.inf, 0.0)) if by_blas else 0
        one, other = torch.full_like(one, value), torch.full_like(other, value)
    exact = exact and not any(factor in (0.3, 1.7) for factor in factors.values())
    return Call([bias, one, other], {name: factor for name, factor in factors.items() if factor is not None}, exact)


def _refused_product(batch: Sequence[int], bias: bool) -> Callable[[Draw], Call]:
    def call(draw: Draw) -> Call:
        wrong = draw.pick(
            "wrong", ("contracted", "one dimension", "too many", "dtype", "batch", "batch of one", "integers", "self", "vector")
        )
        left, right, mine = [*batch, 2, 3], [*batch, 3, 4], [2, 4]
        types = [torch.float32, torch.float32]
        if wrong == "contracted":
            right[-2] = draw.pick("other", (4, 1, 2))
        elif wrong == "one dimension":
            left = left[1:]
        elif wrong == "too many":
            right = [1, *right]
        elif wrong == "vector":
            right = right[:-1]
        elif wrong == "dtype":
            types[1] = torch.float64
        elif wrong == "integers":
            types[0] = torch.int64
        elif wrong == "batch" and batch:
            right[0] += 1
        elif wrong == "batch of one" and batch:
            left[0] = 1
        elif wrong == "self" and bias:
            mine = draw.pick("other self", ([3, 4], [3], [1, 2, 4], [4, 2]))
        tensors = [torch.ones(left, dtype=types[0]), torch.ones(right, dtype=types[1])]
        return Call([torch.ones(mine), *tensors] if bias else tensors)

    return call


# -- convolutions ------------------------------------------------------------------------------------------------------------

_CHANNELS = (2, 1, 3, 4, 8, 17)
_CONV_FILLS = ("lattice", "normal", "positive_lattice", "small", "nonfinite")


def _extents(draw: Draw, rank: int, transposed: bool, half: bool) -> tuple[list[list[int]], list[int], list[int]]:
    """Draw kernel, stride, padding, dilation and output padding, the sizes of the input, and the sizes of the result."""
    if not transposed and rank > 1 and draw.pick("one unlike", (False, False, True)):
        return _one_unlike(draw, rank)
    kernel = several(draw, "kernel", rank, (3, 2, 1, 4, 5))
    stride = several(draw, "stride", rank, (1, 2, 3))
    padding = several(draw, "padding", rank, (0, 1, 2))
    dilation = several(draw, "dilation", rank, (1, 2, 3))
    # Some of eager's own kernels end the process if a window covers only padding. Such a window is behind the input; for float16
    # and bfloat16, the input may also be between two elements of the window.
    dilation = [one if size > 1 else 1 for one, size in zip(dilation, kernel, strict=True)]
    padding = [min(one, step * (size - 1)) for one, step, size in zip(padding, dilation, kernel, strict=True)]
    more = several(draw, "output_padding", rank, (0, 1, 2)) if transposed else [0] * rank
    more = [min(one, max(stride[dim], dilation[dim]) - 1) for dim, one in enumerate(more)]
    given = []
    spans = [apart * (size - 1) + 1 for apart, size in zip(dilation, kernel, strict=True)]
    tails = TAILS[:4] if stride[-1] == 1 and math.prod(kernel) < 7 else ()  # for the last dimension
    for dim, span in enumerate(spans):
        least = dilation[dim] if half and padding[dim] else 1
        if transposed:
            size = draw.pick(f"size.{dim}", (3, 1, 2, 4, 6, *(tails if dim == 1 else ())))
            while (size - 1) * stride[dim] - 2 * padding[dim] + span + more[dim] < least:
                size += 1
        else:
            windows = draw.pick(f"size.{dim}", (3, 1, 2, 4, 7, *(tails if dim == 1 else ())))
            rest = draw.below(stride[dim])  # elements after the last window
            size = max(least, (windows - 1) * stride[dim] + span - 2 * padding[dim] + rest)
        given.append(size)
    given = alike(draw, given) if max(given) < 20 else given
    found = [
        (size - 1) * stride[dim] - 2 * padding[dim] + span + more[dim]
        if transposed
        else (size + 2 * padding[dim] - span) // stride[dim] + 1
        for dim, (size, span) in enumerate(zip(given, spans, strict=True))
    ]
    return [kernel, stride, padding, dilation, more], given, found


def _one_unlike(draw: Draw, rank: int) -> tuple[list[list[int]], list[int], list[int]]:
    """Draw extents that are equal in all dimensions, but for a dilation or padding: if these are swapped, no shape changes."""
    size, windows = draw.pick("kernel alike", (2, 3)), draw.pick("windows", (3, 2, 5))
    padding, dilation = [0] * rank, [1] * rank
    unlike = draw.pick("unlike", (dilation, padding))
    unlike[draw.below(rank)] += 1
    span = max(dilation) * (size - 1) + 1
    return [[size] * rank, [3] * rank, padding, dilation, [0] * rank], [3 * (windows - 1) + span] * rank, [windows] * rank


def _convolution(draw: Draw, dtypes: Sequence[torch.dtype]) -> tuple[Tensor, Tensor, list[Any], list[int], bool]:
    """Draw input and weight, the arguments after the bias, the shape of the result, and whether sums are exact."""
    dtype = draw.pick("dtype", dtypes)
    transposed = draw.flag("transposed") and dtype.is_floating_point
    long = draw.pick("long", (False, False, False, True))  # many channels, and small otherwise
    # For 3-d bfloat16, eager's kernel reads uninitialized memory on processors with matrix units.
    flat = long or (dtype is torch.bfloat16 and not transposed)
    rank = draw.pick("rank", (2, 1) if flat else (2, 1, 3))
    groups = draw.pick("groups", (1,) if long else (1, 2, 3, 8))
    per_group = draw.pick("many channels", (65, 129, 1025)) if long else draw.pick("channels", _CHANNELS)
    found = draw.pick("found channels", (3, 1, 2) if long else (*_CHANNELS, *TAILS[1:4]))
    batch = draw.pick("batch", (1,) if long else (2, 1, 3, 0))
    (kernel, stride, padding, dilation, more), sizes, results = _extents(draw, rank, transposed, dtype in HALVES)
    if rank == 3:  # limit the other sizes
        per_group, batch, found = min(per_group, 4), min(batch, 2), min(found, 3)
    elif not long and (max(sizes) > 20 or found > 17):
        per_group, groups, batch = min(per_group, 3), 1, min(batch, 2)
        found = min(found, 3) if max(sizes) > 20 else found
    if not dtype.is_floating_point:
        dilation = [1] * rank if draw.below(4) else dilation
    kind = draw.pick("values", _CONV_FILLS)
    weights = [per_group * groups, found] if transposed else [found * groups, per_group]
    if not transposed:
        results = [
            (s + 2 * p - d * (k - 1) - 1) // t + 1 for s, p, d, k, t in zip(sizes, padding, dilation, kernel, stride, strict=True)
        ]
    given = tensor(draw, "input", dtype, [batch, per_group * groups, *sizes], (kind,))
    weight = tensor(draw, "weight", dtype, [*weights, *kernel], ("positive" if kind == "nonfinite" else kind,))
    spelt = [one[:1] if len(set(one)) == 1 and draw.flag("short") else one for one in (stride, padding, dilation)]
    rest = [*spelt, transposed, more, groups]
    return given, weight, rest, [batch, found * groups, *results], kind in _EXACT


def _conv(draw: Draw) -> Call:
    given, weight, rest, shape, exact = _convolution(draw, (*FLOATS, torch.int64, torch.int32, torch.uint8))
    bias = None
    if draw.flag("bias"):
        layouts = ("contiguous", "strided", "expanded", "guarded")
        bias = tensor(draw, "bias", given.dtype, [shape[1]], ("lattice",) if exact else ("normal", "tens"), layouts)
    return Call([given, weight, bias, *rest], exact=exact)


def _conv_backward(draw: Draw) -> Call:
    given, weight, rest, shape, exact = _convolution(draw, FLOATS)
    kind = "lattice" if exact else draw.pick("grad", ("normal", "small", "nonfinite"))
    if kind == "nonfinite" or not bool(given.isfinite().all()):  # the product of zero padding and infinity depends on the algorithm
        kind, given, weight = "normal", torch.nan_to_num(given, 0.5, 1.5, -1.5), torch.nan_to_num(weight, 0.5, 1.5, -1.5)
    grad = tensor(draw, "grad", given.dtype, shape, (kind,))
    mask = draw.pick("output_mask", OUTPUT_MASKS)
    if given.dtype in HALVES and _only_padding(given, weight, shape, rest):
        mask = [mask[0], False, mask[2]]
    sizes = [shape[1]] if mask[2] or draw.flag("sizes all the same") else None
    return Call([grad, given, weight, sizes, *rest, mask], exact=exact)


def _only_padding(given: Tensor, weight: Tensor, shape: Sequence[int], rest: Sequence[Any]) -> bool:
    """Return whether an element of the kernel covers only padding; oneDNN does not write its bfloat16 gradient."""
    rank = given.dim() - 2
    stride, padding, dilation = (one * rank if len(one) == 1 else one for one in rest[:3])
    wide, narrow = (shape, given.shape) if rest[3] else (given.shape, shape)
    return any(
        not any(0 <= at * step - pad + place * apart < size for at in range(moves))
        for size, moves, extent, step, pad, apart in zip(
            wide[2:], narrow[2:], weight.shape[2:], stride, padding, dilation, strict=True
        )
        for place in range(extent)
    )


def _wrong_convolutions() -> Sequence[Sequence[Any]]:
    given, weight, bias = torch.ones(2, 4, 6, 6), torch.ones(3, 4, 3, 3), torch.ones(3)
    return wrong_variants(
        [given, weight, bias, [1, 1], [0, 0], [1, 1], False, [0, 0], 1],
        {4: [-1, 0]},
        {3: [0, 1]},
        {5: [1, 0]},
        {8: 0},
        {8: 3},
        {5: [4, 4]},
        {2: torch.ones(4)},
        {2: torch.ones(3, 1)},
        {2: torch.ones(1)},
        {2: torch.ones(1), 0: torch.ones(2, 4, 6), 1: torch.ones(3, 4, 3), 3: [1], 4: [0], 5: [1], 7: [0]},
        {2: torch.ones(1), 1: torch.ones(4, 3, 3, 3), 6: True},
        {0: given[0]},
        {0: given[:, :3]},
        {0: given[:, :, :2]},
        {1: weight[:, :2]},
        {1: weight.double()},
        {2: bias.double()},
        {0: given.long()},
        {3: [1, 1, 1]},
        {4: [0, 0, 0]},
        {5: [1, 1, 1]},
        {1: torch.ones(4, 3, 3, 3), 6: True, 7: [1, 1]},
        {1: torch.ones(4, 3, 3, 3), 6: True, 7: [-1, 0]},
        {6: True},
        {0: torch.ones(2, 4, 6), 1: torch.ones(3, 4, 3, 3)},
    )


# -- distances ---------------------------------------------------------------------------------------------------------------

_NORMS = (2.0, 1.0, 0.0, math.inf, 0.5, 3.0, 1.5, 7.0)
_MATRIX_ROWS = 25  # with more rows, eager uses |x|^2 - 2xy + |y|^2, which is inexact for near points


def _by_matrices(call: Call) -> bool:
    one, other, norm, mode = call.args
    return bool(norm == 2.0) and (mode == 1 or (mode != 2 and max(one.shape[-2], other.shape[-2]) > _MATRIX_ROWS))


def _near_distance(call: Call) -> Near:
    if len(call.args) == 4 and _by_matrices(call):
        return Near(64.0, "largest", zeros=False)
    return Near(16.0 + 2 * math.sqrt(call.args[0].shape[-1]))


def _cdist(draw: Draw) -> Call:
    dtype = draw.pick("dtype", WIDE_FLOATS)
    norm, mode = draw.pick("p", (2.0, *_NORMS[1:4], 2.0, *_NORMS[4:])), draw.pick("compute_mode", (None, 2, 1, 0))
    columns = draw.pick("columns", (3, 1, 2, 4, 7, 8, 9, 16, 17, 65, 1025, 0))
    rows = [draw.pick(f"rows of {which}", (3, 1, 2, 5, 26, 31, *TAILS[1:4], 0)) for which in ("x1", "x2")]
    if columns > 64:
        rows = [min(one, 5) for one in rows]
    kind = draw.pick("values", ("lattice", "normal", "halves", "offset", "nonfinite", "coincident", "near"))
    batches = draw.pick("batch", (([], []), ([2], [2]), ([2], [1]), ([], [3]), ([2, 1], [3]), ([0], [0])))
    shapes = [[*batches[number], rows[number], columns] for number in range(2)]
    matrices = norm == 2.0 and mode != 2 and (mode == 1 or max(rows) > _MATRIX_ROWS)
    if (matrices and (kind in ("offset", "coincident", "near") or columns < 4)) or (
        kind == "nonfinite" and (matrices or norm not in (1.0, 2.0, 3.0))
    ):
        kind = "lattice"
    fill = {"coincident": "thousands", "near": "about_one"}.get(kind, kind)
    one, other = (tensor(draw, name, dtype, shape, (fill,)) for name, shape in zip(("x1", "x2"), shapes, strict=True))
    if kind == "near":  # near to each other, and far from zero
        one, other = one + 1000, other + 1000
    if kind == "coincident" and one.numel() and other.numel():
        row = one.reshape(-1, columns)[:1]
        other = torch.where(torch.arange(rows[1]).unsqueeze(1) % 2 == 0, row, other)
    return Call([one, other, norm, mode])


def _pdist(draw: Draw) -> Call:
    dtype = draw.pick("dtype", WIDE_FLOATS)
    norm = draw.pick("p", _NORMS)
    rows = draw.pick("rows", (3, 2, 4, 5, 1, 17, 33, 0))
    columns = draw.pick("columns", (3, 1, 2, 4, 7, 8, 9, 16, 17, 65, 1025, 0))
    kind = draw.pick("values", ("lattice", "normal", "halves", "offset", "nonfinite"))
    if kind == "nonfinite" and norm not in (1.0, 2.0, 3.0):
        kind = "ties"
    made = tensor(draw, "self", dtype, [rows, columns], (kind,), ("contiguous", "guarded"))
    return Call([made] if norm == 2.0 and draw.flag("no p") else [made, norm])


def _wrong_cdists() -> Sequence[Sequence[Any]]:
    one, other = torch.ones(3, 4), torch.ones(2, 4)
    return (
        [one, other, -1.0, None],
        [one, other, 2.0, 3],
        [one, other[:, :3], 2.0, None],
        [one[0], other, 1.0, None],
        [one, other[0], 1.0, None],
        [one, other.double(), 1.0, None],
        [one.long(), other.long(), 2.0, None],
        [torch.ones(2, 3, 4), torch.ones(3, 2, 4), 2.0, None],
    )


SPECS: dict[str, Spec] = {
    "aten.mm.default": Spec(_mm, _summed(0), refused=_refused_product([], False)),
    "aten.bmm.default": Spec(_bmm, _summed(0), refused=_refused_product([2], False)),
    "aten.addmm.default": Spec(_addmm, _summed(1), refused=_refused_product([], True)),
    "aten.convolution.default": Spec(_conv, _summed(1), refused=wrong(_wrong_convolutions)),
    "aten.convolution_backward.default": Spec(_conv_backward, _summed(0, 1), optional=not_asked_for),
    "aten._cdist_forward.default": Spec(_cdist, _near_distance, refused=wrong(_wrong_cdists)),
    "aten._pdist_forward.default": Spec(
        _pdist, _near_distance, refused=wrong(lambda: [[torch.ones(3), 2.0], [torch.ones(3, 4).t(), 2.0]])
    ),
}
