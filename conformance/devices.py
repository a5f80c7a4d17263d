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

__all__ = ["DEVICES", "InstallTarget", "to_cpu", "install_target", "to_device"]

#: Where a set can be installed: on the CPU, where it replaces kernels, or on the device of `examples/npu`, which has no kernel
#: outside its set.
DEVICES = ("cpu", "npu")


@dataclass(frozen=True)
class InstallTarget:
    """A device and the backend that is installed there.

    Attributes:
        counts: returns the number of calls of each kernel since `reset`; empty if the device does not count.
    """

    device: str
    backend: Backend
    counts: Callable[[], Counter[str]] = Counter
    reset: Callable[[], None] = lambda: None


def install_target(device: str, op_set: OpSet) -> InstallTarget:
    """Return the target for a name in `DEVICES`. The npu ignores `op_set`: it has its own set. It is registered in the process."""
    if device == "cpu":
        return InstallTarget("cpu", Backend("cpu", op_set, device_type="cpu"))
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "examples" / "npu"))
    import npu

    return InstallTarget("npu", npu.backend, lambda: Counter(npu.counts()), npu.reset_counts)


def to_device(arguments: Any, device: str) -> Any:
    """Copy the arguments to a device, with their aliasing; arguments that name the CPU name the device instead."""
    return tree_map(_mover(torch.device(device)), arguments)


def to_cpu(values: Any) -> Any:
    """Copy results to the CPU, with their strides and storage offsets."""
    return tree_map(_mover(torch.device("cpu")), values)


def _mover(device: torch.device) -> Callable[[Any], Any]:
    copy = copying(device=device, gradients=True)

    def move(value: Any) -> Any:
        if isinstance(value, torch.device) or (isinstance(value, str) and value == "cpu"):
            return device
        there = isinstance(value, Tensor) and value.device.type in (device.type, "meta")
        return value if there else copy(value)

    return move
