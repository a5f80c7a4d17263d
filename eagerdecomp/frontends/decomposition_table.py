"""The rules as a decomposition table for PyTorch's own tools: ``torch.export``, ``make_fx``, AOTAutograd."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from typing import Any

from torch import Tensor

from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload, op_names, overload
from eagerdecomp._torch.sizes import needs_data
from eagerdecomp.eager.observe import leaves_of
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, resolve_ops
from eagerdecomp.ops.schema import facts_of, functional_twin, is_composite
from eagerdecomp.planner.planner import Planner, planner_of
from eagerdecomp.rules.rule import NoRoute, Rule, index_rules

__all__ = ["decompositions"]


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
        ops: the ops to decompose, all others are left out; by default every registered op that is not in the set.
        rules: your own decompositions (`register_decomposition`), each before all others of its op.

    Returns:
        For each op with a rule, a function of its arguments. It returns ``NotImplemented`` for a call that no rule covers, or whose
        rules ask for sizes that only data decide: the tool keeps such a call as it is.

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
    return {op: _decomposition(op, its_rules) for op, its_rules in found if its_rules}


def _rules_of(planner: Planner, op: OpOverload) -> Sequence[Rule]:
    """The rules of an op; none for an op of the set, and for plumbing. C++ compositions among them: a tool that is given a table
    keeps the composite ops that it does not hold."""
    decision = planner.decide(op)
    if decision.plumbing or decision.kernel is not None or facts_of(op).mutated:
        return ()  # functionalization has removed ops that write
    return decision.rules


def _decomposition(op: OpOverload, rules: Sequence[Rule]) -> Callable[..., Any]:
    """A function that runs the first rule which covers a call. Tools decompose composite ops above functionalization, which removes
    writes; any other op below it."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        for rule in rules:
            functional = _Functional(op)
            try:
                with nullcontext() if composite else functional:
                    result = rule.apply(args, kwargs, fused=True)
            except NoRoute:
                continue
            except Exception as error:
                if not needs_data(error):
                    raise
                continue
            if result is not NotImplemented:
                return functional.current(result)
        return NotImplemented

    composite = is_composite(op)
    decompose.__name__ = decompose.__qualname__ = f"decompose_{op._schema.name.rpartition('::')[2]}"
    return decompose


class _Functional(DispatchMode):
    """Runs the calls of one rule without writes, which graphs of these tools cannot hold.

    A write to a tensor that the rule itself made becomes the functional variant of the op, whose result stands for the tensor
    from then on. Any other write ends in NoRoute, so that the next rule is tried.
    """

    def __init__(self, op: OpOverload) -> None:
        super().__init__()
        self._op = op
        self._fresh: dict[int, Tensor] = {}  # made by this rule, and not viewed
        self._written: dict[int, tuple[Tensor, Any]] = {}  # tensor -> what stands for it

    def current(self, value: Any) -> Any:
        """The present replacement of a tensor, in lists too."""
        found = self._written.get(id(value))
        if found is not None:
            return self.current(found[1])
        return type(value)([self.current(one) for one in value]) if isinstance(value, (list, tuple)) else value

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        args = [self.current(value) for value in args]
        kwargs = {name: self.current(value) for name, value in (kwargs or {}).items()}
        if not isinstance(func, OpOverload):
            return func(*args, **kwargs)
        facts = facts_of(func)
        if facts.mutated:
            return self._functional(func, args, kwargs)
        result = func(*args, **kwargs)
        if facts.returns_alias or facts.undeclared_view:
            for value in leaves_of(args):
                self._fresh.pop(id(value), None)
        else:
            self._fresh.update({id(value): value for value in leaves_of(result) if isinstance(value, Tensor)})
        return result

    def _functional(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        twin = functional_twin(op)
        target = args[0] if args else None
        if twin is None or not facts_of(op).is_inplace or not isinstance(target, Tensor) or id(target) not in self._fresh:
            raise NoRoute(self._op)
        result = twin(*args, **kwargs)
        if not isinstance(result, Tensor) or result.dtype != target.dtype or result.shape != target.shape:
            raise NoRoute(self._op)
        self._written[id(target)] = (target, result)
        self._fresh[id(result)] = result
        return result
