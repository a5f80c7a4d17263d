"""Model calls: the ops that a model calls, forward and backward, and what each comes to, on fake tensors: no kernel runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import (
    DispatchMode,
    FakeTensorMode,
    OpOverload,
    builtin,
    fake_tensor_log_off,
    lazy_bits_visible,
    no_current_modes,
    without_torch_function,
)
from eagerdecomp.calls import spelled
from eagerdecomp.diagnosis import ends
from eagerdecomp.errors import PlanError
from eagerdecomp.key import key_or_none, program_arguments
from eagerdecomp.passes import optimise
from eagerdecomp.planner import Decision, Planner
from eagerdecomp.routes import Route
from eagerdecomp.rules import NoRoute
from eagerdecomp.schema import arguments_of
from eagerdecomp.tracer import Recorder, tensors_in

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
    """Hears each call before the fake tensors do."""

    def __init__(self, planner: Planner, found: ModelCalls) -> None:
        super().__init__()
        self._planner = planner
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
                self._found.routes.setdefault(str(func), []).append(_route(self._planner, func, args, kwargs))
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
    with fake_tensor_log_off(), FakeTensorMode(allow_non_fake_inputs=True), torch.enable_grad():
        step = _step_of(factory())
        with _Heard(planner, found):
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


def _route(planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Route | None:
    """What a call comes to, by running its rules on its fake tensors."""
    decision = planner.decide(op)
    if decision.plumbing:
        return Route(spelled(args, kwargs), "", {}, {})
    if decision.kernel is not None and (decision.when is None or decision.when(*args, **kwargs)):
        return Route(spelled(args, kwargs), "", {}, {str(op): 1})

    def decide(asked: OpOverload) -> Decision:
        found = planner.decide(asked)
        # The native op stands for a backend's kernel: only that has an answer for fake tensors.
        return found if found.kernel is None else found._replace(kernel=builtin(asked))

    values, named = _copied(args), {name: _copied([value])[0] for name, value in kwargs.items()}
    call = spelled(args, kwargs)
    missing: set[str] = set()
    for rule in decision.rules:
        recorder = Recorder(decide, op, program_arguments(op, arguments_of(op, values, named)))
        with ExitStack() as stack:
            for context in (
                no_current_modes(),
                _fake_mode_of([*values, *named.values()]),
                without_torch_function(),
                lazy_bits_visible(),
            ):
                stack.enter_context(context)
            try:
                result = recorder.run([rule], values, named)
            except NoRoute as failure:
                missing.update(str(end) for end in ends(failure))
                continue
            except (RuntimeError, NotImplementedError, TypeError):
                return None  # data decides
            program = recorder.recording(result).program
        if program is None:
            return None
        kernels = Counter(str(kernel.op) for kernel in optimise(program).calls)
        return Route(call, str(rule), {}, dict(sorted(kernels.items())))
    return Route(call, "", {}, {}, tuple(sorted(missing - {str(op)} or {str(op)})))


def _fake_mode_of(values: Sequence[Any]) -> Any:
    for tensor in tensors_in(values):
        mode = getattr(tensor, "fake_mode", None)
        if mode is not None:
            return mode
    return FakeTensorMode(allow_non_fake_inputs=True)


def _copied(values: Sequence[Any]) -> list[Any]:
    """The arguments, tensors detached and copied where a rule might write."""
    return [_copy(value) for value in values]


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        with no_current_modes(), torch.no_grad():
            return value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(_copy(item) for item in value)
    return value
