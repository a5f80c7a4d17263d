"""Every error the library raises by itself; the errors of a user's program stay those of eager PyTorch."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ArgumentError",
    "Attempt",
    "ConformanceError",
    "DifferenceError",
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
    "ops_line",
    "plan_command",
]


class EagerDecompError(RuntimeError):
    """Root of the library's own errors.

    Cause: a request that the library cannot carry out. Cure: the message says what to change.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> try:
        ...     with ed.EagerDecompMode(ed.infra()):
        ...         torch.ones(2).exp()
        ... except ed.EagerDecompError as error:
        ...     print(type(error).__name__)
        UnsupportedOpError
    """


class ArgumentError(EagerDecompError, ValueError):
    """An argument has a value that it cannot have.

    Cause: a value of another kind, or one that is no choice. Cure: give one of the values that the message lists.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.EagerDecompMode(ed.core_aten(), on_unsupported="warn")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.ArgumentError: on_unsupported='warn': give "error" or "fallback"
    """


class OpSetError(EagerDecompError, ValueError):
    """An op set names an operator that this torch does not have, or a backend gives a kernel for an op outside its set.

    Cause: a misspelt name, or a kernel without its op. Cure: take one of the names the message offers.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.OpSet(["aten.sigmiod"])
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.OpSetError: no operator is called 'aten.sigmiod' in torch ...; did you mean aten.sigmoid, ...
    """


class RuleError(EagerDecompError, ValueError):
    """A rule cannot be used as it was given.

    Cause: two rules of one table for the same overload, or a rule that is not callable. Cure: the message names both places.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.register_decomposition("aten.hypot")(lambda x, y: x)
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.RuleError: aten.hypot has several overloads (...): a rule is for one of them; name it
    """


class ProgramError(EagerDecompError):
    """A recorded program is malformed: a value is read before it is made, or an output is missing.

    Cause: a fault of this library or of a pass, never of the caller. Cure: report it with the listing in the message.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> from eagerdecomp.program.ir import KernelCall, Program, Slot, check
        >>> aten = torch.ops.aten
        >>> call = KernelCall(aten.neg.default, (Slot(7),), (), (Slot(1),), False)
        >>> check(Program(aten.exp.default, (Slot(0),), (), (call,), Slot(1)))
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.ProgramError: malformed program for aten.exp.default: %7 is read before it is made...
    """


class TraceError(EagerDecompError, ValueError):
    """A traced graph was called on what it was not made for, or what was asked of a trace cannot be had.

    Cause: inputs of other shapes, strides, dtypes or numbers than those of the trace; data that the traced run went by and that
    differs; a size that was to stay symbolic and that something went on by. Cure: trace again, with such inputs.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> graph = ed.trace(torch.nn.functional.silu, ed.core_aten())(torch.ones(2))
        >>> graph(torch.ones(3))
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.TraceError: input_ is f32[3][1]; the graph was made with f32[2][1]: trace it again
    """


class TraceRequestError(TraceError):
    """A trace cannot be made as it was asked for.

    Cause: `symbolic` names an input, or a dimension of one, that there is not. Cure: name one of those that the message reports.
    """


class PlanError(EagerDecompError, ValueError):
    """A plan cannot be made or read.

    Cause: a model that cannot run on fake tensors, a factory that gives no model, a file that holds no plan. Cure: the message says
    which.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.Plan.from_json("{}")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.PlanError: not a plan, as eagerdecomp plan --json writes one (KeyError: 'ops'): make it again
    """


class RecordError(EagerDecompError, ValueError):
    """A file holds no record of a run, or one of another version.

    Cause: a file that ``eagerdecomp run --record`` of this version did not write. Cure: record again.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.Record.from_json("{}")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.RecordError: not a record, ...
    """


class ConformanceError(EagerDecompError, ValueError):
    """A report of a conformance run, a manifest of absences, or a backend's device cannot be used.

    Cause: a file that holds none, or one of another version; a line of a manifest that names no operator; a device that no tensor
    is copied to and back from. Cure: the message says which.
    """


class InstallError(EagerDecompError, ValueError):
    """A backend cannot be installed for a device.

    Cause: another is installed there, or torch knows no such device. Cure: the message says which.

    Examples:
        >>> import eagerdecomp as ed
        >>> with ed.install(ed.core_aten(), "cpu"):
        ...     ed.install(ed.core_aten(), "cpu")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.InstallError: 'cpu' has Installation(...) already: call remove() on its handle first
    """


class KernelError(EagerDecompError):
    """A kernel of the backend returned what its op never returns: None, another number of results, another shape or dtype.

    Cause: a fault of the kernel. Cure: fix it; `eagerdecomp conformance` tries it with many more calls. The first four
    calls of each op that a program makes are checked, and each one that is recorded; later ones are not, and cost nothing.

    Attributes:
        op: the op, as a string such as ``"aten.mm.default"``.
        kernel: the kernel's module, name and line.
        fault: what it returned, and what the op returns.
        call: how it was called: dtypes, shapes and scalars.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def mul(x, y):
        ...     x.numpy() * y.numpy()  # and no return
        >>> with ed.EagerDecompMode(ed.Backend("mine", ed.core_aten(), kernels={"aten.mul.Tensor": mul})):
        ...     torch.ones(2) * torch.ones(2)
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.KernelError: aten.mul.Tensor: its kernel ... returned None where its op returns a tensor
        ...
    """

    def __init__(self, op: str, kernel: str, fault: str, call: str) -> None:
        self.op = op
        self.kernel = kernel
        self.fault = fault
        self.call = call
        super().__init__(
            f"{op}: its kernel {kernel} returned {fault}\n"
            f"  called as: {call}\n"
            f"  what to do: fix the kernel; `eagerdecomp conformance MODULE:BACKEND --ops {op}` tries it with many calls"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (KernelError, (self.op, self.kernel, self.fault, self.call))


class HookError(EagerDecompError):
    """A backend's `compile` hook failed on a program, or what it made does not return what the program does.

    Cause: a fault of the hook. Cure: fix it, or let it return None for programs that it does not take.

    Attributes:
        backend: the backend's name.
        op: the operator whose program it was, as a string.
        fault: what went wrong, in words.
        program: the program's listing.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def hook(graph, inputs):
        ...     raise RuntimeError("no compiler today")
        >>> backend = ed.Backend("mine", ed.core_aten() - ["aten.gelu"], compile=hook)
        >>> x = torch.ones(2)
        >>> try:
        ...     with ed.EagerDecompMode(backend):
        ...         for _ in range(100):
        ...             y = torch.nn.functional.gelu(x)
        ... except ed.HookError as error:
        ...     print(error.op, "|", error.fault)
        aten.gelu.default | raised RuntimeError: no compiler today
    """

    def __init__(self, backend: str, op: str, fault: str, program: str) -> None:
        self.backend = backend
        self.op = op
        self.fault = fault
        self.program = program
        super().__init__(
            f"the compile hook of backend {backend!r} {fault}\nin the program of {op}:\n{program}\n"
            "what to do: fix the hook, or let it return None for programs that it does not take"
        )

    def __reduce__(self) -> tuple[object, ...]:
        return (HookError, (self.backend, self.op, self.fault, self.program))


class DifferenceError(EagerDecompError):
    """A call that `verify=` checked did not leave behind what eager does.

    Cause: a kernel of the backend or a rule that is wrong, which the message names. Cure: fix it; `eagerdecomp.blame` writes a
    script that shows it by itself. With ``Verify(on_difference="record")`` the program goes on.

    Attributes:
        blame: an `eagerdecomp.verify.findings.Blame`: the op called, how, from which line, the difference, and whom to blame.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> def wrong(x):
        ...     return torch.ops.aten.sigmoid(x) * 1.01
        >>> backend = ed.Backend("mine", ed.core_aten(), kernels={"aten.sigmoid.default": wrong})
        >>> try:
        ...     with ed.EagerDecompMode(backend, verify="cpu"):
        ...         torch.nn.functional.silu(x)
        ... except ed.DifferenceError as error:
        ...     print(str(error).splitlines()[0])
        aten.sigmoid.default is not what eager gives
    """

    def __init__(self, blame: Any) -> None:
        self.blame = blame
        super().__init__(str(blame))

    def __reduce__(self) -> tuple[object, ...]:
        return (DifferenceError, (self.blame,))


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
        may_fall_back: whether it was raised where ``on_unsupported`` can be given.
        gaps: the ops without a route that the mode has seen so far, this one included.
        additions: kernels that together open all of them.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> try:
        ...     with ed.EagerDecompMode(ed.infra() | ["aten.mul.Tensor"]):
        ...         torch.nn.functional.silu(x)
        ... except ed.UnsupportedOpError as error:
        ...     print(error.op, error.openers)
        aten.silu.default (('aten.silu.default',), ('aten.sigmoid.default',))
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
        may_fall_back: bool = True,
        gaps: Sequence[str] = (),
        additions: Sequence[str] = (),
    ) -> None:
        self.op = op
        self.call = call
        self.chain = tuple(chain)
        self.missing = tuple(missing)
        self.tried = tuple(tried)
        self.openers = tuple(tuple(names) for names in openers)
        self.op_set = op_set
        self.hint = hint
        self.may_fall_back = may_fall_back
        self.gaps = tuple(gaps)
        self.additions = tuple(additions)
        super().__init__(self._report())

    def _report(self) -> str:
        lines = [self.hint] if self.hint else []
        lines.append(f"{self.op} is not in {self.op_set or 'the op set'}, and no route leads from it to supported ops.")
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
        given = "add one of these lines to the op set"
        lines.append(
            f'  what to do: {given}, pass a rule of your own (rules=), or run it natively with on_unsupported="fallback".'
            if self.may_fall_back
            else f"  what to do: {given}, or pass a rule of your own (rules=)."
        )
        return "\n".join([*lines, *self._all_gaps()])

    def _all_gaps(self) -> list[str]:
        """Lines about every gap found so far, and the command that finds the others."""
        lines = [f"  ops without a route so far ({len(self.gaps)}): {', '.join(self.gaps)}"] if len(self.gaps) > 1 else []
        if self.additions:
            lines.append(f"  line to paste: {ops_line(self.additions)}")
        return [*lines, f"  find all gaps of a model at once: {plan_command()}"]

    def __reduce__(self) -> tuple[object, ...]:
        told = (self.op_set, self.hint, self.may_fall_back, self.gaps, self.additions)
        return (_rebuild_unsupported, (self.op, self.call, self.chain, self.missing, self.tried, self.openers, *told))


def ops_line(names: Iterable[str]) -> str:
    """Return the expression that adds ops to a set: ``ops | {"aten.add.Tensor"}``."""
    return "ops | {" + ", ".join(f'"{name}"' for name in names) + "}"


def plan_command(ops: str = "OPS") -> str:
    """Return the command that lists the gaps of a whole model on a set, before it runs."""
    return f"eagerdecomp plan --model MODULE:FACTORY --ops {ops} --require closed"


def _rebuild_unsupported(
    op: str,
    call: str,
    chain: tuple[str, ...],
    missing: tuple[str, ...],
    tried: tuple[Attempt, ...],
    openers: tuple[tuple[str, ...], ...],
    op_set: str,
    hint: str,
    may_fall_back: bool,
    gaps: tuple[str, ...],
    additions: tuple[str, ...],
) -> UnsupportedOpError:
    return UnsupportedOpError(
        op,
        call,
        chain=chain,
        missing=missing,
        tried=tried,
        openers=openers,
        op_set=op_set,
        hint=hint,
        may_fall_back=may_fall_back,
        gaps=gaps,
        additions=additions,
    )


class UnsupportedGradientError(UnsupportedOpError):
    """With ``preflight=True``: an op was called that runs on the op set, on tensors that require a gradient which would not.

    Cause: an op of the gradient has no route to the set. Cure: add one of `openers` to the op set, give a rule of your own for the
    op of the gradient, call what needs no gradient under `torch.no_grad()`, or make the mode without `preflight`.

    Attributes are those of `UnsupportedOpError`, `op` and `call` the op that was called, `openers` kernels that would open its
    gradient; and

        wanted: the arguments that require a gradient, by name.
        gradient: for each op of the gradient that has no route the error that `backward()` would raise there.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(3, requires_grad=True)
        >>> try:
        ...     with ed.EagerDecompMode(ed.core_aten() - ["aten.erf", "aten.exp"], preflight=True):
        ...         torch.nn.functional.gelu(x)
        ... except ed.UnsupportedGradientError as error:
        ...     print(error.op, error.openers)
        aten.gelu.default (('aten.gelu_backward.default',),)
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
            gaps=list(dict.fromkeys(gap for error in gradient for gap in error.gaps)),
            additions=list(dict.fromkeys(kernel for error in gradient for kernel in error.additions)),
        )

    def _report(self) -> str:
        lines = [self.hint] if self.hint else []
        lines.append(f"{self.op} was called on a tensor that requires a gradient, and the gradient has no route to {self.op_set}.")
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
        lines.append("  what to do: add one of these lines to the op set, or pass a rule of your own (rules=).")
        lines.append(
            "  where no gradient is needed, make the call under torch.no_grad(). With preflight=False it is backward() that raises."
        )
        return "\n".join([*lines, *self._all_gaps()])

    def __reduce__(self) -> tuple[object, ...]:
        return (UnsupportedGradientError, (self.op, self.call, self.wanted, self.gradient))


def _open_all(choices: Sequence[Sequence[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Kernels that open several calls at once, of those that open each: one for all where there is one, and the calls' own ops."""
    common = [names for names in choices[0] if all(names in others for others in choices[1:])]
    own = tuple(dict.fromkeys(name for each in choices if each for name in each[0]))
    return common if own in common or not own else [*common, own]
