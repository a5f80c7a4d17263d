"""Check whether values are within the error that a spec allows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.spec import Call, Near, tensors_of
from eagerdecomp.eager.compare import Difference, truth_of_call, worst_difference
from eagerdecomp.eager.observe import resolved
from eagerdecomp.eager.tolerance import OF_INPUTS, Truth, same_bits, same_values, tolerance_of

__all__ = ["NearValues", "is_repeated", "one_by_one"]


@contextmanager
def _subnormal_numbers() -> Iterator[None]:
    """Return a context manager in which the CPU flushes no subnormal numbers to zero (`torch.set_flush_denormal`).

    A run may flush them, to compare a device that does. Some of eager's formulas are then wrong for large numbers.
    """
    flushed = not torch.full((1,), torch.finfo(torch.float64).tiny, dtype=torch.float64).div(2).mul(2).item()
    torch.set_flush_denormal(False)
    try:
        yield
    finally:
        torch.set_flush_denormal(flushed)


def is_repeated(tensor: Tensor) -> bool:
    """Return whether a tensor is expanded, so that it repeats its elements."""
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def one_by_one(count: float, repeated: bool) -> float:
    """Return the allowed error of a sum computed term by term. If terms repeat, their rounding errors have the same direction."""
    return max(1.25 * math.sqrt(count), count / 4 if repeated else 0.0)


# -- comparing ---------------------------------------------------------------------------------------------------------------

_HALVES = (torch.float16, torch.bfloat16)


class NearValues:
    """Compare values of a call with eager's within the error that a spec allows: the policy `close` of `eager.compare.difference`.

    Args:
        op: the overload.
        call: the call, with arguments that eager has not written.
        native: eager's kernel.
        near: the allowed error.
    """

    def __init__(self, op: OpOverload, call: Call, native: Callable[..., Any], near: Near) -> None:
        self.call, self.near = call, near
        self.truth: Truth = truth_of_call(op, call.args, call.kwargs, _subnormal_numbers()(native), _rounding)
        self.found: tuple[Tensor, Tensor] | None = None  # the tensors of the difference

    def __call__(self, part: str, number: int, what: str, want: Tensor, have: Tensor) -> Difference | None:
        """Return the worst wrong value of a kernel, or None."""
        found = self._compared(part, number, what, want, have)
        self.found = None if found is None else (want, have)
        return found

    def _compared(self, part: str, number: int, what: str, want: Tensor, have: Tensor) -> Difference | None:
        near, truth = self.near, self.truth
        if not want.numel() or same_bits(want, have):
            return None
        want, have = resolved(want), resolved(have)
        if not (want.is_floating_point() or want.is_complex()):
            wrong = want != have
            return worst_difference(what, want, have, wrong, (want.to(torch.float64) - have.to(torch.float64)).abs())
        dtype = want.dtype
        kind = torch.complex128 if dtype.is_complex else torch.float64
        wanted, given = want.to(kind), have.to(kind)
        same = same_values(wanted, given)
        if dtype.is_complex:
            real, imag = same_values(wanted.real, given.real), same_values(wanted.imag, given.imag)
            # A complex number with an infinite part is infinity, whatever the other part is: eager's kernels return NaN there on
            # some processors, and the error of the other part is not defined.
            both = (real & wanted.real.isinf()) | (imag & wanted.imag.isinf())
            nan = (wanted.real + wanted.imag + given.real + given.imag).isnan()
            same = (real & imag) | (wanted.isnan() & given.isnan()) | (both & (nan | (near.ulps > 0)))
        if not bool(same.all()):
            found = truth.values(part, number)
            known = found is not None and found.shape == wanted.shape and found.dtype == kind
            true = torch.where(found.isinf() & wanted.isfinite(), wanted, found) if found is not None and known else wanted
            allowed = self._allowed(wanted, true, dtype, part, number)
            rounded = true.to(dtype).to(kind)  # values that are too large for the dtype become infinite
            close = (
                _within(given, true, allowed)
                | _within(given, wanted, allowed - (wanted - true).abs())
                | _within(given, rounded, allowed)
            )
            close |= _at_the_brim(given, true, dtype)
            if near.ulps and (not known or dtype in (torch.float64, torch.complex128)):
                close |= _short_of_infinity(given, wanted, dtype)
            wrong = ~same & ~close
            if dtype in _HALVES and bool(wrong.any()):
                wide = truth.in_float32(part, number)
                if wide is not None and wide.shape == want.shape:
                    wrong &= ~_within(given, wide.to(dtype).to(kind), allowed)
            if bool(wrong.any()):
                return worst_difference(what, want, have, wrong, (given - wanted).abs(), allowed)
        if near.zeros:
            wrong = _zero_signs_off(want, have)
            if bool(wrong.any()) and (dtype in _HALVES or not near.tiny) and dtype not in (torch.float64, torch.complex128):
                found = truth.values(part, number)  # a value that is too small may become a zero of either sign
                wrong &= (found == 0) if found is not None and found.shape == want.shape else wrong
            return worst_difference(f"the sign of zeros in {what}", want, have, wrong, torch.zeros(want.shape))
        return None

    def _allowed(self, want: Tensor, true: Tensor, dtype: torch.dtype, part: str, number: int) -> Tensor:
        near, exact = self.near, self.call.exact
        # Eager rounds each step of a float8 computation.
        rounding = _half_a_unit(true.abs(), dtype) * (4 if near.ulps and dtype.itemsize == 1 else 1)
        unit = _unit(dtype)
        size = torch.nan_to_num(true.abs(), nan=0.0, posinf=0.0).clamp(min=near.least)
        allowed = rounding + max(near.ulps, 0.5 if near.ulps or exact else 0.0) * unit * size
        smallest = 0.0 if near.tiny or exact else torch.finfo(torch.float64 if unit < 2.0**-40 else torch.float32).tiny
        if exact:
            return rounding + 2 * unit * size
        scale = size
        if near.of == "terms":
            terms = self.truth.terms(part, number)
            if terms is not None and terms.shape == true.shape:
                scale = torch.nan_to_num(terms.abs(), nan=0.0, posinf=0.0)
                allowed = rounding + (near.ulps + self._growth(true.numel())) * unit * scale
        if near.of in ("largest", "either"):
            scale = size.max().expand(size.shape) if size.numel() else size
            allowed = rounding + near.ulps * unit * scale
        if near.of in ("inputs", "either"):
            moved = self.truth.moved(part, number)
            if moved is not None:
                allowed = allowed + OF_INPUTS * moved
        beyond = torch.nan_to_num((want - true).abs() - rounding, nan=0.0, posinf=0.0).clamp(min=0.0)
        if near.of == "value":
            allowed = allowed + 2 * beyond
        else:
            share = (beyond / scale.clamp(min=1e-300)).max()
            allowed = allowed + 2 * torch.minimum(share * scale, beyond.max().expand(scale.shape))
        return allowed + smallest

    def _growth(self, size: int) -> float:
        """Return the allowed error of a sum of as many terms as a value has at most, in units."""
        tensors = tensors_of(self.call)
        count = max((one.numel() for one in tensors), default=1) / max(1, size)
        return one_by_one(count, any(map(is_repeated, tensors)))


def _within(have: Tensor, true: Tensor, allowed: Tensor) -> Tensor:
    return ((have - true).abs() <= allowed) | same_values(have, true)


def _at_the_brim(have: Tensor, true: Tensor, dtype: torch.dtype) -> Tensor:
    """Return which values are about as large as the dtype's largest, so that rounding may make them infinite."""
    if dtype.is_complex:
        return torch.zeros(have.shape, dtype=torch.bool)
    most = torch.finfo(dtype).max
    brim = (true.abs() > most * (1 - 1e-6)) & (true.abs() < most * (1 + 1e-2))
    return brim & (have.abs() >= most * (1 - 1e-2)) & (have.sign() == true.sign())


