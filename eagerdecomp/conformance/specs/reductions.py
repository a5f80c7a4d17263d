"""Specs of reductions, scans and sorts."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.accuracy import is_repeated, one_by_one
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, COMPLEX, FLOATS, HALVES, NUMBERS, SIZES, shape, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import dim_of, dims_of, left_out, roundings

__all__ = ["SPECS", "STABLE_SORT"]

# Common dtypes are tested more often.
_NUMBERS = (torch.float32, *NUMBERS)
_ORDERED = (*_NUMBERS, torch.bool)
_ALL = (torch.float32, *ALL)
_ADDED_UP = (torch.float32, torch.float32, torch.bfloat16, torch.float16, *ALL)
_INEXACT = (torch.float32, *FLOATS, *COMPLEX)
_LINES = (*(size for size in SIZES if size > 12), 17, 33, 16, 32)

# Sizes at which sums or counts in a narrow dtype go wrong.
_HUGE = ([100_003], [3, 40_009], [40_009, 3], [2, 20_011, 3])

# Values whose sums are exact in any order.
_WHOLE = frozenset({"lattice", "positive_lattice", "ties", "ones", "zeros", "halves", "quarters"})
_COMPARED = ("normal", "lattice", "nonfinite", "ties", "special", "wide", "ones", "extremes", "limits", "signed_zeros", "last")
_WHOLE_SUMMED = ("lattice", "extremes", "ones", "wide", "digits")
_SUMMED = ("lattice", "normal", "positive_lattice", "nonfinite", "offset", "quarters", "thousands", "small", "limits", "uniform")


def _sizes(draw: Draw, most: int = 8, huge: Sequence[Sequence[int]] = _HUGE) -> list[int]:
    kind = draw.pick("sizes", ("any", "line", "any", "square", "line", "any", "line", "square", "any", "line", "huge"))
    if kind == "line":
        return [draw.pick("line", _LINES)]
    if kind == "square":
        return [draw.pick("square.size", (3, 2, 4, 8))] * draw.pick("square.rank", (2, 3))
    return list(draw.pick("huge.shape", huge)) if kind == "huge" else shape(draw, most=most)


def _dim(draw: Draw, self: Tensor) -> int:
    """Draw a dimension to reduce, often the longest."""
    dim = dim_of(draw, "dim", self.dim())
    return max(range(self.dim()), key=lambda one: self.shape[one]) if self.dim() and draw.flag("the longest") else dim


def _summed(draw: Draw, dtype: torch.dtype, fills: Sequence[str], *, nonfinite: bool = True) -> tuple[Tensor, str]:
    """Draw a tensor to sum, and return it with its fill. Without values whose partial sums overflow in some orders only."""
    inexact = dtype.is_floating_point or dtype.is_complex
    kind = draw.pick("values" if inexact else "whole values", fills)
    if not nonfinite and inexact and kind in ("nonfinite", "infinite", "limits"):
        kind = "normal"
    return tensor(draw, "self", dtype, _sizes(draw), (kind,)), kind


def _keyword(draw: Draw, name: str, value: Any, default: Any = None) -> dict[str, Any]:
    return {} if value is default and draw.flag(f"{name} left out") else {name: value}


def _dims(draw: Draw, self: Tensor, nothing: Sequence[Any]) -> Any:
    """Draw dimensions to reduce, or one of the arguments in `nothing`, which stand for all dimensions."""
    kind = draw.pick("dims", ("some", "one", *(str(one) for one in nothing), "some"))
    if kind == "one":
        return [_dim(draw, self)]
    return dims_of(draw, "dim", self.dim(), empty=False) if kind == "some" else (None if kind == "None" else [])


def _bad_dims(draw: Draw, rank: int) -> list[int]:
    return draw.pick("bad dims", ([max(rank, 1)], [-max(rank, 1) - 1], [0, 0], [0, -max(rank, 1)]))


def _bad_dim(draw: Draw, rank: int) -> int:
    return draw.pick("bad dim", (max(rank, 1), -max(rank, 1) - 1, rank + 7))


def _square(draw: Draw, dtype: torch.dtype) -> Tensor:
    """Draw a small tensor for a call that must raise."""
    return tensor(draw, "self", dtype, draw.pick("sizes", ([2, 3], [4], [2, 1, 3])), ("lattice",))


# -- maxima ------------------------------------------------------------------------------------------------------------------


def _extreme(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _ORDERED), _sizes(draw), _COMPARED)
    return Call(left_out(draw, [self, _dims(draw, self, ([],)), draw.flag("keepdim")], [[], False]))


def _extreme_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("dims", "empty", "all of nothing"))
    if kind == "dims":
        self = _square(draw, torch.float32)
        return Call([self, _bad_dims(draw, self.dim()), draw.flag("keepdim")])
    return Call([torch.empty(0, 3), [0] if kind == "empty" else [], draw.flag("keepdim")])


def _place(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _NUMBERS), _sizes(draw), _COMPARED)
    dim = None if draw.flag("flat") else _dim(draw, self)
    return Call(left_out(draw, [self, dim, draw.flag("keepdim")], [None, False]))


def _place_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("dim", "empty", "all of nothing", "dtype"))
    if kind == "dtype":
        return Call([_square(draw, draw.pick("dtype", (torch.bool, torch.complex64)))])
    return _no_such_dim(draw, kind)


def _no_such_dim(draw: Draw, kind: str) -> Call:
    if kind == "dim":
        self = _square(draw, torch.float32)
        return Call([self, _bad_dim(draw, self.dim()), draw.flag("keepdim")])
    return Call([torch.empty(0, 3), 0 if kind == "empty" else None, draw.flag("keepdim")])


def _with_place(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _ORDERED), _sizes(draw), _COMPARED)
    return Call(left_out(draw, [self, _dim(draw, self), draw.flag("keepdim")], [False]))


def _with_place_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("dim", "empty", "dtype"))
    if kind == "dtype":
        return Call([_square(draw, torch.complex64), 0])
    return _no_such_dim(draw, kind)


# -- any ---------------------------------------------------------------------------------------------------------------------

_BOOLS = ("rare", "rare_nan", "last", "zeros", "lattice", "nonfinite", "special", "extremes", "ones", "small")


def _bools(draw: Draw) -> Tensor:
    return tensor(draw, "self", draw.pick("dtype", _ALL), _sizes(draw), _BOOLS)


def _any(draw: Draw) -> Call:
    return Call([_bools(draw)])


def _any_dim(draw: Draw) -> Call:
    self = _bools(draw)
    return Call(left_out(draw, [self, _dim(draw, self), draw.flag("keepdim")], [False]))


def _any_dims(draw: Draw) -> Call:
    self = _bools(draw)
    return Call(left_out(draw, [self, _dims(draw, self, (None, [])), draw.flag("keepdim")], [None, False]))


def _dim_refused(draw: Draw) -> Call:
    return _no_such_dim(draw, "dim")


def _dims_refused(draw: Draw) -> Call:
    self = _square(draw, torch.float32)
    return Call([self, _bad_dims(draw, self.dim())])


# -- sums --------------------------------------------------------------------------------------------------------------------


def _sum_dtypes(dtype: torch.dtype) -> tuple[torch.dtype | None, ...]:
    if dtype.is_complex:
        return (None, None, torch.complex128, torch.complex64)
    floats = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    return (*[None] * 20, *floats, *COMPLEX, torch.int64, torch.int32, torch.int8, torch.bool)


def _fitting(dtype: torch.dtype, to: torch.dtype | None, fills: Sequence[str]) -> Sequence[str]:
    """Return fills that a dtype represents. For other values eager's result is undefined, or depends on when they are rounded."""
    if not (dtype.is_floating_point or dtype.is_complex):
        if to in HALVES:
            return ("lattice", "ones")
        return ("units", *_WHOLE_SUMMED) if "units" in fills else _WHOLE_SUMMED
    if to is None or to is dtype:
        return fills
    if to in HALVES:
        return ("lattice", "quarters", "limits")
    if to.is_floating_point or to.is_complex or dtype.is_complex:
        return fills
    return ("quarters", "lattice", "halves") if to is not torch.bool else ("quarters", "lattice", "halves", "limits")


