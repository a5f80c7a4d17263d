"""Placing: a call's tensors on another device, laid out in memory as they are, and what it left behind brought home."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

__all__ = ["home", "placed"]


def placed(arguments: Any, device: str) -> Any:
    """The arguments on a device: tensors that share memory share it there; what names the CPU names the device."""
    return tree_map(_mover(torch.device(device)), arguments)


def home(values: Any) -> Any:
    """Results on the CPU, with the strides and offsets that they have."""
    return tree_map(_mover(torch.device("cpu")), values)


def _mover(device: torch.device) -> Callable[[Any], Any]:
    tensors: dict[int, Tensor] = {}
    storages: dict[int, torch.UntypedStorage] = {}

    def move(value: Any) -> Any:
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return device
        if not isinstance(value, Tensor) or value.device.type in (device.type, "meta"):
            return value
        if id(value) not in tensors:
            tensors[id(value)] = _moved(value, device, storages)
        return tensors[id(value)]

    return move


def _moved(value: Tensor, device: torch.device, storages: dict[int, torch.UntypedStorage]) -> Tensor:
    with torch.no_grad():
        plain = value.detach()
        if plain.layout is not torch.strided or type(plain) is not Tensor:
            moved = plain.to(device)
        else:
            storage = plain.untyped_storage()
            if storage._cdata not in storages:
                whole = torch.empty(0, dtype=torch.uint8, device=plain.device)
                whole.set_(storage, 0, [storage.nbytes()], [1])  # type: ignore[call-overload]
                storages[storage._cdata] = whole.to(device).untyped_storage()
            moved = torch.empty(0, dtype=plain.dtype, device=device)
            moved.set_(storages[storage._cdata], plain.storage_offset(), plain.shape, plain.stride())
            moved = moved.conj() if plain.is_conj() else moved
            moved = torch._neg_view(moved) if plain.is_neg() else moved
    return moved.requires_grad_(value.requires_grad)
