"""Measure calls of ops with Core ATen installed on the CPU, against the mode and against eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.cases import TINY, selected_cases
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, joint_spread, ratios, time_runs, without_gc
from eagerdecomp._torch.ops import builtin
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

_WORST = 5


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Time each op in eager, in the mode and installed. Each round installs once, because an installation takes long."""
    ops, cache = core_aten(), ProgramCache()
    forms: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "native": nullcontext,
        "mode": partial(EagerDecompMode, ops, cache=cache),
        "installed": partial(install, ops, "cpu", cache=cache),
    }
    runs = {case.name: partial(builtin(case.op), *case.args(TINY), **case.kwargs(TINY)) for case in selected_cases(settings.quick)}
    decomposed = {case.name: case.op not in ops for case in selected_cases(settings.quick)}
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in runs}
    names = list(forms)
    with without_gc(), torch.no_grad():
        for number in range(settings.rounds + 1):
            progress(f"install: round {number} of {settings.rounds}")
            first = number % len(names)
            for form in names[first:] + names[:first]:
                with forms[form]():
                    for name, run in runs.items():
                        contestant = Contestant(run)
                        once = max(time_runs(contestant, 3), 1e-7)
                        seconds = time_runs(contestant, max(1, round(settings.seconds / once)))
                        if number:  # round 0 is a warm-up
                            times[name][form].append(seconds)
    alone = _without_inner_calls([name for name in runs if not decomposed[name]], runs)
    to_native = {name: ratios(found["installed"], found["native"]) for name, found in times.items() if not decomposed[name]}
    simple = {name: found for name, found in to_native.items() if name in alone}
    calling = {name: found for name, found in to_native.items() if name not in alone}
    outside = {name: ratios(found["installed"], found["mode"]) for name, found in times.items() if decomposed[name]}
    figures = []
    if simple:
        figures.append(
            Figure.from_spread("installed / native, ops of the set", joint_spread([*simple.values()]), f"{len(simple)} ops")
        )
    if calling:
        note = f"{len(calling)} ops"
        figures.append(
            Figure.from_spread(
                "installed / native, ops of the set whose kernel calls others", joint_spread([*calling.values()]), note
            )
        )
    if outside:
        figures.append(
            Figure.from_spread("installed / mode, decomposed ops", joint_spread([*outside.values()]), f"{len(outside)} ops")
        )
    ranked = sorted(
        ((Spread.of(found), name) for name, found in {**simple, **calling, **outside}.items()), key=lambda one: -one[0].median
    )
    worst = [f"{name} {spread}" for spread, name in ranked[:_WORST]]
    how = (
        "One tiny call of each op: in eager, in the mode, and with Core ATen installed on the CPU. An op of the set keeps its "
        "kernel, but that kernel may call an op outside the set (the CPU's relu calls clamp_min). Each op outside the set has a "
        "Python kernel."
    )
    rows = [{"op": name, "decomposed": decomposed[name], "times": found} for name, found in times.items()]
    return Section("install", "Install", how, figures, {"Worst": worst}, rows)


def _without_inner_calls(names: Sequence[str], runs: Mapping[str, Callable[[], Any]]) -> set[str]:
    """Return the ops whose native kernels call no op that is installed."""
    found = set()
    with install(core_aten(), "cpu", cache=ProgramCache()) as handle:
        for name in names:
            before = handle.stats().total.calls
            runs[name]()
            if handle.stats().total.calls == before:
                found.add(name)
    return found
