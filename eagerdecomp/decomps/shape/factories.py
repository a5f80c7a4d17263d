"""Factories: constant and uninitialized tensors of any size.

All are linked, because sizes differ from step to step. Arguments that a call omits have eager's defaults: the default dtype, or the
dtype and device of the tensor argument.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.promotion import HALF, in_type
from eagerdecomp.eager.scalars import held_number
from eagerdecomp.eager.strides import like_strides
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_of

aten = torch.ops.aten


def _filled(op: OpOverload, value: int) -> None:
    @rule(op)
    def filled(size: Sequence[int], *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        if layout not in (None, torch.strided):
            return op(size, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
        dtype = torch.get_default_dtype() if dtype is None else dtype
        return aten.full.default(size, value, dtype=dtype, device=device, pin_memory=pin_memory)


def _after(op: OpOverload, factory: OpOverload, *values: int) -> None:
    """Add the rule of a `new_*` op: call the factory with the same arguments followed by these values."""

    @rule(op)
    def after(self: Tensor, *given: Any, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None) -> Any:
        if self.layout is not torch.strided or layout not in (None, torch.strided):
            return op(self, *given, dtype=dtype, layout=layout, device=device, pin_memory=pin_memory)
        dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
        return factory(*given, *values, dtype=dtype, device=device, pin_memory=pin_memory)


def _filled_like(op: OpOverload, value: int) -> None:
    """Add the rule of `zeros_like` or `ones_like`."""

    @rule(op)
    def filled_like(self: Tensor, **options: Any) -> Any:
        if self.layout is torch.strided and options.get("layout") in (None, torch.strided):
            return aten.full_like.default(self, value, **options)
        return op(self, **options)


_KEEPS = (None, torch.preserve_format)


@rule("aten.empty_like.default")
def _empty_like(
    self: Tensor,
    *,
    dtype: Any = None,
    layout: Any = None,
    device: Any = None,
    pin_memory: Any = None,
    memory_format: Any = None,
) -> Any:
    keeps = memory_format in _KEEPS
    if (keeps or memory_format is torch.contiguous_format) and self.layout is torch.strided and layout in (None, torch.strided):
        shape = list(self.shape)
        dtype, device = self.dtype if dtype is None else dtype, self.device if device is None else device
        if not keeps:
            return aten.empty.memory_format(shape, dtype=dtype, device=device, pin_memory=pin_memory)
        return aten.empty_strided.default(shape, like_strides(self), dtype=dtype, device=device, pin_memory=pin_memory)
    return NotImplemented


@rule("aten._new_zeros_with_same_feature_meta.default")
def _new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> Any:
    """Return zeros with the sizes, strides and storage size of `other`, behind the batch dimensions of `self`.

    Forward-mode AD copies the tangent `self` to them, or to a view of them. They are a copy of `self`, or of its first element if
    its sizes differ, filled with 0, not the result of a factory: `torch.func.linearize` traces below the mode, and stores a tensor
    that depends on no tangent as a constant of its graph. Every call would write to that constant, and `vmap` cannot write a batch
    to it. `full_like` and `constant_pad_nd` are not called, because sets without them would make such a constant.
    """
    batch = list(self.shape[:self_num_batch_dims])
    plain = all(one.layout is torch.strided and not one.is_nested for one in (self, other))
    if not plain:
        return NotImplemented
    stored = other.untyped_storage().nbytes() // other.element_size()
    form = {"dtype": other.dtype, "device": other.device}
    features = self.shape[self_num_batch_dims:]
    if features != other.shape:  # the tangent of a view
        if 0 in features:
            self = aten.full.default([*batch, *other.shape], 0, **form)
        else:
            for _ in features:
                self = aten.select.int(self, len(batch), 0)
            self = aten.expand.default(aten.view.default(self, [*batch, *([1] * other.dim())]), [*batch, *other.shape])
    zeros = aten.copy_.default(
        aten._to_copy.default(self, memory_format=torch.contiguous_format, **form), aten.full.default([], 0, **form)
    )
    if other.is_contiguous() and stored == other.numel() and zeros.numel():
        return zeros
    count = stored * math.prod(batch)
    flat, missing = aten.view.default(zeros, [zeros.numel()]), count - zeros.numel()
    if missing > 0:
        flat = aten.cat.default([flat, aten.full.default([missing], 0, **form)])
    elif missing < 0:
        flat = aten.clone.default(aten.slice.Tensor(flat, 0, 0, count))
    strides = [stored * math.prod(batch[place + 1 :]) for place in range(len(batch))]
    return aten.as_strided.default(flat, [*batch, *other.shape], [*strides, *other.stride()], other.storage_offset())


# -- unit matrices ---------------------------------------------------------------------------------------------------------------


@rule("aten.eye.m", recorded=True)
def _eye_of_two_sizes(
    n: int, m: int, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Tensor:
    """Compare row and column numbers in int64. From 256 on, torch's decomposition uses uint16, which `arange` rejects."""
    if layout not in (None, torch.strided) or pin_memory:
        return NotImplemented  # type: ignore[no-any-return]
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if not n or not m:  # the other size may be one that no memory holds
        return aten.full.default([n, m], 0, dtype=dtype, device=device)  # type: ignore[no-any-return]
    row, column = (aten.arange.start_step(0, size, 1, dtype=torch.int64, device=device) for size in (n, m))
    return in_type(aten.eq.Tensor(aten.unsqueeze.default(row, 1), column), dtype)


