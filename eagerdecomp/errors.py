"""The hierarchy of the library's own errors. The errors of a user's program stay those of eager PyTorch.

Each class derives from `EagerDecompError`, and from the builtin that a caller would catch (docs/reference/errors.md).
"""

from __future__ import annotations

import functools
import inspect
import shlex
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

__all__ = [
    "ArgumentError",
    "ArgumentTypeError",
    "Attempt",
    "DifferenceError",
    "EagerDecompError",
    "FileError",
    "HookError",
    "InstallError",
    "KernelError",
    "OpSetError",
    "ProgramError",
    "RuleError",
    "TraceError",
    "UnsupportedGradientError",
    "UnsupportedOpError",
    "naming_set",
    "ops_line",
    "plan_command",
]


# The op set as the user's command line names it, for the commands that messages print; "" outside a command.
_named_set = ""


@contextmanager
def naming_set(spec: str) -> Iterator[None]:
    """Return a context manager in which messages print commands with this value of ``--ops``."""
    global _named_set
    before, _named_set = _named_set, shlex.quote(spec) if spec else ""
    try:
        yield
    finally:
        _named_set = before


def _set_or(placeholder: str) -> str:
    return _named_set or placeholder


def _backend_or(placeholder: str) -> str:
    return _named_set if ":" in _named_set else placeholder


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

    def __reduce__(self) -> Any:
        """Pickle the arguments of the class's own `__init__`, each of which is an attribute."""
        if type(self).__init__ is RuntimeError.__init__:
            return super().__reduce__()
        arguments = {name: getattr(self, name) for name in inspect.signature(type(self)).parameters}
        return functools.partial(type(self), **arguments), ()


class ArgumentError(EagerDecompError, ValueError):
    """An argument has an invalid value.

    Cause: a value that is out of range, or none of the choices. Cure: pass one of the values that the message lists.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.EagerDecompMode(ed.core_aten(), on_unsupported="warn")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.ArgumentError: on_unsupported must be "error" or "fallback", not 'warn'
    """


class ArgumentTypeError(ArgumentError, TypeError):
    """An argument has the wrong type.

    Cause: for example a single operator where a set of operators is expected. Cure: pass the type that the message names.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.EagerDecompMode(ed.core_aten)
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.ArgumentTypeError: an op set must be an OpSet, ... To use Core ATen, pass core_aten(), ...
    """


class OpSetError(EagerDecompError, KeyError, ValueError):
    """An op set, a backend, `keep=`, a plan or a report was given an operator that it does not have or cannot use.

    Cause: a misspelled name, a kernel for an op outside the set, an op that cannot be kept whole, or one outside the plan.
    Cure: use one of the names that the message suggests, or add the op to the set.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.OpSet(["aten.sigmiod"])
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.OpSetError: torch ... has no operator 'aten.sigmiod'. Did you mean aten.sigmoid, ...
    """

    __str__ = BaseException.__str__  # a KeyError shows its message in quotes


class RuleError(EagerDecompError, ValueError):
    """A rule cannot be used, or returned what its op cannot return.

    Cause: two rules for one overload, a function with other parameters than the op, or a rule that returns None, another shape,
    another dtype or an alias of its input. Cure: fix the rule; the message names its file and line.

    Examples:
        >>> import eagerdecomp as ed
        >>> ed.register_decomposition("aten.hypot")(lambda x, y: x)
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.RuleError: aten.hypot has several overloads, and a rule is for one. Name one of aten.hypot.default, ...
    """


class ProgramError(EagerDecompError):
    """A recorded program is malformed: a value is read before it is assigned, or an output is missing.

    Cause: a bug of this library or of a pass, never of the caller. Cure: report it with the listing in the message.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> from eagerdecomp.program.ir import KernelCall, Program, Slot, check
        >>> aten = torch.ops.aten
        >>> call = KernelCall(aten.neg.default, (Slot(7),), (), (Slot(1),), False)
        >>> check(Program(aten.exp.default, (Slot(0),), (), (call,), Slot(1)))
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.ProgramError: malformed program for aten.exp.default: %7 is read before it is assigned...
    """


class TraceError(EagerDecompError, ValueError):
    """A traced graph was called with inputs for which it is not valid, or a trace cannot be made.

    Cause: inputs of other shapes, strides, dtypes or Python values than those of the trace; data that the function branched on and
    that differs now; a symbolic size that the function compares with a constant. Cure: trace again, with such inputs.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> graph = ed.trace(torch.nn.functional.silu, ed.core_aten())(torch.ones(2))
        >>> graph(torch.ones(3))
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.TraceError: the graph was traced with input_ = f32[2], and was called with f32[3]. Trace ...
    """


