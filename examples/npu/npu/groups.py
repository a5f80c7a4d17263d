"""Collectives for tensors of the device, on CPU copies with gloo: those that `DistributedDataParallel` calls.

    torch.distributed.init_process_group("cpu:gloo,npu:hosted", ...)

A real device would send its own memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import _create_work_from_future

__all__ = ["register"]


def register() -> None:
    """Register ``hosted`` as a backend of process groups for the device. Call it once per process."""
    dist.Backend.register_backend("hosted", _create, devices=["npu"])


def _create(store: dist.Store, rank: int, size: int, timeout: timedelta) -> Hosted:
    return Hosted(rank, size, dist.ProcessGroupGloo(dist.PrefixStore("hosted", store), rank, size, timeout))


class Hosted(dist.ProcessGroup):
    """A process group that runs each collective synchronously, on CPU copies."""

    def __init__(self, rank: int, size: int, gloo: Any) -> None:
        super().__init__(rank, size)
        self._gloo = gloo

    def getBackendName(self) -> str:
        return "hosted"

    def getGroupName(self) -> str:
        raise NotImplementedError(
            "device meshes find process groups by name, and process groups written in Python have none. So FSDP2 (fully_shard), "
            "DTensors and tensor-parallel modules do not work on npu: use DistributedDataParallel, or shard on the CPU"
        )

    def allreduce(self, tensors: Sequence[Tensor], opts: Any) -> dist.Work:
        here = _to_cpu(tensors)
        self._gloo.allreduce(here, opts).wait()
        return _back(tensors, here)

    def broadcast(self, tensors: Sequence[Tensor], opts: Any) -> dist.Work:
        here = _to_cpu(tensors)
        self._gloo.broadcast(here, opts).wait()
        return _back(tensors, here)

    def allgather(self, outputs: Sequence[Sequence[Tensor]], inputs: Sequence[Tensor], opts: Any) -> dist.Work:
        here = [_to_cpu(one) for one in outputs]
        self._gloo.allgather(here, _to_cpu(inputs), opts).wait()
        for there, copies in zip(outputs, here, strict=True):
            _back(there, copies)
        return _done(outputs)

    def barrier(self, opts: Any) -> dist.Work:
        self._gloo.barrier(opts).wait()
        return _done(None)


def _to_cpu(tensors: Sequence[Tensor]) -> list[Tensor]:
    return [one.cpu() for one in tensors]


def _back(tensors: Sequence[Tensor], copies: Sequence[Tensor]) -> dist.Work:
    for tensor, copy in zip(tensors, copies, strict=True):
        tensor.copy_(copy)
    return _done(tensors)


def _done(value: object) -> dist.Work:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(value)
    return _create_work_from_future(future)
