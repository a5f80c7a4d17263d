"""Tolerance: how far a value may be from eager's, per dtype, and what a run of the call in float64 adds to that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp.eager.observe import Caught, Observed, leaves_of, mapped, nesting_of, resolved

__all__ = [
    "WIDER",
    "Tolerance",
    "TrueValues",
    "Truth",
    "allowed_error",
    "bits_of",
    "call_widened",
    "nudge",
    "ordered_bits",
    "same_bits",
    "same_number",
    "same_values",
    "tolerance_of",
    "tolerance_of_assert_close",
    "within_truth",
    "worst_index",
    "wrong_values",
]


class Tolerance(NamedTuple):
    """How far from eager's a value of one dtype may be. The terms add up.

    Attributes:
        relative: of the value itself.
        of_largest: of the largest finite value of its tensor.
        rounding: the relative distance of numbers in the precision that eager computes in.
        absolute: the same for every value.
    """

    relative: float
    of_largest: float
    rounding: float
    absolute: float = 0.0


def _tolerance(relative: float, of_largest: float, rounding: float, dtype: torch.dtype) -> Tolerance:
    info = torch.finfo(dtype)
    return Tolerance(relative, of_largest, rounding, 2 * (info.tiny if info.bits >= 32 else info.smallest_normal / 64))


# 16-bit floats are computed in float32 and rounded once; two roundings are fine, since eager's may fall to either side. Inputs in
# float64 are moved by more than one rounding: nothing wider shows what that does, and its own roundings would hide it.
_TOLERANCES = {
    torch.float64: _tolerance(1e-9, 1e-11, 2.0**-46, torch.float64),
    torch.float32: _tolerance(2e-6, 5e-7, 2.0**-23, torch.float32),
    torch.bfloat16: _tolerance(2.0**-6, 5e-7, 2.0**-23, torch.bfloat16),
    torch.float16: _tolerance(2.0**-9, 5e-7, 2.0**-23, torch.float16),
    torch.complex32: _tolerance(2.0**-9, 5e-7, 2.0**-23, torch.float32),
}

# Relative and absolute, as `torch.testing.assert_close` has them. All other dtypes must be equal.
_ASSERT_CLOSE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
}

_REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}

#: The dtype in which a call shows the true values.
WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}

# How many times what rounding the inputs changes, and what eager is off by, a value may be off.
_OF_INPUTS = 16
_OF_EAGER = 4

# How often the inputs are rounded again, each time up and down.
_ROUNDINGS = 4


def tolerance_of(dtype: torch.dtype) -> Tolerance | None:
    """How far from eager's values of a dtype may be; None for integers, which must be eager's."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return None
    known = _TOLERANCES.get(dtype) or _TOLERANCES.get(_REAL.get(dtype, dtype))
    return known or _tolerance(2 * torch.finfo(dtype).eps, 5e-7, 2.0**-23, torch.float32)


def tolerance_of_assert_close(dtype: torch.dtype, slack: float = 1) -> Tolerance | None:
    """How far values may be apart by `torch.testing.assert_close`, or `slack` times that; None where they must be equal."""
    dtype = _REAL.get(dtype, dtype)
    if not dtype.is_floating_point:
        return None
    relative, absolute = _ASSERT_CLOSE.get(dtype, (0.0, 0.0))
    return Tolerance(slack * relative, 0.0, 2.0**-23, slack * absolute)


# -- what is the same --------------------------------------------------------------------------------------------------------

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_number(one: Any, other: Any) -> bool:
    """Whether two values that are no tensors are the same, of one type; NaN is NaN."""
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def same_values(one: Tensor, other: Tensor) -> Tensor:
    """Where two tensors are equal, or both NaN."""
    return (one == other) | (one.isnan() & other.isnan())


