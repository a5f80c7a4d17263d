"""Programs: a graph of ops of the set as one function that XLA compiles and fuses.

`compile_graph` is the backend's `compile` hook: `eagerdecomp` hands it the decompositions that run often, and `dynamo_backend`
whole graphs. It runs the graph's kernels on traced arrays. A graph that reads data to know a size, or writes through a view, is
left alone: it runs call by call.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import torch
from torch import Tensor
from torch.fx import GraphModule, Node

from xla import calls
from xla.arrays import JAX_TYPES, Result, Unsupported, Value, cast
from xla.device_kernels import drawn_seed, seed_tensor
from xla.kernels import KERNELS, RANDOM, VIEWS

__all__ = ["compile_graph"]

aten = torch.ops.aten


def _named(table: Mapping[str, Callable[..., Any]]) -> dict[Any, Callable[..., Any]]:
    found = {}
    for name, function in table.items():
        packet, _, overload = name.partition(".")
        found[getattr(getattr(aten, packet), overload or "default")] = function
    return found


_PURE, _VIEWS, _RANDOM = _named(KERNELS), _named(VIEWS), _named(RANDOM)
_EMPTY = (aten.empty.memory_format, aten.empty_strided.default)


class _Views:
    """Which values have views, so that a write to one can be refused."""

    def __init__(self) -> None:
        self.viewed: set[int] = set()

    def made(self, arrays: Any, base: Value, like: Any) -> Any:
        self.viewed.add(id(_root(base)))
        if isinstance(arrays, list):
            return [Value(one, meta.dtype, base=base) for one, meta in zip(arrays, like, strict=True)]
        return Value(arrays, like.dtype, base=base)


def _root(value: Value) -> Value:
    while value.base is not None:
        value = value.base
    return value


def _made(found: Any, like: Any) -> Any:
    """A kernel's results as values of the dtypes and shapes that the graph says."""
    if isinstance(like, (list, tuple)):
        return [_made(one, meta) for one, meta in zip(found, like, strict=True)]
    if like is None or found is None:
        return None
    array = cast(found.array if isinstance(found, (Result, Value)) else found, like.dtype)
    shape = tuple(like.shape)
    if array.shape != shape:
        array = jnp.broadcast_to(array, shape) if array.size or 0 not in shape else jnp.zeros(shape, array.dtype)
    return Value(array, like.dtype)


def _call(node: Node, args: Sequence[Any], kwargs: dict[str, Any], views: _Views, keys: Callable[[], Any]) -> Any:
    op, like = node.target, node.meta.get("val")
    if op is operator.getitem:
        return args[0][args[1]]
    if op in _PURE:
        return _made(_PURE[op](*args, **kwargs), like)
    if op in _VIEWS:
        return views.made(_VIEWS[op](*args, **kwargs), args[0], like)
    if op in _RANDOM:
        return _made(_RANDOM[op](jax.random.key(keys().array), *args, **kwargs), like)
    if op is aten._to_copy.default:
        return _made(args[0].array, like)
    if op in _EMPTY:
        return Value(jnp.zeros(tuple(like.shape), JAX_TYPES[like.dtype]), like.dtype)
    if op is aten.copy_.default:
        if id(_root(args[0])) in views.viewed:
            raise Unsupported("a write to memory that has views, inside a compiled program")
        args[0].write(args[1].array)
        return args[0]
    raise Unsupported(f"{op} inside a compiled program")


def _interpreted(graph: GraphModule, random: int) -> Callable[..., Any]:
    """Return the graph as a function of `Value` objects: its inputs, its tensors, and a seed for each random op."""
    nodes = list(graph.graph.nodes)

    def run(*given: Any) -> list[Value]:
        values: dict[Node, Any] = {}
        supply, views = iter(given), _Views()
        inputs = [node for node in nodes if node.op == "placeholder"]
        held = [node for node in nodes if node.op == "get_attr"]
        values = {node: next(supply) for node in [*inputs, *held]}
        roots = {id(one) for one in values.values()}
        for node in nodes:
            if node.op == "call_function":
                args = torch.fx.node.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
                values[node] = _call(node, args, kwargs, views, lambda: next(supply))
            elif node.op == "output":
                found = [None if one is None else values[one] for one in _outputs(node)]
                for one in found:
                    if one is not None and id(_root(one)) in roots:
                        raise Unsupported("an argument, or a view of one, that a program returns")
                return found
        raise Unsupported("a graph without an output")

    return run


def _outputs(node: Node) -> Sequence[Any]:
    (given,) = node.args
    return given if isinstance(given, (list, tuple)) else [given]


def compile_graph(graph: GraphModule, inputs: Sequence[Any]) -> Callable[..., Any] | None:
    """Return one compiled function for a whole graph; None for a graph that has to run call by call."""
    nodes = list(graph.graph.nodes)
    if not all(isinstance(one, Tensor) for one in inputs):
        return None
    targets = [node.target for node in nodes if node.op == "call_function"]
    known = {operator.getitem, aten._to_copy.default, aten.copy_.default, *_EMPTY, *_PURE, *_VIEWS, *_RANDOM}
    if not all(target in known for target in targets) or any(
        "val" not in node.meta for node in nodes if node.op == "call_function"
    ):
        return None
    (output,) = [node for node in nodes if node.op == "output"]
    outs = tuple(None if one is None else calls.out_of(one.meta["val"]) for one in _outputs(output))
    if any(isinstance(size, torch.SymInt) for out in outs if out is not None for size in (*out[1], *out[2])):
        return None
    constants = [getattr(graph, node.target) for node in nodes if node.op == "get_attr"]
    random = sum(target in _RANDOM for target in targets)
    launch = calls.launcher(
        f"a program of {len(targets)} calls", object(), _interpreted(graph, random), lambda args, kwargs: (outs, tuple)
    )

    def run(*args: Any) -> Sequence[Any]:
        return launch(*args, *constants, *[drawn_seed() for _ in range(random)])

    try:
        # Traced, not run: the program under way has run already, and random ops have drawn.
        launch.prepare(*inputs, *constants, *[seed_tensor(0) for _ in range(random)])
    except Unsupported:
        return None
    return run
