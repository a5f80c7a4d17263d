"""Verified: what is to be checked against plain eager while a program runs, and what that found, as values."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagerdecomp.errors import ArgumentError
from eagerdecomp.verify.findings import Blame

__all__ = ["Verified", "Verify", "as_verify"]


@dataclass(frozen=True)
class Verify:
    """Which calls are checked against native eager on the CPU while a program runs, and what becomes of a difference.

    Attributes:
        every: of the calls of one kind (an op or kernel, and the dtypes, shapes and strides of its tensors) one of so many is
            checked: 1 for all.
        first: so many calls of each kind are checked before that. Beyond 64 kinds of an op or kernel, calls of others count
            together and have no first ones.
        on_difference: ``"raise"`` ends the call as a `DifferenceError`; ``"record"`` goes on with the backend's result.
        tolerance: how many times what is taken for rounding a value may be off.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> def wrong(x):
        ...     return torch.ops.aten.sigmoid(x) * 1.01
        >>> backend = ed.Backend("mine", ed.core_aten(), kernels={"aten.sigmoid.default": wrong})
        >>> try:
        ...     with ed.EagerDecompMode(backend, verify=ed.Verify()):
        ...         torch.nn.functional.silu(x)
        ... except ed.DifferenceError as error:
        ...     print(str(error).splitlines()[0])
        aten.sigmoid.default differs from eager
    """

    every: int = 100
    first: int = 3
    on_difference: Literal["raise", "record"] = "raise"
    tolerance: float = 1.0

    def __post_init__(self) -> None:
        for name, least in (("every", 1), ("first", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < least:
                raise ArgumentError(f"{name} must be an integer from {least} up, not {value!r}")
        if self.on_difference not in ("raise", "record"):
            raise ArgumentError(f'on_difference must be "raise" or "record", not {self.on_difference!r}')
        if type(self.tolerance) not in (int, float) or not 1.0 <= self.tolerance < float("inf"):
            raise ArgumentError(f"tolerance must be a finite number from 1 up, not {self.tolerance!r}")


def as_verify(given: Verify | str | None) -> Verify | None:
    """Resolve `verify=`: ``"cpu"`` is ``Verify()``.

    Raises:
        ArgumentError: for anything else.
    """
    if given is None or isinstance(given, Verify):
        return given
    if given == "cpu":
        return Verify()
    raise ArgumentError(f'verify must be "cpu" or an eagerdecomp.Verify(...), not {given!r}. Leave it out to compare nothing')


@dataclass(frozen=True)
class Verified:
    """The checks so far; true where anything differed. Prints as text; `as_dict` gives plain values for JSON.

    Attributes:
        checked: by the op called, or the kernel's op, how many calls were held to eager.
        random: of those how many drew random numbers, of which only dtypes, shapes and strides are compared.
        skipped: calls that could not be compared, by the reason.
        found: the differences, each with whom to blame; a difference that came again is counted in the first one's `times`.
        left_out: how many more there were than are kept.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> with ed.EagerDecompMode(ed.core_aten(), verify="cpu") as mode:
        ...     y = torch.nn.functional.silu(x)
        >>> bool(mode.verified)
        False
    """

    checked: Mapping[str, int] = field(default_factory=dict)
    random: int = 0
    skipped: Mapping[str, int] = field(default_factory=dict)
    found: tuple[Blame, ...] = ()
    left_out: int = 0

    @property
    def calls(self) -> int:
        """How many calls were checked."""
        return sum(self.checked.values())

    @property
    def differences(self) -> int:
        """How many of them differed."""
        return sum(one.times for one in self.found) + self.left_out

    def __bool__(self) -> bool:
        return bool(self.found)

    def as_dict(self) -> dict[str, Any]:
        """Return the counts and findings as plain values, for JSON."""
        plain: dict[str, Any] = {
            "calls": self.calls,
            "differences": self.differences,
            "random": self.random,
            "left_out": self.left_out,
        }
        return {
            **plain,
            "checked": dict(self.checked),
            "skipped": dict(self.skipped),
            "found": [one.as_dict() for one in self.found],
        }

    def __str__(self) -> str:
        return "\n".join(_text(self))


def _text(one: Verified) -> Iterator[str]:
    times = one.differences
    many = f"{times} differences" if times > 1 else "a difference" if times else "no difference"
    yield (
        f"{many} from eager: {one.calls} calls checked, of {len(one.checked)} ops and kernels"
        if one.calls
        else "nothing was checked: no call was decomposed, and none run by a kernel that the backend brings"
    )
    if one.random:
        yield f"  {one.random} of them drew random numbers: their values were not compared"
    for reason, calls in one.skipped.items():
        yield f"  {calls} calls not compared: {reason}"
    yield from (f"\n{blame}" for blame in one.found)
    if one.left_out:
        yield f"\n{one.left_out} more differences are not kept"
