"""The table of elementwise ops, and kernels that the template stores in other shapes: copies, factories, indices, `cat`."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import iterator_strides
from eagerdecomp.eager.strides import in_order, is_dense, like_strides, memory_order
from on_triton.elementwise import Index, empty, run, store

__all__ = ["KERNELS", "POINTWISE", "arange", "clone", "convert", "copy_", "full", "not_zero"]

aten = torch.ops.aten

#: op -> (how its dtypes are found, its expression). ``same``: the dtype that the operands promote to. ``number``: the same, not
#: bool. ``whole``: the same, integers and bools. ``real``: integers are computed in the default dtype. ``test``: of the promoted
#: dtype, to bool.
POINTWISE = {
    "abs": ("number", "tl.abs(a)"),
    "bitwise_not": ("whole", "~a"),
    "ceil": ("number", "tl.ceil(a)"),
    "cos": ("real", "tl.cos(a)"),
    "erf": ("real", "tl.erf(a)"),
    "exp": ("real", "tl.exp(a)"),
    "expm1": ("real", "exp_minus_1(a)"),
    "floor": ("number", "tl.floor(a)"),
    "isnan": ("test", "a != a"),
    "log": ("real", "tl.log(a)"),
    "log1p": ("real", "log_plus_1(a)"),
    "logical_not": ("test", "a == 0"),
    "neg": ("number", "-a"),
    "reciprocal": ("real", "inverse(a)"),
    "relu": ("number", "tl.where(a <= 0, 0, a)"),
    "rsqrt": ("real", "inverse(root(a))"),
    "sigmoid": ("real", "logistic(a)"),
    "sin": ("real", "tl.sin(a)"),
    "sqrt": ("real", "root(a)"),
    "tanh": ("real", "hyperbolic_tangent(a)"),
    "add.Tensor": ("same", "a + b * c"),
    "bitwise_and.Tensor": ("whole", "a & b"),
    "bitwise_or.Tensor": ("whole", "a | b"),
    "bitwise_xor.Tensor": ("whole", "a ^ b"),
    "div.Tensor": ("real", "divide(a, b)"),
    "eq.Tensor": ("test", "a == b"),
    "fmod.Tensor": ("number", "modulo(a, b, mask)"),
    "ge.Tensor": ("test", "a >= b"),
    "gt.Tensor": ("test", "a > b"),
    "le.Tensor": ("test", "a <= b"),
    "logical_and": ("test", "(a != 0) & (b != 0)"),
    "logical_or": ("test", "(a != 0) | (b != 0)"),
    "lt.Tensor": ("test", "a < b"),
    "maximum": ("same", "maximum(a, b)"),
    "minimum": ("same", "minimum(a, b)"),
    "mul.Tensor": ("same", "a * b"),
    "ne.Tensor": ("test", "a != b"),
    "sub.Tensor": ("number", "a - b * c"),
}


def promoted(operands: Sequence[Any]) -> torch.dtype:
    """Return what operands promote to. `torch.result_type` is not used: it makes tensors of numbers."""
    tensors = [one for one in operands if isinstance(one, Tensor)]
    ranked = [
        functools.reduce(torch.promote_types, (one.dtype for one in group))
        for group in ([one for one in tensors if one.dim()], [one for one in tensors if not one.dim()])
        if group
    ]
    ranked += [_dtype_of(one) for one in operands if not isinstance(one, Tensor)]
    found = ranked[0]
    for dtype in ranked[1:]:  # of a lower rank: it counts if it is of a higher kind
        if _kind(dtype) > _kind(found):
            found = dtype
    return found


def _kind(dtype: torch.dtype) -> int:
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else int(dtype is not torch.bool)


def _pointwise(name: str, kind: str, expression: str) -> Callable[..., Tensor]:
    def kernel(*operands: Any, alpha: Any = 1) -> Tensor:
        given = promoted(operands)
        if given.is_complex or (kind == "number" and given is torch.bool) or (kind == "whole" and given.is_floating_point):
            raise NotImplementedError(f"{name} is not implemented for {given}")
        source = expression
        dtype = torch.bool if kind == "test" else given
        if kind == "real" and not given.is_floating_point:
            given = dtype = torch.get_default_dtype()
        if name == "bitwise_not":
            source = "1 - a" if given is torch.bool else "~a"
        elif name in ("ceil", "floor") and not given.is_floating_point:
            source = "a"
        if name == "sub.Tensor" and any(isinstance(one, Tensor) and one.dtype is torch.bool for one in operands):
            raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported.")
        if " * c" in expression:
            if isinstance(alpha, bool) and given is not torch.bool:
                raise RuntimeError("Boolean alpha only supported for Boolean results.")
            if isinstance(alpha, float) and not given.is_floating_point:
                raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
            if given is torch.bool:
                alpha = bool(alpha)  # as eager: -1 is True
            if alpha == 1:
                source = expression.replace(" * c", "")
            else:
                operands = (*operands, alpha)
        return run(source, operands, given, dtype, lambda shape, tensors: iterator_strides(shape, tensors, given))

    return kernel


not_zero = _pointwise("ne.Tensor", *POINTWISE["ne.Tensor"])


def where(condition: Tensor, a: Tensor, b: Tensor) -> Tensor:
    if condition.dtype not in (torch.bool, torch.uint8):
        raise RuntimeError(f"where expected condition to be a boolean tensor, but got a tensor with dtype {condition.dtype}")
    dtype = promoted((a, b))
    return run("tl.where(a != 0, b, c)", (condition, a, b), dtype, dtype, iterator_strides)


# -- copies ------------------------------------------------------------------------------------------------------------


def convert(x: Tensor, dtype: torch.dtype, memory_format: torch.memory_format | None = None) -> Tensor:
    """Return a copy with another dtype, and the strides of ``empty_like``."""
    if memory_format in (None, torch.preserve_format):
        strides = like_strides(x)
    else:
        if (memory_format, x.dim()) in ((torch.channels_last, 4), (torch.channels_last_3d, 5)):
            strides = in_order(x.shape, [0, *range(2, x.dim()), 1])
        elif memory_format is torch.contiguous_format:
            strides = in_order(x.shape, range(x.dim()))
        else:
            raise RuntimeError(f"required rank {4 if memory_format is torch.channels_last else 5} tensor")
    out = empty(x, x.shape, dtype, strides)
    _copy_into(out, x)
    return out


def _copy_into(out: Tensor, x: Tensor) -> None:
    store("-a" if x.is_neg() else "a", out, [x], x.dtype)


def clone(x: Tensor, *, memory_format: torch.memory_format | None = None) -> Tensor:
    return convert(x, x.dtype, memory_format)


def to_copy(x: Tensor, *, dtype: torch.dtype | None = None, device: Any = None, memory_format: Any = None, **rest: Any) -> Tensor:
    if device is not None and torch.device(device).type != x.device.type:
        made: Tensor = aten._to_copy.default(x, dtype=dtype, device=device, memory_format=memory_format, **rest)
        return made  # between devices torch copies
    return convert(x, dtype or x.dtype, memory_format)


def _partly_one(x: Tensor, y: Tensor) -> bool:
    """Return whether two dense tensors overlap partially."""
    if not (x.numel() and y.numel() and is_dense(x) and is_dense(y)):
        return False
    (first, end), (other, stop) = ((one.data_ptr(), one.data_ptr() + one.numel() * one.itemsize) for one in (x, y))
    if (first, end) == (other, stop):
        return x.stride() != y.stride()
    return first < stop and other < end


def copy_(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    if target.device.type != source.device.type:
        made: Tensor = aten.copy_.default(target, source, non_blocking)
        return made
    if any(size > 1 and not step for size, step in zip(target.shape, target.stride(), strict=True)):
        raise RuntimeError("more than one element of the written-to tensor refers to a single memory location")
    if torch.broadcast_shapes(target.shape, source.shape) != target.shape:
        raise RuntimeError(f"a tensor of shape {[*source.shape]} cannot be copied to one of shape {[*target.shape]}")
    if _partly_one(target, source):
        raise RuntimeError("some elements of the input and the written-to tensor refer to a single memory location")
    if target.untyped_storage().data_ptr() == source.untyped_storage().data_ptr():
        source = clone(source)  # programs read what others write
    _copy_into(target, source)
    return target


def cat(tensors: Sequence[Tensor], dim: int = 0) -> Tensor:
    if not tensors:
        raise RuntimeError("torch.cat(): expected a non-empty list of Tensors")
    parts = [one for one in tensors if one.dim() != 1 or one.shape[0]]  # an empty vector can be joined with anything
    dtype = tensors[0].dtype
    for one in tensors[1:]:
        dtype = torch.promote_types(dtype, one.dtype)
    if not parts:
        return empty(tensors[0], [0], dtype)
    rank = parts[0].dim()
    if not rank:
        raise RuntimeError("zero-dimensional tensor (at position 0) cannot be concatenated")
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    dim %= rank
    for one in parts:
        if one.dim() != rank or any(one.shape[d] != parts[0].shape[d] for d in range(rank) if d != dim):
            raise RuntimeError("Sizes of tensors must match except in the dimension of torch.cat")
    shape = list(parts[0].shape)
    shape[dim] = sum(one.shape[dim] for one in parts)
    last = rank in (4, 5) and all(memory_order(one) == [0, *range(2, rank), 1] and not one.is_contiguous() for one in parts)
    out = empty(parts[0], shape, dtype, in_order(shape, [0, *range(2, rank), 1] if last else range(rank)))
    start = 0
    for one in parts:
        _copy_into(out.narrow(dim, start, one.shape[dim]), one)
        start += one.shape[dim]
    return out


# -- factories ---------------------------------------------------------------------------------------------------------


def _dtype_of(value: Any) -> torch.dtype:
    return torch.bool if isinstance(value, bool) else torch.int64 if isinstance(value, int) else torch.get_default_dtype()


def full(size: Sequence[int], value: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    dtype = dtype or _dtype_of(value)
    if not isinstance(value, bool) and dtype is not torch.bool:
        bounds = torch.finfo(dtype) if dtype.is_floating_point else torch.iinfo(dtype)
        low = bounds.min if bounds.min or isinstance(value, float) else -bounds.max
        checked = math.isfinite(value) or not dtype.is_floating_point
        if checked and not low <= value <= bounds.max and not (dtype.is_floating_point and math.prod(size) == 1):
            raise RuntimeError(f"value cannot be converted to type {dtype} without overflow")
    out = torch.empty(size, dtype=dtype, device=device)
    store("a", out, [bool(value) if dtype is torch.bool else value], dtype)
    return out


def scalar_tensor(value: Any, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    return full([], value, dtype=dtype or torch.get_default_dtype(), device=device)


def arange(start: Any, end: Any, step: Any = 1, *, dtype: torch.dtype | None = None, device: Any = None, **_: Any) -> Tensor:
    whole = all(isinstance(one, int) for one in (start, end, step))
    dtype = dtype or (torch.int64 if whole else torch.get_default_dtype())
    if step == 0:
        raise RuntimeError("step must be nonzero")
    if not (math.isfinite(start) and math.isfinite(end)):
        raise RuntimeError(f"unsupported range: {start} -> {end}")
    if (end - start) * step < 0:
        raise RuntimeError("upper bound and lower bound inconsistent with step sign")
    if dtype is torch.int64:
        start, end, step = int(start), int(end), int(step)
    count = -((start - end) // step) if all(isinstance(one, int) for one in (start, end, step)) else math.ceil((end - start) / step)
    out = torch.empty(count, dtype=dtype, device=device)
    computed = torch.float64 if dtype.is_floating_point else torch.int64
    store("a + i * b", out, [start, step], computed)
    return out


# -- indices -----------------------------------------------------------------------------------------------------------


def _dim(dim: int, rank: int) -> int:
    rank = max(rank, 1)
    if not -rank <= dim < rank:
        raise IndexError(f"Dimension out of range (expected to be in range of [{-rank}, {rank - 1}], but got {dim})")
    return dim % rank


def _is_index(index: Tensor, *dtypes: torch.dtype) -> None:
    if index.dtype not in (dtypes or (torch.int64, torch.int32)):
        raise RuntimeError(f"an index must be of integers, not of {index.dtype}")


def _without(strides: Sequence[int], dim: int) -> list[int]:
    return [0 if d == dim else step for d, step in enumerate(strides)]


def index_select(x: Tensor, dim: int, index: Tensor) -> Tensor:
    _is_index(index)
    dim = _dim(dim, x.dim())
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if not x.dim():
        return clone(x)
    shape = [*x.shape[:dim], index.numel(), *x.shape[dim + 1 :]]
    out = empty(x, shape, x.dtype)
    there = index.view([-1, *[1] * (x.dim() - dim - 1)])
    found = Index(there, x.shape[dim], x.stride(dim))
    store("a", out, [x], x.dtype, strides={"a": _without(x.stride(), dim)}, indices=[found], mode="load")
    return out


def embedding(weight: Tensor, indices: Tensor, *options: Any) -> Tensor:
    _is_index(indices)
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")
    out = empty(weight, [*indices.shape, weight.shape[1]], weight.dtype)
    found = Index(indices.unsqueeze(-1), weight.shape[0], weight.stride(0))
    store("a", out, [weight], weight.dtype, strides={"a": [*[0] * indices.dim(), weight.stride(1)]}, indices=[found], mode="load")
    return out


def gather(x: Tensor, dim: int, index: Tensor, *, sparse_grad: bool = False) -> Tensor:
    _is_index(index)
    dim = _dim(dim, x.dim())
    _fits(index, x, dim, "gather")
    out = empty(x, index.shape, x.dtype)
    if not x.dim() or not index.dim():
        x, shape = x.view(-1), index.view(-1).shape
        found = Index(index.view(-1), x.shape[0], x.stride(0))
        store("a", out, [x], x.dtype, shape=shape, strides={"a": [0], "out": [1]}, indices=[found], mode="load")
        return out
    found = Index(index, x.shape[dim], x.stride(dim))
    store("a", out, [x], x.dtype, strides={"a": _without(x.stride(), dim)}, indices=[found], mode="load")
    return out


def _fits(index: Tensor, x: Tensor, dim: int, name: str) -> None:
    if max(index.dim(), 1) != max(x.dim(), 1):
        raise RuntimeError("Index tensor must have the same number of dimensions as input tensor")
    if index.numel() and any(index.shape[d] > x.shape[d] for d in range(min(x.dim(), index.dim())) if d != dim):
        raise RuntimeError(f"{name}: the index is larger than the tensor in a dimension other than {dim}")


def _scattered(name: str, mode: str) -> Callable[..., Tensor]:
    def kernel(x: Tensor, dim: int, index: Tensor, source: Any) -> Tensor:
        _is_index(index)
        dim = _dim(dim, x.dim())
        _fits(index, x, dim, name)
        if isinstance(source, Tensor):
            if source.dtype is not x.dtype:
                raise RuntimeError(f"{name}(): Expected self.dtype to be equal to src.dtype")
            if max(source.dim(), 1) != max(x.dim(), 1) or any(a > b for a, b in zip(index.shape, source.shape, strict=False)):
                raise RuntimeError(f"{name}: the index is larger than the source")
        wide = _adds_in(x.dtype) if mode == "add" else x.dtype
        out = convert(x, wide)
        flat = out.view(1) if not x.dim() else out
        at = index.view(-1) if not index.dim() else index
        strides: dict[str, Sequence[int]] = {"out": _without(flat.stride(), dim)}
        if isinstance(source, Tensor):
            strides["a"] = source.stride() if source.dim() else [0]
        found = Index(at, flat.shape[dim], flat.stride(dim))
        store("a", flat, [source], x.dtype, shape=at.shape, strides=strides, indices=[found], mode=mode)
        return out if wide is x.dtype else convert(out, x.dtype)

    return kernel


def _adds_in(dtype: torch.dtype) -> torch.dtype:
    """Return a dtype that has atomic additions."""
    if dtype in (torch.float16, torch.bfloat16):
        return torch.float32
    return dtype if dtype.is_floating_point or dtype is torch.int64 else torch.int32


def _located(x: Tensor, indices: Sequence[Tensor | None]) -> tuple[list[int], list[int], list[Index]]:
    """Return the shape of ``x[indices]``, the strides of `x` in it, and the indices in this shape."""
    if len(indices) > x.dim():
        raise IndexError(f"too many indices for tensor of dimension {x.dim()} (got {len(indices)})")
    at = [d for d, one in enumerate(indices) if one is not None]
    for d in at:
        _is_index(indices[d], torch.int64, torch.int32)  # type: ignore[arg-type]
    block = torch.broadcast_shapes(*(indices[d].shape for d in at))  # type: ignore[union-attr]
    kept = [d for d in range(x.dim()) if d not in at]
    before = at[0] if at == list(range(at[0], at[-1] + 1)) else 0  # indexed dimensions that are not neighbours come first
    shape = [*(x.shape[d] for d in kept[:before]), *block, *(x.shape[d] for d in kept[before:])]
    strides = [*(x.stride(d) for d in kept[:before]), *[0] * len(block), *(x.stride(d) for d in kept[before:])]
    after = [1] * (len(kept) - before)
    return shape, strides, [Index(one.view([*one.shape, *after]), x.shape[d], x.stride(d)) for d in at for one in [indices[d]]]  # type: ignore[union-attr]


def _as_integers(x: Tensor, indices: Sequence[Tensor | None]) -> list[Tensor | None]:
    """Replace masks by the places of what is true in them."""
    found: list[Tensor | None] = []
    for one in indices:
        if one is not None and one.dtype in (torch.bool, torch.uint8):
            if list(one.shape) != list(x.shape[len(found) : len(found) + one.dim()]):
                raise IndexError(f"The shape of the mask {[*one.shape]} does not match the indexed tensor {[*x.shape]}")
            from on_triton.rows import nonzero

            found += nonzero(one).unbind(1)
        else:
            found.append(one)
    return found


def index(x: Tensor, indices: Sequence[Tensor | None]) -> Tensor:
    indices = _as_integers(x, indices)
    if all(one is None for one in indices):
        return clone(x)
    shape, strides, found = _located(x, indices)
    out = empty(x, shape, x.dtype)
    store("a", out, [x], x.dtype, strides={"a": strides}, indices=found, mode="load", wrap=True)
    return out


def index_put(x: Tensor, indices: Sequence[Tensor | None], values: Tensor, accumulate: bool = False) -> Tensor:
    if values.dtype is not x.dtype:
        raise RuntimeError("Index put requires the source and destination dtypes match")
    indices = _as_integers(x, indices)
    if not indices or all(one is None for one in indices):
        raise RuntimeError("index_put: no index")
    wide = _adds_in(x.dtype) if accumulate else x.dtype
    out = convert(x, wide)
    shape, strides, found = _located(out, indices)
    if torch.broadcast_shapes(values.shape, tuple(shape)) != tuple(shape):
        raise RuntimeError(f"shape mismatch: value tensor of shape {[*values.shape]} cannot be broadcast to {shape}")
    mode = "add" if accumulate else "store"
    store("a", out, [values], x.dtype, shape=shape, strides={"out": strides}, indices=found, mode=mode, wrap=True)
    return out if wide is x.dtype else convert(out, x.dtype)


KERNELS: dict[str, Callable[..., Any]] = {
    **{name: _pointwise(name, *entry) for name, entry in POINTWISE.items()},
    "where.self": where,
    "_to_copy": to_copy,
    "arange.start_step": arange,
    "cat": cat,
    "clone": clone,
    "copy_": copy_,
    "full": full,
    "scalar_tensor": scalar_tensor,
    "embedding": embedding,
    "gather": gather,
    "index.Tensor": index,
    "index_put": index_put,
    "index_select": index_select,
    "scatter.src": _scattered("scatter", "store"),
    "scatter.value": _scattered("scatter", "store"),
    "scatter_add": _scattered("scatter_add", "add"),
}