class FileError(EagerDecompError, ValueError):
    """A file holds no plan, no record of a run, no conformance report or no manifest of absent kernels, or one of another version.

    Cause: a file that was not written by the command that the message names, or by another version of it. Cure: write it again.

    Examples:
        >>> from eagerdecomp.profile import Record
        >>> Record.from_json("{}")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.FileError: this is not a record of a run ...
    """


class InstallError(EagerDecompError, ValueError):
    """A backend cannot be installed for a device, or a device cannot be made or used.

    Cause: another backend is installed there, torch has no such device, an op of the set has no kernel on it, tensors cannot be
    copied to it and back, or the process has a device in Python already. Cure: fix what the message names.

    Examples:
        >>> import eagerdecomp as ed
        >>> with ed.install(ed.core_aten(), "cpu"):
        ...     ed.install(ed.core_aten(), "cpu")
        Traceback (most recent call last):
            ...
        eagerdecomp.errors.InstallError: a backend is already installed for 'cpu'. Call remove() on the handle of install()
    """


class KernelError(EagerDecompError):
    """A kernel of the backend returned None, a wrong number of results, or a wrong shape, dtype or device, or a predicate raised.

    Cause: a bug of the kernel. Cure: fix it; `eagerdecomp conformance` tests it with many calls. The mode checks the first four
    calls of each op, and each recorded one. Later calls are not checked, so they cost nothing more.

    A `TypeError` that a kernel raises is the `__cause__` of this error: Python's operators, such as ``x * y``, would replace it by
    one of their own. So is any error that a predicate raises for a call that eager accepts. Other errors propagate as they are.

    Attributes:
        op: the op, as a string such as ``"aten.mm.default"``.
        kernel: the module, name and line of the kernel, or of the predicate that raised.
        fault: what it returned, and what the op returns; or what it raised.
        call: how it was called: dtypes, shapes and scalars.
        kind: ``"kernel"`` or ``"predicate"``.

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

    def __init__(self, op: str, kernel: str, fault: str, call: str, kind: str = "kernel") -> None:
        self.op = op
        self.kernel = kernel
        self.fault = fault
        self.call = call
        self.kind = kind
        super().__init__(
            f"{op}: its {kind} {kernel} {fault}\n"
            f"  called as: {call}\n"
            f"  what to do: {_KERNEL_CURES[kind]}\n"
            f"  test it with many calls: eagerdecomp conformance {_backend_or('MODULE:BACKEND')} --ops {op}"
        )


_KERNEL_CURES = {
    "kernel": "fix the kernel; if it does not take this call, refuse it with OpSet.with_predicate(), and rules decompose it",
    "predicate": "fix the predicate: it must return True or False for each call of the op",
}


class HookError(EagerDecompError):
    """A backend's `compile` hook raised, or returned a function whose result differs from the program's.

    Cause: a bug of the hook. Cure: fix it, or return None from it for programs that it cannot compile.

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
            "what to do: fix the hook, or return None from it for programs that it cannot compile\n"
            f"see more: eagerdecomp explain {op} --backend {_backend_or('MODULE:NAME')}"
        )


class DifferenceError(EagerDecompError):
    """A call that `verify=` checked differs from eager.

    Cause: a wrong kernel or rule, which the message names. Cure: fix it; `eagerdecomp.blame` writes a script that reproduces the
    difference. With ``Verify(on_difference="record")`` the program continues.

    Attributes:
        blame: an `eagerdecomp.verify.findings.Blame`: the op, its call, the calling line, the difference, and the kernel or rule at
            fault.

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
        aten.sigmoid.default differs from eager
    """

    def __init__(self, blame: Any) -> None:
        self.blame = blame
        super().__init__(
            f"{blame}\n  what to do: fix the kernel or rule named under 'to blame'; for a script that reproduces the difference, "
            f"run: eagerdecomp blame --backend {_backend_or('MODULE:NAME')} SCRIPT"
        )


@dataclass(frozen=True)
class Attempt:
    """A rule that the planner tried for an op, and the reason why it failed."""

    op: str
    rule: str
    reason: str

    def __str__(self) -> str:
        return f"{self.op} by {self.rule}: {self.reason}"


#: An error shows so many of the routes that were tried.
_MOST_TRIED = 12