# -- ranges that include their end, and windows --------------------------------------------------------------------------------


@rule("aten.range.default", "aten.range.step", recorded=True)
def _range(
    start: Any, end: Any, step: Any = 1, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None
) -> Any:
    """Return ``start + i * step`` up to `end`.

    As in eager, integers are computed in int64, float32 in float64, and float16 and bfloat16 in float32.
    """
    if layout not in (None, torch.strided):
        return NotImplemented
    dtype = torch.get_default_dtype() if dtype is None else dtype
    computed = torch.float32 if dtype in HALF else wide_of(dtype) if dtype.is_floating_point else torch.int64
    start, end, step = (held_number(+value, computed) for value in (start, end, step))
    if (end < start) if step > 0 else (end > start):
        return NotImplemented
    count = int((end - start) / step + 1) if computed.is_floating_point else abs(end - start) // abs(step) + 1
    values = aten.arange.start_step(0, count, 1, dtype=computed, device=device, pin_memory=pin_memory)
    if step != 1:
        values = aten.mul.Scalar(values, step)
    if start != 0:
        values = aten.add.Scalar(values, start)
    return in_type(values, dtype)


@rule("aten.kaiser_window.default", "aten.kaiser_window.periodic", "aten.kaiser_window.beta", recorded=True)
def _kaiser_window(
    window_length: int, periodic: bool = True, beta: float = 12.0, *, dtype: Any = None, layout: Any = None, **options: Any
) -> Any:
    """Compute ``i0(beta * sqrt(1 - ((i - a) / a) ** 2)) / i0(beta)``, where ``a`` is half the last index.

    float16 and bfloat16 are computed in float32 and rounded once.
    """
    if layout not in (None, torch.strided):
        return NotImplemented
    dtype = torch.get_default_dtype() if dtype is None else dtype
    if window_length < 2:
        return aten.full.default([window_length], 1, dtype=dtype, layout=layout, **options)
    computed, count = torch.float32 if dtype in HALF else dtype, window_length + bool(periodic)
    middle = (count - 1) / 2
    index = aten.arange.start_step(0, count, 1, dtype=computed, **options)
    away = aten.div.Scalar(aten.sub.Scalar(index, middle), middle)
    root = aten.sqrt.default(aten.add.Scalar(aten.neg.default(aten.mul.Tensor(away, away)), 1))
    most = aten.i0.default(aten.full.default([], beta, dtype=computed, device=options.get("device")))
    window = in_type(aten.div.Tensor(aten.i0.default(aten.mul.Scalar(root, beta)), most), dtype)
    return aten.slice.Tensor(window, 0, 0, window_length) if periodic else window


@rule("aten.hann_window.default", "aten.hann_window.periodic", recorded=True)
def _hann_window(window_length: int, periodic: bool = True, *, dtype: Any = None, layout: Any = None, **options: Any) -> Any:
    """Compute Hamming's window with other coefficients."""
    if layout not in (None, torch.strided):
        return NotImplemented
    dtype = torch.get_default_dtype() if dtype is None else dtype
    return aten.hamming_window.periodic_alpha_beta(window_length, periodic, 0.5, 0.5, dtype=dtype, layout=layout, **options)


_filled_like(op_called("aten.zeros_like.default"), 0)
_filled_like(op_called("aten.ones_like.default"), 1)
_filled(op_called("aten.zeros.default"), 0)
_filled(op_called("aten.ones.default"), 1)
_after(op_called("aten.new_zeros.default"), op_called("aten.full.default"), 0)
_after(op_called("aten.new_ones.default"), op_called("aten.full.default"), 1)
_after(op_called("aten.new_full.default"), op_called("aten.full.default"))
_after(op_called("aten.new_empty.default"), op_called("aten.empty.memory_format"))
_after(op_called("aten.new_empty_strided.default"), op_called("aten.empty_strided.default"))


@rule("aten._shape_as_tensor.default", effects=True)
def _shape_as_tensor(self: Tensor) -> Any:
    """Return the shape as a CPU tensor, whatever the device."""
    return torch.tensor(list(self.shape), dtype=torch.int64)
