"""Dense linear algebra at sizes that people use: kernel calls and time against native eager, a large matrix and many small ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, race, ratios
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

#: Calls on a matrix of any kind.
GENERAL: dict[str, Callable[[Tensor], Any]] = {
    "lu_factor": torch.linalg.lu_factor,
    "qr": torch.linalg.qr,
    "solve": lambda x: torch.linalg.solve(x, x[..., :4]),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x, x[..., :4], upper=True),
    "ldl_factor": torch.linalg.ldl_factor,
    "matrix_exp": torch.linalg.matrix_exp,
    "eigh": torch.linalg.eigh,
    "svd": torch.linalg.svd,
}

#: Calls on a positive definite matrix, or on a triangle with a positive diagonal.
DEFINITE: dict[str, Callable[[Tensor], Any]] = {
    "cholesky": torch.linalg.cholesky,
    "cholesky_inverse": torch.cholesky_inverse,
    "cholesky_solve": lambda x: torch.cholesky_solve(x[..., :4], x),
}

#: Calls that are measured of small matrices alone: a large one takes seconds.
_SMALL_ALONE = ("ldl_factor",)


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each call against native eager and count its kernels, once it is warm."""
    sizes = ((32, 32), (50, 4, 4)) if settings.quick else ((256, 256), (1000, 4, 4))
    rows: list[dict[str, Any]] = []
    for shape in sizes:
        general, definite = _matrices(shape)
        for name, op in (GENERAL | DEFINITE).items():
            if len(shape) == 2 and name in _SMALL_ALONE:
                continue
            progress(f"linalg: {name} of {_text(shape)}")
            given = general if name in GENERAL else definite
            rows.append({"op": name, "size": _text(shape), **_raced(op, given, settings)})
    figures = [Figure.of(f"ours / native, {row['op']} of {row['size']}", Spread.of(row["ratios"])) for row in rows]
    figures += [Figure(f"kernel calls, {row['op']} of {row['size']}", row["kernels"]) for row in rows]
    how = "Float32 on Core ATen, natively and in the mode in turn. Kernel calls: those of a warm call that reach the backend."
    return Section("linalg", "Linear algebra", how, figures, rows=rows)


def _raced(op: Callable[[Tensor], Any], given: Tensor, settings: Settings) -> dict[str, Any]:
    def run() -> Any:
        return op(given)

    mode = EagerDecompMode(core_aten())
    times = race({"native": Contestant(run), "ours": Contestant(run, mode)}, settings.rounds, settings.seconds)
    with BackendRecorder() as seen, mode:
        run()
    return {"kernels": seen.ops.total(), "times": times, "ratios": ratios(times["ours"], times["native"])}


def _matrices(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """A random symmetric matrix, and a positive definite one."""
    size = shape[-1]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return x + x.mT, x @ x.mT + size * torch.eye(size)


def _text(shape: tuple[int, ...]) -> str:
    size = f"{shape[-2]} by {shape[-1]}"
    return size if len(shape) == 2 else f"{shape[0]} of {size}"
