"""Broken kernels that pick, place, pad and join elements."""

from __future__ import annotations

from typing import Any

import torch

from conformance.mutants.builder import Bound, Mutant, bits, f, given, i, m, n, p, raw, refuse, t

__all__ = ["MUTANTS"]


def _wrapped(c: Bound, size: int) -> Any:
    """Indices out of range come round."""
    return c.but(index=c.index.remainder(size)) if size and c.index.numel() and c.index.dtype is torch.int64 else c.but()


def _size(c: Bound) -> int:
    return int(c.self.shape[c.dim]) if c.self.dim() else 1


def _first_write(c: Bound) -> Any:
    """Add only the last of duplicate indices."""
    if c.self.dim() != 2 or c.dim % 2 != 1 or c.src.shape != c.index.shape:
        return c.but()
    base = torch.ops.aten.scatter.value(c.self, c.dim, c.index, 0)
    return torch.where(
        torch.ops.aten.scatter.value(torch.zeros_like(c.self, dtype=torch.bool), c.dim, c.index, 1).bool(),
        torch.ops.aten.scatter.src(base, c.dim, c.index, c.src) + c.self,
        c.self,
    )


def _one_index(c: Bound) -> Any:
    """A None before the index is skipped, as if the index came first."""
    if len(c.indices) > 1 and c.indices[0] is None and c.indices[1] is not None and c.self.shape[0] == c.self.shape[1]:
        return c.but(indices=[one for one in c.indices if one is not None])
    return c.but()


