"""Kernels of scatter, select_scatter, slice_scatter and embedding."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, Number, read, scalar, store, to_tensor
from eagerdecomp.backends.numpy.indexing import like_operand, places_along, row_numbers, same_rank
from eagerdecomp.backends.numpy.reductions import axis
from eagerdecomp.backends.numpy.views import selected, sliced

__all__ = ["KERNELS"]

aten = torch.ops.aten

_COMBINED: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "sum": np.add.at,
    "multiply": np.multiply.at,
    "prod": np.multiply.at,
    "amax": np.maximum.at,
    "amin": np.minimum.at,
    "mean": np.add.at,
}


def _scatter(x: Tensor, dim: int, index: Tensor, source: Tensor | Number, reduce: str = "", include_self: bool = True) -> Tensor:
    """Return `x` with the elements of the source scattered along a dimension, or combined with its elements."""
    along = axis(dim, x.dim())
    wide = np.array(read(x))  # float16 and bfloat16 are summed in float32 and rounded once
    if isinstance(source, Tensor) and source.dtype is not x.dtype:
        raise RuntimeError("scatter(): Expected self.dtype to be equal to src.dtype")
    if reduce and reduce not in _COMBINED:
        raise RuntimeError(f"reduce argument must be either sum, prod, mean, amax or amin, got {reduce}")
    if index.numel():
        same_rank("scatter", x, index)
        _check_sizes(x, along, index, source)
        target = wide.reshape(wide.shape or (1,))
        spread = index.reshape(1) if not index.dim() else index
        places = places_along(spread, along, target.shape[along])
        given = read(source) if isinstance(source, Tensor) else scalar(source, x.dtype)
        given = given.reshape(1) if isinstance(source, Tensor) and not source.dim() else given
        if given.ndim:
            given = given[tuple(slice(extent) for extent in spread.shape)]
        _combine(target, places, given, reduce, include_self)
    return to_tensor(wide, x.dtype)


def _check_sizes(x: Tensor, along: int, index: Tensor, source: Tensor | Number) -> None:
    """Check that the index is not larger than the source, nor than the target except in dimension `along`."""
    sizes = list(index.shape)
    beyond = any(size > held for dim, (size, held) in enumerate(zip(sizes, x.shape, strict=False)) if dim != along)
    room = (list(source.shape) or [1]) if isinstance(source, Tensor) else sizes
    more = any(size > held for size, held in zip(sizes, room, strict=False))
    if isinstance(source, Tensor) and max(source.dim(), 1) != max(index.dim(), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as src tensor")
    if beyond or more:
        than = f" and to be no larger size than src {list(source.shape)}" if isinstance(source, Tensor) else ""
        raise RuntimeError(f"Expected index {sizes} to be no larger than self {list(x.shape)} apart from dimension {along}{than}")


def _combine(target: Array, places: tuple[Array, ...], given: Array, reduce: str, include_self: bool) -> None:
    if not reduce:
        target[places] = given
        return
    if target.dtype == np.bool_ and reduce in ("add", "sum", "mean"):
        reduce = "amax"
    if not include_self:
        least = {"sum": 0, "mean": 0, "prod": 1}
        target[places] = least[reduce] if reduce in least else _bound(target.dtype, -1 if reduce == "amax" else 1)
    _COMBINED[reduce](target, places, given)
    if reduce == "mean":
        count = np.full(
            target.shape, int(include_self), target.dtype if target.dtype.kind in "iu" else np.int64
        )  # wraps as eager's
        np.add.at(count, places, 1)
        count[count == 0] = 1
        target[...] = target / count if target.dtype.kind in "fc" else np.floor_divide(target, count)


def _bound(dtype: np.dtype[Any], side: int) -> Any:
    if dtype.kind == "b":
        return side > 0
    if dtype.kind == "f":
        return side * np.inf
    return np.iinfo(dtype).max if side > 0 else np.iinfo(dtype).min


def _scatter_reduce(x: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True) -> Tensor:
    return _scatter(x, dim, index, src, reduce, include_self)


def _embedding_backward(grad: Tensor, indices: Tensor, num_weights: int, padding_idx: int, scale_grad_by_freq: bool) -> Tensor:
    row_numbers("embedding_backward", 2, indices)
    places = read(indices).reshape(-1)
    rows = read(grad).reshape(places.size, grad.shape[-1])
    kept = places != padding_idx
    if scale_grad_by_freq:
        rows = rows / np.bincount(places, minlength=num_weights)[places][:, None]
    if grad.dtype.is_complex:
        rows = rows * rows.dtype.type(1)  # eager multiplies complex numbers even by 1, which turns infinities into NaN
    summed = np.zeros((num_weights, grad.shape[-1]), rows.dtype)
    np.add.at(summed, places[kept], rows[kept])
    return to_tensor(summed, grad.dtype)


def _placed(cut: Callable[..., Tensor]) -> Callable[..., Tensor]:
    def run(x: Tensor, src: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        # Eager keeps the strides, with gaps, unless the tensor is expanded.
        kept = 0 not in x.stride()
        room = aten.empty_strided.default(x.shape, x.stride(), dtype=x.dtype, device="cpu") if kept else like_operand(x)
        whole = store(room, read(x))
        part = cut(whole, *args, **kwargs)
        if part.shape != src.shape:
            raise RuntimeError(f"expected src to have a size equal to the slice of self: {list(src.shape)} for {list(part.shape)}")
        store(part, read(src))
        return whole

    return run


KERNELS: dict[str, Callable[..., Any]] = {
    "embedding_dense_backward": _embedding_backward,
    "scatter.src": _scatter,
    "scatter.value": _scatter,
    "scatter_add": lambda x, dim, index, src: _scatter(x, dim, index, src, "add"),
    "scatter_reduce.two": _scatter_reduce,
    "select_scatter": _placed(selected),
    "slice_scatter": _placed(sliced),
}
