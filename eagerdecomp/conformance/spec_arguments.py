"""Draw arguments for the specs of several families: shapes that broadcast, dims, scalars, operands."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, HALVES, LAYOUTS, in_layout, shape, tensor
from eagerdecomp.conformance.spec import Call

__all__ = [
    "COARSE",
    "COMPLEX_FILLS",
    "FILLS",
    "OPERAND_PAIRS",
    "OUTPUT_MASKS",
    "alike",
    "fills_of_pair",
    "as_index",
    "broadcasting",
    "dim_of",
    "dims_of",
    "factory_options",
    "indices",
    "left_out",
    "not_asked_for",
    "number",
    "some_sizes",
    "spoilt",
    "roundings",
    "pair",
    "several",
    "two",
    "with_number",
    "wrong",
    "wrong_variants",
    "wrong_on_tensor",
]


def broadcasting(draw: Draw, name: str, whole: Sequence[int]) -> list[int]:
    """Draw sizes that broadcast to `whole`: the same, with fewer leading dimensions, with ones, or 0-dim."""
    kind = draw.pick(name, ("same", "scalar", "leading", "ones", "one element"))
    if kind == "scalar" or not whole:
        return [] if kind == "scalar" else list(whole)
    if kind == "leading":
        return list(whole[1 + draw.below(len(whole)) :])
    if kind == "ones":
        place = draw.below(len(whole))
        return [1 if number == place else size for number, size in enumerate(whole)]
    return [1] * len(whole) if kind == "one element" else list(whole)


def dim_of(draw: Draw, name: str, rank: int) -> int:
    """Draw a dimension of a tensor of this rank, counted from either end; for 0-dim tensors 0 or -1."""
    rank = max(rank, 1)
    options: list[int] = [*range(rank), *range(-1, -rank - 1, -1)]
    return draw.pick(f"{name} of {rank}", options)


def dims_of(draw: Draw, name: str, rank: int, *, empty: bool = True) -> list[int]:
    """Draw several different dimensions in any order, counted from either end."""
    if rank == 0:
        return draw.pick(name, ([], [0], [-1])) if empty else draw.pick(name, ([0], [-1]))
    found = [dim for dim in range(rank) if draw.flag(f"{name}.{dim}")]
    if not found and not empty:
        found = [draw.below(rank)]
    if len(found) > 1 and draw.flag(f"{name} turned"):
        found.reverse()
    return [dim - rank if draw.flag(f"{name} negative") else dim for dim in found]


def several(draw: Draw, name: str, count: int, options: Sequence[int]) -> list[int]:
    """Draw `count` numbers from the options; often all are equal."""
    first = draw.pick(name, options)
    same = count == 1 or not draw.flag(f"{name} differ")
    return [first] * count if same else [first, *(draw.pick(f"{name}.{number}", options) for number in range(1, count))]


def alike(draw: Draw, sizes: Sequence[int]) -> list[int]:
    """Return the sizes, in some calls all equal to the largest: a kernel that swaps dimensions then computes wrong values."""
    unlike = len(set(sizes)) > 1
    return [max(sizes)] * len(sizes) if unlike and draw.pick("sizes alike", (False, False, True)) else list(sizes)


def left_out(draw: Draw, args: Sequence[Any], defaults: Sequence[Any]) -> list[Any]:
    """Return the arguments, in some calls without the last ones that equal their `defaults` (those of the last arguments)."""
    found, left = list(args), list(defaults)
    if draw.flag("defaults left out"):
        while left and type(found[-1]) is type(left[-1]) and found[-1] == left[-1]:
            found.pop()
            left.pop()
    return found


def as_index(draw: Draw, name: str, values: Tensor, layouts: Sequence[str] = LAYOUTS) -> Tensor:
    """Convert integers to an index tensor of dtype int64 or int32, with any strides."""
    dtype = draw.pick(f"{name}.dtype", (torch.int64, torch.int32))
    layout = draw.pick(f"{name}.layout", layouts)
    return in_layout(values.to(dtype).reshape(-1), list(values.shape), layout)


def indices(
    draw: Draw, name: str, sizes: Sequence[int], size: int, *, negative: bool = False, layouts: Sequence[str] = LAYOUTS
) -> Tensor:
    """Draw indices into a dimension of this size; if `negative`, some are counted from the end."""
    kind = draw.pick(f"{name}.kind", ("random", "ascending", "same", "ends", "last"))
    draws = draw.generator()
    count = math.prod(sizes)
    found = torch.randint(max(size, 1), (count,), generator=draws)
    if kind == "ascending":
        found = torch.arange(count) % max(size, 1)
    elif kind == "same" and count:
        found = found[:1].repeat(count)
    elif kind == "ends":
        found = (found % 2) * (size - 1)
    elif kind == "last":
        found = torch.full((count,), size - 1)
    if negative and draw.flag(f"{name}.negative"):
        found = torch.where(torch.rand(count, generator=draws) < 0.5, found, found - size)
    return as_index(draw, name, found.reshape(list(sizes)), layouts)


def _out_of_range(draw: Draw, size: int, *, negative: bool = False) -> int:
    """Draw an index outside a dimension of this size, too small or too large."""
    below = -size - 1 if negative else -1
    return draw.pick("out of range", (size, below, size + 5, below, 2**33))


def some_sizes(draw: Draw) -> list[int]:
    """Draw the sizes of a tensor for a call that must raise."""
    return list(draw.pick("sizes", ([3, 4], [5], [2, 3, 5], [1, 1], [257, 3], [1031], [2, 1, 3, 2], [4, 300])))


def spoilt(draw: Draw, index: Tensor, size: int, *, negative: bool = False) -> Tensor:
    """Return the indices with one of them outside a dimension of this size."""
    place, value = draw.below(index.numel()), _out_of_range(draw, size, negative=negative)
    found = index.clone().flatten()
    found[place] = value if abs(value) <= torch.iinfo(index.dtype).max else size
    return found.reshape(index.shape)


#: All masks for three gradients.
OUTPUT_MASKS = tuple([bool(number & 4), bool(number & 2), bool(number & 1)] for number in range(7, -1, -1))


def not_asked_for(call: Call) -> list[int]:
    """Return the results that the mask, the last argument of a call, does not request."""
    return [number for number, asked in enumerate(call.args[-1]) if not asked]


def wrong(calls: Callable[[], Sequence[Sequence[Any]]]) -> Callable[[Draw], Call]:
    """Return a function that draws a call from lists of arguments. A dict at the end of a list contains the keyword arguments.

    `calls` creates new lists for each draw.
    """

    def call(draw: Draw) -> Call:
        *args, last = draw.pick("wrong", calls())
        return Call(args, last) if isinstance(last, dict) else Call([*args, last])

    return call


def wrong_variants(args: Sequence[Any], *changes: Mapping[int, Any]) -> Sequence[Sequence[Any]]:
    """Return a list of arguments for each change, a mapping from positions to values."""
    return [[change.get(place, value) for place, value in enumerate(args)] for change in changes]


def wrong_on_tensor(sizes: Sequence[int], *rests: Sequence[Any]) -> Callable[[Draw], Call]:
    """Return a function that draws a call with a tensor of these sizes and one of the lists of further arguments."""
    return wrong(lambda: [(torch.arange(float(math.prod(sizes))).view(sizes), *rest) for rest in rests])


# -- operands ----------------------------------------------------------------------------------------------------------------

# If the result dtype of two operands cannot represent the values of one of them, right kernels may round earlier or later. Operands
# of such calls are numbers that every dtype represents.

FILLS = ("normal", "special", "lattice", "wide", "ties", "hundreds", "small", "nonfinite")

#: Values that every float dtype represents.
COARSE = ("lattice", "halves", "quarters", "ties")

#: Without infinite and very large complex numbers, for which right kernels return different values.
COMPLEX_FILLS = ("normal", "lattice", "quarters", "small", "signed_uniform")

#: The pairs of operands to draw: same or mixed dtypes, and which of them is 0-dim.
OPERAND_PAIRS = ("same", "mixed", "scalar", "mixed scalar", "itself", "scalar self", "mixed scalar self", "scalars")
_MEETINGS = (*OPERAND_PAIRS, "same", "mixed", "same", "same")

# Sizes of the operands: drawn, equal values in both, every pair of values (grid), rows of whole and broken SIMD vectors, with ones
# inside, or very large.
_EXTENTS = (*("drawn", "alike", "grid", "rows", "inside", "inside") * 6, "large")
_MIXED_EXTENTS = (*("drawn", "drawn", "grid", "grid", "inside") * 5, "large")
_COMPARED_EXTENTS = ("drawn", "alike", "grid", "alike", "inside")

#: Sizes of contiguous operands whose rows are whole SIMD vectors or end in a broken one.
ROWS = ([16], [17], [64], [33], [3, 24], [2, 32], [65], [3, 17])

_INSIDE = (([2, 3, 4, 5], [2, 3, 4, 1]), ([4, 3, 5], [4, 1, 5]), ([2, 3, 1, 5], [2, 1, 4, 5]), ([2, 3, 4, 5], [3, 1, 1]))
#: Pairs of sizes that broadcast in a dimension behind the first one.
INSIDE = (*_INSIDE, *((other, one) for one, other in _INSIDE))

# Pairs of dtypes with different ranges or digits.
_OPPOSED = ((torch.uint8, torch.int8), (torch.int8, torch.uint8), (torch.int64, torch.int32), *((torch.int64, torch.float32),) * 2)

# Layouts without overlapping elements.
_APART = ("contiguous", "guarded", "strided")


def pair(
    draw: Draw,
    dtypes: Sequence[torch.dtype],
    fills: Sequence[str] = FILLS,
    *,
    finite: bool = True,
    scalars: Sequence[str] | None = None,
    names: tuple[str, str] = ("self", "other"),
    compared: bool = False,
) -> tuple[Tensor, Tensor]:
    """Draw two tensors.

    Args:
        draw: makes the random choices.
        dtypes: the dtypes of both.
        fills: the fills of both.
        finite: whether both tensors have neither infinite nor very large values if one of them is complex.
        scalars: the fills of the second tensor if it is 0-dim.
        names: the names of both in the choices.
        compared: whether they are compared, so that integers are rounded to the other dtype first, and not the result.
    """
    operands = draw.pick("operands", _MEETINGS)
    dtype = draw.pick("dtype", dtypes)
    kind = draw.pick("other dtype", dtypes) if "mixed" in operands else dtype
    opposed = [both for both in _OPPOSED if set(both) <= set(dtypes)]
    if operands == "mixed" and opposed and draw.pick("opposed", (False, True, True)):
        dtype, kind = draw.pick("opposed dtypes", opposed)
    if dtype.is_complex or kind.is_complex:  # with float16 the result would be complex32, which few backends support
        dtype, kind = (torch.float32 if one is torch.float16 else one for one in (dtype, kind))
    first, second = fills_of_pair(dtype, kind, fills, finite)
    if compared and operands == "mixed":
        first, second = ((fills if one is _EXACT_INTEGERS else one) for one in (first, second))
    if "scalar" in operands:
        sizes = [] if operands == "scalars" else shape(draw)
        if operands.endswith("self"):
            first = _scalar_fills(dtype, kind, first)
            return tensor(draw, names[0], dtype, [], first), tensor(draw, names[1], kind, sizes, second)
        second = _scalar_fills(kind, dtype, second if scalars is None else scalars)
        return tensor(draw, names[0], dtype, sizes, first), tensor(draw, names[1], kind, [], second)
    rounded = compared and operands == "mixed" and _is_integral(dtype)
    extent = draw.pick("extent", _COMPARED_EXTENTS if rounded else _EXTENTS if operands != "mixed" else _MIXED_EXTENTS)
    if extent == "alike":
        made = tensor(draw, names[0], dtype, [101], _hardest(first), _APART)
        return made, made if operands == "itself" else made.to(kind) if rounded else _alike(draw, made)
    layouts: Sequence[str] = LAYOUTS
    if extent == "rows":
        sizes = other = draw.pick("rows", ROWS)
        layouts = ("contiguous",)
    elif extent == "inside":
        sizes, other = draw.pick("inside", INSIDE)
    elif extent == "large":
        sizes, other = draw.pick("large sizes", (([65537], [65537]), ([300, 257], [257]), ([260, 1], [1, 259])))
        first = second = ("lattice", "ties")
    elif extent == "grid":
        sizes, other = draw.pick("grid", (([61, 1], [1, 67]), ([97], [89, 1])))
        first, second = _hardest(first), _hardest(second)
    else:
        sizes = shape(draw)
        other = sizes if operands == "itself" else broadcasting(draw, f"{names[1]}.sizes", sizes)
        if other != sizes and draw.flag("turned"):
            sizes, other = other, sizes
    made = tensor(draw, names[0], dtype, sizes, first, layouts)
    return made, made if operands == "itself" else tensor(draw, names[1], kind, other, second, layouts)


_BITS = {2: torch.int16, 4: torch.int32, 8: torch.int64}


def _alike(draw: Draw, values: Tensor) -> Tensor:
    """Return the same values; some are replaced by a neighbouring number, and some zeros by one of the other sign."""
    made = values.clone()
    fate = torch.randint(6, values.shape, generator=draw.generator())
    if values.is_floating_point():
        bits = made.view(_BITS[made.element_size()])
        # Infinity is not replaced: next to the largest number, a product overflows if a kernel rounds it before the addition.
        bits += ((fate == 0).to(bits.dtype) - (fate == 1).to(bits.dtype)) * values.isfinite()
        return torch.where((fate == 2) & (values == 0), -values, made)
    if values.dtype is torch.bool or values.is_complex():
        return torch.where(fate == 0, values.flip(0), made)
    return made + (fate == 0).to(values.dtype) - (fate == 1).to(values.dtype)


def fills_of_pair(
    dtype: torch.dtype, kind: torch.dtype, fills: Sequence[str], finite: bool = True
) -> tuple[Sequence[str], Sequence[str]]:
    """Return the fills of two tensors of these dtypes."""
    if finite and (dtype.is_complex or kind.is_complex):
        return COMPLEX_FILLS, COMPLEX_FILLS
    return _fills_beside(dtype, kind, fills), _fills_beside(kind, dtype, fills)


def _fills_beside(dtype: torch.dtype, other: torch.dtype, fills: Sequence[str]) -> Sequence[str]:
    """Return the fills of a tensor of `dtype` that is combined with one of dtype `other`."""
    if other in HALVES and dtype not in HALVES:
        return COARSE
    return _EXACT_INTEGERS if _is_integral(dtype) and not _is_integral(other) else fills


# Fills of integers that float32 represents.
_EXACT_INTEGERS = ("lattice", "digits", "ties")


def _is_integral(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex)


def _scalar_fills(scalar: torch.dtype, other: torch.dtype, fills: Sequence[str]) -> Sequence[str]:
    """Return the fills of a 0-dim tensor, which is cast to the other dtype if both are of the same kind."""
    if scalar is other:
        return fills
    whole = not (scalar.is_floating_point or scalar.is_complex or other.is_floating_point or other.is_complex)
    return ("ties", "ones") if whole else COARSE


def _hardest(fills: Sequence[str]) -> Sequence[str]:
    return ("special", "wide") if "special" in fills else fills


def two(dtypes: Sequence[torch.dtype] = ALL, fills: Sequence[str] = FILLS, **more: Any) -> Callable[[Draw], Call]:
    """Return a function that draws a call with two tensors."""
    return lambda draw: Call(pair(draw, dtypes, fills, **more))


_WHOLE = (2, 3, 0, -1, 7, -5, 1, 100, -2, 4)
_OF_KIND: dict[str, Sequence[Any]] = {
    "float": (0.5, -2.5, 0.1, 3.0, 0.0, 1e-3, -7.25, math.pi, -0.0),
    "plain": (0.5, -2.5, 3.0, 0.0, -7.25, 0.25, 1.5),  # exact in every float dtype
    "int": _WHOLE,
    "bool": (True, False),
    "limit": (math.inf, math.nan, -math.inf),
    "complex": (1 + 2j, -0.5j, 2 + 0j),
    "fraction": (0.1, 0.09997, -1 / 3, math.pi, 1 + 2.0**-30, -2.7, 1e-3),  # not exact in any float dtype, or only in the widest
}
_LARGE = {torch.int64: (2**24 + 1, 2**53 + 1, 2**40, -(2**62)), torch.int32: (2**24 + 1, 2**30, 11, 13)}
# Integers near the limit up to which the dtype, or the next narrower one, represents every integer.
_EDGES = {
    **dict.fromkeys((torch.float32, torch.complex64, torch.int32), (2**24, 2**24 + 1, -(2**24) - 1, 2**24 - 1)),
    **dict.fromkeys((torch.float64, torch.complex128), (2**53, 2**53 + 1, -(2**53) - 1, 2**24 + 1)),
    torch.int64: (2**53, 2**53 + 1, 2**24, -(2**53) - 1, 2**63 - 2),
    **dict.fromkeys((torch.float16, torch.int16), (2048, 2049, -2049, 257)),
    torch.bfloat16: (256, 257, -257),
    torch.uint8: (127, 128, 200, 254),
    torch.int8: (126, -127, 100),
    torch.bool: (1, 0),
}


def number(draw: Draw, dtype: torch.dtype, kinds: Sequence[str], *, but: Sequence[int] = (), least: float = -math.inf) -> Any:
    """Draw a Python scalar for a tensor of a dtype.

    Args:
        draw: makes the random choices.
        dtype: the dtype of the tensor.
        kinds: some of ``float``, ``plain`` (floats that every dtype represents), ``fraction`` (floats that no dtype represents
            exactly), ``int``, ``large`` (large integers), ``edge`` (near the largest integer up to which the dtype represents all),
            ``bool``, ``limit`` (infinity and NaN) and ``complex``.
        but: excluded values.
        least: the minimum.
    """
    kind = draw.pick("number", kinds)
    if (kind == "complex" and dtype in HALVES) or (kind == "limit" and dtype.is_complex):
        kind = "int"
    if kind == "large":
        options: Sequence[Any] = _LARGE.get(dtype, (11, 13))
    elif kind == "edge":
        options = _EDGES[dtype]
    else:
        options = _OF_KIND[kind]
    if kind != "complex":
        options = [one for one in options if one not in but and not one < least]
    return draw.pick(f"number {kind}", options)


def _around(values: Tensor, other: Any, steps: bool) -> Tensor:
    """Replace some values by a number and numbers near it; with `steps` also by the adjacent floats."""
    known = torch.tensor(other)
    if values.dtype is torch.bool or not torch.can_cast(known.dtype, values.dtype):
        return values
    near: list[Any]
    if not values.is_floating_point() and not values.is_complex():
        info = torch.iinfo(values.dtype)
        near = [one for one in (int(other), int(other) + 1, int(other) - 1) if info.min <= one <= info.max]
    else:
        near = [other, -other, 2 * other]
        if steps and values.is_floating_point() and math.isfinite(other) and other:
            bits = torch.tensor([other], dtype=values.dtype).view(_BITS[values.element_size()])
            near += [(bits + step).view(values.dtype).item() for step in (1, -1)]
    for place, one in enumerate(near):
        values[place::7] = one
    return values


def with_number(
    kinds: Sequence[str],
    dtypes: Sequence[torch.dtype] = ALL,
    fills: Sequence[str] = FILLS,
    *,
    finite: bool = True,
    limited: bool = False,
    compared: bool = False,
    but: Sequence[int] = (),
) -> Callable[[Draw], Call]:
    """Return a function that draws a call with a tensor and a scalar.

    Args:
        kinds, but: see `number`.
        dtypes, fills, finite: properties of the tensor, see `pair`.
        limited: no negative scalar for unsigned dtypes, and only exact ones for float16 and bfloat16.
        compared: the tensor often contains the scalar, rounded to its dtype, and adjacent numbers.
    """
    extents = ("drawn", "around", "around") if compared else ("drawn", "drawn", "around")
    whole = [one for one in kinds if one in ("int", "large")]
    many_digits = (False, False, False, True) if whole else (False,)

    def call(draw: Draw) -> Call:
        if draw.pick("many digits", many_digits):  # which float32 rounds
            dtype = draw.pick("dtype of many digits", (torch.int32, torch.int64))
            return Call([tensor(draw, "self", dtype, [33], _hardest(fills)), number(draw, dtype, whole, but=but)])
        dtype = draw.pick("dtype", dtypes)
        coarse = _is_integral(dtype) or (limited and dtype in HALVES)
        asked = [one if one != "float" else "plain" for one in kinds] if coarse else kinds
        least = 0.0 if limited and dtype is torch.uint8 else -math.inf
        other = number(draw, dtype, asked, least=least, but=but)
        complexes = finite and (dtype.is_complex or isinstance(other, complex))
        chosen = COMPLEX_FILLS if complexes else fills
        if _is_integral(dtype) and isinstance(other, (float, complex)):
            chosen = _EXACT_INTEGERS
        if draw.pick("extent", extents) == "around":
            return Call([_around(tensor(draw, "self", dtype, [307], _hardest(chosen), _APART), other, compared), other])
        return Call([tensor(draw, "self", dtype, shape(draw), chosen), other])

    return call


def roundings(dtype: torch.dtype, count: int) -> float:
    """Return the allowed error of `count` roundings to float16 or bfloat16, in float32 units; 0 for other dtypes."""
    return (1 + math.sqrt(count)) * torch.finfo(dtype).eps / 2 * 2.0**23 if dtype in HALVES else 0.0


def factory_options(draw: Draw, dtypes: Sequence[torch.dtype | None]) -> dict[str, Any]:
    """Draw the keyword arguments of every factory (dtype, layout, device, pin_memory), some of them omitted."""
    options: dict[str, Any] = {}
    dtype = draw.pick("dtype", dtypes)
    if dtype is not None or draw.flag("dtype said"):
        options["dtype"] = dtype
    for name, value in (("layout", torch.strided), ("device", torch.device("cpu")), ("pin_memory", False)):
        said = draw.pick(name, ("left out", "said", "none"))
        if said != "left out":
            options[name] = value if said == "said" else None
    return options
