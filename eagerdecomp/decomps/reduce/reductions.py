"""Reductions to one value or one row: extremes, order statistics, equality, deviations, traces."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.promotion import HALF, RARE, WIDE_UNSIGNED
from eagerdecomp.host.warn import warn_caller
from eagerdecomp.rules.link import link_on_call
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import wide_of

aten = torch.ops.aten


def _extreme(kernel: OpOverload) -> Callable[..., Any]:
    def extreme(self: Tensor) -> Any:
        return kernel(self)

    return extreme


@rule("aten.equal.default")
def _equal(self: Tensor, other: Tensor) -> Any:
    if self.device != other.device:
        return NotImplemented
    if self.shape != other.shape:
        return False
    return not self.numel() or not aten._local_scalar_dense.default(aten.any.default(aten.ne.Tensor(self, other)))


# -- order statistics -----------------------------------------------------------------------------------------------------


def _picked(ordered: Sequence[Tensor], dim: int, at: int, keepdim: bool) -> list[Tensor]:
    """Return the slice at index `at` along `dim` of sorted values and of their indices. `keepdim` keeps the dimension."""
    both = [aten.slice.Tensor(x, dim, at, at + 1) for x in ordered]
    return [aten.clone.default(x if keepdim else aten.squeeze.dim(x, dim), memory_format=torch.contiguous_format) for x in both]


@rule("aten.kthvalue.default", recorded=True)
def _kthvalue(self: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> Any:
    if self.dim() == 0:
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device=self.device)
    if k > self.size(dim):
        return NotImplemented
    return tuple(_picked(aten.sort.default(self, dim), dim, k - 1, keepdim))


@rule("aten.median.dim", recorded=True)
def _median(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    """Return the lower median and its index; for a row with NaN, NaN and the index of the first NaN."""
    if self.dim() == 0:
        return aten.clone.default(self), aten.full.default([], 0, dtype=torch.int64, device=self.device)
    if not self.size(dim):
        return NotImplemented
    value, index = _picked(aten.sort.default(self, dim), dim, (self.size(dim) - 1) // 2, keepdim)
    if not self.dtype.is_floating_point:
        return value, index
    greatest, where = aten.max.dim(self, dim, keepdim)
    nan = aten.isnan.default(greatest)
    return aten.where.self(nan, greatest, value), aten.where.self(nan, where, index)


@rule("aten.nanmedian.dim", recorded=True)
def _nanmedian(self: Tensor, dim: int, keepdim: bool = False) -> Any:
    if self.dim() == 0 or not self.dtype.is_floating_point:
        return _median(self, dim, keepdim)
    if not self.size(dim):
        return NotImplemented
    values, indices = aten.sort.default(self, dim)  # NaN last
    there = aten.sum.dim_IntList(aten.logical_not.default(aten.isnan.default(self)), [dim], True)
    at = aten.clamp.default(aten.div.Tensor_mode(aten.sub.Scalar(there, 1), _two(there), rounding_mode="floor"), 0)
    both = [aten.gather.default(x, dim, at) for x in (values, indices)]
    return tuple(both if keepdim else [aten.squeeze.dim(x, dim) for x in both])


def _two(like: Tensor) -> Tensor:
    two: Tensor = aten.full.default([], 2, dtype=like.dtype, device=like.device)
    return two


def _flattened(order_statistic: Callable[..., Any]) -> Callable[[Tensor], Any]:
    """Make the reduction over all elements. An empty tensor of a floating-point dtype gives NaN, as in eager."""

    def run(self: Tensor) -> Any:
        if not self.numel():
            # Cast NaN as C++ does: to dtypes narrower than 32 bits by way of int32.
            if self.dtype.is_floating_point or self.dtype.is_complex:
                empty: Any = float("nan")
            elif self.dtype is torch.bool:
                empty = True
            else:
                bits = torch.iinfo(self.dtype)
                empty = bits.min if bits.bits >= 32 else 0
            return aten.full.default([], empty, dtype=self.dtype, device=self.device)
        return order_statistic(aten.reshape.default(self, [-1]), 0)[0]

    return run


# -- deviations -----------------------------------------------------------------------------------------------------------


@rule("aten.std.correction")
def _std(self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """Compute in float64 on the CPU, as eager does: its range holds the squares of float32. Other devices compute in float32."""
    dtype = self.dtype
    if not dtype.is_floating_point:
        return NotImplemented
    wide = wide_of(dtype) if self.is_cpu else torch.float32 if dtype in HALF else dtype
    if dtype is wide:
        return aten.sqrt.default(aten.var.correction(self, dim, correction=correction, keepdim=keepdim))
    wider = aten._to_copy.default(self, dtype=wide)
    return aten._to_copy.default(
        aten.sqrt.default(aten.var.correction(wider, dim, correction=correction, keepdim=keepdim)), dtype=dtype
    )


@link_on_call
def _complex_var_mean(self: Tensor, dim: Sequence[int] | None, correction: float | None, keepdim: bool) -> Any:
    """Reduce real and imaginary parts separately, as ATen does: a NaN or infinity in one part does not change the other's mean."""
    both = aten.view_as_real.default(self)
    parts = [aten.select.int(both, -1, part) for part in (0, 1)]
    variances = [aten.var.correction(part, dim, correction=correction, keepdim=keepdim) for part in parts]
    means = [aten.unsqueeze.default(aten.mean.dim(part, dim, keepdim), -1) for part in parts]
    return aten.add.Tensor(*variances), aten.view_as_complex.default(aten.cat.default(means, -1))


