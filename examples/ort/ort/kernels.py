"""The kernels. Each builds the ONNX graph of one op, for float32, int32, int64 and bool.

A kernel gets `Value` objects instead of tensors, and all other arguments unchanged. It returns the op's results, in any dtype and
with any number of additional dimensions of size 1: `memory` converts and reshapes them.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from ort.graphs import Graph, O, Value

__all__ = ["DESCRIBED", "KERNELS", "REJECTS", "overload"]

Build = Callable[..., Any]
INDICES = (torch.int32, torch.int64)


def overload(name: str) -> Any:
    """Return an op by its name in the tables."""
    packet, _, overload_name = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet), overload_name or "default")


def _raise_if(wrong: Any, message: str, error: type[Exception] = RuntimeError) -> None:
    """Raise an error that eager raises, but torch's Meta kernel does not."""
    if wrong:
        raise error(message)


# -- elementwise -------------------------------------------------------------------------------------------------------


def _promoted_dtype(*operands: Any) -> torch.dtype:
    return torch.result_type(*(one.like if isinstance(one, Value) else one for one in operands))


def _numeric(dtype: torch.dtype, *operands: Any) -> list[Any]:
    return [one.numeric(dtype) if isinstance(one, Value) else one for one in operands]


def _real(function: Build) -> Build:
    return lambda x: function(x.to(x.graph.want))


def _rounding(function: Build) -> Build:
    return lambda x: function(x) if x.dtype.is_floating_point else x


def _binary(function: Build) -> Build:
    return lambda x, y: function(*_numeric(_promoted_dtype(x, y), x, y))


def _scaled(function: Build) -> Build:
    def build(x: Any, y: Any, *, alpha: Any = 1) -> Value:
        dtype = _promoted_dtype(x, y)
        kinds = [type(one) if not isinstance(one, Value) else bool if one.dtype is torch.bool else None for one in (x, y)]
        _raise_if(isinstance(alpha, bool) and dtype is not torch.bool, "Boolean alpha only supported for Boolean results.")
        _raise_if(isinstance(alpha, float) and not dtype.is_floating_point, "alpha must not be a floating point number.")
        _raise_if(function is O.Sub and bool in kinds, "Subtraction with a bool tensor is not supported.")
        left, right = _numeric(dtype, x, y)
        return function(left, right if alpha == 1 else O.Mul(right, alpha) if isinstance(right, Value) else right * alpha)

    return build


def _divided(x: Any, y: Any) -> Value:
    return O.Div(
        *_numeric(torch.get_default_dtype() if not _promoted_dtype(x, y).is_floating_point else _promoted_dtype(x, y), x, y)
    )


def _larger(function: Build) -> Build:
    """Return a builder of maximum or minimum that returns NaN if an operand is NaN."""

    def build(x: Value, y: Any) -> Value:
        found = function(x, y)
        for one in (x, y):
            if isinstance(one, Value) and one.dtype.is_floating_point:
                found = O.Where(O.IsNaN(one), one, found)
        return found

    return build


def _bits(function: Build, of_bools: Build) -> Build:
    def build(*operands: Any) -> Value:
        dtype = _promoted_dtype(*operands) if len(operands) == 2 else operands[0].dtype
        _raise_if(dtype.is_floating_point, "bitwise operators are for integers and bools")
        return of_bools(*operands) if dtype is torch.bool else function(*_numeric(dtype, *operands))

    return build


def _where(condition: Value, x: Any, y: Any) -> Value:
    """Select elements. ONNX Runtime's `Where` returns 0.0 for -0.0, so the sign is selected separately."""
    dtype, graph = _promoted_dtype(x, y), condition.graph
    given = [one.numeric(dtype) if isinstance(one, Value) else graph.constant(one, dtype) for one in (x, y)]
    found = O.Where(condition, *given)
    if not dtype.is_floating_point:
        return found
    signs = [O.Where(O.Or(O.Less(one, 0), O.Less(O.Reciprocal(one), 0)), graph.constant(-1, dtype), 1) for one in given]
    return O.Mul(O.Abs(found), O.Where(condition, *signs))


