"""The allowed error of a value by dtype, and the additional error that a run of the call in float64 justifies."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from eagerdecomp.eager.observe import Caught, Observed, leaves_of, mapped_call, nesting_of, resolved
from eagerdecomp.ops.schema import tensors_in

__all__ = [
    "OF_INPUTS",
    "WIDER",
    "Change",
    "Tolerance",
    "TrueValues",
    "Truth",
    "allowed_error",
    "bits_of",
    "call_widened",
    "nudge",
    "ordered_bits",
    "rounded",
    "rounding_of",
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
    """The allowed difference of a value of one dtype from eager's. The terms are added.

    Attributes:
        relative: relative to the value.
        of_largest: relative to the largest finite value of the tensor.
        rounding: the relative rounding error of the precision in which eager computes.
        absolute: absolute error.
    """

    relative: float
    of_largest: float
    rounding: float
    absolute: float = 0.0


def _tolerance(relative: float, of_largest: float, rounding: float, dtype: torch.dtype) -> Tolerance:
    info = torch.finfo(dtype)
    return Tolerance(relative, of_largest, rounding, 2 * (info.tiny if info.bits >= 32 else info.smallest_normal / 64))


# float16 and bfloat16 are computed in float32 and rounded once; two roundings are allowed, because eager may round to either side.
# float64 inputs are changed by more than one rounding, because no wider dtype is available to compute the effect of one.
_TOLERANCES = {
    torch.float64: _tolerance(1e-9, 1e-11, 2.0**-46, torch.float64),
    torch.float32: _tolerance(2e-6, 5e-7, 2.0**-23, torch.float32),
    torch.bfloat16: _tolerance(2.0**-6, 5e-7, 2.0**-23, torch.bfloat16),
    torch.float16: _tolerance(2.0**-9, 5e-7, 2.0**-23, torch.float16),
    torch.complex32: _tolerance(2.0**-9, 5e-7, 2.0**-23, torch.float32),
}

# (relative, absolute) of `torch.testing.assert_close`. Values of other dtypes must be equal.
_ASSERT_CLOSE = {
    torch.float64: (1e-7, 1e-7),
    torch.float32: (1.3e-6, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float16: (1e-3, 1e-5),
}

_REAL = {torch.complex128: torch.float64, torch.complex64: torch.float32, torch.complex32: torch.float16}

#: Dtype -> the dtype in which the true values are computed.
WIDER = {
    **dict.fromkeys((torch.float16, torch.bfloat16, torch.float32), torch.float64),
    **dict.fromkeys((torch.complex32, torch.complex64), torch.complex128),
}

_FLOAT32 = dict.fromkeys((torch.float16, torch.bfloat16), torch.float32)

#: ``change(value, dtype)`` returns another value for a widened tensor or a float, whose original dtype is `dtype`.
Change: TypeAlias = Callable[[Any, torch.dtype], Any]

#: Factor in the allowed error: for the change that rounding the inputs causes.
OF_INPUTS = 16
# Likewise for eager's own error.
_OF_EAGER = 4

# The number of random roundings of the inputs.
_ROUNDINGS = 4


def tolerance_of(dtype: torch.dtype) -> Tolerance | None:
    """Return the allowed error for a dtype; None for integers, which must be equal."""
    if not (dtype.is_floating_point or dtype.is_complex):
        return None
    known = _TOLERANCES.get(dtype) or _TOLERANCES.get(_REAL.get(dtype, dtype))
    return known or _tolerance(2 * torch.finfo(dtype).eps, 5e-7, 2.0**-23, torch.float32)


def rounding_of(dtype: torch.dtype) -> float:
    """Return the relative error of one rounding in the precision in which eager computes a dtype; 0 for integers."""
    tolerance = tolerance_of(dtype)
    return 0.0 if tolerance is None else tolerance.rounding


def tolerance_of_assert_close(dtype: torch.dtype, slack: float = 1) -> Tolerance | None:
    """Return the tolerance of `torch.testing.assert_close` times `slack`; None for dtypes that must be equal."""
    dtype = _REAL.get(dtype, dtype)
    if not dtype.is_floating_point:
        return None
    relative, absolute = _ASSERT_CLOSE.get(dtype, (0.0, 0.0))
    return Tolerance(slack * relative, 0.0, 2.0**-23, slack * absolute)


# -- equality ----------------------------------------------------------------------------------------------------------------

_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def same_number(one: Any, other: Any) -> bool:
    """Return whether two Python values have the same type and are equal; NaN equals NaN."""
    return type(one) is type(other) and bool(one == other or (one != one and other != other))


def same_values(one: Tensor, other: Tensor) -> Tensor:
    """Return where two tensors are equal or both NaN."""
    return (one == other) | (one.isnan() & other.isnan())


def bits_of(tensor: Tensor) -> Tensor:
    """Return the bits of each element (of a complex element, of each part) as an integer."""
    tensor = resolved(tensor).contiguous()
    tensor = torch.view_as_real(tensor) if tensor.dtype.is_complex else tensor
    return tensor.view(_BITS[tensor.element_size()])


def same_bits(one: Tensor, other: Tensor) -> bool:
    """Return whether two tensors of one dtype and shape have the same bits."""
    return torch.equal(bits_of(one), bits_of(other))


def ordered_bits(values: Tensor) -> Tensor | None:
    """Return the rank of each value among all values of its dtype, 0 for both zeros; None for integers and float8."""
    if values.dtype.is_complex or values.dtype not in _TOLERANCES:
        return None
    bits = bits_of(values)
    return torch.where(bits >= 0, bits, torch.iinfo(bits.dtype).min - bits).to(torch.int64)


def worst_index(badness: Tensor) -> tuple[int, ...]:
    """Return the index of the largest element, the first one of several."""
    return tuple(int(one) for one in torch.unravel_index(badness.argmax(), badness.shape))


# -- closeness ---------------------------------------------------------------------------------------------------------------


def allowed_error(values: Tensor, tolerance: Tolerance) -> Tensor:
    """Return the allowed error of each value of a tensor in float64 or complex128."""
    size = values.abs()
    finite = torch.where(size.isfinite(), size, _finite_part(values) if values.is_complex() else 0.0)
    return tolerance.relative * finite + tolerance.of_largest * finite.max() + tolerance.absolute


def _finite_part(values: Tensor) -> Tensor:
    """Return the magnitude of the finite part of complex numbers that are not finite."""
    return torch.nan_to_num(torch.view_as_real(values), 0.0, 0.0, 0.0).abs().amax(-1)


def wrong_values(want: Tensor, have: Tensor, allowed: Tensor) -> Tensor:
    """Return where values are neither equal nor within the allowed error."""
    same = same_values(want, have)
    if want.is_complex() and not bool(want.isfinite().all()):  # a part may be finite beside one that is not
        parts = wrong_values(torch.view_as_real(want), torch.view_as_real(have), allowed.unsqueeze(-1))
        same = same | (~want.isfinite() & ~parts.any(-1))
    return ~same & ~((have - want).abs() <= allowed)


# -- true values -------------------------------------------------------------------------------------------------------------


class TrueValues(NamedTuple):
    """The true values of a result.

    Attributes:
        values: in float64 or complex128.
        moved: how much each changes if the inputs are rounded.
        eager_off: eager's error for inputs nearby, if it is known.
    """

    values: Tensor
    moved: Tensor
    eager_off: float = 0.0


def within_truth(
    wrong: Tensor, want: Tensor, have: Tensor, known: TrueValues, tolerance: Tolerance, dtype: torch.dtype, loose: float
) -> tuple[Tensor, Tensor]:
    """Return which elements are close neither to eager's values nor to the true values, and the allowed error."""
    allowed = allowed_error(known.values, tolerance) + OF_INPUTS * torch.where(known.moved.isfinite(), known.moved, 0.0)
    beyond = (want - known.values).abs() - allowed
    excess = torch.where(beyond.isfinite(), beyond, 0.0).max().clamp(min=known.eager_off)
    allowed = loose * (allowed + _OF_EAGER * excess)
    # Values that are too large for the dtype become infinite.
    rounded = known.values.to(torch.complex64 if dtype is torch.complex32 else dtype).to(known.values.dtype)
    return wrong & wrong_values(known.values, have, allowed) & wrong_values(rounded, have, allowed), allowed


