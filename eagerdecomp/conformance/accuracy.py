"""Check whether values are within the error that a spec allows."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.spec import Call, Near, tensors_of
from eagerdecomp.eager.observe import resolved
from eagerdecomp.eager.tolerance import WIDER, call_widened, same_bits, same_values, worst_index

__all__ = ["Off", "Truth", "is_repeated", "one_by_one", "values_off"]

# The error allowed for other algorithms is this many times the change of a value by rounded inputs.
_OF_INPUTS = 16.0

_FLOAT32 = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)


@dataclass(frozen=True)
class Off:
    """The worst wrong value.

    Attributes:
        index: its index.
        expected: eager's value.
        got: the kernel's value.
        allowed: the allowed error; None if it had to equal eager's.
        wrong: number of wrong values.
        of: number of values.
        about: ``values``, or ``the sign of zero``.
    """

    index: tuple[int, ...]
    expected: Any
    got: Any
    allowed: float | None
    wrong: int
    of: int
    about: str = "values"

    def text(self, what: str) -> str:
        """Return a sentence about it."""
        where = f", first at {list(self.index)}" if self.index else ""
        near = f" ({_off_by(self.got, self.expected)}{self.allowed:.2g} allowed)" if self.allowed is not None else ""
        return f"{self.wrong} of {self.of} {self.about} of {what} wrong{where}: {self.got!r}, eager {self.expected!r}{near}"


def _off_by(one: Any, other: Any) -> str:
    """Return the text of the distance of two numbers, or "" if it is not finite."""
    distance = math.hypot((one - other).real, (one - other).imag)  # `abs` of a complex number raises if it overflows
    return f"off by {distance:.3g}, " if math.isfinite(distance) else ""


class Truth:
    """A call in float64: the true values, and the scales by which errors are measured. They are computed when they are needed.

    A `number` is an index into the results of the call, followed by its tensor arguments after the call.

    Args:
        call: the call, with arguments that eager has not written.
        native: eager's kernel.
    """

    def __init__(self, call: Call, native: Callable[..., Any]) -> None:
        self._call, self._native = call, native
        self._runs: dict[Any, list[Any]] = {}

    def values(self, number: int) -> Tensor | None:
        """Return the true values of a result; None if the op cannot be computed in float64."""
        return self._leaf("values", number, _as_it_is)

    def in_float32(self, number: int) -> Tensor | None:
        """Return eager's float32 results for float16 and bfloat16 inputs. These are right too, even if eager's formulas differ."""
        if "float32" not in self._runs:
            self._runs["float32"] = self._run(_as_it_is, _FLOAT32)
        leaves = self._runs["float32"]
        leaf = leaves[number] if number < len(leaves) else None
        return resolved(leaf) if isinstance(leaf, Tensor) and leaf.is_floating_point() else None

    def terms(self, number: int) -> Tensor | None:
        """Return the result of the op on absolute values."""
        return self._leaf("terms", number, _absolute)

    def moved(self, number: int) -> Tensor | None:
        """Return how much each value changes if the inputs are rounded once more in the precision of the computation."""
        true, found = self.values(number), None
        for seed, side in ((0, 1.0), (0, -1.0), (1, 1.0), (1, -1.0)):
            draws = torch.Generator().manual_seed(seed)
            away = self._leaf(("moved", seed, side), number, functools.partial(_nudged, side, draws))
            if true is None or away is None or away.shape != true.shape:
                return None
            step = torch.nan_to_num((away - true).abs(), nan=0.0, posinf=0.0)
            found = step if found is None else torch.maximum(found, step)
        return found

    def terms_count(self, size: int) -> float:
        """Return the maximum number of terms of each value."""
        return max((one.numel() for one in tensors_of(self._call)), default=1) / max(1, size)

    def growth(self, size: int) -> float:
        """Return the allowed error of a sum of that many terms, in units."""
        return one_by_one(self.terms_count(size), any(is_repeated(one) for one in tensors_of(self._call)))

    def _leaf(self, name: Any, number: int, change: Callable[[Any, torch.dtype], Any]) -> Tensor | None:
        if name not in self._runs:
            self._runs[name] = self._run(change)
        leaves = self._runs[name]
        if number >= len(leaves) or not isinstance(leaves[number], Tensor):
            return None
        leaf = resolved(leaves[number])
        return leaf if leaf.dtype in (torch.float64, torch.complex128) else None

    def _run(self, change: Callable[[Any, torch.dtype], Any], wider: Mapping[torch.dtype, torch.dtype] = WIDER) -> list[Any]:
        # Integers in a call with floats are indices, which must not change.
        whole = not any(one.is_floating_point() or one.is_complex() for one in tensors_of(self._call))

        def changed(value: Any, dtype: torch.dtype) -> Any:
            inexact = dtype.is_floating_point or dtype.is_complex
            value = value.clone() if isinstance(value, Tensor) and value.dtype is dtype else value  # because the call may write it
            return change(value, dtype) if inexact or (whole and change is _absolute) else value

        with _subnormal_numbers():
            seen = call_widened(self._native, self._call.args, self._call.kwargs, changed, wider)
        return [] if seen.error is not None else [*seen.leaves, *seen.inputs]


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


def _as_it_is(value: Any, dtype: torch.dtype) -> Any:
    return value


def _absolute(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, float) or value.dtype is torch.bool:
        return abs(value) if isinstance(value, float) else value
    found: Tensor = value.abs().to(value.dtype)
    if found.is_floating_point() or found.is_complex():
        return found
    return torch.where(found < 0, torch.iinfo(found.dtype).max, found)  # the smallest integer has no absolute value


def _nudged(side: float, draws: torch.Generator, value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, float):
        return value
    unit = 2.0**-52 if dtype in (torch.float64, torch.complex128) else 2.0**-23
    # Change each value by at least half a unit. In float64, rounding would undo a smaller change.
    return value * (1 + side * unit * (1 + torch.rand(value.shape, generator=draws, dtype=torch.float64)) / 2)


def is_repeated(tensor: Tensor) -> bool:
    """Return whether a tensor is expanded, so that it repeats its elements."""
    return any(size > 1 and not stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True))


def one_by_one(count: float, repeated: bool) -> float:
    """Return the allowed error of a sum computed term by term. If terms repeat, their rounding errors have the same direction."""
    return max(1.25 * math.sqrt(count), count / 4 if repeated else 0.0)


# -- comparing ---------------------------------------------------------------------------------------------------------------


def values_off(want: Tensor, have: Tensor, near: Near, exact: bool, number: int, truth: Truth) -> Off | None:
    """Return the worst wrong value of a kernel, or None.

    Args:
        want: eager's values.
        have: the kernel's values, of the same dtype and shape.
        near: the allowed error.
        exact: whether the values must be the true ones, rounded once.
        number: the index of the result in `truth`.
        truth: the true values.
    """
    if not want.numel() or same_bits(want, have):
        return None
    want, have = resolved(want), resolved(have)
    if not (want.is_floating_point() or want.is_complex()):
        wrong = want != have
        return _worst(want, have, wrong, None) if bool(wrong.any()) else None
    dtype = want.dtype
    kind = torch.complex128 if dtype.is_complex else torch.float64
    wanted, given = want.to(kind), have.to(kind)
    same = same_values(wanted, given)
    if dtype.is_complex:
        real, imag = same_values(wanted.real, given.real), same_values(wanted.imag, given.imag)
        # A complex number with an infinite part is infinity, whatever the other part is: eager's kernels return NaN there on some
        # processors, and the error of the other part is not defined.
        both = (real & wanted.real.isinf()) | (imag & wanted.imag.isinf())
        nan = (wanted.real + wanted.imag + given.real + given.imag).isnan()
        same = (real & imag) | (wanted.isnan() & given.isnan()) | (both & (nan | (near.ulps > 0)))
    if not bool(same.all()):
        found = truth.values(number)
        known = found is not None and found.shape == wanted.shape and found.dtype == kind
        true = torch.where(found.isinf() & wanted.isfinite(), wanted, found) if found is not None and known else wanted
        allowed = _allowed(wanted, true, dtype, near, exact, number, truth)
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
        if dtype in _FLOAT32 and bool(wrong.any()):
            wide = truth.in_float32(number)
            if wide is not None and wide.shape == want.shape:
                wrong &= ~_within(given, wide.to(dtype).to(kind), allowed)
        if bool(wrong.any()):
            return _worst(want, have, wrong, allowed)
    if near.zeros:
        wrong = _zero_signs_off(want, have)
        halves = dtype in (torch.float16, torch.bfloat16)
        if bool(wrong.any()) and (halves or not near.tiny) and dtype not in (torch.float64, torch.complex128):
            found = truth.values(number)  # a value that is too small may become a zero of either sign
            wrong &= (found == 0) if found is not None and found.shape == want.shape else wrong
        if bool(wrong.any()):
            return _worst(want, have, wrong, None, "zeros (their sign)")
    return None


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


def _half_a_unit(true: Tensor, dtype: torch.dtype) -> Tensor:
    """Return half the distance of neighbouring float16 or bfloat16 numbers; 0 for other dtypes, whose specs include it."""
    if dtype not in (torch.float16, torch.bfloat16):
        return torch.zeros(true.shape, dtype=torch.float64)
    info = torch.finfo(dtype)
    exponent = torch.frexp(true.abs().clamp(min=info.tiny, max=info.max))[1] - 1
    return torch.exp2(exponent.to(torch.float64)) * (info.eps / 2 * (1 + 1e-6))


def _allowed(want: Tensor, true: Tensor, dtype: torch.dtype, near: Near, exact: bool, number: int, truth: Truth) -> Tensor:
    rounding = _half_a_unit(true.abs(), dtype)
    unit = _unit(dtype)
    size = torch.nan_to_num(true.abs(), nan=0.0, posinf=0.0).clamp(min=near.least)
    allowed = rounding + max(near.ulps, 0.5 if near.ulps or exact else 0.0) * unit * size
    smallest = 0.0 if near.tiny or exact else torch.finfo(torch.float64 if unit < 2.0**-40 else torch.float32).tiny
    if exact:
        return rounding + 2 * unit * size
    scale = size
    if near.of == "terms":
        terms = truth.terms(number)
        if terms is not None and terms.shape == true.shape:
            scale = torch.nan_to_num(terms.abs(), nan=0.0, posinf=0.0)
            allowed = rounding + (near.ulps + truth.growth(true.numel())) * unit * scale
    elif near.of == "inputs":
        moved = truth.moved(number)
        if moved is not None:
            allowed = allowed + _OF_INPUTS * moved
    elif near.of == "largest":
        scale = size.max().expand(size.shape)
        allowed = rounding + near.ulps * unit * scale
    beyond = torch.nan_to_num((want - true).abs() - rounding, nan=0.0, posinf=0.0).clamp(min=0.0)
    if near.of == "value":
        allowed = allowed + 2 * beyond
    else:
        share = (beyond / scale.clamp(min=1e-300)).max()
        allowed = allowed + 2 * torch.minimum(share * scale, beyond.max().expand(scale.shape))
    return allowed + smallest


def _zero_signs_off(want: Tensor, have: Tensor) -> Tensor:
    if want.is_complex():
        return torch.zeros(want.shape, dtype=torch.bool)
    return (want == 0) & (have == 0) & (torch.signbit(want) != torch.signbit(have))


def _worst(want: Tensor, have: Tensor, wrong: Tensor, allowed: Tensor | None, about: str = "values") -> Off:
    at = worst_index(wrong.to(torch.uint8))
    bound = None if allowed is None else float(allowed[at])
    return Off(at, want[at].item(), have[at].item(), bound, int(wrong.sum()), want.numel(), about)
