"""Specs: for each op the calls to test, and the allowed error of results."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.eager.observe import Caught, Strides
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.ops.schema import tensors_in

__all__ = ["EITHER_ZERO", "EXACT", "Call", "Fault", "TestedKernel", "Near", "Property", "Skip", "Spec", "tensors_of"]


@dataclass(frozen=True)
class Call:
    """The arguments of one call.

    Attributes:
        args: positional arguments.
        kwargs: keyword arguments.
        exact: whether every sum and product is exact in the dtype of the computation, in any order. The results must then be the
            true values, rounded once.
        by_design: whether eager rejects the call by design (bitwise ops on floats, the maximum of complex numbers), not because the
            CPU kernel is missing.
    """

    args: Sequence[Any]
    kwargs: Mapping[str, Any] = field(default_factory=dict)
    exact: bool = False
    by_design: bool = False


@dataclass(frozen=True)
class Near:
    """The allowed error of a kernel's values, in units of the precision of the computation. True values are computed in float64.

    float16 and bfloat16 are computed in float32, and rounded once at the end. That rounding is allowed in addition: half a unit in
    the last place of float16 or bfloat16. An error of at most twice that of eager's kernel is always allowed.

    Attributes:
        ulps: the number of units.
        of: what a unit is relative to. ``value``: the true value; ``terms``: the sum of the absolute terms (the op on absolute
            values), with an allowance for other orders of summation; ``inputs``: how much the value changes if inputs are rounded;
            ``largest``: the largest value of the result; ``either``: the sum of the last two.
        zeros: whether the sign of zero must be eager's.
        tiny: whether subnormal results must be right, as for copies, products and quotients. Kernels may flush those of
            exponentials and similar functions to zero.
        least: values below this may have the error of a value of this size (for example logarithms of numbers near one).
    """

    ulps: float = 4.0
    of: Literal["value", "terms", "inputs", "largest", "either"] = "value"
    zeros: bool = True
    tiny: bool = False
    least: float = 0.0


#: For ops that move, compare or count values, and for arithmetic that IEEE 754 rounds correctly.
EXACT = Near(0.0, tiny=True)
#: As `EXACT`, but the sign of zero may differ.
EITHER_ZERO = Near(0.0, tiny=True, zeros=False)


@dataclass(frozen=True)
class Fault:
    """A property that a kernel broke.

    Attributes:
        kind: the property's name in reports.
        message: a description of the fault.
        expected: eager's result, as text.
        got: the kernel's result, as text.
        call: the failing call.
        drawn: the choices that reproduce `call`; None if they are those of the case.
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
class TestedKernel:
    """A kernel under test.

    Attributes:
        op: its overload.
        run: the kernel.
        native: eager's kernel.
        device: the device of its tensors.
        claims: returns whether the backend claims to support a call; None for all calls.
        strides: which strides of a result must be eager's; None for those that eager promises.
        permits: returns whether a fault, given its kind and its message, is none.
        nondeterministic: whether repeated calls may differ by rounding, unless deterministic algorithms are on.
    """

    op: OpOverload
    run: Callable[..., Any]
    native: Callable[..., Any]
    device: str = "cpu"
    claims: Callable[..., Any] | None = None
    strides: Strides | None = None
    permits: Callable[[str, str], bool] | None = None
    nondeterministic: bool = False

    def require_claim(self, call: Call) -> None:
        """Raise `Skip` for a call that the backend does not claim to support, or that its predicate and eager both refuse.

        Raises:
            KernelError: if the predicate raises, for a call that eager accepts.
        """
        claimed = False
        with Caught() as caught:
            claimed = self.claims is None or self.claims(*call.args, **call.kwargs)
        if isinstance(caught.error, EagerDecompError):
            raise caught.error
        if not claimed:
            raise Skip("the backend does not claim it: a predicate or its dtypes refuse the call")


@dataclass(frozen=True)
class Property:
    """A property that a kernel must have for every drawn case.

    Attributes:
        name: its name. Reports show `Fault.kind`, which may differ.
        find_fault: returns the fault that a case shows, or None. It raises `Skip` for a case that tests nothing (eager rejects the
            call).
        share: number of cases, as a fraction of the cases that are compared with eager.
        call: draws the call that a case begins with.
    """

    name: str
    find_fault: Callable[[TestedKernel, Spec, Draw], Fault | None]
    share: float = 0.1
    call: Callable[[Spec, Draw], Call] = lambda spec, draw: spec.call(draw)


@dataclass(frozen=True)
class Spec:
    """The test cases of an op.

    Attributes:
        call: draws a call.
        near: the allowed error of values, or a function that returns it for a call.
        refused: draws calls that must raise, as in eager. A call for which eager does not raise is skipped.
        any_values: results (by number) whose values are not compared, for example random numbers and uninitialized memory; True for
            all.
        any_tie: whether the index of any of several equal values is right.
        any_shapes: results (by number) whose shapes are not compared either, for example buffers that the forward saves for
            backward.
        optional: returns the results (by number) that a call does not request. They are not compared.
        check_results: checks the results that `any_values` names, for example the indices of tied values in a sort. It returns a
            message, or None if they are right.
        properties: further properties, in addition to those of every kernel.
        steady: whether repeated calls must return the same bits.
        together: whether the arguments must fit each other, so that a failing call is not made smaller tensor by tensor. Eager's
            kernels read beyond those that do not fit.
        varies: arguments of the schema that are not varied, each with the reason.
    """

    call: Callable[[Draw], Call]
    near: Near | Callable[[Call], Near] = Near()
    refused: Callable[[Draw], Call] | None = None
    any_values: tuple[int, ...] | bool = ()
    any_tie: bool = False
    any_shapes: tuple[int, ...] = ()
    optional: Callable[[Call], Sequence[int]] = lambda call: ()
    check_results: Callable[[Call, Sequence[Any], Sequence[Any]], str | None] | None = None
    properties: tuple[Property, ...] = ()
    steady: bool = True
    together: bool = False
    varies: Mapping[str, str] = field(default_factory=dict)

    def but(self, **changes: Any) -> Spec:
        """Return a spec with some fields changed."""
        return replace(self, **changes)


class Skip(Exception):
    """Raised for a drawn case that tests nothing."""

    @classmethod
    def refused(cls, error: Exception) -> Skip:
        """Return the exception for a call that eager refuses. After the first sentence, torch lists the kernels of every device."""
        return cls(f"eager refuses it: {str(error).partition('. ')[0].partition(chr(10))[0]}")


def tensors_of(call: Call) -> list[Tensor]:
    """Return the tensors among a call's arguments, including those in lists."""
    return list(tensors_in([*call.args, *call.kwargs.values()]))
