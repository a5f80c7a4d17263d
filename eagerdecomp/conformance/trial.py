"""Try one kernel with the calls that its spec draws, and find the smallest call that shows each property it breaks."""

from __future__ import annotations

import time
import zlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.checks import LIKE_EAGER, PARAMETERS, REFUSES, compared
from eagerdecomp.conformance.choices import INPUT_SEEDS, Coverage, Draw, simplest
from eagerdecomp.conformance.shrinking import smaller
from eagerdecomp.conformance.spec import Call, Fault, Kernel, Property, Skip, Spec
from eagerdecomp.conformance.state import REPEATS, THREADS
from eagerdecomp.eager.observe import Caught
from eagerdecomp.ops.call_text import value_text
from eagerdecomp.ops.schema import arguments_of, facts_of

__all__ = ["Effort", "Found", "Trial", "exercised", "found_again", "hash_of", "is_random", "properties_of", "shown"]

#: What is asked of every kernel.
EVERY_KERNEL = (LIKE_EAGER, REFUSES, PARAMETERS, REPEATS, THREADS)

_SHRINKS = 150

# How many times the seconds of an effort a kernel may take by the clock, since it may wait, or others use the machine.
_PATIENCE = 5.0

# Values of an argument that are noted.
_ENOUGH = 2


@dataclass(frozen=True)
class Effort:
    """How much a kernel is tried.

    Attributes:
        cases: how many calls are compared with eager; other properties get their share of that.
        seconds: of the process's own time, after which no more are drawn, once `least` are.
        least: cases of each property that are drawn whatever it takes, and when a fault is known.
        faults: after how many faults of different kinds a kernel has been tried enough.
    """

    cases: int
    seconds: float
    least: int
    faults: int = 3


@dataclass(frozen=True)
class Found:
    """A fault, and the choices that draw it."""

    property: Property
    fault: Fault
    choices: Sequence[int]


