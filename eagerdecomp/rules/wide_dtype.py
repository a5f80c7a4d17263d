"""The dtype in which rules compute for accuracy: float64, or float32 for a backend whose kernels do not take float64.

Most accelerators have no float64. A rule that computes in a wider dtype than its operands', only for accuracy, asks for this dtype
by `wide_float`. `Rule.float64` says which dtype it gets.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.rules.link import Linkable, RunnerOf, refers_to

__all__ = ["float64_allowed", "has_float64", "uses_wide_dtype", "wide_complex", "wide_float", "wide_of", "without_float64"]


class _Allowed(threading.local):
    """Per-thread state: whether the unlinked rule that runs may use float64."""

    float64 = True


_allowed = _Allowed()


@contextmanager
def float64_allowed(allowed: bool) -> Iterator[None]:
    """Return a context manager for an unlinked rule that may use float64, or may not."""
    before, _allowed.float64 = _allowed.float64, allowed
    try:
        yield
    finally:
        _allowed.float64 = before


def without_float64(call: RunnerOf) -> RunnerOf:
    """Return a `RunnerOf` that links a rule so that it uses no float64."""

    def narrow(op: OpOverload) -> Callable[..., object]:
        return call(op)

    narrow.is_kernel = getattr(call, "is_kernel", None)  # type: ignore[attr-defined]
    narrow.float64 = False  # type: ignore[attr-defined]
    return narrow


def _bound(call: RunnerOf) -> Callable[[], bool]:
    return (lambda: _allowed.float64) if getattr(call, "float64", True) else (lambda: False)


#: ``has_float64()``: whether the rule that calls it may use float64 and complex128 kernels for operands of narrower dtypes.
has_float64 = Linkable(_bound)


def wide_float() -> torch.dtype:
    """Return float64, or float32 for a backend that does not take float64."""
    return torch.float64 if has_float64() else torch.float32


def wide_complex() -> torch.dtype:
    """Return complex128, or complex64 for a backend that does not take float64."""
    return torch.complex128 if has_float64() else torch.complex64


def wide_of(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype in which a rule computes floating-point or complex numbers of a dtype for accuracy."""
    if dtype is torch.float64 or dtype is torch.complex128:
        return dtype
    return wide_complex() if dtype.is_complex else wide_float()


def uses_wide_dtype(fn: Callable[..., object]) -> bool:
    """Return whether a rule asks for the wide dtype, so that it computes otherwise without float64."""
    return refers_to(fn, has_float64)
