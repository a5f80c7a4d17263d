"""ONNX graphs while kernels build them.

``O.Softmax(x, axis=1)`` adds a node to the graph of `x`, and returns its result. Python numbers among the inputs become constants
of the dtype of the first value, lists become int64 vectors.
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
    """A tensor of a graph. `like` has its shape and strides and no data; inside a kernel there is none."""

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

    def number(self, dtype: torch.dtype) -> Value:
        """Return it converted to a dtype, for arithmetic: ONNX computes with no bools."""
        found = self.to(dtype)
        return found.to(torch.int32) if dtype is torch.bool else found


class Graph:
    """A graph under way.

    Attributes:
        feeds: constants that are handed over at each call, so that a new number needs no new session. None where `fixed`.
        want: the dtype of the result of the kernel that is building.
    """

    def __init__(self, want: torch.dtype, fixed: bool = False) -> None:
        self.want, self.fixed = want, fixed
        self.nodes: list[NodeProto] = []
        self.inputs: list[Any] = []
        self.held: list[TensorProto] = []
        self.feeds: dict[str, np.ndarray[Any, Any]] = {}
        self._made = 0

    def _value(self, dtype: torch.dtype, like: Any = None) -> Value:
        self._made += 1
        return Value(self, f"v{self._made}", dtype, like)

    def input(self, like: Tensor, order: Sequence[int] | None) -> Value:
        """Return an input. Memory that has the dimensions in another order is read in that order, and transposed here."""
        found = self._value(like.dtype, like)
        self.inputs.append(helper.make_tensor_value_info(found.name, CODES[like.dtype], None))
        if order is None:
            return found
        turned = O.Transpose(found, perm=[order.index(dim) for dim in range(len(order))])
        return Value(self, turned.name, like.dtype, like)

    def hold(self, tensor: Tensor) -> Value:
        found = self._value(tensor.dtype, tensor)
        self.held.append(numpy_helper.from_array(tensor.detach().resolve_neg().contiguous().numpy(), found.name))
        return found

    def constant(self, value: Any, dtype: torch.dtype) -> Value:
        tensor = torch.tensor(value, dtype=dtype)
        if self.fixed:
            return self.hold(tensor)
        found = self.input(tensor, None)
        self.feeds[found.name] = tensor.numpy()
        return found

    def add(self, op: str, inputs: Sequence[Any], dtype: torch.dtype, result: Any, attributes: dict[str, Any]) -> Any:
        """Add a node. `result` is the dtype of its result, or those of its results."""
        result = result or (torch.bool if op in BOOLEAN else dtype)
        names = []
        while inputs[-1] is None:  # an absent last input that is named crashes some of ONNX Runtime's kernels
            inputs = inputs[:-1]
        for one in inputs:
            if one is not None and not isinstance(one, Value):
                one = self.constant(one, torch.int64 if isinstance(one, (list, tuple)) else dtype)
            names.append("" if one is None else one.name)
        made = [self._value(one) for one in (result if isinstance(result, tuple) else (result,))]
        self.nodes.append(helper.make_node(op, names, [one.name for one in made], **attributes))
        return made if isinstance(result, tuple) else made[0]

    def finish(self, results: Sequence[Value]) -> bytes:
        given = [helper.make_tensor_value_info(one.name, CODES[one.dtype], None) for one in results]
        graph = helper.make_graph(self.nodes, "kernel", self.inputs, given, self.held)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)], ir_version=10)
        return bytes(made.SerializeToString())


class _Ops:
    """ONNX's operators, by name."""

    def __getattr__(self, op: str) -> Callable[..., Any]:
        def add(*inputs: Any, result: Any = None, **attributes: Any) -> Any:
            first = next(one for one in inputs[op == "Where" :] if isinstance(one, Value))
            return first.graph.add(op, inputs, first.dtype, result, attributes)

        setattr(self, op, add)
        return add


O = _Ops()  # noqa: E741 - short, for it stands in nearly every line of a kernel


@functools.lru_cache(maxsize=4096)
def session_of(model: bytes, threads: int) -> onnxruntime.InferenceSession:
    """Return a session for a graph: the same one for the same graph."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 4
    return onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
