"""Broken kernels of indexing, gather and scatter, embeddings, padding and concatenation."""

from __future__ import annotations

from typing import Any

import torch

from conformance.mutants.builder import (
    BoundCall,
    Mutant,
    bools,
    broken,
    call,
    floats,
    ints,
    normal,
    positive,
    raise_unsupported,
    read_contiguous,
    tensor,
)

__all__ = ["MUTANTS"]


def _wrapped(c: BoundCall, size: int) -> Any:
    """Wrap indices that are out of range."""
    return c.eager(index=c.index.remainder(size)) if size and c.index.numel() and c.index.dtype is torch.int64 else c.eager()


def _size(c: BoundCall) -> int:
    return int(c.self.shape[c.dim]) if c.self.dim() else 1


def _last_duplicate_only(c: BoundCall) -> Any:
    """Add only the last of duplicate indices."""
    if c.self.dim() != 2 or c.dim % 2 != 1 or c.src.shape != c.index.shape:
        return c.eager()
    base = torch.ops.aten.scatter.value(c.self, c.dim, c.index, 0)
    return torch.where(
        torch.ops.aten.scatter.value(torch.zeros_like(c.self, dtype=torch.bool), c.dim, c.index, 1).bool(),
        torch.ops.aten.scatter.src(base, c.dim, c.index, c.src) + c.self,
        c.self,
    )


def _skip_none(c: BoundCall) -> Any:
    """Skip a None before the index, as if the index came first."""
    if len(c.indices) > 1 and c.indices[0] is None and c.indices[1] is not None and c.self.shape[0] == c.self.shape[1]:
        return c.eager(indices=[one for one in c.indices if one is not None])
    return c.eager()


