"""Eager's checks of shapes in views and concatenations, with its messages, for sets without these ops.

torch's Python references of these ops raise other types of errors. `eager.checks.table` lists the checks of each op.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor

from eagerdecomp.eager.messages import dimension_error, shape_text
from eagerdecomp.eager.strides import reach, view_strides

__all__ = ["SHAPE_CHECKS", "broadcast_shapes", "check_few"]


def broadcast_shapes(*shapes: Sequence[int]) -> list[int]:
    """Return the shape to which all of these broadcast.

    Raises:
        RuntimeError: with ATen's message (`infer_size_impl` in ExpandUtils.cpp), which differs from that of
            `torch.broadcast_shapes`.
    """
    found: list[int] = []
    for shape in shapes:
        rank = max(len(found), len(shape))
        left, right = ([1] * (rank - len(one)) + list(one) for one in (found, shape))
        for dim in reversed(range(rank)):
            a, b = left[dim], right[dim]
            if a != b and 1 not in (a, b):
                raise RuntimeError(
                    f"The size of tensor a ({a}) must match the size of tensor b ({b}) at non-singleton dimension {dim}"
                )
        found = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    return found


def _check_dimension(dim: int, rank: int) -> None:
    if not -max(1, rank) <= dim < max(1, rank):
        raise dimension_error(dim, rank)


def _view(self: Tensor, size: Sequence[int]) -> None:
    if self.is_contiguous():  # what does not fit its size is refused in eager's words already
        return
    known, count = math.prod(one for one in size if one != -1), self.numel()
    unknown = sum(one == -1 for one in size)
    if unknown > 1 or min(size, default=0) < -1 or not known or (count % known if unknown else count != known):
        return
    _check_viewed(self, [count // known if one == -1 else one for one in size])


def _check_viewed(self: Tensor, size: Sequence[int]) -> None:
    if view_strides(self, size) is None:
        raise RuntimeError(
            "view size is not compatible with input tensor's size and stride (at least one dimension spans across two contiguous "
            "subspaces). Use .reshape(...) instead."
        )


def check_few(elements: Tensor, test_elements: Tensor) -> None:
    """Check the strides of `isin`'s test elements. If there are few of them, it views them as one dimension."""
    if test_elements.numel() < int(10 * elements.numel() ** 0.145):
        _check_viewed(test_elements, [test_elements.numel()])


def _matrix_exp(self: Tensor) -> None:
    """Check the strides of a batch, whose dimensions are viewed as one."""
    if self.dim() > 3 and self.numel() and self.size(-1) > 1:
        _check_viewed(self, [math.prod(self.shape[:-2]), *self.shape[-2:]])


def _split_with_sizes(self: Tensor, split_sizes: Sequence[int], dim: int = 0) -> None:
    if not self.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    _check_dimension(dim, self.dim())
    got = f"but got split_sizes={shape_text(split_sizes)}"
    if any(one < 0 for one in split_sizes):
        raise RuntimeError(f"split_with_sizes expects split_sizes have only non-negative entries, {got}")
    if sum(split_sizes) != self.size(dim):
        raise RuntimeError(
            f"split_with_sizes expects split_sizes to sum exactly to {self.size(dim)} "
            f"(input tensor's size at dimension {dim}), {got}"
        )


def _is_skipped(one: Tensor) -> bool:
    """Return whether a concatenation skips the tensor: its shape is [0]."""
    return one.dim() == 1 and not one.size(0)


def _cat(tensors: Sequence[Tensor], dim: int = 0) -> None:
    if not tensors:
        raise ValueError("torch.cat(): expected a non-empty list of Tensors")
    for place, one in enumerate(tensors):
        if not one.dim():
            raise RuntimeError(f"zero-dimensional tensor (at position {place}) cannot be concatenated")
    counted = [(place, one) for place, one in enumerate(tensors) if not _is_skipped(one)]
    if not counted:
        return
    first = counted[0][1]
    _check_dimension(dim, first.dim())
    for place, one in counted[1:]:
        if one.dim() != first.dim():
            raise RuntimeError(f"Tensors must have same number of dimensions: got {first.dim()} and {one.dim()}")
        for at in range(first.dim()):
            if at != dim % first.dim() and one.size(at) != first.size(at):
                raise RuntimeError(
                    f"Sizes of tensors must match except in dimension {dim % first.dim()}. Expected size {first.size(at)} but got "
                    f"size {one.size(at)} for tensor number {place} in the list."
                )


