"""Padding by values of the input: an index vector per dimension. The forward op gathers by it, and the gradient adds up by it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.decomps.math.pool_windows import along_dim
from eagerdecomp.eager.layouts import in_format_of
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: ``places(size, before, after, device)``: where each element of the padded dimension comes from.
Places = Callable[[int, int, int, torch.device], Tensor]


def _replicated(size: int, before: int, after: int, device: torch.device) -> Tensor:
    places: Tensor = aten.arange.start_step(-before, size + after, device=device)
    return places if before <= 0 and after <= 0 else aten.clamp.default(places, 0, size - 1)


def _reflected(size: int, before: int, after: int, device: torch.device) -> Tensor:
    places: Tensor = aten.arange.start_step(-before, size + after, device=device)
    if before > 0:
        places = aten.abs.default(places)
    if after > 0:  # size - 1 - |size - 1 - place|
        past = aten.abs.default(aten.sub.Scalar(places, size - 1))
        places = aten.add.Scalar(aten.neg.default(past), size - 1)
    return places


def _pairs(padding: Sequence[int]) -> list[tuple[int, int]]:
    """Return (before, after) for each dimension, first dimension first; the ops count from the last."""
    return list(zip(padding[::2], padding[1::2], strict=True))[::-1]


def _index(self: Tensor, padding: Sequence[int], places: Places) -> list[Tensor | None]:
    """Return the index that pads `self`, for all dimensions from the first padded one to the last."""
    dims = len(padding) // 2
    first = next((dim for dim, pair in enumerate(_pairs(padding)) if any(pair)), dims - 1)
    pairs, sizes = _pairs(padding)[first:], self.shape[self.dim() - dims + first :]
    vectors = [places(size, *pair, self.device) for size, pair in zip(sizes, pairs, strict=True)]
    rank = len(vectors)
    if rank > 1:
        vectors = [along_dim(vector, dim, rank) for dim, vector in enumerate(vectors)]
    return [*[None] * (self.dim() - rank), *vectors]


def _padded(dims: int, kind: str, places: Places) -> Callable[..., Any]:
    def run(self: Tensor, padding: list[int]) -> Any:
        _check(self, padding, dims, kind)
        if self.numel():
            found = aten.index.Tensor(self, _index(self, padding, places))
        else:  # the index of an empty batch may be huge
            sizes = [*self.shape[:-dims], *_sizes(self, padding)]
            found = aten.full.default(sizes, 0, dtype=self.dtype, device=self.device)
        return in_format_of(found, _formed(self, dims))

    return run


def _padded_backward(dims: int, kind: str, places: Places) -> Callable[..., Any]:
    def run(grad_output: Tensor, self: Tensor, padding: list[int]) -> Any:
        _check(self, padding, dims, kind)
        if list(grad_output.shape) != [*self.shape[:-dims], *_sizes(self, padding)]:
            raise ValueError(_UNFIT)
        zeros = aten.full.default(list(self.shape), 0, dtype=self.dtype, device=self.device)
        if not grad_output.numel():
            return in_format_of(zeros, _formed(self, dims))
        summed = aten.index_put.default(zeros, _index(self, padding, places), grad_output, True)
        formed = _formed(self, dims)
        form = torch.contiguous_format if formed is None or _plainly_contiguous(formed) else suggested_memory_format(formed)
        # The sums are contiguous, as `zeros` is. A check of their strides would make a program for each size.
        return summed if form is torch.contiguous_format else aten.clone.default(summed, memory_format=form)

    return run


def _formed(self: Tensor, dims: int) -> Tensor | None:
    """Return `self` if its memory format is that of the result: a batch or a volume. Return None if results are contiguous."""
    return self if self.dim() == dims + 2 or dims == 3 else None


def _plainly_contiguous(x: Tensor) -> bool:
    """Return whether the sizes alone show that a contiguous tensor is not in channels last too.

    If strides were read, one program could not serve all sizes.
    """
    return x.is_contiguous() and (x.size(1) - 1) * (x.size(-1) - 1) > 0


def _sizes(self: Tensor, padding: Sequence[int]) -> list[int]:
    pairs = _pairs(padding)
    return [size + sum(pair) for size, pair in zip(self.shape[-len(pairs) :], pairs, strict=True)]


#: An error for sizes that do not fit. A declined call would go to torch's table entry, which accepts it.
_UNFIT = "the sizes of the call do not fit"


def _check(self: Tensor, padding: Sequence[int], dims: int, kind: str) -> None:
    empty = not math.prod(self.shape[self.dim() - dims - 1 :])
    pairs = zip(self.shape[-dims:], _pairs(padding), strict=True)
    if empty or (kind == "reflection" and any(max(pair) >= size for size, pair in pairs)):
        raise ValueError(_UNFIT)
    if min(padding) < 0:  # a size that is not asked for distinguishes no two calls
        sizes = _sizes(self, padding)
        if min(sizes) < 0 or not any(sizes) or (dims == 1 and sizes[0] < 1):
            raise ValueError(_UNFIT)


_KINDS: tuple[tuple[str, Places], ...] = (("replication", _replicated), ("reflection", _reflected))

for kind, places in _KINDS:
    for dims in (1, 2, 3):
        rule(f"aten.{kind}_pad{dims}d.default", recorded=True)(_padded(dims, kind, places))
        rule(f"aten.{kind}_pad{dims}d_backward.default", recorded=True)(_padded_backward(dims, kind, places))
