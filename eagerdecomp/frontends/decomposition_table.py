"""Export the rules as a decomposition table for PyTorch's own tools: ``torch.export``, ``make_fx``, AOTAutograd."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.decomp_tables import is_python_composite
from eagerdecomp._torch.dispatcher import accepts_scalars
from eagerdecomp._torch.dynamo import no_new_guards, traced_functional
from eagerdecomp._torch.fake import fake_mode_or_new, handling_fakes, needs_data
from eagerdecomp._torch.modes import DispatchMode, no_current_modes
from eagerdecomp._torch.ops import OpOverload, call_at_key, op_names, overload
from eagerdecomp._torch.sizes import fact_of_size, guards_ignored
from eagerdecomp._torch.tensors import FakeTensor, FakeTensorMode
from eagerdecomp.diagnosis.no_route import attempts
from eagerdecomp.eager.observe import leaves_of, mapped_call
from eagerdecomp.eager.scalar_tensors import scalars_to_tensors, tensor_positions
from eagerdecomp.eager.verdict import refusal
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.ops.schema import facts_of, functional_variant, is_composite, tensors_in
from eagerdecomp.planner.planner import Planner, planner_of
from eagerdecomp.rules.failed_routes import FAKE_TENSOR_ERRORS
from eagerdecomp.rules.no_route import DECLINED, NoRoute
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules

__all__ = ["decompositions"]

#: Maximum number of calls whose rule is cached.
_MAX_CACHED_CALLS = 4096

#: What a rule needs that a graph of these tools cannot contain.
_WRITES = "{}, which writes to a tensor"

#: Maximum depth of nested rules; a deeper search counts as endless.
_MAX_DEPTH = 32


def decompositions(
    supported_ops: Backend | OpSet | Iterable[OpLike],
    ops: Iterable[OpLike] | None = None,
    *,
    rules: Iterable[Rule] = (),
) -> dict[OpOverload, Callable[..., Any]]:
    """Return a decomposition table that leads to an op set: ``exported.run_decompositions(ed.decompositions(ed.core_aten()))``.

    The functions are the rules of `EagerDecompMode`, as plain functions of an op's arguments. They call overloads, which the tool
    that holds the table decomposes in turn. They work on fake tensors and symbolic sizes, under functionalization and autograd.

    Args:
        supported_ops: the ops that stay; a `Backend`, an `OpSet`, or an iterable of overloads, packets or names.
        ops: the ops to decompose; by default every registered op that is not in the set. The table never
            contains ops that write. Functionalization replaces these in export and in AOTAutograd, but not in `make_fx` alone.
        rules: your own decompositions (`register_decomposition`), each before all others of its op.

    Returns:
        For each op with a rule, a function of its arguments. It returns ``NotImplemented`` for a call without a route, and for a
        call whose rules all read a tensor's data. The tool leaves such a call unchanged, and a warning says why.

    Raises:
        OpSetError: for an unknown op name.
        RuleError: for two rules for one op.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> table = ed.decompositions(["aten.mul", "aten.sigmoid"], ["aten.silu.default"])
        >>> list(table)
        [<OpOverload(op='aten.silu', overload='default')>]
        >>> from torch.fx.experimental.proxy_tensor import make_fx
        >>> traced = make_fx(lambda x: torch.nn.functional.silu(x), decomposition_table=table)(torch.ones(2))
        >>> [str(node.target) for node in traced.graph.nodes if node.op == "call_function"]
        ['aten.sigmoid.default', 'aten.mul.Tensor']
    """
    planner = planner_of(as_backend(supported_ops), index_rules(rules).values())
    wanted = [op for name in op_names() if (op := overload(name)) is not None] if ops is None else resolve_ops(ops)
    found = ((op, _rules_of(planner, op)) for op in wanted)
    routes = _Routes(planner, {op: its_rules for op, its_rules in found if its_rules}, all_ops=ops is None)
    return {op: routes.decomposition(op) for op in routes.rules}


def _rules_of(planner: Planner, op: OpOverload) -> Sequence[Rule]:
    """Return the rules of an op; () for an op of the set and for an op that passes through.

    C++ compositions are included, because a tool with a table keeps composite ops that are not in it.
    """
    decision = planner.decide(op)
    supported = decision.kernel is not None and decision.when is None
    if decision.passthrough or supported or facts_of(op).mutated:
        return ()  # functionalization has removed ops that write
    return decision.rules


class _Search(threading.local):
    """The search of one thread.

    Attributes:
        active: whether a search is running.
        chain: the active rules, outermost first, each with the facts of its call.
        lowest: the outermost position in `chain` to which a recursion below the current call led back; `_MAX_DEPTH` if there was
            none. If that position is outside the current call, outer rules may have caused its failure, so the failure is not
            cached.
        found: facts of a call -> its rule; the failed search if no rule reaches the set, independent of the outer rules.
        running: facts of the calls whose rules the tool is running now, outermost first.
    """

    def __init__(self) -> None:
        self.active = False
        self.chain: list[tuple[Rule, Any]] = []
        self.lowest = _MAX_DEPTH
        self.found: dict[Any, Rule | NoRoute] = {}
        self.running: list[Any] = []


class _Routes:
    """The rules by which calls reach the set.

    A tool cannot undo what a rule called before it failed. So the rule of each call is found first, on fake tensors that the tool
    does not see: the first rule whose calls all reach the set, by their own rules. Then the tool runs that rule. With symbolic
    sizes, rules that are valid for all sizes come first.

    Args:
        planner: decides for each op.
        rules: op -> its rules in order.
        all_ops: whether the table has every op with a rule, so that a call of any other op outside the set has no route.
    """

    def __init__(self, planner: Planner, rules: Mapping[OpOverload, Sequence[Rule]], *, all_ops: bool) -> None:
        self.rules = rules
        self._planner = planner
        self._all_ops = all_ops
        self._found: dict[Any, Rule | NoRoute] = {}  # facts of a call that a tool made -> its rule, or the failed search
        self._search = _Search()

    def decomposition(self, op: OpOverload) -> Callable[..., Any]:
        """Return the function of an op for the table."""

        def decompose(*args: Any, **kwargs: Any) -> Any:
            return self._decompose(op, args, kwargs)

        decompose.__name__ = decompose.__qualname__ = f"decompose_{op._schema.name.rpartition('::')[2]}"
        return decompose

    def _decompose(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self._search.active:  # a composite, whose own kernel the tool has replaced by this function
            return self.run_by_route(op, args, kwargs)
        rule = None if self.is_supported(op, args, kwargs) else self._rule_for(op, args, kwargs)
        facts, running = _facts(op, args, kwargs), self._search.running
        if is_composite(op) and (not isinstance(rule, Rule) or facts in running):
            # `torch.export` would take NotImplemented as the result of a composite.
            return call_at_key(op, "CompositeImplicitAutograd")(*args, **kwargs)
        if rule is None:
            return NotImplemented
        if isinstance(rule, NoRoute):
            return _left_in_graph(op, rule)
        if facts in running:  # a cycle: strides differ from those of the search
            return _left_in_graph(op, NoRoute(op, ((rule, "leads back to itself", None),)))
        running.append(facts)
        try:
            # Tools decompose composites above functionalization, which removes writes, and any other op below it.
            functional = _PythonComposites(self) if is_composite(op) else _Functional(op)
            with functional:
                return functional.current(rule.apply(args, kwargs, fused=True))
        except NoRoute as failure:
            return _left_in_graph(op, failure)
        finally:
            running.pop()

    def is_supported(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> bool:
        """Return whether a call needs no rule: the set supports it, or the tool handles it."""
        if op not in self.rules and not self._all_ops:
            return True
        decision = self._planner.decide(op)
        if decision.kernel is not None:
            return decision.supports(op, args, kwargs)
        # A check that returns nothing may stay, because no other op uses its result.
        return op not in self.rules and (decision.passthrough or bool(facts_of(op).mutated) or not op._schema.returns)

    # -- search --------------------------------------------------------------------------------------------------------

    def _rule_for(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Rule | NoRoute:
        """Return the rule by which a call reaches the set; the failed search if there is none."""
        args, kwargs = mapped_call(_below_functionalization, args, kwargs)
        facts = _facts(op, args, kwargs)
        if facts not in self._found:
            fakes = fake_mode_or_new(tensors_in([*args, *kwargs.values()]))
            with no_current_modes():
                args, kwargs = mapped_call(lambda value: _as_fake(value, fakes), args, kwargs)
            with handling_fakes(fakes), torch.no_grad():
                found = self._start_search(op, args, kwargs, fakes)
            if len(self._found) + len(found) > _MAX_CACHED_CALLS:
                self._found.clear()
            self._found.update(found)
            self._found.setdefault(facts, found.get(_facts(op, args, kwargs)) or NoRoute(op))
        return self._found[facts]

    def _start_search(
        self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], fakes: FakeTensorMode
    ) -> dict[Any, Rule | NoRoute]:
        """Return the rules for a call and all nested calls, by their facts; preferably rules that specialize no size."""
        search = self._search
        search.active, search.chain, search.found = True, [], {}
        try:
            for without_guards in (no_new_guards, guards_ignored) if fakes.shape_env is not None else (nullcontext,):
                search.found = {facts: rule for facts, rule in search.found.items() if isinstance(rule, Rule)}
                try:
                    with without_guards(fakes):
                        self.run_by_route(op, args, kwargs)
                except NoRoute as failure:
                    search.found.setdefault(_facts(op, args, kwargs), failure)
                    continue
                break
            return search.found
        finally:
            search.active, search.chain, search.found = False, [], {}

    def run_by_route(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], *, may_write: bool | None = None) -> Any:
        """Return the result of a call by its first rule that reaches the set.

        Args:
            op: the overload.
            args: positional arguments.
            kwargs: keyword arguments.
            may_write: whether the call is made above functionalization.

        Raises:
            NoRoute: if no rule reaches the set.
        """
        search, facts = self._search, _facts(op, args, kwargs)
        known = search.found.get(facts)
        if isinstance(known, NoRoute):
            raise known
        tried: list[tuple[Rule, str, NoRoute | None]] = []
        depth, outer, search.lowest = len(search.chain), search.lowest, _MAX_DEPTH
        may_write = is_composite(op) if may_write is None else may_write and is_composite(op)
        try:
            for rule in self.rules[op] if known is None else (known, *self.rules[op]):
                if self._is_endless(rule, facts):
                    tried.append((rule, "leads back to itself", None))
                    continue
                search.chain.append((rule, facts))
                functional = _Functional(op, self, may_write=may_write)
                try:
                    with functional:
                        result = rule.apply(args, kwargs, fused=True)
                except NoRoute as failure:
                    tried.append((rule, "", failure.without_frames()))
                    continue
                except FAKE_TENSOR_ERRORS as error:
                    reason = self._reason_of_failure(rule, error, args, kwargs)
                    if not reason:
                        raise
                    tried.append((rule, reason, None))
                    continue
                finally:
                    del search.chain[depth:]
                if result is not NotImplemented and not _is_made_without_ops(result):
                    if search.found.get(facts) is known:  # the rule itself did not call this op with the same facts
                        search.found[facts] = rule
                    return functional.current(result)
                tried.append((rule, DECLINED, None))
            failed = NoRoute(op, tuple(tried))
            if search.lowest >= depth:  # the result does not depend on outer rules
                search.found[facts] = failed
            raise failed
        finally:
            search.lowest = min(outer, search.lowest)

    def _is_endless(self, rule: Rule, facts: Any) -> bool:
        """Return whether a rule is active for the same facts already, or the chain is too long. If so, update `_Search.lowest`."""
        chain = self._search.chain
        index = next((index for index, (other, its_facts) in enumerate(chain) if other is rule and its_facts == facts), None)
        if index is None and len(chain) < _MAX_DEPTH:
            return False
        self._search.lowest = min(self._search.lowest, index or 0)
        return True

    def _reason_of_failure(self, rule: Rule, error: Exception, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
        """Return why the next rule should be tried after an error of a rule on fake tensors; "" if the error must propagate.

        Raises:
            NoRoute: for a call that eager rejects. The op's own kernel then raises eager's error.
        """
        if needs_data(error):
            return "reads data"
        if rule.source == "user":
            return ""
        symbolic = any(isinstance(size, torch.SymInt) for one in tensors_in([*args, *kwargs.values()]) for size in one.shape)
        if not symbolic and refusal(rule.op, args, kwargs) is not None:
            raise NoRoute(rule.op) from error
        return f"raised {type(error).__name__} on fake tensors"


def _left_in_graph(op: OpOverload, failure: NoRoute) -> Any:
    """Warn that the tool leaves a call outside the set in its graph. Return NotImplemented, by which it does so."""
    lines = [f"  {tried.op}: {tried.rule}: {tried.reason}" for tried in attempts(failure)]
    warn_caller("\n".join([f"{op} stays in the graph, outside the op set. No rule reaches the set:", *lines]))
    return NotImplemented


class _PythonComposites(DispatchMode):
    """Decomposes calls of a composite's rule that the tool takes for composites, but does not decompose.

    For these ops, such as ``upsample_nearest1d``, torch has a Python composite but no C++ one: AOTAutograd asks for the C++ one.
    """

    def __init__(self, routes: _Routes) -> None:
        super().__init__()
        self._routes = routes

    def current(self, value: Any) -> Any:
        """Return a value unchanged: functionalization, which is below, replaces what rules write."""
        return value

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        result = NotImplemented
        if func in self._routes.rules and is_python_composite(func):
            result = self._routes.decomposition(func)(*args, **kwargs)
        return func(*args, **kwargs) if result is NotImplemented else result


class _Functional(DispatchMode):
    """Runs the calls of one rule without writes, which the graphs of these tools cannot contain, and without reading data.

    A write to a tensor that the rule itself made is replaced by the functional variant of the op; its result replaces the tensor
    from then on. Other writes, and calls that read data, raise NoRoute, so that the next rule is tried.

    Args:
        op: the rule's op.
        routes: in a search, the routes of the rule's calls; None if the tool runs them.
        may_write: whether the rule runs above functionalization, so that its writes need no replacement.
    """

    def __init__(self, op: OpOverload, routes: _Routes | None = None, *, may_write: bool = False) -> None:
        super().__init__()
        self._op = op
        self._routes = routes
        self._may_write = may_write
        self._fresh: dict[int, Tensor] = {}  # tensors that this rule made and that have no views
        self._written: dict[int, tuple[Tensor, Any]] = {}  # id of a tensor -> the tensor and its replacement

    def current(self, value: Any) -> Any:
        """Return the current replacement of a tensor, or of each tensor in a list."""
        found = self._written.get(id(value))
        if found is not None:
            return self.current(found[1])
        if isinstance(value, tuple):  # named tuples become plain ones, as an op returns them
            return tuple([self.current(one) for one in value])
        return [self.current(one) for one in value] if isinstance(value, list) else value

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args = [self.current(value) for value in args]
        kwargs = {name: self.current(value) for name, value in (kwargs or {}).items()}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        if not accepts_scalars(func):  # wrapped numbers of C++ composites reach Python as scalars
            args = list(scalars_to_tensors(tensor_positions(func), tuple(args), self._scalar_tensor))
        facts = facts_of(func)
        if facts.mutated and not self._may_write:
            return self._functional(func, args, kwargs)
        result = self._run(func, args, kwargs)
        if facts.returns_alias or facts.undeclared_view:
            for value in leaves_of(args):
                self._fresh.pop(id(value), None)
        else:
            self._fresh.update({id(value): value for value in tensors_in(result)})
        return result

    def _scalar_tensor(self, value: Any, dtype: torch.dtype) -> Tensor:
        with self:
            return torch.scalar_tensor(value, dtype=dtype)

    def _run(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if torch.Tag.data_dependent_output in op.tags:
            raise NoRoute(op, refused=f"the data that {op} reads")
        if self._routes is None or self._routes.is_supported(op, args, kwargs):
            return op(*args, **kwargs)
        if op not in self._routes.rules:
            raise NoRoute(op)
        return self._routes.run_by_route(op, args, kwargs, may_write=self._may_write)

    def _functional(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        variant = functional_variant(op)
        target = args[0] if args else None
        if variant is None or not facts_of(op).is_inplace or not isinstance(target, Tensor) or id(target) not in self._fresh:
            raise NoRoute(op, refused=_WRITES.format(op))
        result = self._run(variant, args, kwargs)
        if not isinstance(result, Tensor) or result.dtype != target.dtype or result.shape != target.shape:
            raise NoRoute(op, refused=_WRITES.format(op))
        self._written[id(target)] = (target, result)
        self._fresh[id(result)] = result
        return result


def _below_functionalization(value: Any) -> Any:
    return torch._from_functional_tensor(value.elem) if traced_functional(type(value)) else value


def _as_fake(value: Any, fakes: FakeTensorMode) -> Any:
    if not isinstance(value, Tensor) or isinstance(value, FakeTensor):
        return value
    return fakes.from_tensor(value.detach(), static_shapes=True)


def _is_made_without_ops(result: Any) -> bool:
    """Return whether a C++ composition of fake tensors made a tensor itself: that is a meta tensor, which tools cannot trace."""
    return any(isinstance(leaf, Tensor) and not isinstance(leaf, FakeTensor) for leaf in leaves_of(result))


def _facts(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    """Return all facts of a call on which the choice of a rule may depend: everything except data."""
    return op, torch.get_default_dtype(), _fact((args, kwargs))


def _fact(value: Any) -> Any:
    if isinstance(value, Tensor):
        bits = value.is_conj(), value.is_neg()
        strides = _fact(value.stride()) if value.layout is torch.strided else None
        return value.dtype, value.device, value.layout, _fact(value.shape), strides, bits
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        return fact_of_size(value)
    if isinstance(value, (list, tuple)):
        return tuple([_fact(one) for one in value])
    if isinstance(value, Mapping):
        return tuple([(name, _fact(value[name])) for name in sorted(value)])
    return type(value), repr(value)  # as text, because `-0.0 == 0.0` and `nan != nan`
