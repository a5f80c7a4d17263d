"""Decide for each op whether a kernel runs it, it passes through, or rules decompose it, and order these rules."""

from __future__ import annotations

import functools
import math
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple, overload

import torch

from eagerdecomp._torch.ops import OpOverload, builtin, canonical, op_called, silence_storage_warning
from eagerdecomp.decomps import families, our_rules, small_ops, sparse_rule
from eagerdecomp.eager.generators import drawing_in_turn
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.fast_calls import load_direct
from eagerdecomp.ops.kernel_costs import CostOf
from eagerdecomp.ops.opset import OpSet, Predicate, core_aten
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, is_composite, reads_data, tensors_in
from eagerdecomp.planner.closure import OpCosts
from eagerdecomp.planner.rule_calls import is_changed, load_footprints
from eagerdecomp.rules.error_notes import predicate_holds
from eagerdecomp.rules.failed_routes import NotOnFakes
from eagerdecomp.rules.refusals import refused_by_predicate, refused_dtype, refused_for_dtype
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.shipped import shipped_rules
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.rules.wide_dtype import uses_wide_dtype

__all__ = ["SIZES", "Decision", "Planner", "planner_of", "shipped_costs"]

#: The sizes, in numbers of elements, at which routes are compared by cost.
SIZES = (16, 256, 4096, 65_536, 1_048_576, 16_777_216)

#: Sources of library rules. If an op's first rule has one of these sources, some of its recorded calls decompose to Core ATen (a
#: test checks this). On Core ATen the planner thus need not read the file of footprints (the ops that each rule calls).
_CLOSED_ON_CORE = ("own", "schema")
#: Core ATen has more ops than this on each torch release, so a smaller set cannot contain it.
_FEWER_THAN_CORE = 150

#: Ops for which the mode of fake tensors returns a tensor that is not fake.
_RETURN_NO_FAKES = frozenset({"aten._sparse_compressed_tensor_unsafe.default", "aten._sparse_compressed_tensor_with_dims.default"})

#: The Fourier transforms of prims, and the ops of ATen whose fake results have the strides of these prims.
_TRANSFORMS = {f"prims.fft_{kind}.default": f"aten._fft_{kind}.default" for kind in ("r2c", "c2c", "c2r")}

# Sources of rules that are tried last, in this order.
_LAST_SOURCES = ("prims", "small")


