"""Gather and scatter by indices and masks for sets of prims, by comparing positions (`math.one_hot_indexing`).

Prims do not check indices, so the rules read them, to decline a call with an index out of range. Such calls are never cached as
programs.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import gt
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp.decomps.math.one_hot_indexing import along, check_range, combined, in_blocks, positions, taken, writers
from eagerdecomp.eager.layouts import as_contiguous, iterator_strides
from eagerdecomp.eager.promotion import FLOAT8, HALF, number_like
from eagerdecomp.eager.strides import broadcast_shapes, in_order, like_strides
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.restride import restrided
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


def _at_least_one_dim(x: Tensor) -> Tensor:
    return x if x.dim() else aten.view.default(x, [1])


def _cropped(x: Tensor, shape: Sequence[int], but: int = -1) -> Tensor:
    """Slice each dimension except `but` to the size in `shape`."""
    for dim, size in enumerate(shape):
        if dim != but and x.size(dim) != size:
            x = aten.slice.Tensor(x, dim, 0, size)
    return x


def _long(index: Tensor) -> Tensor:
    return index if index.dtype is torch.int64 else aten._to_copy.default(index, dtype=torch.int64)


def _with_strides_of(x: Tensor, like: Tensor) -> Tensor:
    """Give the result the strides of a copy of `like`: eager writes its result into such a copy."""
    return restrided(x, like_strides(like))


# -- gather -------------------------------------------------------------------------------------------------------


def _gather(self: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Any:
    if not index.numel():
        return aten.empty.memory_format(list(index.shape), dtype=self.dtype, device=self.device)
    x, places = _at_least_one_dim(self), _at_least_one_dim(_long(index))
    dim %= x.dim()
    if any(places.size(at) > x.size(at) for at in range(x.dim()) if at != dim):
        return NotImplemented
    check_range(places, x.size(dim))
    found = taken(_cropped(x, places.shape, dim), dim, places)
    return found if index.dim() else aten.view.default(found, [])


# -- scatter ------------------------------------------------------------------------------------------------------


def _untouched(self: Tensor) -> Tensor:
    return as_contiguous(aten.clone.default(self))


def _scatter_operands(self: Tensor, dim: int, index: Tensor, src: Tensor | None) -> tuple[int, Tensor, Tensor, Any]:
    """Return the wrapped dimension, and `self`, index and source with at least one dimension.

    The source is cut to the shape of the index.
    """
    x, places = _at_least_one_dim(self), _at_least_one_dim(_long(index))
    given = None if src is None else _at_least_one_dim(src)
    dim %= x.dim()
    wide = any(places.size(at) > x.size(at) for at in range(x.dim()) if at != dim)
    if wide or (given is not None and any(places.size(at) > given.size(at) for at in range(x.dim()))):
        raise Declined
    check_range(places, x.size(dim))
    return dim, x, places, None if given is None else _cropped(given, places.shape)


def _widened(x: Tensor, like: Tensor, blank: float) -> Tensor:
    """Pad `x` at the ends to the shape of `like`."""
    missing = [like.size(dim) - x.size(dim) for dim in range(x.dim())]
    if not any(missing):
        return x
    return aten.constant_pad_nd.default(x, [side for more in reversed(missing) for side in (0, more)], blank)  # type: ignore[no-any-return]


def _scatter(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    if not index.numel():
        return _untouched(self)
    dim, x, places, given = _scatter_operands(self, dim, index, src)
    writer = writers(places, dim, x.size(dim))
    values = taken(given, dim, aten.clamp.default(writer, 0))
    written = aten.ge.Scalar(_widened(writer, x, -1), 0)
    return _shaped(aten.where.self(written, _widened(values, x, 0), x), self)


def _scatter_value(self: Tensor, dim: int, index: Tensor, value: Any) -> Any:
    if not index.numel():
        return _untouched(self)
    dim, x, places, _ = _scatter_operands(self, dim, index, None)
    written = aten.ge.Scalar(_widened(writers(places, dim, x.size(dim)), x, -1), 0)
    return _shaped(aten.where.self(written, number_like(x, value), x), self)


def _shaped(result: Tensor, self: Tensor) -> Tensor:
    return as_contiguous(result if self.dim() else aten.view.default(result, []))


def _sum(x: Tensor, dims: list[int]) -> Tensor:
    dtype = None if x.dtype.is_floating_point or x.dtype.is_complex else x.dtype
    return aten.sum.dim_IntList(x, dims, dtype=dtype)  # type: ignore[no-any-return]


def _product(x: Tensor, dims: list[int]) -> Tensor:
    dtype = None if x.dtype.is_floating_point or x.dtype.is_complex else x.dtype
    return aten.prod.dim_int(x, dims[0], dtype=dtype)  # type: ignore[no-any-return]


def _least(dtype: torch.dtype) -> float:
    return -math.inf if dtype.is_floating_point else 0 if dtype is torch.bool else torch.iinfo(dtype).min


def _most(dtype: torch.dtype) -> float:
    return math.inf if dtype.is_floating_point else 1 if dtype is torch.bool else torch.iinfo(dtype).max


#: For each reduction: the function that reduces the values with the same index, its identity element, and the function that
#: combines the result with `self`.
_REDUCTIONS: dict[str, tuple[Callable[..., Any], Callable[[torch.dtype], float], Callable[..., Any]]] = {
    "sum": (_sum, lambda dtype: 0, op_called("aten.add.Tensor")),
    "mean": (_sum, lambda dtype: 0, op_called("aten.add.Tensor")),
    "prod": (_product, lambda dtype: 1, op_called("aten.mul.Tensor")),
    "amax": (op_called("aten.amax.default"), _least, op_called("aten.maximum.default")),
    "amin": (op_called("aten.amin.default"), _most, op_called("aten.minimum.default")),
}


def _reduced(x: Tensor, dim: int, places: Tensor, given: Tensor, reduce: str, include_self: bool) -> Tensor:
    how, blank, meet = _REDUCTIONS[reduce]
    dtype, size = x.dtype, x.size(dim)
    wide = torch.float32 if dtype in HALF else torch.int64 if dtype is torch.bool and reduce in ("sum", "mean") else dtype
    if wide is torch.complex32:  # eager adds such numbers one by one, and has no sum of them
        wide = torch.complex64
    if wide is not dtype:
        given = aten._to_copy.default(given, dtype=wide)
    found = combined(places, dim, size, given, blank(wide), how)
    count = combined(places, dim, size, aten.full.default([1] * x.dim(), 1, dtype=torch.int64, device=x.device), 0, _sum)
    before = x if wide is dtype else aten._to_copy.default(x, dtype=wide)
    count = aten.expand.default(count, list(found.shape))
    found, count = _widened(found, x, 0), _widened(count, x, 0)
    touched = aten.gt.Scalar(count, 0)
    if include_self:
        found = meet(before, found)
        count = aten.add.Scalar(count, 1)
    if reduce == "mean":
        divisor = aten._to_copy.default(aten.clamp.default(count, 1), dtype=wide)
        whole = not (wide.is_floating_point or wide.is_complex)
        found = aten.div.Tensor_mode(found, divisor, rounding_mode="floor" if whole else None)
    return aten.where.self(touched, found if wide is dtype else aten._to_copy.default(found, dtype=dtype), x)  # type: ignore[no-any-return]


def _scatter_add(self: Tensor, dim: int, index: Tensor, src: Tensor) -> Any:
    if not index.numel():
        return _untouched(self)
    dim, x, places, given = _scatter_operands(self, dim, index, src)
    return _shaped(_reduced(x, dim, places, given, "sum", True), self)


def _scatter_reduce(self: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Any:
    if not index.numel():
        return _untouched(self)
    dim, x, places, given = _scatter_operands(self, dim, index, src)
    return _shaped(_reduced(x, dim, places, given, reduce, include_self), self)


# -- indexing by several tensors ----------------------------------------------------------------------------------


def _spelled_out(self: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Return an integer index or None for each dimension of `self`. Masks become the indices of their true elements."""
    found: list[Tensor | None] = []
    for given in indices:
        if given is None:
            found.append(None)
        elif given.dtype in (torch.bool, torch.uint8):
            for at in range(given.dim()):
                if given.size(at) != self.size(len(found) + at):
                    raise Declined
            places = aten.nonzero.default(given)
            found += [aten.select.int(places, 1, at) for at in range(given.dim())]
        else:
            found.append(given)
    return found + [None] * (self.dim() - len(found))


