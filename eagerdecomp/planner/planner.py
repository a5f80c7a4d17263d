"""The planner: for each op whether it is supported, passes through, or is decomposed, and by which rules in which order."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, overload

from eagerdecomp._torch.ops import OpOverload, before_first_call, builtin, is_absent
from eagerdecomp.decomps import families, our_rules, sparse_rule
from eagerdecomp.eager.generators import drawing_in_turn
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.fast_calls import load_direct
from eagerdecomp.ops.kernel_costs import CostOf
from eagerdecomp.ops.opset import OpSet, Predicate, core_aten
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, is_composite, tensors_in
from eagerdecomp.planner.closure import Costs
from eagerdecomp.planner.rule_calls import is_changed, load_footprints
from eagerdecomp.rules.rule import Rule, index_rules
from eagerdecomp.rules.shipped import shipped_rules

__all__ = ["SIZES", "Decision", "Planner", "planner_of", "shipped_costs"]

#: The sizes, in numbers of elements, at which routes are compared by cost.
SIZES = (16, 256, 4096, 65_536, 1_048_576, 16_777_216)

#: Each rule of ours with such a key, where it is an op's first, closes on Core ATen for calls that were seen: a test checks this.
#: So the footprints, of which every process would have to read a file, are not needed there.
_CLOSED_ON_CORE = frozenset({"own", "own-linked", "schema", "schema-linked"})
#: Core ATen has more ops than this on each torch release; a smaller set need not be compared with it.
_FEWER_THAN_CORE = 150

# Sources of the last resort, in the order they are tried.
_LAST = ("prims", "small")


class Decision(NamedTuple):
    """The decision for an op on one backend.

    Attributes:
        kernel: what runs a supported call; None where the op is not supported at all.
        when: the predicate that says which calls the kernel takes; None for all.
        passthrough: the op passes natively.
        rules: the rules for other calls, in the order in which they are tried.
    """

    kernel: Callable[..., Any] | None
    when: Predicate | None
    passthrough: bool
    rules: Sequence[Rule]


class _InOrder(Sequence[Rule]):
    """Rules in order, of which the first are at hand and the others are found when they are asked for: few calls get that far."""

    __slots__ = ("_first", "_others")

    def __init__(self, first: tuple[Rule, ...], others: Callable[[], tuple[Rule, ...]]) -> None:
        self._first = first
        self._others = others

    def __iter__(self) -> Iterator[Rule]:
        yield from self._first
        yield from self._others()

    def __len__(self) -> int:
        return len(self._first) + len(self._others())

    @overload
    def __getitem__(self, index: int) -> Rule: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Rule]: ...
    def __getitem__(self, index: int | slice) -> Rule | Sequence[Rule]:
        if isinstance(index, int):
            return self._first[index] if 0 <= index < len(self._first) else tuple(self)[index]
        start = index.start or 0
        if index.stop is None and index.step is None and 0 <= start <= len(self._first):
            return _InOrder(self._first[start:], self._others)
        return tuple(self)[index]


class Planner:
    """Decides for each op of one backend; a decision is made once and kept.

    The order of an op's rules is by their costs: closed ones first, the cheapest before others. A route costs its kernel calls, or
    what `Backend.costs` says they cost at a size; rules of the library's own, which are exact, stay ahead of torch's. What the data
    cannot know (a rule it has not seen, a call that takes another branch) the tracer finds out: a rule that leads nowhere is
    followed by the next.

    Args:
        backend: the op set and its kernels.
        user: the user's own rules by op; they come before all others.
        ours: gives the library's own rules for an op, which are exact where shipped ones may not be: first where they close.
        shipped: gives torch's rules for an op, most trusted first.
        costs: what each route costs on the backend's set; asked for when an op has several rules.
    """

    def __init__(
        self,
        backend: Backend,
        user: Mapping[OpOverload, Rule],
        ours: Callable[[OpOverload], Iterable[Rule]],
        shipped: Callable[[OpOverload], Iterable[Rule]],
        costs: Callable[[OpSet], Costs],
    ) -> None:
        self.backend = backend
        self._user = user
        self._ours = ours
        self._shipped = shipped
        self._costs = costs
        self._decisions: dict[OpOverload, Decision] = {}
        self._has_prims = any(op.namespace == "prims" for op in backend.ops)

    @property
    def has_user_rules(self) -> bool:
        """Whether rules came from outside the library."""
        return bool(self._user)

    @property
    def user_functions(self) -> list[Callable[..., Any]]:
        """The functions of the rules that came from outside the library."""
        return [rule.fn for rule in self._user.values()]

    def has_user_rule(self, op: OpOverload) -> bool:
        """Return whether a user's rule decomposes an op."""
        return op in self._user

    def has_rules_of(self, other: Planner) -> bool:
        """Whether the same rules from outside the library reached both."""
        return self._user == other._user

    def decide(self, op: OpOverload) -> Decision:
        """The decision for an op. Deterministic: the rules, the op set and torch's version determine it."""
        decision = self._decisions.get(op)
        if decision is None:
            before_first_call(op)
            decision = self._decisions[op] = self._decide(op)
        return decision

    def sparse_rule(self, op: OpOverload) -> Rule | None:
        """The rule for calls of an op in which a tensor is sparse, where dense ones have a kernel or other rules."""
        return None if op in self._user or is_passthrough_name(str(op)) else sparse_rule(op)

    def decide_natively(self, op: OpOverload) -> Decision:
        """The same, torch's own kernel in the place of the backend's: only that has a result for fake tensors."""
        found = self.decide(op)
        return found if found.kernel is None else found._replace(kernel=builtin(op))

    def _decide(self, op: OpOverload) -> Decision:
        if is_absent(op):
            return Decision(None, None, False, ())
        ops = self.backend.ops
        facts = facts_of(op)
        supported = op in ops and (facts.reads_workspace_of or op) in ops
        kernel = self.backend.kernels.get(op) or builtin(op) if supported else None
        if kernel is not None and facts.is_random and not is_composite(op):
            kernel = drawing_in_turn(kernel)
        when = ops.predicate(op) if supported else None
        if supported and when is None:
            return Decision(kernel, None, False, ())
        name = str(op)
        if is_passthrough_name(name):
            return Decision(kernel, when, True, ())
        rank = self._ranked if self.backend.costs is None else self._ranked_by_cost
        if op in self._user:
            return Decision(kernel, when, False, _InOrder((self._user[op],), functools.cache(lambda: rank(op, name))))
        return Decision(kernel, when, False, self._rules(op, name) if self.backend.costs is None else rank(op, name))

    def _rules(self, op: OpOverload, name: str) -> Sequence[Rule]:
        """The library's rules for an op in order; where ours goes first, the others are left to be ranked when one is needed."""
        ours = iter(self._our_rules(op))
        first = next(ours, None)
        # `_ranked` puts such a rule first, whatever the others are.
        goes_first = first is not None and first.source not in _LAST and (first.source == "own" or next(ours, None) is None)
        if first is None or not goes_first or self._costs(self.backend.ops).leads_nowhere(name, first.key):
            return self._ranked(op, name)
        if not first.linked and self._is_a_prim(name):
            return self._ranked(op, name)
        # Which need not be where `_ranked` puts it: a prim that is the op by another name goes before it there.
        return _InOrder(
            (first,), functools.cache(lambda: tuple(rule for rule in self._ranked(op, name) if rule.where != first.where))
        )

    def _our_rules(self, op: OpOverload) -> list[Rule]:
        return [rule for rule in self._ours(op) if rule.source != "prims" or self._has_prims]

    def _is_a_prim(self, name: str) -> bool:
        """Whether torch's table does nothing for an op but call one prim of the set, where a rule of ours decomposes it: that prim
        is the op itself by another name, and a backend that has it gets it whole. A rule of ours that fixes calls stays first."""
        if not self._has_prims:
            return False
        costs = self._costs(self.backend.ops)
        closed, kernels = min(costs.of_rule(name, "own"), costs.of_rule(name, "own-linked"))
        return closed == 0 and math.isfinite(kernels) and costs.of_rule(name, "table") == (0, 1.0)

    def _ranked(self, op: OpOverload, name: str) -> tuple[Rule, ...]:
        ours, shipped = self._our_rules(op), list(self._shipped(op))
        if len(ours) + len(shipped) < 2:
            return (*ours, *shipped)
        costs = self._costs(self.backend.ops)

        def rank(rule: Rule) -> tuple[int, int, float]:
            closed, kernels = costs.of_rule(name, rule.key)
            if rule.source in _LAST:
                return (closed, 2 + _LAST.index(rule.source), kernels)
            if rule.source == "table" and self._is_a_prim(name):
                return (0, -1, kernels)
            # Ours go first unless every call of theirs that was seen leaves the set; one written by hand before one that the schema
            # gives, seen or not: it was written because the other is longer, or wrong.
            if rule in ours:
                return (0 if closed < 3 else closed, 0, 0.0 if rule.source == "own" else kernels)
            return (closed, 1, kernels)

        return tuple(sorted(ours + shipped, key=rank))  # stable: the order of trust decides between equals

    def _ranked_by_cost(self, op: OpOverload, name: str) -> tuple[Rule, ...]:
        """Return the rules by seconds. Where the first one depends on the size, a rule that chooses it at each call is ahead."""
        ours, shipped = self._our_rules(op), list(self._shipped(op))
        price = self.backend.costs
        if len(ours) + len(shipped) < 2 or price is None:
            return (*ours, *shipped)
        by_count = self._costs(self.backend.ops)
        orders = []
        for size in SIZES:
            costs = by_count.priced(functools.partial(_price, price, size))

            def rank(rule: Rule, costs: Costs = costs) -> tuple[int, int, float]:
                # A linked rule leaves some calls to the recorded one of its source: the two stay together.
                closed, seconds = min(costs.of_rule(name, key) for key in (rule.source, f"{rule.source}-linked"))
                if rule in ours:
                    return (0 if closed < 3 else closed, int(rule.source == "schema"), seconds)
                return (closed, 2, seconds)

            orders.append(tuple(sorted(ours + shipped, key=rank)))
        first = tuple(order[0] for order in orders)
        if len(set(first)) == 1:
            return orders[-1]
        effects = any(rule.effects for rule in first)
        return (Rule(op, functools.partial(_by_size, first), "cost", f"{__name__}._by_size", effects=effects), *orders[-1])


