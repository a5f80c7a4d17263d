"""Measure a call of an installed op against a bare Python kernel in torch's dispatcher, the least that it can cost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.baselines import Noop
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, joint_spread, ratios, time_runs, without_gc
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

_permute, _mul, _copy, _sum, _sigmoid = torch.permute, torch.mul, torch.Tensor.copy_, torch.sum, torch.sigmoid

#: The dispatcher's name of an op -> a tiny call of it, and the shortest function that decomposes this call.
_OPS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[..., Any]]] = {
    "t": (lambda x: x.t(), lambda x: _permute(x, (1, 0))),
    "transpose.int": (lambda x: x.transpose(0, 1), lambda x, first, second: _permute(x, (1, 0))),
    "mul_.Tensor": (lambda x: x.mul_(1.0), lambda x, other: _copy(x, _mul(x, other))),
    "sum": (lambda x: x.sum(), lambda x, dtype=None: _sum(x, ())),
    "silu": (lambda x: torch.nn.functional.silu(x), lambda x: _mul(x, _sigmoid(x))),
}


@contextmanager
def _registered_by_library() -> Iterator[None]:
    """Register the functions of `_OPS` as CPU kernels, with `torch.library`."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for name, (_, kernel) in _OPS.items():
            library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


@contextmanager
def _registered_by_torch_c() -> Iterator[None]:
    """Do the same with the function of ``torch._C`` that `torch.library` calls."""
    library: Any = torch._C._dispatch_library("IMPL", "aten", "", __file__, 1)
    try:
        for name, (_, kernel) in _OPS.items():
            library.impl(name, "CPU", kernel)
        yield
    finally:
        del library


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Time each op in all forms, in alternating rounds."""
    ops = core_aten()
    forms: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "native": nullcontext,
        "noop": Noop,
        "mode": partial(EagerDecompMode, ops),
        "library": _registered_by_library,
        "torch._C": _registered_by_torch_c,
        "installed": partial(install, ops, "cpu"),
    }
    x = torch.rand(4, 4)
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in _OPS}
    with without_gc(), torch.no_grad():
        for number in range(settings.rounds):
            progress(f"boxed: round {number + 1} of {settings.rounds}")
            for form, enter in forms.items():
                with enter():
                    for name, (call, _) in _OPS.items():
                        contestant = Contestant(partial(call, x))
                        once = max(time_runs(contestant, 5), 1e-7)
                        times[name][form].append(time_runs(contestant, max(1, round(settings.seconds / once))))
    figures = []
    for numerator, denominator in (
        ("library", "native"),
        ("torch._C", "library"),
        ("installed", "library"),
        ("installed", "noop"),
        ("mode", "noop"),
    ):
        rows = {name: ratios(found[numerator], found[denominator]) for name, found in times.items()}
        figures.append(Figure.from_spread(f"{numerator} / {denominator}", joint_spread([*rows.values()]), f"{len(rows)} ops"))
        figures += [Figure.from_spread(f"{name}: {numerator} / {denominator}", Spread.of(row)) for name, row in rows.items()]
    how = (
        "A tiny call of each op. Installed: Core ATen is installed on the CPU. Library and torch._C: a bare function is the op's "
        "kernel, registered by `torch.library` or `torch._C`. It decomposes only this call and checks nothing. Noop: a mode that "
        "only calls the op. In `installed`, ops that a CPU kernel calls (`sum` calls `fill_`) have Python kernels too."
    )
    json_rows = [{"op": name, "times": found} for name, found in times.items()]
    return Section("boxed", "Boxed calls", how, figures, {}, json_rows)
