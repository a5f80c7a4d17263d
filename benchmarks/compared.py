"""Compare with other ways to a small set of ops: torch's decomposition table in a mode, hand-written kernels, `torch.compile`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any, TypeAlias

import torch
from torch import Tensor

from benchmarks.baselines import Naive, floor
from benchmarks.cases import TINY, Case, selected_cases
from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import Net, job, jobs, selected_nets
from benchmarks.timing import Contestant, geometric_mean, joint_spread, race, ratios, time_runs, without_gc
from eagerdecomp._torch.decomp_tables import core_table
from eagerdecomp._torch.dispatcher import overriding_silently
from eagerdecomp._torch.dynamo import compiled_by
from eagerdecomp._torch.ops import builtin, dispatcher_name, has_kernel
from eagerdecomp.backends.inductor import cpp_compiler
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.dispatcher.device_kernels import DeviceKernels
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import OpSet, core_aten
from eagerdecomp.planner.rule_calls import load_calls
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

#: Models that compile to one graph: they have no branches and no loops over time.
_COMPILED = ("MLP", "CNN", "ResNet", "transformer encoder")


Results: TypeAlias = tuple[list[Figure], list[dict[str, Any]]]


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Compare each of the three ways with ours."""
    parts = [part(settings, progress) for part in (_table, _by_hand, _compiled)]
    figures = [figure for found, _ in parts for figure in found]
    rows = [row for _, found in parts for row in found]
    how = (
        "The same calls, in other ways. Table: a mode that applies torch's decomposition table down to Core ATen. By hand: a "
        "function that calls an op's kernels without checks, in the shortest possible mode or registered in torch's dispatcher. "
        "Compiled: torch.compile with AOTAutograd and torch's decompositions to Core ATen, its graphs run kernel by kernel. "
        "Inductor: the default of torch.compile, which has no op set and fuses. First calls: one with each of three batch sizes, "
        "in a new mode or compiler."
    )
    return Section("compared", "Compared", how, figures, {}, rows)


def _table(settings: Settings, progress: Callable[[str], None]) -> Results:
    """Count the calls that torch's table decomposes into the set, and measure their time."""
    ops, figures, rows = core_aten(), list[Figure](), list[dict[str, Any]]()
    mode, table = EagerDecompMode(ops), Naive(ops)
    cases = [case for case in selected_cases(settings.quick) if case.op not in ops]
    closed = {name: [_stays(ops, way, _call(case)) for case in cases] for name, way in (("ours", mode), ("table", table))}
    work = jobs(selected_nets(settings.quick))
    progress("compared: which models stay on the set")
    runs = [(way, [_stays(ops, way, job(net, kind).run) for net, kind in work]) for way in (mode, table)]
    for (name, calls), (_, models) in zip(closed.items(), runs, strict=True):
        figures.append(Figure(f"{name}: ops brought to the set", sum(calls), note=f"of {len(cases)}"))
        figures.append(Figure(f"{name}: models brought to the set", sum(models), note=f"of {len(work)} passes"))
        rows.append({"way": name, "ops": sum(calls), "models": sum(models)})
    both = [case for case, fine in zip(cases, closed["table"], strict=True) if fine]
    found = []
    for case in both:
        progress(f"compared: {case.name}")
        run = _call(case)
        ways = {"ours": mode, "naive": table, "floor": floor(case.op, run, mode)}
        times = race({name: Contestant(run, way) for name, way in ways.items()}, settings.rounds, settings.seconds)
        found.append(times)
        rows.append({"op": case.name, "times": times})
    for name, numerator, denominator in (("table / ours", "naive", "ours"), ("ours / by hand, in a mode", "ours", "floor")):
        figures.append(
            Figure.from_spread(
                name, joint_spread([ratios(times[numerator], times[denominator]) for times in found]), f"{len(found)} ops"
            )
        )
    return figures, rows


def _call(case: Case) -> Callable[[], Any]:
    return partial(builtin(case.op), *case.args(TINY), **case.kwargs(TINY))


def _stays(ops: OpSet, way: Any, run: Callable[[], Any]) -> bool:
    """Return whether a run succeeds and only ops of the set reach the backend."""
    try:
        with BackendRecorder() as seen, way:
            run()
    except (RuntimeError, TypeError, NotImplementedError, AssertionError, ValueError):
        return False
    return all(op in ops for op in seen.ops if op.namespace in ("aten", "prims"))


def _calls_composites(run: Callable[[], Any], mode: EagerDecompMode) -> bool:
    """Return whether a composite reaches the backend. Torch may decompose it to the op itself, which would then call itself."""
    with BackendRecorder() as seen, mode:
        run()
    return any(has_kernel(op, "CompositeImplicitAutograd") for op in seen.ops)