def _exact(kind: str, dtype: torch.dtype, to: torch.dtype | None = None) -> bool:
    return kind in _WHOLE and to is not torch.bool


def _sum(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ADDED_UP)
    to = draw.pick(f"to of {dtype}", _sum_dtypes(dtype))
    self, kind = _summed(draw, dtype, _fitting(dtype, to, _SUMMED))
    args = left_out(draw, [self, _dims(draw, self, (None, [])), draw.flag("keepdim")], [False])
    return Call(args, _keyword(draw, "dtype", to), exact=_exact(kind, dtype, to))


def _mean_given(draw: Draw) -> tuple[Tensor, torch.dtype | None]:
    """Draw a tensor to average and a dtype. Means are never tested as exact, because some kernels use a running mean."""
    dtype = draw.pick("dtype", _ADDED_UP)
    inexact = dtype.is_floating_point or dtype.is_complex
    wide = COMPLEX if dtype.is_complex else (torch.float32, torch.float64, torch.bfloat16, torch.float16)
    to = draw.pick(f"to of {dtype}", (*[None] * 8, *wide) if inexact else wide)
    return _summed(draw, dtype, _fitting(dtype, to, _SUMMED), nonfinite=not dtype.is_complex)[0], to


def _mean(draw: Draw) -> Call:
    self, to = _mean_given(draw)
    return Call([self], _keyword(draw, "dtype", to))


