"""Eager's checks of random ops: parameters out of range and unsupported dtypes, with its messages."""

from __future__ import annotations

from typing import Any

import torch

from eagerdecomp.eager.messages import cpp_name, not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import WIDE_UNSIGNED
from eagerdecomp.host.warn import warn_caller

__all__ = [
    "REAL_OF",
    "check_bernoulli",
    "check_cauchy",
    "check_exponential",
    "check_geometric",
    "check_log_normal",
    "check_normal",
    "check_random",
    "check_uniform",
    "last_by_default",
    "may_warn",
]

REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
#: Floating-point dtype -> the largest n such that it represents all integers up to n.
_WHOLE_UP_TO = {torch.float32: 2**24, torch.float64: 2**53, torch.float16: 2**11, torch.bfloat16: 2**8}


def check_uniform(dtype: torch.dtype, empty: bool, low: float = 0.0, high: float = 1.0) -> None:
    real = REAL_OF.get(dtype, dtype)
    if empty and real is not dtype:
        return
    if not real.is_floating_point:
        raise not_implemented("check_uniform_bounds", dtype)
    largest = torch.finfo(real).max
    for name, bound in (("from", low), ("to", high)):
        if not -largest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {cpp_name(real)}")
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if not high - low <= largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{scalar_type_name(real)}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )


def check_normal(dtype: torch.dtype, empty: bool, mean: float = 0.0, std: float = 1.0) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if not empty and not (dtype.is_floating_point or dtype.is_complex):
        raise not_implemented("normal_kernel_cpu", dtype)


def check_bernoulli(dtype: torch.dtype, empty: bool, p: float = 0.5) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if not empty and (dtype.is_complex or dtype in WIDE_UNSIGNED):
        raise not_implemented("bernoulli_scalar_cpu_", dtype)


def check_exponential(dtype: torch.dtype, empty: bool, rate: float = 1.0) -> None:
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    if not empty and not dtype.is_floating_point:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + scalar_type_name(dtype)
        )


def check_geometric(dtype: torch.dtype, empty: bool, p: float) -> None:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if not empty and (dtype.is_complex or dtype is torch.bool or dtype in WIDE_UNSIGNED):
        raise not_implemented("geometric_cpu", dtype)


def check_cauchy(dtype: torch.dtype, empty: bool, median: float = 0.0, sigma: float = 1.0) -> None:
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if not dtype.is_floating_point:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + cpp_name(dtype)
        )


def check_log_normal(dtype: torch.dtype, empty: bool, mean: float = 1.0, std: float = 2.0) -> None:
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    if not empty and not dtype.is_floating_point:
        raise not_implemented("log_normal_cpu", dtype)


def _range_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return the smallest and the largest integer that a dtype can represent."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point:
        largest = int(torch.finfo(dtype).max)
        return -largest, largest
    bounds = torch.iinfo(dtype)
    return bounds.min, bounds.max


def check_random(dtype: torch.dtype, empty: bool, low: int | None = None, high: int | None = None) -> None:
    if low is None and high is None:
        if not empty and (dtype.is_complex or dtype in WIDE_UNSIGNED):
            raise not_implemented("random_kernel_cpu", dtype)
        return
    if dtype.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    first, last = low or 0, (high - 1 if high is not None else last_by_default(dtype))
    if first > last:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={first} >= to={last + 1}")
    lowest, highest = _range_of(dtype)
    for name, bound in (("from", first), ("to - 1", last)):
        if not lowest <= bound <= highest:
            raise RuntimeError(f"{name} is out of bounds for {cpp_name(dtype)}")
    whole = _WHOLE_UP_TO.get(dtype)
    for name, bound in (("from", first), ("to - 1", last)):
        if whole is not None and abs(bound) > whole:
            digits = whole.bit_length() - 1
            warn_caller(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {cpp_name(dtype)} can support "
                "discrete uniform distribution only within this range. This warning will become an error in version 1.7 release, "
                "please fix the code in advance"
            )


def may_warn(*args: Any, dtype: torch.dtype | None = None, **options: Any) -> bool:
    """Return whether a call of `random_`, `randint` or a variant may draw integers that its dtype cannot represent."""
    dtype = dtype or (args[0].dtype if isinstance(args[0], torch.Tensor) else torch.int64)
    whole = _WHOLE_UP_TO.get(dtype)
    return whole is not None and any(isinstance(bound, int) and abs(bound) > whole for bound in args)


def last_by_default(dtype: torch.dtype) -> int:
    return _WHOLE_UP_TO[dtype] if dtype.is_floating_point else _range_of(dtype)[1]
