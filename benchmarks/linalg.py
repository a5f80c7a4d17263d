"""Measure kernel calls and time of dense linear algebra, against eager.

The inputs are a large matrix, many small ones, and training steps of a Gaussian process.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, race, ratios
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

#: Calls on a symmetric matrix.
GENERAL: dict[str, Callable[[Tensor], Any]] = {
    "lu_factor": torch.linalg.lu_factor,
    "qr": torch.linalg.qr,
    "solve": lambda x: torch.linalg.solve(x, x[..., :4]),
    "inv": torch.linalg.inv,
    "det": torch.linalg.det,
    "solve_triangular": lambda x: torch.linalg.solve_triangular(x, x[..., :4], upper=True),
    "ldl_factor": torch.linalg.ldl_factor,
    "matrix_exp": torch.linalg.matrix_exp,
    "eig": torch.linalg.eig,
    "eigh": torch.linalg.eigh,
    "svd": torch.linalg.svd,
}

#: Calls on a positive definite matrix. `cholesky_inverse` and `cholesky_solve` read its lower triangle as a factor.
DEFINITE: dict[str, Callable[[Tensor], Any]] = {
    "cholesky": torch.linalg.cholesky,
    "cholesky_inverse": torch.cholesky_inverse,
    "cholesky_solve": lambda x: torch.cholesky_solve(x[..., :4], x),
}

#: Calls that are measured only on small matrices: a large one takes seconds.
_ONLY_SMALL = ("ldl_factor",)


class GaussianProcess(nn.Module):
    """Exact Gaussian process regression, as in GPyTorch: an RBF kernel, trained by the marginal likelihood."""

    def __init__(self, by_eigenvalues: bool) -> None:
        super().__init__()
        self.by_eigenvalues = by_eigenvalues
        self.length, self.scale, self.noise = (nn.Parameter(torch.tensor(value)) for value in (0.0, 0.5, -2.0))

    def covariance(self, x: Tensor) -> Tensor:
        """Return the kernel matrix of the points, with the noise on its diagonal."""
        x = x / F.softplus(self.length)
        squares = x.square().sum(-1, keepdim=True)
        distances = (squares + squares.mT - 2 * x @ x.mT).clamp_min(0)
        return F.softplus(self.scale) * (-0.5 * distances).exp() + F.softplus(self.noise) * torch.eye(len(x))

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        """Return the negative log marginal likelihood, up to a constant."""
        covariance = self.covariance(x)
        if self.by_eigenvalues:
            values, vectors = torch.linalg.eigh(covariance)
            return ((vectors.mT @ y).square().squeeze(1) / values + values.log()).sum() / 2  # type: ignore[no-any-return]
        factor = torch.linalg.cholesky(covariance)
        return (y * torch.cholesky_solve(y, factor)).sum() / 2 + factor.diagonal().log().sum()  # type: ignore[no-any-return]


def _training(by_eigenvalues: bool, points: int) -> Callable[[], Any]:
    """Return a training step on random points of a noisy sine."""
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(points, 2, generator=generator)
    y = (6 * x[:, :1]).sin() + 0.1 * torch.randn(points, 1, generator=generator)
    model = GaussianProcess(by_eigenvalues)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    def step() -> None:
        optimizer.zero_grad()
        model(x, y).backward()
        optimizer.step()

    return step


def _columns_alone(matrix: Tensor) -> None:
    """Run only the seven calls that each column of an LU factorization takes, in panels of 64: no rule can be faster."""
    with torch.inference_mode():
        for start in range(0, len(matrix), 64):
            rest = matrix[start : start + 64, start:]
            for left in range(len(rest) - 1, 0, -1):
                column, rest = rest.split_with_sizes([1, left])
                pivot = column.abs().argmax(1)
                multiplier = column.div(column.index_select(1, pivot))
                rest = rest.addmm(rest.index_select(1, pivot), multiplier, alpha=-1)


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each call against eager, and count its kernel calls once it is warm."""
    sizes = ((32, 32), (50, 4, 4)) if settings.quick else ((256, 256), (1000, 4, 4))
    rows: list[dict[str, Any]] = []
    for shape in sizes:
        general, definite = _matrices(shape)
        for name, op in (GENERAL | DEFINITE).items():
            if len(shape) == 2 and name in _ONLY_SMALL:
                continue
            progress(f"linalg: {name} of {_size_text(shape)}")
            matrix = general if name in GENERAL else definite
            rows.append({"op": name, "size": _size_text(shape), **_measure_one(partial(op, matrix), settings)})
    points = 50 if settings.quick else 200
    for name, by_eigenvalues in (("cholesky", False), ("eigh", True)):
        progress(f"linalg: a Gaussian process by {name}")
        run = _training(by_eigenvalues, points)
        rows.append({"op": f"training step by {name}, Gaussian process", "size": f"{points} points", **_measure_one(run, settings)})
    figures = [Figure.from_spread(f"ours / native, {row['op']} of {row['size']}", Spread.of(row["ratios"])) for row in rows]
    size = sizes[0][0]
    matrix = _matrices(sizes[0])[0]
    runs = {"native": partial(torch.linalg.lu_factor, matrix), "columns": partial(_columns_alone, matrix)}
    times = race({name: Contestant(run) for name, run in runs.items()}, settings.rounds, settings.seconds)
    bound = Spread.of(ratios(times["columns"], times["native"]))
    figures.append(Figure.from_spread(f"seven calls for each column / native, lu_factor of {size} by {size}", bound))
    figures += [Figure(f"kernel calls, {row['op']} of {row['size']}", row["kernels"]) for row in rows]
    how = (
        "float32 on Core ATen, in eager and in the mode in turns. Kernel calls: how many calls reach the backend in one warm call."
    )
    return Section("linalg", "Linear algebra", how, figures, rows=rows)


def _measure_one(run: Callable[[], Any], settings: Settings) -> dict[str, Any]:
    mode = EagerDecompMode(core_aten())
    times = race({"native": Contestant(run), "ours": Contestant(run, mode)}, settings.rounds, settings.seconds)
    with BackendRecorder() as seen, mode:
        run()
    return {"kernels": seen.ops.total(), "times": times, "ratios": ratios(times["ours"], times["native"])}


def _matrices(shape: tuple[int, ...]) -> tuple[Tensor, Tensor]:
    """Return a random symmetric matrix, and a positive definite one."""
    size = shape[-1]
    x = torch.randn(shape, generator=torch.Generator().manual_seed(0))
    return x + x.mT, x @ x.mT + size * torch.eye(size)


def _size_text(shape: tuple[int, ...]) -> str:
    size = f"{shape[-2]} by {shape[-1]}"
    return size if len(shape) == 2 else f"{shape[0]} of {size}"
