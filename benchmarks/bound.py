"""Measure the least that a pass of a model can take in the mode: its kernel calls, without any Python of ours around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch

from benchmarks.baselines import Noop
from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import KINDS, Net, job, jobs, selected_nets
from benchmarks.timing import Contestant, Spread, joint_spread, race
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

#: A function, its arguments and its keyword arguments.
_Call = tuple[Callable[..., Any], Sequence[Any], dict[str, Any]]


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Compare each pass in a no-op mode with the same pass in which the kernel calls of our mode take the place of its own."""
    mode = EagerDecompMode(core_aten())
    rows: list[dict[str, Any]] = []
    for net, kind in jobs(selected_nets(settings.quick)):
        progress(f"bound: {net.name}, {kind}")
        theirs = _Recorder(lambda op: op)
        ours = _Recorder(native)
        contestants = {"noop": Contestant(job(net, kind).run, Noop())}
        for name, recorder, context in (("noop kernels", theirs, Noop()), ("our kernels", ours, mode)):
            _record(net, kind, recorder, context)
            contestants[name] = Contestant(partial(_replay, recorder.calls), torch.no_grad())
        times = race(contestants, settings.rounds, 4 * settings.seconds)
        bounds = [(n - k + o) / n for n, k, o in zip(times["noop"], times["noop kernels"], times["our kernels"], strict=True)]
        calls = len(theirs.calls), len(ours.calls)
        rows.append({"model": net.name, "kind": kind, "times": times, "bounds": bounds, "calls": calls})
    figures = []
    for kind in KINDS:
        found = [row["bounds"] for row in rows if row["kind"] == kind]
        figures.append(Figure.from_spread(f"bound / noop mode, {kind}", joint_spread(found), f"{len(found)} models"))
    each = {
        f"Bound / noop mode, {kind}": [
            f"{row['model']} {Spread.of(row['bounds'])}, {row['calls'][1]} calls for {row['calls'][0]}"
            for row in rows
            if row["kind"] == kind
        ]
        for kind in KINDS
    }
    how = (
        "The least that a pass can take with the kernel calls that our mode makes: the time of the pass in the no-op "
        "mode, less the time of its own kernel calls, plus the time of our mode's. Both lists of calls are recorded and "
        "run again in a loop, with the same arguments. The models and passes are those of the section Models. Values are "
        "geometric means over the models."
    )
    return Section("bound", "Bound", how, figures, each, rows)


class _Recorder(DispatchMode):
    """Record the calls that reach the backend. Those that change what a tensor is are left out, since they cannot run again."""

    def __init__(self, function_of: Callable[[OpOverload], Callable[..., Any]]) -> None:
        super().__init__()
        self._function_of = function_of
        self.calls: list[_Call] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        name = func._schema.name
        if name.startswith("aten::") and not name.startswith(("aten::set_", "aten::transpose_", "aten::resize_")):
            self.calls.append((self._function_of(func), args, kwargs or {}))
        return func(*args, **(kwargs or {}))


def _record(net: Net, kind: str, recorder: _Recorder, context: Any) -> None:
    run = job(net, kind).run
    with context:
        for _ in range(3):  # recorded, replayed, compiled
            run()
    with recorder, context:
        run()


def _replay(calls: Sequence[_Call]) -> None:
    for function, args, kwargs in calls:
        function(*args, **kwargs)