class Truth:
    """A call in a wider precision: the true values, and the scales by which errors are measured. Each run starts when it is needed.

    A `part` of a call is ``leaves``, its results, or ``inputs``, its tensor arguments afterwards.

    Args:
        run: ``run(change, wider)`` runs the call with each tensor in the dtype that `wider` has for its own, changed by
            ``change(value, dtype)``. `dtype` is the original one.
        inexact: whether any input can be rounded.
        rounding: returns the relative error of one rounding of an input; 0 for a dtype that is exact.
    """

    def __init__(
        self,
        run: Callable[[Change, Mapping[torch.dtype, torch.dtype]], Observed],
        *,
        inexact: bool = True,
        rounding: Callable[[torch.dtype], float] = rounding_of,
    ) -> None:
        self._run, self._rounding = run, rounding
        self._runs: dict[Any, Observed] = {}
        # Each is run twice, the second time in the opposite directions.
        self._roundings = [(seed, side) for seed in range(1, _ROUNDINGS + 1) for side in (1, -1)] if inexact else []

    def __call__(self, part: str, number: int) -> TrueValues | None:
        """Return the true values of a result, and how much they move; None if they are not known."""
        true, moved = self.values(part, number), self.moved(part, number)
        return None if true is None or moved is None else TrueValues(true, moved)

    def values(self, part: str, number: int) -> Tensor | None:
        """Return the true values of a result; None if the op cannot be computed in a wider precision."""
        return self._leaf(_as_it_is, part, number)

    def in_float32(self, part: str, number: int) -> Tensor | None:
        """Return eager's float32 results for float16 and bfloat16 inputs. These are right too, even if eager's formulas differ."""
        return self._leaf("float32", part, number, _FLOAT32, (torch.float32, torch.float64))

    def terms(self, part: str, number: int) -> Tensor | None:
        """Return the result of the op on absolute values."""
        return self._leaf(_absolute, part, number)

    def moved(self, part: str, number: int) -> Tensor | None:
        """Return how much each value changes if the inputs are rounded once more in the precision of the computation."""
        true = self.values(part, number)
        found = [self._leaf(one, part, number) for one in self._roundings]
        if true is None or any(one is None or one.shape != true.shape for one in found):
            return None
        away = [torch.nan_to_num((one - true).abs(), nan=0.0, posinf=0.0) for one in found if one is not None]
        # At a jump of the function, one of the two sides crosses the jump. The smaller change is the effect of rounding.
        pairs = [torch.minimum(up, down) for up, down in zip(away[::2], away[1::2], strict=True)]
        return torch.stack(pairs).amax(0) if pairs else torch.zeros(())

    def _leaf(
        self,
        name: Any,
        part: str,
        number: int,
        wider: Mapping[torch.dtype, torch.dtype] = WIDER,
        dtypes: Sequence[torch.dtype] = (torch.float64, torch.complex128),
    ) -> Tensor | None:
        if name not in self._runs:
            change = name if callable(name) else _as_it_is
            change = rounded(name[0], name[1], self._rounding) if isinstance(name, tuple) else change
            with Caught() as caught:
                self._runs[name] = self._run(change, wider)
            if caught.error is not None:
                self._runs[name] = Observed([], None, [], caught.error, (), ())
        run = self._runs[name]
        leaves = [] if run.error is not None else getattr(run, part)
        leaf = leaves[number] if number < len(leaves) else None
        return resolved(leaf) if isinstance(leaf, Tensor) and leaf.dtype in dtypes else None