def _price(costs: CostOf, size: int, op: str) -> float:
    return costs(op, size)


def _by_size(rules: tuple[Rule, ...], *args: Any, **kwargs: Any) -> Any:
    """Run the rule that is cheapest at the size of a call, of one rule for each of `SIZES`."""
    largest = max((tensor.numel() for tensor in tensors_in((*args, *kwargs.values()))), default=0)
    return rules[min(bisect_left(SIZES, largest), len(SIZES) - 1)](*args, **kwargs)


@functools.lru_cache(maxsize=16)
def shipped_costs(ops: OpSet) -> Costs:
    """The cost of each route on an op set, from the shipped footprints."""
    has_prims = any(op.namespace == "prims" for op in ops)
    without = frozenset() if has_prims else frozenset({"prims", "prims-linked"})
    closed = _CLOSED_ON_CORE if _holds_core(ops) else frozenset()
    return Costs(load_footprints(), frozenset(map(str, ops)), is_passthrough_name, without, is_changed, closed=closed)


def _holds_core(ops: OpSet) -> bool:
    return len(ops) > _FEWER_THAN_CORE and all(op in ops for op in core_aten())


def planner_of(backend: Backend, rules: Iterable[Rule] = ()) -> Planner:
    """Return the planner of a backend over all rules: the user's, our own, and torch's.

    Args:
        backend: the op set and its kernels.
        rules: the user's own rules.

    Raises:
        RuleError: for two rules for one op.
    """
    # Loaded here, since the first call of an op should not have to.
    families()
    load_direct()
    return Planner(backend, index_rules(rules), our_rules, shipped_rules, shipped_costs)