class _Indexed:
    """One indexing call: the indexed dimensions, their indices, and where the result has the dimensions of the indices."""

    def __init__(self, self_: Tensor, indices: Sequence[Tensor | None], check: bool = True) -> None:
        spelled = _spelled_out(self_, indices)
        self.dims = [dim for dim, given in enumerate(spelled) if given is not None]
        given = [one for one in spelled if one is not None]
        self.shape = broadcast_shapes(*(one.shape for one in given))
        self.others = [dim for dim in range(self_.dim()) if dim not in self.dims]
        adjacent = self.dims == list(range(self.dims[0], self.dims[0] + len(self.dims)))
        self.before = self.dims[0] if adjacent else 0
        self.sizes = list(self_.shape)
        self.given = given
        check = check and math.prod(self.result) > 0  # eager reads no index for an empty result
        self.places = [self._wrapped(one, self_.size(dim), check) for dim, one in zip(self.dims, given, strict=True)]

    def _wrapped(self, index: Tensor, size: int, check: bool) -> Tensor:
        index = _long(index)
        if check:
            check_range(index, size, -size)
        return aten.where.self(aten.lt.Scalar(index, 0), aten.add.Scalar(index, size), index)  # type: ignore[no-any-return]

    @property
    def result(self) -> list[int]:
        rest = [self.sizes[dim] for dim in self.others]
        return [*rest[: self.before], *self.shape, *rest[self.before :]]

    def linear(self) -> Tensor:
        """Return the flat indices into the flattened indexed dimensions, as one vector."""
        flat = None
        for place, dim in zip(self.places, self.dims, strict=True):
            flat = place if flat is None else aten.add.Tensor(aten.mul.Scalar(flat, self.sizes[dim]), place)
        assert flat is not None
        return aten.reshape.default(aten.expand.default(flat, self.shape), [-1])  # type: ignore[no-any-return]

    def rows(self, x: Tensor) -> Tensor:
        """Return `x` with the indexed dimensions first and flattened, and the others flattened."""
        moved = aten.permute.default(x, [*self.dims, *self.others])
        indexed, rest = (math.prod(self.sizes[dim] for dim in dims) for dims in (self.dims, self.others))
        return aten.reshape.default(moved, [indexed, rest])  # type: ignore[no-any-return]

    def values_as_rows(self, values: Tensor) -> Tensor:
        """Reshape the values that are written to one row per index."""
        rank, count = len(self.shape), math.prod(self.shape)
        own = list(range(self.before, self.before + rank))
        moved = aten.permute.default(values, [*own, *(dim for dim in range(values.dim()) if dim not in own)])
        return aten.reshape.default(moved, [count, math.prod(self.sizes[dim] for dim in self.others)])  # type: ignore[no-any-return]

    def from_rows(self, rows: Tensor) -> Tensor:
        """Reshape one row per index to the result of indexing."""
        rest, rank = [self.sizes[dim] for dim in self.others], len(self.shape)
        shaped = aten.view.default(rows, [*self.shape, *rest])
        order = [*range(rank, rank + self.before), *range(rank), *range(rank + self.before, rank + len(rest))]
        return aten.permute.default(shaped, order)  # type: ignore[no-any-return]

    def restrided(self, found: Tensor, x: Tensor) -> Tensor:
        """Return the result with the strides of ATen's iterator, which ignores the strides of indexed dimensions."""
        rest = [x.stride(dim) for dim in self.others]
        if not self.before and all(map(gt, rest, rest[1:])) and all(one.dim() == 1 for one in self.given):
            return restrided(found, in_order(self.result, list(range(found.dim()))))
        spread = [*rest[: self.before], *[0] * len(self.shape), *rest[self.before :]]
        return restrided(found, iterator_strides(self.result, [aten.as_strided.default(x, self.result, spread), *self._indices()]))

    def _indices(self) -> list[Tensor]:
        """Return the indices as operands of ATen's iterator, which broadcasts them to one shape."""
        shape = [*[1] * self.before, *self.shape, *[1] * (len(self.others) - self.before)]
        # int32 becomes int64 after the expansion. The strides that count are those of the copy.
        return [aten.reshape.default(_long(aten.expand.default(one, self.shape)), shape) for one in self.given]

    def back(self, rows: Tensor) -> Tensor:
        """Invert `rows`."""
        order = [*self.dims, *self.others]
        shaped = aten.view.default(rows, [self.sizes[dim] for dim in order])
        return aten.permute.default(shaped, [order.index(dim) for dim in range(len(order))])  # type: ignore[no-any-return]

    def apart(self) -> bool:
        """Return whether each result dimension depends on at most one index, in order. If so, indices can be applied one by one."""
        taken_up = 0
        for place in self.places:
            lead = len(self.shape) - place.dim()
            wide = [lead + at for at, size in enumerate(place.shape) if size != 1 and self.shape[lead + at] != 1]
            if any(axis < taken_up for axis in wide):
                return False
            taken_up = max([taken_up, *(axis + 1 for axis in wide)])
        return True


