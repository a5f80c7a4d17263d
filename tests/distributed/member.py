"""One process of a group: runs every scenario in each form and writes what it saw.

Run ``member.py RANK WORLD FOLDER [SCENARIO...]``.
"""

from __future__ import annotations

import json
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import scenarios
import torch
import torch.distributed as dist

import eagerdecomp as ed
from eagerdecomp._torch.dispatcher import overriding_silently
from eagerdecomp._torch.ops import OpOverload, dispatcher_name, op_names, visible
from eagerdecomp.dispatcher.device_kernels import DeviceKernels
from eagerdecomp.eager import verdict
from eagerdecomp.eager.scalar_tensors import scalars_to_tensors, tensor_positions

CORE = ed.core_aten()


class Outside(ed.BackendRecorder):
    """A recorder that knows, in each thread, which op it is handing to the device."""

    def __init__(self) -> None:
        super().__init__()
        self.within = threading.local()
        self.escaped: set[tuple[str, str, str]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = getattr(self.within, "op", None)
        self.within.op = func
        try:
            return super().__torch_dispatch__(func, types, args, kwargs)
        finally:
            self.within.op = before


@contextmanager
def guarded(watch: Outside) -> Iterator[None]:
    """Notes every op outside the set that the CPU runs though nobody handed it over: in a thread of which the mode does not know,
    or inside an op that passes through."""
    kernels = DeviceKernels("CPU")

    def watched(op: OpOverload) -> Any:
        native, places = kernels.native(dispatcher_name(op)), tensor_positions(op)
        assert native is not None

        def kernel(*args: Any, **kwargs: Any) -> Any:
            by = getattr(watch.within, "op", None)
            if by is None or by.namespace != "aten":
                where = "" if threading.current_thread() is threading.main_thread() else "in another thread"
                watch.escaped.add((str(op), str(by or ""), where))
            return native(*scalars_to_tensors(places, args), **kwargs)

        return kernel

    run = verdict._run

    def asked(op: OpOverload, made: Any) -> Any:
        """Ask eager, which runs torch's kernel on copies."""
        before, watch.within.op = getattr(watch.within, "op", None), op
        try:
            return run(op, made)
        finally:
            watch.within.op = before

    verdict._run = asked
    with overriding_silently():
        for name in op_names():
            if name.startswith("aten::") and name in kernels.device.own and (op := visible(name)) not in CORE:
                kernels.register(name, watched(op))
    try:
        yield
    finally:
        kernels.remove()
        verdict._run = run


def flat(numbers: scenarios.Numbers) -> dict[str, Any]:
    """Turn tensors into lists of numbers; other values stay."""
    found = {}
    for name, value in numbers.items():
        if isinstance(value, torch.Tensor):
            found[name] = value.detach().double().flatten().tolist()
        else:
            found[name] = value
    return found


def farthest(want: dict[str, Any], got: dict[str, Any]) -> float:
    """The largest difference, in terms of the largest number of its kind; infinite where there is another sort of difference."""
    if want.keys() != got.keys():
        return float("inf")
    far = 0.0
    for name, value in want.items():
        other = got[name]
        if not (isinstance(value, list) and all(type(one) is float for one in value)):
            far = far if value == other else float("inf")
        elif len(value) != len(other):
            return float("inf")
        elif value:
            a, b = torch.tensor(value, dtype=torch.float64), torch.tensor(other, dtype=torch.float64)
            both = a.isnan() & b.isnan()  # as DTensors whose mean is that of a rank without elements
            off = (a - b).masked_fill(both, 0).abs().max().item()
            far = max(far, off / max(1e-3, a.nan_to_num().abs().max().item())) if off == off else float("inf")
    return far


def in_every_form(names: list[str], found: dict[str, dict[str, Any]]) -> None:
    """Each scenario in plain eager, all of them in the mode, and all of them where the set is installed."""
    plain: dict[str, Any] = {}

    def done(name: str, **what: Any) -> None:
        found[name] |= what
        dist.barrier()

    for name in names:
        found[name] = {"begun": "plain"}
        plain[name] = flat(scenarios.SCENARIOS[name]())
        done(name, losses=plain[name].get("losses", []), numbers=sum(len(one) for one in plain[name].values() if type(one) is list))
    watch = Outside()
    with guarded(watch):
        for name in names:
            found[name] |= {"begun": "mode"}
            watch.ops.clear()
            watch.escaped.clear()
            with watch, ed.EagerDecompMode(CORE, host_random="decomposed") as mode:
                numbers = flat(scenarios.SCENARIOS[name]())
            escaped = sorted(watch.escaped)
            done(
                name,
                mode=farthest(plain[name], numbers),
                outside=sorted(map(str, watch.outside(CORE))),
                passthrough=sorted(map(str, watch.passthrough(CORE))),
                escaped=escaped,
                decomposed=mode.stats().total.decomposed,
                fell_back=mode.stats().total.fell_back,
            )
    with ed.install(CORE, "cpu") as handle:
        for name in names:
            found[name] |= {"begun": "installed"}
            before = handle.stats().total.decomposed
            numbers = flat(scenarios.SCENARIOS[name]())
            done(name, installed=farthest(plain[name], numbers), installed_decomposed=handle.stats().total.decomposed - before)


def main(rank: int, world: int, folder: Path, names: list[str]) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(str(folder / "store"), world)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=world, timeout=timedelta(seconds=60))
    found: dict[str, dict[str, Any]] = {}
    try:
        in_every_form(names, found)
    except Exception:  # reported by name to the test, which fails; the others of the group wait for a minute at most
        found[list(found)[-1]]["error"] = traceback.format_exc()
    finally:
        (folder / f"{rank}.json").write_text(json.dumps(found), encoding="utf-8")
    dist.destroy_process_group()


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), Path(sys.argv[3]), sys.argv[4:])
