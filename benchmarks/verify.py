"""Verify: passes of models whose calls are checked against native eager now and then, against the same without."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import chosen, job, jobs
from benchmarks.timing import Contestant, Spread, joint, race, ratios
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpLike, core_aten
from eagerdecomp.verify.policy import Verify

__all__ = ["measure"]

_EVERY = (1000, 100, 10)
_KINDS = ("infer", "train")

#: Passes before the clock runs: the first calls of each kind, all checked, are behind then.
_WARM = 5


def _kernel(op: OpOverload) -> Callable[..., Any]:
    run = builtin(op)
    return lambda *args, **kwargs: run(*args, **kwargs)


def _modes() -> Mapping[str, AbstractContextManager[Any]]:
    """Core ATen with a Python kernel for each op, which is what most is checked of, without checks and with."""
    ops = core_aten()
    kernels: dict[OpLike, Callable[..., Any]] = {op: _kernel(op) for op in ops if op.namespace == "aten"}
    backend = Backend("kernels in Python", ops, kernels)
    made = {"without": EagerDecompMode(backend)}
    made |= {f"every {every}": EagerDecompMode(backend, verify=Verify(every=every)) for every in _EVERY}
    return {**made, "first": EagerDecompMode(backend, verify=Verify(every=1))}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each pass, each contestant with weights of its own."""
    rows: list[dict[str, Any]] = []
    for net, kind in jobs(chosen(settings.quick)):
        if kind not in _KINDS:
            continue
        progress(f"verify: {net.name}, {kind}")
        modes = _modes()
        contestants = {name: Contestant(job(net, kind).run, mode) for name, mode in modes.items()}
        # Long turns: of so many calls one is checked, so a turn must hold as many.
        times = race(contestants, settings.rounds, 40 * settings.seconds, warm=_WARM)
        found = {name: ratios(times[name], times["without"]) for name in times if name != "without"}
        rows.append({"model": net.name, "kind": kind, "times": times, "ratios": found})
    figures = []
    for name in (f"every {every}" for every in _EVERY):
        for kind in _KINDS:
            taken = [row["ratios"][name] for row in rows if row["kind"] == kind]
            title = f"verify, {name} / without, {kind}"
            figures.append(Figure.of(title, joint(taken), f"{len(taken)} models"))
    every = [row["ratios"]["first"] for row in rows]
    figures.append(Figure.of("verify, every call / without", joint(every), f"{len(every)} passes"))
    worst = sorted(((Spread.of(row["ratios"][f"every {_EVERY[1]}"]), row) for row in rows), key=lambda one: -one[0].median)
    lists = {f"Every {_EVERY[1]}, most": [f"{row['model']}, {row['kind']} {spread}" for spread, row in worst[:5]]}
    how = (
        "One pass of a small model on Core ATen with a Python kernel for each op, which calls torch's: a mode with `verify`, when "
        "the first calls of each kind are over, against one without. Without `verify` a mode's handlers are the same as ever."
    )
    return Section("verify", "Verify", how, figures, lists, rows)
