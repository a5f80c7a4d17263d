"""Routes: what every op decomposes into on a backend, for each kind of call that was recorded.

An op is *closed* if each recorded kind of call has a rule that calls only closed ops; ops of the set are closed. An op is *partly
closed* if only some kinds are, or if a route uses an op that is partly closed. Without recorded calls its status is unknown.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from eagerdecomp._torch.ops import OpOverload, op_named
from eagerdecomp._torch.tensors import FakeTensorMode, fake_tensor_log_off
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import KernelError
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.opset import Predicate
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, functional_variant
from eagerdecomp.planner.closure import Clauses, Closure, without_self_calls
from eagerdecomp.planner.planner import Planner
from eagerdecomp.planner.rule_calls import Footprint, SeenOp
from eagerdecomp.rules.error_notes import predicate_holds
from eagerdecomp.rules.rule import Rule

__all__ = ["Kind", "Route", "Routes", "RouteRule"]

_FLOATS = ("f32[", "f64[", "f16[", "bf16[", "c64[", "c128[")


class RouteRule(NamedTuple):
    """One rule for one call: the ops that it calls."""

    rule: Rule
    calls: Footprint


class Kind(NamedTuple):
    """One kind of call of an op.

    Attributes:
        example: an example; "" if only the schema is known.
        ways: the rules for it, in the order in which they are tried.
        taken: whether the backend's kernel supports it, by its predicate.
    """

    example: str
    ways: tuple[RouteRule, ...]
    taken: bool = False


@dataclass(frozen=True)
class Route:
    """The route of one kind of call.

    Attributes:
        call: the arguments of an example; "" if the route is read from the schema, or no example is known.
        rule: the rule that is used, with its source; "" if no rule leads to the set.
        ops: the ops that the rule calls -> number of calls.
        kernels: the backend's kernels that the route ends in -> number of calls.
        missing: the ops at which its rules end; empty if the call is closed.
        partly_closed: the ops of the route that are only partly closed.
        counted: whether `kernels` were counted in a run of this call. If not, they are a sum over the recorded calls of each rule,
            before passes shorten the program.
        refused: the call that a kernel of the set refuses because of its dtype, with the reason; "" if none does.
    """

    call: str
    rule: str
    ops: Mapping[str, int]
    kernels: Mapping[str, int]
    missing: tuple[str, ...] = ()
    partly_closed: tuple[str, ...] = ()
    counted: bool = False
    refused: str = ""


class Routes:
    """The routes of a backend.

    Args:
        planner: returns the rules of an op, in order.
        seen: the recorded calls of each op.
        raises: whether the error of a predicate is raised. If not, its kernel counts as not supporting the call: the conformance
            suite reports such errors itself.
    """

    def __init__(self, planner: Planner, seen: Mapping[str, SeenOp], *, raises: bool = True) -> None:
        self._raises = raises
        self._planner = planner
        self._seen = seen
        self._kinds: dict[str, tuple[Kind, ...]] = {}
        self._under_way: set[str] = set()
        self._counted: dict[str, Counter[str]] = {}

    # -- kernels, rules, recorded calls -----------------------------------------------------------------------------

    def has_kernel(self, op: str) -> bool:
        """Return whether the backend has a kernel for every call of the op."""
        found = op_named(op)
        if found is None:
            return False
        decision = self._planner.decide(found)
        return decision.kernel is not None and decision.when is None

    def rules(self, op: str) -> tuple[Rule, ...]:
        """Return the op's rules, in the order in which they are tried."""
        found = op_named(op)
        return () if found is None or is_passthrough_name(op) else tuple(self._planner.decide(found).rules)

    def is_unknown(self, op: str) -> bool:
        """Return whether an op outside the set has rules, but no recorded call that would show what they call."""
        return not self.has_kernel(op) and bool(self.rules(op)) and not self.kinds(op)

    def kinds(self, op: str) -> tuple[Kind, ...]:
        """Return the recorded kinds of call. If there are none, return one kind, from the ops that linked rules bind."""
        found = self._kinds.get(op)
        if found is None:
            found = self._kinds[op] = tuple(self._find_kinds(op))
            when = self._predicate(op)
            if when is not None:
                found = self._kinds[op] = tuple(
                    kind._replace(taken=_takes(op, when, kind.example, raises=self._raises)) for kind in found
                )
        return found

    def _predicate(self, op: str) -> Predicate | None:
        found = op_named(op)
        return None if found is None or is_passthrough_name(op) else self._planner.decide(found).when

    def _find_kinds(self, op: str) -> Iterator[Kind]:
        rules = self.rules(op)
        seen = self._seen.get(op)
        if seen is not None and seen.calls:
            for call in seen.calls:
                yield Kind(
                    call.example, tuple(RouteRule(rule, call.by_rule[rule.key]) for rule in rules if rule.key in call.by_rule)
                )
        else:
            bound = tuple(RouteRule(rule, ops) for rule in rules if rule.linked and (ops := _bound(rule)))
            # C++ composites that write `out` cost as much as the functional variant and a copy.
            composed = tuple(
                RouteRule(rule, as_variant) for rule in rules if rule.source == "composite" and (as_variant := _of_variant(rule))
            )
            if bound or composed:
                yield Kind("", bound or composed)

    def graph(self, asked: Iterable[str]) -> set[str]:
        """Return the given ops and, recursively, the ops that their rules call."""
        seen: set[str] = set()
        waiting = list(asked)
        while waiting:
            op = waiting.pop()
            if op not in seen:
                seen.add(op)
                waiting.extend(called for kind in self.kinds(op) for way in kind.ways for called in way.calls)
        return seen

    @functools.cached_property
    def _all(self) -> set[str]:
        gradients = (op for seen in self._seen.values() for _, calls in seen.gradient for op in calls or ())
        return self.graph([*self._seen, *gradients])

    def know(self, ops: Iterable[str]) -> None:
        """Add ops without recorded calls. Call this before `closed` is read."""
        self._all.update(self.graph(ops))

    # -- closed ops ------------------------------------------------------------------------------------------------

    @functools.cached_property
    def closed(self) -> frozenset[str]:
        """The ops of which every recorded call is closed. An op that calls itself is assumed to do so with another kind of call."""
        clauses = self.clauses(self._all & self.partly_closed)
        return Closure(without_self_calls(clauses), self._base).closed

    @functools.cached_property
    def partly_closed(self) -> frozenset[str]:
        """The ops of which at least one recorded call is closed. Includes all of `closed`."""
        return self._cheapest.closed

    @functools.cached_property
    def _cheapest(self) -> Closure:
        """The closure in which one closed call is enough to close an op. A kernel for some calls also closes its op."""
        narrowed = {
            op for op in self._all if (found := op_named(op)) is not None and self._planner.decide(found).kernel is not None
        }
        some = {op: [[way.calls for kind in self.kinds(op) for way in kind.ways]] for op in sorted(self._all)}
        return Closure(some, self._base | narrowed, {op: 0.0 for op in self._base if is_passthrough_name(op)})

    @functools.cached_property
    def _base(self) -> set[str]:
        return {op for op in self._all if is_passthrough_name(op) or self.has_kernel(op)}

    def clauses(self, ops: Iterable[str], without: str = "") -> Clauses:
        """Return for each op and kind of call its alternatives: sets of ops. An op closes if each kind has a closed one.

        Args:
            ops: the ops.
            without: a source of rules (`Rule.source`) to leave out.
        """

        def ways(kind: Kind) -> list[Footprint]:
            return [{}] if kind.taken else [way.calls for way in kind.ways if way.rule.source != without]

        return {op: [ways(kind) for kind in self.kinds(op)] for op in ops}

    # -- kernels of calls -----------------------------------------------------------------------------------------

    def routes(self, op: str) -> tuple[Route, ...]:
        """Return the route of each kind of call of an op outside the set."""
        return tuple(self._route(op, kind) for kind in self.kinds(op))

    def _route(self, op: str, kind: Kind) -> Route:
        if kind.taken:
            return Route(kind.example, "the kernel, by its predicate", {}, {op: 1})
        way = self._chosen(kind)
        if way is None:
            return Route(kind.example, "", {}, {}, tuple(self._ends(op, kind)))
        kernels = self._sum(way.calls)
        partly_closed = tuple(sorted(called for called in way.calls if called not in self.closed and called != op))
        return Route(kind.example, str(way.rule), dict(way.calls), dict(sorted(kernels.items())), (), partly_closed)

    def _chosen(self, kind: Kind) -> RouteRule | None:
        """Return the first rule whose ops are all closed, or else the first whose ops are all partly closed."""
        for reached in (self.closed, self.partly_closed):
            for way in kind.ways:
                if reached.issuperset(way.calls):
                    return way
        return None

    def kernels(self, op: str) -> Counter[str]:
        """Return the kernel calls of the op's most frequent closed call."""
        if is_passthrough_name(op):
            return Counter()
        if op in self._base:
            return Counter({op: 1})
        if op in self._under_way:  # a rule calls its own op with another kind of call
            return self._cheapest_kernels(op)
        found = self._counted.get(op)
        if found is None:
            self._under_way.add(op)
            try:
                kinds = self.kinds(op)
                first = next((kind for kind in kinds if kind.taken or self._chosen(kind) is not None), None)
                way = None if first is None or first.taken else self._chosen(first)
                # An op without a rule is in the set by a predicate.
                found = self._counted[op] = Counter({op: 1}) if way is None else self._sum(way.calls)
            finally:
                self._under_way.discard(op)
        return found

    def _sum(self, calls: Footprint, of: Callable[[str], Counter[str]] | None = None) -> Counter[str]:
        total: Counter[str] = Counter()
        for op, times in calls.items():
            for kernel, count in (of or self.kernels)(op).items():
                total[kernel] += times * count
        return total

    def _cheapest_kernels(self, op: str) -> Counter[str]:
        calls = self._cheapest.way(op)
        if calls is None:
            return Counter() if is_passthrough_name(op) else Counter({op: 1})
        return self._sum(calls, self._cheapest_kernels)

    def _ends(self, op: str, kind: Kind) -> list[str]:
        """Return the ops at which the rules of a call end: ops outside the set that have no rule."""
        ends: list[str] = []
        seen = {op}
        waiting = [called for way in kind.ways for called in way.calls if called not in self.partly_closed]
        while waiting:
            end = waiting.pop(0)
            if end in seen:
                continue
            seen.add(end)
            further = [c for k in self.kinds(end) for way in k.ways for c in way.calls if c not in self.partly_closed]
            if not further:
                ends.append(end)
            waiting.extend(further)
        # If the rules only call each other in a cycle, return the ops that the call's own rules call.
        first = {called for way in kind.ways for called in way.calls if called not in self.partly_closed}
        return sorted(ends) or sorted(first - {op}) or [op]

    # -- gradients --------------------------------------------------------------------------------------------------

    def gradient(self, op: str) -> tuple[str, tuple[str, ...]]:
        """Return the status of the op's backward, and the ops of the backward that are not closed.

        The status is ``closed``, ``partly``, ``missing``, ``none`` (autograd has no formula) or ``unknown``.
        """
        found = op_named(op)
        if found is None:
            return "unknown", ()
        if facts_of(found).is_out:
            return "none", ()  # out= takes no part in autograd
        seen = self._seen_for_gradient(op)
        if seen is None:
            return "unknown", ()
        calls = [footprint for _, footprint in seen.gradient if footprint is not None]
        if not calls:
            silent = not any(kind in call.example for call in seen.calls for kind in _FLOATS)
            return ("none" if seen.gradient or silent else "unknown"), ()
        called = {name for footprint in calls for name in footprint}
        reached = [footprint for footprint in calls if self.closed.issuperset(footprint)]
        open_ops = tuple(sorted(name for name in called if name not in self.closed))
        if not open_ops:
            return "closed", ()
        if reached or self.partly_closed.issuperset(called):
            return "partly", open_ops
        return "missing", tuple(name for name in open_ops if name not in self.partly_closed)

    def open_in_gradient(self, op: str) -> set[str]:
        """Return the ops of the backward that are not closed."""
        found = op_named(op)
        seen = None if found is None or facts_of(found).is_out else self._seen_for_gradient(op)
        return set() if seen is None else {name for _, calls in seen.gradient for name in calls or () if name not in self.closed}

    def _seen_for_gradient(self, op: str) -> SeenOp | None:
        seen = self._seen.get(op)
        found = op_named(op)
        if (seen is None or not seen.gradient) and found is not None and facts_of(found).is_inplace:
            variant = functional_variant(found)  # its gradient is the functional variant's
            return self._seen.get(str(variant), seen) if variant is not None else seen
        return seen


def _takes(op: str, when: Predicate, example: str, *, raises: bool) -> bool:
    """Return whether a predicate supports a call, tried on fake tensors, and if that raises, on real ones.

    Raises:
        KernelError: with `raises`, if the predicate raises, for a call that eager accepts.
    """
    found = op_named(op)
    if not example or found is None:
        return False
    with fake_tensor_log_off(), FakeTensorMode(), Caught():
        args, kwargs = parse_call(example)
        return bool(when(*args, **kwargs))
    with Caught() as caught:
        args, kwargs = parse_call(example)
        return predicate_holds(found, when, args, kwargs)
    if raises and isinstance(caught.error, KernelError):
        raise caught.error
    return False  # the text makes no call that eager accepts


def _of_variant(rule: Rule) -> Footprint:
    variant = functional_variant(rule.op) if facts_of(rule.op).is_out else None
    return {} if variant is None else {str(variant): 1, "aten.copy_.default": 1}


def _bound(rule: Rule) -> dict[str, int]:
    """Return the ops that a linked rule requests when it is bound."""
    asked: dict[str, int] = {}

    def call(used: OpOverload) -> Callable[..., object]:
        if used is not rule.op:
            asked[str(used)] = 1
        return used

    rule.bind(call)
    return asked
