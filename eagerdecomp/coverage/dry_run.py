"""Dry run: find the kernels that a call reaches by running its rules on fake tensors, so that no kernel runs."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.fake import handling_fakes, mode_of_fakes
from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.coverage.routes import Route
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import KernelError
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import call_text
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in
from eagerdecomp.planner.planner import Planner
from eagerdecomp.program.key import program_arguments
from eagerdecomp.program.passes import optimise
from eagerdecomp.rules.error_notes import predicate_holds
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.refusals import refused_dtype, refused_for_dtype, typed_kernel
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.tracing.recursion import Chain

__all__ = ["Rehearsal"]


class Rehearsal:
    """Runs calls on fake tensors.

    Args:
        planner: decides what happens to each op.
    """

    def __init__(self, planner: Planner) -> None:
        self._planner = planner
        self._chain = Chain(remember=True)

    def route(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Route | None:
        """Return the route of a call on fake tensors; None if it depends on data."""
        decision = self._planner.decide(op)
        call = call_text(args, kwargs, width=100)
        if decision.passthrough:
            return Route(call, "", {}, {}, counted=True)
        values, named = _copied(args), {name: _copied([value])[0] for name, value in kwargs.items()}
        if decision.kernel is not None and (decision.when is None or predicate_holds(op, decision.when, args, kwargs)):
            refused = _refused(op, decision.typed, values, named) if decision.typed is not None else ""
            return (
                Route(call, "", {}, {}, (str(op),), refused=refused) if refused else Route(call, "", {}, {str(op): 1}, counted=True)
            )
        failures: list[NoRoute] = []
        for rule in decision.rules:
            arguments = program_arguments(op, arguments_of(op, values, named))
            recorder = Recorder(self._planner.decide_for_fakes, op, arguments, chain=self._chain)
            with handling_fakes(mode_of_fakes(tensors_in([*values, *named.values()]))), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from deprecated functions that torch's own rules use
                try:
                    result = recorder.run([rule], values, named)
                except NoRoute as failure:
                    failures.append(failure)
                    continue
                except KernelError:  # of a predicate
                    raise
                except (RuntimeError, NotImplementedError, TypeError):
                    return None  # depends on data
                program = recorder.recording(result).program
            if program is None:
                return None
            kernels = Counter(str(kernel.op) for kernel in optimise(program).calls)
            return Route(call, str(rule), {}, dict(sorted(kernels.items())), counted=True)
        missing = {str(end) for end in _ends(failures)}
        dtype = refused_dtype(self._planner.backend, (*args, *kwargs.values()))  # a kernel for this op would refuse it too
        refused = "" if dtype is None else refused_for_dtype(op, dtype, self._planner.backend, args, kwargs)
        return Route(call, "", {}, {}, tuple(sorted(missing - {str(op)} or {str(op)})), refused=refused)


def _refused(op: OpOverload, backend: Backend, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """Return why the kernel of an op refuses the dtypes of a call or of its results; "" if it takes them."""
    fakes = mode_of_fakes(tensors_in([*args, *kwargs.values()]))
    with Caught() as caught, handling_fakes(fakes), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        typed_kernel(op, builtin(op), backend)(*args, **kwargs)
    return caught.error.refused if isinstance(caught.error, NoRoute) else ""


def _ends(failures: Iterable[NoRoute]) -> Iterator[OpOverload]:
    """Yield the ops at which calls ended: those that lead to no other op.

    Of ops that only lead to each other, yield the functional ATen ops, because a backend rather has kernels for these.
    """
    led_to: dict[OpOverload, set[OpOverload]] = {}
    seen: set[int] = set()
    waiting = list(failures)
    while waiting:
        failure = waiting.pop()
        if id(failure) not in seen:
            seen.add(id(failure))
            inner = [nested for _, _, nested in failure.attempts if nested is not None]
            led_to.setdefault(failure.op, set()).update(nested.op for nested in inner)
            waiting.extend(inner)
    reached = {op: _reached(led_to, op) for op in led_to}
    reported: set[OpOverload] = set()
    for op, others in reached.items():
        if op not in reported and all(op in reached[other] for other in others):
            reported |= {op, *others}
            wished = [one for one in (op, *others) if one.namespace == "aten" and not facts_of(one).mutated]
            yield from wished or (op, *others)


def _reached(led_to: Mapping[OpOverload, set[OpOverload]], op: OpOverload) -> set[OpOverload]:
    """Return the ops that `op` leads to; includes `op` only if it leads to itself."""
    seen: set[OpOverload] = set()
    waiting = [op]
    while waiting:
        further = led_to[waiting.pop()] - seen
        seen |= further
        waiting.extend(further)
    return seen


def _copied(values: Sequence[Any]) -> list[Any]:
    """Return the arguments with tensors detached."""
    return [_copy(value) for value in values]


def _copy(value: Any) -> Any:
    if isinstance(value, Tensor):
        with no_current_modes(), torch.no_grad():
            return value.detach()
    if isinstance(value, (list, tuple)):
        return type(value)(_copy(item) for item in value)
    return value
