"""An entry of the model table: how to make a small model with random weights, and what to do with it."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["Entry", "Make", "Subject", "loss_of", "missing_extras", "silence", "tensors_of", "train"]


@dataclass
class Subject:
    """A model with a batch to run it on.

    Attributes:
        model: with its weights drawn and dropout off.
        batch: what `forward` and `loss` are given.
        forward: the model's output, for the columns without gradients.
        loss: a scalar, for the training column.
        generate: tokens, where the model makes any.
        optimizer: rebuilt for each run.
        steps: what the training column does, where it is more than two plain steps.
    """

    model: nn.Module
    batch: Any
    forward: Callable[[nn.Module, Any], Any]
    loss: Callable[[nn.Module, Any], Tensor] = field(default=lambda model, batch: loss_of(model(batch)))
    generate: Callable[[nn.Module, Any], Tensor] | None = None
    optimizer: Callable[[Any], torch.optim.Optimizer] = field(
        default=lambda parameters: torch.optim.SGD(parameters, lr=0.001, momentum=0.9, weight_decay=0.01)
    )
    steps: Callable[[Subject], Any] | None = None


Make: TypeAlias = Callable[[], Subject]


@dataclass(frozen=True)
class Entry:
    """A row of the table.

    Attributes:
        name: as the model's authors call it.
        make: builds it; what it imports beside torch is named in `needs`.
        needs: packages without which it cannot be built.
        custom_ops: ops of a package's own, which a backend lists beside Core ATen (docs/tutorial/tour.md, "Op sets").
        columns: those that make sense for it.
    """

    name: str
    make: Make
    needs: tuple[str, ...] = ()
    custom_ops: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("eval", "inference_mode", "train")
    family: str = ""


def missing_extras(entry: Entry) -> list[str]:
    """The packages that the entry needs and that are not installed."""
    return [name for name in entry.needs if importlib.util.find_spec(name) is None]


def tensors_of(value: Any) -> list[Tensor]:
    """The floating-point tensors of a model's output, in order."""
    if isinstance(value, Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    return (
        [tensor for item in value for tensor in tensors_of(item)]
        if isinstance(value, Sequence) and not isinstance(value, str)
        else []
    )


def loss_of(result: Any) -> Tensor:
    """The loss that the result brings, or the mean square of all it holds."""
    if isinstance(result, Tensor):
        return result if result.dim() == 0 else result.square().mean()
    if isinstance(result, dict) and isinstance(result.get("loss"), Tensor):
        return result["loss"].sum()
    squares = [one.square().mean() for one in tensors_of(result) if one.is_floating_point() and one.requires_grad]
    return torch.stack(squares).sum()


def silence(model: nn.Module) -> nn.Module:
    """The model with all dropout off: what is random cannot be compared number by number."""
    for module in model.modules():
        # torchvision's stochastic depth is a dropout by another name.
        if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        for holder in (module, getattr(module, "config", None)):
            for name, value in list(vars(holder).items()) if holder is not None else []:
                if "drop" in name and isinstance(value, float):
                    setattr(holder, name, 0.0)
    return model


def train(subject: Subject, count: int = 2) -> list[Tensor]:
    """Plain training steps; returns their losses."""
    optimizer = subject.optimizer(subject.model.parameters())
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = subject.loss(subject.model, subject.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())
    return losses
