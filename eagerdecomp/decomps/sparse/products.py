"""Products of sparse matrices with dense and sparse ones, and softmax over the stored elements of a sparse tensor."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.sparse.arithmetic import sum_of
from eagerdecomp.decomps.sparse.compressed import as_coo, is_matrix, of_coo
from eagerdecomp.decomps.sparse.parts import (
    OF_SPARSE,
    add_to_dense,
    coalesced,
    flat_indices,
    is_coo,
    like,
    make_coo,
    parts,
    take_over,
    times_number,
    with_values,
)
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

# -- sparse by dense -----------------------------------------------------------------------------------------------------------


def rows_times(rows: Tensor, columns: Tensor, values: Tensor, dense: Tensor, count: int, start: Tensor | None = None) -> Any:
    """Compute ``start[r] += value * dense[c]`` for each element (r, c), in order, as ``s_addmm_out_sparse_dense_worker``."""
    if start is None:
        start = aten.full.default([count, dense.shape[1]], 0, dtype=dense.dtype, device=dense.device)
    if not values.shape[0] or not start.numel():
        return start
    each = aten.mul.Tensor(aten.index_select.default(dense, 0, columns), aten.unsqueeze.default(values, 1))
    return aten.index_put.default(start, [rows], each, True)


def _times(self: Tensor, dense: Tensor, scale: Any = 1, start: Tensor | None = None) -> Any:
    indices, values = parts(self)
    if scale != 1:
        values = times_number(values, scale)
    return rows_times(aten.select.int(indices, 0, 0), aten.select.int(indices, 0, 1), values, dense, self.shape[0], start)


def _is_matrix(value: Tensor) -> bool:
    return value.dim() == 2 and (value.layout is torch.strided or (value.sparse_dim() == 2 and not value.dense_dim()))


def _scaled(self: Tensor, beta: Any, size: list[int]) -> Any:
    """Return ``beta * self``, broadcast. If beta is 0, return zeros without reading `self`."""
    if beta == 0:
        return aten.full.default(size, 0, dtype=self.dtype, device=self.device)
    spread = aten.expand.default(self, size)
    if beta == 1:
        return aten.clone.default(spread, memory_format=torch.contiguous_format)
    return aten.mul.Scalar(spread, beta)


#: The dtypes that eager's kernels for products support.
_NUMBERS = (
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
    *(torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
)


def _fits(mat1: Tensor, mat2: Tensor, *others: Tensor) -> bool:
    known = _is_matrix(mat1) and _is_matrix(mat2) and mat1.shape[1] == mat2.shape[0]
    return known and all(one.dtype is mat1.dtype for one in (mat2, *others)) and mat1.dtype in _NUMBERS


def _fits_compressed(mat1: Tensor, mat2: Tensor, *others: Tensor) -> bool:
    """Return whether eager multiplies a compressed matrix by a dense one."""
    plain = all(one.layout is torch.strided and one.dtype is mat1.dtype for one in (mat2, *others))
    return plain and mat2.dim() == 2 and mat1.shape[1] == mat2.shape[0] and mat1.dtype in OF_SPARSE


def _by_compressed(self: Tensor, matrix: Tensor) -> Any:
    """Return the product of a dense matrix and a compressed one."""
    if self.layout is not torch.strided or self.dim() != 2 or self.shape[1] != matrix.shape[0]:
        return NotImplemented
    if self.dtype is not matrix.dtype or self.dtype not in OF_SPARSE:
        return NotImplemented
    return aten.clone.default(_mm(self, as_coo(matrix)), memory_format=torch.contiguous_format)


def _addmm(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Any:
    if is_matrix(mat1) and is_matrix(mat2):
        return _add_product(self, mat1, mat2, beta, alpha)
    if is_matrix(mat2) and self.layout is torch.strided and self.dtype is mat2.dtype:
        product = _by_compressed(mat1, mat2)
        if product is NotImplemented:
            return product
        product = product if alpha == 1 else times_number(product, alpha)
        return aten.add.Tensor(_scaled(self, beta, list(product.shape)), product)
    if is_matrix(mat1) and self.layout is mat2.layout is torch.strided:
        if not _fits_compressed(mat1, mat2, self):
            return NotImplemented
        mat1 = as_coo(mat1)
    if any(one.layout not in (torch.strided, torch.sparse_coo) for one in (self, mat1, mat2)):
        return NotImplemented
    dense = self.layout is torch.strided and is_coo(mat1) and mat2.layout is torch.strided
    fits = dense and _fits(mat1, mat2, self) and self.dim() <= 2
    size = [mat1.shape[0], mat2.shape[1]] if fits else []
    if not fits or any(have not in (1, want) for have, want in zip(self.shape[::-1], size[::-1], strict=False)):
        return NotImplemented
    return _times(mat1, mat2, alpha, _scaled(self, beta, size))


def _add_product(self: Tensor, mat1: Tensor, mat2: Tensor, beta: Any, alpha: Any) -> Any:
    """Return ``beta * self + alpha * mat1 @ mat2`` of compressed matrices: CSR, or dense with a dense `self`."""
    refused = self.layout is torch.strided and mat1.layout is torch.sparse_csc and mat2.layout is torch.sparse_csr
    if refused or self.dtype is not mat1.dtype or self.layout not in (torch.strided, torch.sparse_csr):
        return NotImplemented
    found = _mm(as_coo(mat1), as_coo(mat2))
    if found is NotImplemented:
        return NotImplemented
    if self.layout is torch.strided:
        return add_to_dense(_scaled(self, beta, list(found.shape)), found, alpha)
    if self.shape != found.shape:
        return NotImplemented
    start = as_coo(self)
    values = aten._values.default(start)
    # The result stores what `self` stores, also if beta is 0.
    values = times_number(values, beta) if beta else aten.full_like.default(values, 0)
    return of_coo(sum_of(with_values(start, values), found, alpha), torch.sparse_csr)


@rule("aten.addmm.default", source="sparse")
@rule("aten._sparse_addmm.default", takes_sparse=True)
def _sparse_addmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    return _addmm(self, mat1, mat2, beta, alpha)


@rule("aten.addmm_.default", source="sparse")
def _addmm_in_place(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if self.layout is not torch.strided:
        return NotImplemented
    found = _addmm(self, mat1, mat2, beta, alpha)
    return found if found is NotImplemented else aten.copy_.default(self, found)


@rule("aten.mm.default", source="sparse")
def _mm(self: Tensor, mat2: Tensor) -> Any:
    if is_matrix(self) and is_matrix(mat2):
        found = _mm(as_coo(self), as_coo(mat2))
        return found if found is NotImplemented else of_coo(found, torch.sparse_csr)
    if is_matrix(self) and mat2.layout is torch.strided:
        if not _fits_compressed(self, mat2):
            return NotImplemented
        return _times(as_coo(self), mat2)
    if is_matrix(mat2):
        return _by_compressed(self, mat2)
    if any(one.layout not in (torch.strided, torch.sparse_coo) for one in (self, mat2)):
        return NotImplemented
    both = is_coo(self) and is_coo(mat2)
    if not _fits(self, mat2) or (both and self.dtype not in OF_SPARSE):
        return NotImplemented
    if is_coo(self):
        return _sparse_by_sparse(self, mat2) if is_coo(mat2) else _times(self, mat2)
    # (self mat2) is (mat2.T self.T).T
    indices, values = parts(mat2)
    flipped = aten.permute.default(self, [1, 0])
    found = rows_times(aten.select.int(indices, 0, 1), aten.select.int(indices, 0, 0), values, flipped, mat2.shape[1])
    return aten.permute.default(found, [1, 0])


@rule("aten.mv.default", source="sparse")
def _mv(self: Tensor, vec: Tensor) -> Any:
    if is_matrix(self) and vec.layout is torch.strided and vec.dim() == 1:
        if not _fits_compressed(self, aten.unsqueeze.default(vec, 1)):
            return NotImplemented
        self = as_coo(self)
    if self.layout not in (torch.strided, torch.sparse_coo):
        return NotImplemented
    known = is_coo(self) and vec.layout is torch.strided and vec.dim() == 1 and self.dim() == 2
    if not known or not _fits(self, aten.unsqueeze.default(vec, 1)):
        return NotImplemented
    return aten.select.int(_times(self, aten.unsqueeze.default(vec, 1)), 1, 0)


@rule("aten.addmv.default", source="sparse")
def _addmv(self: Tensor, mat: Tensor, vec: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    if not is_matrix(mat) or self.dim() > 1 or vec.dim() != 1:
        return NotImplemented
    start = aten.unsqueeze.default(self, 1) if self.dim() else self
    found = _addmm(start, mat, aten.unsqueeze.default(vec, 1), beta, alpha)
    return found if found is NotImplemented else aten.select.int(found, 1, 0)


@rule("aten.bmm.default", source="sparse")
def _bmm(self: Tensor, mat2: Tensor) -> Any:
    """Compute one product with a block-diagonal matrix, whose blocks are the batch."""
    if any(one.layout not in (torch.strided, torch.sparse_coo) for one in (self, mat2)):
        return NotImplemented
    known = is_coo(self) and mat2.layout is torch.strided and self.dim() == mat2.dim() == 3 and self.sparse_dim() == 3
    if not known or self.shape[0] != mat2.shape[0] or self.shape[2] != mat2.shape[1] or self.dtype is not mat2.dtype:
        return NotImplemented
    if self.dtype in (torch.float16, torch.bfloat16, torch.bool):
        return NotImplemented
    indices, values = parts(coalesced(self))
    batch, height, width, depth = self.shape[0], self.shape[1], self.shape[2], mat2.shape[2]
    block = aten.select.int(indices, 0, 0)
    rows = aten.add.Tensor(aten.mul.Scalar(block, height), aten.select.int(indices, 0, 1))
    columns = aten.add.Tensor(aten.mul.Scalar(block, width), aten.select.int(indices, 0, 2))
    flat = aten.reshape.default(mat2, [batch * width, depth])
    return aten.view.default(rows_times(rows, columns, values, flat, batch * height), [batch, height, depth])


@rule("aten.hspmm.default", takes_sparse=True)
def _hspmm(mat1: Tensor, mat2: Tensor) -> Any:
    """Return the nonzero rows of the product as a tensor with one sparse dimension."""
    if not is_coo(mat1) or mat2.layout is not torch.strided or not _fits(mat1, mat2):
        return NotImplemented
    rows, found = _rows_of_product(mat1, mat2, 1)
    return make_coo([mat1.shape[0], mat2.shape[1]], aten.unsqueeze.default(rows, 0), found, False)


def _rows_of_product(mat1: Tensor, mat2: Tensor, alpha: Any) -> tuple[Any, Any]:
    """Return the rows in which `mat1` stores an element, and these rows of ``alpha * mat1 @ mat2``."""
    indices, values = parts(coalesced(mat1))
    rows, columns = aten.select.int(indices, 0, 0), aten.select.int(indices, 0, 1)
    held = make_coo([mat1.shape[0]], aten.unsqueeze.default(rows, 0), aten.ones_like.default(rows), False)
    kept = aten.select.int(aten._indices.default(coalesced(held)), 0, 0)
    if alpha != 1:
        values = times_number(values, alpha)
    return kept, rows_times(aten.searchsorted.Tensor(kept, rows), columns, values, mat2, kept.shape[0])


@rule("aten.sspaddmm.default", takes_sparse=True)
def _sspaddmm(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Any:
    """Concatenate the elements of ``beta * self`` and ``alpha * mat1 @ mat2``.

    The product stores whole rows: all those in which `mat1` stores an element.
    """
    if not (is_coo(self) and is_coo(mat1)) or mat2.layout is not torch.strided:
        return NotImplemented
    fits = _fits(mat1, mat2, self) and mat1.dtype not in (torch.float16, torch.bfloat16)
    if not fits and list(self.shape) == [0]:
        return NotImplemented
    # `smm` passes an empty tensor of shape [0], times zero.
    if not fits or (list(self.shape) != [mat1.shape[0], mat2.shape[1]] and list(self.shape) != [0]):
        return NotImplemented
    indices, values = parts(self)
    rows, found = _rows_of_product(mat1, mat2, alpha)
    height, width = found.shape[0], found.shape[1]
    columns = aten.repeat.default(aten.arange.start_step(0, width, 1, device=rows.device), [height])
    places = aten.stack.default([aten.repeat_interleave.self_int(rows, width, 0), columns], 0)
    sums = aten.cat.default([times_number(values, beta), aten.reshape.default(found, [height * width])], 0)
    if list(self.shape) != [0]:
        places = aten.cat.default([indices, places], 1)
    return make_coo([mat1.shape[0], mat2.shape[1]], places, sums, False)


@rule("aten.sspaddmm.out", takes_sparse=True)
def _sspaddmm_out(self: Tensor, mat1: Tensor, mat2: Tensor, *, beta: Any = 1, alpha: Any = 1, out: Tensor) -> Any:
    found = _sspaddmm(self, mat1, mat2, beta=beta, alpha=alpha)
    return found if found is NotImplemented else take_over(out, found)


# -- sparse by sparse ----------------------------------------------------------------------------------------------------------


def _sparse_by_sparse(self: Tensor, other: Tensor) -> Any:
    """Compute Gustavson's product for all rows at once: a left element in column j multiplies row j on the right."""
    left, right = coalesced(self), coalesced(other)
    (indices, values), (others, weights) = parts(left), parts(right)
    size = [self.shape[0], other.shape[1]]
    rows, columns = aten.select.int(indices, 0, 0), aten.select.int(indices, 0, 1)
    heads = aten.select.int(others, 0, 0)
    if not values.shape[0] or not weights.shape[0]:
        empty = aten.full.default([2, 0], 0, dtype=torch.int64, device=values.device)
        return make_coo(size, empty, aten.slice.Tensor(values, 0, 0, 0), True)
    begin, end = aten.searchsorted.Tensor(heads, columns), aten.searchsorted.Tensor(heads, columns, right=True)
    many = aten.sub.Tensor(end, begin)
    each = aten.repeat_interleave.Tensor(many)
    starts = aten.sub.Tensor(begin, aten.sub.Tensor(aten.cumsum.default(many, 0), many))
    total = aten.arange.start_step(0, each.shape[0], 1, device=each.device)
    seen = aten.add.Tensor(total, aten.index_select.default(starts, 0, each))
    row = aten.index_select.default(rows, 0, each)
    column = aten.index_select.default(aten.select.int(others, 0, 1), 0, seen)
    products = aten.mul.Tensor(aten.index_select.default(values, 0, each), aten.index_select.default(weights, 0, seen))
    return coalesced(make_coo(size, aten.stack.default([row, column], 0), products, False))


