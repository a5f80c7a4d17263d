"""FSDP2, DTensors and tensor-parallel models, pipelines and checkpoints."""

from __future__ import annotations

import functools
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleInterleaved1F1B
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, SequenceParallel, loss_parallel, parallelize_module
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint
from training import STEPS, Block, Net, Numbers, adamw, net, of_four, parameters, rank, scenario, train, whole, world

# -- FSDP2 -----------------------------------------------------------------------------------------------------------------------


def sharded(model: Net, **options: Any) -> Net:
    for block in model.blocks:
        fully_shard(block, **options)
    return fully_shard(model, **options)


@scenario
def fsdp() -> Numbers:
    return train(sharded(net()), clip=0.1)


@scenario
def fsdp_kept_gathered() -> Numbers:
    """Parameters stay whole after forward, and blocks run again in backward."""
    model = sharded(net(), reshard_after_forward=False)
    for block in model.blocks:
        block.forward = functools.partial(checkpoint, block.forward, use_reentrant=False)
    return train(model)


@scenario
def fsdp_bf16() -> Numbers:
    model = sharded(net(), mp_policy=MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32))
    found = train(model)
    return found | {"dtypes": [str(one.dtype) for one in model.parameters()]}


# -- DTensor and tensor-parallel -------------------------------------------------------------------------------------------------

_PLAN = {
    "norm": SequenceParallel(sequence_dim=1),
    "up": ColwiseParallel(input_layouts=Shard(1)),
    "down": RowwiseParallel(output_layouts=Shard(1)),
}


def in_parallel(model: Net, mesh: Any) -> Net:
    """Linears by columns and rows, norms by sequence, and the head by columns, its logits left apart."""
    plan: dict[str, Any] = {"embedding": RowwiseParallel(input_layouts=Replicate(), output_layouts=Shard(1))}
    for place, _ in enumerate(model.blocks):
        plan |= {f"blocks.{place}.{name}": style for name, style in _PLAN.items()}
    plan["head"] = ColwiseParallel(input_layouts=Shard(1), output_layouts=Replicate())
    return parallelize_module(model, mesh, plan)


@scenario
def tensor_parallel() -> Numbers:
    """Its clipped gradients are DTensors of more than one placement."""
    return train(in_parallel(net(), init_device_mesh("cpu", (world(),))), seed=0, clip=0.1)


@scenario
def tensor_parallel_loss() -> Numbers:
    """Cross entropy of logits that no rank holds whole."""
    mesh = init_device_mesh("cpu", (world(),))
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 16))
    style = ColwiseParallel(use_local_output=False)
    model = parallelize_module(model, mesh, {"0": ColwiseParallel(output_layouts=Replicate()), "2": style})
    optimizer = adamw(model)
    losses = []
    with loss_parallel():
        for _ in range(STEPS):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(torch.randn(6, 8)), torch.rand(6).mul(16).long())
            loss.backward()
            optimizer.step()
            losses.append(whole(loss).item())
    return {"losses": losses, **parameters(model)}


@scenario
def dtensor() -> Numbers:
    """Ops that the library decomposes, on DTensors: they come apart into local ops first."""
    mesh = init_device_mesh("cpu", (world(),))
    torch.manual_seed(0)
    given = torch.randn(8, 6)
    found: Numbers = {}
    ops: dict[str, Callable[[Tensor], Tensor]] = {
        "gelu": F.gelu,
        "layer_norm": lambda x: F.layer_norm(x, [6]),
        "silu": F.silu,
        "softmax": lambda x: F.softmax(x, -1),
        "log_softmax": lambda x: F.log_softmax(x, 0),
        "mse": lambda x: F.mse_loss(x, x.detach() * 2),
        "norm": lambda x: torch.linalg.vector_norm(x, dim=0),
        "std": lambda x: x.std(1),
    }
    for placement in (Shard(0), Shard(1), Replicate()):
        for name, op in ops.items():
            x = distribute_tensor(given, mesh, [placement]).detach().requires_grad_()
            y = op(x)
            whole(y).square().sum().backward()
            assert isinstance(y, DTensor)
            assert isinstance(x.grad, DTensor)
            found[f"{name} {placement}"] = y.full_tensor().detach()
            found[f"gradient of {name} {placement}"] = x.grad.full_tensor()
    x = distribute_tensor(given, mesh, [Shard(0)])
    for placement in (Shard(1), Replicate()):
        found[f"redistributed {placement}"] = x.redistribute(mesh, [placement]).to_local()
    x.mul_(2).clamp_(max=1)
    return found | {"in place": x.full_tensor(), "partial": (x.t() @ x).full_tensor()}


