"""Memory: tensors stay in the CPU's, which ONNX Runtime reads in place. A call is prepared once for each kind.

What a call depends on is its key: dtypes, shapes, strides, and all that is no tensor. The first call of a key asks torch's Meta
kernel for the shapes, strides and dtypes of the results (and for the errors of calls that eager refuses), and has the kernel build
a graph. Calls whose graphs are equal, such as those of other sizes, share a session.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from onnxruntime.capi.onnxruntime_pybind11_state import Fail, InvalidArgument, RuntimeException
from torch import Tensor
from torch.utils._pytree import tree_map

from ort.graphs import Graph, Value, session_of

__all__ = ["kernel", "order_of", "prepared"]

#: How many prepared calls each kernel keeps; the oldest goes first.
LIMIT = 4096
Call = Callable[..., list[Tensor]]


def order_of(tensor: Tensor) -> list[int] | None:
    """Return the dimensions in the order of memory; None where that is their own order, or where memory has gaps or overlaps."""
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
    made = torch.from_numpy(next(arrays))
    return made.as_strided(shape, strides) if dense else torch.empty_strided(shape, strides, dtype=dtype).copy_(made.view(shape))


def prepared(graph: Graph, orders: Sequence[Any], results: Sequence[Value | None], likes: Sequence[Tensor], threads: int) -> Call:
    """Return a call of a graph whose first inputs are tensors, in memory of these orders, and whose results are like `likes`."""
    ends, layouts = [], []
    for value, like in zip(results, likes, strict=True):
        order = order_of(like)
        given = value is not None and like.numel() > 0
        layouts.append((like.shape, like.stride(), like.dtype, (order is not None or like.is_contiguous()) if given else None))
        if given:
            op, attributes = ("Identity", {}) if order is None else ("Transpose", {"perm": order})
            ends.append(graph.add(op, [value.to(like.dtype)], like.dtype, None, attributes))
    names = [one.name for one in graph.inputs if one.name not in graph.feeds]
    inputs, feeds, outputs = list(zip(names, orders, strict=True)), graph.feeds, [one.name for one in ends]
    session = session_of(graph.finish(ends), threads) if ends else None

    def call(*tensors: Tensor) -> list[Tensor]:
        given = {name: _array(tensor, order) for (name, order), tensor in zip(inputs, tensors, strict=True)}
        try:
            arrays = iter(session.run(outputs, {**given, **feeds}) if session else ())
        except (Fail, InvalidArgument, RuntimeException) as error:
            raise IndexError(f"ONNX Runtime refuses the call: {error}") from None
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
    """Return the kernel of an op, from what builds its graph of `Value` objects, and what describes its results by Meta tensors."""
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
        return prepared(graph, orders, results, likes, 1), isinstance(found, Tensor)

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
