"""Run a call again by its rules, and compare each kernel and rule in it with eager. The first wrong one is to blame."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from eagerdecomp._torch.modes import fake_mode_entered, no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import lazy_bits_visible
from eagerdecomp.eager.compare import Difference, difference
from eagerdecomp.eager.generators import states_of
from eagerdecomp.eager.layouts import strides_of_kernel
from eagerdecomp.eager.observe import Caught, Observed, Strides, copied, is_plain, leaves_of, observe, observed
from eagerdecomp.errors import KernelError, UnsupportedOpError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.schema import arguments_of, call_of, facts_of, tensors_in
from eagerdecomp.planner.planner import Planner
from eagerdecomp.program.key import program_arguments
from eagerdecomp.program.symbolic_sizes import plain
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule, place_of
from eagerdecomp.tracing.recorder import Recorder
from eagerdecomp.verify.findings import Culprit

__all__ = [
    "allowed_strides",
    "CopiedCall",
    "Compared",
    "Draws",
    "Finding",
    "is_of_predicate",
    "kernel_for",
    "compared",
    "culprit_of",
    "eager",
    "replayed",
    "why_not_compared",
]


class CopiedCall:
    """A call of an op, with copies of its arguments. Each replay works on new copies.

    Args:
        op: the overload.
        args: positional arguments.
        kwargs: keyword arguments.
        to_cpu: copy the arguments to the CPU.
    """

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], *, to_cpu: bool = False) -> None:
        self.op = op
        self._args, self._kwargs = copied(op, args, kwargs, home=to_cpu)
        self.text = describe_call(op, args, dict(kwargs))

    def arguments(self) -> tuple[list[Any], dict[str, Any]]:
        """Return copies of the arguments."""
        return copied(self.op, self._args, self._kwargs)

    def kept(self) -> tuple[list[Any], dict[str, Any]]:
        """Return the stored arguments, which must not be written."""
        return self._args, self._kwargs

    def eager(self, generator: torch.Generator | None = None) -> Observed:
        """Return the results and effects of eager's kernel. If the op takes a generator, it draws from `generator`."""
        writes = facts_of(self.op).mutated or facts_of(self.op).writes_statistics_if
        args, kwargs = self.arguments() if writes else self.kept()
        if generator is not None:
            places = zip(facts_of(self.op).arguments, arguments_of(self.op, args, kwargs), strict=True)
            given, named = call_of(self.op, [generator if one.kind == "Generator" else value for one, value in places])
            args, kwargs = [*given], dict(named)
        return observe(eager(self.op), args, kwargs)[1]


class Draws:
    """The states of the generators that a call may draw from."""

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        every = list(leaves_of([*args, *kwargs.values()]))
        self._states = [(one, one.get_state()) for one in every if isinstance(one, torch.Generator)]
        self._states += states_of(one for one in every if isinstance(one, torch.Tensor) and facts_of(op).is_random)

    def moved(self) -> bool:
        """Return whether any generator has drawn random numbers since."""
        return any(not torch.equal(generator.get_state(), state) for generator, state in self._states)

    def restore(self) -> None:
        """Restore the states of the generators."""
        for generator, state in self._states:
            generator.set_state(state)


class Compared(NamedTuple):
    """A call that was compared with eager.

    Attributes:
        result: the value that it returned.
        error: the exception that it raised instead, or None.
        difference: how its results or effects differ from eager's; None if they do not.
        random: whether it drew random numbers, so that its values were not compared.
        other_strides: whether its results have other strides than eager's, and may have them.
        was_compared: false if the call has no route, or a predicate raised.
    """

    result: Any
    error: Exception | None
    difference: Difference | None
    random: bool
    other_strides: bool = False
    was_compared: bool = True


