"""Find the ops that a model calls, forward and backward, and what each decomposes into. Fake tensors are used: no kernel runs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from eagerdecomp._torch.fake import fake_tensors_take_foreach, module_conversion
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode, fake_tensor_log_off
from eagerdecomp.coverage.dry_run import Rehearsal
from eagerdecomp.coverage.routes import Route
from eagerdecomp.dispatcher.composites import Kept, kept_of
from eagerdecomp.errors import ArgumentError, EagerDecompError
from eagerdecomp.host.source_lines import fault_in_words
from eagerdecomp.ops.schema import arguments_of, tensors_in
from eagerdecomp.planner.planner import Planner
from eagerdecomp.program.key import key_or_none

__all__ = ["ModelCalls", "model_calls"]


_RUNS = 3


@dataclass
class ModelCalls:
    """The calls of a model.

    Attributes:
        counts: op -> maximum number of its calls in one step.
        making: op -> number of its calls while the model is built.
        routes: op -> the route of each distinct call; None for a call that depends on data.
        calls: op -> the arguments of each distinct call, in the order of `routes`.
        notes: what is missing here, and why.
        stopped: why the first run stopped early; "" if it did not.
    """

    counts: Counter[str] = field(default_factory=Counter)
    making: Counter[str] = field(default_factory=Counter)
    routes: dict[str, list[Route | None]] = field(default_factory=dict)
    calls: dict[str, list[tuple[OpOverload, Sequence[Any], dict[str, Any]]]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    stopped: str = ""

    def routes_with(self, planner: Planner, ops: Iterable[str]) -> Iterator[tuple[str, Route | None]]:
        """Yield the ops, each with the route of each of its calls, for calls tried with another planner."""
        rehearsal = Rehearsal(planner)
        yield from ((op, rehearsal.route(*call)) for op in ops for call in self.calls.get(op, ()))


class _Gradients:
    """Restores the gradients of real tensors. A model that was built outside its factory gets fake gradients in a dry run."""

    def __init__(self) -> None:
        self._had: dict[int, tuple[torch.Tensor, torch.Tensor | None]] = {}

    def note(self, tensors: Iterable[torch.Tensor]) -> None:
        """Save the gradient of each tensor that was not seen before."""
        for tensor in tensors:
            if id(tensor) not in self._had and not isinstance(tensor, FakeTensor) and tensor.requires_grad and tensor.is_leaf:
                self._had[id(tensor)] = tensor, tensor.grad

    def __enter__(self) -> _Gradients:
        return self

    def __exit__(self, *_: object) -> None:
        for tensor, grad in self._had.values():
            tensor.grad = grad


class _CallRecorder(DispatchMode):
    """Records each call before fake tensors handle it, including composites that a mode would not decompose."""

    def __init__(self, rehearsal: Rehearsal, found: ModelCalls, kept: Kept | None, gradients: _Gradients) -> None:
        super().__init__()
        self._gradients = gradients
        self.kept = kept
        self.counts: Counter[str] = Counter()
        self.kinds: set[Any] = set()
        self._rehearsal = rehearsal
        self._found = found
        self._seen: set[Any] = set()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        given = list(tensors_in([*args, *kwargs.values()]))
        self._gradients.note(given)
        if any(not isinstance(tensor, FakeTensor) for tensor in given) and (method := module_conversion()):
            raise ArgumentError(
                f"{method}() is called on a module that was made outside the model function, and would replace its weights by fake "
                "ones. Make the module inside the function, or convert it before the plan"
            )
        if isinstance(func, OpOverload) and func.namespace != "prim":  # only fake tensors call these
            self.counts[str(func)] += 1
            key = (func, key_or_none(func, arguments_of(func, args, kwargs)))
            if key not in self._seen:
                self._seen.add(key)
                self.kinds.add((func, *((t.dtype, tuple(t.shape)) for t in given)))
                self._found.routes.setdefault(str(func), []).append(self._rehearsal.route(func, args, kwargs))
                self._found.calls.setdefault(str(func), []).append((func, args, kwargs))
        return func(*args, **kwargs)


def model_calls(
    planner: Planner, factory: Callable[[], Any], progress: Callable[[float, str], object] = lambda part, words: None
) -> ModelCalls:
    """Record the calls that build a model, and those of its forward and backward.

    A step runs until no new kind of call appears, at most three times, because the first step of an optimizer differs from later
    ones. A module runs twice; its gradients are removed in between.

    Args:
        planner: decides what happens to each op.
        factory: returns a module and its inputs (a tensor, a tuple, or a dict of arguments), or a function without arguments that
            runs a step. It is called on fake tensors.
        progress: called with the fraction done and the current step.

    Raises:
        ArgumentError: if the factory returns neither, or the model fails on fake tensors.
    """
    if isinstance(factory, torch.nn.Module):
        raise ArgumentError(
            f"model must be a function that returns a module and its inputs, not a {type(factory).__name__}. Write "
            "model=lambda: (module, (x,)). A module created inside the function has fake weights, which need no memory"
        )
    found = ModelCalls()
    kept = kept_of(planner.backend)
    gradients = _Gradients()
    observed = _CallRecorder(Rehearsal(planner), found, kept, gradients)
    with (
        gradients,
        fake_tensor_log_off(),
        fake_tensors_take_foreach(),
        FakeTensorMode(allow_non_fake_inputs=True),
        torch.enable_grad(),
        kept.installed() if kept is not None else nullcontext(),
        observed,
    ):
        progress(0.0, "building the model")
        made = factory()
        step, runs = _step_of(made, gradients)
        found.making, observed.counts = observed.counts, Counter()
        new_notes: list[str] = []
        for number in range(1, runs + 1):
            progress(number / (runs + 1), f"step {number}" if runs == _RUNS else f"run {number}")
            before = set(observed.kinds)
            ended = _run(step, found, number, observed)
            new = sorted(op for op in observed.counts if op not in found.counts)
            if number > 1 and new:
                new_notes.append(f"step {number} calls what those before it do not: {', '.join(new)}")
            found.counts |= observed.counts
            observed.counts = Counter()
            if not ended or (number > 1 and observed.kinds == before):
                break
    found.notes += new_notes
    if runs < _RUNS and isinstance(made[0], torch.nn.Module):  # a function may have its loss inside
        found.notes.append(
            "the model was planned forward and backward, without a loss and an optimizer, which call more ops: return a function "
            "that runs a training step to plan those"
        )
    if not found.counts:
        raise ArgumentError("the model calls no operator, so there is nothing to plan. Pass a model that computes, with its inputs")
    return found


def _run(step: Callable[[], None], found: ModelCalls, number: int, observed: _CallRecorder) -> bool:
    """Run a step; return whether it ended."""
    try:
        step()
    except EagerDecompError:
        raise
    except Exception as error:  # the model is the user's, and may raise anything
        words = fault_in_words(error)
        if number > 1:
            found.notes.append(f"run {number} of the step fails, so the plan covers only the runs before it: {words}")
        elif not observed.counts or not isinstance(error, RuntimeError):
            raise ArgumentError(
                f"the model fails on fake tensors, which have shapes and no values: {words}. Fix the model, or name its ops: "
                "plan(ops=...)"
            ) from error
        else:
            found.stopped = f"the model stopped on fake tensors, so the plan lacks the calls after that: {words}"
            found.notes.append(found.stopped)
        return False
    return True


def _step_of(made: Any, gradients: _Gradients) -> tuple[Callable[[], None], int]:
    """Return the step, and the most runs of it."""
    if isinstance(made, tuple) and len(made) == 2 and callable(made[0]):
        model, inputs = made
        return lambda: _forward_and_backward(model, inputs, gradients), 2
    if callable(made) and not isinstance(made, torch.nn.Module):
        step: Callable[[], None] = made
        return step, _RUNS
    shown = f"a tuple of {len(made)}" if isinstance(made, tuple) else type(made).__name__
    raise ArgumentError(
        f"the model function returned {shown}. Return a module or a function and the tuple of its inputs, `return model, (x, y)`, "
        "or a function without arguments that runs a step"
    )


def _forward_and_backward(model: Callable[..., Any], inputs: Any, gradients: _Gradients) -> None:
    given = list(inputs.values()) if isinstance(inputs, Mapping) else inputs
    weights = model.parameters() if isinstance(model, torch.nn.Module) else ()
    leaves = [*weights, *tensors_in([given])]
    gradients.note(leaves)
    for leaf in leaves:
        leaf.grad = None
    if isinstance(inputs, Mapping):
        result = model(**inputs)
    else:
        result = model(*inputs) if isinstance(inputs, (list, tuple)) else model(inputs)
    results = list(result.values()) if isinstance(result, Mapping) else result
    wanted = [t for t in tensors_in([results]) if t.requires_grad]
    if wanted:
        torch.autograd.backward(wanted, [torch.ones_like(t) for t in wanted])
