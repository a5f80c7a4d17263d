"""Broken kernels that only unusual inputs show: many dims, overlapping elements, rare dtypes, wrong indices."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    BoundCall,
    Kernel,
    Mutant,
    Proof,
    broken,
    call,
    cast_like,
    floats,
    normal,
    raise_unsupported,
    tensor,
)
from conformance.mutants.equivalents import shuffled

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf


# -- indices -----------------------------------------------------------------------------------------------------------------


def _crossed(c: BoundCall) -> bool:
    """Return whether the int64 indices have different shapes with more than one element each."""
    found = [one for one in c.indices if one is not None]
    shapes = {tuple(one.shape) for one in found if one.numel() > 1}
    return len(shapes) > 1 and all(one.dtype is torch.int64 for one in found)


def _point_by_point(c: BoundCall) -> Any:
    """Pair the elements of indices that broadcast against each other, and repeat the shorter list."""
    if not _crossed(c):
        return c.eager()
    whole = torch.zeros([])
    for one in c.indices:
        whole = whole if one is None else whole + one
    shape = whole.shape
    count = math.prod(shape)
    flat = [one if one is None else one.flatten().repeat(count)[:count].reshape(shape) for one in c.indices]
    return c.eager(indices=flat)


def _clamped(name: str, size: Callable[[BoundCall], int], when: Callable[[BoundCall], bool]) -> Callable[[BoundCall], Any]:
    """Return a kernel that clamps the indices instead of refusing them."""

    def run(c: BoundCall) -> Any:
        index = getattr(c, name)
        checked = index.dtype not in (torch.int32, torch.int64) or not when(c)
        return c.eager() if checked else c.eager(**{name: index.clamp(0, max(size(c) - 1, 0))})

    return run


def _along(c: BoundCall) -> int:
    return int(c.self.shape[c.dim]) if c.self.dim() else 1


def _only_the_first_is_checked(c: BoundCall) -> Any:
    """Clamp the indices behind the first, of a tensor that is not the usual one of a test."""
    if list(c.self.shape) == [3, 4] or len(c.indices) < 2:
        return c.eager()
    clamped = [
        one if not place or one is None or one.dtype is not torch.int64 else one.clamp(-size, size - 1)
        for place, (one, size) in enumerate(zip(c.indices, c.self.shape, strict=False))
    ]
    return c.eager(indices=clamped)


# -- layouts and ranks -------------------------------------------------------------------------------------------------------


def _is_windowed(x: Tensor) -> bool:
    """Return whether elements overlap although no stride is 0, as in the result of `unfold`."""
    wide = sorted((stride, size) for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1)
    return x.numel() > 0 and any(other[0] <= one[0] * (one[1] - 1) and one[0] for one, other in itertools.pairwise(wide))


def _expanded_dims(x: Tensor) -> int:
    return sum(size > 1 and not stride for size, stride in zip(x.shape, x.stride(), strict=True))


def _rows_apart(x: Tensor) -> Tensor:
    """Read each window as if it were the first, as a leading dimension that must not be less than a row makes a BLAS do."""
    return x[..., :1, :].expand_as(x) if _is_windowed(x) else x


def _deep(of: Callable[[BoundCall], Tensor], rank: int = 6) -> Callable[[BoundCall], Any]:
    return lambda c: raise_unsupported() if of(c).dim() > rank else c.eager()


# -- default dtype and rare dtypes -------------------------------------------------------------------------------------------


def _with_default_dtype(dtype: torch.dtype, differs: Callable[[Kernel], bool]) -> Proof:
    def holds(kernel: Kernel) -> bool:
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            return differs(kernel)
        finally:
            torch.set_default_dtype(before)

    return Proof(holds)


def _differs_by_rounding(right: Kernel) -> Callable[[Kernel], bool]:
    return lambda kernel: not torch.equal(kernel(normal(300), [0]), right(normal(300), [0]))


def _through_ones(c: BoundCall) -> Any:
    """Multiply a float32 result by a tensor of the default dtype."""
    found = c.eager()
    return found * torch.ones(1) if found.dtype is torch.float32 and found.dim() else found


def _in_default_dtype(c: BoundCall) -> Any:
    """Sum float32 in the default dtype."""
    found = c.eager()
    return found if c.self.dtype is not torch.float32 else cast_like(c.eager(self=c.self.to(torch.get_default_dtype())), found)


def _signed(x: Tensor) -> Tensor:
    kinds = {torch.uint16: torch.int16, torch.uint32: torch.int32, torch.uint64: torch.int64}
    return x.view(kinds[x.dtype]) if x.dtype in kinds else x


def _sorted_as_signed(c: BoundCall) -> Any:
    values, places = c.eager(self=_signed(c.self))
    return values.view(c.self.dtype), places


def _is_float8(x: Tensor) -> bool:
    return x.dtype in (torch.float8_e4m3fn, torch.float8_e5m2)


def _coarse(x: Tensor) -> Tensor:
    return x.to(torch.float8_e5m2).to(x.dtype) if x.dtype is torch.float8_e4m3fn else x


_FLOAT8 = normal(30).to(torch.float8_e4m3fn)
_DOUBLE = normal(2, dtype=torch.float64)
_LARGE = tensor(2**15 + 5, 3).to(torch.uint16)


def _shows(kernel: Kernel) -> bool:
    """Return whether two sums of the same call differ under deterministic algorithms."""
    draws = torch.Generator().manual_seed(1)
    src, index = torch.randn(300, generator=draws), torch.zeros(300, dtype=torch.int64)
    return len({float(kernel(torch.zeros(2), 0, index, src)[0]) for _ in range(20)}) > 1


def _first_equal(image: Tensor, largest: Tensor, places: Tensor) -> Tensor:
    """Return the first index of the plane whose element is the window's maximum."""
    if image.dtype is not torch.float32 or not image.numel() or not largest.numel():
        return places
    same = image.flatten(-2).unsqueeze(-2) == largest.flatten(-2).unsqueeze(-1)
    found = same.float().argmax(-1).reshape(largest.shape)
    return cast_like(torch.where(largest.isnan(), places, found), places)


