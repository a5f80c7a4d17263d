"""Boxed: what a call of an installed op costs beside torch's own call of a kernel in Python, which is its floor."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch

from benchmarks.figures import Figure, Section, Settings
from benchmarks.rivals import Noop
from benchmarks.timing import Contestant, Spread, block, joint, quiet_collector, ratios
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

_permute, _mul, _copy, _sum, _sigmoid = torch.permute, torch.mul, torch.Tensor.copy_, torch.sum, torch.sigmoid

#: The dispatcher's name of an op -> a tiny call of it, and its decomposition as the shortest function there is.
_OPS: dict[str, tuple[Callable[[torch.Tensor], Any], Callable[..., Any]]] = {
    "t": (lambda x: x.t(), lambda x: _permute(x, (1, 0))),
    "transpose.int": (lambda x: x.transpose(0, 1), lambda x, first, second: _permute(x, (1, 0))),
    "mul_.Tensor": (lambda x: x.mul_(1.0), lambda x, other: _copy(x, _mul(x, other))),
    "sum": (lambda x: x.sum(), lambda x, dtype=None: _sum(x, ())),
    "silu": (lambda x: torch.nn.functional.silu(x), lambda x: _mul(x, _sigmoid(x))),
}


@contextmanager
def _by_library() -> Iterator[None]:
    """These functions as kernels of the CPU, by `torch.library`."""
    library = torch.library.Library("aten", "IMPL")  # type: ignore[no-untyped-call]
    try:
        for name, (_, kernel) in _OPS.items():
            library.impl(name, kernel, "CPU")  # type: ignore[no-untyped-call]
        yield
    finally:
        library._destroy()  # type: ignore[no-untyped-call]


@contextmanager
def _by_torch_c() -> Iterator[None]:
    """The same by the call of ``torch._C`` that `torch.library` makes."""
    library: Any = torch._C._dispatch_library("IMPL", "aten", "", __file__, 1)
    try:
        for name, (_, kernel) in _OPS.items():
            library.impl(name, "CPU", kernel)
        yield
    finally:
        del library


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Every op in all forms, round by round."""
    ops = core_aten()
    forms: dict[str, Callable[[], AbstractContextManager[Any]]] = {
        "native": nullcontext,
        "noop": Noop,
        "mode": partial(EagerDecompMode, ops),
        "library": _by_library,
        "torch._C": _by_torch_c,
        "installed": partial(install, ops, "cpu"),
    }
    x = torch.rand(4, 4)
    times: dict[str, dict[str, list[float]]] = {name: {form: [] for form in forms} for name in _OPS}
    with quiet_collector(), torch.no_grad():
        for number in range(settings.rounds):
            progress(f"boxed: round {number + 1} of {settings.rounds}")
            for form, enter in forms.items():
                with enter():
                    for name, (call, _) in _OPS.items():
                        contestant = Contestant(partial(call, x))
                        once = max(block(contestant, 5), 1e-7)
                        times[name][form].append(block(contestant, max(1, round(settings.seconds / once))))
    figures = []
    for over, under in (
        ("library", "native"),
        ("torch._C", "library"),
        ("installed", "library"),
        ("installed", "noop"),
        ("mode", "noop"),
    ):
        rows = {name: ratios(found[over], found[under]) for name, found in times.items()}
        figures.append(Figure.of(f"{over} / {under}", joint([*rows.values()]), f"{len(rows)} ops"))
        figures += [Figure.of(f"{name}: {over} / {under}", Spread.of(row)) for name, row in rows.items()]
    how = (
        "A tiny call of each op with Core ATen installed on the CPU; with a bare function as the op's kernel, registered by "
        "`torch.library` or by `torch._C`; under the mode; under one that only calls on. The bare function does what the "
        "decomposition does for this very call, unchecked. What a kernel of the CPU calls in turn, such as `fill_` in `sum`, is "
        "a kernel in Python too where the set is installed."
    )
    rows_of_json = [{"op": name, "times": found} for name, found in times.items()]
    return Section("boxed", "Boxed calls", how, figures, {}, rows_of_json)