def _separated_indices(c: BoundCall) -> Any:
    """Put the result's dim of two separated indices at the first index, not at the front."""
    where = [dim for dim, one in enumerate(c.indices) if one is not None]
    right = c.eager()
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
    broken("index.Tensor", "negative indices read the first element", "argument",
      lambda c: c.eager(indices=[one if one is None or one.dtype is torch.bool else one.clamp(min=0) for one in c.indices]),
      lambda: call(normal(3, 4), [tensor(-1, 0)])),
    broken("index.Tensor", "None is skipped", "argument", _skip_none, lambda: call(normal(3, 3), [None, tensor(2, 0)])),
    broken("index.Tensor", "the result's dim is at the first index", "argument", _separated_indices,
      lambda: call(normal(2, 3, 4, 3), [None, tensor(0, 1), None, tensor(1, 2)])),
    broken("index.Tensor", "bool masks are used as integer indices", "dtype",
      lambda c: c.eager(indices=[one.long() if one is not None and one.dtype is torch.bool and one.dim() == 1 else one
        for one in c.indices]),
      lambda: call(normal(4, 2), [bools(4)])),
    broken("index.Tensor", "indices do not broadcast", "argument",
      lambda c: c.eager() if len({one.shape for one in c.indices if one is not None}) < 2 else c.eager(indices=[one if one is None
        else one.reshape(-1)[:1] for one in c.indices]),
      lambda: call(normal(4, 4), [tensor([[0], [2]]), tensor([0, 3])])),
    broken("index.Tensor", "indices out of range read the last element", "errors",
      lambda c: c.eager(indices=[one if dim or one is None or one.dtype is torch.bool else one.clamp(max=c.self.shape[0] - 1)
        for dim, one in enumerate(c.indices)]),
      lambda: call(normal(3, 4), [tensor(0, 5)])),
    broken("index_put", "accumulate is ignored", "argument", lambda c: c.eager(accumulate=False),
      lambda: call(normal(3, 4), [tensor(0, 0)], positive(2, 4), True)),
    broken("index_put", "accumulate adds only one of several duplicates", "argument",
      lambda c: c.eager() if not c.accumulate or len(c.indices) != 1 or c.indices[0].dim() != 1
        else c.eager(values=c.self[c.indices[0]] + c.values, accumulate=False),
      lambda: call(normal(3, 4), [tensor(0, 0)], positive(2, 4), True)),
    broken("index_put", "writes to its input", "memory",
      lambda c: torch.ops.aten.index_put_(c.self, c.indices, c.values, c.accumulate).clone() if c.accumulate else c.eager(),
      lambda: call(normal(3, 4), [tensor(0, 1)], positive(2, 4), True)),
    broken("index_put", "values do not broadcast", "argument",
      lambda c: c.eager(values=c.values.reshape(-1)[:1].reshape(())) if c.values.dim() == 1 and c.self.dim() == 2
        and c.values.numel() > 1 else c.eager(),
      lambda: call(normal(3, 4), [tensor(0, 2)], floats(1, 2, 3, 4))),
    broken("index_select", "dim is always 0", "argument",
      lambda c: c.eager(dim=0) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.eager(),
      lambda: call(normal(4, 4), 1, tensor(3, 0))),
    broken("index_select", "negative indices are accepted", "errors", lambda c: _wrapped(c, _size(c)),
      lambda: call(normal(3, 4), 0, tensor(-1))),
    broken("index_select", "reads as if contiguous", "layout", lambda c: c.eager(self=read_contiguous(c.self)),
      lambda: call(normal(4, 3).t(), 0, tensor(2, 0))),
    broken("index_select", "int32 indices are misread", "dtype",
      lambda c: c.eager(index=c.index.roll(1)) if c.index.dtype is torch.int32 else c.eager(),
      lambda: call(normal(3, 4), 0, tensor(0, 2, dtype=torch.int32))),
    broken("gather", "rows are counted from the end if the index has fewer", "argument",
      lambda c: c.eager() if c.self.dim() != 2 or c.index.shape[0] == c.self.shape[0] or c.dim % 2 != 1
        else c.eager(self=c.self[-c.index.shape[0] :]) if c.index.shape[0] else c.eager(),
      lambda: call(normal(5, 4), 1, ints(2, 3, below=4))),
    broken("gather", "dim -1 is dim 0", "argument",
      lambda c: c.eager(dim=0) if c.dim == -1 and c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1]
        and c.index.shape[0] <= 2 else c.eager(),
      lambda: call(normal(4, 4), -1, ints(2, 3, below=4))),
    broken("gather", "indices out of range wrap", "errors", lambda c: _wrapped(c, _size(c)),
      lambda: call(normal(3, 4), 1, tensor([[4]]))),
    broken("gather", "an index of another rank is accepted", "errors",
      lambda c: c.eager() if c.self.dim() == c.index.dim() or c.self.dim() != 2 or c.index.dim() != 1
        else c.eager(index=c.index.unsqueeze(0)),
      lambda: call(normal(3, 4), 1, tensor(0, 1))),
    broken("scatter.src", "src is read as if it had the index's shape", "argument",
      lambda c: c.eager() if c.src.shape == c.index.shape or c.src.dim() != 2
        else c.eager(src=c.src.reshape(-1)[: c.index.numel()].reshape(c.index.shape)),
      lambda: call(normal(3, 4), 1, tensor([[0], [1], [2]]), positive(3, 2)), "src is wider than the index"),
    broken("scatter.src", "adds instead of writing", "argument",
      lambda c: torch.ops.aten.scatter_add(c.self, c.dim, c.index, c.src) if c.self.dim() == 1 and c.self.dtype is c.src.dtype
        else c.eager(),
      lambda: call(normal(4), 0, tensor(1, 2), positive(2))),
    broken("scatter.value", "the value is rounded to float32", "dtype",
      lambda c: c.eager(value=int(torch.tensor(float(c.value)))) if isinstance(c.value, int) and not isinstance(c.value, bool)
        and not c.self.is_floating_point() and c.self.dtype is torch.int64 else c.eager(),
      lambda: call(ints(4), 0, tensor(1), 2**24 + 1)),
    broken("scatter.value", "returns its input", "memory", lambda c: c.self if c.index.numel() == 0 else c.eager(),
      lambda: call(normal(3), 0, tensor([], dtype=torch.int64), 1.0), "nothing to write"),
    broken("scatter_add", "only one of several duplicates is added", "argument", _last_duplicate_only,
      lambda: call(normal(2, 3), 1, tensor([[0, 0], [1, 1]]), positive(2, 2))),
    broken("scatter_add", "only the first 256 indices are used", "size",
      lambda c: c.eager() if c.index.dim() != 1 or c.index.numel() <= 256 else c.eager(index=c.index[:256], src=c.src[:256]),
      lambda: call(normal(3), 0, ints(300, below=3), positive(300))),
    broken("scatter_reduce.two", "include_self is ignored", "argument", lambda c: c.eager(include_self=True),
      lambda: call(normal(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), positive(3, 2), "sum", include_self=False)),
    broken("scatter_reduce.two", "mean divides by one too many", "argument",
      lambda c: c.eager() if c.reduce != "mean" or not c.include_self else c.eager(include_self=True, reduce="sum") / 3,
      lambda: call(positive(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), positive(3, 2), "mean")),
    broken("scatter_reduce.two", "amin is computed as amax", "argument",
      lambda c: c.eager(reduce="amax" if c.reduce == "amin" else c.reduce),
      lambda: call(normal(3, 4), 1, tensor([[0, 0], [1, 1], [3, 0]]), positive(3, 2), "amin")),
    broken("scatter_reduce.two", "amax ignores NaN", "special values",
      lambda c: c.eager(src=c.src.nan_to_num(nan=-1e30)) if c.reduce == "amax" and c.src.is_floating_point() else c.eager(),
      lambda: call(floats(1, 2), 0, tensor(0), floats(float("nan")), "amax")),
    broken("masked_scatter", "the source is read at the mask's positions", "argument",
      lambda c: torch.where(c.mask, c.source.reshape(c.self.shape), c.self) if c.source.shape == c.self.shape else c.eager(),
      lambda: call(normal(4), ~bools(4), positive(4))),
    broken("masked_scatter", "a source that is too short is repeated", "errors",
      lambda c: c.eager() if not c.source.numel() else c.eager(source=torch.cat([c.source.reshape(-1)] * 8)),
      lambda: call(normal(6), bools(6), positive(2))),
    broken("embedding", "padding_idx gives zeros", "argument",
      lambda c: c.eager() * (c.indices != c.padding_idx).unsqueeze(-1) if c.padding_idx >= 0 else c.eager(),
      lambda: call(normal(5, 4), tensor(0, 2), 2), "padding_idx only affects the gradient"),
    broken("embedding", "int32 indices are refused", "dtype",
      lambda c: c.eager() if c.indices.dtype is torch.int64 else raise_unsupported(),
      lambda: call(normal(5, 4), tensor(0, 2, dtype=torch.int32))),
    broken("embedding", "indices out of range give zeros", "errors",
      lambda c: c.eager(indices=c.indices.clamp(0,
        c.weight.shape[0] - 1)) * ((c.indices >= 0) & (c.indices < c.weight.shape[0])).unsqueeze(-1) if c.indices.numel()
        and c.weight.is_floating_point() else c.eager(),
      lambda: call(normal(5, 4), tensor(0, 7))),
    broken("embedding_dense_backward", "padding_idx is ignored", "argument", lambda c: c.eager(padding_idx=-1),
      lambda: call(normal(3, 4), tensor(0, 2, 2), 5, 2, False)),
    broken("embedding_dense_backward", "scale_grad_by_freq is ignored", "argument", lambda c: c.eager(scale_grad_by_freq=False),
      lambda: call(normal(3, 4), tensor(0, 2, 2), 5, -1, True)),
    broken("embedding_dense_backward", "only the last of several duplicates counts", "argument",
      lambda c: torch.zeros(c.num_weights, c.grad_output.shape[-1], dtype=c.grad_output.dtype).index_copy(0, c.indices,
        c.grad_output) if c.indices.dim() == 1 and not c.scale_grad_by_freq and c.padding_idx < 0
        and c.indices.dtype is torch.int64 else c.eager(),
      lambda: call(normal(3, 4), tensor(0, 2, 2), 5, -1, False)),
    broken("_embedding_bag", "mean is computed as sum", "argument",
      lambda c: (c.eager(mode=0)[0], *c.eager()[1:]) if c.mode == 1 else c.eager(),
      lambda: call(normal(5, 4), tensor(0, 2, 4, 1), tensor(0, 2), False, 1)),
    broken("_embedding_bag", "padding_idx is ignored", "argument", lambda c: c.eager(padding_idx=-1),
      lambda: call(normal(5, 4), tensor(0, 2, 4, 1), tensor(0, 2), False, 0, False, None, False, 2)),
    broken("_embedding_bag", "include_last_offset is ignored", "argument", lambda c: c.eager(include_last_offset=False),
      lambda: call(normal(5, 4), tensor(0, 2, 4, 1), tensor(0, 2, 4), False, 0, False, None, True)),
    broken("_embedding_bag", "per_sample_weights is ignored", "argument", lambda c: c.eager(per_sample_weights=None),
      lambda: call(normal(5, 4), tensor(0, 2, 4, 1), tensor(0, 2), False, 0, False, positive(4))),
    broken("nonzero", "NaN is zero", "special values",
      lambda c: c.eager(self=c.self.nan_to_num()) if c.self.is_floating_point() else c.eager(),
      lambda: call(floats(float("nan"), 1))),
    broken("nonzero", "a 0-dim input is treated as 1-dim", "metadata",
      lambda c: c.eager() if c.self.dim() else c.eager(self=c.self.reshape(1)), lambda: call(tensor(1.0))),
    broken("nonzero", "results are in column order", "argument",
      lambda c: c.eager(self=c.self.t()).flip(1) if c.self.dim() == 2 and c.self.shape[0] == c.self.shape[1] else c.eager(),
      lambda: call(torch.ones(2, 2))),
    broken("select_scatter", "negative indices are 0", "argument", lambda c: c.eager(index=max(c.index, 0)),
      lambda: call(normal(3, 4), positive(4), 0, -1)),
    broken("select_scatter", "always contiguous", "layout", lambda c: c.eager().contiguous(),
      lambda: call(normal(4, 3).t(), positive(4), 0, 1)),
    broken("slice_scatter", "step is 1", "argument",
      lambda c: c.eager() if c.step == 1 else c.eager(step=1, end=(c.start or 0) + c.src.shape[c.dim]),
      lambda: call(normal(6, 2), positive(3, 2), 0, 0, 6, 2)),
    broken("slice_scatter", "ends beyond the size raise", "argument",
      lambda c: c.eager() if c.end is None or c.end <= c.self.shape[c.dim] else raise_unsupported(),
      lambda: call(normal(3, 4), positive(3, 4), 0, 0, 9)),
    broken("cat", "empty 1-dim tensors raise", "size",
      lambda c: c.eager() if all(one.shape != (0,) for one in c.tensors) else raise_unsupported(),
      lambda: call([normal(0), normal(2, 3)])),
    broken("cat", "has the first tensor's dtype", "dtype", lambda c: c.eager().to(c.tensors[0].dtype),
      lambda: call([tensor(1, 2), floats(0.5)])),
    broken("cat", "negative dims are -1", "argument",
      lambda c: c.eager(dim=-1) if c.dim < 0 and len({one.shape for one in c.tensors}) == 1 else c.eager(),
      lambda: call([normal(2, 3, 4), positive(2, 3, 4)], -2)),
    broken("cat", "returns a single tensor itself", "memory", lambda c: c.tensors[0] if len(c.tensors) == 1 else c.eager(),
      lambda: call([normal(2, 3)])),
    broken("cat", "reads as if contiguous", "layout", lambda c: c.eager(tensors=[read_contiguous(one) for one in c.tensors]),
      lambda: call([normal(4, 3).t(), normal(3, 4)])),
    broken("cat", "tensors after the eighth are zeros", "rare",
      lambda c: c.eager() if len(c.tensors) <= 8 else c.eager(tensors=[*c.tensors[:8], *(torch.zeros_like(one)
        for one in c.tensors[8:])]),
      lambda: call([normal(2) for _ in range(9)])),
    broken("flip", "only the first dim is flipped", "argument", lambda c: c.eager(dims=c.dims[:1]),
      lambda: call(normal(3, 4), [0, 1])),
    broken("flip", "negative dims are ignored", "argument", lambda c: c.eager(dims=[dim for dim in c.dims if dim >= 0]),
      lambda: call(normal(3, 4), [-1])),
    broken("repeat", "repeats elements, not the tensor", "argument",
      lambda c: c.self.repeat_interleave(c.repeats[0]) if c.self.dim() == len(c.repeats) == 1 else c.eager(),
      lambda: call(normal(3), [2])),
    broken("repeat", "new dims are added at the end", "argument",
      lambda c: c.eager() if c.self.dim() != 1 or len(c.repeats) != 2
        else c.self.repeat_interleave(c.repeats[0]).reshape(c.repeats[0], -1).repeat(1, c.repeats[1]),
      lambda: call(normal(3), [2, 1])),
    broken("constant_pad_nd", "the value is 0", "argument", lambda c: c.eager(value=0),
      lambda: call(normal(3, 4), [1, 1], 2.5), "", lambda: call(normal(3, 4), [1, 1])),
    broken("constant_pad_nd", "negative padding is ignored", "argument", lambda c: c.eager(pad=[max(one, 0) for one in c.pad]),
      lambda: call(normal(3, 4), [-1, 1])),
    broken("constant_pad_nd", "padding starts at the first dim", "argument",
      lambda c: c.eager(pad=[c.pad[2], c.pad[3], c.pad[0], c.pad[1]]) if len(c.pad) == 4 and c.self.dim() == 2 else c.eager(),
      lambda: call(normal(3, 4), [1, 0, 2, 0])),
    broken("reflection_pad1d", "replicates the border", "argument",
      lambda c: torch.nn.functional.pad(c.self, c.padding, mode="replicate") if c.self.dim() == 3 else c.eager(),
      lambda: call(normal(1, 2, 5), [2, 1])),
    broken("reflection_pad2d", "padding of height and width is swapped", "argument",
      lambda c: c.eager(padding=[*c.padding[2:], *c.padding[:2]]), lambda: call(normal(1, 5, 5), [1, 1, 2, 2]), "",
      lambda: call(normal(1, 5, 5), [1, 2, 1, 2])),
    broken("reflection_pad3d", "padding as large as the size is accepted", "errors",
      lambda c: c.eager() if max(c.padding) < min(c.self.shape[-3:]) or not c.self.numel()
        else torch.nn.functional.pad(c.self, c.padding, mode="replicate"),
      lambda: call(normal(1, 1, 2, 2, 2), [2, 2, 0, 0, 0, 0]), "", lambda: call(normal(1, 3, 3, 3), [1, 1, 0, 0, 0, 0])),
    broken("replication_pad2d", "pads with zeros", "argument",
      lambda c: torch.ops.aten.constant_pad_nd(c.self, c.padding) if c.self.dim() == 4 and min(c.padding) >= 0 else c.eager(),
      lambda: call(normal(1, 1, 3, 3), [1, 1, 1, 1])),
    broken("replication_pad3d", "all batches are the first", "rare",
      lambda c: torch.cat([c.eager()[:1]] * c.self.shape[0]) if c.self.dim() == 5 and c.self.shape[0] > 1 else c.eager(),
      lambda: call(normal(2, 1, 2, 2, 2), [1, 1, 1, 1, 1, 1])),
)
# fmt: on