def _short_of_infinity(have: Tensor, want: Tensor, dtype: torch.dtype) -> Tensor:
    """Return where the kernel's value is large but finite, and eager's is infinite because its formula overflows too early."""
    if dtype.is_complex:
        return torch.zeros(have.shape, dtype=torch.bool)
    most = torch.finfo(dtype).max
    return want.isinf() & (have.abs() >= most / 4) & (have.abs() < most) & (have.sign() == want.sign())


def _unit(dtype: torch.dtype) -> float:
    """Return the relative rounding error of the precision in which eager computes a dtype."""
    return 2.0**-52 if dtype in (torch.float64, torch.complex128) else 2.0**-23


def _rounding(dtype: torch.dtype) -> float:
    return _unit(dtype) if tolerance_of(dtype) else 0.0


def _half_a_unit(true: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half the distance of neighbouring numbers of a 16-bit or 8-bit float dtype; 0 for others, whose specs include it."""
    if not dtype.is_floating_point or dtype.itemsize > 2:
        return torch.zeros(true.shape, dtype=torch.float64)
    info = torch.finfo(dtype)
    exponent = torch.frexp(true.abs().clamp(min=info.tiny, max=info.max))[1] - 1
    return torch.exp2(exponent.to(torch.float64)) * (info.eps / 2 * (1 + 1e-6))


def _zero_signs_off(want: Tensor, have: Tensor) -> Tensor:
    if want.is_complex():
        return torch.zeros(want.shape, dtype=torch.bool)
    return (want == 0) & (have == 0) & (torch.signbit(want) != torch.signbit(have))
