"""Model calls: the ops that a model calls, forward and backward, and what each comes to, on fake tensors: no kernel runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from eagerdecomp._torch import DispatchMode, FakeTensorMode, OpOverload, fake_tensor_log_off
from eagerdecomp.errors import PlanError
from eagerdecomp.keeping import Kept, kept_of
from eagerdecomp.key import key_or_none
from eagerdecomp.planner import Planner
from eagerdecomp.rehearsal import Rehearsal
from eagerdecomp.routes import Route
from eagerdecomp.schema import arguments_of
from eagerdecomp.tracer import tensors_in

__all__ = ["ModelCalls", "model_calls"]


@dataclass
class ModelCalls:
    """What a model called.

    Attributes:
        counts: op -> how often.
        routes: op -> what each distinct call of it comes to; None for a call of which data decides.
        notes: what is not in it, and why.
    """

    counts: Counter[str] = field(default_factory=Counter)
    routes: dict[str, list[Route | None]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


class _Heard(DispatchMode):
    """Hears each call before the fake tensors do, composites that a mode would keep as one."""

    def __init__(self, rehearsal: Rehearsal, found: ModelCalls, kept: Kept | None) -> None:
        super().__init__()
        self.kept = kept
        self._rehearsal = rehearsal
        self._found = found
        self._met: set[Any] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, OpOverload):
            self._found.counts[str(func)] += 1
            key = (func, key_or_none(func, arguments_of(func, args, kwargs)))
            if key not in self._met:
                self._met.add(key)
                self._found.routes.setdefault(str(func), []).append(self._rehearsal.route(func, args, kwargs))
        return func(*args, **kwargs)


def model_calls(planner: Planner, factory: Callable[[], Any]) -> ModelCalls:
    """The calls of a model's forward and backward.

    Args:
        planner: decides what happens to each op.
        factory: makes, on fake tensors, a module and its inputs (a tensor, a tuple, or a dict of arguments), or a function of no
            arguments that does a step.

    Raises:
        PlanError: where the factory gives neither, or the model fails on fake tensors.
    """
    found = ModelCalls()
    kept = kept_of(planner.backend)
    with fake_tensor_log_off(), FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        step = _step_of(factory())
        with kept.installed() if kept is not None else nullcontext(), _Heard(Rehearsal(planner), found, kept):
            try:
                step()
            except NotImplementedError:
                raise
            except RuntimeError as error:
                if not found.counts:
                    raise PlanError(f"the model fails on fake tensors: {_first_line(error)}") from error
                found.notes.append(
                    f"the model stopped on fake tensors, so what comes after is not in the plan: {_first_line(error)}"
                )
    if not found.counts:
        raise PlanError("the model calls no operator")
    return found


def _first_line(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else 'no message'}"


def _step_of(made: Any) -> Callable[[], None]:
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        model, inputs = made
        return lambda: _forward_and_backward(model, inputs)
    if callable(made) and not isinstance(made, torch.nn.Module):
        step: Callable[[], None] = made
        return step
    raise PlanError(
        f"the factory gave {type(made).__name__}: it must give a module and its inputs, `return model, (x,)`, or a function of no "
        "arguments that does a step"
    )


def _forward_and_backward(model: Callable[..., Any], inputs: Any) -> None:
    if isinstance(inputs, Mapping):
        answer = model(**inputs)
    else:
        answer = model(*inputs) if isinstance(inputs, (list, tuple)) else model(inputs)
    answers = list(answer.values()) if isinstance(answer, Mapping) else answer
    wanted = [t for t in tensors_in([answers]) if t.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])
