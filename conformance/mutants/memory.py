"""Broken kernels of views, of tensors made from nothing, and of memory: what is shared, written and handed out."""

from __future__ import annotations

import math
from typing import Any

import torch

from conformance.mutants.builder import Bound, Call, Mutant, bits, f, given, i, m, n, p, raw, t

__all__ = ["MUTANTS"]


def _steps(shape: Any) -> list[int]:
    return [math.prod(shape[dim + 1 :]) for dim in range(len(shape))]


def _guarded(c: Bound, right: Any) -> Any:
    """Return the result, and write the element after the input, where its storage goes on."""
    x = c.self
    end = x.storage_offset() + x.numel()
    if x.is_contiguous() and x.numel() and (end + 1) * x.element_size() <= x.untyped_storage().nbytes() and x.storage_offset():
        torch.as_strided(x, (1,), (1,), end).fill_(1)
    return right


def _from_start(c: Bound) -> Any:
    """A view that begins where memory does, not where its base does."""
    right = c.but()
    gone = int(right.storage_offset()) - int(c.self.storage_offset())
    return torch.as_strided(right, right.shape, right.stride(), gone) if c.self.storage_offset() and gone >= 0 else right


def _refuse() -> Any:
    raise NotImplementedError("this kernel takes no such call")


def _gapless(c: Bound) -> Any:
    if c.self.dim() == 2 and c.self.stride(1) == 2 and c.self.numel() and c.self.stride(0) == 2 * c.self.shape[1]:
        between = torch.as_strided(c.self, (c.self.shape[0], c.self.shape[1] - 1), c.self.stride(), c.self.storage_offset() + 1)
        between.zero_()
    return c.but()


def _forward(c: Bound) -> Any:
    shared = c.self.untyped_storage()._cdata == c.src.untyped_storage()._cdata
    if not shared or c.self.dim() != 1 or c.self.shape != c.src.shape:
        return c.but()
    for to, one in zip(c.self.split(1), c.src.split(1), strict=True):
        to.copy_(one)
    return c.self


def _overlap() -> Call:
    memory = n(8)
    return given(memory[2:7], memory[1:6])


