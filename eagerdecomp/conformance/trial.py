"""Test one kernel with random calls from its spec, and find the smallest failing call for each property that it breaks."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.checks import DEFAULT_DTYPE, LIKE_EAGER, PARAMETERS, RARE_DTYPES, REFUSES, compared
from eagerdecomp.conformance.choices import INPUT_SEEDS, Coverage, Draw, simplest
from eagerdecomp.conformance.shrinking import smaller
from eagerdecomp.conformance.spec import Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.state import REPEATS, THREADS
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import KernelError
from eagerdecomp.ops.call_text import value_text
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in

__all__ = [
    "Effort",
    "Found",
    "Trial",
    "first_call",
    "try_kernel",
    "rerun_and_shrink",
    "hash_of",
    "is_random",
    "properties_of",
    "rerun",
]

#: Properties that every kernel must have.
EVERY_KERNEL = (LIKE_EAGER, REFUSES, PARAMETERS, DEFAULT_DTYPE, RARE_DTYPES, REPEATS, THREADS)

# Maximum number of smaller cases to try for one fault.
_SHRINKS = 150

# Maximum wall time, as a multiple of `Effort.seconds`: a kernel may wait, and other processes may use the machine.
_PATIENCE = 10.0

# The part of a case as which a skipped one counts: a backend of few dtypes skips most, in little time.
_SKIPPED = 0.25

# Number of distinct values of an argument to record.
_ENOUGH = 2


@dataclass(frozen=True)
class Effort:
    """How much to test a kernel.

    Attributes:
        cases: number of calls to compare with eager; each other property gets `Property.share` times as many.
        seconds: CPU seconds for the calls to compare with eager; each other property gets `Property.share` times as many.
        least: minimum cases per property, even past the time, and even after a fault.
        faults: number of different kinds of faults after which testing stops.
    """

    cases: int
    seconds: float
    least: int
    faults: int = 3


@dataclass(frozen=True)
class Found:
    """A fault, and the choices that reproduce its case."""

    property: Property
    fault: Fault
    choices: Sequence[int]


@dataclass
class Trial:
    """Results of the test of a kernel so far.

    Attributes:
        cases: number of cases that ran.
        skipped: number of cases that tested nothing.
        checked: name of a property -> number of its cases.
        found: the faults, each with the choices that reproduce it.
        seconds: the wall time.
        reason: why the last skipped case was skipped.
        cut: how much of the calls to compare with eager ran before the time ended, such as ``38 of 120``; empty if all did.
        given: name of an argument -> up to two of its values, as text.
        default_dtype: the default dtype in which the cases run.
        passed: dtypes in calls without a fault.
        failed: dtypes in calls with a fault.
    """

    cases: int = 0
    skipped: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    cut: str = ""
    given: dict[str, set[str]] = field(default_factory=dict)
    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)
    passed: set[torch.dtype] = field(default_factory=set)
    failed: set[torch.dtype] = field(default_factory=set)

    def note(self, kernel: TestedKernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record the value of each argument, until two different values are known."""
        for argument, value in zip(facts_of(kernel.op).arguments, arguments_of(kernel.op, args, kwargs), strict=False):
            seen = self.given.setdefault(argument.name, set())
            if len(seen) < _ENOUGH:
                seen.add(value_text(value))

    @property
    def failing_dtypes(self) -> tuple[str, ...]:
        """Dtypes with which every call had a fault, if calls with others had none."""
        return tuple(sorted(map(str, self.failed - self.passed))) if self.passed - self.failed else ()

    @property
    def varied(self) -> tuple[str, ...]:
        """Arguments that had more than one value, or more than one kind of tensor."""
        return tuple(name for name, seen in self.given.items() if len(seen) > 1)


def properties_of(spec: Spec) -> tuple[Property, ...]:
    """Return all properties that a kernel with this spec must have."""
    return (*EVERY_KERNEL, *spec.properties)