@rule("aten._sparse_sparse_matmul.default", takes_sparse=True)
def _sparse_sparse_matmul(self: Tensor, other: Tensor) -> Any:
    if not (is_coo(self) and is_coo(other)) or not _fits(self, other) or self.dtype not in OF_SPARSE:
        return NotImplemented
    return _sparse_by_sparse(self, other)


# -- softmax -------------------------------------------------------------------------------------------------------------------


def _pools(self: Tensor, dim: int) -> tuple[Any, int]:
    """Return for each element the number of its line along a sparse dimension, and the number of lines with stored elements."""
    indices = aten._indices.default(self)
    count = indices.shape[0]
    others = [n for n in range(count) if n != dim]
    sizes = [self.shape[n] for n in others]
    if not others:
        return aten.full.default([indices.shape[1]], 0, dtype=torch.int64, device=indices.device), 1
    rows = aten.cat.default([aten.slice.Tensor(indices, 0, n, n + 1) for n in others], 0)
    flat = flat_indices(rows, sizes)
    # Number only the lines with a stored element.
    kept = coalesced(make_coo([math.prod(sizes)], aten.unsqueeze.default(flat, 0), aten.ones_like.default(flat), False))
    held = aten.select.int(aten._indices.default(kept), 0, 0)
    return aten.searchsorted.Tensor(held, flat), held.shape[0]


