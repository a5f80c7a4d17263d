"""Move calls to the device where a set is installed, strides included, and bring their results and effects back."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._pytree import tree_map

from eagerdecomp import Backend, OpSet
from eagerdecomp.eager.observe import copying

__all__ = ["DEVICES", "Place", "home", "place_of", "placed"]

#: Where a set can be installed: on the CPU, in the place of kernels that it has, or on the device of `examples/npu`, which has no
#: kernel outside its set.
DEVICES = ("cpu", "npu")


@dataclass(frozen=True)
class Place:
    """A device and what is installed there.

    Attributes:
        counts: how often each kernel ran since `reset`; empty where none can say.
    """

    device: str
    backend: Backend
    counts: Callable[[], Counter[str]] = Counter
    reset: Callable[[], None] = lambda: None


def place_of(device: str, op_set: OpSet) -> Place:
    """One of `DEVICES`. The npu has a set of its own; to ask for it gives the process that device."""
    if device == "cpu":
        return Place("cpu", Backend("cpu", op_set, device_type="cpu"))
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "npu"))
    import npu

    return Place("npu", npu.backend, lambda: Counter(npu.counts()), npu.reset_counts)


def placed(arguments: Any, device: str) -> Any:
    """The arguments on a device: tensors that share memory share it there; what names the CPU names the device."""
    return tree_map(_mover(torch.device(device)), arguments)


def home(values: Any) -> Any:
    """Results on the CPU, with the strides and offsets that they have."""
    return tree_map(_mover(torch.device("cpu")), values)


def _mover(device: torch.device) -> Callable[[Any], Any]:
    copy = copying(device=device, gradients=True)

    def move(value: Any) -> Any:
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return device
        there = isinstance(value, Tensor) and value.device.type in (device.type, "meta")
        return value if there else copy(value)

    return move