def try_kernel(
    kernel: TestedKernel,
    spec: Spec,
    effort: Effort,
    seed: int,
    on_case: Callable[[Property, Sequence[int]], None] = lambda prop, choices: None,
    on_kernel_call: Callable[[], None] = lambda: None,
) -> Trial:
    """Test a kernel.

    Args:
        kernel: the kernel.
        spec: the random calls and the tolerances of the op.
        effort: how much to test.
        seed: the seed of the random choices.
        on_case: called with each case before it first calls eager's kernel or this one, so that a case that kills the process is
            known.
        on_kernel_call: called at each call of the kernel; a case may make many.
    """
    kernel = _with_callback(kernel, on_kernel_call)
    trial, started = Trial(), time.monotonic()
    warm = started
    properties = properties_of(spec)
    coverages = {prop.name: Coverage(hash_of(seed, str(kernel.op), prop.name)) for prop in properties}
    done = {prop.name: 0.0 for prop in properties}
    # Each property has seconds of its own, because one slow case would leave none for the values.
    spent = {prop.name: 0.0 for prop in properties}
    wanted = {prop.name: max(1, round(effort.cases * prop.share)) for prop in properties}
    kinds: set[str] = set()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        while len(kinds) < effort.faults:
            pending = [prop for prop in properties if done[prop.name] < wanted[prop.name]]
            if "values" in kinds:  # repeated calls would show the same fault
                pending = [prop for prop in pending if prop not in (REPEATS, THREADS)]
            waited = time.monotonic() - warm > _PATIENCE * effort.seconds
            hurry = bool(kinds) or waited
            pending = [
                prop
                for prop in pending
                if done[prop.name] < effort.least or not (hurry or spent[prop.name] > effort.seconds * prop.share)
            ]
            if not pending:
                break
            # Start with the simplest call, repeated several times, to find faults in a kernel's second call.
            first = not sum(done.values())
            prop = REPEATS if first else min(pending, key=lambda prop: done[prop.name] / wanted[prop.name])
            draw = Draw((0,), None) if first else Draw(coverage=coverages[prop.name])
            begun, skipped = time.process_time(), trial.skipped
            fault = _run_case(kernel, spec, prop, draw, trial, on_case)
            done[prop.name] += 1 if trial.skipped == skipped else _SKIPPED
            if first:  # it also pays for what torch builds once
                warm = time.monotonic()
            elif done[prop.name] > effort.least:
                spent[prop.name] += time.process_time() - begun
            if fault is not None and fault.kind not in kinds:
                found = _smallest(kernel, spec, prop, fault, draw.choices, on_case)
                if found.fault.kind not in kinds:
                    trial.found.append(found)
                kinds.update((fault.kind, found.fault.kind))
    if not kinds and done[LIKE_EAGER.name] < wanted[LIKE_EAGER.name]:
        trial.cut = f"{done[LIKE_EAGER.name]:.0f} of {wanted[LIKE_EAGER.name]}"
    trial.seconds = time.monotonic() - started
    return trial


def _run_case(
    kernel: TestedKernel, spec: Spec, prop: Property, draw: Draw, trial: Trial, on_case: Callable[[Property, Sequence[int]], None]
) -> Fault | None:
    reported = _Reporting(lambda: on_case(prop, draw.choices), draw, trial)
    torch.set_grad_enabled(False)  # an earlier call may have changed it
    # `torch.manual_seed` queues calls for each kind of device that is not in use, with a stack trace each.
    (torch.default_generator if kernel.device == "cpu" else torch).manual_seed(
        hash_of(trial.cases, trial.skipped, prop.name) % INPUT_SEEDS
    )
    torch.set_default_dtype(trial.default_dtype)
    try:
        fault = _fault(prop, reported.kernel(kernel), spec, draw)
    except Skip as skip:
        trial.skipped += 1
        trial.reason = str(skip)
        return None
    trial.cases += 1
    trial.checked[prop.name] += 1
    if prop not in (REFUSES, RARE_DTYPES, DEFAULT_DTYPE):  # there a kernel may raise, or round to another dtype
        (trial.passed if fault is None else trial.failed).update(reported.dtypes)
    return fault


