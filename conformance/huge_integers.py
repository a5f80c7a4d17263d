"""Calls with one huge or negative integer: what eager refuses or returns at once, the mode must refuse or return too.

    python conformance/huge_integers.py [--ops core|prims|tiny] [--only PATTERN]

In a recorded call of each op, one integer, or one of a list, is replaced by each of `HUGE`. Eager is asked first. Where it takes at
most `AT_ONCE`, the mode must raise the same error, or return, with limited memory and CPU time, and in a limited number of calls
of Python functions, which does not depend on the machine. Values are not compared. Calls run in forks of limited memory and CPU
time. The mode may call an op unsupported. The exit code is 1 if a call differs. On Linux only.
"""

from __future__ import annotations

import argparse
import fnmatch
import re
import resource
import sys
import time
import warnings
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import eagerdecomp as ed
from conformance.python_calls import PythonCalls
from conformance.wrong_calls import SETS, UNSAFE, Wrong, differing, drawn_calls, error_text
from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import dispatcher_name, op_named
from eagerdecomp.conformance.workers import Lost, done_in_processes
from eagerdecomp.eager.observe import Caught, copied
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.planner.rule_calls import load_calls

#: Integers of which one is in each call.
HUGE = (2**31, 2**62 - 1, -1, -(2**62))
AT_ONCE = 0.5  # CPU seconds in which eager must return, or the call does not count
MOST_SECONDS = 10  # of CPU time for all calls of an op, then for each
MOST_BYTES, TIMES_BYTES = 128 << 20, 4  # memory beyond this many times eager's
MEMORY = 3 << 30  # that a fork may use
MOST_PYTHON_CALLS = 200_000  # of a call: some 1,500 recorded kernel calls; an op's first call, which plans, is not counted
#: Ops that torch composes of others under any mode, which refuse more than their CPU kernel.
COMPOSED = ("aten.max_pool1d.default",)
NO_MEMORY = re.compile(
    r"can't allocate memory|not enough memory|bad_alloc|MemoryError|invalid tensor size|Storage size calculation"
)


def huge_calls(name: str) -> list[Wrong]:
    """Return calls of an op with one integer, or one of a list, replaced by each of `HUGE`; the recorded call is the first."""
    op = op_named(name) if name not in COMPOSED else None
    if op is None or facts_of(op).is_out or not has_computed_kernel(dispatcher_name(op), "CPU"):
        return []
    for text in (one.example for one in load_calls()[name].calls if len(one.example) < 300 and "storage of" not in one.example):
        args, kwargs = parse_call(text)
        found = [Wrong(op, args, kwargs, "as recorded")]
        for place, given in (*enumerate(args), *kwargs.items()):
            several = isinstance(given, list) and bool(given) and all(type(one) is int for one in given)
            for value in HUGE if several or type(given) is int else ():
                changed: Any = [value, *given[1:]] if several else value
                named = {**kwargs, place: changed} if isinstance(place, str) else kwargs
                found.append(
                    Wrong(op, [changed if at == place else one for at, one in enumerate(args)], named, f"{place} is {value}")
                )
        if len(found) > 1:
            return found
    return []


@dataclass(frozen=True)
class Cost:
    """An error of a call, "" for none, and its cost: CPU seconds, bytes, and calls of Python functions."""

    raised: str
    seconds: float
    bytes: int
    python_calls: int


def cost_of(wrong: Wrong, mode: AbstractContextManager[Any]) -> Cost:
    """Run a call and return its cost."""
    args, kwargs = copied(wrong.op, wrong.args, wrong.kwargs)
    Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # reset the peak
    before, start = _peak(), time.process_time()
    with mode, Caught() as caught, PythonCalls() as python:
        wrong.op(*args, **kwargs)
    raised = "" if caught.error is None else f"{type(caught.error).__name__}: {error_text(caught.error)}"
    raised = "no memory" if NO_MEMORY.search(raised) else raised
    return Cost(raised, time.process_time() - start, _peak() - before, python.calls)


def _peak() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.search(r"VmHWM:\s+(\d+)", status)[1]) << 10  # type: ignore[index]


def costs(calls: Sequence[Wrong], ops: ed.OpSet | None) -> list[Cost | Lost]:
    """Return what each call costs in eager, or in the mode without the kernel of its op. After a crash each has its own fork."""

    def work(job: int, beat: Any) -> list[Cost | Lost]:
        used = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0]) * resource.getpagesize()
        resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, used + MEMORY))
        resource.setrlimit(resource.RLIMIT_CPU, (MOST_SECONDS, 2 * MOST_SECONDS))
        mode = nullcontext() if ops is None else ed.EagerDecompMode(ops - [calls[0].op])
        first = [cost_of(one, mode) for one in calls]  # may import modules
        return [
            cost_of(one, mode) if cost.python_calls > MOST_PYTHON_CALLS else cost for one, cost in zip(calls, first, strict=True)
        ]

    ((_, found),) = done_in_processes([0], work, 1, 60 * MOST_SECONDS)
    if isinstance(found, Lost) and found.how == "error":
        raise RuntimeError(found.words)
    if isinstance(found, Lost) and len(calls) > 2:
        found = [costs([calls[0], one], ops)[-1] for one in calls]
    return [found] * len(calls) if isinstance(found, Lost) else found


def costly(calls: Sequence[Wrong], ops: ed.OpSet) -> list[str]:
    """Return the calls that eager refuses or returns at once, and the mode does not; with what it does instead."""
    native = [*zip(calls, costs(calls, None), strict=True)]
    if isinstance(native[0][1], Lost) or native[0][1].raised:
        return []  # eager has no kernel for this call
    fast = [(one, cost) for one, cost in native if one is calls[0] or (isinstance(cost, Cost) and cost.seconds < AT_ONCE)]
    ours = costs([one for one, _ in fast], ops)
    return [f"{one}\n    {why}" for (one, eager), cost in [*zip(fast, ours, strict=True)][1:] if (why := _excess(one, eager, cost))]


def _excess(wrong: Wrong, eager: Cost | Lost, ours: Cost | Lost) -> str:
    if isinstance(ours, Lost) or isinstance(eager, Lost):
        return f"{ours.message}; eager {eager}" if isinstance(ours, Lost) else ""
    if ours.raised != eager.raised and not UNSAFE.match(str(wrong.op)) and not ours.raised.startswith("UnsupportedOpError"):
        return f"eager {eager.raised or 'returns'}\n    mode  {ours.raised or 'returns'}"
    if ours.python_calls > MOST_PYTHON_CALLS or ours.bytes > MOST_BYTES + TIMES_BYTES * eager.bytes:
        return f"{ours}; eager {eager}"
    return ""


def main() -> int:
    """Run the calls of all ops; print those that differ."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", choices=SETS, default="core")
    parser.add_argument("--only", default="*", metavar="PATTERN", help="the ops, such as 'aten.*pool*'")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    ops, count, wrong = SETS[arguments.ops](), 0, 0
    for first in drawn_calls("aten.logaddexp.default", 0):
        differing(first, ops)  # what it imports, each fork would import again
    for name in fnmatch.filter(sorted(load_calls()), arguments.only):
        if calls := huge_calls(name):
            found = costly(calls, ops)
            count, wrong = count + len(calls) - 1, wrong + len(found)
            for text in found:
                print(text, flush=True)
    print(f"{count} calls, {wrong} differ" if count else f"no call of an op that matches {arguments.only!r}")
    return int(wrong > 0 or not count)


if __name__ == "__main__":
    sys.exit(main())