class Decision(NamedTuple):
    """The decision for an op on one backend.

    Attributes:
        kernel: the kernel for supported calls; None if the op is not in the set.
        when: the predicate that decides which calls the kernel runs; None for all.
        passthrough: whether the op runs natively, because no backend needs a kernel for it.
        rules: the rules for other calls, in the order in which they are tried.
        typed: the backend, if its kernels take some dtypes only; None if they take all.
    """

    kernel: Callable[..., Any] | None
    when: Predicate | None
    passthrough: bool
    rules: Sequence[Rule]
    typed: Backend | None = None

    def supports(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        """Return whether the kernel runs a call."""
        if self.kernel is None or (self.when is not None and not predicate_holds(op, self.when, args, kwargs)):
            return False
        return self.typed is None or refused_dtype(self.typed, (*args, *kwargs.values())) is None

    def refusal(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return the call and the reason why the kernel does not run it; "" if it does, or if there is none."""
        if self.kernel is None:
            return ""
        if self.when is not None and not predicate_holds(op, self.when, args, kwargs):
            return refused_by_predicate(op, self.when, args, kwargs)
        dtype = None if self.typed is None else refused_dtype(self.typed, (*args, *kwargs.values()))
        return "" if dtype is None or self.typed is None else refused_for_dtype(op, dtype, self.typed, args, kwargs)


#: The decision for an `AbsentOp`.
_OF_ABSENT = Decision(None, None, False, ())


class _LazyRules(Sequence[Rule]):
    """Rules in order. Only the first ones are known; the others are ranked when they are needed, which is rare."""

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
            return _LazyRules(self._first[start:], self._others)
        return tuple(self)[index]


class Planner:
    """Decides for each op of one backend; each decision is cached.

    Rules that close on the set come first. Among these, the library's rules come before torch's, because they match eager exactly.
    Otherwise the cheapest comes first. The cost of a rule is its number of kernel calls, or their cost by `Backend.costs`. The
    recorded data may lack a rule, or a call that takes another branch. If a rule then fails at a call, the next one is tried.

    Args:
        backend: the op set and its kernels.
        user: the user's rules by op; they come before all others.
        ours: returns the library's rules for an op.
        shipped: returns torch's rules for an op, the most reliable first.
        costs: returns the costs of routes on an op set; called if an op has several rules.

    Attributes:
        on_fakes: whether calls have fake tensors.
    """

    on_fakes = False

    def __init__(
        self,
        backend: Backend,
        user: Mapping[OpOverload, Rule],
        ours: Callable[[OpOverload], Sequence[Rule]],
        shipped: Callable[[OpOverload], Iterable[Rule]],
        costs: Callable[[OpSet], OpCosts],
    ) -> None:
        self.backend = backend
        self._user = user
        self._ours = ours
        self._shipped = shipped
        self._costs_on = costs
        self._holds_core = _holds_core(backend.ops)
        self._has_predicates = backend.ops.has_predicates
        self._decisions: dict[OpOverload, Decision] = {}
        self._has_prims = any(op.namespace == "prims" for op in backend.ops)
        self._typed = backend if backend.dtypes is not None else None
        self._float64 = backend.dtypes is None or torch.float64 in backend.dtypes
        self._uint8 = backend.dtypes is None or torch.uint8 in backend.dtypes

    @functools.cached_property
    def _costs(self) -> OpCosts:
        return self._costs_on(self.backend.ops)

    @property
    def has_user_rules(self) -> bool:
        """Whether the user passed any rules."""
        return bool(self._user)

    @property
    def user_functions(self) -> list[Callable[..., Any]]:
        """The functions of the user's rules."""
        return [rule.fn for rule in self._user.values()]

    def has_user_rule(self, op: OpOverload) -> bool:
        """Return whether a user's rule decomposes an op."""
        return op in self._user

    def has_rules_of(self, other: Planner) -> bool:
        """Return whether another planner has the same user rules."""
        return self._user == other._user

    def decide(self, op: OpOverload) -> Decision:
        """Return the decision for an op. It depends only on the rules, the op set and the version of torch."""
        decision = self._decisions.get(op)
        if decision is None:
            decision = self._decide(canonical(op)) if isinstance(op, OpOverload) else _OF_ABSENT
            self._decisions[op] = decision
        return decision

    def sparse_rule(self, op: OpOverload) -> Rule | None:
        """Return the library's rule for sparse calls of an op that has a kernel or other rules for dense calls, or None."""
        if op in self._user or is_passthrough_name(str(op)):
            return None
        found = sparse_rule(op)
        return found if found is None or self._float64 else _without_float64(found)

    def may_open(self, op: OpOverload, kernels: Iterable[OpOverload]) -> list[OpOverload]:
        """Return the kernels that may give an op without a route one, by the recorded calls of its rules."""
        by_name = {str(kernel): kernel for kernel in kernels}
        if self._user:
            return list(by_name.values())
        return [by_name[name] for name in self._costs.may_open(str(op), by_name)]

    def decide_for_fakes(self, op: OpOverload) -> Decision:
        """Return the decision for fake tensors: torch's kernel replaces the backend's, which cannot compute with them."""
        found = self.decide(op)
        return found if found.kernel is None else found._replace(kernel=builtin(op))

    def _decide(self, op: OpOverload) -> Decision:
        if op.namespace == "prims":
            silence_storage_warning(op)
        ops = self.backend.ops
        facts = facts_of(op)
        supported = op in ops and (facts.reads_workspace_of or op) in ops
        if (facts.opaque_results or facts.reads_workspace_of) and not self._uint8:
            supported = False  # the kernel would return a workspace of uint8, but no rule needs one
        kernel = self.backend.kernels.get(op) or builtin(op) if supported else None
        if kernel is not None and facts.is_random and not is_composite(op):
            kernel = drawing_in_turn(kernel)
        when = ops.predicate(op) if supported and self._has_predicates else None
        if supported and when is None:
            return Decision(kernel, None, False, (), self._typed)
        name = str(op)
        if is_passthrough_name(name):
            return Decision(kernel, when, True, ())
        rank = self._ranked if self.backend.costs is None else self._ranked_by_cost
        if op in self._user:
            rules: Sequence[Rule] = _LazyRules((self._user[op],), functools.cache(lambda: rank(op, name)))
        else:
            rules = self._rules(op, name) if self.backend.costs is None else rank(op, name)
        return Decision(kernel, when, False, rules, self._typed)

    def _rules(self, op: OpOverload, name: str) -> Sequence[Rule]:
        """Return the rules for an op in order. If a library rule is first for sure, the others are ranked only when needed."""
        ours = self._our_rules(op)
        # A library rule that `_ranked` puts first, whatever the other rules are: a hand-written rule, or the library's only rule.
        if not ours or ours[0].source in _LAST_SOURCES or (ours[0].source != "own" and len(ours) > 1):
            return self._ranked(op, name)
        first = ours[0]
        if not (self._holds_core and first.source in _CLOSED_ON_CORE) and self._costs.rank_of_rule(name, first.key)[0] == 3:
            return self._ranked(op, name)
        if not first.linked and self._equals_a_prim(name):
            return self._ranked(op, name)
        # Remove `first` from the ranking. It may be second there, after a prim that equals the op.
        return _LazyRules(
            (first,), functools.cache(lambda: tuple(rule for rule in self._ranked(op, name) if rule.where != first.where))
        )

    def _our_rules(self, op: OpOverload) -> Sequence[Rule]:
        """Return the library's rules for an op.

        For a backend without float64, they compute in float32. If a predicate may refuse float64, a rule that uses float64 is
        followed by its form in float32, for calls in which the first form has no route.
        """
        found = self._ours(op)
        if not self._has_prims:
            found = [rule for rule in found if rule.source != "prims"]
        if not self._float64:
            return [_without_float64(rule) for rule in found]
        if not self._has_predicates:
            return found
        return [form for rule in found for form in ((rule, _in_float32(rule)) if uses_wide_dtype(rule.fn) else (rule,))]

    def _equals_a_prim(self, name: str) -> bool:
        """Return whether torch's table decomposes an op into one prim of the set: that prim is the op under another name.

        The backend then gets this prim instead of our longer decomposition. Return False if no rule of the library closes for all
        calls.
        """
        if not self._has_prims:
            return False
        costs = self._costs
        closed, kernels = min(costs.rank_of_rule(name, "own"), costs.rank_of_rule(name, "own-linked"))
        return closed == 0 and math.isfinite(kernels) and costs.rank_of_rule(name, "table") == (0, 1.0)

    def _ranked(self, op: OpOverload, name: str) -> tuple[Rule, ...]:
        ours, rules = self._our_rules(op), (*self._our_rules(op), *self._shipped(op))
        if len(rules) < 2:
            return rules
        costs = self._costs

        def rank(rule: Rule) -> tuple[int, int, float]:
            # `closed` is 0 if all recorded calls are closed, 1 if that is unknown, 2 if some are, 3 if none is
            # (`OpCosts.rank_of_rule`).
            closed, kernels = costs.rank_of_rule(name, rule.key)
            if rule.source in _LAST_SOURCES:
                return (closed, 2 + _LAST_SOURCES.index(rule.source), kernels)
            if rule.source == "table" and self._equals_a_prim(name):
                return (0, -1, kernels)
            # Library rules are first unless all their recorded calls leave the set. A rule that is written by hand comes before one
            # that is derived from the schema, because it was written to replace that one.
            if rule in ours:
                return (0 if closed < 3 else closed, 0, 0.0 if rule.source == "own" else kernels)
            return (closed, 1, kernels)

        return tuple(sorted(rules, key=rank))  # stable: among equal ranks, the most reliable rule is first

    def _ranked_by_cost(self, op: OpOverload, name: str) -> tuple[Rule, ...]:
        """Return the rules by measured cost. If the best one depends on the size, a rule that chooses at each call comes first."""
        ours, rules = self._our_rules(op), (*self._our_rules(op), *self._shipped(op))
        price = self.backend.costs
        if len(rules) < 2 or price is None:
            return rules
        by_count = self._costs
        order_by_size = []
        for size in SIZES:
            costs = by_count.priced(functools.partial(_price, price, size))

            def rank(rule: Rule, costs: OpCosts = costs) -> tuple[int, int, float]:
                # A linked rule leaves some calls to the recorded rule of the same source, so both get the same rank.
                closed, seconds = min(costs.rank_of_rule(name, key) for key in (rule.source, f"{rule.source}-linked"))
                if rule in ours:
                    return (0 if closed < 3 else closed, int(rule.source == "schema"), seconds)
                return (closed, 2, seconds)

            order_by_size.append(tuple(sorted(rules, key=rank)))
        first = tuple(order[0] for order in order_by_size)
        if len(set(first)) == 1:
            return order_by_size[-1]
        effects = any(rule.effects for rule in first)
        return (Rule(op, functools.partial(_by_size, first), "cost", f"{__name__}._by_size", effects=effects), *order_by_size[-1])


@functools.cache
def _without_float64(rule: Rule) -> Rule:
    """Return a rule that computes in float32 where it would use float64 for accuracy."""
    return replace(rule, float64=False)


@functools.cache
def _in_float32(rule: Rule) -> Rule:
    """Return such a rule for calls without a float64 operand: those would lose accuracy without notice."""
    fn = rule.fn

    @functools.wraps(fn)
    def narrow(*args: Any, **kwargs: Any) -> Any:
        return NotImplemented if _has_float64_operand((*args, *kwargs.values())) else fn(*args, **kwargs)

    return replace(rule, fn=narrow, where=f"{rule.where}, in float32", float64=False)


def _has_float64_operand(values: Sequence[Any]) -> bool:
    wide = (torch.float64, torch.complex128)
    return any(value in wide if isinstance(value, torch.dtype) else False for value in values) or any(
        tensor.dtype in wide for tensor in tensors_in(values)
    )


class _FakePlanner(Planner):
    """Decides for calls on fake tensors. Ops that have no result on these raise `NotOnFakes` instead of running their kernels."""

    on_fakes = True

    def _decide(self, op: OpOverload) -> Decision:
        found = super()._decide(op)
        if found.kernel is not None and str(op) in _TRANSFORMS:
            return found._replace(kernel=functools.partial(_transform, op_called(_TRANSFORMS[str(op)])))
        if found.kernel is not None and str(op) == "aten._reshape_alias.default":
            return found._replace(kernel=builtin(op_called("aten.as_strided.default")))  # its own fake result ignores the strides
        if found.kernel is builtin(torch.ops.aten.copy_.default):
            # Not its direct function: `Tensor.copy_` initializes the device, which need not exist if the tensors are fake.
            return found._replace(kernel=op)
        refused = facts_of(op).reads_data if found.kernel is not None else str(op) in _RETURN_NO_FAKES
        return found._replace(kernel=_refusing(op), passthrough=False) if refused else found


def _transform(op: Callable[..., Any], self: Any, *, dim: Any, **last: Any) -> Any:
    """Run a Fourier transform of prims as the op of ATen, without normalisation: fake results of the prim are contiguous."""
    return op(self, dim, 0, *last.values())


def _refusing(op: OpOverload) -> Callable[..., Any]:
    """Return a kernel that raises `NotOnFakes`; if the op reads data only in some calls (`index` with masks), only for these."""
    kernel, facts = builtin(op), facts_of(op)

    def run(*args: Any, **kwargs: Any) -> Any:
        if facts.reads_data and not reads_data(op, args):
            return kernel(*args, **kwargs)
        raise NotOnFakes(f"{op} has no result on fake tensors")

    return run


def _price(costs: CostOf, size: int, op: str) -> float:
    return costs(op, size)


def _by_size(rules: tuple[Rule, ...], *args: Any, **kwargs: Any) -> Any:
    """Run the rule that is cheapest at the size of a call; `rules` has one rule for each of `SIZES`."""
    largest = max((tensor.numel() for tensor in tensors_in((*args, *kwargs.values()))), default=0)
    return rules[min(bisect_left(SIZES, largest), len(SIZES) - 1)](*args, **kwargs)


@functools.lru_cache(maxsize=16)
def shipped_costs(ops: OpSet) -> OpCosts:
    """Return the cost of each route on an op set, from the shipped footprints."""
    has_prims = any(op.namespace == "prims" for op in ops)
    without = frozenset() if has_prims else frozenset({"prims", "prims-linked"})
    names = frozenset(map(str, ops))
    return OpCosts(load_footprints(), names, is_passthrough_name, without, is_changed, unrecorded=small_ops())


def _holds_core(ops: OpSet) -> bool:
    return len(ops) > _FEWER_THAN_CORE and all(op in ops for op in core_aten())


def planner_of(backend: Backend, rules: Iterable[Rule] = (), *, fakes: bool = False) -> Planner:
    """Return the planner of a backend over all rules: the user's, our own, and torch's.

    Args:
        backend: the op set and its kernels.
        rules: the user's own rules.
        fakes: whether calls have fake tensors. Torch's kernels then replace the backend's, which cannot compute with them, and an
            op that reads data raises `NotOnFakes`.

    Raises:
        RuleError: for two rules for one op.
    """
    # Import the rules and read the table of direct calls now, so that the first call of an op is not slowed down by them.
    families()
    load_direct()
    if fakes:
        backend = replace(backend, kernels={}, compile=None)
    make = _FakePlanner if fakes else Planner
    return make(backend, index_rules(rules), our_rules, shipped_rules, shipped_costs)