@dataclass
class Trial:
    """The trials of a kernel so far."""

    cases: int = 0
    skipped: int = 0
    checked: Counter[str] = field(default_factory=Counter)
    found: list[Found] = field(default_factory=list)
    seconds: float = 0.0
    reason: str = ""
    given: dict[str, set[str]] = field(default_factory=dict)
    default_dtype: torch.dtype = field(default_factory=torch.get_default_dtype)

    def note(self, kernel: Kernel, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Note what each argument was given, as long as that says whether it was varied."""
        for argument, value in zip(facts_of(kernel.op).arguments, arguments_of(kernel.op, args, kwargs), strict=False):
            seen = self.given.setdefault(argument.name, set())
            if len(seen) < _ENOUGH:
                seen.add(value_text(value))

    @property
    def varied(self) -> tuple[str, ...]:
        """Arguments that were given more than one value, or kind of tensor."""
        return tuple(name for name, seen in self.given.items() if len(seen) > 1)


def properties_of(spec: Spec) -> tuple[Property, ...]:
    """All that is asked of a kernel with this spec."""
    return (*EVERY_KERNEL, *spec.properties)


def exercised(
    kernel: Kernel,
    spec: Spec,
    effort: Effort,
    seed: int,
    beat: Callable[[Property, Sequence[int]], None] = lambda prop, choices: None,
    tick: Callable[[], None] = lambda: None,
) -> Trial:
    """Try a kernel.

    Args:
        beat: called with each case before a kernel is called, eager's or this one, so that a case that ends the process is known.
        tick: called with each call of the kernel, which may be many in a case.
    """
    kernel = _ticking(kernel, tick)
    trial, started, begun = Trial(), time.monotonic(), time.process_time()
    properties = properties_of(spec)
    coverages = {prop.name: Coverage(hash_of(seed, str(kernel.op), prop.name)) for prop in properties}
    done: Counter[str] = Counter()
    wanted = {prop.name: max(1, round(effort.cases * prop.share)) for prop in properties}
    kinds: set[str] = set()
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        while len(kinds) < effort.faults:
            open_ones = [prop for prop in properties if done[prop.name] < wanted[prop.name]]
            if "values" in kinds:  # in several calls the same would show again
                open_ones = [prop for prop in open_ones if prop not in (REPEATS, THREADS)]
            waited = time.monotonic() - started > _PATIENCE * effort.seconds
            late = bool(kinds) or waited or time.process_time() - begun > effort.seconds
            if late:
                open_ones = [prop for prop in open_ones if done[prop.name] < min(effort.least, wanted[prop.name])]
            if not open_ones:
                break
            # The first calls of all are plain ones, made several times: what is wrong with a kernel's second call shows there.
            first = not sum(done.values())
            prop = REPEATS if first else min(open_ones, key=lambda one: done[one.name] / wanted[one.name])
            done[prop.name] += 1
            draw = Draw((0,), None) if first else Draw(coverage=coverages[prop.name])
            fault = _tried(kernel, spec, prop, draw, trial, beat)
            if fault is not None and fault.kind not in kinds:
                found = _smallest(kernel, spec, prop, fault, draw.choices, beat)
                if found.fault.kind not in kinds:
                    trial.found.append(found)
                kinds.update((fault.kind, found.fault.kind))
    trial.seconds = time.monotonic() - started
    return trial


def _tried(
    kernel: Kernel, spec: Spec, prop: Property, draw: Draw, trial: Trial, beat: Callable[[Property, Sequence[int]], None]
) -> Fault | None:
    reported = _Reporting(lambda: beat(prop, draw.choices), draw, trial)
    torch.set_grad_enabled(False)  # whatever an earlier call did to it
    torch.manual_seed(hash_of(trial.cases, trial.skipped, prop.name) % INPUT_SEEDS)
    torch.set_default_dtype(trial.default_dtype)
    try:
        fault = prop.broken(reported.kernel(kernel), spec, draw)
    except Skip as skip:
        trial.skipped += 1
        trial.reason = str(skip)
        return None
    trial.cases += 1
    trial.checked[prop.name] += 1
    return fault


def _ticking(kernel: Kernel, tick: Callable[[], None]) -> Kernel:
    def run(*args: Any, **kwargs: Any) -> Any:
        tick()
        return kernel.run(*args, **kwargs)

    return replace(kernel, run=run)


class _Reporting:
    """Reports a case when a kernel is first called, eager's or this one: all that is drawn is drawn by then. Notes with what."""

    def __init__(self, progress: Callable[[], None], draw: Draw, trial: Trial) -> None:
        self._report: Callable[[], None] | None = progress
        self._draw = draw
        self._trial = trial
        self._noted = False

    def kernel(self, kernel: Kernel) -> Kernel:
        """The kernel, reported before it runs."""

        def run(*args: Any, **kwargs: Any) -> Any:
            if not self._noted:
                self._noted = True
                self._first()
                self._trial.note(kernel, args, kwargs)
            return kernel.run(*args, **kwargs)

        def native(*args: Any, **kwargs: Any) -> Any:
            if self._report is not None:  # where eager's comes first no seed is asked about: the same when the case is drawn again
                torch.manual_seed(hash_of(*self._draw.choices) % INPUT_SEEDS)
            self._first()
            return kernel.native(*args, **kwargs)

        return replace(kernel, run=run, native=native)

    def _first(self) -> None:
        if self._report is not None:
            progress, self._report = self._report, None
            progress()


def shown(kernel: Kernel, spec: Spec, prop: Property, choices: Sequence[int]) -> Fault | None:
    """The fault that a case shows, drawn again; None where it shows none."""
    draw = Draw(choices)
    reported = _Reporting(lambda: None, draw, Trial())
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        try:
            return prop.broken(reported.kernel(kernel), spec, draw)
        except Skip:
            return None


def found_again(kernel: Kernel, spec: Spec, prop: Property, choices: Sequence[int]) -> Found | None:
    """Run a case again, shrink it, and return its failure, or None."""
    fault = shown(kernel, spec, prop, choices)
    with torch.no_grad():
        return None if fault is None else _smallest(kernel, spec, prop, fault, choices, lambda prop, choices: None)


def _smallest(
    kernel: Kernel,
    spec: Spec,
    prop: Property,
    fault: Fault,
    choices: Sequence[int],
    beat: Callable[[Property, Sequence[int]], None],
) -> Found:
    if prop is PARAMETERS:  # which may have nothing to do with it
        alone = shown(kernel, spec, LIKE_EAGER, choices)
        if alone is not None:
            return _smallest(kernel, spec, LIKE_EAGER, alone, choices, beat)
    best = fault

    def fails(attempt: Sequence[int]) -> bool:
        nonlocal best
        beat(prop, attempt)
        found = shown(kernel, spec, prop, attempt)
        if found is None or found.kind != fault.kind:
            return False
        best = found
        return True

    smallest = simplest(choices, fails, _SHRINKS)
    if prop is LIKE_EAGER and best.call is not None and not is_random(kernel.op):
        best = _with_fewer_elements(kernel, spec, best, best.call)
    return Found(prop, best, smallest)


def _with_fewer_elements(kernel: Kernel, spec: Spec, fault: Fault, call: Call) -> Fault:
    best = fault

    def fails(attempt: Call) -> bool:
        nonlocal best
        found = None
        with Caught():  # the spec judges calls here that it does not draw
            found = compared(kernel, spec, attempt)
        if found is None or found.kind != fault.kind:
            return False
        best = found
        return True

    smaller(call, fails)
    return best


def is_random(op: OpOverload) -> bool:
    """Whether an op draws numbers, so that a call of it is known only with where the generator is, as a case is."""
    return torch.Tag.nondeterministic_seeded in op.tags


def hash_of(*parts: object) -> int:
    """A seed that depends on all parts, the same in every process."""
    return zlib.crc32(repr(parts).encode())
