"""The devices on which a set can be installed."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eagerdecomp import Backend, OpSet

__all__ = ["DEVICES", "InstallTarget", "install_target"]

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