def _as_it_is(value: Any, dtype: torch.dtype) -> Any:
    return value


def _absolute(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, float) or value.dtype is torch.bool:
        return abs(value) if isinstance(value, float) else value
    found: Tensor = value.abs().to(value.dtype)
    if found.is_floating_point() or found.is_complex():
        return found
    return torch.where(found < 0, torch.iinfo(found.dtype).max, found)  # the smallest integer has no absolute value


def rounded(seed: int, side: int, rounding: Callable[[torch.dtype], float] = rounding_of) -> Change:
    """Return a function that changes each element by one rounding. `seed` decides which go up; the other `side` reverses this."""
    draws = torch.Generator().manual_seed(seed)

    def change(value: Any, dtype: torch.dtype) -> Any:
        error = rounding(dtype)
        return nudge(value, error * side, draws) if error and isinstance(value, Tensor) else value

    return change


def nudge(tensor: Tensor, rounding: float, draws: torch.Generator) -> Tensor:
    """Change each element by the relative error `rounding`, up or down at random. A negative `rounding` reverses all directions."""
    signs = torch.randint(0, 2, tensor.shape, generator=draws, dtype=torch.float64).mul_(2).sub_(1).to(tensor.device)
    return tensor * (1 + rounding * signs)


def call_widened(
    native: Callable[..., Any],
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    change: Change,
    wider: Mapping[torch.dtype, torch.dtype] = WIDER,
) -> Observed:
    """Run a call in a wider precision, and return its results and effects without aliases.

    Args:
        native: runs the call.
        args: positional arguments; those that `change` returns unchanged may be written.
        kwargs: keyword arguments.
        change: called with each widened tensor or Python float.
        wider: dtype -> wider dtype.
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

    widened, named = mapped_call(wide, args, kwargs)
    result = None
    with Caught() as caught:
        result = native(*widened, **named)
    inputs = list(tensors_in([*widened, *named.values()]))
    return Observed(list(leaves_of(result)), nesting_of(result), inputs, caught.error, (), ())
