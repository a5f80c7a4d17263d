"""Write the docs page that compares speed: ``python -m benchmarks.page --device cpu --write docs/numbers/speed``.

The tables are Markdown, and the chart is SVG. On a machine without the device, it says so and writes nothing.
"""

from __future__ import annotations

import argparse
import platform
import time
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from types import TracebackType
from typing import Any

import torch
from torch import Tensor, nn

from benchmarks.baselines import Naive, Noop
from benchmarks.chart import svg
from benchmarks.figures import Figure, Section
from benchmarks.nets import adamw_step
from benchmarks.suite import isolated
from benchmarks.timing import Contestant, race, ratios, thread_seconds
from eagerdecomp.backends.inductor import cpp_compiler
from eagerdecomp.frontends.installation import install
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["main"]

_NATIVE = "native"
_WAYS = {
    "a mode that does nothing": "calls each op unchanged",
    "eagerdecomp, installed": "each op decomposed to Core ATen, no mode",
    "eagerdecomp, as a mode": "each op decomposed to Core ATen",
    "torch's table in a mode": "ops outside Core ATen decomposed by the table at every call; an op without an entry runs natively",
    "torch.compile": "with Inductor, its default backend: fused kernels for fixed shapes, and no op set",
}


class _Installed(AbstractContextManager[None]):
    """Install Core ATen for a device and run some passes; remove it at exit. The cache stays between entries."""

    def __init__(self, device: str, run: Callable[[], Any]) -> None:
        self._device, self._run, self._cache = device, run, ProgramCache()

    def __enter__(self) -> None:
        self._handle = install(core_aten(), self._device, cache=self._cache)
        for _ in range(3):
            self._run()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._handle.remove()


class _Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.body = nn.Sequential(
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width), nn.ReLU()),
            *(nn.Conv2d(width, width, 3, padding=1), nn.BatchNorm2d(width)),
        )

    def forward(self, x: Tensor) -> Tensor:
        return torch.relu(x + self.body(x))


def _models() -> dict[str, tuple[nn.Module, Tensor]]:
    encoder = nn.TransformerEncoderLayer(128, 4, 256, dropout=0.0, batch_first=True, activation="gelu")
    return {
        "MLP": (nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.Linear(512, 256)), torch.randn(64, 256)),
        "ResNet": (nn.Sequential(nn.Conv2d(3, 16, 3), _Residual(16), _Residual(16)), torch.randn(8, 3, 18, 18)),
        "transformer": (nn.TransformerEncoder(encoder, 2, enable_nested_tensor=False), torch.randn(8, 32, 128)),
    }


def _pass(kind: str, name: str, device: str, *, compiled: bool) -> Callable[[], Any]:
    """Return one pass of a model. Each has its own weights."""
    torch.manual_seed(0)
    model, x = _models()[name]
    model, x = model.to(device), x.to(device)
    model.train(kind == "training")
    call: Callable[[Tensor], Tensor] = torch.compile(model) if compiled else model
    if kind == "training":
        return adamw_step(model, lambda: call(x).square().mean())

    def infer() -> Tensor:
        with torch.no_grad():
            return call(x)

    return infer


def _measured(kind: str, name: str, device: str, rounds: int) -> dict[str, list[float]]:
    """Return way to run the model -> seconds of a pass in each round."""
    contexts: dict[str, AbstractContextManager[Any]] = {
        _NATIVE: nullcontext(),
        "a mode that does nothing": Noop(),
        "eagerdecomp, as a mode": EagerDecompMode(core_aten()),
        "torch's table in a mode": Naive(core_aten()),
    }
    ways = {way: Contestant(_pass(kind, name, device, compiled=False), context) for way, context in contexts.items()}
    installed = _pass(kind, name, device, compiled=False)
    ways["eagerdecomp, installed"] = Contestant(installed, _Installed(torch.device(device).type, installed))
    if device != "cpu" or cpp_compiler():
        ways["torch.compile"] = Contestant(_pass(kind, name, device, compiled=True))
    return race(ways, rounds, 0.05, _clock(device), warm=6)