def _picked(self: Tensor, indices: Sequence[Tensor | None], check: bool) -> Any:
    if all(one is None for one in indices):
        return aten.clone.default(self)
    indexed = _Indexed(self, indices, check)
    if not math.prod(indexed.result):
        return aten.empty.memory_format(indexed.result, dtype=self.dtype, device=self.device)
    if indexed.apart():
        found = self
        for dim, place in zip(indexed.dims, indexed.places, strict=True):
            found = taken(found, dim, along(aten.reshape.default(place, [-1]), dim, self.dim()))
        moved = aten.permute.default(found, [*indexed.dims, *indexed.others])
        rows = aten.reshape.default(moved, [math.prod(indexed.shape), -1])
    else:
        rows = taken(indexed.rows(self), 0, aten.unsqueeze.default(indexed.linear(), 1))
    return indexed.restrided(indexed.from_rows(rows), self)


@rule("aten.index.Tensor", recorded=True, source="prims")
def _index(self: Tensor, indices: Sequence[Tensor | None]) -> Any:
    return _picked(self, indices, True)


@rule("aten._unsafe_index.Tensor", recorded=True, source="prims")
def _unsafe_index(self: Tensor, indices: Sequence[Tensor | None]) -> Any:
    return _picked(self, indices, False)


def _put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool, check: bool) -> Any:
    if accumulate and self.dtype in FLOAT8:  # no sum of such numbers is a prim
        return NotImplemented
    if all(one is None for one in indices):
        spread = aten.expand.default(values, list(self.shape))
        return aten.add.Tensor(self, spread) if accumulate else aten.clone.default(spread)
    indexed = _Indexed(self, indices, check)
    shape = indexed.result
    fits = values.dim() <= len(shape) and all(
        size in (1, want) for size, want in zip(reversed(values.shape), reversed(shape), strict=False)
    )
    spread = aten.expand.default(values if fits else aten.reshape.default(values, []), shape)
    if not math.prod(shape):
        return aten.clone.default(self)
    written = indexed.values_as_rows(spread)
    place, rows = aten.unsqueeze.default(indexed.linear(), 1), indexed.rows(self)
    if accumulate:
        result = _reduced(rows, 0, place, written, "sum", True)
    else:
        writer = writers(place, 0, rows.size(0))
        result = aten.where.self(aten.ge.Scalar(writer, 0), taken(written, 0, aten.clamp.default(writer, 0)), rows)
    return _with_strides_of(indexed.back(result), self)


