"""Build ONNX graphs.

``O.Softmax(x, axis=1)`` adds a node to the graph of `x`, and returns its result. Python scalars among the inputs become constants
of the dtype of the first value, and lists become int64 vectors.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import onnxruntime
import torch
from onnx import NodeProto, TensorProto, helper, numpy_helper
from torch import Tensor

__all__ = ["CODES", "Graph", "O", "Value", "session_of"]

CODES = {torch.bool: TensorProto.BOOL, torch.int32: TensorProto.INT32, torch.int64: TensorProto.INT64}
CODES |= {torch.float32: TensorProto.FLOAT, torch.float64: TensorProto.DOUBLE}
BOOLEAN = {"Equal", "Greater", "Less", "GreaterOrEqual", "LessOrEqual", "IsNaN", "And", "Or", "Not"}


class Value:
    """A tensor of a graph.

    Attributes:
        graph: the graph.
        name: its name in the graph.
        dtype: its dtype.
        like: a Meta tensor with its shape and strides; None for intermediate values of a kernel.
    """

    __slots__ = ("dtype", "graph", "like", "name")

    def __init__(self, graph: Graph, name: str, dtype: torch.dtype, like: Any = None) -> None:
        self.graph, self.name, self.dtype, self.like = graph, name, dtype, like

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(self.like.shape)

    def dim(self) -> int:
        return len(self.shape)

    def to(self, dtype: torch.dtype) -> Value:
        return self if dtype is self.dtype else O.Cast(self, result=dtype, to=CODES[dtype])

    def numeric(self, dtype: torch.dtype) -> Value:
        """Return it converted to a dtype for arithmetic. Bools become int32, because ONNX has no arithmetic of bools."""
        converted = self.to(dtype)
        return converted.to(torch.int32) if dtype is torch.bool else converted


class Graph:
    """A graph that is being built.

    Attributes:
        want: the dtype of the result of the current kernel.
        fixed: whether constants are stored in the graph.
        nodes: its nodes.
        inputs: its inputs.
        constants: constants that are stored in the graph.
        feeds: constants that are passed at each call, so that calls with other scalars share a session. Empty if `fixed`.
    """

    def __init__(self, want: torch.dtype, fixed: bool = False) -> None:
        self.want, self.fixed = want, fixed
        self.nodes: list[NodeProto] = []
        self.inputs: list[Any] = []
        self.constants: list[TensorProto] = []
        self.feeds: dict[str, np.ndarray[Any, Any]] = {}
        self._count = 0

    def _value(self, dtype: torch.dtype, like: Any = None) -> Value:
        self._count += 1
        return Value(self, f"v{self._count}", dtype, like)

    def input(self, like: Tensor, order: Sequence[int] | None) -> Value:
        """Add an input. If memory has the dimensions in another order, the input has that order and the graph transposes it."""
        found = self._value(like.dtype, like)
        self.inputs.append(helper.make_tensor_value_info(found.name, CODES[like.dtype], None))
        if order is None:
            return found
        transposed = O.Transpose(found, perm=[order.index(dim) for dim in range(len(order))])
        return Value(self, transposed.name, like.dtype, like)

    def store(self, tensor: Tensor) -> Value:
        """Store a tensor in the graph as a constant."""
        found = self._value(tensor.dtype, tensor)
        self.constants.append(numpy_helper.from_array(tensor.detach().resolve_neg().contiguous().numpy(), found.name))
        return found

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        """Return a constant of a dtype."""
        tensor = torch.tensor(value, dtype=dtype)
        if self.fixed:
            return self.store(tensor)
        found = self.input(tensor, None)
        self.feeds[found.name] = tensor.numpy()
        return found

    def add(self, op: str, inputs: Sequence[Any], dtype: torch.dtype, result: Any, attributes: dict[str, Any]) -> Any:
        """Add a node and return its result. `result` is its dtype, or a tuple of the dtypes of several results."""
        result = result or (torch.bool if op in BOOLEAN else dtype)
        names = []
        while inputs[-1] is None:  # some kernels of ONNX Runtime crash if the last input has an empty name
            inputs = inputs[:-1]
        for one in inputs:
            if one is not None and not isinstance(one, Value):
                one = self.constant(one, torch.int64 if isinstance(one, (list, tuple)) else dtype)
            names.append("" if one is None else one.name)
        results = [self._value(one) for one in (result if isinstance(result, tuple) else (result,))]
        self.nodes.append(helper.make_node(op, names, [one.name for one in results], **attributes))
        return results if isinstance(result, tuple) else results[0]

    def finish(self, results: Sequence[Value]) -> bytes:
        """Return the serialized model that returns these values."""
        outputs = [helper.make_tensor_value_info(one.name, CODES[one.dtype], None) for one in results]
        graph = helper.make_graph(self.nodes, "kernel", self.inputs, outputs, self.constants)
        model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        return bytes(model.SerializeToString())


class _Ops:
    """ONNX's operators as methods."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def add(*inputs: Any, result: Any = None, **attributes: Any) -> Any:
            first = next(one for one in inputs[op == "Where" :] if isinstance(one, Value))
            return first.graph.add(op, inputs, first.dtype, result, attributes)

        setattr(self, op, add)
        return add


O = _Ops()  # noqa: E741 - short, because kernels use it in nearly every line


@functools.lru_cache(maxsize=4096)
def session_of(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    """Return the session of a serialized model. Equal models share a session."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
