"""DistributedDataParallel with what goes with it: hooks, buffers, uneven inputs, a ZeRO optimizer."""

from __future__ import annotations

import copy
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel
from training import STEPS, Numbers, batches, net, rank, scenario, train, world


@scenario
def ddp() -> Numbers:
    return train(DistributedDataParallel(net()))


@scenario
def ddp_power_sgd_hook() -> Numbers:
    """Its callbacks run in a thread of gloo's, products and orthogonal vectors among what they compute."""
    model = DistributedDataParallel(net())
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2, start_powerSGD_iter=2, min_compression_rate=0.5)
    model.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
    return train(model)


def _computing_hook(state, bucket):  # type: ignore[no-untyped-def]
    def halved(done: torch.futures.Future[Any]) -> Tensor:
        (summed,) = done.value()
        return summed - F.softplus(summed) * 0 - summed / 2

    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(halved)


@scenario
def ddp_hook_that_computes() -> Numbers:
    model = DistributedDataParallel(net())
    model.register_comm_hook(None, _computing_hook)
    return train(model)


@scenario
def ddp_buffers() -> Numbers:
    """Statistics of a batch norm are the first rank's at each forward pass, and each rank's own where they are not sent."""
    found: Numbers = {}
    for sync in (True, False):
        torch.manual_seed(rank())  # the first rank's parameters count
        model = nn.Sequential(nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.Hardswish(), nn.Flatten(), nn.Linear(16, 3))
        wrapped = DistributedDataParallel(model, forward_sync_buffers=sync)
        optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.1, momentum=0.9)
        losses = []
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = wrapped(torch.randn(3, 2, 4, 4) + rank()).square().mean()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
        found |= {f"{sync} {name}": one.clone() for name, one in wrapped.state_dict().items()} | {f"{sync}": losses}
    return found


@scenario
def ddp_join() -> Numbers:
    """Rank r has two batches more than rank r - 1; a ZeRO optimizer joins too."""
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    with Join([model, optimizer]):
        return train(model, optimizer, data=batches(steps=1 + 2 * rank()))


@scenario
def zero() -> Numbers:
    """Each rank keeps a part of the optimizer's state; consolidated and loaded by another optimizer, which goes on."""
    model = DistributedDataParallel(net())
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2)
    first = train(model, optimizer)
    held = sum(len(group["params"]) for group in optimizer.optim.param_groups)
    everything = []
    for to in range(world()):
        optimizer.consolidate_state_dict(to=to)
        if to == rank():
            everything.append(copy.deepcopy(optimizer.state_dict()))
    again = ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=1e-2, parameters_as_bucket_view=True)
    again.load_state_dict(everything[0])
    return {f"first {k}": v for k, v in first.items()} | train(model, again) | {"held": held}