def compared(
    call: CopiedCall,
    args: Sequence[Any],
    kwargs: Mapping[str, Any],
    run: Callable[[], Any],
    allowed: Callable[[], Strides] = lambda: "exact",
) -> Compared:
    """Run a call, and run it natively on copies of its arguments; both start from the same generator states.

    Args:
        call: the call.
        args: its positional arguments.
        kwargs: its keyword arguments.
        run: runs the call on these arguments.
        allowed: returns which strides of the results must be eager's. Called only if some are not.
    """
    op = call.op
    with no_current_modes():
        draws = Draws(op, args, kwargs)
        want = call.eager()
        drew = draws.moved()
        draws.restore()
    result = None
    with Caught() as caught:
        result = run()
    if isinstance(caught.error, (NoRoute, UnsupportedOpError)) or is_of_predicate(caught.error):
        return Compared(None, caught.error, None, random=False, was_compared=False)
    with no_current_modes(), lazy_bits_visible():
        drew = drew or draws.moved()
        have = observed(result, args, kwargs, caught.error)
        found = difference(op, *call.kept(), want, have, eager(op), values=not drew)
        others = allowed() if found is not None and found.kind == "strides" else "exact"
        if others != "exact":
            found = difference(op, *call.kept(), want, have, eager(op), values=not drew, strides=others)
    return Compared(result, caught.error, found, drew, others != "exact" and (found is None or found.kind != "strides"))


def is_of_predicate(error: Exception | None) -> bool:
    """Return whether a predicate raised an error. It is no result of the call that could differ from eager's."""
    return isinstance(error, KernelError) and error.kind == "predicate"


def allowed_strides(planner: Planner, call: CopiedCall) -> Strides:
    """Return which strides of a call's results must be eager's.

    Others are allowed if a kernel of the backend that need not match eager's strides runs the call, or one of the ops that it
    decomposes into.
    """
    args, kwargs = call.kept()
    kernel = kernel_for(planner, call.op, args, kwargs)
    if kernel is not None:
        return "exact" if kernel is builtin(call.op) else strides_of_kernel(call.op, args, kwargs)
    draws = Draws(call.op, args, kwargs)
    checking = _replay(planner, call)
    draws.restore()
    return "any" if checking.other_strides and not checking.found else "exact"


def eager(op: OpOverload) -> Callable[..., Any]:
    """Return the function that runs an op in plain eager, also inside a mode's handler."""

    def run(*args: Any, **kwargs: Any) -> Any:
        with no_current_modes(), without_torch_function(), lazy_bits_visible():
            return op(*args, **kwargs)

    return run


