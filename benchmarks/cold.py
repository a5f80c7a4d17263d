"""Cold: the first call of each op against the naive mode's, and a model's first passes, each in a fresh process."""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.cases import TINY
from benchmarks.cases import chosen as chosen_cases
from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.nets import KINDS, NETS, chosen, job, jobs
from benchmarks.rivals import Naive, Noop
from benchmarks.timing import Contestant, Spread, block, geometric_mean, quiet_collector
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

_WORST = 5
_PASSES = 20
_THIS = "benchmarks.cold"


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Start processes that see everything for the first time."""
    first_calls = []
    for number in range(1 if settings.quick else 4):
        progress(f"cold: ops, process {number + 1}")
        first_calls.append(in_fresh_process(_THIS, "ops", "quick" if settings.quick else "full", ("ours", "naive")[number % 2]))
    passes = []
    for net, kind in jobs(chosen(settings.quick))[: 1 if settings.quick else None]:
        progress(f"cold: {net.name}, {kind}")
        passes.append(in_fresh_process(_THIS, "model", str(NETS.index(net)), kind))
    for row in passes:
        row |= _settling(row["passes"]["ours"])
    how = (
        "In fresh processes, the kernels themselves warmed first, and each mode by an op that is not measured. Ops: one call under "
        "each mode of each op that both decompose; what the naive mode runs as it is (not in torch's table) is marked. "
        "Models: the first pass over the median of the last ten of twenty; settled: how many passes took over 1.2 times that, and "
        "what they took beyond it. A mode that calls on, which goes first, pays for what torch makes at an op's first call."
    )
    lists = {"Worst first call / naive": _worst(first_calls)}
    for kind in KINDS:
        lists[f"First / steady, {kind}"] = [f"{row['model']} {row['first']:.3g}" for row in passes if row["kind"] == kind]
    return Section("cold", "Cold", how, [*_op_figures(first_calls), *_pass_figures(passes)], lists, [*first_calls, *passes])


def _settling(times: list[float]) -> dict[str, float]:
    steady = statistics.median(times[len(times) // 2 :])
    slow = [seconds for seconds in times if seconds > 1.2 * steady]
    return {"first": times[0] / steady, "slow_passes": len(slow), "lost_seconds": sum(slow) - steady * len(slow)}


def _by_op(runs: list[dict[str, Any]]) -> dict[str, list[float]]:
    """For each op that both modes decompose its ratio in each process."""
    found: dict[str, list[float]] = {}
    for run in runs:
        for row in run["ops"]:
            if row["naive_decomposes"]:
                found.setdefault(row["op"], []).append(row["times"]["ours"] / row["times"]["naive"])
    return found


def _op_figures(runs: list[dict[str, Any]]) -> list[Figure]:
    each = _by_op(runs)
    spread = Spread.of([geometric_mean(in_run) for in_run in zip(*each.values(), strict=True)])
    start = {name: Spread.of([1000 * run["start"][name] for run in runs]) for name in ("ours", "naive")}
    return [
        Figure.of("first call of an op / naive", spread, f"{len(each)} ops, {len(runs)} processes"),
        *_alone(runs),
        *(Figure.of(f"making the mode and its very first call, {name}, ms", value) for name, value in start.items()),
    ]


def _alone(runs: list[dict[str, Any]]) -> list[Figure]:
    """Measure the first call of an op that the naive mode does not decompose; it has no ratio for this reason."""
    each = [[1000 * row["times"]["ours"] for row in run["ops"] if not row["naive_decomposes"]] for run in runs]
    if not all(each):
        return []
    spread = Spread.of([geometric_mean(times) for times in each])
    return [Figure.of("first call of an op that naive does not decompose, ms", spread, f"{len(each[0])} ops")]


def _pass_figures(rows: list[dict[str, Any]]) -> list[Figure]:
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        taken = [row for row in rows if row["kind"] == kind]
        first = [row["first"] for row in taken]
        found.append(Figure.between(f"first pass / steady, {kind}", first))
        of_noop = [row["passes"]["noop"] for row in taken]
        noop = [times[0] / statistics.median(times[len(times) // 2 :]) for times in of_noop]
        found.append(Figure.between(f"the same of a mode that calls on, {kind}", noop))
        beyond = 1000 * statistics.median(row["passes"]["ours"][0] - row["passes"]["ours"][0] / row["first"] for row in taken)
        found.append(Figure(f"first pass beyond a steady one, {kind}, ms", beyond, note="median of the models"))
        lost = statistics.median(row["lost_seconds"] for row in taken)
        slow = statistics.median(row["slow_passes"] for row in taken)
        found.append(Figure(f"until settled, {kind}, ms", 1000 * lost, note=f"in {slow:g} passes (medians)"))
    return found


def _worst(runs: list[dict[str, Any]]) -> list[str]:
    ranked = sorted(((statistics.median(values), op) for op, values in _by_op(runs).items()), reverse=True)
    return [f"{op} {ratio:.3g}" for ratio, op in ranked[:_WORST]]


# -- in the fresh process -----------------------------------------------------------------------------------------


def _first_calls(quick: bool, ours_first: bool) -> dict[str, Any]:
    """The first call of each decomposed op under our mode and the naive one. What a mode loads once, with its very first
    decomposition, is distinguished."""
    ops = core_aten()
    modes: dict[str, Callable[[], Any]] = {"ours": lambda: EagerDecompMode(ops), "naive": lambda: Naive(ops)}
    names = ["ours", "naive"] if ours_first else ["naive", "ours"]
    start = {}
    made = {}
    for name in names:

        def begin(name: str = name) -> None:
            made[name] = modes[name]()
            with made[name]:
                _warm_up()

        start[name] = block(Contestant(begin), 1)
    rows = []
    for case in chosen_cases(quick):
        if case.op in ops:
            continue
        args, kwargs = case.args(TINY), case.kwargs(TINY)
        run = partial(builtin(case.op), *args, **kwargs)
        run()
        times = {}
        for name in names:
            try:
                times[name] = block(Contestant(run, made[name]), 1)
            except (RuntimeError, TypeError, NotImplementedError):
                continue  # the naive mode meets an entry that fails
        naively = "naive" in times and _decomposes(case.op, run, made["naive"])
        rows.append({"op": case.name, "times": times, "naive_decomposes": naively})
    return {"start": start, "ops": rows}


def _decomposes(op: OpOverload, run: Callable[[], Any], naive: Naive) -> bool:
    """Whether the naive mode brings the call to other ops. One that torch's table lacks it runs as it is, which is no work."""
    with BackendRecorder() as seen, naive:
        run()
    return op not in seen.ops


def _warm_up() -> None:
    """A mode's very first decomposition, of an op that is not measured."""
    torch.ops.aten.celu.default(torch.rand(4))


def _passes(number: int, kind: str) -> dict[str, Any]:
    """The seconds of a model's first passes under a new mode, and under one that only calls on. Each runs natively before, so that
    the kernels' own preparations are no one's."""
    net = NETS[number]
    job(net, kind).run()
    found = {}
    for name, mode in (("noop", Noop()), ("ours", EagerDecompMode(core_aten()))):
        run = job(net, kind).run
        with mode:
            _warm_up()  # what a mode loads once is reported by `_first_calls`
        found[name] = [block(Contestant(run, mode), 1) for _ in range(_PASSES)]
    return {"model": net.name, "kind": kind, "passes": found}


def main(words: list[str]) -> None:
    """Run a job, and print what it found as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    what, first, second = words
    with quiet_collector():
        found = _first_calls(first == "quick", second == "ours") if what == "ops" else _passes(int(first), second)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