@rule("aten.index_put.default", recorded=True, source="prims")
def _index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    return _put(self, indices, values, accumulate, True)


@rule("aten._unsafe_index_put.default", recorded=True, source="prims")
def _unsafe_index_put(self: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Any:
    return _put(self, indices, values, accumulate, False)


# -- masks --------------------------------------------------------------------------------------------------------


def _rank(mask: Tensor) -> Tensor:
    """Return for each element of a vector the number of true elements up to and including it."""
    place = positions(0, mask.size(0), mask)
    ones = aten._to_copy.default(mask, dtype=torch.int64)

    def block(start: int, end: int) -> Tensor:
        below = aten.le.Tensor(aten.unsqueeze.default(place, 0), aten.unsqueeze.default(positions(start, end, mask), 1))
        return aten.sum.dim_IntList(aten.where.self(below, ones, number_like(ones, 0)), [1])  # type: ignore[no-any-return]

    return in_blocks(block, mask.size(0), 0, mask.size(0))


def _nonzero(self: Tensor) -> Any:
    """Return the indices of nonzero elements. The rule reads their number to allocate the result."""
    flat = aten.ne.Scalar(aten.reshape.default(self, [-1]), 0)
    if not self.numel():
        return aten.empty.memory_format([0, self.dim()], dtype=torch.int64, device=self.device)
    count = int(aten._local_scalar_dense.default(aten.sum.dim_IntList(flat, [0])))
    if not count or not self.dim():
        return aten.empty.memory_format([count, self.dim()], dtype=torch.int64, device=self.device)
    seat = aten.where.self(flat, aten.sub.Scalar(_rank(flat), 1), number_like(positions(0, 1, self), -1))
    place = writers(seat, 0, count)
    columns = []
    for size in reversed(self.shape):
        columns.append(aten.remainder.Scalar(place, size))
        place = aten.div.Tensor_mode(place, number_like(place, size), rounding_mode="floor")
    # In eager's memory order: the indices of each dimension are contiguous.
    return aten.permute.default(aten.stack.default(columns[::-1]), [1, 0])


def _masked_scatter(self: Tensor, mask: Tensor, source: Tensor) -> Any:
    shape = broadcast_shapes(self.shape, mask.shape)
    target = self if list(self.shape) == shape else aten.clone.default(aten.expand.default(self, shape))
    if not target.numel():
        return aten.clone.default(target)
    chosen = aten.reshape.default(aten.expand.default(mask, shape), [-1])
    seat = aten.sub.Scalar(_rank(chosen), 1)
    if int(aten._local_scalar_dense.default(aten.select.int(seat, 0, -1))) >= source.numel():
        return NotImplemented
    if not source.numel():
        return aten.clone.default(target)
    values = taken(aten.reshape.default(source, [-1]), 0, aten.clamp.default(seat, 0))
    result = aten.where.self(aten.view.default(chosen, shape), aten.view.default(values, shape), target)
    return _with_strides_of(result, target)


rule("aten.gather.default", recorded=True, source="prims")(_gather)
rule("aten.scatter.src", recorded=True, source="prims")(_scatter)
rule("aten.scatter.value", recorded=True, source="prims")(_scatter_value)
rule("aten.scatter_add.default", recorded=True, source="prims")(_scatter_add)
rule("aten.scatter_reduce.two", recorded=True, source="prims")(_scatter_reduce)
rule("aten.nonzero.default", recorded=True, source="prims")(_nonzero)
rule("aten.masked_scatter.default", recorded=True, source="prims")(_masked_scatter)