def _mean_dim(draw: Draw) -> Call:
    self, to = _mean_given(draw)
    args = left_out(draw, [self, _dims(draw, self, (None, [])), draw.flag("keepdim")], [False])
    return Call(args, _keyword(draw, "dtype", to))


def _mean_refused(draw: Draw) -> Call:
    self = _square(draw, draw.pick("dtype", (torch.int64, torch.float32, torch.bool)))
    return Call([self], {"dtype": torch.int64} if self.is_floating_point() else {})


def _mean_dim_refused(draw: Draw) -> Call:
    if draw.flag("dims refused"):
        return _dims_refused(draw)
    call = _mean_refused(draw)
    return Call([*call.args, [0]], call.kwargs)


_MULTIPLIED = ("units", "lattice", "about_one", "limits", "nonfinite", "normal", "infinite", "ones", "halves")


# Fill -> replacement for large tensors, if products overflow, or multiply infinity by zero, in some orders only.
_IN_ANY_ORDER = {"nonfinite": "limits", "infinite": "about_one", "halves": "units", "lattice": "units", "quarters": "units"}


def _multiplied(draw: Draw) -> tuple[Tensor, torch.dtype | None]:
    """Draw a tensor for a product, and a dtype."""
    dtype = draw.pick("dtype", _ADDED_UP)
    to = draw.pick(f"to of {dtype}", _sum_dtypes(dtype))
    sizes = _sizes(draw)
    inexact = dtype.is_floating_point or dtype.is_complex
    fills = _fitting(dtype, to, _MULTIPLIED)
    kind = draw.pick("values" if inexact else "whole values", fills)
    if not inexact and to is not None and (to.is_floating_point or to.is_complex):
        inexact, kind = True, "units" if kind in ("wide", "extremes", "digits") else kind
    many = inexact and math.prod(sizes) > (7 if torch.float16 in (dtype, to) else 40)
    if dtype.is_complex or (to is not None and to.is_complex):
        kind = {"nonfinite": "units", "infinite": "about_one", "limits": "lattice"}.get(kind, kind)
    if many:
        kind = _IN_ANY_ORDER.get(kind, kind)
    if math.prod(sizes) > 5000 and kind == "about_one":
        kind = "units"
    return tensor(draw, "self", dtype, sizes, (kind,)), to


def _prod(draw: Draw) -> Call:
    self, to = _multiplied(draw)
    return Call([self], _keyword(draw, "dtype", to))


def _prod_dim(draw: Draw) -> Call:
    self, to = _multiplied(draw)
    args = left_out(draw, [self, _dim(draw, self), draw.flag("keepdim")], [False])
    return Call(args, _keyword(draw, "dtype", to))


def _near_product(call: Call) -> Near:
    dtype = call.kwargs.get("dtype") or call.args[0].dtype
    # Products of equal factors are all rounded in the same direction.
    count = call.args[0].numel()
    alike = count / 2 if is_repeated(call.args[0]) else math.sqrt(count)
    return Near(8 + alike + roundings(dtype, count**2), of="terms", zeros=False)


def _cumsum(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ADDED_UP)
    to = draw.pick(f"to of {dtype}", tuple(one for one in _sum_dtypes(dtype) if one is not torch.bool))
    self, kind = _summed(draw, dtype, _fitting(dtype, to, _SUMMED))
    return Call([self, _dim(draw, self)], _keyword(draw, "dtype", to), exact=_exact(kind, dtype, to))


def _near_scan(call: Call) -> Near:
    """Return the allowed error of a scan, from the number of terms of its last result."""
    self, dim = call.args
    count = self.shape[dim] if self.dim() else 1
    return Near(4 + max(3 * math.sqrt(count), count / 2 if is_repeated(self) else 0.0), of="terms", zeros=False)


# -- variances ---------------------------------------------------------------------------------------------------------------

_VARIED = ("normal", "offset", "lattice", "nonfinite", "ones", "small", "hundreds", "uniform", "positive_lattice")
_CORRECTIONS = (1, 0, None, 2, 0.5, 1.0, -1, 3, 2.75, 0.0, 5, 4100)