@of_four
def fsdp_with_tensor_parallel() -> Numbers:
    mesh = init_device_mesh("cpu", (2, world() // 2), mesh_dim_names=("data", "model"))
    model = in_parallel(net(), mesh["model"])
    return train(sharded(model, mesh=mesh["data"]), seed=mesh["data"].get_local_rank(), clip=0.1)


# -- pipelines -------------------------------------------------------------------------------------------------------------------


def _pipelined(schedule: type, stages_each: int = 1, microbatches: int = 4) -> Numbers:
    torch.manual_seed(0)
    blocks = [Block() for _ in range(world() * stages_each)]
    mine = [rank() + world() * place for place in range(stages_each)]
    stages = [PipelineStage(blocks[place], place, len(blocks), torch.device("cpu")) for place in mine]
    given: Any = stages if stages_each > 1 else stages[0]
    pipeline = schedule(given, n_microbatches=microbatches, loss_fn=lambda out, target: F.smooth_l1_loss(out, target))
    optimizer = torch.optim.AdamW([one for place in mine for one in blocks[place].parameters()], lr=1e-2, foreach=True)
    generator = torch.Generator().manual_seed(5)
    found: list[float] = []
    for _ in range(STEPS):
        x, target = torch.randn(8, 3, 8, generator=generator), torch.randn(8, 3, 8, generator=generator)
        optimizer.zero_grad()
        losses: list[Tensor] = []
        pipeline.step(*((x,) if rank() == 0 else ()), **({"target": target, "losses": losses} if len(blocks) - 1 in mine else {}))
        optimizer.step()
        found += [one.item() for one in losses]
    return {"losses": found} | {f"{place} {k}": v for place in mine for k, v in parameters(blocks[place]).items()}


@scenario
def pipeline_1f1b() -> Numbers:
    return _pipelined(Schedule1F1B)


@scenario
def pipeline_interleaved() -> Numbers:
    return _pipelined(ScheduleInterleaved1F1B, stages_each=2)


# -- checkpoints -----------------------------------------------------------------------------------------------------------------


@contextmanager
def shared_folder() -> Iterator[str]:
    """One folder for all ranks."""
    names = [tempfile.mkdtemp() if rank() == 0 else None]
    dist.broadcast_object_list(names)
    assert names[0] is not None
    try:
        yield names[0]
        dist.barrier()
    finally:
        if rank() == 0:
            shutil.rmtree(names[0])


def trained_and_saved(folder: str) -> tuple[Net, torch.optim.Optimizer]:
    model = sharded(net())
    optimizer = adamw(model)
    train(model, optimizer)
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
    return model, optimizer


@scenario
def checkpointed() -> Numbers:
    """Saved by all ranks; loaded into another sharded model, which goes on as the first does, and into a model of one piece."""
    with shared_folder() as folder:
        model, optimizer = trained_and_saved(folder)
        other = sharded(Net())
        others = adamw(other)
        weights, state = get_state_dict(other, others)
        dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
        set_state_dict(other, others, model_state_dict=weights, optim_state_dict=state)
        plain = Net()
        dcp.load({"model": plain.state_dict()}, checkpoint_id=folder)
        saved = {f"saved {name}": one.clone() for name, one in plain.state_dict().items()}
        as_saved = all(torch.equal(whole(one.detach()), plain.state_dict()[name]) for name, one in model.named_parameters())
    first, second = train(model, optimizer, seed=9), train(other, others, seed=9)
    same = all(torch.equal(torch.as_tensor(value), torch.as_tensor(second[name])) for name, value in first.items())
    return saved | first | {"goes on as the first does": same, "as it was saved": as_saved}
