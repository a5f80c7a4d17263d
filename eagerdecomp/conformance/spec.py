"""Specs: for each op the calls that it is tried with, and how near to eager its results must be."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.eager.observe import leaves_of

__all__ = ["EITHER_ZERO", "EXACT", "Call", "Fault", "Kernel", "Near", "Property", "Skip", "Spec", "tensors_of"]


@dataclass(frozen=True)
class Call:
    """Arguments of one call.

    Attributes:
        args, kwargs: as the op takes them.
        exact: every sum and product of the call is exact in the dtype it is computed in, in whatever order it is made, so that the
            returns must be the true ones rounded once.
        by_rule: torch's rules refuse the call (bits of floats, the larger of complex numbers), not only a kernel that nobody wrote
            for the CPU, in whatever words eager does it.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    by_rule: bool = False


@dataclass(frozen=True)
class Near:
    """How far from the true value (the op in float64) a kernel's may be, in units of the precision that it is computed in.

    16-bit floats are computed in float32 and rounded once: half a unit of theirs is added. A kernel may also be off by twice what
    eager's own is off by.

    Attributes:
        ulps: how many units.
        of: of what: ``value`` the true value itself; ``terms`` the sum of what was summed, regardless of sign (the op on absolute
            values), with allowance for other orders of summation; ``inputs`` as far as rounding the inputs moves the value;
            ``largest`` the largest value of the result.
        zeros: whether the sign of zero must be eager's.
        tiny: whether results below the smallest normal number must be right too, and not only near zero: those of moves, products
            and quotients must; of exponentials and the like kernels may flush them to zero.
        least: smaller values are as far off as ones of this size may be (logarithms of numbers about one).
    """

    ulps: float = 4.0
    of: Literal["value", "terms", "inputs", "largest"] = "value"
    zeros: bool = True
    tiny: bool = False
    least: float = 0.0


#: What only moves, compares or counts, and arithmetic that IEEE 754 rounds correctly.
EXACT = Near(0.0, tiny=True)
#: The same where either of two zeros may be picked.
EITHER_ZERO = Near(0.0, tiny=True, zeros=False)


@dataclass(frozen=True)
class Fault:
    """How a kernel broke a property.

    Attributes:
        kind: the property's name in reports.
        message: what is wrong.
        expected, got: eager's and the kernel's, in words.
        call: which shows it.
        drawn: the choices by which the spec draws that call, of a case that makes several.
    """

    kind: str
    message: str
    expected: str = ""
    got: str = ""
    call: Call | None = None
    drawn: Sequence[int] | None = None

    def __str__(self) -> str:
        compared = f"\n  eager   {self.expected}\n  kernel  {self.got}" if self.expected or self.got else ""
        return f"{self.kind}: {self.message}{compared}"


@dataclass(frozen=True)
class Kernel:
    """A kernel under test.

    Attributes:
        op: its overload.
        run: what is called.
        native: eager's.
        device: where its tensors live.
        claims: whether the backend claims a call; None for all.
    """

    op: OpOverload
    run: Callable[..., Any]
    native: Callable[..., Any]
    device: str = "cpu"
    claims: Callable[..., Any] | None = None

    def require_claim(self, call: Call) -> None:
        """Raise `Skip` for a call that the backend does not claim."""
        if self.claims is not None and not self.claims(*call.args, **call.kwargs):
            raise Skip("not claimed")


@dataclass(frozen=True)
class Property:
    """Something that must hold of a kernel for every draw.

    Attributes:
        name: in reports, if the fault does not say more.
        broken: the fault that a draw shows, or None. A draw that says nothing (eager refuses the call) raises `Skip`.
        share: of the cases of a kernel, in parts of what the comparison with eager gets.
    """

    name: str
    broken: Callable[[Kernel, Spec, Draw], Fault | None]
    share: float = 0.1


@dataclass(frozen=True)
class Spec:
    """The cases that an op is tried with.

    Attributes:
        call: draws a call.
        near: how near values must be; a function of the call where that depends on it.
        refused: draws calls that eager refuses; a kernel that returns is wrong. What eager takes all the same says nothing.
        any_values: results (by number) whose values nothing fixes; True for all: random numbers, memory as it is.
        any_shapes: results (by number) whose shape is nobody's promise either: what backward finds again where it is not given.
        optional: results (by number) that a call does not ask for, so that a kernel may leave them out where eager returns them.
        judged: judges the results that `any_values` names (ties of a sort): a message of what is wrong, or None.
        properties: what else must hold, beside what is asked of every kernel.
        steady: the same call gives the same bits.
        varies: arguments that the schema has and that cannot be varied, each with the reason.
    """

    call: Callable[[Draw], Call]
    near: Near | Callable[[Call], Near] = Near()
    refused: Callable[[Draw], Call] | None = None
    any_values: tuple[int, ...] | bool = ()
    any_shapes: tuple[int, ...] = ()
    optional: Callable[[Call], Sequence[int]] = lambda call: ()
    judged: Callable[[Call, Sequence[Any], Sequence[Any]], str | None] | None = None
    properties: tuple[Property, ...] = ()
    steady: bool = True
    varies: Mapping[str, str] = field(default_factory=dict)

    def but(self, **changes: Any) -> Spec:
        """The same with some fields changed."""
        return replace(self, **changes)


class Skip(Exception):
    """A draw that says nothing."""


def tensors_of(call: Call) -> list[Tensor]:
    """The tensors among a call's arguments, those of lists too."""
    return [one for one in leaves_of([*call.args, *call.kwargs.values()]) if isinstance(one, Tensor)]
