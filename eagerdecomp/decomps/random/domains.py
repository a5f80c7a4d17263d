"""The dtypes and parameters that eager's distributions accept: ``accepts(dtype, empty, *parameters)``."""

from __future__ import annotations

from typing import Any

import torch

from eagerdecomp.eager.promotion import WIDE_UNSIGNED
from eagerdecomp.host.warn import warn_caller

__all__ = [
    "REAL_OF",
    "accepts_bernoulli",
    "accepts_cauchy",
    "accepts_exponential",
    "accepts_geometric",
    "accepts_integers",
    "accepts_log_normal",
    "accepts_normal",
    "accepts_uniform",
    "last_by_default",
    "may_warn",
]

REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
#: Floating-point dtype -> the largest n such that it represents all integers up to n, and its name in eager's warning.
_WHOLE_UP_TO = {
    torch.float32: (2**24, "float"),
    torch.float64: (2**53, "double"),
    torch.float16: (2**11, "c10::Half"),
    torch.bfloat16: (2**8, "c10::BFloat16"),
}


def accepts_uniform(dtype: torch.dtype, empty: bool, low: float = 0.0, high: float = 1.0) -> bool:
    real = REAL_OF.get(dtype, dtype)
    if empty and real is not dtype:
        return True
    largest = torch.finfo(real).max if real.is_floating_point else -1.0
    return -largest <= low <= high <= largest and high - low <= largest


def accepts_normal(dtype: torch.dtype, empty: bool, mean: float = 0.0, std: float = 1.0) -> bool:
    return std >= 0 and (empty or dtype.is_floating_point or dtype.is_complex)


def accepts_bernoulli(dtype: torch.dtype, empty: bool, p: float = 0.5) -> bool:
    return 0 <= p <= 1 and (empty or not (dtype.is_complex or dtype in WIDE_UNSIGNED))


def accepts_exponential(dtype: torch.dtype, empty: bool, rate: float = 1.0) -> bool:
    return rate > 0 and (empty or dtype.is_floating_point)


def accepts_geometric(dtype: torch.dtype, empty: bool, p: float) -> bool:
    return 0 < p < 1 and (empty or not (dtype.is_complex or dtype is torch.bool or dtype in WIDE_UNSIGNED))


def accepts_cauchy(dtype: torch.dtype, empty: bool, median: float = 0.0, sigma: float = 1.0) -> bool:
    return sigma > 0 and dtype.is_floating_point


def accepts_log_normal(dtype: torch.dtype, empty: bool, mean: float = 1.0, std: float = 2.0) -> bool:
    return std > 0 and (empty or dtype.is_floating_point)


def _range_of(dtype: torch.dtype) -> tuple[int, int]:
    """Return the smallest and the largest integer that a dtype can represent."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point:
        largest = int(torch.finfo(dtype).max)
        return -largest, largest
    bounds = torch.iinfo(dtype)
    return bounds.min, bounds.max


def accepts_integers(dtype: torch.dtype, empty: bool, low: int | None = None, high: int | None = None) -> bool:
    """Warn of bounds that the dtype cannot represent, as eager does."""
    if low is None and high is None:
        return empty or not (dtype.is_complex or dtype in WIDE_UNSIGNED)
    if dtype.is_complex:
        return False
    first, last = low or 0, (high - 1 if high is not None else last_by_default(dtype))
    lowest, highest = _range_of(dtype)
    if not lowest <= first <= last <= highest:
        return False
    whole, kind = _WHOLE_UP_TO.get(dtype, (highest, ""))
    for name, bound in (("from", first), ("to - 1", last)):
        if kind and abs(bound) > whole:
            digits = whole.bit_length() - 1
            warn_caller(
                f"{name} is out of bounds [-(2^{digits}), 2^{digits}]. Due to precision limitations {kind} can support "
                "discrete uniform distribution only within this range. This warning will become an error in version 1.7 release, "
                "please fix the code in advance"
            )
    return True


def may_warn(*args: Any, dtype: torch.dtype | None = None, **options: Any) -> bool:
    """Return whether a call of `random_`, `randint` or a variant may draw integers that its dtype cannot represent."""
    dtype = dtype or (args[0].dtype if isinstance(args[0], torch.Tensor) else torch.int64)
    return dtype in _WHOLE_UP_TO and any(isinstance(bound, int) and abs(bound) > _WHOLE_UP_TO[dtype][0] for bound in args)


def last_by_default(dtype: torch.dtype) -> int:
    return _WHOLE_UP_TO[dtype][0] if dtype.is_floating_point else _range_of(dtype)[1]