class UnsupportedOpError(EagerDecompError):
    """An operator is not in the op set, and no decomposition leads from it to ops of the set.

    Cause: the backend lacks a kernel that every decomposition of the op needs. Cure: add one of `kernels_to_add` to the op set,
    pass a rule of your own in ``rules=``, or accept native execution with ``on_unsupported="fallback"``.

    This is not a `NotImplementedError`, because parts of torch catch that error and continue (`torch.nn.utils.parametrize` does).
    The missing op would go unnoticed.

    Attributes:
        op: the operator that was called, as a string such as ``"aten.sort.stable"``.
        call: how it was called: dtypes, shapes and scalars.
        chain: the ops between the user's call and the op without a route, outermost first.
        missing: the ops outside the set at which the decompositions stopped.
        tried: the rules that were tried, each with the reason why it failed.
        refused: the calls of supported ops that their kernels do not run: for each the call, why (its predicate or
            `Backend.dtypes` refuses it), and what called it.
        kernels_to_add: the fewest kernels that would give this call a route, each entry one alternative.
        op_set: the text of the op set, such as ``"OpSet(core_aten: 208 ops)"``.
        hint: advice for this op, or "".
        may_fall_back: whether the caller could have passed ``on_unsupported="fallback"``.
        gaps: the ops without a route that the mode has seen so far, this one included.
        additions: kernels that together give all of them a route.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> try:
        ...     with ed.EagerDecompMode(ed.infra() | ["aten.mul.Tensor"]):
        ...         torch.nn.functional.silu(x)
        ... except ed.UnsupportedOpError as error:
        ...     print(error.op, error.kernels_to_add)
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
        kernels_to_add: Sequence[Sequence[str]] = (),
        op_set: str = "",
        hint: str = "",
        may_fall_back: bool = True,
        gaps: Sequence[str] = (),
        additions: Sequence[str] = (),
        refused: Sequence[str] = (),
    ) -> None:
        self.op = op
        self.call = call
        self.chain = tuple(chain)
        self.missing = tuple(missing)
        self.tried = tuple(tried)
        self.kernels_to_add = tuple(tuple(names) for names in kernels_to_add)
        self.op_set = op_set
        self.hint = hint
        self.may_fall_back = may_fall_back
        self.gaps = tuple(gaps)
        self.additions = tuple(additions)
        self.refused = tuple(refused)
        super().__init__(self._report())

    def _report(self) -> str:
        lines = [self.hint] if self.hint else []
        lines.append(
            f"{self.op} is in {self.op_set or 'the op set'}, but its kernel does not run this call, and no route leads to others."
            if any(refused.startswith(f"{self.op}(") or refused.endswith(f"; {self.op} called it") for refused in self.refused)
            else f"{self.op} is not in {self.op_set or 'the op set'}, and no route leads from it to supported ops."
        )
        lines.append(f"  called as: {self.call}")
        if len(self.chain) > 1:
            lines.append(f"  reached by: {' -> '.join(self.chain)}")
        lines += self._refused_and_missing()
        add = self._what_to_add()
        lines.append(
            f'  what to do: {add}, pass a rule of your own (rules=), or run it natively with on_unsupported="fallback".'
            if self.may_fall_back
            else f"  what to do: {add}, or pass a rule of your own (rules=)."
        )
        # The advice stands above this list, which may have tens of lines.
        if self.tried:
            lines.append("  routes tried:")
            lines.extend(f"    - {attempt}" for attempt in self.tried[:_MOST_TRIED])
            if len(self.tried) > _MOST_TRIED:
                lines.append(f"    - and {len(self.tried) - _MOST_TRIED} more, which the attribute `tried` of this error holds")
        else:
            why = "rules would need the same dtypes" if self.refused else "no rule decomposes this call"
            lines.append(f"  routes tried: none, because {why}")
        return "\n".join([*lines, *self._all_gaps(), f"  see its rules: {explain_command(self.op, self.call, self._set())}"])

    def _set(self) -> str:
        """Return what stands for the set in a command. A file of op names has no predicates and no dtypes."""
        return "MODULE:NAME" if self.refused else "OPS"

    def _refused_and_missing(self) -> list[str]:
        """Return the lines that list the refused calls, and the kernels to add."""
        lines: list[str] = []
        if self.refused:
            lines.append("  calls of supported ops that were refused:")
            lines.extend(f"    - {refused}" for refused in self.refused)
        if self.kernels_to_add:
            lines.append("  kernels that would give it a route (any one line is enough):")
            lines.extend(f"    - {', '.join(names)}" for names in self.kernels_to_add)
        return lines

    def _what_to_add(self) -> str:
        accept = "accept a refused call in its predicate or in Backend(dtypes=)"
        if self.kernels_to_add:
            return f"{accept}, add one of these lines to the op set" if self.refused else "add one of these lines to the op set"
        return accept if self.refused else "add the op to the op set"

    def _all_gaps(self) -> list[str]:
        """Return lines about every gap found so far, and the command that finds the others."""
        lines = [f"  ops without a route so far ({len(self.gaps)}): {', '.join(self.gaps)}"] if len(self.gaps) > 1 else []
        if self.additions:
            lines.append(f"  line to paste, once you have the kernels: {ops_line(self.additions)}")
        return [*lines, f"  find every op without a route in a model: {plan_command(self._set())}"]


def ops_line(names: Iterable[str]) -> str:
    """Return the expression that adds ops to a set: ``ops | {"aten.add.Tensor"}``."""
    return "ops | {" + ", ".join(f'"{name}"' for name in names) + "}"


def explain_command(op: str, call: str = "", ops: str = "OPS") -> str:
    """Return the command that lists the rules of an op on a set, and what a call becomes, if a shell can take the call's text."""
    arguments = call[len(op) + 1 : -1]
    is_plain = arguments and not set('"$`\\!<').intersection(arguments) and "..." not in arguments
    return f"eagerdecomp explain {op} --ops {_set_or(ops)}" + (f' --call "{arguments}"' if is_plain else "")


