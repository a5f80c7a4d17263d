"""Print how the work of Python in a call grows with its sizes and lists, on Core ATen; fail if it grows faster than in eager.

    python tools/python_growth.py [--match REGEX] [--resume FILE]

Samples of each operator of torch's database run three times: the first call is recorded, the second replays the program, and the
third compiles it. One dimension of the tensors, or an integer argument, grows through `SIZES` until the tensors would have more
than `MOST_ELEMENTS` or eager is slow, and the last two lengths are compared; or a list of tensors grows to each of `LISTS`. Work
is the number of calls of Python functions, and the most bytes of Python objects. No time is compared, so the results do not depend
on the machine.

In eager, both are constant in sizes, and linear in the lengths of lists. Ours may also grow by `PER_KERNEL` for each further result
and kernel call (`tools/growth.py` has those). The exit code is 1 if one grows faster. What eager fails at is not measured. Each
operator runs in its own process, with limited memory and, for each call, CPU time. With `--resume` a run can be stopped, and
continues from its results.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import re
import resource
import sys
import time
import tracemalloc
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from conformance.cases import Selection, cases, full_name, opinfos
from conformance.python_calls import python_calls
from eagerdecomp import EagerDecompMode, ProgramCache, UnsupportedOpError, core_aten
from eagerdecomp.conformance.workers import Lost, done_in_processes
from eagerdecomp.eager.crashes import would_crash
from tools.growth import ALLOWED, REJECTED, Kernels, stretches

SIZES = (100, 1_000, 10_000, 100_000, 1_000_000)
LISTS = (10, 100, 1_000)
MOST_ELEMENTS = 1 << 22  # of the tensors of a call: what Python does for each of them shows at far fewer
CALLS = ("first", "second", "third")
SAMPLES = 3
MOST_SECONDS = 0.1  # of CPU time that eager takes for a call
MEMORY, SECONDS = 3 << 30, {"eager": 5, "ours": 30}  # of a process, and of each of its steps
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
    """The work of three calls of one length, and the kernel calls and results of a fourth one."""

    length: int
    work: tuple[Work, ...]
    kernels: int


def ways(arguments: Any) -> Iterator[tuple[str, bool, Callable[[int], Any]]]:
    """Yield the ways in which a call can grow: a name, whether it is a list, and a function from a length to the arguments."""
    args, kwargs = arguments
    for place, given in enumerate(args):
        if isinstance(given, (list, tuple)) and given and all(isinstance(one, Tensor) for one in given):

            def listed(length: int, place: int = place, given: Any = given) -> Any:
                longer = type(given)(itertools.islice(itertools.cycle(given), length))
                return (*args[:place], longer, *args[place + 1 :]), kwargs

            yield f"list {place}", True, listed
    for key, stretch in stretches(arguments):
        if stretch.integer is not None or stretch.position is not None:
            yield key, False, lambda length, stretch=stretch: stretch.applied(arguments, length)  # type: ignore[misc]


def measured(length: int, run: Callable[[], Any], cache: ProgramCache) -> Length:
    """Measure a call, with no program in the cache."""
    with EagerDecompMode(core_aten(), cache=cache):
        run()  # planned: a longer call may take other rules
    cache.clear()
    with EagerDecompMode(core_aten(), cache=cache) as mode:
        work = tuple([work_of(run) for _ in CALLS])
    with Kernels() as kernels, mode:  # of the compiled program: a shorter call may hoist more constants
        results = len(tree_leaves(run()))
    return Length(length, work, kernels.seen.calls + results)


def growth(found: Sequence[Length], lists: bool) -> list[str]:
    """Return what grows faster than in eager between the last two lengths: of three if they are of lists, else of two."""
    middle, large = found[-2:]
    times = (large.length - middle.length) / (middle.length - found[0].length) if lists else 0
    wrong = []
    for number, which in enumerate(CALLS):
        for at, what in enumerate(("calls", "bytes")):
            values = [getattr(one.work[number], what) for one in found]
            second, third = values[-2:]
            expected = times * max(0, second - values[0]) * (1 + MORE) + MORE * second
            allowed = expected + SLACK[at] + PER_KERNEL[at] * max(0, large.kernels - middle.kernels)
            if third - second > allowed:
                wrong.append(f"{which} call, {what} of Python: {', '.join(f'{value:,}' for value in values)}")
    return wrong


class _Refusing(TorchDispatchMode):
    """Refuses the calls for which eager reads or writes out of bounds."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if would_crash(func, args, kwargs or {}):
            raise RuntimeError(f"{func} would crash")
        return func(*args, **kwargs or {})


def _elements(value: Any) -> int:
    return sum(x.numel() for x in tree_leaves(value) if isinstance(x, Tensor) and x.layout is torch.strided)