def _varied(draw: Draw) -> Tensor:
    dtype = draw.pick("dtype", _INEXACT)
    fills = tuple(one for one in _VARIED if one != "nonfinite") if dtype.is_complex else _VARIED
    return tensor(draw, "self", dtype, _sizes(draw), fills)


def _reduced(self: Tensor, dims: Sequence[int] | None) -> int:
    return math.prod(self.shape[dim] for dim in dims) if dims and self.dim() else self.numel()


def _var(draw: Draw) -> Call:
    self = _varied(draw)
    dims = _dims(draw, self, (None, []))
    correction = draw.pick("correction", _CORRECTIONS)
    if (correction or 0) >= _reduced(self, dims) > 1 and correction is not None:
        # The divisor is 0. If all values are equal, the rounding of the mean decides between infinity and NaN: draw other values.
        self = self.clone().normal_(generator=draw.generator())
    args = left_out(draw, [self, dims], [None])
    return Call(args, {**_keyword(draw, "correction", correction), **_keyword(draw, "keepdim", draw.flag("keepdim"), False)})


def _var_dim(draw: Draw) -> Call:
    self = _varied(draw)
    dims = _dims(draw, self, (None, []))
    return Call(left_out(draw, [self, dims, draw.pick("unbiased", (True, False)), draw.flag("keepdim")], [True, False]))


def _var_refused(draw: Draw) -> Call:
    if draw.flag("dtype refused"):
        return Call([_square(draw, draw.pick("dtype", (torch.int64, torch.bool))), [0]])
    return _dims_refused(draw)


def _near_variance(call: Call) -> Near:
    self = call.args[0]
    units = 8 + 2 * math.sqrt(self.numel())
    # For float64, the reference is eager's own result, from a running mean and variance (Welford).
    if self.dtype in (torch.float64, torch.complex128):
        units = 8 + max(6 * math.sqrt(self.numel()), self.numel() / 8)
    if not self.numel():
        return Near(units, of="inputs", zeros=False)
    # The variance of equal numbers is not 0 but the squared error of their mean.
    unit = torch.finfo(self.dtype).eps if self.dtype not in HALVES else torch.finfo(torch.float32).eps
    size = float(torch.nan_to_num(self.abs().double(), nan=0.0, posinf=0.0).max())
    off = unit * size * one_by_one(self.numel(), is_repeated(self))
    return Near(units, of="inputs", zeros=False, least=off * off / (units * unit))


# -- sorts -------------------------------------------------------------------------------------------------------------------

_SORTED_HUGE = ([33_001], [3, 9001], [9001, 3])
_SORTED = ("normal", "lattice", "nonfinite", "ties", "signed_zeros", "special", "wide", "extremes", "ones")


def _sort(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _ORDERED), _sizes(draw, 4, _SORTED_HUGE), _SORTED)
    return Call(left_out(draw, [self, _dim(draw, self), draw.flag("descending")], [-1, False]))


def _stable_sort(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ORDERED)
    self = tensor(draw, "self", dtype, _sizes(draw, 4, _SORTED_HUGE), (*_SORTED, "ties", "lattice"))
    named: dict[str, Any] = {"stable": draw.pick("stable", (True, False, True, None, True))}
    if draw.pick("more given", (False, True, True, True)):
        named |= {"dim": _dim(draw, self), "descending": draw.pick("descending", (True, False, True))}
    return Call([self], named)


def _stable_sort_refused(draw: Draw) -> Call:
    self = _square(draw, torch.float32)
    return Call([self], {"stable": draw.flag("stable"), "dim": _bad_dim(draw, self.dim())})