def plan_command(ops: str = "OPS") -> str:
    """Return the command that lists the gaps of a whole model on a set, before it runs."""
    return f"eagerdecomp plan --model MODULE:FACTORY --ops {_set_or(ops)} --require closed"


class UnsupportedGradientError(UnsupportedOpError):
    """With ``preflight=True``: an op runs on the op set, but its gradient would not.

    Cause: an op of the gradient has no route to the set. Cure: add one of `kernels_to_add` to the op set, pass a rule for the op of
    the gradient, call what needs no gradient under `torch.no_grad()`, or make the mode without `preflight`.

    Attributes are those of `UnsupportedOpError`. `op` and `call` are the forward call, and `kernels_to_add` holds the kernels that
    would give its gradient a route. There are two more:

        arguments: the names of the arguments that require a gradient.
        gradient: for each op of the gradient without a route, the error that `backward()` would raise for it.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(3, requires_grad=True)
        >>> try:
        ...     with ed.EagerDecompMode(ed.core_aten() - ["aten.erf", "aten.exp"], preflight=True):
        ...         torch.nn.functional.gelu(x)
        ... except ed.UnsupportedGradientError as error:
        ...     print(error.op, error.kernels_to_add)
        aten.gelu.default (('aten.gelu_backward.default',),)
    """

    def __init__(self, op: str, call: str, arguments: Sequence[str], gradient: Sequence[UnsupportedOpError]) -> None:
        self.arguments = tuple(arguments)
        self.gradient = tuple(gradient)
        super().__init__(
            op,
            call,
            chain=(op, *gradient[0].chain),
            missing=list(dict.fromkeys(end for error in gradient for end in error.missing)),
            tried=list(dict.fromkeys(attempt for error in gradient for attempt in error.tried)),
            kernels_to_add=_combined([error.kernels_to_add for error in gradient]),
            op_set=gradient[0].op_set,
            hint="; ".join(dict.fromkeys(error.hint for error in gradient if error.hint)),
            gaps=list(dict.fromkeys(gap for error in gradient for gap in error.gaps)),
            additions=list(dict.fromkeys(kernel for error in gradient for kernel in error.additions)),
            refused=list(dict.fromkeys(call for error in gradient for call in error.refused)),
        )

    def _report(self) -> str:
        lines = [self.hint] if self.hint else []
        lines.append(f"{self.op} was called on a tensor that requires a gradient, and its gradient has no route to {self.op_set}.")
        lines.append(f"  called as: {self.call}")
        lines.append(f"  requires a gradient: {', '.join(self.arguments)}")
        lines.append("  backward() would call, without a route:")
        for error in self.gradient:
            lines.append(f"    - {error.call}")
            lines.extend(f"        {attempt}" for attempt in error.tried)
            if not error.tried:
                lines.append("        no rule decomposes this op")
        lines += self._refused_and_missing()
        lines.append(f"  what to do: {self._what_to_add()}, or pass a rule of your own (rules=).")
        lines.append(
            "  If no gradient is needed, make the call under torch.no_grad(). With preflight=False, backward() would raise instead."
        )
        first = self.gradient[0]
        return "\n".join([*lines, *self._all_gaps(), f"  see its rules: {explain_command(first.op, first.call, self._set())}"])


def _combined(choices: Sequence[Sequence[tuple[str, ...]]]) -> list[tuple[str, ...]]:
    """Return alternatives for several calls: those that all calls share, and one that joins the first alternatives of all."""
    common = [names for names in choices[0] if all(names in others for others in choices[1:])]
    own = tuple(dict.fromkeys(name for each in choices if each for name in each[0]))
    return common if own in common or not own else [*common, own]