def _relu(x: Value) -> Value:
    _raise_if(x.dtype is torch.bool, "Boolean inputs not supported for relu")
    return _larger(O.Max)(x, 0)


def _bools(function: Build) -> Build:
    return lambda *operands: function(*[one.to(torch.bool) if isinstance(one, Value) else one for one in operands])


COMPARISONS: dict[str, Build] = {"ge": O.GreaterOrEqual, "gt": O.Greater, "le": O.LessOrEqual, "lt": O.Less, "eq": O.Equal}
COMPARISONS["ne"] = lambda x, y: O.Not(O.Equal(x, y))
ELEMENTWISE: dict[str, Build] = {
    **{
        name.lower(): _real(getattr(O, name))
        for name in ("Cos", "Erf", "Exp", "Log", "Reciprocal", "Sigmoid", "Sin", "Sqrt", "Tanh")
    },
    "rsqrt": _real(lambda x: O.Reciprocal(O.Sqrt(x))),
    "abs": lambda x: O.Abs(x.numeric(x.dtype)),
    "neg": lambda x: O.Neg(x.numeric(x.dtype)),
    "relu": _relu,
    **{name.lower(): _rounding(getattr(O, name)) for name in ("Ceil", "Floor", "Round")},
    "isnan": lambda x: O.IsNaN(x.to(torch.float32)),
    "gelu": lambda x, *, approximate="none": O.Gelu(x, approximate=approximate),
    "add.Tensor": _scaled(O.Add),
    "sub.Tensor": _scaled(O.Sub),
    "mul.Tensor": _binary(O.Mul),
    "div.Tensor": _divided,
    **dict.fromkeys(("pow.Tensor_Scalar", "pow.Tensor_Tensor"), _binary(O.Pow)),
    "maximum": _binary(_larger(O.Max)),
    "minimum": _binary(_larger(O.Min)),
    "where.self": _where,
    **{f"logical_{name.lower()}": _bools(getattr(O, name)) for name in ("And", "Not", "Or")},
    "bitwise_and.Tensor": _bits(O.BitwiseAnd, O.And),
    "bitwise_not": _bits(O.BitwiseNot, O.Not),
    "bitwise_or.Tensor": _bits(O.BitwiseOr, O.Or),
    **{f"{name}.{kind}": _binary(function) for name, function in COMPARISONS.items() for kind in ("Tensor", "Scalar")},
}

# -- reductions --------------------------------------------------------------------------------------------------------


def _axis(x: Value, dim: int) -> int:
    dims = max(x.dim(), 1)
    _raise_if(not -dims <= dim < dims, f"Dimension out of range: {dim} of {dims}", IndexError)
    return dim % dims


def _axes(x: Value, dim: Any) -> list[int]:
    """Return the dimensions to reduce: all if `dim` is empty."""
    return [_axis(x, one) for one in dim or range(x.dim())] if x.dim() else []


def _at_least_1d(x: Value) -> Value:
    """Return a tensor with at least one dimension."""
    return x if x.dim() else O.Reshape(x, [1])


