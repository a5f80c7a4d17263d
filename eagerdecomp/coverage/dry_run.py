"""Dry run: find the kernels that a call reaches by running its rules on fake tensors, so that no kernel runs.

On a set that lacks many ops, the search tries thousands of rules before it fails, most of them repeatedly. So failed calls are
cached.
"""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.fake import handling_fakes, mode_of_fakes
from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.coverage.routes import Route
from eagerdecomp.ops.call_text import call_text
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in
from eagerdecomp.planner.planner import Decision, Planner
from eagerdecomp.program.key import key_or_none, program_arguments
from eagerdecomp.program.passes import optimise
from eagerdecomp.rules.rule import NoRoute, Rule
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
        self._failures: dict[Any, _Failure] = {}

    def route(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Route | None:
        """Return the route of a call on fake tensors; None if it depends on data."""
        decision = self._planner.decide(op)
        call = call_text(args, kwargs, width=100)
        if decision.passthrough:
            return Route(call, "", {}, {}, counted=True)
        if decision.kernel is not None and (decision.when is None or decision.when(*args, **kwargs)):
            return Route(call, "", {}, {str(op): 1}, counted=True)
        values, named = _copied(args), {name: _copied([value])[0] for name, value in kwargs.items()}
        failures: list[NoRoute] = []
        for rule in decision.rules:
            recorder = _Rehearsed(
                self._planner.decide_for_fakes, op, program_arguments(op, arguments_of(op, values, named)), self._failures
            )
            with handling_fakes(mode_of_fakes(tensors_in([*values, *named.values()]))), warnings.catch_warnings():
                warnings.simplefilter("ignore")  # from deprecated functions that torch's own rules use
                try:
                    result = recorder.run([rule], values, named)
                except NoRoute as failure:
                    failures.append(failure)
                    continue
                except (RuntimeError, NotImplementedError, TypeError):
                    return None  # depends on data
                program = recorder.recording(result).program
            if program is None:
                return None
            kernels = Counter(str(kernel.op) for kernel in optimise(program).calls)
            return Route(call, str(rule), {}, dict(sorted(kernels.items())), counted=True)
        missing = {str(end) for end in _ends(failures)}
        return Route(call, "", {}, {}, tuple(sorted(missing - {str(op)} or {str(op)})))


class _Failure(NamedTuple):
    """A call that has no route while certain rules are running, because its own rules call those again.

    Attributes:
        failure: the error.
        places: the indices of those rules in the chain.
        last: the chain's entry at the last of these indices. While the chain has this entry, all of those rules are running.
    """

    failure: NoRoute
    places: frozenset[int]
    last: object

    def holds(self, chain: Chain) -> bool:
        """Return whether those rules are running, so that the failure applies."""
        place = max(self.places, default=-1)
        return place < 0 or (place < len(chain) and chain.entry(place) is self.last)


class _Circles(Chain):
    """A chain that records the indices at which rules were called again."""

    def __init__(self) -> None:
        super().__init__()
        self.places: set[int] = set()

    def seen(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> int | None:
        place = super().seen(rule, args, kwargs)
        if place is not None:
            self.places.add(place)
        return place


class _Rehearsed(Recorder):
    """A recorder that caches failed calls."""

    def __init__(
        self,
        decide: Callable[[OpOverload], Decision],
        op: OpOverload,
        arguments: Sequence[Any],
        failures: dict[Any, _Failure],
    ) -> None:
        self._circles = _Circles()
        super().__init__(decide, op, arguments, chain=self._circles)
        self._failures = failures

    def _expand(self, op: OpOverload, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        depth, circles = len(self._circles), self._circles
        facts = key_or_none(op, arguments_of(op, args, kwargs)) if depth else None  # the outermost call is given one rule
        if facts is None:
            return super()._expand(op, rules, args, kwargs)
        known = self._failures.get((op, facts))
        if known is not None and known.holds(circles):
            circles.places |= known.places
            raise known.failure
        outer, circles.places = circles.places, set()
        try:
            return super()._expand(op, rules, args, kwargs)
        except NoRoute as failure:
            places = frozenset(place for place in circles.places if place < depth)
            last = circles.entry(max(places)) if places else None
            self._failures[op, facts] = _Failure(failure.without_frames(), places, last)
            raise
        finally:
            circles.places = outer | {place for place in circles.places if place < depth}


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