def _softmax(name: str, self: Tensor, dim: int, half_to_float: bool, log: bool) -> Any:
    """Treat elements that are not stored as minus infinity (``softmax_sparse_cpu`` of ``SoftMax.cpp``)."""
    if not is_coo(self):
        return NotImplemented
    floats = self.dtype in (torch.float32, torch.float64)
    if half_to_float or not self.dim() or not -self.dim() <= dim < self.dim() or not floats:
        return NotImplemented
    self = coalesced(self)
    indices, values = parts(self)
    dim %= self.dim()
    if not values.numel():
        return like(self, aten.clone.default(indices), aten.clone.default(values), True)
    if dim >= indices.shape[0]:
        along = dim - indices.shape[0] + 1
        found = aten._log_softmax.default(values, along, False) if log else aten._softmax.default(values, along, False)
        return like(self, aten.clone.default(indices), found, True)
    line, lines = _pools(self, dim)
    shape = [lines, *values.shape[1:]]
    spread = aten.expand.default(aten.view.default(line, [-1] + [1] * (values.dim() - 1)), list(values.shape))
    low = aten.full.default(shape, -math.inf, dtype=values.dtype, device=values.device)
    top = aten.scatter_reduce.two(low, 0, spread, values, "amax")
    shifted = aten.sub.Tensor(values, aten.index_select.default(top, 0, line))
    powers = aten.exp.default(shifted)
    zeros = aten.full.default(shape, 0.0, dtype=values.dtype, device=values.device)
    sums = aten.index_select.default(aten.index_put.default(zeros, [line], powers, True), 0, line)
    found = aten.sub.Tensor(shifted, aten.log.default(sums)) if log else aten.div.Tensor(powers, sums)
    return like(self, aten.clone.default(indices), found, True)