def why_not_compared(planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return why a call cannot be compared with eager; "" if it can."""
    if facts_of(op).reads_workspace_of and planner.decide(op).kernel is None:
        return "reads a workspace that the forward op's own kernel alone knows how to write"
    if fake_mode_entered():  # it returns fake results for all arguments, and it rejects some tensors that eager accepts
        return "a FakeTensorMode is entered"
    tensors = list(tensors_in([*args, *kwargs.values()]))
    if not all(map(is_plain, tensors)):
        return "sparse, nested, quantized, fake or subclassed tensors, or zeros without memory"
    return ""


def kernel_for(planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Callable[..., Any] | None:
    """Return the kernel that runs a call; None if rules decompose it."""
    decision = planner.decide(op)
    return decision.kernel if decision.supports(op, args, kwargs) else None


@dataclass(frozen=True)
class Finding:
    """The first wrong step of a call.

    Attributes:
        call: the step.
        rule: the wrong rule; None for a kernel.
        name: where the rule or kernel is defined.
        difference: how the results or effects of the step differ from eager's.
        chain: the ops and rules that led to the step, outermost first.
    """

    call: CopiedCall
    rule: Rule | None
    name: str
    difference: Difference
    chain: tuple[str, ...]


def replayed(planner: Planner, call: CopiedCall) -> Finding | None:
    """Return the first wrong kernel or innermost wrong rule of a call; None if its rules and kernels match eager."""
    args, kwargs = call.arguments()
    kernel = kernel_for(planner, call.op, args, kwargs)
    if kernel is not None:
        found = compared(call, args, kwargs, lambda: kernel(*args, **kwargs), lambda: allowed_strides(planner, call)).difference
        return Finding(call, None, place_of(kernel), found, ()) if found is not None else None
    checking = _replay(planner, call)
    return checking.found[0] if checking.found else None


def _replay(planner: Planner, call: CopiedCall) -> _CheckingRecorder:
    """Run a call again by its rules, and return the recorder with its findings."""
    args, kwargs = call.arguments()
    every = arguments_of(call.op, args, kwargs)
    recorder = _CheckingRecorder(planner, call.op, program_arguments(call.op, every))
    with (
        without_torch_function(),
        lazy_bits_visible(),
        Caught(),
    ):  # ignore errors: wrong ones are in `found` already
        recorder.run(planner.decide(call.op).rules, args, kwargs)
    return recorder


def culprit_of(
    call: CopiedCall, finding: Finding | None, run: Callable[..., Any], hook: Callable[..., Any] | None, kernel: str = ""
) -> Culprit:
    """Return the culprit of a call that differed.

    Args:
        call: the call.
        finding: the result of `replayed` for it.
        run: runs the call as the program did.
        hook: the backend's `compile` hook.
        kernel: where the kernel is defined, if a single kernel runs the call.
    """
    if finding is not None:
        kind = "kernel" if finding.rule is None else "rule"
        return Culprit(kind, str(finding.call.op), finding.name, finding.call.text, finding.difference, finding.chain)
    args, kwargs = call.arguments()
    again = compared(call, args, kwargs, lambda: run(*args, **kwargs)).difference
    if again is None:
        name = f"the kernel {kernel}" if kernel else "a kernel or rule that does not always do the same"
        return Culprit("unsteady", str(call.op), name, call.text, None)
    name = "the cached program of the call" if hook is None else f"what the compile hook {hook!r} made of its program"
    return Culprit("program", str(call.op), name, call.text, again)


class _CheckingRecorder(Recorder):
    """A recorder that compares each kernel and rule with eager. In `found`, kernels that a rule calls come before the rule."""

    def __init__(self, planner: Planner, op: OpOverload, arguments: Sequence[Any]) -> None:
        super().__init__(planner.decide, op, arguments)
        self._planner = planner
        self.found: list[Finding] = []
        self.other_strides = False  # whether a kernel returned other strides, and is allowed to
        self._open: list[str] = []
        self._rule: Rule | None = None

    def _note(self, op: OpOverload, kernel: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.found or kernel is builtin(op):
            return super()._note(op, kernel, args, kwargs)
        note = super()._note
        return self._checked(op, args, kwargs, lambda: note(op, kernel, args, kwargs), lambda: (None, place_of(kernel)))

    def _expand(self, op: OpOverload, rules: Sequence[Rule], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        if self.found:
            return super()._expand(op, rules, args, kwargs)
        expand, depth = super()._expand, len(self._open)

        def run() -> Any:
            self._open.append(str(op))
            try:
                return expand(op, rules, args, kwargs)
            finally:
                del self._open[depth:]

        return self._checked(op, args, kwargs, run, lambda: (self._rule, str(self._rule)))

    def _apply(self, rule: Rule, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        depth, before = len(self._open), len(self.found)
        self._open[-1] = f"{rule.op} by {rule}"
        result = NotImplemented
        try:
            result = super()._apply(rule, args, kwargs)
        except NoRoute:
            del self.found[before:]
            raise
        finally:
            del self._open[depth:]
            self._rule = rule
        if result is NotImplemented:
            del self.found[before:]
        return result

    def _checked(
        self,
        op: OpOverload,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        run: Callable[[], Any],
        who: Callable[[], tuple[Rule | None, str]],
    ) -> Any:
        args, kwargs = plain(list(args)), {name: plain(value) for name, value in kwargs.items()}
        if why_not_compared(self._planner, op, args, kwargs):
            return run()
        with no_current_modes():
            call = CopiedCall(op, args, kwargs)
        kernel = kernel_for(self._planner, op, args, kwargs) is not None
        made = compared(
            call,
            args,
            kwargs,
            run,
            lambda: strides_of_kernel(op, *call.kept()) if kernel else "any" if self.other_strides else "exact",
        )
        self.other_strides = self.other_strides or made.other_strides
        if made.difference is not None:
            rule, name = who()
            self.found.append(Finding(call, rule, name, made.difference, tuple(self._open)))
        if made.error is not None:
            try:
                raise made.error
            finally:
                del made  # otherwise the frame and the error would keep each other alive
        return made.result