def _fault(prop: Property, kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Return the fault that a case shows, or None. A predicate that raises is one, in any case."""
    try:
        return _unless_permitted(kernel, prop.find_fault(kernel, spec, draw))
    except KernelError as error:  # of the predicate: an error of the kernel is compared with eager's
        message = f"its predicate {error.kernel} {error.fault}"
        return Fault("predicate", message, "True or False", error.fault, first_call(spec, prop, draw.choices))


def _unless_permitted(kernel: TestedKernel, fault: Fault | None) -> Fault | None:
    permitted = fault is not None and kernel.permits is not None and kernel.permits(fault.kind, fault.message)
    return None if permitted else fault


def first_call(spec: Spec, prop: Property, choices: Sequence[int]) -> Call | None:
    """Return the call that a case begins with; None if the case tests nothing."""
    try:
        return prop.call(spec, Draw(choices))
    except Skip:
        return None


def _with_callback(kernel: TestedKernel, on_kernel_call: Callable[[], None]) -> TestedKernel:
    def run(*args: Any, **kwargs: Any) -> Any:
        on_kernel_call()
        return kernel.run(*args, **kwargs)

    return replace(kernel, run=run)


class _Reporting:
    """Report a case before it first calls eager's kernel or the tested one; also record the arguments of the tested kernel."""

    def __init__(self, progress: Callable[[], None], draw: Draw, trial: Trial) -> None:
        self._report: Callable[[], None] | None = progress
        self._draw = draw
        self._trial = trial
        self._noted = False
        self.dtypes: set[torch.dtype] = set()

    def kernel(self, kernel: TestedKernel) -> TestedKernel:
        """Return the kernel, changed to report the case before it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._noted:
                self._noted = True
                self._first()
                self._trial.note(kernel, args, kwargs)
                tensors = tensors_in([*args, *kwargs.values()])
                self.dtypes = {one.dtype for one in tensors if one.numel()}  # without elements, any kernel passes
            return kernel.run(*args, **kwargs)

        def native(*args: Any, **kwargs: Any) -> Any:
            if self._report is not None:  # if eager runs first, set a seed from the choices so that the case repeats
                torch.manual_seed(hash_of(*self._draw.choices) % INPUT_SEEDS)
            self._first()
            return kernel.native(*args, **kwargs)

        return replace(kernel, run=run, native=native)

    def _first(self) -> None:
        if self._report is not None:
            progress, self._report = self._report, None
            progress()


def rerun(kernel: TestedKernel, spec: Spec, prop: Property, choices: Sequence[int]) -> Fault | None:
    """Run a case again, without shrinking it, and return its fault, or None."""
    draw = Draw(choices)
    reported = _Reporting(lambda: None, draw, Trial())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            return _fault(prop, reported.kernel(kernel), spec, draw)
        except Skip:
            return None


def rerun_and_shrink(kernel: TestedKernel, spec: Spec, prop: Property, choices: Sequence[int]) -> Found | None:
    """Run a case again, shrink it, and return its fault, or None."""
    fault = rerun(kernel, spec, prop, choices)
    with torch.no_grad():
        return None if fault is None else _smallest(kernel, spec, prop, fault, choices, lambda prop, choices: None)


def _smallest(
    kernel: TestedKernel,
    spec: Spec,
    prop: Property,
    fault: Fault,
    choices: Sequence[int],
    on_case: Callable[[Property, Sequence[int]], None],
) -> Found:
    if prop in (PARAMETERS, DEFAULT_DTYPE):  # they may have nothing to do with the fault
        alone = rerun(kernel, spec, LIKE_EAGER, choices)
        if alone is not None:
            return _smallest(kernel, spec, LIKE_EAGER, alone, choices, on_case)
    best = fault

    def fails(attempt: Sequence[int]) -> bool:
        nonlocal best
        on_case(prop, attempt)
        found = rerun(kernel, spec, prop, attempt)
        if found is None or found.kind != fault.kind:
            return False
        best = found
        return True

    smallest = simplest(choices, fails, _SHRINKS)
    if prop is LIKE_EAGER and best.call is not None and not is_random(kernel.op) and not spec.together:
        best = _with_fewer_elements(kernel, spec, best, best.call)
    return Found(prop, best, smallest)


def _with_fewer_elements(kernel: TestedKernel, spec: Spec, fault: Fault, call: Call) -> Fault:
    best = fault

    def fails(attempt: Call) -> bool:
        nonlocal best
        found = None
        with Caught():  # the spec may raise for calls that it does not generate
            found = _unless_permitted(kernel, compared(kernel, spec, attempt))
        if found is None or found.kind != fault.kind:
            return False
        best = found
        return True

    smaller(call, fails)
    return best


def is_random(op: OpOverload) -> bool:
    """Return whether an op uses the random generator, so that only the seed of a case reproduces its call."""
    return torch.Tag.nondeterministic_seeded in op.tags


def hash_of(*parts: object) -> int:
    """Return a seed that depends on all parts and is the same in every process."""
    return zlib.crc32(repr(parts).encode())