@rule("aten.var_mean.correction")
def _var_mean(self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    if self.dtype.is_complex:
        return _complex_var_mean(self, dim, correction, keepdim)
    if not self.dtype.is_floating_point:
        return NotImplemented
    return aten.var.correction(self, dim, correction=correction, keepdim=keepdim), aten.mean.dim(self, dim, keepdim)


@rule("aten.std_mean.correction", recorded=True)
def _std_mean(self: Tensor, dim: Sequence[int] | None = None, *, correction: float | None = None, keepdim: bool = False) -> Any:
    """Return a plain tuple, as eager does; torch's decomposition returns a named tuple."""
    if self.dtype.is_complex:
        variance, mean = _complex_var_mean(self, dim, correction, keepdim)
        return aten.sqrt.default(variance), mean
    return aten.std.correction(self, dim, correction=correction, keepdim=keepdim), aten.mean.dim(self, dim, keepdim)


@rule("aten.prod.default", recorded=True)
def _prod(self: Tensor, *, dtype: torch.dtype | None = None) -> Tensor:
    """Multiply all elements in one reduction.

    Dimension by dimension, a partial product may overflow before it is multiplied by a zero, which gives NaN.
    """
    return aten.prod.dim_int(aten.reshape.default(self, [-1]), 0, dtype=dtype)  # type: ignore[no-any-return]


def _all(op: OpOverload) -> Callable[..., Any]:
    """Make the rule for rare dtypes: torch's decomposition uses kernels that do not support them.

    Of no dimensions, all and any are the same.
    """

    def run(self: Tensor, *rest: Any, **named: Any) -> Any:
        if rest and rest[0] == [] and self.dtype not in WIDE_UNSIGNED:
            return aten.any.dims(self, *rest, **named)
        if rest and rest[0] is None and self.dim():  # the C++ composition expands one element
            return op(self, list(range(self.dim())), *rest[1:], **named)
        return op(aten.ne.Scalar(self, 0), *rest, **named) if self.dtype in RARE else NotImplemented

    return run


@rule("aten.any.dims", recorded=True)
def _any_dims(self: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False) -> Any:
    """Cover no dimensions, and all of them by None, where the C++ composition expands one element."""
    if dim is None and self.dim():
        return aten.any.dims(self, list(range(self.dim())), keepdim)
    if dim != [] or self.dtype in WIDE_UNSIGNED:
        return NotImplemented
    found = aten.ne.Scalar(self, 0)
    return aten._to_copy.default(found, dtype=torch.uint8) if self.dtype is torch.uint8 else found


@rule("aten._aminmax.default", "aten._aminmax.dim")
def _older_aminmax(self: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """Implement `_aminmax`, the old name of `aminmax`.

    Linked, so that each call warns; Python filters repeated warnings.
    """
    warn_caller(
        "_aminmax is deprecated as of PyTorch 1.11 and will be removed in a future release. Use aminmax instead. This warning "
        "will only appear once per process."
    )
    return aten.aminmax.default(self, dim=dim, keepdim=keepdim)


for op in (op_called("aten.all.default"), op_called("aten.all.dim"), op_called("aten.all.dims")):
    rule(op, recorded=True)(_all(op))
rule("aten.max.default")(_extreme(op_called("aten.amax.default")))
rule("aten.min.default")(_extreme(op_called("aten.amin.default")))
rule("aten.median.default", recorded=True)(_flattened(_median))
rule("aten.nanmedian.default", recorded=True)(_flattened(_nanmedian))


@rule("aten.trace.default")
def _trace(self: Tensor) -> Any:
    return (
        aten.sum.dim_IntList(aten.diagonal.default(self), [0])
        if self.dim() == 2 and self.dtype.is_floating_point
        else aten.trace.default(self)
    )
