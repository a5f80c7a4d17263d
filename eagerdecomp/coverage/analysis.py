"""`plan`: find what each op decomposes into on an op set, from the rules and from recorded calls."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from eagerdecomp._torch.ops import OpOverload, is_dispatched, op_called, op_named, op_names, overload, torch_release
from eagerdecomp.coverage.example_runs import kernels_of_runs
from eagerdecomp.coverage.model_kernels import ModelKernels
from eagerdecomp.coverage.model_ops import ModelCalls, model_calls
from eagerdecomp.coverage.next_kernels import SmallSet, choose_kernels, fewest_kernels, kernels_used, order_kernels, smallest_set
from eagerdecomp.coverage.op_plan import OpPlan
from eagerdecomp.coverage.outside import outside
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.coverage.routes import Routes
from eagerdecomp.coverage.user_rules import with_rules
from eagerdecomp.decomps import small_ops
from eagerdecomp.errors import ArgumentError
from eagerdecomp.host.html import first_names
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, core_aten, infra, resolve_ops
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.ops.shipped_data import nearest_release
from eagerdecomp.planner.planner import Planner, planner_of
from eagerdecomp.planner.rule_calls import FILE, SeenOp, load_calls
from eagerdecomp.rules.rule import Rule, dropped_rules
from eagerdecomp.rules.user_rules import index_rules

__all__ = ["aten_ops", "minimal_opset", "plan"]

_SAMPLES = (
    "routes were found for the calls of torch's operator database in float32, and for a few in bfloat16, complex64, int64 and "
    "bool; other calls may take other routes"
)
_KERNELS = "kernel calls are sums over the most frequent recorded call of each op on the route, before passes shorten the program"


def plan(
    supported_ops: Backend | OpSet | Iterable[OpLike],
    *,
    ops: Iterable[OpLike] | None = None,
    model: Callable[[], Any] | None = None,
    kernels: int = 10,
    name: str = "",
    rules: Iterable[Rule] = (),
    progress: Callable[[float, str], object] = lambda part, words: None,
) -> Plan:
    """Return what each op decomposes into on a set, and which kernels to write next. No kernel of the backend runs.

    For every ATen overload, the plan says whether it is in the set, decomposed (into which kernels, how many, by which rules, and
    whether its gradient decomposes too), or without a route. It uses the rules and their recorded calls.

    Args:
        supported_ops: the set, or a `Backend`.
        ops: the ops to plan for; default: all of ATen. For named ops, each recorded call is run with torch's own kernels, to
            count the kernel calls. For all of ATen, counts are sums over the recorded calls of each rule.
        model: plan for the calls of a model instead, forward and backward. This function returns a module and its inputs,
            ``return model, (x,)``, or a function without arguments that runs one step. Either runs on fake tensors: a
            module twice; a step at most three times, until it calls no new op (the first step of an optimizer calls other ops than
            later steps). Ops called only while the model is built are listed apart, and the set need not support them.
        kernels: the number of kernels to propose. A prim is proposed only if the set contains prims.
        name: the model's name in the plan.
        rules: your own rules, as for `EagerDecompMode`. They run on fake tensors, for the recorded calls of their ops.
        progress: called with the fraction that is done and the name of the current step.

    Returns:
        The plan, with an `OpPlan` per op: ``plan["aten.silu.default"]``. It prints as a table; `Plan.to_json` and `Plan.to_html`
        write it in other formats. A plan of all ops takes seconds. A plan of a model takes about as long as a step on fake tensors.

    Raises:
        OpSetError: for an op name that this torch does not have.
        RuleError: for two rules for one op.
        ArgumentError: for a model that cannot run on fake tensors.

    Examples:
        >>> import eagerdecomp as ed
        >>> made = ed.plan(ed.infra() | ["aten.mul.Tensor", "aten.sigmoid"], ops=["aten.silu.default", "aten.tanh.default"])
        >>> made["aten.silu.default"].status, made["aten.tanh.default"].status
        ('closed', 'missing')
    """
    if type(kernels) is not int or kernels < 0:
        raise ArgumentError(f"kernels must be an integer from 0 up, not {kernels!r}")
    started = time.perf_counter()
    progress(0.0, "reading recorded calls")
    backend = as_backend(supported_ops)
    user = index_rules(rules)
    planner = planner_of(backend, user.values())
    seen, unknown = _samples(planner, user.values())
    routes = Routes(planner, seen)
    called = ModelCalls()
    if model is not None:
        called = model_calls(planner, model, lambda part, words: progress(0.1 + 0.4 * part, words))
        names = sorted({*called.counts, *called.making})
        subject = name or f"what {getattr(model, '__qualname__', 'the model')} calls"
    elif ops is not None:
        names = sorted({str(op) for op in resolve_ops(ops)})
        subject = f"{len(names)} ops"
    else:
        names, subject = [str(op) for op in aten_ops()], "all of ATen"
    progress(0.5 if model is not None else 0.1, "finding closed ops")
    routes.know(names)
    found: list[OpPlan] = []
    for number, op in enumerate(names):
        if not number % 50:
            progress(0.5 + 0.2 * number / len(names), "finding what each op decomposes into")
        found.append(_planned(routes, op, called, unknown))
    if ops is not None:
        found = [_counted(one, backend.ops, user.values()) for one in found]
    planned = tuple(found)
    required = [one.op for one in planned if one.required]
    open_ops = {one.op for one in planned if one.status in ("partly", "missing", "outside")}
    refused = {one.op for one in planned if one.refused}  # no further kernel helps: the backend takes other dtypes
    wanted = open_ops.intersection(required) - refused
    dense = {op for op in wanted if not outside(op)}  # no kernel is proposed for ops that are not decomposed
    # Ops that fail for the model's own calls are not closed, even if recorded calls of them are.
    closed = routes.closed - open_ops
    in_gradients = {needed for op in required for needed in routes.open_in_gradient(op)}
    # No kernel is proposed for the sake of a rule for small sets, which takes many calls: `mm` rather than `bmm`.
    clauses = routes.clauses(routes.graph([*names, *in_gradients]), without="small")
    may, rank = (_any_op, _prims_first) if any(op.namespace == "prims" for op in backend.ops) else (_no_prim, _rank)
    progress(0.75, "choosing the next kernels")
    choice = choose_kernels(clauses, closed, dense, kernels, rank, may)
    progress(0.85, "choosing all missing kernels")
    to_close = fewest_kernels(clauses, closed, wanted, rank, may, [kernel.op for kernel in choice.kernels])
    needs = kernels_used(clauses, closed, to_close, wanted)
    if called.calls:
        others = open_ops - wanted - refused
        fitting = ModelKernels(called, wanted, others, lambda more: planner_of(as_backend(backend.ops | more), user.values()), may)
        to_close, needs = fitting.fit(to_close, needs)
    next_kernels = choice.kernels
    if not {kernel.op for kernel in next_kernels} <= {*to_close}:
        next_kernels = order_kernels({op: needed for op, needed in needs.items() if op in dense}, to_close[:kernels])
        to_close = tuple(dict.fromkeys([*(kernel.op for kernel in next_kernels), *to_close]))
    planned = tuple(replace(one, needs=needs.get(one.op, ())) for one in planned)
    progress(0.95, "choosing all missing kernels of gradients")
    for_gradients = fewest_kernels(clauses, closed, in_gradients, rank, may, to_close)
    progress(1.0, "")
    return Plan(
        repr(backend),
        subject,
        torch_release(),
        planned,
        next_kernels,
        max(choice.bound, sum(len(kernel.enables) for kernel in next_kernels)),
        to_close,
        for_gradients,
        called.stopped,
        (
            *called.notes,
            *_of_data(),
            *_of_making(planned),
            *unknown.values(),
            *_of_samples(planned),
            *_of_dtypes(backend, planned, sampled=model is None),
            *(_of_dropped() if model is None and ops is None else ()),
        ),
        time.perf_counter() - started,
    )


def _of_making(planned: Iterable[OpPlan]) -> tuple[str, ...]:
    lacking = [one.op for one in planned if not one.required and one.status in ("partly", "missing")]
    if not lacking:
        return ()
    some = first_names(lacking)
    return (f"building the model calls ops without a route that no step calls ({some}): build it before you enter the mode",)


def _of_data() -> tuple[str, ...]:
    release = nearest_release(FILE)
    if release == torch_release():
        return ()
    note = f"no calls were recorded with torch {torch_release()}: the plan uses those of {release}"
    return (f"{note}; `python tools/record_rules.py` in a checkout records its own",)


def _of_samples(planned: Iterable[OpPlan]) -> tuple[str, ...]:
    samples = [one for one in planned if not one.exact]
    summed = any(not route.counted and not route.missing for one in samples for route in one.routes)
    return (*(_SAMPLES,) * bool(samples), *(_KERNELS,) * summed)


def _small_rules(planner: Planner) -> tuple[Rule, ...]:
    """Return the rules for small sets of the ops that the set lacks."""
    names = sorted(small_ops() - set(map(str, planner.backend.ops)))
    return tuple(rule for name in names for rule in planner.decide(op_called(name)).rules if rule.source == "small")


def sample_routes(backend: Backend, names: Iterable[str]) -> Routes:
    """Return the routes of the recorded calls of ops on a backend. Errors of predicates are not raised."""
    planner = planner_of(backend)
    routes = Routes(planner, _samples(planner)[0], raises=False)
    routes.know(names)
    return routes


def _samples(planner: Planner, more: Iterable[Rule] = ()) -> tuple[Mapping[str, SeenOp], dict[str, str]]:
    """Return the recorded calls with what rules for small sets, changed rules and `more` rules call; and which could not be run."""
    recorded = _with_small_rules(load_calls, _small_rules(planner))
    changed = [rule for one in recorded.values() if one.calls for rule in one.changed]
    return with_rules(recorded, (*changed, *more))


@functools.lru_cache(maxsize=4)
def _with_small_rules(load: Callable[[], Mapping[str, SeenOp]], rules: tuple[Rule, ...]) -> Mapping[str, SeenOp]:
    """Return the recorded calls with what these rules call, which is not in the shipped data: other sets order rules by that."""
    return with_rules(load(), rules)[0] if rules else load()


def _of_dtypes(backend: Backend, planned: Iterable[OpPlan], *, sampled: bool) -> tuple[str, ...]:
    if backend.dtypes is None:
        return ()
    taken = ", ".join(sorted(map(str, backend.dtypes)))
    if sampled:
        note = f"backend {backend.name!r} takes only {taken}, and recorded calls do not show which dtypes their kernels need"
        return (f"{note}: a plan of a model does",)
    refused = [one.op for one in planned if one.refused]
    if not refused:
        return ()
    note = f"the kernels of backend {backend.name!r} take only {taken}, and refuse calls of {first_names(refused)}"
    return (f"{note}: use these dtypes in the model, or accept more in Backend(dtypes=)",)


def _of_dropped() -> tuple[str, ...]:
    names = ", ".join(dropped_rules())
    return (f"the library has rules for ops that torch {torch_release()} lacks: {names}",) if names else ()


def aten_ops() -> list[OpOverload]:
    """Return every overload of ATen that the dispatcher runs, sorted by name."""
    found = (overload(name) for name in op_names() if name.startswith("aten::"))
    return sorted((op for op in found if op is not None and is_dispatched(op)), key=str)


def minimal_opset(
    ops: Iterable[OpLike] | None = None,
    *,
    base: Backend | OpSet | None = None,
    rules: Iterable[Rule] = (),
    last_resort: bool = False,
) -> SmallSet:
    """Return a small set such that every recorded call of the given ops decomposes to it and `base`.

    No op of it can be removed, but a different set may be smaller: `SmallSet.necessary` holds the ops that every such set has.

    Args:
        ops: the ops to decompose; default: all ops that eager calls in torch's operator database.
        base: a backend, or the ops that it has anyway; default: `infra`.
        rules: your own rules, as for `plan`. If a rule could not be run on any recorded call, the result contains its op.
        last_resort: also use the rules that express Core ATen by fewer kernels, with many calls for each op. They are run again for
            every recorded call, which takes minutes. The set `tiny` was found in this way for all ops.

    Returns:
        The set's ops, and which of them every such set must have.

    Raises:
        OpSetError: for an op name that this torch does not have.
        RuleError: for two rules for one op.

    Examples:
        >>> import eagerdecomp as ed
        >>> found = ed.minimal_opset(["aten.silu.default", "aten.silu_backward.default"])
        >>> found.ops
        ('aten.add.Tensor', 'aten.mul.Tensor', 'aten.sigmoid.default', 'aten.sub.Tensor')
    """
    backend = as_backend(infra() if base is None else base)
    user = index_rules(rules)
    planner = planner_of(backend, user.values())
    seen, _ = with_rules(_with_small_rules(load_calls, _small_rules(planner) if last_resort else ()), user.values())
    routes = Routes(planner, seen)
    if ops is None:
        wanted = [op for op, found in seen.items() if found.eager and op_named(op) is not None]  # some are registered on first use
    else:
        wanted = [str(op) for op in resolve_ops(ops)]
    graph = routes.graph(wanted)
    free = {op for op in graph if is_passthrough_name(op)} | {str(op) for op in backend.ops}
    # A prim decomposes into its eager implementation, which is mostly the op that called the prim. Leave these cycles out.
    clauses = {
        op: tuple(tuple(way for way in call if not any(called.startswith("prims.") for called in way)) for call in calls)
        for op, calls in routes.clauses(graph).items()
    }
    return smallest_set(clauses, free, [op for op in wanted if not is_passthrough_name(op)], _rank)


def _planned(routes: Routes, op: str, called: ModelCalls, untried: Collection[str]) -> OpPlan:
    rules = tuple(str(rule) for rule in routes.rules(op))
    gradient, lacking = routes.gradient(op)
    calls, making = called.counts[op], called.making[op]
    if is_passthrough_name(op):
        return OpPlan(op, "passes", (), (), "none", (), calls, True, making)
    own = called.routes.get(op, [])
    refused = any(route is not None and route.refused for route in own)
    if routes.has_kernel(op) and not refused:
        return OpPlan(op, "supported", (), rules, gradient, lacking, calls, True, making)
    if own and (None not in own or refused):
        found = tuple(route for route in own if route is not None)
        closing = [not route.missing for route in found]
        status = "closed" if all(closing) else "partly" if any(closing) else "missing"
        reason = outside(op) if status == "missing" else ""
        return OpPlan(op, "outside" if reason else status, found, rules, gradient, lacking, calls, True, making, reason)
    if op in routes.closed:
        status = "closed"
    elif op in routes.partly_closed:
        status = "partly"
    else:
        ends = {end for route in routes.routes(op) for end in route.missing}
        unknown = op in untried or routes.is_unknown(op) or (ends and all(routes.is_unknown(end) for end in ends))
        status = "unknown" if unknown else "missing"
        reason = outside(op)
        if reason:
            return OpPlan(op, "outside", (), rules, gradient, lacking, calls, making=making, reason=reason)
    return OpPlan(op, status, routes.routes(op), rules, gradient, lacking, calls, making=making)


def _counted(one: OpPlan, ops: OpSet, rules: Iterable[Rule]) -> OpPlan:
    """Replace summed kernel counts by counts of a run, for each example whose text makes a valid call."""
    calls = [route.call for route in one.routes if route.call and not route.missing]
    counts = dict(zip(calls, kernels_of_runs(ops, rules, one.op, calls), strict=True))
    found = (route if (n := counts.get(route.call)) is None else replace(route, kernels=n, counted=True) for route in one.routes)
    return replace(one, routes=tuple(found))


def _any_op(op: str) -> bool:
    return True


def _no_prim(op: str) -> bool:
    return not op.startswith("prims.")


def _rank(op: str) -> int:
    """Rank kernels that enable each other: functional before in-place, public before internal, ATen before other namespaces."""
    found = op_named(op)
    if found is None:
        return 9
    internal = found.namespace == "aten" and op.startswith("aten._") and found not in core_aten()
    return (2 if facts_of(found).mutated or internal else 0) + (0 if found.namespace == "aten" else 1)


def _prims_first(op: str) -> int:
    return _rank(op) - 2 * op.startswith("prims.")