def bits_of(tensor: Tensor) -> Tensor:
    """The bits of each element (of a complex one, of each part) as an integer."""
    tensor = resolved(tensor).contiguous()
    tensor = torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor
    return tensor.view(_BITS[tensor.element_size()])


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Whether two tensors of one dtype and shape hold the same bits."""
    return torch.equal(bits_of(one), bits_of(other))


def ordered_bits(values: Tensor) -> Tensor | None:
    """The number of each value in the row of all values of its dtype, both zeros being 0; None for integers and float8."""
    if values.dtype.is_complex or values.dtype not in _TOLERANCES:
        return None
    bits = bits_of(values)
    return torch.where(bits >= 0, bits, torch.iinfo(bits.dtype).min - bits).to(torch.int64)


def worst_index(badness: Tensor) -> tuple[int, ...]:
    """The index of the largest element, the first of several."""
    return tuple(int(one) for one in torch.unravel_index(badness.argmax(), badness.shape))


# -- what is near ------------------------------------------------------------------------------------------------------------


def allowed_error(values: Tensor, tolerance: Tolerance) -> Tensor:
    """How far each value may be off, of a tensor in float64 or complex128."""
    size = values.abs()
    finite = torch.where(size.isfinite(), size, _finite_part(values) if values.is_complex() else 0.0)
    return tolerance.relative * finite + tolerance.of_largest * finite.max() + tolerance.absolute


def _finite_part(values: Tensor) -> Tensor:
    """The size of what is finite of complex numbers that are not."""
    return torch.nan_to_num(torch.view_as_real(values), 0.0, 0.0, 0.0).abs().amax(-1)


def wrong_values(want: Tensor, have: Tensor, allowed: Tensor) -> Tensor:
    """Where values are neither the same nor within what is allowed."""
    same = same_values(want, have)
    if want.is_complex() and not bool(want.isfinite().all()):  # a part may be finite beside one that is not
        parts = wrong_values(torch.view_as_real(want), torch.view_as_real(have), allowed.unsqueeze(-1))
        same = same | (~want.isfinite() & ~parts.any(-1))
    return ~same & ~((have - want).abs() <= allowed)


# -- the truth ---------------------------------------------------------------------------------------------------------------


class TrueValues(NamedTuple):
    """The true values of a result.

    Attributes:
        values: in float64 or complex128.
        moved: how far rounding the inputs moves each.
        eager_off: how far eager is off for inputs nearby, if that is known.
    """

    values: Tensor
    moved: Tensor
    eager_off: float = 0.0


def within_truth(
    wrong: Tensor, want: Tensor, have: Tensor, known: TrueValues, tolerance: Tolerance, dtype: torch.dtype, loose: float
) -> tuple[Tensor, Tensor]:
    """Return which of the elements not near eager's are not near the true values either, and the allowed error."""
    allowed = allowed_error(known.values, tolerance) + _OF_INPUTS * torch.where(known.moved.isfinite(), known.moved, 0.0)
    beyond = (want - known.values).abs() - allowed
    excess = torch.where(beyond.isfinite(), beyond, 0.0).max().clamp(min=known.eager_off)
    allowed = loose * (allowed + _OF_EAGER * excess)
    # What is too large for the dtype is infinite.
    rounded = known.values.to(torch.complex64 if dtype is torch.complex32 else dtype).to(known.values.dtype)
    return wrong & wrong_values(known.values, have, allowed) & wrong_values(rounded, have, allowed), allowed


class Truth:
    """A call in float64, and what rounding its inputs changes; made when it is asked for.

    Args:
        run: makes the call in float64: ``run(seed, side)`` with each input moved by one rounding, to the other side for the other
            sign of `side`; as they are where that is 0.
        inexact: whether any input can be rounded.
    """

    def __init__(self, run: Callable[[int, int], Observed], *, inexact: bool = True) -> None:
        self._run, self._inexact = run, inexact
        self._runs: list[Observed] | None = None

    def __call__(self, part: str, number: int) -> TrueValues | None:
        """The true values of one of the ``leaves`` or ``inputs`` that the call left behind; None where float64 shows none."""
        if self._runs is None:
            self._runs = []
            with Caught() as caught:
                sides = [(0, 0), *((seed, side) for seed in range(1, _ROUNDINGS + 1) for side in (1, -1))]
                self._runs += [self._run(*one) for one in (sides if self._inexact else sides[:1])]
            if caught.error is not None or any(one.error is not None or one.nesting != self._runs[0].nesting for one in self._runs):
                self._runs = []
        found = [getattr(one, part)[number] for one in self._runs]
        wide = all(isinstance(one, Tensor) and one.dtype in (torch.float64, torch.complex128) for one in found)
        if not found or not wide or any(one.shape != found[0].shape for one in found):
            return None
        true, *moved = [resolved(one) for one in found]
        away = [torch.nan_to_num((one - true).abs(), nan=0.0, posinf=0.0) for one in moved]
        if not away:
            return TrueValues(true, torch.zeros(()))
        # Of a step of a function that jumps there, one side alone says what rounding does to it.
        pairs = [torch.minimum(up, down) for up, down in zip(away[::2], away[1::2], strict=True)]
        return TrueValues(true, torch.stack(pairs).amax(0))


def nudge(tensor: Tensor, rounding: float, draws: torch.Generator) -> Tensor:
    """The tensor with each element moved up or down by so much of itself, to the other side for the other sign."""
    signs = torch.randint(0, 2, tensor.shape, generator=draws, dtype=torch.float64).mul_(2).sub_(1).to(tensor.device)
    return tensor * (1 + rounding * signs)


def call_widened(
    native: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    change: Callable[[Any, torch.dtype], Any],
    wider: Mapping[torch.dtype, torch.dtype] = WIDER,
) -> Observed:
    """Make a call in a wider precision; of what it leaves behind all but what is a view of what.

    Args:
        args, kwargs: those that `change` returns as they are may be written.
        change: what becomes of each tensor, widened already, and of each Python float; with the dtype that it had.
    """
    made: dict[int, Tensor] = {}

    def wide(value: Any) -> Any:
        if isinstance(value, Tensor):
            if id(value) not in made:
                given = resolved(value)
                made[id(value)] = change(given.to(wider.get(given.dtype, given.dtype)), given.dtype)
            return made[id(value)]
        if isinstance(value, torch.dtype):
            return wider.get(value, value)
        return change(value, torch.float64) if type(value) is float else value

    widened, named = [mapped(value, wide) for value in args], {name: mapped(value, wide) for name, value in kwargs.items()}
    result = None
    with Caught() as caught:
        result = native(*widened, **named)
    inputs = [one for one in leaves_of([*widened, *named.values()]) if isinstance(one, Tensor)]
    return Observed(list(leaves_of(result)), nesting_of(result), inputs, caught.error, (), ())
