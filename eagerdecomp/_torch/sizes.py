"""Symbolic sizes, used like Python numbers."""

from __future__ import annotations

import math
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from eagerdecomp._torch.private import private
from eagerdecomp._torch.tensors import FakeTensorMode

__all__ = ["SymbolicSizes", "fact_of_size", "guards_ignored"]


#: (torch's name of a function of sizes, the function, its number of operands)
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


class SymbolicSizes:
    """The symbolic sizes of one run on fake tensors.

    Attributes:
        mode: the mode of the fake tensors.
    """

    def __init__(self) -> None:
        from torch.fx.experimental.symbolic_shapes import ShapeEnv

        self._env = ShapeEnv()
        self.mode = FakeTensorMode(shape_env=self._env, allow_non_fake_inputs=True)

    def fake(self, tensor: torch.Tensor, dims: Sequence[int]) -> torch.Tensor:
        """Return a fake tensor like another, with symbolic sizes for these dimensions. Equal sizes share a symbol.

        Raises:
            IndexError: for a dimension that the tensor does not have.
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
        """Return the expression of a symbolic number."""
        return size.node.expr

    def fixed(self, size: Any) -> int | None:
        """Return the number to which a size was fixed during the run; None if it is still symbolic."""
        if not isinstance(size, torch.SymInt):
            return int(size)
        expression = self._env.replace(self.expression(size))
        return int(expression) if expression.is_number else None

    @staticmethod
    def node_of(size: Any, graph: torch.fx.Graph, known: dict[Any, Any], leaf: Callable[[Any], torch.fx.Node]) -> Any:
        """Return a graph node that computes a symbolic number, or the number if it was fixed.

        Args:
            size: the symbolic number.
            graph: the graph.
            known: cache of expressions -> nodes.
            leaf: returns the node of a symbol.
        """
        from torch.fx.proxy import GraphAppendingTracer, Proxy
        from torch.utils._sympy.interp import sympy_interp
        from torch.utils._sympy.reference import PythonReferenceAnalysis

        class Analysis(PythonReferenceAnalysis):
            """Operations as graph nodes. torch's own analysis inspects its operands, which nodes do not support."""

            @staticmethod
            def int_truediv(a: Any, b: Any) -> Any:
                return a / b

        def as_call(function: Callable[..., Any], count: int) -> staticmethod[..., Any]:
            return staticmethod(lambda *args: tracer.create_proxy("call_function", function, args[:count], {}))

        tracer = GraphAppendingTracer(graph)
        for name, function, count in _SIZE_FUNCTIONS:
            setattr(Analysis, name, as_call(function, count))
        expression = SymbolicSizes.expression(size)
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
                for node in graph.nodes:  # in order, so that the values of its operands are known
                    if node not in before:
                        values = [getattr(arg, "meta", {}).get("val", arg) for arg in node.args]
                        node.meta["val"] = node.target(*values)
        return known[expression]

    def fits(self, wanted: Any, found: int, symbols: dict[Any, int]) -> bool:
        """Return whether a size may replace a number or symbol of the run; `symbols` collects the value of each symbol."""
        if not isinstance(wanted, torch.SymInt):
            return bool(wanted == found)
        expression = wanted.node._expr  # the original; `expr` may refer to other sizes, if the run found them equal
        if expression.is_Symbol:
            return symbols.setdefault(expression, found) == found
        return bool(expression.subs(symbols) == found)

    def broken(self, symbols: Mapping[Any, int], names: Mapping[Any, str]) -> str:
        """Return the first condition of the run that is false for these sizes, as text; "" if all are true."""
        for guard in self._env.guards:
            if not guard.expr.subs(symbols):
                relation = guard.expr.xreplace({symbol: type(symbol)(name) for symbol, name in names.items() if symbol is not None})
                return f"{relation.lhs} {relation.rel_op} {relation.rhs}" if hasattr(relation, "rel_op") else str(relation)
        return ""

    @staticmethod
    def symbol(size: Any) -> Any:
        """Return the symbol of a size; None for a number or a larger expression."""
        expression = size.node._expr if isinstance(size, torch.SymInt) else None
        return expression if expression is not None and expression.is_Symbol else None


@contextmanager
def guards_ignored(mode: FakeTensorMode) -> Iterator[None]:
    """Return a context manager in which no guards on symbolic sizes of this mode are recorded, and no data-dependent sizes."""
    with ExitStack() as stack:
        if mode.shape_env is not None:
            stack.enter_context(mode.shape_env.suppress_guards())
            stack.enter_context(mode.shape_env.ignore_fresh_unbacked_symbols())
        yield


def fact_of_size(size: Any) -> Any:
    """Return a hashable key of a symbolic number. Numbers of different `ShapeEnv` objects have different keys."""
    env = getattr(size.node, "shape_env", None)
    return str(size), None if env is None else weakref.ref(env)
