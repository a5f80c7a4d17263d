"""Symbolic sizes that work where Python numbers do."""

from __future__ import annotations

import math
import sys
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from eagerdecomp._torch.private import private
from eagerdecomp._torch.tensors import FakeTensorMode

__all__ = ["Sizes", "fact_of_size", "guards_ignored", "needs_data"]


#: What torch calls a function of sizes in its analysis, the function, and how many of the operands it takes.
_SIZE_FUNCTIONS: tuple[tuple[str, Callable[..., Any], int], ...] = (
    ("to_dtype", torch.sym_float, 1),
    ("minimum", torch.sym_min, 2),
    ("maximum", torch.sym_max, 2),
    ("floor_to_int", math.floor, 1),
    ("ceil_to_int", math.ceil, 1),
    ("trunc_to_int", math.trunc, 1),
    ("round_to_int", round, 1),
    ("sqrt", private("torch._sym_sqrt", "symbolic sizes"), 1),
)


class Sizes:
    """Sizes of one run on fake tensors that stay symbols.

    Attributes:
        mode: the fake tensors' mode.
    """

    def __init__(self) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)

    def fake(self, tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """A fake tensor like another, these dimensions symbols; equal sizes share one.

        Raises:
            IndexError: for a dimension that it has not.
        """
        from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

        if any(not -tensor.dim() <= dim < tensor.dim() for dim in dims):
            raise IndexError(f"{tensor.dim()} dimensions")
        wanted = {dim % tensor.dim() for dim in dims}
        kinds = [DimDynamic.DUCK if dim in wanted else DimDynamic.STATIC for dim in range(tensor.dim())]
        context: Any = StatelessSymbolicContext(dynamic_sizes=kinds)
        return self.mode.from_tensor(tensor, symbolic_context=context)

    @staticmethod
    def expression(size: Any) -> Any:
        """A symbolic number's expression."""
        return size.node.expr

    def fixed(self, size: Any) -> int | None:
        """Return the number that a size had to become; None where it is still open."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = self._env.replace(self.expression(size))
        return int(expression) if expression.is_number else None

    @staticmethod
    def node_of(size: Any, graph: torch.fx.Graph, known: dict[Any, Any], leaf: Callable[[Any], torch.fx.Node]) -> Any:
        """A node that computes a symbolic number, or the number it has become. `known` keeps the nodes of expressions; `leaf` makes
        that of a symbol."""
        from torch.fx.proxy import GraphAppendingTracer, Proxy
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        class Analysis(PythonReferenceAnalysis):
            """Calls as nodes, where torch's own ask what their operands are, which a gradient's pass leaves unanswered."""

            @staticmethod
            def int_truediv(a: Any, b: Any) -> Any:
                return a / b

        def as_call(function: Callable[..., Any], count: int) -> staticmethod[..., Any]:
            return staticmethod(lambda *args: tracer.create_proxy("call_function", function, args[:count], {}))

        tracer = GraphAppendingTracer(graph)
        for name, function, count in _SIZE_FUNCTIONS:
            setattr(Analysis, name, as_call(function, count))
        expression = Sizes.expression(size)
        if expression.is_number:
            return int(expression) if isinstance(size, torch.SymInt) else float(expression)
        if expression not in known:
            for symbol in sorted(expression.free_symbols, key=str):
                if symbol not in known:
                    known[symbol] = leaf(symbol)
            proxies = {symbol: Proxy(known[symbol], tracer) for symbol in expression.free_symbols}
            if expression not in known:
                before = set(graph.nodes)
                known[expression] = sympy_interp(Analysis, proxies, expression).node
                for node in graph.nodes:  # in order: the values of what it reads are known
                    if node not in before:
                        values = [getattr(arg, "meta", {}).get("val", arg) for arg in node.args]
                        node.meta["val"] = node.target(*values)
        return known[expression]

    def fits(self, wanted: Any, found: int, symbols: dict[Any, int]) -> bool:
        """Return whether a size may stand where a number or a symbol was; `symbols` collects what each symbol is."""
        if not isinstance(wanted, torch.SymInt):
            return bool(wanted == found)
        expression = wanted.node._expr  # as it was made: `expr` is in terms of other sizes, once the run tied it to them
        if expression.is_Symbol:
            return symbols.setdefault(expression, found) == found
        return bool(expression.subs(symbols) == found)

    def broken(self, symbols: Mapping[Any, int], names: Mapping[Any, str]) -> str:
        """Return the condition of the run that does not hold for these sizes, named; "" if all hold."""
        for guard in self._env.guards:
            if not guard.expr.subs(symbols):
                relation = guard.expr.xreplace({symbol: type(symbol)(name) for symbol, name in names.items() if symbol is not None})
                return f"{relation.lhs} {relation.rel_op} {relation.rhs}" if hasattr(relation, "rel_op") else str(relation)
        return ""

    @staticmethod
    def symbol(size: Any) -> Any:
        """Return the symbol that a size was made; None for a number or an expression."""
        expression = size.node._expr if isinstance(size, torch.SymInt) else None
        return expression if expression is not None and expression.is_Symbol else None


def needs_data(error: Exception) -> bool:
    """Return whether an error says that code asked for a size which only data decide, as in a program that is exported."""
    module = sys.modules.get("torch.fx.experimental.symbolic_shapes")  # loaded where there are such sizes
    return module is not None and isinstance(error, module.GuardOnDataDependentSymNode)


@contextmanager
def guards_ignored(mode: FakeTensorMode) -> Iterator[None]:
    """Keep no guard of what code asks of symbolic sizes of this mode, and no size that follows from data, while it is held."""
    with ExitStack() as stack:
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.suppress_guards())
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        yield


def fact_of_size(size: Any) -> Any:
    """Return the identity of a symbolic number, of other analyses too; hashable, unlike the number."""
    env = getattr(size.node, "shape_env", None)
    return str(size), None if env is None else weakref.ref(env)