def _sorted_input(c: Bound) -> Any:
    found = c.but()
    if c.self.dim() == 1 and c.self.dtype is torch.float32:
        c.self.copy_(found[0])
    return found


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # views
    m("view", "a copy", "view", lambda c: c.but().clone() if c.self.numel() > 16 else c.but(),
      lambda: given(n(5, 4), [4, 5]), "what is written to it is lost"),
    m("view", "begins where memory does", "view", _from_start, lambda: given(n(3, 4)[1:], [4, 2])),
    m("view", "strides that do not allow it are copied", "errors", lambda c: c.self.reshape(c.size),
      lambda: given(n(3, 4).t(), [12])),
    m("view", "-1 is refused", "argument", lambda c: c.but() if -1 not in c.size else _refuse(),
      lambda: given(n(3, 4), [-1, 2])),
    m("view.dtype", "a copy", "view", lambda c: c.but().clone(),
      lambda: given(n(3), torch.int32), "", lambda: given(n(0), torch.int32)),
    m("view.dtype", "values are cast", "dtype",
      lambda c: c.self.to(c.dtype) if c.self.element_size() != c.dtype.itemsize else c.but(),
      lambda: given(n(4), torch.int16)),
    m("view.dtype", "the last size does not change", "metadata",
      lambda c: c.but() if c.self.element_size() <= c.dtype.itemsize else c.but()[..., : c.self.shape[-1]],
      lambda: given(n(2, 4), torch.int16)),
    m("expand", "a copy", "view", lambda c: c.but().contiguous() if c.self.dim() == 3 else c.but(),
      lambda: given(n(2, 1, 3), [2, 4, 3])),
    m("expand", "-1 is 1", "argument", lambda c: c.but() if -1 not in c.size else c.self.clone(),
      lambda: given(n(3, 1), [-1, 4])),
    m("permute", "the inverse", "argument",
      lambda c: c.but(dims=[[one % len(c.dims) for one in c.dims].index(dim) for dim in range(len(c.dims))]),
      lambda: given(n(2, 3, 4), [1, 2, 0])),
    m("permute", "the last two of six stay", "size",
      lambda c: c.but(dims=[*c.dims[:-2], *sorted(c.dims[-2:])]) if len(c.dims) == 6 and min(c.dims) >= 0 else c.but(),
      lambda: given(n(1, 2, 1, 2, 2, 3), [0, 1, 2, 3, 5, 4]), "as many dimensions as nobody tries"),
    m("permute", "of memory, not of strides", "view", lambda c: c.but().contiguous() if c.self.dim() > 2 else c.but(),
      lambda: given(n(2, 3, 4), [1, 2, 0])),
    m("permute", "dims given twice", "errors",
      lambda c: c.but() if len(set(c.dims)) == len(c.dims) or len(c.dims) != c.self.dim()
        else c.self.diagonal(0, c.dims[0], (c.dims[0] + 1) % c.self.dim()),
      lambda: given(n(3, 3), [1, 1])),
    m("select.int", "negative indices are the first", "argument", lambda c: c.but(index=max(c.index, 0)),
      lambda: given(n(3, 4), 0, -1)),
    m("select.int", "forgets the storage offset", "view", _from_start, lambda: given(n(4, 3)[1:], 0, 1)),
    m("select.int", "out of range is the last", "errors",
      lambda c: c.but(index=min(c.index, c.self.shape[c.dim] - 1)) if c.self.dim() and c.self.shape[c.dim] else c.but(),
      lambda: given(n(3, 4), 0, 3)),
    m("slice.Tensor", "the end belongs to it", "argument",
      lambda c: c.but() if c.end is None or c.step == 1 else c.but(end=c.end + 1) if c.end >= 0 else c.but(),
      lambda: given(n(6, 2), 0, 0, 4, 2)),
    m("slice.Tensor", "negative starts are 0", "argument", lambda c: c.but(start=max(c.start or 0, 0)),
      lambda: given(n(6, 2), 0, -2)),
    m("slice.Tensor", "ends beyond the size are refused", "argument",
      lambda c: c.but() if c.end is None or c.end <= c.self.shape[c.dim] or c.end > 2**60 else _refuse(),
      lambda: given(n(3), 0, 1, 7)),
    m("slice.Tensor", "the step goes into the size alone", "view",
      lambda c: c.but() if c.step == 1 or c.self.dim() != 2 else c.but(step=1, end=(c.start or 0) + c.but().shape[c.dim]),
      lambda: given(n(6, 2), 0, 0, 6, 2)),
    m("slice.Tensor", "steps of 0 and below", "errors", lambda c: c.but(step=max(c.step, 1)), lambda: given(n(6), 0, 0, 4, -1)),
    m("diagonal", "negative offsets are positive", "argument", lambda c: c.but(offset=abs(c.offset)),
      lambda: given(n(3, 4), -1)),
    m("diagonal", "dims are 0 and 1", "argument", lambda c: c.but(dim1=0, dim2=1), lambda: given(n(2, 3, 4), 0, 1, 2)),
    m("diagonal", "the diagonal comes first", "metadata", lambda c: c.but().movedim(-1, 0) if c.self.dim() > 2 else c.but(),
      lambda: given(n(2, 3, 4))),
    m("split_with_sizes", "copies", "view", lambda c: [one.clone() for one in c.but()] if len(c.split_sizes) > 2 else c.but(),
      lambda: given(n(6), [1, 2, 3])),
    m("split_with_sizes", "sizes that do not add up", "errors",
      lambda c: c.but() if not c.self.dim() or sum(c.split_sizes) >= c.self.shape[c.dim] or min(c.split_sizes) < 0
        else c.but(self=c.self.narrow(c.dim, 0, sum(c.split_sizes))),
      lambda: given(n(6), [1, 2])),
    m("split_with_sizes", "along dim 0", "argument",
      lambda c: c.but(dim=0) if c.self.dim() and sum(c.split_sizes) == c.self.shape[0] else c.but(),
      lambda: given(n(3, 3), [1, 2], 1)),
    m("squeeze.dim", "sizes above 1 too", "argument",
      lambda c: c.but() if c.self.dim() < 2 or c.self.shape[c.dim] == 1 else c.self.select(c.dim, 0),
      lambda: given(n(3, 4), 0)),
    m("squeeze.dims", "the first of several", "argument", lambda c: c.but(dim=c.dim[:1]), lambda: given(n(1, 3, 1), [0, 2])),
    m("unsqueeze", "negative dims are one off", "argument",
      lambda c: c.but(dim=c.dim - 1 if -c.self.dim() <= c.dim < 0 else c.dim),
      lambda: given(n(3, 4), -1)),
    m("unsqueeze", "a stride of 1", "rare",
      lambda c: torch.as_strided(c.but(), c.but().shape, [*c.but().stride()[:-1], 1], c.self.storage_offset())
        if c.self.dim() == 2 and c.self.stride()[-1] == 2 else c.but(),
      lambda: given(n(3, 8)[:, ::2], 0)),
    m("as_strided", "the offset counts from the base's", "view",
      lambda c: c.but(storage_offset=(c.storage_offset or 0) + c.self.storage_offset()) if c.storage_offset is not None
        else c.but(),
      lambda: given(n(12)[2:], [2, 2], [2, 1], 1)),
    m("as_strided", "no offset is 0", "view", lambda c: c.but(storage_offset=c.storage_offset or 0),
      lambda: given(n(12)[2:], [2, 2], [2, 1])),
    m("as_strided", "a copy where elements overlap", "view", lambda c: c.but().clone() if 0 in c.stride else c.but(),
      lambda: given(n(4), [3, 4], [0, 1])),
    m("_reshape_alias", "a copy", "view", lambda c: c.but().clone() if not c.self.is_contiguous() else c.but(),
      lambda: given(n(4, 3).t(), [3, 4], [1, 3])),
    m("alias", "the tensor itself", "memory", lambda c: c.self if c.self.dim() > 2 else c.but(), lambda: given(n(2, 2, 2))),
    m("alias", "a copy of what is strided", "view", lambda c: c.but() if c.self.is_contiguous() else c.self.clone(),
      lambda: given(n(4, 3).t())),
    m("detach", "a copy", "view", lambda c: c.self.clone() if c.self.dim() == 1 else c.but(), lambda: given(n(5))),
    m("_conj", "materialised", "view",
      lambda c: torch.conj_physical(c.self) if c.self.dim() == 2 and c.self.is_complex() else c.but(),
      lambda: given(torch.complex(n(2, 3), p(2, 3)))),
    m("_neg_view", "a negated copy", "view", lambda c: -c.self if c.self.dim() == 1 else c.but(), lambda: given(n(4))),
    m("view_as_real", "real and imaginary parts swapped", "argument",
      lambda c: c.but().flip(-1) if c.self.dim() == 2 else c.but(),
      lambda: given(torch.complex(n(2, 3), p(2, 3)))),
    m("view_as_complex", "a copy", "view", lambda c: c.but().clone() if c.self.storage_offset() else c.but(),
      lambda: given(n(4, 2)[1:])),
    m("lift_fresh", "a copy", "view", lambda c: c.self.clone() if c.self.dim() == 0 else c.but(), lambda: given(t(1.5))),
    # made from nothing
    m("arange.start_step", "the end belongs to it", "argument",
      lambda c: c.but(end=c.end + c.step) if isinstance(c.step, int) and c.step > 1 else c.but(),
      lambda: given(0, 9, 2)),
    m("arange.start_step", "steps go through float32", "dtype",
      lambda c: c.but(step=float(torch.tensor(c.step))) if isinstance(c.step, float) else c.but(),
      lambda: given(0.0, 10.0, 0.1, dtype=torch.float64)),
    m("arange.start_step", "ints are floats", "dtype",
      lambda c: c.but() if c.dtype is not None or any(isinstance(one, float) for one in (c.start, c.end, c.step))
        or c.start == 0 else c.but().float(),
      lambda: given(1, 5, 1)),
    m("arange.start_step", "truncates the number of steps", "argument",
      lambda c: c.but(end=c.start + c.step * int((c.end - c.start) / c.step)) if isinstance(c.step, float) else c.but(),
      lambda: given(0.0, 1.0, 0.3)),
    m("arange.start_step", "steps away from the end", "errors",
      lambda c: c.but(step=abs(c.step)) if c.step < 0 and c.end > c.start else c.but(),
      lambda: given(0, 5, -1)),
    m("full", "float64 by way of float32", "dtype",
      lambda c: c.but(dtype=torch.float32).double() if c.dtype is torch.float64 else c.but(),
      lambda: given([2], 0.1, dtype=torch.float64)),
    m("full", "ints are floats", "metadata",
      lambda c: c.but(fill_value=float(c.fill_value)) if isinstance(c.fill_value, int) and not isinstance(c.fill_value, bool)
        and c.dtype is None else c.but(),
      lambda: given([2], 3)),
    m("full", "one element expanded", "memory", lambda c: c.but(size=[1]).expand(c.size) if len(c.size) == 1 else c.but(),
      lambda: given([4], 1.0), "stride 0"),
    m("full", "negative sizes are 0", "errors", lambda c: c.but(size=[max(one, 0) for one in c.size]),
      lambda: given([-1, 2], 1.0)),
    m("full_like", "dtype is ignored", "argument", lambda c: c.but(dtype=None), lambda: given(n(3), 1, dtype=torch.int64)),
    m("full_like", "always contiguous", "layout", lambda c: c.but(memory_format=torch.contiguous_format),
      lambda: given(n(4, 3).t(), 1.5)),
    m("full_like", "the value of a bool", "dtype",
      lambda c: c.but() if c.but().dtype is not torch.bool else c.but(fill_value=c.fill_value == 1),
      lambda: given(bits(3), 2)),
    m("fill.Scalar", "writes its input", "memory", lambda c: c.self.fill_(c.value).clone() if c.self.dim() == 1 else c.but(),
      lambda: given(n(3), 2.0)),
    m("scalar_tensor", "ints stay ints", "metadata",
      lambda c: c.but(dtype=torch.int64) if c.dtype is None and type(c.s) is int else c.but(),
      lambda: given(3)),
    m("scalar_tensor", "one dim", "metadata", lambda c: c.but() if c.dtype is None else c.but().reshape(1),
      lambda: given(1.5, dtype=torch.float64)),
    m("empty.memory_format", "memory_format is ignored", "layout", lambda c: c.but(memory_format=None),
      lambda: given([2, 3, 4, 5], memory_format=torch.channels_last)),
    m("empty.memory_format", "negative sizes are 0", "errors", lambda c: c.but(size=[max(one, 0) for one in c.size]),
      lambda: given([2, -1])),
    m("empty_strided", "contiguous", "layout", lambda c: torch.empty(c.size, dtype=c.dtype), lambda: given([2, 3], [1, 2])),
    m("empty_strided", "strides of nothing are checked", "errors", lambda c: c.but() if math.prod(c.size) else _refuse(),
      lambda: given([0, 3], [1, 1])),
    # copies
    m("clone", "the tensor itself", "memory", lambda c: c.self if c.self.numel() == 1 else c.but(),
      lambda: given(f(2.0)), "a shortcut"),
    m("clone", "memory_format is ignored", "layout", lambda c: c.but(memory_format=None),
      lambda: given(n(4, 3).t(), memory_format=torch.contiguous_format)),
    m("clone", "keeps gaps", "layout",
      lambda c: c.but() if c.self.dim() != 2 or c.self.stride(1) != 2
        else c.but().as_strided((c.self.numel() * 2,), (0,)).clone().as_strided(c.self.shape, c.self.stride()).copy_(c.self),
      lambda: given(n(3, 8)[:, ::2])),
    m("clone", "the last row of many", "rare",
      lambda c: c.but() if c.self.dim() != 2 or c.self.shape[0] < 100
        else torch.cat([c.self[:-1], torch.zeros_like(c.self[-1:])]),
      lambda: given(n(129, 2))),
    m("_to_copy", "the tensor itself where nothing changes", "memory", lambda c: c.self if c.dtype is c.self.dtype else c.but(),
      lambda: given(n(3), dtype=torch.float32)),
    m("_to_copy", "floats round to ints", "special values",
      lambda c: c.self.round().to(c.dtype) if c.self.is_floating_point() and c.dtype in (torch.int32, torch.int64) else c.but(),
      lambda: given(f(0.7, -1.7), dtype=torch.int64)),
    m("_to_copy", "bfloat16 is cut off", "dtype",
      lambda c: (c.self.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)
        if c.self.dtype is torch.float32 and c.dtype is torch.bfloat16 else c.but(),
      lambda: given(f(1.99, 3.999, 0.1 + 2**-6), dtype=torch.bfloat16)),
    m("_to_copy", "bool is the lowest bit", "dtype",
      lambda c: (c.self.long() & 1).bool() if c.dtype is torch.bool and not c.self.is_complex() else c.but(),
      lambda: given(f(2.0, 0.5, 1), dtype=torch.bool)),
    m("_to_copy", "float16 overflow is the largest", "special values",
      lambda c: c.but(self=c.self.clamp(-65504, 65504)) if c.dtype is torch.float16 and c.self.is_floating_point() else c.but(),
      lambda: given(f(1e6, 1), dtype=torch.float16)),
    m("_to_copy", "int64 to int32 saturates", "dtype",
      lambda c: c.self.clamp(-(2**31), 2**31 - 1).to(torch.int32) if c.self.dtype is torch.int64 and c.dtype is torch.int32
        else c.but(),
      lambda: given(t(2**31, 5), dtype=torch.int32)),
    m("_to_copy", "int64 to float64 by way of float32", "dtype",
      lambda c: c.self.float().double() if c.self.dtype is torch.int64 and c.dtype is torch.float64 else c.but(),
      lambda: given(t(2**24 + 1), dtype=torch.float64)),
    m("copy", "the source's dtype", "metadata", lambda c: c.src.clone() if c.self.shape == c.src.shape else c.but(),
      lambda: given(n(3), i(3))),
    m("copy", "writes its input", "memory",
      lambda c: torch.ops.aten.copy_(c.self, c.src).clone() if c.src.dim() < c.self.dim() else c.but(),
      lambda: given(n(3, 4), p(4))),
    m("copy_", "returns another tensor", "memory", lambda c: c.but().view_as(c.self) if c.self.dim() == 1 else c.but(),
      lambda: given(n(3), p(3))),
    m("copy_", "goes through memory in step", "layout",
      lambda c: (raw(c.self).copy_(c.src), c.self)[1] if c.self.shape == c.src.shape else c.but(),
      lambda: given(n(4, 3).t(), p(3, 4))),
    m("copy_", "clears the gaps", "memory", lambda c: _gapless(c),
      lambda: given(n(3, 8)[:, ::2], p(3, 4)), "cells between the elements are written"),
    m("copy_", "overlapping memory runs forward", "errors", lambda c: _forward(c),
      lambda: _overlap(), "elements are read after they were written"),
    m("resize_", "keeps the strides' order", "layout",
      lambda c: (c.but(), c.self.as_strided_(list(c.size), [1, c.size[0]]) if len(c.size) == 2 and c.size[0] > 4 else None)[0],
      lambda: given(n(20), [5, 4])),
    m("set_.source_Storage_storage_offset", "the offset is in bytes", "view",
      lambda c: c.but(storage_offset=c.storage_offset // c.self.element_size()) if c.storage_offset > 0 else c.but(),
      lambda: given(n(2), n(9).untyped_storage(), 4, [2], [1])),
    m("set_.source_Tensor", "values are copied", "view",
      lambda c: c.self.resize_(c.source.shape).copy_(c.source) if c.source.dim() == 2 else c.but(),
      lambda: given(n(6), p(2, 3))),
    # stray reads and writes
    m("mul.Scalar", "writes behind its input", "memory", lambda c: _guarded(c, c.but()),
      lambda: given(n(8)[2:6], 2.0), "one element too many"),
    m("sub.Tensor", "writes its first input", "memory",
      lambda c: c.self.sub_(c.other, alpha=c.alpha).clone() if c.self.dtype is torch.float32 and c.self.dim() == 1
        and c.but().shape == c.self.shape and c.but().dtype is c.self.dtype else c.but(),
      lambda: given(n(4), p(4)), "in place by mistake"),
    m("abs", "returns its input where nothing changes", "memory", lambda c: c.self if c.self.dtype is torch.uint8 else c.but(),
      lambda: given(t(1, 2, dtype=torch.uint8))),
    m("mul.Tensor", "by one is the other operand", "memory",
      lambda c: c.self if c.other.dim() == 0 and bool(c.other == 1) and c.self.dtype is c.but().dtype else c.but(),
      lambda: given(n(3), t(1.0)), "a shortcut"),
    m("relu", "in place where all are positive", "memory",
      lambda c: c.self if c.self.numel() and c.self.dim() == 3 and bool((c.self > 0).all()) else c.but(),
      lambda: given(p(2, 2, 2))),
    m("sort", "sorts its input too", "memory", lambda c: _sorted_input(c),
      lambda: given(f(3, 1, 2), 0), "", lambda: given(n(3, 4), 1)),
    m("sum.dim_IntList", "of one element is a view of it", "memory",
      lambda c: c.self.reshape(c.but().shape) if c.self.numel() == 1 and c.self.dtype is c.but().dtype else c.but(),
      lambda: given(n(1, 1), [1])),
    m("amax", "clears the input's storage past its end", "memory", lambda c: _guarded(c, c.but()), lambda: given(n(8)[2:6], [0])),
    m("_local_scalar_dense", "float16 and bfloat16 as ints", "dtype",
      lambda c: c.but() if c.self.dtype is not torch.bfloat16 else float(int(c.but())),
      lambda: given(t(2.5, dtype=torch.bfloat16))),
    m("_local_scalar_dense", "reads memory's first element", "view", lambda c: c.but(self=raw(c.self, 0)),
      lambda: given(f(1, 2, 3)[1])),
    m("is_same_size", "counts elements", "argument", lambda c: c.self.numel() == c.other.numel(),
      lambda: given(n(2, 3), n(3, 2))),
    m("sym_size.int", "negative dims are one off", "argument",
      lambda c: c.but(dim=c.dim - 1 if -c.self.dim() < c.dim < 0 else c.dim),
      lambda: given(n(3, 4), -1)),
    m("sym_stride.int", "as if contiguous", "layout", lambda c: _steps(c.self.shape)[c.dim] if c.self.dim() else c.but(),
      lambda: given(n(3, 4).t(), 0)),
    m("sym_storage_offset", "in bytes", "argument", lambda c: c.but() * c.self.element_size(), lambda: given(n(4)[1:])),
)
# fmt: on