def _stable_sort_wrong(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    if call.kwargs["stable"] and not torch.equal(want[1], have[1]):
        return "equal elements do not stay in order"
    return _picked_wrong(call.args[0], call.kwargs.get("dim", -1), *have)


def _sort_refused(draw: Draw) -> Call:
    self = _square(draw, torch.float32)
    return Call([self, _bad_dim(draw, self.dim()), draw.flag("descending")])


def _alike(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | ((one != one) & (other != other))


def _gathered(x: Tensor) -> Tensor:
    """Return the values in a dtype that eager's `gather` takes."""
    if x.dtype in (torch.uint16, torch.uint32):
        return x.to(torch.int64)
    return x.view(torch.int64) if x.dtype is torch.uint64 else x.float() if x.is_floating_point() and x.itemsize == 1 else x


def _picked_wrong(self: Tensor, dim: int, values: Tensor, indices: Tensor) -> str | None:
    """Return what is wrong with the indices of values: ties may have any order, each index occurs once."""
    if not indices.numel():
        return None
    size = self.shape[dim] if self.dim() else 1
    if bool((indices < 0).any()) or bool((indices >= size).any()):
        return f"an index is out of range: {int(indices.min())} to {int(indices.max())}, of {size}"
    if self.dim() and bool((indices.sort(dim)[0].diff(dim=dim) == 0).any()):
        return "an element is picked twice"
    self, values = _gathered(self), _gathered(values)
    there = self.gather(dim, indices)
    if not bool(_alike(there, values).all()):
        return "the indices are not those of the values"
    if values.is_floating_point() and bool(((values == 0) & (values.signbit() != there.signbit())).any()):
        return "the sign of a zero is not that of the element it comes from"
    return None


def _sort_wrong(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    dim = call.args[1] if len(call.args) > 1 else -1
    return _picked_wrong(call.args[0], dim, *have)


def _topk(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _NUMBERS), _sizes(draw, 4, _SORTED_HUGE), _SORTED)
    dim = _dim(draw, self)
    size = self.shape[dim] if self.dim() else 1
    k = min(draw.pick("k", (1, 2, size, 0, size - 1, size // 2, 5, 20)), size)
    args = [self, max(k, 0), dim, draw.pick("largest", (True, False)), draw.pick("sorted", (True, False))]
    return Call(left_out(draw, args, [-1, True, True]))


def _topk_refused(draw: Draw) -> Call:
    self = _square(draw, draw.pick("dtype", (torch.float32, torch.int64)))
    if draw.flag("dim refused"):
        return Call([self, 1, _bad_dim(draw, self.dim())])
    return Call([self, draw.pick("k", (self.shape[-1] + 1, -1, 100))])


def _topk_wrong(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    self = call.args[0]
    rest: list[Any] = [*call.args[1:], *[-1, True, True][len(call.args) - 2 :]]
    dim, ordered = rest[1], rest[3]
    (expected, _), (values, indices) = want, have
    if not ordered:
        expected, values_in_order = expected.sort(dim)[0], values.sort(dim)[0]
    else:
        values_in_order = values
    wrong = ~_alike(expected, values_in_order)
    if bool(wrong.any()):
        order = "in order" if ordered else "sorted"
        return f"{int(wrong.sum())} of {values.numel()} values wrong, {order}"
    return _picked_wrong(self, dim, values, indices)


def _cumsum_refused(draw: Draw) -> Call:
    self = _square(draw, torch.float32)
    return Call([self, _bad_dim(draw, self.dim())])


_SUMS = Near(4, of="terms", zeros=False)

SPECS: dict[str, Spec] = {
    **{f"aten.{name}.default": Spec(_extreme, EITHER_ZERO, refused=_extreme_refused) for name in ("amax", "amin")},
    **{f"aten.{name}.default": Spec(_place, EITHER_ZERO, refused=_place_refused) for name in ("argmax", "argmin")},
    **{f"aten.{name}.dim": Spec(_with_place, EITHER_ZERO, refused=_with_place_refused) for name in ("max", "min")},
    "aten.any.default": Spec(_any, EITHER_ZERO),
    "aten.any.dim": Spec(_any_dim, EITHER_ZERO, refused=_dim_refused),
    "aten.any.dims": Spec(_any_dims, EITHER_ZERO, refused=_dims_refused),
    "aten.sum.dim_IntList": Spec(_sum, _SUMS, refused=_dims_refused),
    "aten.mean.default": Spec(_mean, _SUMS, refused=_mean_refused),
    "aten.mean.dim": Spec(_mean_dim, _SUMS, refused=_mean_dim_refused),
    "aten.prod.default": Spec(_prod, _near_product),
    "aten.prod.dim_int": Spec(_prod_dim, _near_product, refused=_dim_refused),
    "aten.cumsum.default": Spec(_cumsum, _near_scan, refused=_cumsum_refused),
    "aten.var.correction": Spec(_var, _near_variance, refused=_var_refused),
    "aten.var.dim": Spec(_var_dim, _near_variance, refused=_var_refused),
    "aten.sort.default": Spec(_sort, EITHER_ZERO, refused=_sort_refused, any_values=(1,), check_results=_sort_wrong),
    "aten.topk.default": Spec(_topk, EITHER_ZERO, refused=_topk_refused, any_values=(0, 1), check_results=_topk_wrong),
}

#: Of an op beyond Core ATen.
STABLE_SORT = Spec(_stable_sort, EITHER_ZERO, refused=_stable_sort_refused, any_values=(1,), check_results=_stable_sort_wrong)
