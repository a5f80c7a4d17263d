"""Every error the library raises by itself; the errors of a user's program stay those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

__all__ = [
    "Attempt",
    "EagerDecompError",
    "HookError",
    "InstallError",
    "OpSetError",
    "PlanError",
    "ProgramError",
    "RecordError",
    "RuleError",
    "TraceError",
    "TraceRequestError",
    "UnsupportedGradientError",
    "UnsupportedOpError",
]


class EagerDecompError(RuntimeError):
    """Root of the library's own errors.

    Cause: a request that the library cannot carry out. Cure: the message says what to change.
    """


class OpSetError(EagerDecompError, ValueError):
    """An op set names an operator that this torch does not have, or a backend gives a kernel for an op outside its set.

    Cause: a misspelt name, or a kernel without its op. Cure: take one of the names the message offers.
    """


class RuleError(EagerDecompError, ValueError):
    """A rule cannot be used as it was given.

    Cause: two rules of one table for the same overload, or a rule that is not callable. Cure: the message names both places.
    """


class ProgramError(EagerDecompError):
    """A recorded program is malformed: a value is read before it is made, or an output is missing.

    Cause: a fault of this library or of a pass, never of the caller. Cure: report it with the listing in the message.
    """


class TraceError(EagerDecompError, ValueError):
    """A traced graph was called on what it was not made for, or what was asked of a trace cannot be had.

    Cause: inputs of other shapes, strides, dtypes or numbers than those of the trace; data that the traced run went by and that
    differs; a size that was to stay symbolic and that something went on by. Cure: trace anew, with such inputs.
    """


class TraceRequestError(TraceError):
    """A trace cannot be made as it was asked for.

    Cause: `symbolic` names an input, or a dimension of one, that there is not. Cure: name one of those that the message tells of.
    """


class PlanError(EagerDecompError, ValueError):
    """A plan cannot be made or read.

    Cause: a model that cannot run on fake tensors, a factory that gives no model, a file that holds no plan. Cure: the message says
    which.
    """


class RecordError(EagerDecompError, ValueError):
    """A file holds no record of a run, or one of another version.

    Cause: a file that ``eagerdecomp run --record`` of this version did not write. Cure: record anew.
    """


class InstallError(EagerDecompError, ValueError):
    """A backend cannot be installed for a device.

    Cause: another is installed there, or torch knows no such device. Cure: the message says which.
    """


class HookError(EagerDecompError):
    """A backend's `compile` hook failed on a program, or what it made does not answer what the program does.

    Cause: a fault of the hook. Cure: mend it, or let it answer None for programs that it does not take.

    Attributes:
        backend: the backend's name.
        op: the operator whose program it was, as a string.
        fault: what went wrong, in words.
        program: the program's listing.
    """

    def __init__(self, backend: str, op: str, fault: str, program: str) -> None:
        self.backend = backend
        self.op = op
        self.fault = fault
        self.program = program
        super().__init__(f"the compile hook of backend {backend!r} {fault}\nin the program of {op}:\n{program}")

    def __reduce__(self) -> tuple[object, ...]:
        return (HookError, (self.backend, self.op, self.fault, self.program))


@dataclass(frozen=True)
class Attempt:
    """One rule the planner tried for an op, and why it led nowhere."""

    op: str
    rule: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op} by {self.rule}: {self.reason}"


class UnsupportedOpError(EagerDecompError):
    """An operator is not in the op set and no route leads from it to ops of the set.

    Cause: the backend lacks a kernel that every decomposition of the op ends in. Cure: add one of `openers` to the op set,
    give a rule of your own with ``rules=``, or accept native execution with ``on_unsupported="fallback"``.

    It is no `NotImplementedError`: parts of torch ask by that error whether something is there, and go on without
    (`torch.nn.utils.parametrize` does), so that the missing op would pass unseen.

    Attributes:
        op: the operator that was called, as a string such as ``"aten.sort.stable"``.
        call: how it was called: dtypes, shapes and scalars.
        chain: the ops between the user's call and the op without a route, outermost first.
        missing: the op (or ops) at which the routes ended.
        tried: the routes that were tried, each with the reason it failed.
        openers: the fewest kernels that would open a route for this call, each entry one alternative.
        op_set: what the set calls itself.
        hint: a word of advice for this op, or "".
    """

    def __init__(
        self,
        op: str,
        call: str,
        *,
        chain: Sequence[str] = (),
        missing: Sequence[str] = (),
        tried: Sequence[Attempt] = (),
        openers: Sequence[Sequence[str]] = (),
        op_set: str = "",
        hint: str = "",
    ) -> None:
        self.op = op
        self.call = call
        self.chain = tuple(chain)
        self.missing = tuple(missing)
        self.tried = tuple(tried)
        self.openers = tuple(tuple(names) for names in openers)
        self.op_set = op_set
        self.hint = hint
        super().__init__(self._report())

    def _report(self) -> str:
        lines = [f"{self.op} is not in {self.op_set or 'the op set'}, and no route leads from it to supported ops."]
        lines.append(f"  called as: {self.call}")
        if len(self.chain) > 1:
            lines.append(f"  reached by: {' -> '.join(self.chain)}")
        if self.tried:
            lines.append("  routes tried:")
            lines.extend(f"    - {attempt}" for attempt in self.tried)
        else:
            lines.append("  routes tried: none; no rule for it is known")
        if self.openers:
            lines.append("  fewest kernels that would open it (any one line):")
            lines.extend(f"    - {', '.join(names)}" for names in self.openers)
        if self.hint:
            lines.append(f"  note: {self.hint}")
        lines.append(
            "  what to do: add one of these lines to the op set, pass a rule of your own (rules=), "
            'or run it natively with on_unsupported="fallback".'
        )
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        state = (self.op, self.call, self.chain, self.missing, self.tried, self.openers, self.op_set, self.hint)
        return (_rebuild_unsupported, state)


def _rebuild_unsupported(
    op: str,
    call: str,
    chain: tuple[str, ...],
    missing: tuple[str, ...],
    tried: tuple[Attempt, ...],
    openers: tuple[tuple[str, ...], ...],
    op_set: str,
    hint: str,
) -> UnsupportedOpError:
    return UnsupportedOpError(op, call, chain=chain, missing=missing, tried=tried, openers=openers, op_set=op_set, hint=hint)


class UnsupportedGradientError(UnsupportedOpError):
    """With ``preflight=True``: an op was called that runs on the op set, on tensors that require a gradient which would not.

    Cause: an op of the gradient has no route to the set. Cure: add one of `openers` to the op set, give a rule of your own for the
    op of the gradient, call what needs no gradient under `torch.no_grad()`, or make the mode without `preflight`.

    Attributes are those of `UnsupportedOpError`, `op` and `call` the op that was called, `openers` kernels that would open its
    gradient; and

        wanted: the arguments that require a gradient, by name.
        gradient: for each op of the gradient that has no route the error that `backward()` would raise there.
    """

    def __init__(self, op: str, call: str, wanted: Sequence[str], gradient: Sequence[UnsupportedOpError]) -> None:
        self.wanted = tuple(wanted)
        self.gradient = tuple(gradient)
        super().__init__(
            op,
            call,
            chain=(op, *gradient[0].chain),
            missing=list(dict.fromkeys(end for error in gradient for end in error.missing)),
            tried=list(dict.fromkeys(attempt for error in gradient for attempt in error.tried)),
            openers=_open_all([error.openers for error in gradient]),
            op_set=gradient[0].op_set,
            hint="; ".join(dict.fromkeys(error.hint for error in gradient if error.hint)),
        )

    def _report(self) -> str:
        lines = [f"{self.op} was called on a tensor that requires a gradient, and the gradient has no route to {self.op_set}."]
        lines.append(f"  called as: {self.call}")
        lines.append(f"  requires a gradient: {', '.join(self.wanted)}")
        lines.append("  backward() would call, without a route:")
        for error in self.gradient:
            lines.append(f"    - {error.call}")
            lines.extend(f"        {attempt}" for attempt in error.tried)
            if not error.tried:
                lines.append("        no rule for it is known")
        lines.append("  fewest kernels that would open it (any one line):")
        lines.extend(f"    - {', '.join(names)}" for names in self.openers)
        if self.hint:
            lines.append(f"  note: {self.hint}")
        lines.append("  what to do: add one of these lines to the op set, or pass a rule of your own (rules=).")
        lines.append(
            "  where no gradient is needed, make the call under torch.no_grad(). With preflight=False it is backward() that raises."
        )
        return "\n".join(lines)

    def __reduce__(self) -> tuple[object, ...]:
        return (UnsupportedGradientError, (self.op, self.call, self.wanted, self.gradient))


def _open_all(choices: Sequence[Sequence[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Kernels that open several calls at once, of those that open each: one for all where there is one, and the calls' own ops."""
    common = [names for names in choices[0] if all(names in others for others in choices[1:])]
    own = tuple(dict.fromkeys(name for each in choices if each for name in each[0]))
    return common if own in common or not own else [*common, own]
