"""The settings of `verify=`, and the results of the checks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from eagerdecomp.errors import ArgumentError
from eagerdecomp.verify.findings import Blame

__all__ = ["Verified", "Verify", "as_verify"]


@dataclass(frozen=True)
class Verify:
    """Settings of `verify=`: which calls are compared with native eager on the CPU, and what happens if one differs.

    Two calls are of the same kind if they have the same op or kernel, and tensors of the same dtypes, shapes and strides.

    Attributes:
        every: after the first calls of a kind, check one in this many; 1 checks all.
        first: number of first calls of each kind that are all checked. An op or kernel has at most 64 kinds; calls of further kinds
            are counted together, without checks of the first ones.
        on_difference: ``"raise"`` raises a `DifferenceError`; ``"record"`` stores the finding and returns the backend's result.
        tolerance: factor by which a difference may exceed the expected rounding error.

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
    """Return the settings for the argument `verify=`: ``"cpu"`` is ``Verify()``.

    Raises:
        ArgumentError: for other strings and types.
    """
    if given is None or isinstance(given, Verify):
        return given
    if given == "cpu":
        return Verify()
    raise ArgumentError(f'verify must be "cpu" or an eagerdecomp.Verify(...), not {given!r}. Leave it out to compare nothing')


@dataclass(frozen=True)
class Verified:
    """The results of the checks so far. It is true if a call differed, and prints as text; `as_dict` returns plain values for JSON.

    Attributes:
        checked: name of the op that was called, or of the kernel's op -> number of checked calls.
        random: number of checked calls that drew random numbers. For these only dtypes, shapes and strides must match.
        skipped: reason -> number of calls that could not be compared.
        found: the differences, each with its culprit. A repeated difference is counted in `times` of the first one.
        left_out: number of differences that were counted but not stored.

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
        """Number of checked calls."""
        return sum(self.checked.values())

    @property
    def differences(self) -> int:
        """Number of checked calls that differed."""
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
        else "nothing was checked: no call was decomposed, and none ran a kernel of the backend"
    )
    if one.random:
        yield f"  {one.random} of them drew random numbers: their values were not compared"
    for reason, calls in one.skipped.items():
        yield f"  {calls} calls not compared: {reason}"
    yield from (f"\n{blame}" for blame in one.found)
    if one.left_out:
        yield f"\n{one.left_out} more differences were counted but not stored"