def calls_of_sizes(
    function: Callable[..., Any], stretched: Callable[[int], Any], most: int, begin: Callable[[int], None]
) -> list[tuple[int, Callable[[], Any]]]:
    """Return the calls of the last two of `SIZES`, below `most`, that eager accepts and that have few elements."""
    found: list[tuple[int, Callable[[], Any]]] = []
    before = elements = 0
    for length in SIZES:
        if length >= most or elements * max(10, elements / before if before else 0) > MOST_ELEMENTS:
            break
        begin(length)
        start = time.process_time()
        try:
            args, kwargs = stretched(length)
            with _Refusing():
                result = function(*args, **kwargs)
        except REJECTED:
            break
        before, elements = elements, _elements((args, kwargs, result))
        slow = time.process_time() - start > MOST_SECONDS and len(found) > 1  # `mvlgamma` makes tensors that only it sees
        if elements > 10 * MOST_ELEMENTS or slow:
            break
        found.append((length, functools.partial(function, *args, **kwargs)))
    return found[-2:]


def calls_of_lists(function: Callable[..., Any], listed: Callable[[int], Any]) -> list[tuple[int, Callable[[], Any]]]:
    """Return the calls of `LISTS`; none if eager rejects one."""
    found: list[tuple[int, Callable[[], Any]]] = []
    for length in LISTS:
        args, kwargs = listed(length)
        found.append((length, functools.partial(function, *args, **kwargs)))
    with suppress(*REJECTED):
        for _, run in found:
            run()
        return found
    return []


def rows(info: Any, done: dict[str, str], most: dict[str, int], begin: Callable[[str, str, int], None]) -> None:
    """Add to `done` the ways in which an operator grows, to lengths below `most`: a name, and what grows too fast, or ""."""
    growing = (case for case in cases(info, Selection(samples=0), 0) if any(ways(case.arguments)))
    for case in itertools.islice(growing, SAMPLES):
        cache = ProgramCache()
        for key, lists, stretched in ways(case.arguments):
            if key in done or most.get(key) == 0:
                continue
            begin(key, "eager", 0)
            eager = functools.partial(begin, key, "eager")
            if lists:
                calls = calls_of_lists(case.function, stretched)
            else:
                calls = calls_of_sizes(case.function, stretched, most.get(key, SIZES[-1] + 1), eager)
            begin(key, "ours", max([length for length, _ in calls], default=0))
            with suppress(UnsupportedOpError):
                found = [measured(length, run, cache) for length, run in calls]
                if len(found) > 1 and growth(found, lists):  # perhaps what is imported and cached once
                    found = [measured(length, run, cache) for length, run in calls]
                if len(found) > 1:
                    done[key] = "; ".join(growth(found, lists))


def measured_in_process(info: Any) -> list[tuple[str, str]]:
    """Return the ways of an operator, each with what grows too fast, or "". After a crash another process continues.

    If a call crashes, or takes too long, the next process measures shorter lengths: what Python does too often shows there too.
    """
    done: dict[str, str] = {}
    most: dict[str, int] = {}

    def work(job: int, beat: Callable[[Any], None]) -> dict[str, str]:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))

        def begin(key: str, who: str, length: int) -> None:
            beat((key, who, length, done))
            seconds = int(time.process_time()) + SECONDS[who]
            resource.setrlimit(resource.RLIMIT_CPU, (seconds, resource.RLIM_INFINITY))

        rows(info, done, most, begin)
        return done

    while True:
        ((_, found),) = done_in_processes([0], work, 1, 10 * max(SECONDS.values()))
        if not isinstance(found, Lost):
            return [*found.items()]
        key, who, length, done = found.last or ("", "", 0, {})
        if not key or (found.how, who) == ("error", "eager"):
            raise RuntimeError(f"{full_name(info)}: {found.message}\n{found.words}")
        if who == "ours" and length <= SIZES[1]:
            done[key] = found.message
        else:
            most[key] = length


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
    with EagerDecompMode(core_aten()):
        torch.ones(3).softmax(0)  # what it imports, each process would import again
    count, wrong = 0, 0
    for info in infos:
        name = full_name(info)
        if name not in found:
            found[name] = measured_in_process(info)
            if options.resume is not None:
                with options.resume.open("a", encoding="utf-8") as file:
                    file.write(json.dumps([name, found[name]]) + "\n")
        for key, text in found[name] if name not in ALLOWED else ():
            count, wrong = count + 1, wrong + bool(text)
            if text:
                print(f"{name}, {key}: {text}", flush=True)
    print(f"{len(infos)} operators, {count} ways to grow, {wrong} too fast")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    sys.exit(main())