@rule("aten._sparse_softmax.default", takes_sparse=True)
def _sparse_softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return _softmax("aten._sparse_softmax.default", self, dim, half_to_float, False)


@rule("aten._sparse_log_softmax.default", takes_sparse=True)
def _sparse_log_softmax(self: Tensor, dim: int, half_to_float: bool) -> Any:
    return _softmax("aten._sparse_log_softmax.default", self, dim, half_to_float, True)


def _softmax_backward(grad: Tensor, output: Tensor, dim: int, self: Tensor, log: bool) -> Any:
    """Return ``output * (grad - sum(grad * output))``, or ``grad - exp(output) * sum(grad)``, for each line."""
    if not (is_coo(grad) and is_coo(output) and is_coo(self)):
        return NotImplemented
    output, grad = coalesced(output), coalesced(grad)
    indices, values = parts(output)
    dim %= self.dim()
    if not values.numel():
        return like(output, aten.clone.default(indices), aten.clone.default(values), True)
    sizes = output.shape[: indices.shape[0]]
    held, wanted = flat_indices(aten._indices.default(grad), sizes), flat_indices(indices, sizes)
    given = aten._values.default(grad)
    if held.shape[0]:
        seat = aten.clamp.default(aten.searchsorted.Tensor(held, wanted), 0, held.shape[0] - 1)
        found = aten.eq.Tensor(aten.index_select.default(held, 0, seat), wanted)
        rows = aten.index_select.default(given, 0, seat)
        found = aten.view.default(found, [-1] + [1] * (rows.dim() - 1))
        rows = aten.where.self(found, rows, aten.full.default([], 0, dtype=rows.dtype, device=rows.device))
    else:
        rows = aten.zeros_like.default(values)
    if dim >= indices.shape[0]:
        along = dim - indices.shape[0] + 1
        if log:
            made = aten._log_softmax_backward_data.default(rows, values, along, values.dtype)
        else:
            made = aten._softmax_backward_data.default(rows, values, along, values.dtype)
        return like(output, aten.clone.default(indices), made, True)
    line, lines = _pools(output, dim)
    zeros = aten.full.default([lines, *values.shape[1:]], 0.0, dtype=values.dtype, device=values.device)
    terms = rows if log else aten.mul.Tensor(rows, values)
    sums = aten.index_select.default(aten.index_put.default(zeros, [line], terms, True), 0, line)
    if log:
        made = aten.sub.Tensor(rows, aten.mul.Tensor(aten.exp.default(values), sums))
    else:
        made = aten.mul.Tensor(values, aten.sub.Tensor(rows, sums))
    return like(output, aten.clone.default(indices), made, True)