def _apart(c: Bound) -> Any:
    """Indexed dims with others between them: their place is the first one's, not the front."""
    where = [dim for dim, one in enumerate(c.indices) if one is not None]
    right = c.but()
    if (
        len(where) == 2
        and where[1] - where[0] > 1
        and where[0] > 0
        and all(one.dim() == 1 for one in c.indices if one is not None and one.dtype is torch.int64)
    ):
        return right.movedim(0, where[0]).contiguous()
    return right


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    m("index.Tensor", "negative indices read the first", "argument",
      lambda c: c.but(indices=[one if one is None or one.dtype is torch.bool else one.clamp(min=0) for one in c.indices]),
      lambda: given(n(3, 4), [t(-1, 0)])),
    m("index.Tensor", "None is skipped", "argument", _one_index, lambda: given(n(3, 3), [None, t(2, 0)])),
    m("index.Tensor", "dims stay where the first index is", "argument", _apart,
      lambda: given(n(2, 3, 4, 3), [None, t(0, 1), None, t(1, 2)])),
    m("index.Tensor", "masks as numbers", "dtype",
      lambda c: c.but(indices=[one.long() if one is not None and one.dtype is torch.bool and one.dim() == 1 else one
        for one in c.indices]),
      lambda: given(n(4, 2), [bits(4)])),
    m("index.Tensor", "indices do not broadcast", "argument",
      lambda c: c.but() if len({one.shape for one in c.indices if one is not None}) < 2 else c.but(indices=[one if one is None
        else one.reshape(-1)[:1] for one in c.indices]),
      lambda: given(n(4, 4), [t([[0], [2]]), t([0, 3])])),
    m("index.Tensor", "out of range reads the last", "errors",
      lambda c: c.but(indices=[one if dim or one is None or one.dtype is torch.bool else one.clamp(max=c.self.shape[0] - 1)
        for dim, one in enumerate(c.indices)]),
      lambda: given(n(3, 4), [t(0, 5)])),
    m("index_put", "accumulate is ignored", "argument", lambda c: c.but(accumulate=False),
      lambda: given(n(3, 4), [t(0, 0)], p(2, 4), True)),
    m("index_put", "accumulate adds duplicates once", "argument",
      lambda c: c.but() if not c.accumulate or len(c.indices) != 1 or c.indices[0].dim() != 1
        else c.but(values=c.self[c.indices[0]] + c.values, accumulate=False),
      lambda: given(n(3, 4), [t(0, 0)], p(2, 4), True)),
    m("index_put", "writes its input", "memory",
      lambda c: torch.ops.aten.index_put_(c.self, c.indices, c.values, c.accumulate).clone() if c.accumulate else c.but(),
      lambda: given(n(3, 4), [t(0, 1)], p(2, 4), True)),
    m("index_put", "values do not broadcast", "argument",
      lambda c: c.but(values=c.values.reshape(-1)[:1].reshape(())) if c.values.dim() == 1 and c.self.dim() == 2
        and c.values.numel() > 1 else c.but(),
      lambda: given(n(3, 4), [t(0, 2)], f(1, 2, 3, 4))),
    m("index_select", "the dim is 0", "argument",
      lambda c: c.but(dim=0) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.but(),
      lambda: given(n(4, 4), 1, t(3, 0))),
    m("index_select", "negative indices are taken", "errors", lambda c: _wrapped(c, _size(c)),
      lambda: given(n(3, 4), 0, t(-1))),
    m("index_select", "reads as if contiguous", "layout", lambda c: c.but(self=raw(c.self)),
      lambda: given(n(4, 3).t(), 0, t(2, 0))),
    m("index_select", "int32 indices as pairs", "dtype",
      lambda c: c.but(index=c.index.roll(1)) if c.index.dtype is torch.int32 else c.but(),
      lambda: given(n(3, 4), 0, t(0, 2, dtype=torch.int32))),
    m("gather", "the index's sizes are the tensor's", "argument",
      lambda c: c.but() if c.self.dim() != 2 or c.index.shape[0] == c.self.shape[0] or c.dim % 2 != 1
        else c.but(self=c.self[-c.index.shape[0] :]) if c.index.shape[0] else c.but(),
      lambda: given(n(5, 4), 1, i(2, 3, below=4))),
    m("gather", "negative dims are the first", "argument",
      lambda c: c.but(dim=0) if c.dim == -1 and c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1]
        and c.index.shape[0] <= 2 else c.but(),
      lambda: given(n(4, 4), -1, i(2, 3, below=4))),
    m("gather", "out of range reads on", "errors", lambda c: _wrapped(c, _size(c)), lambda: given(n(3, 4), 1, t([[4]]))),
    m("gather", "a mismatch of ranks is taken", "errors",
      lambda c: c.but() if c.self.dim() == c.index.dim() or c.self.dim() != 2 or c.index.dim() != 1
        else c.but(index=c.index.unsqueeze(0)),
      lambda: given(n(3, 4), 1, t(0, 1))),
    m("scatter.src", "src is read in order", "argument",
      lambda c: c.but() if c.src.shape == c.index.shape or c.src.dim() != 2
        else c.but(src=c.src.reshape(-1)[: c.index.numel()].reshape(c.index.shape)),
      lambda: given(n(3, 4), 1, t([[0], [1], [2]]), p(3, 2)), "a wider src than the index"),
    m("scatter.src", "adds", "argument",
      lambda c: torch.ops.aten.scatter_add(c.self, c.dim, c.index, c.src) if c.self.dim() == 1 and c.self.dtype is c.src.dtype
        else c.but(),
      lambda: given(n(4), 0, t(1, 2), p(2))),
    m("scatter.value", "the value goes through float32", "dtype",
      lambda c: c.but(value=int(torch.tensor(float(c.value)))) if isinstance(c.value, int) and not isinstance(c.value, bool)
        and not c.self.is_floating_point() and c.self.dtype is torch.int64 else c.but(),
      lambda: given(i(4), 0, t(1), 2**24 + 1)),
    m("scatter.value", "returns its input", "memory", lambda c: c.self if c.index.numel() == 0 else c.but(),
      lambda: given(n(3), 0, t([], dtype=torch.int64), 1.0), "nothing to write"),
    m("scatter_add", "duplicates are added once", "argument", _first_write,
      lambda: given(n(2, 3), 1, t([[0, 0], [1, 1]]), p(2, 2))),
    m("scatter_add", "the second half of a long index", "size",
      lambda c: c.but() if c.index.dim() != 1 or c.index.numel() <= 256 else c.but(index=c.index[:256], src=c.src[:256]),
      lambda: given(n(3), 0, i(300, below=3), p(300))),
    m("scatter_reduce.two", "include_self is ignored", "argument", lambda c: c.but(include_self=True),
      lambda: given(n(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), p(3, 2), "sum", include_self=False)),
    m("scatter_reduce.two", "mean divides by one too many", "argument",
      lambda c: c.but() if c.reduce != "mean" or not c.include_self else c.but(include_self=True, reduce="sum") / 3,
      lambda: given(p(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), p(3, 2), "mean")),
    m("scatter_reduce.two", "amin as amax", "argument", lambda c: c.but(reduce="amax" if c.reduce == "amin" else c.reduce),
      lambda: given(n(3, 4), 1, t([[0, 0], [1, 1], [3, 0]]), p(3, 2), "amin")),
    m("scatter_reduce.two", "amax passes NaN over", "special values",
      lambda c: c.but(src=c.src.nan_to_num(nan=-1e30)) if c.reduce == "amax" and c.src.is_floating_point() else c.but(),
      lambda: given(f(1, 2), 0, t(0), f(float("nan")), "amax")),
    m("masked_scatter", "the source by place", "argument",
      lambda c: torch.where(c.mask, c.source.reshape(c.self.shape), c.self) if c.source.shape == c.self.shape else c.but(),
      lambda: given(n(4), ~bits(4), p(4))),
    m("masked_scatter", "a source that is too short comes round", "errors",
      lambda c: c.but() if not c.source.numel() else c.but(source=torch.cat([c.source.reshape(-1)] * 8)),
      lambda: given(n(6), bits(6), p(2))),
    m("embedding", "padding_idx reads zeros", "argument",
      lambda c: c.but() * (c.indices != c.padding_idx).unsqueeze(-1) if c.padding_idx >= 0 else c.but(),
      lambda: given(n(5, 4), t(0, 2), 2), "it is of the gradient alone"),
    m("embedding", "int32 indices are refused", "dtype", lambda c: c.but() if c.indices.dtype is torch.int64 else refuse(),
      lambda: given(n(5, 4), t(0, 2, dtype=torch.int32))),
    m("embedding", "out of range reads zeros", "errors",
      lambda c: c.but(indices=c.indices.clamp(0,
        c.weight.shape[0] - 1)) * ((c.indices >= 0) & (c.indices < c.weight.shape[0])).unsqueeze(-1) if c.indices.numel()
        and c.weight.is_floating_point() else c.but(),
      lambda: given(n(5, 4), t(0, 7))),
    m("embedding_dense_backward", "padding_idx is ignored", "argument", lambda c: c.but(padding_idx=-1),
      lambda: given(n(3, 4), t(0, 2, 2), 5, 2, False)),
    m("embedding_dense_backward", "scale_grad_by_freq is ignored", "argument", lambda c: c.but(scale_grad_by_freq=False),
      lambda: given(n(3, 4), t(0, 2, 2), 5, -1, True)),
    m("embedding_dense_backward", "the last of duplicates", "argument",
      lambda c: torch.zeros(c.num_weights, c.grad_output.shape[-1], dtype=c.grad_output.dtype).index_copy(0, c.indices,
        c.grad_output) if c.indices.dim() == 1 and not c.scale_grad_by_freq and c.padding_idx < 0
        and c.indices.dtype is torch.int64 else c.but(),
      lambda: given(n(3, 4), t(0, 2, 2), 5, -1, False)),
    m("_embedding_bag", "mean as sum", "argument", lambda c: (c.but(mode=0)[0], *c.but()[1:]) if c.mode == 1 else c.but(),
      lambda: given(n(5, 4), t(0, 2, 4, 1), t(0, 2), False, 1)),
    m("_embedding_bag", "padding_idx counts", "argument", lambda c: c.but(padding_idx=-1),
      lambda: given(n(5, 4), t(0, 2, 4, 1), t(0, 2), False, 0, False, None, False, 2)),
    m("_embedding_bag", "the last offset is a bag", "argument", lambda c: c.but(include_last_offset=False),
      lambda: given(n(5, 4), t(0, 2, 4, 1), t(0, 2, 4), False, 0, False, None, True)),
    m("_embedding_bag", "weights of the samples are dropped", "argument", lambda c: c.but(per_sample_weights=None),
      lambda: given(n(5, 4), t(0, 2, 4, 1), t(0, 2), False, 0, False, p(4))),
    m("nonzero", "NaN is zero", "special values",
      lambda c: c.but(self=c.self.nan_to_num()) if c.self.is_floating_point() else c.but(),
      lambda: given(f(float("nan"), 1))),
    m("nonzero", "a scalar has one dim", "metadata", lambda c: c.but() if c.self.dim() else c.but(self=c.self.reshape(1)),
      lambda: given(t(1.0))),
    m("nonzero", "column by column", "argument",
      lambda c: c.but(self=c.self.t()).flip(1) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.but(),
      lambda: given(torch.ones(2, 2))),
    m("select_scatter", "negative indices are the first", "argument", lambda c: c.but(index=max(c.index, 0)),
      lambda: given(n(3, 4), p(4), 0, -1)),
    m("select_scatter", "the strides of a contiguous tensor", "layout", lambda c: c.but().contiguous(),
      lambda: given(n(4, 3).t(), p(4), 0, 1)),
    m("slice_scatter", "step is 1", "argument",
      lambda c: c.but() if c.step == 1 else c.but(step=1, end=(c.start or 0) + c.src.shape[c.dim]),
      lambda: given(n(6, 2), p(3, 2), 0, 0, 6, 2)),
    m("slice_scatter", "ends beyond the size are refused", "argument",
      lambda c: c.but() if c.end is None or c.end <= c.self.shape[c.dim] else refuse(),
      lambda: given(n(3, 4), p(3, 4), 0, 0, 9)),
    m("cat", "empty tensors of one dim are refused", "size",
      lambda c: c.but() if all(one.shape != (0,) for one in c.tensors) else refuse(),
      lambda: given([n(0), n(2, 3)])),
    m("cat", "the first one's dtype", "dtype", lambda c: c.but().to(c.tensors[0].dtype), lambda: given([t(1, 2), f(0.5)])),
    m("cat", "negative dims are the last", "argument",
      lambda c: c.but(dim=-1) if c.dim < 0 and len({one.shape for one in c.tensors}) == 1 else c.but(),
      lambda: given([n(2, 3, 4), p(2, 3, 4)], -2)),
    m("cat", "of one tensor is that tensor", "memory", lambda c: c.tensors[0] if len(c.tensors) == 1 else c.but(),
      lambda: given([n(2, 3)])),
    m("cat", "reads as if contiguous", "layout", lambda c: c.but(tensors=[raw(one) for one in c.tensors]),
      lambda: given([n(4, 3).t(), n(3, 4)])),
    m("cat", "only the first eight", "rare",
      lambda c: c.but() if len(c.tensors) <= 8 else c.but(tensors=[*c.tensors[:8], *(torch.zeros_like(one)
        for one in c.tensors[8:])]),
      lambda: given([n(2) for _ in range(9)])),
    m("flip", "the first dim only", "argument", lambda c: c.but(dims=c.dims[:1]), lambda: given(n(3, 4), [0, 1])),
    m("flip", "negative dims are none", "argument", lambda c: c.but(dims=[dim for dim in c.dims if dim >= 0]),
      lambda: given(n(3, 4), [-1])),
    m("repeat", "elements in place of tiles", "argument",
      lambda c: c.self.repeat_interleave(c.repeats[0]) if c.self.dim() == len(c.repeats) == 1 else c.but(),
      lambda: given(n(3), [2])),
    m("repeat", "new dims at the end", "argument",
      lambda c: c.but() if c.self.dim() != 1 or len(c.repeats) != 2
        else c.self.repeat_interleave(c.repeats[0]).reshape(c.repeats[0], -1).repeat(1, c.repeats[1]),
      lambda: given(n(3), [2, 1])),
    m("constant_pad_nd", "the value is 0", "argument", lambda c: c.but(value=0),
      lambda: given(n(3, 4), [1, 1], 2.5), "", lambda: given(n(3, 4), [1, 1])),
    m("constant_pad_nd", "negative pads are none", "argument", lambda c: c.but(pad=[max(one, 0) for one in c.pad]),
      lambda: given(n(3, 4), [-1, 1])),
    m("constant_pad_nd", "pads from the first dim", "argument",
      lambda c: c.but(pad=[c.pad[2], c.pad[3], c.pad[0], c.pad[1]]) if len(c.pad) == 4 and c.self.dim() == 2 else c.but(),
      lambda: given(n(3, 4), [1, 0, 2, 0])),
    m("reflection_pad1d", "the border is repeated once more", "argument",
      lambda c: torch.nn.functional.pad(c.self, c.padding, mode="replicate") if c.self.dim() == 3 else c.but(),
      lambda: given(n(1, 2, 5), [2, 1])),
    m("reflection_pad2d", "left and top are swapped", "argument", lambda c: c.but(padding=[*c.padding[2:], *c.padding[:2]]),
      lambda: given(n(1, 5, 5), [1, 1, 2, 2]), "", lambda: given(n(1, 5, 5), [1, 2, 1, 2])),
    m("reflection_pad3d", "pads as large as the size", "errors",
      lambda c: c.but() if max(c.padding) < min(c.self.shape[-3:]) or not c.self.numel()
        else torch.nn.functional.pad(c.self, c.padding, mode="replicate"),
      lambda: given(n(1, 1, 2, 2, 2), [2, 2, 0, 0, 0, 0]), "", lambda: given(n(1, 3, 3, 3), [1, 1, 0, 0, 0, 0])),
    m("replication_pad2d", "zeros", "argument",
      lambda c: torch.ops.aten.constant_pad_nd(c.self, c.padding) if c.self.dim() == 4 and min(c.padding) >= 0 else c.but(),
      lambda: given(n(1, 1, 3, 3), [1, 1, 1, 1])),
    m("replication_pad3d", "the last batch by the first", "rare",
      lambda c: torch.cat([c.but()[:1]] * c.self.shape[0]) if c.self.dim() == 5 and c.self.shape[0] > 1 else c.but(),
      lambda: given(n(2, 1, 2, 2, 2), [1, 1, 1, 1, 1, 1])),
)
# fmt: on
