"""Installs: ops with the set installed on the CPU, against the mode and against plain eager."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.cases import TINY, chosen
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, block, joint, quiet_collector, ratios
from eagerdecomp._torch.ops import builtin
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

_WORST = 5


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Every case in its three forms, round by round: to install takes too long to do it for each call."""
    ops, cache = core_aten(), ProgramCache()
    forms: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "native": nullcontext,
        "mode": partial(EagerDecompMode, ops, cache=cache),
        "installed": partial(install, ops, "cpu", cache=cache),
    }
    runs = {case.name: partial(builtin(case.op), *case.args(TINY), **case.kwargs(TINY)) for case in chosen(settings.quick)}
    decomposed = {case.name: case.op not in ops for case in chosen(settings.quick)}
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in runs}
    names = list(forms)
    with quiet_collector(), torch.no_grad():
        for number in range(settings.rounds + 1):
            progress(f"install: round {number} of {settings.rounds}")
            first = number % len(names)
            for form in names[first:] + names[:first]:
                with forms[form]():
                    for name, run in runs.items():
                        contestant = Contestant(run)
                        once = max(block(contestant, 3), 1e-7)
                        seconds = block(contestant, max(1, round(settings.seconds / once)))
                        if number:  # the first round warms
                            times[name][form].append(seconds)
    alone = _alone([name for name in runs if not decomposed[name]], runs)
    held = {name: ratios(found["installed"], found["native"]) for name, found in times.items() if name in alone}
    calling = {name: ratios(found["installed"], found["native"]) for name, found in times.items() if name in runs}
    calling = {name: found for name, found in calling.items() if not decomposed[name] and name not in alone}
    apart = {name: ratios(found["installed"], found["mode"]) for name, found in times.items() if decomposed[name]}
    figures = []
    if held:
        figures.append(Figure.of("installed / native, ops of the set", joint([*held.values()]), f"{len(held)} ops"))
    if calling:
        note = f"{len(calling)} ops"
        figures.append(Figure.of("installed / native, ops of the set whose kernel calls others", joint([*calling.values()]), note))
    if apart:
        figures.append(Figure.of("installed / mode, decomposed ops", joint([*apart.values()]), f"{len(apart)} ops"))
    ranked = sorted(
        ((Spread.of(found), name) for name, found in {**held, **calling, **apart}.items()), key=lambda one: -one[0].median
    )
    worst = [f"{name} {spread}" for spread, name in ranked[:_WORST]]
    how = (
        "One tiny call of each op: in plain eager, in the mode, and with Core ATen installed on the CPU. An op of the set is "
        "the same kernel with and without, but what that calls in turn (the CPU's relu calls clamp_min) may be installed; others "
        "come by a kernel in Python."
    )
    rows = [{"op": name, "decomposed": decomposed[name], "times": found} for name, found in times.items()]
    return Section("install", "Install", how, figures, {"Worst": worst}, rows)


def _alone(names: Sequence[str], runs: Mapping[str, Callable[[], Any]]) -> set[str]:
    """The ops whose kernels call nothing that is installed."""
    found = set()
    with install(core_aten(), "cpu", cache=ProgramCache()) as handle:
        for name in names:
            before = handle.stats().total.calls
            runs[name]()
            if handle.stats().total.calls == before:
                found.add(name)
    return found