def _permute(self: Tensor, dims: Sequence[int]) -> None:
    rank = self.dim()
    if len(dims) != rank:
        raise RuntimeError(
            "permute(sparse_coo): number of dimensions in the tensor input does not match the length of the desired ordering of "
            f"dimensions i.e. input.dim() = {rank} is not equal to len(dims) = {len(dims)}"
        )
    for dim in dims:
        _check_dimension(dim, rank)
    if len({dim % rank for dim in dims}) < rank:
        raise RuntimeError("permute(): duplicate dims are not allowed.")


def _distinct(self: Tensor, dim: Sequence[int] | None = None, *more: Any) -> None:
    rank, seen = self.dim(), set()
    for one in dim or ():
        _check_dimension(one, rank)
        at = one % max(1, rank)
        if at in seen:
            raise RuntimeError(f"dim {at} appears multiple times in the list of dims")
        seen.add(at)


def _slice(self: Tensor, dim: int = 0, *more: Any) -> None:
    if not self.dim():
        raise IndexError("slice() cannot be applied to a 0-dim tensor.")


def _expand(self: Tensor, size: Sequence[int], *, implicit: bool = False) -> None:
    missing = len(size) - self.dim()
    if missing < 0:
        return  # rejected in words that name the dtype of the tensor
    for at, wanted in enumerate(size):
        if at < missing and wanted < 0:
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) isn't allowed in a leading, non-existing dimension {at}"
            )
        if at >= missing and wanted not in (-1, self.size(at - missing)) and self.size(at - missing) != 1:
            raise RuntimeError(
                f"The expanded size of the tensor ({wanted}) must match the existing size ({self.size(at - missing)}) at "
                f"non-singleton dimension {at}.  Target sizes: {shape_text(size)}.  Tensor sizes: {shape_text(self.shape)}"
            )


def _as_strided(self: Tensor, size: Sequence[int], stride: Sequence[int], storage_offset: int | None = None) -> None:
    if len(size) != len(stride):
        raise RuntimeError("mismatch in length of strides and shape")
    if any(step < 0 for step in stride):
        raise RuntimeError(f"as_strided: Negative strides are not supported at the moment, got strides: {shape_text(stride)}")
    offset = self.storage_offset() if storage_offset is None else storage_offset
    if offset < 0:
        raise RuntimeError(f"Tensor: invalid storage offset {offset}")
    span = reach(size, stride)
    own = self.numel() if self.is_contiguous() else reach(self.shape, self.stride())
    if offset + span <= self.storage_offset() + own:  # without asking for the storage, which no key reports
        return
    held = self.untyped_storage().nbytes()
    needed = (offset + span) * self.element_size()
    if span and needed > held:
        raise RuntimeError(
            f"setStorage: sizes {shape_text(size)}, strides {shape_text(stride)}, storage offset {offset}, and itemsize "
            f"{self.element_size()} requiring a storage size of {needed} are out of bounds for storage of size {held}"
        )


#: op -> a function of its arguments that raises eager's error.
SHAPE_CHECKS: dict[str, Callable[..., None]] = {
    "aten.all.dims": _distinct,
    "aten.any.dims": _distinct,
    "aten.as_strided.default": _as_strided,
    "aten.cat.default": _cat,
    "aten.expand.default": _expand,
    "aten.flip.default": _distinct,
    "aten.linalg_matrix_exp.default": _matrix_exp,
    "aten.permute.default": _permute,
    "aten.permute_copy.default": _permute,
    "aten.slice.Tensor": _slice,
    "aten.split_with_sizes.default": _split_with_sizes,
    "aten.split_with_sizes_copy.default": _split_with_sizes,
    "aten.squeeze.dims": _distinct,
    "aten.view.default": _view,
}
