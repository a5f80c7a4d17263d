"""Small ops that are met at every length, which torch's own entries would have recorded for each one: linked, so nothing is.

Each takes the calls that eager runs over floats, or numbers of one type, and leaves the others to the rules behind it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.messages import scalar_type_name
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.rules.link import kept_number, kept_numbers
from eagerdecomp.rules.rule import Call, Rule, linked

__all__ = ["RULES"]

aten = torch.ops.aten

#: What eager computes in as it is.
_FULL = (torch.float32, torch.float64)


def _logsumexp(call: Call) -> Callable[..., Any]:
    amax, sub, exp, total = (call(op) for op in (aten.amax.default, aten.sub.Tensor, aten.exp.default, aten.sum.dim_IntList))
    log, add, squeeze, isinf = (call(op) for op in (aten.log.default, aten.add.Tensor, aten.squeeze.dims, aten.isinf.default))
    where, zero, others = call(aten.where.self), kept_number(call, 0), call(aten.logsumexp.default)

    def run(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> Any:
        if not self.dtype.is_floating_point or not len(dim) or not self.numel():
            return others(self, dim, keepdim)
        highest = amax(self, dim, True)
        highest = where(isinf(highest), zero(self), highest)
        result = log(total(exp(sub(self, highest)), dim, keepdim))
        return add(result, highest if keepdim else squeeze(highest, dim))

    return run


def _vector_norm(call: Call) -> Callable[..., Any]:
    """Of one element it is the magnitude itself, whose square may be out of range: no call of this rule."""
    to, mul, total, sqrt, magnitude, amax, others = (
        call(op)
        for op in (
            aten._to_copy.default,
            aten.mul.Tensor,
            aten.sum.dim_IntList,
            aten.sqrt.default,
            aten.abs.default,
            aten.amax.default,
            aten.linalg_vector_norm.default,
        )
    )

    def run(self: Tensor, ord: Any = 2, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
        rank, shape = self.dim(), self.shape
        dims = list(dim) if dim else list(range(rank))
        if not self.dtype.is_floating_point and not self.dtype.is_complex:
            got = scalar_type_name(self.dtype)
            raise RuntimeError(f"linalg.vector_norm: Expected a floating point or complex tensor as input. Got {got}")
        if isinstance(ord, complex):
            raise RuntimeError("linalg.vector_norm: Expected a non-complex scalar as the order of norm.")
        narrows = dtype not in (None, self.dtype) and dtype.itemsize <= self.dtype.itemsize
        if narrows and dtype.is_complex == self.dtype.is_complex:
            raise RuntimeError(
                f"linalg.vector_norm: the dtype of the input ({scalar_type_name(self.dtype)}) should be convertible without "
                f"narrowing to the specified dtype ({scalar_type_name(dtype)})"
            )
        if self.dtype not in _FULL or dtype not in (None, self.dtype, torch.float64) or not self.numel():
            return others(self, ord, dim, keepdim, dtype=dtype)
        if not all(-rank <= at < rank for at in dims) or all(shape[at] == 1 for at in dims):
            return others(self, ord, dim, keepdim, dtype=dtype)
        if dtype is not None and dtype is not self.dtype:
            self = to(self, dtype=dtype)
        if ord == 2:
            return sqrt(total(mul(self, self), dims, keepdim))
        if ord == 1:
            return total(magnitude(self), dims, keepdim)
        if ord == float("inf"):
            return amax(magnitude(self), dims, keepdim)
        return others(self, ord, dim, keepdim, dtype=dtype)

    return run


def _block_diag(call: Call) -> Callable[..., Any]:
    """Rows of blocks, each block between zeros."""
    pad, cat, others = call(aten.constant_pad_nd.default), call(aten.cat.default), call(aten.block_diag.default)

    def run(tensors: Sequence[Tensor]) -> Any:
        first = tensors[0] if tensors else None
        if first is None or not all(
            one.dim() == 2 and one.dtype is first.dtype and one.device == first.device and one.is_contiguous() for one in tensors
        ):
            return others(tensors)
        whole, before, rows = sum(one.size(1) for one in tensors), 0, []
        for one in tensors:
            rows.append(pad(one, [before, whole - before - one.size(1)]))
            before += one.size(1)
        return cat(rows, 0)

    return run


def _by_vec(op: OpOverload, vec: OpOverload, flags: int) -> Rule:
    """An upsampling by its ``.vec`` form, which Core ATen has, and which takes sizes or scales but not both."""

    def link(call: Call) -> Callable[..., Any]:
        by_sizes_or_scales, others = call(vec), call(op)

        def run(self: Tensor, output_size: Sequence[int], *rest: Any, **named: Any) -> Any:
            corners, scales = rest[:flags], rest[flags:]
            if named or self.dim() != 4 or len(output_size) != 2 or not self.size(1):
                return others(self, output_size, *rest, **named)
            (height, width), (tall, wide) = self.shape[2:], output_size
            if min(height, width, tall, wide) < 1:
                raise RuntimeError(
                    "Input and output sizes should be greater than 0, "
                    f"but got input (H: {height}, W: {width}) output (H: {tall}, W: {wide})"
                )
            if not any(scales) or (corners and corners[0]):
                return by_sizes_or_scales(self, output_size, *corners, None)
            sizes = zip(self.shape[2:], scales, output_size, strict=False)
            if len(scales) == 2 and all(scales) and all(int(size * scale) == count for size, scale, count in sizes):
                return by_sizes_or_scales(self, None, *corners, list(scales))
            return others(self, output_size, *rest)

        return run

    return linked(op, link)


def _upsample_nearest2d_backward(call: Call) -> Callable[..., Any]:
    """Of an image made larger by powers of two, whose ratio no type rounds, each element has a tile of the gradient to itself."""
    view, total, others = call(aten.view.default), call(aten.sum.dim_IntList), call(aten.upsample_nearest2d_backward.default)
    clone = call(aten.clone.default)

    def run(
        grad_output: Tensor,
        output_size: Sequence[int],
        input_size: Sequence[int],
        scales_h: float | None = None,
        scales_w: float | None = None,
    ) -> Any:
        if len(output_size) != 2 or len(input_size) != 4 or list(grad_output.shape) != [*input_size[:2], *output_size]:
            return others(grad_output, output_size, input_size, scales_h, scales_w)
        batch, channels, height, width = input_size
        tall, wide = output_size[0] // (height or 1), output_size[1] // (width or 1)
        if (
            tall not in (2, 4, 8)
            or wide not in (2, 4, 8)
            or [height * tall, width * wide] != list(output_size)
            or scales_h not in (None, tall)
            or scales_w not in (None, wide)
            or not grad_output.numel()
            or not grad_output.dtype.is_floating_point
            or suggested_memory_format(grad_output) is not torch.contiguous_format
        ):
            return others(grad_output, output_size, input_size, scales_h, scales_w)
        if not grad_output.is_contiguous():
            grad_output = clone(grad_output, memory_format=torch.contiguous_format)
        return total(view(grad_output, [batch, channels, height, tall, width, wide]), [3, 5])

    return run


def _mv(call: Call) -> Callable[..., Any]:
    mm, unsqueeze, squeeze, others = (
        call(aten.mm.default),
        call(aten.unsqueeze.default),
        call(aten.squeeze.dim),
        call(aten.mv.default),
    )

    def run(self: Tensor, vec: Tensor) -> Any:
        dtype = self.dtype
        if self.dim() != 2 or vec.dim() != 1 or self.size(1) != vec.size(0):
            return others(self, vec)
        if vec.dtype is not dtype:
            matrix, vector = scalar_type_name(dtype), scalar_type_name(vec.dtype)
            raise RuntimeError(f"addmv input tensors must have the same dtype, but got {vector}, {matrix}, and {vector}")
        if dtype is torch.bool:
            return others(self, vec)
        return squeeze(mm(self, unsqueeze(vec, 1)), 1)

    return run


def _trace(call: Call) -> Callable[..., Any]:
    diagonal, total, others = call(aten.diagonal.default), call(aten.sum.dim_IntList), call(aten.trace.default)

    def run(self: Tensor) -> Any:
        return total(diagonal(self), [0]) if self.dim() == 2 and self.dtype.is_floating_point else others(self)

    return run


def _index_fill(op: OpOverload) -> Rule:
    def link(call: Call) -> Callable[..., Any]:
        index_put, number, others = call(aten.index_put.default), kept_numbers(call), call(op)
        view, to = call(aten.view.default), call(aten._to_copy.default)

        def run(self: Tensor, dim: int, index: Tensor, value: Any) -> Any:
            rank = self.dim()
            if index.dtype is not torch.int64:
                raise IndexError("index_fill_(): Expected dtype int64 for index.")
            if index.dim() > 1 or not -(rank or 1) <= dim < (rank or 1) or not self.numel():
                return others(self, dim, index, value)
            if isinstance(value, Tensor):
                if value.dim() or value.device != self.device or (value.dtype.is_complex and not self.dtype.is_complex):
                    return others(self, dim, index, value)
                if value.dtype is not self.dtype:
                    value = to(value, dtype=self.dtype)
            elif isinstance(value, complex):
                if not self.dtype.is_complex:
                    raise RuntimeError("index_fill_(): Converting complex Scalar to non-complex type is not supported")
                return others(self, dim, index, value)
            else:
                value = number(self, value)
            if not rank:
                return view(index_put(view(self, [1]), [index], value), [])
            return index_put(self, [None] * (dim % rank) + [index], value)

        return run

    return linked(op, link)


def _diag_embed(call: Call) -> Callable[..., Any]:
    """The vector down every column, and zeros where a column is not its row."""
    arange, unsqueeze, equal = call(aten.arange.start_step), call(aten.unsqueeze.default), call(aten.eq.Tensor)
    where, zero, others = call(aten.where.self), kept_number(call, 0), call(aten.diag_embed.default)

    def run(self: Tensor, offset: int = 0, dim1: int = -2, dim2: int = -1) -> Any:
        rank = self.dim()
        if offset or not rank or dim1 not in (-2, rank - 1) or dim2 not in (-1, rank) or not self.is_contiguous():
            return others(self, offset, dim1, dim2)
        places = arange(0, self.size(-1), 1, device=self.device)
        return where(equal(unsqueeze(places, 1), places), unsqueeze(self, -1), zero(self))

    return run


def _glu_backward(call: Call) -> Callable[..., Any]:
    split, sigmoid, mul, sub = (
        call(op) for op in (aten.split_with_sizes.default, aten.sigmoid.default, aten.mul.Tensor, aten.sub.Tensor)
    )
    cat, clone, others = call(aten.cat.default), call(aten.clone.default), call(aten.glu_backward.default)

    def run(grad_output: Tensor, self: Tensor, dim: int) -> Any:
        dtype, rank, shape = self.dtype, self.dim(), list(self.shape)
        if dtype not in _FULL or grad_output.dtype is not dtype or not -rank <= dim < rank or not self.numel():
            return others(grad_output, self, dim)
        half, odd = shape[dim] // 2, shape[dim] % 2  # sizes may be symbols, which take no divmod
        shape[dim] = half
        if odd or list(grad_output.shape) != shape:
            return others(grad_output, self, dim)
        if not self.is_contiguous():
            self = clone(self, memory_format=torch.contiguous_format)
        if not grad_output.is_contiguous():
            grad_output = clone(grad_output, memory_format=torch.contiguous_format)
        value, gate = split(self, [half, half], dim)
        gate = sigmoid(gate)
        first = mul(gate, grad_output)
        through = mul(first, value)
        return cat([first, sub(through, mul(through, gate))], dim)

    return run


def _renorm(call: Call) -> Callable[..., Any]:
    norm, add, greater, where, mul, div = (
        call(op)
        for op in (
            aten.linalg_vector_norm.default,
            aten.add.Scalar,
            aten.gt.Scalar,
            aten.where.self,
            aten.mul.Tensor,
            aten.div.Tensor,
        )
    )
    number, others = kept_numbers(call), call(aten.renorm.default)

    def run(self: Tensor, p: float, dim: int, maxnorm: float) -> Any:
        rank = self.dim()
        if self.dtype not in _FULL or rank < 2 or not -rank <= dim < rank or not self.is_contiguous():
            return others(self, p, dim, maxnorm)
        if isinstance(p, complex) or isinstance(maxnorm, complex) or not p > 0 or not maxnorm >= 0:
            return others(self, p, dim, maxnorm)
        size = norm(self, p, [at for at in range(rank) if at != dim % rank], True)
        scaled = div(number(self, cast_number(maxnorm, self.dtype)), add(size, 1e-7))
        return mul(self, where(greater(size, maxnorm), scaled, number(self, 1)))

    return run


RULES: tuple[Rule, ...] = (
    linked(aten.logsumexp.default, _logsumexp),
    linked(aten.linalg_vector_norm.default, _vector_norm),
    linked(aten.logcumsumexp.default, lambda call: call(aten._logcumsumexp.default)),
    linked(aten.mv.default, _mv),
    linked(aten.block_diag.default, _block_diag),
    _by_vec(aten.upsample_nearest2d.default, aten.upsample_nearest2d.vec, 0),
    _by_vec(aten.upsample_bilinear2d.default, aten.upsample_bilinear2d.vec, 1),
    linked(aten.upsample_nearest2d_backward.default, _upsample_nearest2d_backward),
    linked(aten.trace.default, _trace),
    _index_fill(aten.index_fill.int_Scalar),
    _index_fill(aten.index_fill.int_Tensor),
    linked(aten.diag_embed.default, _diag_embed),
    linked(aten.glu_backward.default, _glu_backward),
    linked(aten.renorm.default, _renorm),
)