@rule("aten._sparse_softmax_backward_data.default", takes_sparse=True)
def _sparse_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Any:
    return _softmax_backward(grad_output, output, dim, self, False)


@rule("aten._sparse_log_softmax_backward_data.default", takes_sparse=True)
def _sparse_log_softmax_backward(grad_output: Tensor, output: Tensor, dim: int, self: Tensor) -> Any:
    return _softmax_backward(grad_output, output, dim, self, True)


# -- diagonals -----------------------------------------------------------------------------------------------------------------


@rule("aten._spdiags.default", takes_sparse=True)
def _spdiags(diagonals: Tensor, offsets: Tensor, shape: Any, layout: Any = None) -> Any:
    """Put ``diagonals[d, c]`` in column c on the diagonal with this offset, if it is inside the matrix."""
    vectors = aten.unsqueeze.default(diagonals, 0) if diagonals.dim() == 1 else diagonals
    lines = aten.unsqueeze.default(offsets, 0) if offsets.dim() == 0 else offsets
    wrong = vectors.dim() != 2 or lines.dim() != 1 or lines.dtype is not torch.int64 or len(shape) != 2
    if wrong or lines.shape[0] != vectors.shape[0] or layout not in (None, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc):
        return NotImplemented
    if aten._unique2.default(lines)[0].shape[0] < lines.shape[0]:  # eager refuses duplicates
        return NotImplemented
    height, width = shape
    columns = aten.arange.start_step(0, vectors.shape[1], 1, device=vectors.device)
    columns = aten.expand.default(aten.unsqueeze.default(columns, 0), list(vectors.shape))
    rows = aten.sub.Tensor(columns, aten.unsqueeze.default(lines, 1))
    inside = aten.logical_and.default(aten.ge.Scalar(rows, 0), aten.lt.Scalar(rows, height))
    inside = aten.logical_and.default(inside, aten.lt.Scalar(columns, width))
    flat = aten.select.int(aten.nonzero.default(aten.reshape.default(inside, [-1])), 1, 0)
    both = [aten.index_select.default(aten.reshape.default(one, [-1]), 0, flat) for one in (rows, columns)]
    found = make_coo(
        shape, aten.stack.default(both, 0), aten.index_select.default(aten.reshape.default(vectors, [-1]), 0, flat), False
    )
    return found if layout in (None, torch.sparse_coo) else of_coo(found, layout)
