"""Change the arguments of a call to other strides, to 0-dim tensors, or to empty tensors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.testing import make_tensor
from torch.utils._pytree import tree_leaves, tree_map

from eagerdecomp.conformance.judge import Arguments

__all__ = ["LAYOUTS", "in_layout"]


def _contiguous(value: Any) -> Any:
    return value


def _permuted(value: Any) -> Any:
    """Make a tensor dense but not contiguous: channels last for images, transposed otherwise.

    Dimensions of size 1 get other strides too.
    """
    if not _plain(value) or value.dim() < 2:
        return value
    order = [0, *range(2, value.dim()), 1] if value.dim() >= 4 else list(range(value.dim()))[::-1]
    back = [order.index(dim) for dim in range(value.dim())]
    moved = value.detach().permute(order).clone(memory_format=torch.contiguous_format)  # a copy, though it may be contiguous
    return moved.permute(back).requires_grad_(value.requires_grad)


def _gapped(value: Any) -> Any:
    """Copy a tensor into every second element of a larger one, with a storage offset."""
    if not _plain(value) or not value.dim():
        return value
    room = make_tensor((*value.shape[:-1], 2 * value.shape[-1] + 1), dtype=value.dtype, device="cpu")
    gapped = room[..., 1::2]
    return gapped.copy_(value.detach()).requires_grad_(value.requires_grad)


def _expanded(value: Any) -> Any:
    """Expand the first slice along the first dimension longer than 1, so that its stride is 0."""
    dim = next((dim for dim, size in enumerate(value.shape) if size > 1), None) if _plain(value) else None
    if dim is None:
        return value
    return value.detach().narrow(dim, 0, 1).clone().expand(value.shape).requires_grad_(value.requires_grad)


def _zero_dim(value: Any) -> Any:
    if not _plain(value) or not value.numel():
        return value
    return value.detach().flatten()[0].clone().requires_grad_(value.requires_grad)


def _plain(value: Any) -> bool:
    return type(value) is Tensor and value.layout is torch.strided


def _emptied(arguments: Arguments, number: int) -> Arguments:
    """Set one dimension to size 0: the first, or the last for every second sample."""
    return _cut(arguments, -(number % 2), 0, _contiguous)


def _thinned(arguments: Arguments, number: int) -> Arguments:
    """Set one dimension to size 1 (the second, or the last for every second sample), and permute the strides.

    So an image has one channel and is both contiguous and channels last.
    """
    return _cut(arguments, (1, -1)[number % 2], 1, _permuted)


def _cut(arguments: Arguments, dim: int, size: int, layout: Callable[[Any], Any]) -> Arguments:
    """Cut a dimension of the first input, and all dimensions of the same size in any tensor, to this size.

    Size arguments stay unchanged, so eager rejects some of the calls.
    """
    first = next((leaf for leaf in tree_leaves(arguments) if _plain(leaf) and leaf.dim() > max(dim, 0)), None)
    if first is None:
        return arguments
    cut = first.shape[dim]

    def one(value: Any) -> Any:
        if not _plain(value) or cut not in value.shape:
            return layout(value)
        kept = value.detach()[tuple(slice(0, size) if length == cut else slice(None) for length in value.shape)]
        return layout(kept.clone().requires_grad_(value.requires_grad))

    made: Arguments = tree_map(one, arguments)
    return made


def _each(change: Callable[[Any], Any]) -> Callable[[Arguments, int], Arguments]:
    return lambda arguments, number: tree_map(change, arguments)


#: The layouts of a call's tensors -> a function of the arguments of a sample and its index. With the last four, eager rejects some
#: calls.
LAYOUTS: dict[str, Callable[[Arguments, int], Arguments]] = {
    "contiguous": _each(_contiguous),
    "permuted": _each(_permuted),
    "gapped": _each(_gapped),
    "expanded": _each(_expanded),
    "0-dim": _each(_zero_dim),
    "size-0": _emptied,
    "size-1": _thinned,
}


def in_layout(arguments: Arguments, layout: str, number: int = 0) -> Arguments:
    """Convert the arguments of a sample to a layout; `number` is the index of the sample."""
    return LAYOUTS[layout](arguments, number)