def _clock(device: str) -> Callable[[], float]:
    def synchronized() -> float:
        torch.accelerator.synchronize()
        return time.perf_counter()

    return thread_seconds if device == "cpu" else synchronized


def _sections(device: str, rounds: int) -> list[Section]:
    sections = []
    for kind in ("inference", "training"):
        rows: list[dict[str, Any]] = []
        for name in _models():
            print(f"{kind}: {name}", flush=True)
            times = _measured(kind, name, device, rounds)
            found = {way: sorted(ratios(times[way], times[_NATIVE]))[rounds // 2] for way in _WAYS if way in times}
            rows.append({"model": name, "ms": 1e3 * sorted(times[_NATIVE])[rounds // 2], **found})
        ways = [way for way in _WAYS if all(way in row for row in rows)]
        figures = [Figure.over_models(f"{way} / native", [row[way] for row in rows]) for way in ways]
        sections.append(Section(kind, kind.capitalize(), "", figures, {}, rows))
    return sections


def _page(sections: list[Section], device: str, where: str, picture: str) -> str:
    lines = [
        "# Speed against the alternatives",
        "",
        f"Time of one pass as a multiple of native eager PyTorch; less is faster. Measured on {where}, by",
        f"`python -m benchmarks.page --device {device} --write FILE`, which writes this page and its chart. Each row is a way to",
        "run the models ([explained below](#the-ways)). All ways run in turn in one process, for several rounds. A value is the",
        "median of the rounds. README and [numbers](numbers.md#what-it-costs) have the ratios of twelve smaller models, where the",
        "overhead per call counts more.",
        "In the chart, a dot is the geometric mean over the models, and a line goes from the smallest to the largest ratio.",
        "",
        f"![Chart: time of one pass as a multiple of native]({picture})",
        "",
    ]
    for section in sections:
        lines += [f"## {section.title}", "", "| way | " + " | ".join(row["model"] for row in section.rows) + " |"]
        lines.append("|---|" + "---|" * len(section.rows))
        lines.append("| native, milliseconds | " + " | ".join(f"{row['ms']:.2f}" for row in section.rows) + " |")
        for way in _WAYS:
            cells = [f"{row[way]:.2f}" if way in row else "not run" for row in section.rows]
            lines.append(f"| {way} | " + " | ".join(cells) + " |")
        lines.append("")
    lines += ["## The ways", ""] + [f"- **{way}**: {what}." for way, what in _WAYS.items()] + [""]
    lines += [
        "The library runs eager programs on a small set of ops. It does not make CPU or CUDA programs faster: each decomposed",
        "op takes several kernels. To make a program faster, use `torch.compile`; it has no op set.",
    ]
    return "\n".join(lines) + "\n"


def main() -> int:
    """Measure, write the page, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.page", description=__doc__, allow_abbrev=False)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"], help="where the models run (default: %(default)s)")
    parser.add_argument("--rounds", type=int, default=9, help="turns of each way to run a model (default: %(default)s)")
    parser.add_argument("--write", metavar="FILE", help="write FILE.md and FILE.svg (default: print the page)")
    args = parser.parse_args()
    if args.device == "cuda" and not torch.cuda.is_available():
        print("no CUDA device here: nothing is measured")
        return 0
    with isolated(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        sections = _sections(args.device, args.rounds)
    unit = torch.cuda.get_device_name() if args.device == "cuda" else f"one {platform.machine()} CPU thread"
    where = f"{unit}, torch {torch.__version__}"
    target = Path(args.write) if args.write else None
    page = _page(sections, args.device, where, f"{target.name}.svg" if target else "")
    if target is None:
        print(page)
        return 0
    target.with_suffix(".md").write_text(page, encoding="utf-8")
    target.with_suffix(".svg").write_text(svg(sections, where), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
