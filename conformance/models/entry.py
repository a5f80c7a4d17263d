"""An entry of the model table: it creates a small model with random weights, a batch, a forward pass and a loss."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor, nn

__all__ = ["Entry", "Make", "Subject", "loss_of", "missing_extras", "disable_dropout", "tensors_of", "train"]


@dataclass
class Subject:
    """A model, and how to run and train it.

    Attributes:
        model: the model, with random weights and without dropout.
        batch: the second argument of `forward` and `loss`.
        forward: returns the model's output, for the columns without gradients.
        loss: returns a scalar, for the column "train".
        generate: returns tokens; None if the model does not generate any.
        optimizer: creates the optimizer from the parameters.
        steps: runs the training and returns the tensors to compare; None for two plain steps.
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
        name: the model's name.
        make: creates the model.
        needs: packages that `make` imports, besides torch.
        custom_ops: ops of such a package that are added to the op set (docs/tutorial/tour.md, "Op sets").
        columns: the columns to run.
        family: the title of the family.
    """

    name: str
    make: Make
    needs: tuple[str, ...] = ()
    custom_ops: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("eval", "inference_mode", "train")
    family: str = ""


def missing_extras(entry: Entry) -> list[str]:
    """Return the packages that the entry needs and that are not installed."""
    return [name for name in entry.needs if importlib.util.find_spec(name) is None]


def tensors_of(value: Any) -> list[Tensor]:
    """Return the tensors of a model's output, in order."""
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
    """Return the loss in a model's output; if there is none, the sum of the mean squares of its tensors."""
    if isinstance(result, Tensor):
        return result if result.dim() == 0 else result.square().mean()
    if isinstance(result, dict) and isinstance(result.get("loss"), Tensor):
        return result["loss"].sum()
    squares = [one.square().mean() for one in tensors_of(result) if one.is_floating_point() and one.requires_grad]
    return torch.stack(squares).sum()


def disable_dropout(model: nn.Module) -> nn.Module:
    """Set all dropout probabilities of a model to 0, so that its values can be compared; return the model."""
    for module in model.modules():
        # torchvision's stochastic depth is a form of dropout.
        if isinstance(module, nn.modules.dropout._DropoutNd) or type(module).__name__ == "StochasticDepth":
            module.p = 0.0
        for owner in (module, getattr(module, "config", None)):
            for name, value in list(vars(owner).items()) if owner is not None else []:
                if "drop" in name and isinstance(value, float):
                    setattr(owner, name, 0.0)
    return model


def train(subject: Subject, count: int = 2) -> list[Tensor]:
    """Run plain training steps; return their losses."""
    optimizer = subject.optimizer(subject.model.parameters())
    losses = []
    for _ in range(count):
        optimizer.zero_grad()
        loss = subject.loss(subject.model, subject.batch)
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        losses.append(loss.detach())
    return losses