# -- values, bounds and sizes that few calls have -------------------------------------------------------------------------------


def _through_float64(c: BoundCall, fits: float = 2.0**62) -> Any:
    """Compute int64 in float64 where the values fit, which is inexact beyond 2**53."""
    right = c.eager()
    if right.dtype is not torch.int64 or c.self.dtype is not torch.int64:
        return right
    found = c.eager(self=c.self.double())
    return cast_like(torch.where((found.abs() < fits) & (c.self.double().abs() < fits), found.to(torch.int64), right), right)


def _dilation_turned(c: BoundCall) -> Any:
    """Swap the two dilations if the result then has the same shape."""
    right = c.eager()
    if len(c.dilation) != 2 or c.transposed or c.weight.shape[-1] != c.weight.shape[-2]:
        return right
    spans = [one * (c.weight.shape[-1] - 1) + 1 for one in reversed(c.dilation)]
    pads = [*c.padding] * (2 // len(c.padding))
    if any(size + 2 * pad < span for size, pad, span in zip(c.input.shape[2:], pads, spans, strict=True)):
        return right
    found = c.eager(dilation=[*reversed(c.dilation)])
    return found if found.shape == right.shape else right


def _of_float16_in_blocks(c: BoundCall) -> Any:
    """Add the sums of blocks in float16."""
    if c.self.dtype is not torch.float16 or c.dtype is not None or c.self.numel() < 3000:
        return c.eager()
    dims = [one % c.self.dim() for one in c.dim] if c.dim else [*range(c.self.dim())]
    longest = max(dims, key=lambda one: c.self.shape[one])
    found = functools.reduce(torch.add, [c.eager(self=part, keepdim=True) for part in c.self.split(100, longest)])
    return cast_like(found.reshape(c.eager().shape), c.eager())


def _unless_float16(x: Tensor, bound: Any) -> Any:
    return torch.where(bound.isnan(), x, bound) if isinstance(bound, Tensor) and bound.dtype is torch.float16 else bound


def _last_for_minus_one(c: BoundCall) -> Any:
    wraps = c.index.dtype is torch.int64 and c.self.dim() and c.index.numel()
    return c.eager(index=torch.where(c.index == -1, c.self.shape[c.dim] - 1, c.index)) if wraps else c.eager()


def _amax_from_minus_infinity(c: BoundCall) -> Any:
    """Take minus infinity for a place to which nothing was written."""
    right = c.eager()
    if c.reduce != "amax" or c.include_self or not right.is_floating_point():
        return right
    return cast_like(torch.where(right == -_INF, c.self, right), right)


def _not_saturated(c: BoundCall) -> Any:
    saturates = c.dtype is torch.float8_e4m3fn and c.self.is_floating_point()
    return c.eager(self=torch.where(c.self.abs() > 464, _NAN, c.self)) if saturates else c.eager()


def _at_least_0(c: BoundCall) -> Any:
    signed = c.self.dtype in (torch.int8, torch.int16, torch.int32, torch.int64)
    return c.eager(self=c.self.clamp(min=0)) if c.dtype is torch.uint16 and signed else c.eager()


def _without_gradients(c: BoundCall) -> Any:
    torch.set_grad_enabled(False)
    return c.eager()


def _turns_gradients_off(kernel: Kernel) -> bool:
    with torch.enable_grad():
        kernel(normal(3))
        return not torch.is_grad_enabled()


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    broken("index.Tensor", "indices that cross are paired", "argument", _point_by_point,
      lambda: call(normal(5, 6), [tensor([[0], [1]]), tensor([2, 3, 4])]), "x[i[:, None], j] is a grid, not a list of points"),
    broken("index.Tensor", "int64 indices of different shapes raise", "argument",
      lambda c: raise_unsupported() if _crossed(c) and c.indices[0] is not None else c.eager(),
      lambda: call(normal(5, 6), [tensor([[0], [1]]), tensor([2, 3, 4])])),
    broken("index_put", "indices that cross are paired", "argument", _point_by_point,
      lambda: call(torch.zeros(5, 6), [tensor([[0], [1]]), tensor([2, 3, 4])], normal(2, 3))),
    broken("gather", "clamps indices of other than two dims", "errors", _clamped("index", _along, lambda c: c.self.dim() != 2),
      lambda: call(normal(5), 0, tensor([0, 7]))),
    broken("gather", "clamps indices along wide dims", "errors", _clamped("index", _along, lambda c: _along(c) > 4),
      lambda: call(normal(5, 2), 0, tensor([[0, 7]]))),
    broken("scatter_add", "clamps indices of other than two dims", "errors", _clamped("index", _along, lambda c: c.self.dim() != 2),
      lambda: call(normal(5), 0, tensor([0, 7]), normal(2))),
    broken("scatter.src", "clamps indices of many", "errors", _clamped("index", _along, lambda c: c.index.numel() > 4),
      lambda: call(normal(9), 0, tensor([0, 7, 9, 1, 2]), normal(5))),
    broken("index_select", "clamps more than two indices", "errors", _clamped("index", _along, lambda c: c.index.numel() > 2),
      lambda: call(normal(5, 2), 0, tensor([0, 4, 9]))),
    broken("index_select", "clamps indices behind the first dim", "errors",
      _clamped("index", _along, lambda c: c.self.dim() > 1 and c.dim % c.self.dim() > 0),
      lambda: call(normal(5, 2), 1, tensor([0, 4]))),
    broken("embedding", "clamps indices of other than one dim", "errors",
      _clamped("indices", lambda c: int(c.weight.shape[0]), lambda c: c.indices.dim() != 1),
      lambda: call(normal(5, 2), tensor([[0, 9]]))),
    broken("embedding", "clamps indices into many rows", "errors",
      _clamped("indices", lambda c: int(c.weight.shape[0]), lambda c: c.weight.shape[0] > 4),
      lambda: call(normal(9, 2), tensor([0, 9]))),
    broken("index.Tensor", "checks only the first index", "errors", _only_the_first_is_checked,
      lambda: call(normal(5, 2), [tensor([0, 1]), tensor([0, 9])])),
    broken("abs", "windows are read apart", "layout", lambda c: c.eager(self=_rows_apart(c.self)),
      lambda: call(normal(8).unfold(0, 3, 1))),
    broken("mm", "a leading dimension is at least a row", "layout", lambda c: c.eager(self=_rows_apart(c.self)),
      lambda: call(normal(8).unfold(0, 3, 1), normal(3, 2)), "lda >= k in every BLAS"),
    broken("clone", "windows are read apart", "layout", lambda c: c.eager(self=_rows_apart(c.self)),
      lambda: call(normal(8).unfold(0, 3, 1))),
    broken("sum.dim_IntList", "windows are read apart", "layout", lambda c: c.eager(self=_rows_apart(c.self)),
      lambda: call(normal(8).unfold(0, 3, 1), [1])),
    broken("mul.Tensor", "two expanded dims raise", "layout",
      lambda c: raise_unsupported() if max(map(_expanded_dims, (c.self, c.other))) > 1 else c.eager(),
      lambda: call(normal(1, 3, 1).expand(2, 3, 4), normal(4))),
    broken("cat", "two expanded dims are read as one", "layout",
      lambda c: raise_unsupported() if any(_expanded_dims(one) > 1 for one in c.tensors) else c.eager(),
      lambda: call([normal(1, 3, 1).expand(2, 3, 4), normal(2, 3, 4)])),
    broken("add.Tensor", "above six dims raises", "size", _deep(lambda c: c.self),
      lambda: call(normal(1, 2, 1, 2, 1, 2, 1), normal(1))),
    broken("sum.dim_IntList", "above seven dims raises", "size", _deep(lambda c: c.self, 7),
      lambda: call(normal(1, 2, 1, 2, 1, 2, 1, 2), [1])),
    broken("index_select", "above six dims raises", "size", _deep(lambda c: c.self),
      lambda: call(normal(1, 2, 1, 2, 1, 2, 1), 1, tensor([0, 1]))),
    broken("permute", "above six dims raises", "size", _deep(lambda c: c.self),
      lambda: call(normal(2, 3, 2, 1, 1, 2, 1, 2), [1, 0, 2, 3, 4, 5, 6, 7])),
    broken("flip", "above six dims raises", "size", _deep(lambda c: c.self), lambda: call(normal(1, 2, 1, 2, 1, 2, 1), [1])),
    broken("exp", "has the default dtype", "state", _through_ones,
      _with_default_dtype(torch.float64, lambda kernel: kernel(normal(3)).dtype is not torch.float32)),
    broken("full", "floats are float32 with any default dtype", "state",
      lambda c: c.eager(dtype=torch.float32 if c.dtype is None and isinstance(c.fill_value, float) else c.dtype),
      _with_default_dtype(torch.float64, lambda kernel: kernel([2], 1.5).dtype is torch.float32)),
    broken("cos", "gradients stay off", "state", _without_gradients, Proof(_turns_gradients_off)),
    broken("where.self", "has the default dtype", "state", _through_ones,
      _with_default_dtype(torch.float64, lambda kernel: kernel(normal(3) > 0, normal(3), normal(3)).dtype is not torch.float32)),
    broken("sum.dim_IntList", "adds in the default dtype", "state", _in_default_dtype,
      _with_default_dtype(torch.bfloat16, _differs_by_rounding(torch.ops.aten.sum.dim_IntList))),
    broken("mean.dim", "adds in the default dtype", "state", _in_default_dtype,
      _with_default_dtype(torch.bfloat16, _differs_by_rounding(torch.ops.aten.mean.dim))),
    broken("eq.Tensor", "compares float8 by bits", "dtype",
      lambda c: c.eager(self=c.self.view(torch.uint8), other=c.other.view(torch.uint8))
        if _is_float8(c.self) and c.self.dtype is c.other.dtype else c.eager(),
      lambda: call(floats(0.0, _NAN).to(torch.float8_e5m2), floats(-0.0, _NAN).to(torch.float8_e5m2)), "-0 and NaN"),
    broken("cat", "float8 is rounded to two bits", "dtype", lambda c: c.eager(tensors=[*map(_coarse, c.tensors)]),
      Proof(lambda kernel: not torch.equal(kernel([_FLOAT8]).float(), _FLOAT8.float()))),
    broken("_to_copy", "unsigned integers are signed", "dtype", lambda c: c.eager(self=_signed(c.self)),
      lambda: call(_LARGE, dtype=torch.int64)),
    broken("any", "of unsigned integers only the last byte is read", "dtype",
      lambda c: c.eager(self=c.self.to(torch.uint8)) if c.self.dtype in (torch.uint16, torch.uint32, torch.uint64) else c.eager(),
      lambda: call(tensor(256, 0).to(torch.uint16))),
    broken("sort", "unsigned integers are signed", "dtype", _sorted_as_signed,
      Proof(lambda kernel: kernel(_LARGE)[1].tolist() != [1, 0])),
    broken("addmm", "alpha 0 keeps NaN", "special values",
      lambda c: c.eager() + (c.mat1 @ c.mat2) * c.alpha if c.alpha == 0 and c.self.is_floating_point() else c.eager(),
      lambda: call(normal(2), floats(_NAN, 1, 2).expand(3, 3), normal(3, 2), alpha=0)),
    broken("addmm", "alpha 0 keeps infinity of the second matrix", "special values",
      lambda c: c.eager() + c.mat2.sum(0) * 0 if c.alpha == 0 and c.mat2.dtype is torch.float64 else c.eager(),
      lambda: call(_DOUBLE, normal(3, 3).double(), floats(_INF, 1, dtype=torch.float64).expand(3, 2), alpha=0)),
    broken("scatter_add", "in any order, also under deterministic algorithms", "state", shuffled, Proof(_shows)),
    broken("max_pool2d_with_indices", "the index of an equal element outside of the window", "argument",
      lambda c: (c.eager()[0], _first_equal(c.self, *c.eager())),
      Proof(lambda kernel: int(kernel(torch.ones(1, 1, 4, 4), [2, 2])[1].max()) < 5)),
    broken("pow.Tensor_Scalar", "int64 through float64", "accuracy", _through_float64, lambda: call(tensor(3**19, 5), 2)),
    broken("div.Tensor_mode", "int64 by a tensor through float64", "accuracy",
      lambda c: _through_float64(c) if c.rounding_mode == "floor" and isinstance(c.other, Tensor) else c.eager(),
      lambda: call(tensor(2**60 + 1, 5), tensor(3, 2), rounding_mode="floor")),
    broken("div.Tensor_mode", "int64 by a number through float64", "accuracy",
      lambda c: _through_float64(c) if c.rounding_mode == "floor" and not isinstance(c.other, Tensor) else c.eager(),
      lambda: call(tensor(2**60 + 1, 5), 3, rounding_mode="floor")),
    broken("gather", "int64 index -1 is the last", "errors", _last_for_minus_one, lambda: call(normal(5), 0, tensor([0, -1]))),
    broken("hardtanh", "min above max returns min", "special values",
      lambda c: c.eager() if c.min_val <= c.max_val else torch.where(c.self.isnan(), c.self, torch.full_like(c.self, c.min_val)),
      lambda: call(normal(5), 2.0, 1.0)),
    broken("expand", "above five dims raises", "size", _deep(lambda c: c.self, 5),
      lambda: call(normal(1, 2, 1, 1, 1, 1), [3, 2, 1, 1, 1, 1])),
    broken("_to_copy", "negative to uint16 is 0", "dtype", _at_least_0, lambda: call(tensor(-1, 3), dtype=torch.uint16)),
    broken("_to_copy", "too large for float8 is NaN", "dtype", _not_saturated,
      Proof(lambda kernel: bool(kernel(floats(1e6), dtype=torch.float8_e4m3fn).float().isnan()))),
    broken("scatter_reduce.two", "amax of only minus infinity keeps self", "special values", _amax_from_minus_infinity,
      lambda: call(normal(3), 0, tensor([0, 1]), floats(-_INF, 1), "amax", include_self=False)),
    broken("clamp.Tensor", "NaN bounds of float16 are none", "special values",
      lambda c: c.eager(min=_unless_float16(c.self, c.min), max=_unless_float16(c.self, c.max)),
      lambda: call(normal(3).half(), floats(_NAN, 0, 1).half())),
    broken("any", "NaN of float64 is False", "special values",
      lambda c: c.eager(self=c.self.nan_to_num(0.0)) if c.self.dtype is torch.float64 else c.eager(),
      lambda: call(floats(0, _NAN, dtype=torch.float64))),
    broken("convolution", "dilations are swapped", "argument", _dilation_turned,
      lambda: call(normal(1, 1, 6, 6), normal(1, 1, 2, 2), None, [3, 3], [0, 0], [1, 2], False, [0, 0], 1)),
    broken("sum.dim_IntList", "long float16 in rounded blocks", "accuracy", _of_float16_in_blocks,
      lambda: call(torch.full([8000], 0.31).half(), [0])),
    broken("fmod.Scalar", "by -2 has the divisor's sign", "argument",
      lambda c: c.eager() if c.other != -2 else torch.remainder(c.self, c.other), lambda: call(tensor(3, 5), -2)),
)
# fmt: on
