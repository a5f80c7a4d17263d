"""Print how the work of Python in a call grows with its sizes and lists, on Core ATen; fail if it grows faster than in eager.

    python tools/python_growth.py [--match REGEX] [--resume FILE]

Samples of each operator of torch's database run three times: the first call is recorded, the second replays the program, and the
third compiles it. One dimension of the tensors, or an integer argument, grows to each of `SIZES`; or a list of tensors grows to
each of `LISTS`. The work is the number of calls of Python functions, and the most bytes of Python objects. Nothing is timed, so the
results do not depend on the machine.

In eager, both are constant in sizes, and linear in the length of a list. Ours may also grow by `PER_KERNEL` for each further kernel
call (`tools/growth.py` has those). The exit code is 1 if one grows faster. What eager fails at is not measured. Each operator runs
in its own process, with limited memory and CPU time. With `--resume` a run can be stopped, and continues from its results.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import resource
import sys
import tracemalloc
import warnings
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Selection, cases, full_name, opinfos
from conformance.python_calls import python_calls
from eagerdecomp import EagerDecompMode, ProgramCache, UnsupportedOpError, core_aten
from eagerdecomp.conformance.workers import Lost, done_in_processes
from tools.growth import REJECTED, Kernels, stretches

SIZES = (10, 1_000, 1_000_000)
LISTS = (10, 100, 1_000)
CALLS = ("first", "second", "third")
SAMPLES = 3
MEMORY, SECONDS = 3 << 30, 120  # of a process
PER_KERNEL = (400, 20_000)  # calls of Python functions, and bytes, for each kernel call: as many as its recording takes, doubled
SLACK, MORE = (400, 100_000), 0.3  # allowed besides, and as a part of what a smaller call takes


@dataclass(frozen=True)
class Work:
    """The work of Python in a call: calls of functions, and the most bytes of objects."""

    calls: int
    bytes: int


def work_of(run: Callable[[], Any]) -> Work:
    """Return what Python does in a call."""
    tracemalloc.start()
    try:
        calls = python_calls(run)
        return Work(calls, tracemalloc.get_traced_memory()[1])
    finally:
        tracemalloc.stop()


@dataclass(frozen=True)
class Length:
    """The work of three calls of one length, and the kernel calls of a fourth one."""

    length: int
    work: tuple[Work, ...]
    kernels: int


def ways(arguments: Any) -> Iterator[tuple[str, Sequence[int], Callable[[int], Any]]]:
    """Yield the ways in which a call can grow: a name, the lengths, and a function from a length to the arguments."""
    args, kwargs = arguments
    for place, given in enumerate(args):
        if isinstance(given, (list, tuple)) and given and all(isinstance(one, Tensor) for one in given):

            def listed(length: int, place: int = place, given: Any = given) -> Any:
                longer = type(given)(itertools.islice(itertools.cycle(given), length))
                return (*args[:place], longer, *args[place + 1 :]), kwargs

            yield f"list {place}", LISTS, listed
    for key, stretch in stretches(arguments):
        if stretch.integer is not None or stretch.position is not None:
            yield key, SIZES, lambda length, stretch=stretch: stretch.applied(arguments, length)  # type: ignore[misc]


def measured(length: int, run: Callable[[], Any], cache: ProgramCache) -> Length:
    """Measure a call, with no program in the cache."""
    cache.clear()
    with EagerDecompMode(core_aten(), cache=cache) as mode:
        work = tuple([work_of(run) for _ in CALLS])
    with Kernels() as kernels, mode:
        run()
    return Length(length, work, kernels.seen.calls)


def growth(found: Sequence[Length], lists: bool) -> list[str]:
    """Return what grows faster than in eager between the last two lengths of three."""
    small, middle, large = found
    times = (large.length - middle.length) / (middle.length - small.length) if lists else 0
    wrong = []
    for number, which in enumerate(CALLS):
        for at, what in enumerate(("calls", "bytes")):
            first, second, third = (getattr(one.work[number], what) for one in found)
            expected = times * max(0, second - first) * (1 + MORE) + MORE * second
            allowed = expected + SLACK[at] + PER_KERNEL[at] * max(0, large.kernels - middle.kernels)
            if third - second > allowed:
                wrong.append(f"{which} call, {what} of Python: {first:,}, {second:,}, {third:,}")
    return wrong


def rows(info: Any, dead: Collection[str], begin: Callable[[Any], None]) -> Iterator[tuple[str, str]]:
    """Yield the ways in which an operator grows, without those in `dead`: its name, and what grows too fast, or ""."""
    done = {*dead}
    for case in itertools.islice(cases(info, Selection(samples=0), 0), SAMPLES):
        cache = ProgramCache()
        with EagerDecompMode(core_aten(), cache=cache), suppress(*REJECTED, UnsupportedOpError):
            case.function(*case.arguments[0], **case.arguments[1])  # planned
        for key, lengths, stretched in ways(case.arguments):
            found: list[Length] = []
            for length in () if key in done else lengths:
                begin((key, "eager"))
                try:
                    args, kwargs = stretched(length)
                    run = functools.partial(case.function, *args, **kwargs)
                    run()
                except REJECTED:
                    break
                begin((key, "ours"))
                with suppress(UnsupportedOpError):
                    found.append(measured(length, run, cache))
            if len(found) == len(lengths):
                done.add(key)
                yield key, "; ".join(growth(found, lists=lengths is LISTS))


def measured_in_process(info: Any) -> list[tuple[str, str]]:
    """Return the ways of an operator, each with what grows too fast, or "". After a crash another process continues."""
    dead: dict[str, str] = {}

    def work(job: int, beat: Callable[[Any], None]) -> list[tuple[str, str]]:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (SECONDS, SECONDS))
        return [*rows(info, dead, beat)]

    while True:
        ((_, found),) = done_in_processes([0], work, 1, 10 * SECONDS)
        if not isinstance(found, Lost):
            return [*found, *dead.items()]
        key, who = found.last or ("", "")
        if not key or (found.how, who) == ("error", "eager"):
            raise RuntimeError(f"{full_name(info)}: {found.message}\n{found.words}")
        dead[key] = found.message if who == "ours" else ""


def main(argv: Sequence[str] | None = None) -> int:
    """Measure all operators; print what grows too fast."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--match", metavar="REGEX", default="", help="only operators whose name matches")
    parser.add_argument("--resume", metavar="FILE", type=Path, help="write each result to FILE at once, and continue from it")
    options = parser.parse_args(argv)
    try:
        infos = opinfos(options.match)
    except re.error as error:
        parser.error(str(error))
    warnings.simplefilter("ignore")

    found: dict[str, list[tuple[str, str]]] = {}
    if options.resume is not None and options.resume.exists():
        found = dict(map(json.loads, options.resume.read_text(encoding="utf-8").splitlines()))
    count, wrong = 0, 0
    for info in infos:
        name = full_name(info)
        if name not in found:
            found[name] = measured_in_process(info)
            if options.resume is not None:
                with options.resume.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, found[name]]) + "\n")
        for key, text in found[name]:
            count, wrong = count + 1, wrong + bool(text)
            if text:
                print(f"{name}, {key}: {text}", flush=True)
    print(f"{len(infos)} operators, {count} ways to grow, {wrong} too fast")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    sys.exit(main())