def _sum(x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    """Sum over dimensions. Integers are multiplied by a matrix of ones, because ONNX Runtime sums them as floats, which rounds."""
    values, axes = x.numeric(x.graph.want), _axes(x, dim)
    if values.dtype.is_floating_point or not x.dim():
        return O.ReduceSum(values, axes, keepdims=int(keepdim))
    kept = [one for one in range(x.dim()) if one not in axes]
    sizes = [math.prod(x.shape[one] for one in named) for named in (kept, axes)]
    return O.MatMul(
        O.Reshape(O.Transpose(values, perm=[*kept, *axes]), sizes, allowzero=1), x.graph.constant([[1]] * sizes[1], values.dtype)
    )


def _mean(x: Value, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> Value:
    axes = _axes(x, dim)
    return O.Div(O.ReduceSum(x.to(x.graph.want), axes, keepdims=int(keepdim)), math.prod(x.shape[one] for one in axes))


def _extreme(function: Build) -> Build:
    def build(x: Value, dim: Any = (), keepdim: bool = False) -> Value:
        axes, found = _axes(x, dim), function(x, _axes(x, dim), keepdims=int(keepdim))
        if not x.dtype.is_floating_point:
            return found
        nan = O.ReduceMax(O.IsNaN(x).to(torch.int32), axes, keepdims=int(keepdim))
        return O.Where(nan.to(torch.bool), math.nan, found)

    return build


def _argmax(x: Value, dim: int | None = None, keepdim: bool = False) -> Value:
    """Return the first index of the largest element. NaN is larger than any number."""
    _raise_if(x.dtype is torch.bool, "argmax is not implemented for bools", NotImplementedError)
    values, axis = (O.Reshape(x, [-1]), 0) if dim is None or not x.dim() else (x, _axis(x, dim))
    keep = {"result": torch.int64, "axis": axis, "keepdims": int(keepdim)}
    if not x.dtype.is_floating_point:
        return O.ArgMax(values, **keep)
    nan = O.IsNaN(values).to(torch.int32)
    some = O.ReduceMax(nan, [axis], keepdims=int(keepdim)).to(torch.bool)
    return O.Where(some, O.ArgMax(nan, **keep), O.ArgMax(values, **keep))


def _over(function: Build) -> Build:
    return lambda x, dim, half_to_float: function(_at_least_1d(x), axis=_axis(x, dim))


def _log_softmax(x: Value, axis: int) -> Value:
    """Add zero times the maximum, so that the result is NaN if the maximum is infinite, as in eager."""
    return O.Add(O.LogSoftmax(x, axis=axis), O.Mul(O.ReduceMax(x, [axis], keepdims=1), 0))


def _topk(x: Value, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Sequence[Value]:
    k = k if x.dim() else 1
    return O.TopK(_at_least_1d(x), [k], result=(x.dtype, torch.int64), axis=_axis(x, dim), largest=int(largest), sorted=1)


REDUCTIONS: dict[str, Build] = {
    "amax": _extreme(O.ReduceMax),
    "amin": _extreme(O.ReduceMin),
    "argmax": _argmax,
    "cumsum": lambda x, dim, *, dtype=None: O.CumSum(
        _at_least_1d(x).to(x.graph.want), x.graph.constant(_axis(x, dim), torch.int64)
    ),
    "mean.dim": _mean,
    "sum.dim_IntList": _sum,
    "topk": _topk,
    "_log_softmax": _over(_log_softmax),
    "_softmax": _over(O.Softmax),
}

# -- products, windows, norms ------------------------------------------------------------------------------------------


def _addmm(bias: Value, x: Value, y: Value, *, beta: Any = 1, alpha: Any = 1) -> Value:
    _raise_if({bias.dtype, x.dtype, y.dtype} != {x.dtype}, "expected self, mat1 and mat2 to have the same dtype")
    if x.dtype.is_floating_point:
        return O.Gemm(x, y, bias if beta else None, alpha=float(alpha), beta=float(beta))
    product = O.Mul(O.MatMul(x, y), alpha)
    return O.Add(product, O.Mul(bias, beta)) if beta else product


def _per_dimension(dims: int, *several: Sequence[int]) -> list[list[int]]:
    """Return lists with one element for each dimension."""
    _raise_if(any(len(one) not in (1, dims) for one in several), "expected one integer for each dimension, or one for all")
    return [[*one] * dims if len(one) == 1 else [*one] for one in several]


def _convolution(
    x: Value, w: Value, bias: Value | None, stride: Any, padding: Any, dilation: Any, transposed: bool, more: Any, groups: int
) -> Value:
    channels = w.shape[0] if transposed else w.shape[1] * groups
    _raise_if(w.dim() != x.dim() or x.shape[1] != channels or w.shape[0] % groups, "input and weight do not fit")
    _raise_if(bias and bias.shape != (w.shape[1] * groups if transposed else w.shape[0],), "weight and bias do not fit")
    _raise_if(min(*padding, *more) < 0 or min(*stride, *dilation) < 1, "negative padding, or a stride that is not positive")
    stride, padding, dilation, more = _per_dimension(w.dim() - 2, stride, padding, dilation, more)
    spaces = {"strides": stride, "pads": padding * 2, "dilations": dilation, "group": groups}
    return O.ConvTranspose(x, w, bias, output_padding=more, **spaces) if transposed else O.Conv(x, w, bias, **spaces)


def _pool(x: Value, kernel: Any, stride: Any, padding: Any, ceil_mode: bool) -> tuple[Value, dict[str, Any]]:
    kernel, stride, padding = _per_dimension(2, kernel, stride or kernel, padding)
    spaces = {"kernel_shape": kernel, "strides": stride, "pads": padding * 2, "ceil_mode": int(ceil_mode)}
    return x if x.dim() == 4 else O.Unsqueeze(x, [0]), spaces


def _max_pool(x: Value, kernel: Any, stride: Any = (), padding: Any = (0,), dilation: Any = (1,), ceil_mode: bool = False) -> Any:
    """Return the maxima and their indices. ONNX Runtime ignores NaN, so a second pool finds a window's last NaN, as in eager."""
    (values, spaces), plane = _pool(x, kernel, stride, padding, ceil_mode), x.shape[-1] * x.shape[-2]
    spaces["dilations"] = _per_dimension(2, dilation)[0]
    found, index = O.MaxPool(values, result=(x.dtype, torch.int64), **spaces)
    positions = O.Reshape(O.Range(*[x.graph.constant(one, torch.int64) for one in (1, plane + 1, 1)]), [*x.shape[-2:]])
    last = O.MaxPool(O.Mul(O.IsNaN(values).to(x.dtype), positions.to(x.dtype)), **spaces)
    nan = O.Greater(last, 0)
    return O.Where(nan, math.nan, found), O.Where(nan, O.Sub(last.to(torch.int64), 1), O.Mod(index, plane))


def _avg_pool(
    x: Value, kernel: Any, stride: Any = (), padding: Any = (0,), ceil_mode: bool = False, count_include_pad: bool = True, *_: Any
) -> Value:
    values, spaces = _pool(x, kernel, stride, padding, ceil_mode)
    return O.AveragePool(values, count_include_pad=int(count_include_pad), **spaces)


def _layer_norm(x: Value, normalized_shape: Sequence[int], weight: Value | None, bias: Value | None, eps: float) -> Any:
    weight = weight or O.Expand(x.graph.constant(1, x.dtype), [*normalized_shape])
    return O.LayerNormalization(x, weight, bias, result=(x.dtype,) * 3, axis=x.dim() - len(normalized_shape), epsilon=eps)


def _batch_norm(x: Value, weight: Value | None, bias: Value | None, mean: Value, var: Value, momentum: float, eps: float) -> Any:
    weight, bias = weight or O.Expand(x.graph.constant(1, x.dtype), [*var.shape]), bias or O.Mul(var, 0)
    return O.BatchNormalization(x, weight, bias, mean, var, epsilon=eps), None, None


SPACES: dict[str, Build] = {
    "addmm": _addmm,
    **dict.fromkeys(("bmm", "mm"), O.MatMul),
    "avg_pool2d": _avg_pool,
    "convolution": _convolution,
    "max_pool2d_with_indices": _max_pool,
    "native_layer_norm": _layer_norm,
    "_native_batch_norm_legit_no_training": _batch_norm,
}

# -- memory ------------------------------------------------------------------------------------------------------------


def _index_values(index: Value) -> Value:
    """Return an index for ONNX. ONNX counts negative indices from the end and torch rejects them, so they become out of range."""
    index = _at_least_1d(index).to(torch.int64)
    return O.Where(O.Less(index, 0), 2**62, index)


def _index(x: Value, indices: Sequence[Value | None]) -> Value:
    """Move the indexed dimensions to the front, gather, and move the new dimensions to torch's position."""
    by_dim = {dim: one for dim, one in enumerate(indices) if one is not None}
    named, shape = list(by_dim), [*torch.broadcast_shapes(*(one.shape for one in by_dim.values()))]
    rank, first = len(shape), named[0] if named[-1] - named[0] < len(named) else 0
    parts = [O.Unsqueeze(O.Expand(one.to(torch.int64), shape), [rank]) for one in by_dim.values()]
    transposed = O.Transpose(x, perm=[*named, *[dim for dim in range(x.dim()) if dim not in by_dim]])
    found = O.GatherND(transposed, O.Concat(*parts, axis=rank))
    perm = [*range(rank, rank + first), *range(rank), *range(rank + first, rank + x.dim() - len(named))]
    return O.Transpose(found, perm=perm) if perm else found


def _cat(tensors: Sequence[Value], dim: int = 0) -> Value:
    kept = [one for one in tensors if one.shape != (0,)] or [*tensors]
    return O.Concat(*[one.to(one.graph.want) for one in kept], axis=_axis(kept[0], dim))


def _as_dtype(value: Any, dtype: torch.dtype) -> Any:
    """Return a scalar of a dtype. Raise as `full` does if the dtype cannot represent it."""
    return torch.full((1,), value, dtype=dtype).item()


def _pad(x: Value, pad: Sequence[int], value: Any = 0) -> Value:
    value, none = x.graph.constant(_as_dtype(value, x.dtype), x.dtype), [0] * (x.dim() - len(pad) // 2)
    return O.Pad(x, [*none, *pad[-2::-2], *none, *pad[::-2]], value) if pad else x


def _full(graph: Graph, like: torch.Tensor, size: Sequence[int], value: Any) -> Value:
    return O.Expand(graph.constant(_as_dtype(value, like.dtype), like.dtype), [*size])


def _arange(graph: Graph, like: torch.Tensor, start: Any, end: Any, step: Any = 1) -> Value:
    """Count in int64, so that rounding does not change the number of elements."""
    kind = torch.int64 if isinstance(start, int) and isinstance(step, int) and like.dtype in INDICES else torch.float64
    count = O.Range(*[graph.constant(one, torch.int64) for one in (0, like.numel(), 1)])
    return O.Add(O.Mul(count.to(kind), step), start)


MEMORY: dict[str, Build] = {
    "arange.start_step": _arange,
    "cat": _cat,
    "constant_pad_nd": _pad,
    "embedding": lambda weight, indices, *_: O.Gather(weight, _index_values(indices), axis=0),
    "full": _full,
    "gather": lambda x, dim, index, *, sparse_grad=False: O.GatherElements(
        _at_least_1d(x), _index_values(index), axis=_axis(x, dim)
    ),
    "index.Tensor": _index,
}
KERNELS: dict[str, Build] = {**ELEMENTWISE, **REDUCTIONS, **SPACES, **MEMORY}


def _described_batch_norm(x: torch.Tensor, *_: Any) -> list[torch.Tensor]:
    return [torch.empty_like(x, memory_format=suggest_memory_format(x)), x.new_empty(0), x.new_empty(0)]


def _described_convolution(x: torch.Tensor, w: torch.Tensor, *args: Any) -> torch.Tensor:
    found = torch.ops.aten.convolution.default(x, w, *args)
    if found.dim() != 3:
        return found
    return torch.empty_like(found.unsqueeze(2), memory_format=suggest_memory_format(w.unsqueeze(2))).squeeze(2)


#: Op -> description of its results, where torch's Meta kernel differs from its CPU kernel.
DESCRIBED: dict[str, Build] = {
    "_native_batch_norm_legit_no_training": _described_batch_norm,
    "convolution": _described_convolution,
    **dict.fromkeys(("logical_and", "logical_or"), torch.ops.aten.ne.Tensor),
}


def _integers(x: Any, *_: Any) -> bool:
    return not (isinstance(x, torch.Tensor) and x.dtype.is_floating_point)


#: Op -> function that returns whether its kernel rejects a call.
REJECTS: dict[str, Callable[..., bool]] = {
    **dict.fromkeys(("gelu", "max_pool2d_with_indices", "native_layer_norm", "pow.Tensor_Scalar", "pow.Tensor_Tensor"), _integers),
    "_native_batch_norm_legit_no_training": _integers,
    "arange.start_step": lambda *bounds: any(abs(one) >= 2**52 for one in bounds),
    "avg_pool2d": lambda x, *args: _integers(x) or args[5:] not in ((), (None,)),
    "convolution": lambda x, *args: _integers(x) or (args[5] and any(map(operator.ge, args[6], args[2]))),
    "index.Tensor": lambda x, indices: any(one is not None and one.dtype not in INDICES for one in indices),
    "where.self": lambda condition, *_: condition.dtype is not torch.bool,
}
