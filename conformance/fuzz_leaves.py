"""Functions that random programs call besides ops: they create leaves and compute gradients.

`names` returns the names that a program can use from its first line.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.observe import whole_memory
from eagerdecomp.eager.tolerance import nudge

__all__ = ["backward", "gradient", "leaf", "initial_names", "wide_leaf", "widened"]

aten = torch.ops.aten


def leaf(
    dtype: str, sizes: Sequence[int], values: str = "normal", layout: str = "contiguous", seed: int = 0, grad: bool = False
) -> Tensor:
    """Return a leaf of a program; equal arguments give equal tensors.

    Args:
        values: ``normal``, ``uniform``, ``small`` (integers of both signs), ``special`` (with infinities, NaN and zeros of
            both signs), ``zeros``, ``ones``, or ``below N``: integers from 0 to N - 1.
        layout: ``contiguous``, ``transposed``, ``strided``, ``offset``, ``expanded`` or ``channels_last``.
    """
    kind = getattr(torch, dtype)
    shape = list(sizes)
    if layout == "expanded" and shape:
        made = _values(kind, [*shape[:-1], 1], values, seed).expand(shape)
    elif layout == "transposed" and len(shape) > 1:
        made = _values(kind, shape[::-1], values, seed).permute(*range(len(shape))[::-1])
    elif layout == "strided" and shape:
        made = _values(kind, [*shape[:-1], 2 * shape[-1]], values, seed)[..., ::2]
    elif layout == "offset":
        made = _values(kind, [math.prod(shape) + 3], values, seed)[3:].view(shape)
    elif layout == "channels_last" and len(shape) == 4:
        made = _values(kind, shape, values, seed).contiguous(memory_format=torch.channels_last)
    else:
        made = _values(kind, shape, values, seed)
    return made.requires_grad_() if grad else made


def _values(dtype: torch.dtype, sizes: Sequence[int], values: str, seed: int) -> Tensor:
    draws = torch.Generator().manual_seed(seed)
    wide = torch.complex128 if dtype.is_complex else torch.float64
    if values.startswith("below "):
        return torch.randint(0, max(1, int(values[6:])), sizes, generator=draws).to(dtype)
    if values in ("zeros", "ones"):
        return torch.full(sizes, float(values == "ones")).to(dtype)
    if values == "small":
        found = torch.randint(-3, 4, sizes, generator=draws)
        return (found > 0 if dtype is torch.bool else found.abs() if dtype is torch.uint8 else found).to(dtype)
    if not (dtype.is_floating_point or dtype.is_complex):
        found = torch.randint(-20, 21, sizes, generator=draws)
        return (found > 0 if dtype is torch.bool else found.abs() if not dtype.is_signed else found).to(dtype)
    made = (
        torch.rand(sizes, generator=draws, dtype=wide) if values == "uniform" else torch.randn(sizes, generator=draws, dtype=wide)
    )
    if values == "special":
        special = torch.tensor([math.inf, -math.inf, math.nan, 0.0, -0.0, 1.0, -1.0, 0.5], dtype=wide)
        picked = special[torch.randint(0, len(special), sizes, generator=draws)]
        made = torch.where(torch.rand(sizes, generator=draws) < 0.3, picked, made)
    return made.to(dtype)


def wide_leaf(draws: torch.Generator | None, coarse: bool = True) -> Callable[..., Tensor]:
    """Return `leaf` in the widest dtype; with `draws`, each element is changed by a rounding error.

    If `coarse`, it is float32's for all dtypes, because results computed from a float64 leaf may have a narrower dtype.
    """

    def wide(dtype: str, sizes: Sequence[int], *rest: Any, grad: bool = False) -> Tensor:
        made = leaf(dtype, sizes, *rest)
        if made.dtype.is_floating_point or made.dtype.is_complex:
            rounding = 2.0**-23 if coarse else 2.0**-46  # as `eager.tolerance` moves inputs
            # Keep the strides: they decide which kernel eager uses, and some kernels save a tensor for the gradient, others a copy.
            memory = widened(whole_memory(made))
            memory = memory if draws is None else nudge(memory, rounding, draws)
            where = made.storage_offset(), made.shape, made.stride()
            made = torch.empty(0, dtype=memory.dtype).set_(memory.untyped_storage(), *where)  # programs may resize it
        return made.requires_grad_() if grad else made

    return wide


def widened(tensor: Tensor) -> Tensor:
    """Cast a tensor to float64 or complex128."""
    return tensor.to(torch.complex128 if tensor.is_complex() else torch.float64)


# -- gradients ---------------------------------------------------------------------------------------------------------------------


def _cotangents(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Return different values per element, made outside every mode. Gradients of ones would hide misplaced elements."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        return [
            torch.linspace(0.5, 1.5, max(1, one.numel()), dtype=torch.float64)[: one.numel()].reshape(one.shape).to(one.dtype)
            for one in tensors
        ]


def backward(*tensors: Tensor) -> None:
    """Add the gradients of the tensors to the leaves."""
    torch.autograd.backward(tensors, _cotangents(tensors))


def gradient(tensor: Tensor, leaf: Tensor, create_graph: bool = False) -> Tensor | None:
    """Return the gradient of a tensor with respect to a leaf."""
    return torch.autograd.grad([tensor], [leaf], _cotangents([tensor]), create_graph=create_graph, allow_unused=True)[0]


def initial_names(**more: Any) -> dict[str, Any]:
    """Return the names that lines can use from the start, and more."""
    ours = {"torch": torch, "aten": aten, "leaf": leaf, "backward": backward, "gradient": gradient}
    return {**ours, "inf": math.inf, "nan": math.nan, **more}
