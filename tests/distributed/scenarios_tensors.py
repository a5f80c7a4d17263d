"""Collectives by themselves, and a tensor subclass of the user's."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed import _functional_collectives as functional
from torch.nn import functional as F
from training import Numbers, rank, scenario, world


@scenario
def collectives() -> Numbers:
    """Each one by itself, on what decomposed ops made, its result given to them again."""
    mine = F.softplus(torch.arange(4 * world(), dtype=torch.float32) + rank())
    found: Numbers = {}

    def note(name: str, *tensors: Tensor) -> None:
        found[name] = torch.stack([F.silu(one) for one in tensors])

    for op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.PRODUCT):
        one = mine.clone()
        dist.all_reduce(one, op)
        note(f"all_reduce {op}", one)
    gathered = [torch.empty_like(mine) for _ in range(world())]
    dist.all_gather(gathered, mine)
    note("all_gather", *gathered)
    wide = torch.empty(world() * mine.numel())
    dist.all_gather_into_tensor(wide, mine)
    note("all_gather_into_tensor", wide)
    part = torch.empty(4)
    dist.reduce_scatter_tensor(part, mine)
    note("reduce_scatter_tensor", part)
    exchanged = torch.empty_like(mine)
    dist.all_to_all_single(exchanged, mine)
    note("all_to_all_single", exchanged)
    sent = mine.clone()
    dist.broadcast(sent, src=world() - 1)
    note("broadcast", sent)
    dist.reduce(sent, dst=0)
    note("reduce", *([sent] if rank() == 0 else [mine]))
    dist.scatter(part, list(mine.chunk(world())) if rank() == 0 else None, src=0)
    note("scatter", part)
    parts = [torch.empty(4) for _ in range(world())] if rank() == 0 else None
    dist.gather(part, parts, dst=0)
    note("gather", *(parts or [part]))
    received = torch.empty_like(mine)
    exchange = [dist.P2POp(dist.isend, mine, (rank() + 1) % world()), dist.P2POp(dist.irecv, received, (rank() - 1) % world())]
    for work in dist.batch_isend_irecv(exchange):
        work.wait()
    note("isend and irecv", received)
    objects: list[Any] = [None] * world()
    dist.all_gather_object(objects, {"rank": rank(), "tensor": mine[:2]})
    note("all_gather_object", *(one["tensor"] for one in objects))
    dist.barrier()
    note("functional all_reduce", functional.all_reduce(mine, "sum", dist.group.WORLD))
    note("functional reduce_scatter", functional.reduce_scatter_single(mine, "sum", 0, dist.group.WORLD))
    note("functional all_gather", functional.all_gather_single(mine, 0, dist.group.WORLD))
    return found
