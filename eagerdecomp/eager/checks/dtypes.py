"""Eager's checks of the dtype in which operands are computed, with its messages.

torch's Python references also accept complex32 and bools, which eager's kernels reject.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.messages import not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, WIDE_UNSIGNED, can_cast, computed_in
from eagerdecomp.eager.scalars import held_number

__all__ = ["TYPE_CHECKS"]

_HALVES = torch.complex32


def _clamp(self: Tensor, min: Any = None, max: Any = None) -> None:
    if self.is_floating_point():
        return  # whatever the bounds are, which are made numbers of that type
    given = {name: bound for name, bound in (("min", min), ("max", max)) if bound is not None}
    _bounded(f"clamp_{next(iter(given))}" if len(given) == 1 else "clamp", self, *given.values())


def _clamp_min(self: Tensor, min: Any) -> None:
    _bounded("clamp_min", self, min)


def _clamp_max(self: Tensor, max: Any) -> None:
    _bounded("clamp_max", self, max)


def _bounded(kernel: str, self: Tensor, *bounds: Any) -> None:
    computed = computed_in((self, *bounds))
    assert computed is not None  # that of a tensor, at least
    if computed.is_complex:
        raise NotImplementedError("clamp is not supported for complex types")
    if computed is torch.bool or computed in WIDE_UNSIGNED:
        raise not_implemented(f"{kernel}_scalar_cpu", computed)


def _dist(self: Tensor, other: Tensor, p: Any = 2) -> None:
    computed = computed_in((self, other))
    assert computed is not None  # that of two tensors
    if not (computed.is_floating_point or computed.is_complex) and torch.bool not in (self.dtype, other.dtype):
        raise RuntimeError(
            f"norm(): input dtype should be either floating point or complex. Got {scalar_type_name(computed)} instead."
        )


def _mean(self: Tensor, dim: Sequence[int] | None = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> None:
    computed = dtype or self.dtype
    if not (computed.is_floating_point or computed.is_complex):
        raise RuntimeError(
            f"mean(): could not infer output dtype. {'Optional' if dtype else 'Input'} dtype must be either a floating point or "
            f"complex dtype. Got: {scalar_type_name(computed)}"
        )
    _halves_reduced("sum_cpu")(self, dtype=dtype)


def _mean_out(self: Tensor, *more: Any, dtype: torch.dtype | None = None, out: Tensor) -> None:
    _mean(self, dtype=dtype)


def _mean_of_all_out(self: Tensor, *, dtype: torch.dtype | None = None, out: Tensor) -> None:
    if not can_cast(self.dtype, out.dtype):
        found = scalar_type_name(out.dtype)
        raise RuntimeError(f"mean.dtype_out(): input types can't be cast to the desired output type {found}")
    _mean(self, dtype=dtype)


def _halves_reduced(kernel: str) -> Callable[..., None]:
    def check(self: Tensor, *more: Any, dtype: torch.dtype | None = None) -> None:
        if (dtype or self.dtype) is _HALVES and self.numel():
            raise not_implemented(kernel, _HALVES)

    return check


def _nansum_out(self: Tensor, *more: Any, dtype: torch.dtype | None = None, out: Tensor) -> None:
    if self.numel() and self.dtype.is_floating_point and not (dtype or out.dtype).is_floating_point:  # which it is computed in
        raise not_implemented("nansum_cpu", dtype or out.dtype)


def _in_order(name: str) -> Callable[..., None]:
    def check(self: Tensor, *more: Any, **others: Any) -> None:
        if self.dtype.is_complex:
            raise RuntimeError(f"{name}(): does not support complex input")

    return check


def _pow_of_a_number(self: Any, exponent: Tensor) -> None:
    if isinstance(self, bool) and exponent.dtype is torch.bool:
        raise not_implemented("pow", torch.bool)
    if (isinstance(self, bool) or self != 1) and computed_in((self, exponent)) is _HALVES:
        raise not_implemented("pow", _HALVES)


def _pow_by_a_number(self: Tensor, exponent: Any) -> None:
    if self.dtype in HALF and not isinstance(exponent, complex):
        held_number(exponent, self.dtype)
    if exponent not in (0, 1) and computed_in((self, exponent)) is _HALVES:
        raise not_implemented("sqrt_vml_cpu" if exponent == 0.5 else "pow", _HALVES)


#: op -> a function of its arguments that raises eager's error.
TYPE_CHECKS: dict[str, Callable[..., None]] = {
    "aten.clamp.default": _clamp,
    "aten.clamp_max.default": _clamp_max,
    "aten.clamp_min.default": _clamp_min,
    "aten.dist.default": _dist,
    "aten.max.dim": _in_order("max"),
    "aten.mean.default": _mean,
    "aten.mean.dim": _mean,
    "aten.mean.dtype_out": _mean_of_all_out,
    "aten.mean.out": _mean_out,
    "aten.min.dim": _in_order("min"),
    "aten.nansum.out": _nansum_out,
    "aten.pow.Scalar": _pow_of_a_number,
    "aten.pow.Tensor_Scalar": _pow_by_a_number,
    "aten.prod.default": _halves_reduced("prod_out_cpu"),
    "aten.prod.dim_int": _halves_reduced("prod_out_cpu"),
    "aten.sum.default": _halves_reduced("sum_cpu"),
    "aten.sum.dim_IntList": _halves_reduced("sum_cpu"),
}
