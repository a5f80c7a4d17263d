"""Compressed sparse matrices (CSR, CSC): row ends, column indices and values; for CSC with rows and columns exchanged.

Ops with a dense result convert to COO. Ops that keep the layout work on the values. For batches of matrices, dense dimensions and
blocks (BSR, BSC), only functions of each element and the conversions to and from a dense tensor have rules.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.parts import coalesced, make_coo, with_values
from eagerdecomp.eager.promotion import in_type
from eagerdecomp.rules.rule import rule

__all__ = [
    "as_coo",
    "compressed_parts",
    "is_compressed",
    "is_matrix",
    "make_compressed",
    "of_coo",
    "stored_values",
    "unblocked",
    "with_compressed_values",
    "with_stored_values",
    "write_parts",
]

aten = torch.ops.aten


_BY_ROWS, _BLOCKED = (torch.sparse_csr, torch.sparse_bsr), (torch.sparse_bsr, torch.sparse_bsc)


def is_compressed(value: Any) -> bool:
    """Return whether a value is a compressed tensor: CSR, CSC, BSR or BSC, also with batch or dense dimensions."""
    return isinstance(value, Tensor) and value.layout in (torch.sparse_csr, torch.sparse_csc, *_BLOCKED)


def is_matrix(value: Any) -> bool:
    """Return whether a value is a CSR or CSC matrix."""
    plain = isinstance(value, Tensor) and value.layout in (torch.sparse_csr, torch.sparse_csc)
    return plain and value.dim() == 2 and value.dense_dim() == 0


def compressed_parts(self: Tensor) -> tuple[Any, Any, Any]:
    """Return the row ends (starting with 0), the column indices and the values; for CSC, the column ends and the row indices."""
    if self.layout in _BY_ROWS:
        return aten.crow_indices.default(self), aten.col_indices.default(self), aten.values.default(self)
    return aten.ccol_indices.default(self), aten.row_indices.default(self), aten.values.default(self)


def make_compressed(
    ends: Tensor, places: Tensor, values: Tensor, size: Sequence[int], layout: torch.layout, *, dtype: torch.dtype | None = None
) -> Any:
    """Return the matrix with these parts. torch checks that `dtype` is that of the values, which is the default."""
    options = {"dtype": dtype or values.dtype, "layout": layout, "device": values.device}
    return aten._sparse_compressed_tensor_unsafe.default(ends, places, values, list(size), **options)


def with_compressed_values(self: Tensor, values: Tensor) -> Any:
    """Return a matrix with other values, which may be on another device, and copies of the same indices."""
    ends, places = (aten._to_copy.default(one, device=values.device) for one in compressed_parts(self)[:2])
    return make_compressed(ends, places, values, self.shape, self.layout)


def write_parts(self: Tensor, source: Tensor) -> bool:
    """Copy the indices and values of another tensor into `self`. Return False if this needs memory of another size."""
    if self.layout is not source.layout or self.shape != source.shape or self._nnz() != source._nnz():
        return False
    for mine, theirs in zip(compressed_parts(self), compressed_parts(source), strict=True):
        aten.copy_.default(mine, theirs)
    return True


def stored_values(self: Tensor) -> Any:
    """Return the values of a COO or compressed tensor."""
    return aten.values.default(self) if is_compressed(self) else aten._values.default(self)


def with_stored_values(self: Tensor, values: Tensor) -> Any:
    """Return a COO or compressed tensor with the same indices and other values."""
    return with_compressed_values(self, values) if is_compressed(self) else with_values(self, values)


def as_coo(self: Tensor) -> Any:
    """Return the matrix in COO layout. Indices are in order for CSR.

    With blocks, it is the matrix of the blocks, whose dimensions follow as dense ones.
    """
    ends, places, values = compressed_parts(self)
    by_rows, batch = self.layout in _BY_ROWS, ends.dim() - 1
    indices = aten._convert_indices_from_csr_to_coo.default(ends, places, transpose=not by_rows)
    inner = list(values.shape[batch + 1 :])
    size = list(self.shape[: batch + 2])
    if self.layout in _BLOCKED:
        size[-2:] = [size[-2] // inner[0], size[-1] // inner[1]]
    if batch:
        values = aten.reshape.default(values, [places.numel(), *inner])
    return make_coo([*size, *inner], in_type(indices, torch.int64), values, by_rows)


def unblocked(self: Tensor, cells: Tensor) -> Any:
    """Return the dense form of a tensor from the dense form of `as_coo`."""
    if self.layout not in _BLOCKED:
        return cells
    at, rank = cells.dim() - 4 - self.dense_dim(), cells.dim()
    order = [*range(at), at, at + 2, at + 1, at + 3, *range(at + 4, rank)]
    return aten.reshape.default(aten.permute.default(cells, order), list(self.shape))


def of_coo(self: Tensor, layout: torch.layout) -> Any:
    """Return the CSR or CSC form of a COO matrix."""
    self = coalesced(self)
    indices, values = aten._indices.default(self), aten._values.default(self)
    rows, columns = aten.select.int(indices, 0, 0), aten.select.int(indices, 0, 1)
    if layout is torch.sparse_csr:
        ends = aten._convert_indices_from_coo_to_csr.default(rows, self.shape[0])
        return make_compressed(ends, aten.clone.default(columns), aten.clone.default(values), self.shape, layout)
    order = aten.sort.stable(columns, stable=True)[1]
    ends = aten._convert_indices_from_coo_to_csr.default(aten.index_select.default(columns, 0, order), self.shape[1])
    places, values = aten.index_select.default(rows, 0, order), aten.index_select.default(values, 0, order)
    return make_compressed(ends, places, values, self.shape, layout)


def _checked() -> bool:
    """Return whether torch checks the parts of new sparse tensors, which reads them."""
    return bool(torch.sparse.check_sparse_tensor_invariants.is_enabled())  # type: ignore[no-untyped-call]


@rule("aten.sparse_compressed_tensor.comp_plain_value_size", takes_sparse=True)
def _made(*given: Any, dtype: Any = None, layout: Any = None, pin_memory: Any = None, **options: Any) -> Any:
    if _checked() or layout is None or pin_memory:
        return NotImplemented
    ends, places, values, size = given
    return make_compressed(ends, places, values, size, layout, dtype=dtype or torch.get_default_dtype())


@rule("aten.sparse_compressed_tensor.comp_plain_value", takes_sparse=True)
def _made_without_size(
    compressed_indices: Tensor, plain_indices: Tensor, values: Tensor, *, layout: Any = None, pin_memory: Any = None, **options: Any
) -> Any:
    """Make the matrix with the last column (CSC: row) that has an element as its width (height)."""
    matrix = layout in (torch.sparse_csr, torch.sparse_csc) and compressed_indices.dim() == values.dim() == 1
    if _checked() or not matrix or pin_memory:
        return NotImplemented
    width = 0
    if plain_indices.numel():
        width = int(aten._local_scalar_dense.default(aten.amax.default(plain_indices))) + 1
    height = max(compressed_indices.shape[0] - 1, 0)
    size = [height, width] if layout is torch.sparse_csr else [width, height]
    dtype = options.get("dtype") or torch.get_default_dtype()
    return make_compressed(compressed_indices, plain_indices, values, size, layout, dtype=dtype)


@rule("aten.sparse_sampled_addmm.default", takes_sparse=True)
def _sampled(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Compute the product only where `self` stores an element: a row times a column each."""
    fits = is_matrix(self) and self.layout is torch.sparse_csr and mat1.layout is mat2.layout is torch.strided
    fits = fits and mat1.dim() == mat2.dim() == 2 and mat1.shape[1] == mat2.shape[0]
    if not fits or list(self.shape) != [mat1.shape[0], mat2.shape[1]] or not self.dtype is mat1.dtype is mat2.dtype:
        return NotImplemented
    indices, values = aten._indices.default(as_coo(self)), aten.values.default(self)
    left = aten.index_select.default(mat1, 0, aten.select.int(indices, 0, 0))
    right = aten.index_select.default(aten.permute.default(mat2, [1, 0]), 0, aten.select.int(indices, 0, 1))
    found = aten.mul.Scalar(aten.sum.dim_IntList(aten.mul.Tensor(left, right), [1]), alpha)
    if beta != 0:
        found = aten.add.Tensor(aten.mul.Scalar(values, beta), found)
    return with_compressed_values(self, found)
