"""Read and make the indices and values of COO tensors, sum duplicate indices, and convert indices to flat positions.

``values[n]`` belongs to ``indices[:, n]`` in the first, sparse dimensions; the other dimensions belong to the values. Unless the
tensor is coalesced, an index may occur several times; its values are summed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = [
    "OF_SPARSE",
    "add_to_dense",
    "coalesced",
    "flat_indices",
    "is_coo",
    "like",
    "make_coo",
    "parts",
    "positions_of",
    "take_over",
    "times_number",
    "unflattened",
    "with_values",
]

from eagerdecomp.eager.promotion import in_type

aten = torch.ops.aten

#: The dtypes that eager's kernels for compressed matrices, and for products of two sparse ones, support.
OF_SPARSE = (torch.float32, torch.float64, torch.complex64, torch.complex128)


def is_coo(value: Any) -> bool:
    """Return whether a value is a COO tensor."""
    return isinstance(value, Tensor) and value.layout is torch.sparse_coo


# -- making and reading --------------------------------------------------------------------------------------------------------


def parts(self: Tensor) -> tuple[Any, Any]:
    """Return the indices and the values, coalesced or not."""
    return aten._indices.default(self), aten._values.default(self)


def make_coo(size: Sequence[int], indices: Tensor, values: Tensor, coalesced: bool, *, exactly: bool = False) -> Any:
    """Return the tensor with these parts. With fewer than two elements it is always coalesced, unless the flag holds `exactly`."""
    sparse_dim = indices.shape[0]
    return aten._sparse_coo_tensor_with_dims_and_tensors.default(
        sparse_dim,
        len(size) - sparse_dim,
        list(size),
        indices,
        values,
        dtype=values.dtype,
        layout=torch.sparse_coo,
        device=values.device,
        is_coalesced=coalesced if exactly else coalesced or None,
    )


def with_values(self: Tensor, values: Tensor) -> Any:
    """Return a tensor with other values at copies of a tensor's indices."""
    return make_coo(self.shape, aten.clone.default(aten._indices.default(self)), values, self.is_coalesced())


def like(self: Tensor, indices: Tensor, values: Tensor, coalesced: bool = False) -> Any:
    """Return a tensor of the same size with these parts."""
    return make_coo(self.shape, indices, values, coalesced)


def take_over(self: Tensor, other: Tensor) -> Tensor:
    """Replace the size and parts of `self`, which is written in place, by those of another tensor; return `self`."""
    self.data = other
    return self


# -- flat indices --------------------------------------------------------------------------------------------------------------


def flat_indices(indices: Tensor, sizes: Sequence[int]) -> Any:
    """Return each element's flat position, in row order, in sparse dimensions of these sizes."""
    count = indices.shape[1]
    flat = None
    for dim, size in enumerate(sizes):
        one = aten.select.int(indices, 0, dim)
        flat = one if flat is None else aten.add.Tensor(aten.mul.Scalar(flat, size), one)
    return aten.full.default([count], 0, dtype=torch.int64, device=indices.device) if flat is None else flat


def unflattened(flat: Tensor, sizes: Sequence[int]) -> Any:
    """Return the indices of flat positions in sparse dimensions of these sizes."""
    rows = []
    for size in reversed(sizes):
        rows.append(aten.remainder.Scalar(flat, size))
        flat = aten.div.Tensor_mode(
            flat, aten.scalar_tensor.default(size, dtype=torch.int64, device=flat.device), rounding_mode="floor"
        )
    if not rows:
        return aten.full.default([0, flat.shape[0]], 0, dtype=torch.int64, device=flat.device)
    return aten.stack.default(rows[::-1], 0)


def positions_of(mask: Tensor) -> Any:
    """Return the positions at which a 1-D mask is true, in order."""
    return aten.select.int(aten.nonzero.default(mask), 1, 0)


# -- sums of duplicates --------------------------------------------------------------------------------------------------------


def coalesced(self: Tensor) -> Any:
    """Return the coalesced tensor: each index once, in order, and the values of equal indices summed.

    Values are summed in their stored order, as in ``coalesce_sparse_cpu`` of ``SparseTensor.cpp``.
    """
    if self.is_coalesced():
        return self
    indices, values = parts(self)
    count = indices.shape[1]
    if count < 2:
        return like(self, aten.clone.default(indices), aten.clone.default(values), True)
    flat = flat_indices(indices, self.shape[: indices.shape[0]])
    ordered, order = aten.sort.stable(flat, stable=True)
    begins = aten.ne.Tensor(aten.slice.Tensor(ordered, 0, 1, count), aten.slice.Tensor(ordered, 0, 0, count - 1))
    seat = aten.constant_pad_nd.default(aten.cumsum.default(begins, 0), [1, 0], 0)
    found = int(aten._local_scalar_dense.default(aten.select.int(seat, 0, count - 1))) + 1
    # Any element of an index gives the index. The part after the last index is sliced off; eager narrows the indices in the same
    # way.
    first = aten.scatter.src(aten.full.default([count], 0, dtype=torch.int64, device=flat.device), 0, seat, order)
    kept = aten.slice.Tensor(aten.index_select.default(indices, 1, first), 1, 0, found)
    zeros = aten.full.default(list(values.shape), 0, dtype=values.dtype, device=values.device)
    sums = aten.index_put.default(zeros, [seat], aten.index_select.default(values, 0, order), True)
    return like(self, kept, aten.slice.Tensor(sums, 0, 0, found), True)


def times_number(values: Tensor, number: Any) -> Any:
    """Multiply the values by a scalar, which eager's kernels round to their dtype first."""
    if values.dtype is torch.bool:
        return values if number else aten.full_like.default(values, False)
    return aten.mul.Tensor(values, aten.scalar_tensor.default(number, dtype=values.dtype, device=values.device))


def add_to_dense(dense: Tensor, self: Tensor, alpha: Any = 1) -> Any:
    """Return ``dense + alpha * self`` for equal sizes: contiguous and in the promoted dtype."""
    dtype = torch.promote_types(dense.dtype, self.dtype)
    indices, values = parts(self)
    sizes, inner = list(self.shape[: indices.shape[0]]), list(values.shape[1:])
    dense, values = in_type(dense, dtype), in_type(values, dtype)
    if alpha != 1:
        values = times_number(values, alpha)
    rows = aten.reshape.default(dense, [math.prod(sizes), *inner])
    if not indices.shape[1] or not self.numel():
        return aten.clone.default(dense, memory_format=torch.contiguous_format)
    summed = aten.index_put.default(rows, [flat_indices(indices, sizes)], values, True)
    return aten.view.default(summed, list(self.shape))
