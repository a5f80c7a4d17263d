"""Measure the cost of `verify=`: passes of models with some calls checked against eager, against passes without checks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import Any

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import job, jobs, selected_nets
from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import OpLike, core_aten
from eagerdecomp.verify.policy import Verify

__all__ = ["measure"]

_EVERY = (1000, 100, 10)
_KINDS = ("infer", "train")

#: Passes before the measurement. The first calls of each kind are all checked, so they must not be measured.
_WARM = 5


def _kernel(op: OpOverload) -> Callable[..., Any]:
    run = builtin(op)
    return lambda *args, **kwargs: run(*args, **kwargs)


def _modes() -> Mapping[str, AbstractContextManager[Any]]:
    """Return modes on Core ATen without and with `verify=`. Each op has a Python kernel: kernels of torch are not checked."""
    ops = core_aten()
    kernels: dict[OpLike, Callable[..., Any]] = {op: _kernel(op) for op in ops if op.namespace == "aten"}
    backend = Backend("kernels in Python", ops, kernels)
    modes = {"without": EagerDecompMode(backend)}
    modes |= {f"every {every}": EagerDecompMode(backend, verify=Verify(every=every)) for every in _EVERY}
    return {**modes, "first": EagerDecompMode(backend, verify=Verify(every=1))}


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each kind of pass of each model. Each contestant has its own weights."""
    rows: list[dict[str, Any]] = []
    for net, kind in jobs(selected_nets(settings.quick)):
        if kind not in _KINDS:
            continue
        progress(f"verify: {net.name}, {kind}")
        modes = _modes()
        contestants = {name: Contestant(job(net, kind).run, mode) for name, mode in modes.items()}
        # Turns are long because each must contain enough calls for some of them to be checked.
        times = race(contestants, settings.rounds, 40 * settings.seconds, warm=_WARM)
        found = {name: ratios(times[name], times["without"]) for name in times if name != "without"}
        rows.append({"model": net.name, "kind": kind, "times": times, "ratios": found})
    figures = []
    for name in (f"every {every}" for every in _EVERY):
        for kind in _KINDS:
            taken = [row["ratios"][name] for row in rows if row["kind"] == kind]
            title = f"verify, {name} / without, {kind}"
            figures.append(Figure.from_spread(title, joint_spread(taken), f"{len(taken)} models"))
    every = [row["ratios"]["first"] for row in rows]
    figures.append(Figure.from_spread("verify, every call / without", joint_spread(every), f"{len(every)} passes"))
    worst = sorted(((Spread.of(row["ratios"][f"every {_EVERY[1]}"]), row) for row in rows), key=lambda one: -one[0].median)
    lists = {f"Every {_EVERY[1]}, most": [f"{row['model']}, {row['kind']} {spread}" for spread, row in worst[:5]]}
    how = (
        "One pass of a small model on Core ATen, with a Python kernel for each op that calls torch's kernel. A mode with `verify` "
        "is compared with a mode without it, after the first calls of each kind."
    )
    return Section("verify", "Verify", how, figures, lists, rows)
