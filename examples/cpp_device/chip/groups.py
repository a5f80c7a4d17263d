"""Collectives for tensors of the device, on CPU copies with gloo: those that `DistributedDataParallel` calls.

    torch.distributed.init_process_group("cpu:gloo,chip:staged", ...)

A device with its own collectives registers a `c10d::Backend` in C++ instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future

__all__ = ["register"]


def register() -> None:
    """Register ``staged`` as a backend of process groups for the device. Call it once per process."""
    dist.Backend.register_backend("staged", _create, devices=["chip"])


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Staged:
    return Staged(rank, size, dist.ProcessGroupGloo(dist.PrefixStore("staged", store), rank, size, timeout))


class Staged(dist.ProcessGroup):
    """A process group that runs each collective synchronously, on CPU copies."""

    def __init__(self, rank: int, size: int, gloo: Any) -> None:
        super().__init__(rank, size)
        self._gloo = gloo

    def getBackendName(self) -> str:
        return "staged"

    def allreduce(self, tensors: Sequence[Tensor], opts: Any) -> dist.Work:
        return _on_copies(tensors, lambda copies: self._gloo.allreduce(copies, opts))

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> dist.Work:
        return _on_copies(tensors, lambda copies: self._gloo.broadcast(copies, opts))

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> dist.Work:
        given = [one.cpu() for one in inputs]
        (row,) = outputs
        return _on_copies(row, lambda copies: self._gloo.allgather([copies], given, opts))

    def barrier(self, opts: Any) -> dist.Work:
        return _on_copies([], lambda copies: self._gloo.barrier(opts))


def _on_copies(tensors: Sequence[Tensor], run: Callable[[list[Tensor]], dist.Work]) -> dist.Work:
    """Run a collective that writes to tensors on copies of them, and return its finished work."""
    copies = [one.cpu() for one in tensors]
    run(copies).wait()
    for tensor, copy in zip(tensors, copies, strict=True):
        tensor.copy_(copy)
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(list(tensors))
    return _create_work_from_future(future)
