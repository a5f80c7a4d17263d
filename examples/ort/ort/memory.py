"""Run the kernels. Tensors are in CPU memory, which ONNX Runtime reads in place.

A call is prepared once for each key: dtypes, shapes, strides, and all arguments that are not tensors. For a new key, torch's Meta
kernel computes the shapes, strides and dtypes of the results, and raises for calls that eager rejects. Then the kernel builds a
graph. Equal graphs (for example of calls with other sizes) share a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException
from torch import Tensor
from torch.utils._pytree import tree_map

from ort.graphs import Graph, Value, session_of

__all__ = ["kernel", "order_of", "prepare_call"]

#: Most prepared calls of a kernel. The oldest is dropped first.
LIMIT = 4096
Call = Callable[..., list[Tensor]]


def order_of(tensor: Tensor) -> list[int] | None:
    """Return the dimensions in the order of memory; None if that is contiguous order, or if memory has gaps or overlaps."""
    shape, strides = tensor.shape, tensor.stride()
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim] if shape[dim] > 1 else -float("inf"))
    step = 1
    for dim in reversed(order):
        if shape[dim] > 1 and strides[dim] != step:
            return None
        step *= shape[dim]
    real = [dim for dim in order if shape[dim] > 1]
    return None if real == sorted(real) else order


def _array(tensor: Tensor, order: Sequence[int] | None) -> Any:
    tensor = tensor.detach().resolve_neg()
    return (tensor if order is None else tensor.permute(order)).numpy()


def _tensor(arrays: Iterator[Any], shape: Any, strides: Any, dtype: torch.dtype, dense: bool | None) -> Tensor:
    if dense is None:
        return torch.empty_strided(shape, strides, dtype=dtype)
    result = torch.from_numpy(next(arrays))
    return (
        result.as_strided(shape, strides) if dense else torch.empty_strided(shape, strides, dtype=dtype).copy_(result.view(shape))
    )


def prepare_call(
    graph: Graph, orders: Sequence[Any], results: Sequence[Value | None], likes: Sequence[Tensor], threads: int
) -> Call:
    """Return a function that runs a graph.

    Args:
        graph: the graph. Its first inputs are the tensors of the call.
        orders: for each tensor, its order of dimensions in memory (`order_of`).
        results: the results; None for an empty one.
        likes: tensors with the shapes, strides and dtypes of the results.
        threads: number of threads of the session.
    """
    ends, layouts = [], []
    for value, like in zip(results, likes, strict=True):
        order = order_of(like)
        computed = value is not None and like.numel() > 0
        dense = (order is not None or like.is_contiguous()) if computed else None
        layouts.append((like.shape, like.stride(), like.dtype, dense))
        if computed:
            op, attributes = ("Identity", {}) if order is None else ("Transpose", {"perm": order})
            ends.append(graph.add(op, [value.to(like.dtype)], like.dtype, None, attributes))
    names = [one.name for one in graph.inputs if one.name not in graph.feeds]
    inputs, feeds, outputs = list(zip(names, orders, strict=True)), graph.feeds, [one.name for one in ends]
    session = session_of(graph.finish(ends), threads) if ends else None

    def call(*tensors: Tensor) -> list[Tensor]:
        arguments = {name: _array(tensor, order) for (name, order), tensor in zip(inputs, tensors, strict=True)}
        try:
            arrays = iter(session.run(outputs, {**arguments, **feeds}) if session else ())
        except (Fail, InvalidArgument, RuntimeException) as error:
            raise IndexError(f"ONNX Runtime rejects the call: {error}") from None
        return [_tensor(arrays, *layout) for layout in layouts]

    return call


def _key(value: Any, tensors: list[Tensor]) -> Any:
    if isinstance(value, Tensor):
        tensors.append(value)
        return value.dtype, value.shape, value.stride()
    if isinstance(value, (list, tuple)):
        return tuple([_key(one, tensors) for one in value])
    return (value.__class__, repr(value) if value.__class__ is float else value)


def _meta(value: Any) -> Any:
    if isinstance(value, torch.device):
        return torch.device("meta")
    if not isinstance(value, Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="meta")


def kernel(op: Any, build: Callable[..., Any], describe: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel of an op.

    Args:
        op: the overload.
        build: builds the graph of a call, with `Value` objects instead of tensors.
        describe: returns the results of a call as Meta tensors.
    """
    calls: dict[Any, tuple[Call, bool]] = {}

    def prepare(args: Any, kwargs: Any) -> tuple[Call, bool]:
        args, kwargs = tree_map(_meta, (args, kwargs))
        found = describe(*args, **kwargs)
        likes = [found] if isinstance(found, Tensor) else list(found)
        graph, orders = Graph(likes[0].dtype), []

        def value(one: Any) -> Any:
            if not isinstance(one, Tensor):
                return one
            orders.append(order_of(one))
            return graph.input(one, orders[-1])

        args, kwargs = tree_map(value, (args, kwargs))
        results = build(*args, **kwargs) if orders else build(graph, likes[0], *args)
        results = results if isinstance(results, (list, tuple)) else [results]
        return prepare_call(graph, orders, results, likes, 1), isinstance(found, Tensor)

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors: list[Tensor] = []
        key = (torch.get_default_dtype(), _key(args, tensors), tuple([(name, _key(one, tensors)) for name, one in kwargs.items()]))
        found = calls.get(key)
        if found is None:
            if len(calls) >= LIMIT:
                calls.pop(next(iter(calls)), None)
            found = calls[key] = prepare(args, kwargs)
        call, alone = found
        return call(*tensors)[0] if alone else tuple(call(*tensors))

    return run
