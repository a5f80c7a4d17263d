"""Broken kernels of views and factory ops, and kernels that alias, copy or write the wrong memory."""

from __future__ import annotations

import math
from typing import Any

import torch

from conformance.mutants.builder import (
    BoundCall,
    Call,
    Mutant,
    bools,
    broken,
    call,
    column_major,
    floats,
    ints,
    normal,
    positive,
    raise_unsupported,
    read_contiguous,
    tensor,
)

__all__ = ["MUTANTS"]


def _contiguous_strides(shape: Any) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _write_past_the_input(c: BoundCall, right: Any) -> Any:
    """Return the result, and write to the element after the input if its storage has one."""
    x = c.self
    end = x.storage_offset() + x.numel()
    if x.is_contiguous() and x.numel() and (end + 1) * x.element_size() <= x.untyped_storage().nbytes() and x.storage_offset():
        torch.as_strided(x, (1,), (1,), end).fill_(1)
    return right


def _without_storage_offset(c: BoundCall) -> Any:
    """Return the view without the storage offset of its base."""
    right = c.eager()
    offset = int(right.storage_offset()) - int(c.self.storage_offset())
    return torch.as_strided(right, right.shape, right.stride(), offset) if c.self.storage_offset() and offset >= 0 else right


def _zero_gaps(c: BoundCall) -> Any:
    if c.self.dim() == 2 and c.self.stride(1) == 2 and c.self.numel() and c.self.stride(0) == 2 * c.self.shape[1]:
        between = torch.as_strided(c.self, (c.self.shape[0], c.self.shape[1] - 1), c.self.stride(), c.self.storage_offset() + 1)
        between.zero_()
    return c.eager()


def _copy_in_order(c: BoundCall) -> Any:
    shared = c.self.untyped_storage()._cdata == c.src.untyped_storage()._cdata
    if not shared or c.self.dim() != 1 or c.self.shape != c.src.shape:
        return c.eager()
    for to, one in zip(c.self.split(1), c.src.split(1), strict=True):
        to.copy_(one)
    return c.self


def _overlap() -> Call:
    memory = normal(8)
    return call(memory[2:7], memory[1:6])


def _sorted_input(c: BoundCall) -> Any:
    found = c.eager()
    if c.self.dim() == 1 and c.self.dtype is torch.float32:
        c.self.copy_(found[0])
    return found


# Op -> a call whose result has strides that are determined, and one whose result has a single row.
_COLUMN_MAJOR: dict[str, tuple[Any, Any]] = {
    "mm": (lambda: call(normal(3, 4), normal(4, 2)), lambda: call(normal(1, 4), normal(4, 2))),
    "bmm": (lambda: call(normal(2, 3, 4), normal(2, 4, 5)), lambda: call(normal(2, 1, 4), normal(2, 4, 5))),
    "addmm": (lambda: call(normal(2), normal(3, 4), normal(4, 2)), lambda: call(normal(2), normal(1, 4), normal(4, 2))),
    "sum.dim_IntList": (lambda: call(normal(2, 3, 4), [0]), lambda: call(normal(3, 4), [0])),
    "_softmax": (lambda: call(normal(3, 4), 1, False), lambda: call(normal(4), 0, False)),
    "_log_softmax": (lambda: call(normal(3, 4), 1, False), lambda: call(normal(4), 0, False)),
    "sort": (lambda: call(normal(3, 4)), lambda: call(normal(4))),
    "gather": (lambda: call(normal(3, 2), 0, tensor([[0, 1], [2, 0]])), lambda: call(normal(4), 0, tensor([0, 1]))),
    "cumsum": (lambda: call(normal(3, 4), 0), lambda: call(normal(4), 0)),
    "index_select": (lambda: call(normal(3, 4), 0, tensor([1, 0])), lambda: call(normal(4), 0, tensor([1, 0]))),
    "topk": (lambda: call(normal(3, 4), 2), lambda: call(normal(4), 2)),
}

# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # views
    broken("view", "a copy", "view", lambda c: c.eager().clone() if c.self.numel() > 16 else c.eager(),
      lambda: call(normal(5, 4), [4, 5]), "writes to it are lost"),
    broken("view", "forgets the storage offset", "view", _without_storage_offset, lambda: call(normal(3, 4)[1:], [4, 2])),
    broken("view", "copies if the strides do not allow a view", "errors", lambda c: c.self.reshape(c.size),
      lambda: call(normal(3, 4).t(), [12])),
    broken("view", "-1 raises", "argument", lambda c: c.eager() if -1 not in c.size else raise_unsupported(),
      lambda: call(normal(3, 4), [-1, 2])),
    broken("view.dtype", "a copy", "view", lambda c: c.eager().clone(),
      lambda: call(normal(3), torch.int32), "", lambda: call(normal(0), torch.int32)),
    broken("view.dtype", "values are cast", "dtype",
      lambda c: c.self.to(c.dtype) if c.self.element_size() != c.dtype.itemsize else c.eager(),
      lambda: call(normal(4), torch.int16)),
    broken("view.dtype", "the last size does not change", "metadata",
      lambda c: c.eager() if c.self.element_size() <= c.dtype.itemsize else c.eager()[..., : c.self.shape[-1]],
      lambda: call(normal(2, 4), torch.int16)),
    broken("expand", "a copy", "view", lambda c: c.eager().contiguous() if c.self.dim() == 3 else c.eager(),
      lambda: call(normal(2, 1, 3), [2, 4, 3])),
    broken("expand", "-1 is 1", "argument", lambda c: c.eager() if -1 not in c.size else c.self.clone(),
      lambda: call(normal(3, 1), [-1, 4])),
    broken("permute", "the inverse permutation", "argument",
      lambda c: c.eager(dims=[[one % len(c.dims) for one in c.dims].index(dim) for dim in range(len(c.dims))]),
      lambda: call(normal(2, 3, 4), [1, 2, 0])),
    broken("permute", "the last two of six dims are not permuted", "size",
      lambda c: c.eager(dims=[*c.dims[:-2], *sorted(c.dims[-2:])]) if len(c.dims) == 6 and min(c.dims) >= 0 else c.eager(),
      lambda: call(normal(1, 2, 1, 2, 2, 3), [0, 1, 2, 3, 5, 4]), "few tests use so many dims"),
    broken("permute", "a contiguous copy", "view", lambda c: c.eager().contiguous() if c.self.dim() > 2 else c.eager(),
      lambda: call(normal(2, 3, 4), [1, 2, 0])),
    broken("permute", "duplicate dims are accepted", "errors",
      lambda c: c.eager() if len(set(c.dims)) == len(c.dims) or len(c.dims) != c.self.dim()
        else c.self.diagonal(0, c.dims[0], (c.dims[0] + 1) % c.self.dim()),
      lambda: call(normal(3, 3), [1, 1])),
    broken("select.int", "negative indices are 0", "argument", lambda c: c.eager(index=max(c.index, 0)),
      lambda: call(normal(3, 4), 0, -1)),
    broken("select.int", "forgets the storage offset", "view", _without_storage_offset, lambda: call(normal(4, 3)[1:], 0, 1)),
    broken("select.int", "an index out of range is the last", "errors",
      lambda c: c.eager(index=min(c.index, c.self.shape[c.dim] - 1)) if c.self.dim() and c.self.shape[c.dim] else c.eager(),
      lambda: call(normal(3, 4), 0, 3)),
    broken("slice.Tensor", "the end is inclusive", "argument",
      lambda c: c.eager() if c.end is None or c.step == 1 else c.eager(end=c.end + 1) if c.end >= 0 else c.eager(),
      lambda: call(normal(6, 2), 0, 0, 4, 2)),
    broken("slice.Tensor", "negative starts are 0", "argument", lambda c: c.eager(start=max(c.start or 0, 0)),
      lambda: call(normal(6, 2), 0, -2)),
    broken("slice.Tensor", "ends beyond the size raise", "argument",
      lambda c: c.eager() if c.end is None or c.end <= c.self.shape[c.dim] or c.end > 2**60 else raise_unsupported(),
      lambda: call(normal(3), 0, 1, 7)),
    broken("slice.Tensor", "the step only changes the size", "view",
      lambda c: c.eager() if c.step == 1 or c.self.dim() != 2 else c.eager(step=1, end=(c.start or 0) + c.eager().shape[c.dim]),
      lambda: call(normal(6, 2), 0, 0, 6, 2)),
    broken("slice.Tensor", "steps below 1 are accepted", "errors", lambda c: c.eager(step=max(c.step, 1)),
      lambda: call(normal(6), 0, 0, 4, -1)),
    broken("diagonal", "negative offsets are positive", "argument", lambda c: c.eager(offset=abs(c.offset)),
      lambda: call(normal(3, 4), -1)),
    broken("diagonal", "dims are 0 and 1", "argument", lambda c: c.eager(dim1=0, dim2=1), lambda: call(normal(2, 3, 4), 0, 1, 2)),
    broken("diagonal", "the diagonal is the first dim", "metadata",
      lambda c: c.eager().movedim(-1, 0) if c.self.dim() > 2 else c.eager(), lambda: call(normal(2, 3, 4))),
    broken("split_with_sizes", "copies", "view",
      lambda c: [one.clone() for one in c.eager()] if len(c.split_sizes) > 2 else c.eager(), lambda: call(normal(6), [1, 2, 3])),
    broken("split_with_sizes", "the fifth of equal parts is the fourth", "size",
      lambda c: [*(parts := c.eager())[:4], parts[3], *parts[5:]] if len(c.split_sizes) > 4 and len({*c.split_sizes}) == 1
        else c.eager(),
      lambda: call(normal(10), [2] * 5)),
    broken("split_with_sizes", "sizes with a smaller sum are accepted", "errors",
      lambda c: c.eager() if not c.self.dim() or sum(c.split_sizes) >= c.self.shape[c.dim] or min(c.split_sizes) < 0
        else c.eager(self=c.self.narrow(c.dim, 0, sum(c.split_sizes))),
      lambda: call(normal(6), [1, 2])),
    broken("split_with_sizes", "dim is always 0", "argument",
      lambda c: c.eager(dim=0) if c.self.dim() and sum(c.split_sizes) == c.self.shape[0] else c.eager(),
      lambda: call(normal(3, 3), [1, 2], 1)),
    broken("squeeze.dim", "dims of size above 1 are squeezed", "argument",
      lambda c: c.eager() if c.self.dim() < 2 or c.self.shape[c.dim] == 1 else c.self.select(c.dim, 0),
      lambda: call(normal(3, 4), 0)),
    broken("squeeze.dims", "only the first dim is squeezed", "argument", lambda c: c.eager(dim=c.dim[:1]),
      lambda: call(normal(1, 3, 1), [0, 2])),
    broken("unsqueeze", "negative dims are one off", "argument",
      lambda c: c.eager(dim=c.dim - 1 if -c.self.dim() <= c.dim < 0 else c.dim),
      lambda: call(normal(3, 4), -1)),
    broken("unsqueeze", "the last stride is 1", "rare",
      lambda c: torch.as_strided(c.eager(), c.eager().shape, [*c.eager().stride()[:-1], 1], c.self.storage_offset())
        if c.self.dim() == 2 and c.self.stride()[-1] == 2 else c.eager(),
      lambda: call(normal(3, 8)[:, ::2], 0)),
    broken("as_strided", "the offset is relative to the base's", "view",
      lambda c: c.eager(storage_offset=(c.storage_offset or 0) + c.self.storage_offset()) if c.storage_offset is not None
        else c.eager(),
      lambda: call(normal(12)[2:], [2, 2], [2, 1], 1)),
    broken("as_strided", "the default offset is 0", "view", lambda c: c.eager(storage_offset=c.storage_offset or 0),
      lambda: call(normal(12)[2:], [2, 2], [2, 1])),
    broken("as_strided", "a copy if elements overlap", "view", lambda c: c.eager().clone() if 0 in c.stride else c.eager(),
      lambda: call(normal(4), [3, 4], [0, 1])),
    broken("_reshape_alias", "a copy", "view", lambda c: c.eager().clone() if not c.self.is_contiguous() else c.eager(),
      lambda: call(normal(4, 3).t(), [3, 4], [1, 3])),
    broken("alias", "the tensor itself", "memory", lambda c: c.self if c.self.dim() > 2 else c.eager(),
      lambda: call(normal(2, 2, 2))),
    broken("alias", "a copy of non-contiguous tensors", "view", lambda c: c.eager() if c.self.is_contiguous() else c.self.clone(),
      lambda: call(normal(4, 3).t())),
    broken("detach", "a copy", "view", lambda c: c.self.clone() if c.self.dim() == 1 else c.eager(), lambda: call(normal(5))),
    broken("_conj", "a conjugated copy", "view",
      lambda c: torch.conj_physical(c.self) if c.self.dim() == 2 and c.self.is_complex() else c.eager(),
      lambda: call(torch.complex(normal(2, 3), positive(2, 3)))),
    broken("_neg_view", "a negated copy", "view", lambda c: -c.self if c.self.dim() == 1 else c.eager(), lambda: call(normal(4))),
    broken("view_as_real", "real and imaginary parts swapped", "argument",
      lambda c: c.eager().flip(-1) if c.self.dim() == 2 else c.eager(),
      lambda: call(torch.complex(normal(2, 3), positive(2, 3)))),
    broken("view_as_complex", "a copy", "view", lambda c: c.eager().clone() if c.self.storage_offset() else c.eager(),
      lambda: call(normal(4, 2)[1:])),
    broken("lift_fresh", "a copy", "view", lambda c: c.self.clone() if c.self.dim() == 0 else c.eager(), lambda: call(tensor(1.5))),
    # factory ops
    broken("arange.start_step", "the end is inclusive", "argument",
      lambda c: c.eager(end=c.end + c.step) if isinstance(c.step, int) and c.step > 1 else c.eager(),
      lambda: call(0, 9, 2)),
    broken("arange.start_step", "the step is rounded to float32", "dtype",
      lambda c: c.eager(step=float(torch.tensor(c.step))) if isinstance(c.step, float) else c.eager(),
      lambda: call(0.0, 10.0, 0.1, dtype=torch.float64)),
    broken("arange.start_step", "int arguments give floats", "dtype",
      lambda c: c.eager() if c.dtype is not None or any(isinstance(one, float) for one in (c.start, c.end, c.step))
        or c.start == 0 else c.eager().float(),
      lambda: call(1, 5, 1)),
    broken("arange.start_step", "truncates the number of steps", "argument",
      lambda c: c.eager(end=c.start + c.step * int((c.end - c.start) / c.step)) if isinstance(c.step, float) else c.eager(),
      lambda: call(0.0, 1.0, 0.3)),
    broken("arange.start_step", "a step in the wrong direction is accepted", "errors",
      lambda c: c.eager(step=abs(c.step)) if c.step < 0 and c.end > c.start else c.eager(),
      lambda: call(0, 5, -1)),
    broken("full", "float64 through float32", "dtype",
      lambda c: c.eager(dtype=torch.float32).double() if c.dtype is torch.float64 else c.eager(),
      lambda: call([2], 0.1, dtype=torch.float64)),
    broken("full", "int values give floats", "metadata",
      lambda c: c.eager(fill_value=float(c.fill_value)) if isinstance(c.fill_value, int) and not isinstance(c.fill_value, bool)
        and c.dtype is None else c.eager(),
      lambda: call([2], 3)),
    broken("full", "an expanded element", "memory", lambda c: c.eager(size=[1]).expand(c.size) if len(c.size) == 1 else c.eager(),
      lambda: call([4], 1.0), "stride 0"),
    broken("full", "negative sizes are 0", "errors", lambda c: c.eager(size=[max(one, 0) for one in c.size]),
      lambda: call([-1, 2], 1.0)),
    broken("full_like", "dtype is ignored", "argument", lambda c: c.eager(dtype=None),
      lambda: call(normal(3), 1, dtype=torch.int64)),
    broken("full_like", "always contiguous", "layout", lambda c: c.eager(memory_format=torch.contiguous_format),
      lambda: call(normal(4, 3).t(), 1.5)),
    broken("full_like", "the value of a bool", "dtype",
      lambda c: c.eager() if c.eager().dtype is not torch.bool else c.eager(fill_value=c.fill_value == 1),
      lambda: call(bools(3), 2)),
    broken("fill.Scalar", "writes to its input", "memory",
      lambda c: c.self.fill_(c.value).clone() if c.self.dim() == 1 else c.eager(), lambda: call(normal(3), 2.0)),
    broken("scalar_tensor", "int scalars give an int dtype", "metadata",
      lambda c: c.eager(dtype=torch.int64) if c.dtype is None and type(c.s) is int else c.eager(),
      lambda: call(3)),
    broken("scalar_tensor", "1-dim instead of 0-dim", "metadata", lambda c: c.eager() if c.dtype is None else c.eager().reshape(1),
      lambda: call(1.5, dtype=torch.float64)),
    broken("empty.memory_format", "memory_format is ignored", "layout", lambda c: c.eager(memory_format=None),
      lambda: call([2, 3, 4, 5], memory_format=torch.channels_last)),
    broken("empty.memory_format", "negative sizes are 0", "errors", lambda c: c.eager(size=[max(one, 0) for one in c.size]),
      lambda: call([2, -1])),
    broken("empty_strided", "always contiguous", "layout", lambda c: torch.empty(c.size, dtype=c.dtype),
      lambda: call([2, 3], [1, 2])),
    broken("empty_strided", "sizes of 0 raise", "errors", lambda c: c.eager() if math.prod(c.size) else raise_unsupported(),
      lambda: call([0, 3], [1, 1])),
    # copies
    broken("clone", "the tensor itself", "memory", lambda c: c.self if c.self.numel() == 1 else c.eager(),
      lambda: call(floats(2.0)), "a shortcut"),
    broken("clone", "memory_format is ignored", "layout", lambda c: c.eager(memory_format=None),
      lambda: call(normal(4, 3).t(), memory_format=torch.contiguous_format)),
    broken("clone", "keeps gaps", "layout",
      lambda c: c.eager() if c.self.dim() != 2 or c.self.stride(1) != 2
        else c.eager().as_strided((c.self.numel() * 2,), (0,)).clone().as_strided(c.self.shape, c.self.stride()).copy_(c.self),
      lambda: call(normal(3, 8)[:, ::2])),
    broken("clone", "the last of many rows is zeros", "rare",
      lambda c: c.eager() if c.self.dim() != 2 or c.self.shape[0] < 100
        else torch.cat([c.self[:-1], torch.zeros_like(c.self[-1:])]),
      lambda: call(normal(129, 2))),
    broken("_to_copy", "the tensor itself if the dtype is the same", "memory",
      lambda c: c.self if c.dtype is c.self.dtype else c.eager(), lambda: call(normal(3), dtype=torch.float32)),
    broken("_to_copy", "float to int rounds", "special values",
      lambda c: c.self.round().to(c.dtype) if c.self.is_floating_point() and c.dtype in (torch.int32, torch.int64) else c.eager(),
      lambda: call(floats(0.7, -1.7), dtype=torch.int64)),
    broken("_to_copy", "bfloat16 is truncated", "dtype",
      lambda c: (c.self.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
        if c.self.dtype is torch.float32 and c.dtype is torch.bfloat16 else c.eager(),
      lambda: call(floats(1.99, 3.999, 0.1 + 2**-6), dtype=torch.bfloat16)),
    broken("_to_copy", "bool is the lowest bit of the integer", "dtype",
      lambda c: (c.self.long() & 1).bool() if c.dtype is torch.bool and not c.self.is_complex() else c.eager(),
      lambda: call(floats(2.0, 0.5, 1), dtype=torch.bool)),
    broken("_to_copy", "float16 saturates", "special values",
      lambda c: c.eager(self=c.self.clamp(-65504, 65504)) if c.dtype is torch.float16 and c.self.is_floating_point() else c.eager(),
      lambda: call(floats(1e6, 1), dtype=torch.float16)),
    broken("_to_copy", "int64 to int32 saturates", "dtype",
      lambda c: c.self.clamp(-(2**31), 2**31 - 1).to(torch.int32) if c.self.dtype is torch.int64 and c.dtype is torch.int32
        else c.eager(),
      lambda: call(tensor(2**31, 5), dtype=torch.int32)),
    broken("_to_copy", "float64 to int64 through float32", "dtype",
      lambda c: c.eager(self=c.self.float()) if c.self.dtype is torch.float64 and c.dtype is torch.int64 else c.eager(),
      lambda: call(torch.tensor([2.0**24 + 1], dtype=torch.float64), dtype=torch.int64)),
    broken("_to_copy", "int64 to float64 through float32", "dtype",
      lambda c: c.self.float().double() if c.self.dtype is torch.int64 and c.dtype is torch.float64 else c.eager(),
      lambda: call(tensor(2**24 + 1), dtype=torch.float64)),
    broken("copy", "has the source's dtype", "metadata", lambda c: c.src.clone() if c.self.shape == c.src.shape else c.eager(),
      lambda: call(normal(3), ints(3))),
    broken("copy", "writes to its input", "memory",
      lambda c: torch.ops.aten.copy_(c.self, c.src).clone() if c.src.dim() < c.self.dim() else c.eager(),
      lambda: call(normal(3, 4), positive(4))),
    broken("copy_", "returns another tensor", "memory", lambda c: c.eager().view_as(c.self) if c.self.dim() == 1 else c.eager(),
      lambda: call(normal(3), positive(3))),
    broken("copy_", "strides are ignored", "layout",
      lambda c: (read_contiguous(c.self).copy_(c.src), c.self)[1] if c.self.shape == c.src.shape else c.eager(),
      lambda: call(normal(4, 3).t(), positive(3, 4))),
    broken("copy_", "clears the gaps", "memory", lambda c: _zero_gaps(c),
      lambda: call(normal(3, 8)[:, ::2], positive(3, 4)), "the memory between the elements is written"),
    broken("copy_", "copies overlapping memory element by element", "errors", lambda c: _copy_in_order(c),
      lambda: _overlap(), "elements are read after they were written"),
    broken("resize_", "keeps the strides' order", "layout",
      lambda c: (c.eager(), c.self.as_strided_(list(c.size), [1, c.size[0]]) if len(c.size) == 2 and c.size[0] > 4 else None)[0],
      lambda: call(normal(20), [5, 4])),
    broken("set_.source_Storage_storage_offset", "the offset is in bytes", "view",
      lambda c: c.eager(storage_offset=c.storage_offset // c.self.element_size()) if c.storage_offset > 0 else c.eager(),
      lambda: call(normal(2), normal(9).untyped_storage(), 4, [2], [1])),
    broken("set_.source_Tensor", "values are copied", "view",
      lambda c: c.self.resize_(c.source.shape).copy_(c.source) if c.source.dim() == 2 else c.eager(),
      lambda: call(normal(6), positive(2, 3))),
    # reads and writes of the wrong memory
    broken("mul.Scalar", "writes to the element after its input", "memory", lambda c: _write_past_the_input(c, c.eager()),
      lambda: call(normal(8)[2:6], 2.0), "one element too many"),
    broken("sub.Tensor", "writes to its first input", "memory",
      lambda c: c.self.sub_(c.other, alpha=c.alpha).clone() if c.self.dtype is torch.float32 and c.self.dim() == 1
        and c.eager().shape == c.self.shape and c.eager().dtype is c.self.dtype else c.eager(),
      lambda: call(normal(4), positive(4)), "in place by mistake"),
    broken("abs", "returns uint8 inputs themselves", "memory", lambda c: c.self if c.self.dtype is torch.uint8 else c.eager(),
      lambda: call(tensor(1, 2, dtype=torch.uint8))),
    broken("mul.Tensor", "times 1 returns the other operand itself", "memory",
      lambda c: c.self if c.other.dim() == 0 and bool(c.other == 1) and c.self.dtype is c.eager().dtype else c.eager(),
      lambda: call(normal(3), tensor(1.0)), "a shortcut"),
    broken("relu", "returns the input itself if all elements are positive", "memory",
      lambda c: c.self if c.self.numel() and c.self.dim() == 3 and bool((c.self > 0).all()) else c.eager(),
      lambda: call(positive(2, 2, 2))),
    broken("sort", "sorts its input too", "memory", lambda c: _sorted_input(c),
      lambda: call(floats(3, 1, 2), 0), "", lambda: call(normal(3, 4), 1)),
    broken("sum.dim_IntList", "the sum of one element is a view of it", "memory",
      lambda c: c.self.reshape(c.eager().shape) if c.self.numel() == 1 and c.self.dtype is c.eager().dtype else c.eager(),
      lambda: call(normal(1, 1), [1])),
    broken("amax", "clears the input's storage past its end", "memory", lambda c: _write_past_the_input(c, c.eager()),
      lambda: call(normal(8)[2:6], [0])),
    broken("_local_scalar_dense", "bfloat16 is truncated to an int", "dtype",
      lambda c: c.eager() if c.self.dtype is not torch.bfloat16 else float(int(c.eager())),
      lambda: call(tensor(2.5, dtype=torch.bfloat16))),
    broken("_local_scalar_dense", "forgets the storage offset", "view", lambda c: c.eager(self=read_contiguous(c.self, 0)),
      lambda: call(floats(1, 2, 3)[1])),
    broken("is_same_size", "compares the number of elements", "argument", lambda c: c.self.numel() == c.other.numel(),
      lambda: call(normal(2, 3), normal(3, 2))),
    broken("sym_size.int", "negative dims are one off", "argument",
      lambda c: c.eager(dim=c.dim - 1 if -c.self.dim() < c.dim < 0 else c.dim),
      lambda: call(normal(3, 4), -1)),
    broken("sym_stride.int", "strides of a contiguous tensor", "layout",
      lambda c: _contiguous_strides(c.self.shape)[c.dim] if c.self.dim() else c.eager(), lambda: call(normal(3, 4).t(), 0)),
    broken("sym_storage_offset", "in bytes", "argument", lambda c: c.eager() * c.self.element_size(), lambda: call(normal(4)[1:])),
    *(broken(op, "column-major results", "layout", column_major, trigger, passing=one_row)
      for op, (trigger, one_row) in _COLUMN_MAJOR.items()),
    broken("mm", "column-major results of transposed operands", "layout",
      lambda c: c.eager() if c.self.is_contiguous() and c.mat2.is_contiguous() else column_major(c),
      lambda: call(normal(4, 3).t(), normal(2, 4).t())),
)
# fmt: on