def _by_hand(settings: Settings, progress: Callable[[str], None]) -> Results:
    """Compare an installed set with hand-written kernels in torch's dispatcher."""
    ops, figures, rows = core_aten(), list[Figure](), list[dict[str, Any]]()
    mode = EagerDecompMode(ops)
    # Without random ops: native kernels of the set call them (`randn` calls `normal_`), and would call the registered ones.
    random = torch.Tag.nondeterministic_seeded
    cases = [case for case in selected_cases(settings.quick) if case.op not in ops and random not in case.op.tags]
    cases = [case for case in cases if not _calls_composites(_call(case), mode)]
    functions = {case: floor(case.op, _call(case), mode).function_of(case.op) for case in cases}
    forms: dict[str, Any] = {
        "hand": lambda: _registered(functions),
        "installed": partial(install, ops, "cpu", cache=ProgramCache()),
    }
    runs = {case.name: Contestant(_call(case)) for case in cases}
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in runs}
    with without_gc(), torch.no_grad():
        for number in range(settings.rounds + 1):
            progress(f"compared: by hand, round {number} of {settings.rounds}")
            for form in list(forms) if number % 2 else reversed(forms):
                with forms[form]():
                    for name, run in runs.items():
                        once = max(time_runs(run, 3), 1e-7)
                        seconds = time_runs(run, max(1, round(settings.seconds / once)))
                        if number:  # round 0 is a warm-up
                            times[name][form].append(seconds)
    spread = joint_spread([ratios(one["installed"], one["hand"]) for one in times.values()])
    figures.append(Figure.from_spread("installed / by hand, registered", spread, f"{len(times)} ops"))
    in_set = frozenset(map(str, ops))
    outside = sum(seen.eager and name not in in_set for name, seen in load_calls().items())
    figures.append(Figure("overloads to write by hand", outside, note="those that eager calls for torch's operator database"))
    rows.extend({"op": name, "times": one} for name, one in times.items())
    return figures, rows


@contextmanager
def _registered(functions: dict[Case, Callable[..., Any]]) -> Iterator[None]:
    kernels = DeviceKernels("CPU")
    try:
        with overriding_silently():
            for case, function in functions.items():
                kernels.register(dispatcher_name(case.op), function)
        yield
    finally:
        kernels.remove()


def _compiled(settings: Settings, progress: Callable[[str], None]) -> Results:
    """Compare with torch.compile: steady calls, and first calls."""
    ops, figures, rows = core_aten(), list[Figure](), list[dict[str, Any]]()
    backends: dict[str, Any] = {"compiled": _CoreAtenBackend()}
    if cpp_compiler() is not None:
        backends["Inductor"] = "inductor"
    cold: dict[str, list[float]] = {name: [] for name in backends}
    steady: dict[str, list[list[float]]] = {name: [] for name in backends}
    nets = [net for net in selected_nets(settings.quick) if net.name in _COMPILED]
    for net in nets:
        progress(f"compared: {net.name}, compiled")
        first = _first_calls(net, None)
        for name, backend in backends.items():
            seconds = _first_calls(net, backend)
            cold[name].append(seconds / first)
            rows.append({"model": net.name, "way": name, "first_calls": seconds, "ours_first_calls": first})
        ways = {"ours": Contestant(_forward(net, None), EagerDecompMode(ops))}
        ways |= {name: Contestant(_forward(net, backend)) for name, backend in backends.items()}
        times = race(ways, settings.rounds, 4 * settings.seconds)
        rows.append({"model": net.name, "times": times})
        for name in backends:
            steady[name].append(ratios(times["ours"], times[name]))
    core_aten_backend = backends["compiled"]
    for name in backends:
        figures.append(Figure.from_spread(f"ours / {name}, steady forward", joint_spread(steady[name]), f"{len(nets)} models"))
        of = f"{len(nets)} models; least to most"
        figures.append(Figure(f"{name} / ours, first calls", geometric_mean(cold[name]), min(cold[name]), max(cold[name]), of))
    outside = {op for op in core_aten_backend.ops if op not in ops}
    figures.append(Figure("ops outside the set in compiled graphs", len(outside), note=", ".join(sorted(map(str, outside))[:6])))
    torch._dynamo.reset()
    return figures, rows


def _first_calls(net: Net, backend: Any) -> float:
    """Return the seconds of first calls with three batch sizes: in our mode if `backend` is None, else compiled."""
    torch._dynamo.reset()
    context: AbstractContextManager[Any] = EagerDecompMode(core_aten(), cache=ProgramCache()) if backend is None else nullcontext()
    model = _model(net, backend)
    return sum(time_runs(Contestant(partial(_run, net, model, _batch(net, size)), context), 1) for size in (4, 3, 2))


def _forward(net: Net, backend: Any) -> Callable[[], Any]:
    return partial(_run, net, _model(net, backend), _batch(net, None))


def _model(net: Net, backend: Any) -> Any:
    torch.manual_seed(0)
    model = net.make().eval()
    return model if backend is None else torch.compile(model, backend=backend)


def _batch(net: Net, size: int | None) -> Any:
    inputs, target = net.batch()
    return tuple(one[:size] if isinstance(one, Tensor) else one for one in inputs), target


def _run(net: Net, model: Any, batch: Any) -> Any:
    with torch.no_grad():
        return net.forward(model, batch)


class _CoreAtenBackend:
    """A backend of torch.compile that runs graphs of Core ATen kernel by kernel, and records their ops."""

    def __init__(self) -> None:
        self.ops: set[Any] = set()

    def __call__(self, model: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return compiled_by(self._run_graph, self._run_graph, model, inputs, core_table())

    def _run_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self.ops |= {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}

        def run(args: list[Any]) -> Any:
            return graph.forward(*args)

        run._boxed_call = True  # type: ignore[attr-defined]
        return run
