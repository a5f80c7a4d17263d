"""Compile a graph of ops of the set to one ONNX graph, which ONNX Runtime optimizes and runs as one session."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor
from torch.fx import GraphModule, Node
from torch.fx.node import map_arg
from torch.utils._pytree import tree_leaves, tree_unflatten

import eagerdecomp as ed
from ort.graphs import Graph, O, Value
from ort.kernels import KERNELS, overload
from ort.memory import order_of, prepare_call

__all__ = ["OPS", "compile_graph", "exported"]


def _slice(x: Value, dim: int = 0, start: int | None = None, end: int | None = None, step: int = 1) -> Value:
    first, last, by = slice(start, end, step).indices(x.shape[dim])
    return O.Slice(x, [first], [last], [dim % x.dim()], [by])


#: Views and copies. torch runs them if ops run one by one. In a compiled graph they are nodes, reshaped to the shape of the result.
VIEWS: dict[str, Callable[..., Any]] = {
    "_to_copy": lambda x, *, dtype=None, **_: x.to(dtype or x.dtype),
    "expand": lambda x, size, **_: O.Expand(x, [1 if one == -1 else one for one in size]),
    "permute": lambda x, dims: O.Transpose(x, perm=[one % x.dim() for one in dims]),
    "scalar_tensor": lambda graph, like, value: graph.constant(value, like.dtype),
    "select.int": lambda x, dim, index: O.Gather(x, x.graph.constant(index, torch.int64), axis=dim),
    "slice.Tensor": _slice,
    "split_with_sizes": lambda x, sizes, dim=0: O.Split(x, [*sizes], result=(x.dtype,) * len(sizes), axis=dim),
    **dict.fromkeys(("alias", "clone", "detach", "squeeze.dims", "unsqueeze", "view"), lambda x, *_, **__: x),
}
TABLE = {overload(name): build for name, build in {**KERNELS, **VIEWS}.items()}
OPS = ed.infra() | [*TABLE, torch.ops.aten.as_strided.default]
RESHAPED = {torch.ops.aten.sum.dim_IntList, *map(overload, VIEWS)}


def _shaped(value: Any, like: Any, reshape: bool) -> Any:
    """Return a kernel's result in the dtype of `like`, reshaped if `reshape`."""
    if isinstance(like, (list, tuple)):
        return [_shaped(one, other, reshape) for one, other in zip(value, like, strict=True)]
    if value is None:
        return None
    value = value.to(like.dtype)
    value = O.Reshape(value, [*like.shape], allowzero=1) if reshape else value
    return Value(value.graph, value.name, like.dtype, like)


def _add(graph: Graph, node: Node, args: Any, kwargs: Any) -> Any:
    if node.target is operator.getitem:
        return args[0][args[1]]
    like = node.meta["val"]
    first = like[0] if isinstance(like, (list, tuple)) else like
    graph.want = first.dtype
    tensors = [one for one in tree_leaves((args, kwargs)) if isinstance(one, Value)]
    found = TABLE[node.target](*args, **kwargs) if tensors else TABLE[node.target](graph, first, *args)
    return _shaped(found, like, node.target in RESHAPED or not all(one.shape for one in tensors))


def compile_graph(module: GraphModule, inputs: Sequence[Any], constants: Mapping[str, Tensor] = MappingProxyType({})) -> Any:
    """Compile a graph to one session, and return it as a function; None if its ops must run one by one.

    Args:
        module: the graph.
        inputs: example inputs.
        constants: placeholder name -> tensor that is stored in the graph.
    """
    nodes = list(module.graph.nodes)
    called = [node.target for node in nodes if node.op == "call_function" and node.target is not operator.getitem]
    if not all(isinstance(one, Tensor) for one in inputs) or not TABLE.keys() >= set(called):
        return None
    graph, orders, values = Graph(torch.float32, fixed=True), [], {}
    for node in nodes:
        if node.op == "get_attr" or node.name in constants:
            values[node] = graph.store(getattr(module, node.target) if node.op == "get_attr" else constants[node.name])
        elif node.op == "placeholder":
            orders.append(order_of(node.meta["val"]))
            values[node] = graph.input(node.meta["val"], orders[-1])
        elif node.op == "call_function":
            values[node] = _add(graph, node, *map_arg((node.args, node.kwargs), values.__getitem__))
    ends = [values[one] for one in nodes[-1].args[0]]
    return prepare_call(graph, orders, ends, [one.like for one in ends], torch.get_num_threads())


def exported(model: torch.nn.Module, *args: Any) -> Callable[..., Any]:
    """Compile a model to one session, for arguments of these shapes. Its current weights are stored in the session as constants."""
    program = torch.export.export(model, args).run_decompositions(ed.decompositions(OPS))
    signature, weights = program.graph_signature, {**program.state_dict, **program.constants}
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers, **signature.inputs_to_lifted_tensor_constants}
    call = compile_graph(program.graph_module, [], {node: weights[name] for node, name in names.items()})
    if call is None:
        raise NotImplementedError(
            f"not all ops of the model have kernels: {sorted({str(node.target) for node in program.graph.nodes})}"
        )
    return lambda *args: tree_unflatten(call(*tree_leaves(args)), program.call_spec.out_spec)
