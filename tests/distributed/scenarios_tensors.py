"""Collectives by themselves, and a tensor subclass of the user's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import _functional_collectives as functional
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from training import STEPS, Numbers, adamw, parameters, rank, scenario, world


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


class Scaled(Tensor):
    """A wrapper subclass: a tensor and a factor, decomposed by itself."""

    inner: Tensor
    factor: float

    @staticmethod
    def __new__(cls, inner: Tensor, factor: float) -> Scaled:
        made = Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype, requires_grad=inner.requires_grad)
        made.inner, made.factor = inner, factor
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None) -> Any:
        def plain(value: Any) -> Any:
            if isinstance(value, (list, tuple)):
                return type(value)(map(plain, value))
            return value.inner * value.factor if isinstance(value, Scaled) else value

        if func in (torch.ops.aten.detach.default, torch.ops.aten.alias.default):
            return Scaled(func(args[0].inner), args[0].factor)
        return func(*map(plain, args), **{name: plain(value) for name, value in (kwargs or {}).items()})


@scenario
def wrapper_subclass() -> Numbers:
    """A subclass's own words reach the set, in a model that DDP wraps."""
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(6, 5), nn.SiLU(), nn.LayerNorm(5)))
    optimizer = adamw(model)
    losses = []
    for _ in range(STEPS):
        optimizer.zero_grad()
        loss = F.mse_loss(model(Scaled(torch.randn(4, 6), 2.0)), Scaled(torch.ones(4, 5), 0.5))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return {"losses": losses, **parameters(model)}
