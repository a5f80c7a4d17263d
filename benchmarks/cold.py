"""Measure first calls of ops against the naive mode, and first passes of models, in new processes."""

from __future__ import annotations

import json
import statistics
import sys
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.baselines import Naive, Noop
from benchmarks.cases import TINY, selected_cases
from benchmarks.figures import Figure, Section, Settings
from benchmarks.fresh import in_fresh_process
from benchmarks.nets import KINDS, NETS, job, jobs, selected_nets
from benchmarks.timing import Contestant, Spread, geometric_mean, time_runs, without_gc
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

_WORST = 5
_PASSES = 20
_THIS = "benchmarks.cold"


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Start the processes and collect their times."""
    first_calls = []
    for number in range(1 if settings.quick else 4):
        progress(f"cold: ops, process {number + 1}")
        first_calls.append(in_fresh_process(_THIS, "ops", "quick" if settings.quick else "full", ("ours", "naive")[number % 2]))
    passes = []
    for net, kind in jobs(selected_nets(settings.quick))[: 1 if settings.quick else None]:
        progress(f"cold: {net.name}, {kind}")
        passes.append(in_fresh_process(_THIS, "model", str(NETS.index(net)), kind))
    for row in passes:
        row |= _settling(row["passes"]["ours"])
    how = (
        "In new processes. Kernels ran before in eager, and each mode ran an op that is not measured. Ops: one call in each mode "
        "of each op that both modes decompose; ops that torch's table does not have are counted apart. Models: the first of "
        "twenty passes, divided by the median of the last ten (steady). Until settled: the time that passes of over 1.2 times the "
        "steady time took beyond it. A mode that only calls the op runs first, so that it pays for what torch builds at an op's "
        "first call."
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
    """Return op -> its ratio in each process, for ops that both modes decompose."""
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
        Figure.from_spread("first call of an op / naive", spread, f"{len(each)} ops, {len(runs)} processes"),
        *_undecomposed_by_naive(runs),
        *(Figure.from_spread(f"making the mode and its very first call, {name}, ms", value) for name, value in start.items()),
    ]


def _undecomposed_by_naive(runs: list[dict[str, Any]]) -> list[Figure]:
    """Return the time of first calls of ops that the naive mode does not decompose, which have no ratio."""
    each = [[1000 * row["times"]["ours"] for row in run["ops"] if not row["naive_decomposes"]] for run in runs]
    if not all(each):
        return []
    spread = Spread.of([geometric_mean(times) for times in each])
    return [Figure.from_spread("first call of an op that naive does not decompose, ms", spread, f"{len(each[0])} ops")]


def _pass_figures(rows: list[dict[str, Any]]) -> list[Figure]:
    found = []
    for kind in dict.fromkeys(row["kind"] for row in rows):
        taken = [row for row in rows if row["kind"] == kind]
        first = [row["first"] for row in taken]
        found.append(Figure.over_models(f"first pass / steady, {kind}", first))
        of_noop = [row["passes"]["noop"] for row in taken]
        noop = [times[0] / statistics.median(times[len(times) // 2 :]) for times in of_noop]
        found.append(Figure.over_models(f"the same of a mode that calls on, {kind}", noop))
        beyond = 1000 * statistics.median(row["passes"]["ours"][0] - row["passes"]["ours"][0] / row["first"] for row in taken)
        found.append(Figure(f"first pass beyond a steady one, {kind}, ms", beyond, note="median of the models"))
        lost = statistics.median(row["lost_seconds"] for row in taken)
        slow = statistics.median(row["slow_passes"] for row in taken)
        found.append(Figure(f"until settled, {kind}, ms", 1000 * lost, note=f"in {slow:g} passes (medians)"))
    return found


def _worst(runs: list[dict[str, Any]]) -> list[str]:
    ranked = sorted(((statistics.median(values), op) for op, values in _by_op(runs).items()), reverse=True)
    return [f"{op} {ratio:.3g}" for ratio, op in ranked[:_WORST]]


# -- in the new process -----------------------------------------------------------------------------------------


def _first_calls(quick: bool, ours_first: bool) -> dict[str, Any]:
    """Time the first call of each decomposed op in our mode and in the naive mode.

    The very first decomposition of a mode loads data. It is timed apart, as `start`.
    """
    ops = core_aten()
    modes: dict[str, Callable[[], Any]] = {"ours": lambda: EagerDecompMode(ops), "naive": lambda: Naive(ops)}
    names = ["ours", "naive"] if ours_first else ["naive", "ours"]
    start = {}
    entered = {}
    for name in names:

        def begin(name: str = name) -> None:
            entered[name] = modes[name]()
            with entered[name]:
                _warm_up()

        start[name] = time_runs(Contestant(begin), 1)
    rows = []
    for case in selected_cases(quick):
        if case.op in ops:
            continue
        args, kwargs = case.args(TINY), case.kwargs(TINY)
        run = partial(builtin(case.op), *args, **kwargs)
        run()
        times = {}
        for name in names:
            try:
                times[name] = time_runs(Contestant(run, entered[name]), 1)
            except (RuntimeError, TypeError, NotImplementedError):
                continue  # an entry of torch's table that fails
        naively = "naive" in times and _decomposes(case.op, run, entered["naive"])
        rows.append({"op": case.name, "times": times, "naive_decomposes": naively})
    return {"start": start, "ops": rows}


def _decomposes(op: OpOverload, run: Callable[[], Any], naive: Naive) -> bool:
    """Return whether the naive mode decomposes the call. It runs an op that torch's table does not have natively."""
    with BackendRecorder() as seen, naive:
        run()
    return op not in seen.ops


def _warm_up() -> None:
    """Decompose an op that is not measured, so that the mode loads its data."""
    torch.ops.aten.celu.default(torch.rand(4))


def _passes(number: int, kind: str) -> dict[str, Any]:
    """Time a model's first passes in a new mode, and in a mode that only calls the op.

    A pass in eager runs before, so that one-time work of kernels is not timed.
    """
    net = NETS[number]
    job(net, kind).run()
    found = {}
    for name, mode in (("noop", Noop()), ("ours", EagerDecompMode(core_aten()))):
        run = job(net, kind).run
        with mode:
            _warm_up()  # `_first_calls` reports what a mode loads once
        found[name] = [time_runs(Contestant(run, mode), 1) for _ in range(_PASSES)]
    return {"model": net.name, "kind": kind, "passes": found}


def main(arguments: list[str]) -> None:
    """Run a job and print its times as a line of JSON."""
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    what, first, second = arguments
    with without_gc():
        found = _first_calls(first == "quick", second == "ours") if what == "ops" else _passes(int(first), second)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
