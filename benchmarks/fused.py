"""Measure `inductor_hook`: ops as one fused C++ kernel, as separate kernels, and in eager."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from benchmarks.cases import ADAMW
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios
from eagerdecomp._torch.ops import builtin
from eagerdecomp.backends.inductor import cpp_compiler, inductor_hook
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.program.compile_hook import HITS_BEFORE_FUSING
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

aten = torch.ops.aten

#: Ops removed from Core ATen, so that they are decomposed and their fusion can be measured.
_WITHOUT = (
    *("aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.gelu", "aten.gelu_backward"),
    *("aten._native_batch_norm_legit", "aten.native_batch_norm_backward", "aten._softmax_backward_data"),
)
_SIZES = {"large": (1024, 1024), "tiny": (8, 16)}  # rows and columns
_QUICK = ("gelu", "layer norm")


def _calls(rows: int, width: int) -> dict[str, Callable[[], Any]]:
    x, grad = torch.randn(rows, width), torch.randn(rows, width)
    scale, shift = torch.rand(width) + 0.5, torch.randn(width)
    _, mean, rstd = torch.native_layer_norm(x, [width], scale, shift, 1e-5)
    soft = torch.softmax(x, -1)
    side = 32 if rows > 32 else 2
    channels = max(1, width // 16)
    image = torch.randn(rows * width // (channels * side * side), channels, side, side)
    each, zeros, ones = torch.rand(channels) + 0.5, torch.zeros(channels), torch.ones(channels)
    _, saved, inverse = torch.native_batch_norm(image, each, zeros, zeros.clone(), ones.clone(), True, 0.1, 1e-5)
    wanted = [True, True, True]

    def lists() -> list[torch.Tensor]:
        return [torch.rand(rows * width // 8) for _ in range(8)]

    steps = [torch.tensor(10.0) for _ in range(8)]
    return {
        "layer norm": partial(builtin(aten.native_layer_norm.default), x, [width], scale, shift, 1e-5),
        "layer norm, backward": partial(
            builtin(aten.native_layer_norm_backward.default), grad, x, [width], mean, rstd, scale, shift, wanted
        ),
        "gelu": partial(builtin(aten.gelu.default), x),
        "gelu, backward": partial(builtin(aten.gelu_backward.default), grad, x),
        "batch norm": partial(builtin(aten.native_batch_norm.default), image, each, zeros, zeros, ones, True, 0.1, 1e-5),
        "batch norm, backward": partial(
            builtin(aten.native_batch_norm_backward.default),
            image * 2,
            image,
            each,
            zeros,
            ones,
            saved,
            inverse,
            True,
            1e-5,
            wanted,
        ),
        "softmax, backward": partial(builtin(aten._softmax_backward_data.default), grad, soft, -1, torch.float32),
        "Adam": partial(builtin(aten._fused_adamw_.default), lists(), lists(), lists(), lists(), [], steps, **ADAMW),
        "foreach addcdiv_": partial(builtin(aten._foreach_addcdiv_.Scalar), lists(), lists(), lists(), 1e-5),
    }


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each call fused, unfused and in eager. Without a C++ compiler, return no figures."""
    if cpp_compiler() is None:
        return Section("fused", "Fused", "Not measured: no C++ compiler is installed.", [])
    ops = core_aten() - _WITHOUT
    fused = EagerDecompMode(Backend("fused", ops, compile=inductor_hook), cache=ProgramCache())
    unfused = EagerDecompMode(ops)
    rows: list[dict[str, Any]] = []
    for size, shape in _SIZES.items():
        for name, run in _calls(*shape).items():
            if settings.quick and (name not in _QUICK or size == "large"):
                continue
            progress(f"fused: {name}, {size}")
            with fused:
                for _ in range(HITS_BEFORE_FUSING + 2):
                    run()
            contestants = {"native": Contestant(run), "fused": Contestant(run, fused), "unfused": Contestant(run, unfused)}
            times = race(contestants, settings.rounds, 4 * settings.seconds)
            to_native = {one: ratios(times[one], times["native"]) for one in ("fused", "unfused")}
            rows.append({"call": name, "size": size, "times": times, "ratios": to_native})
    how = (
        "Ops outside the set: Core ATen without the measured ops. Fused: `inductor_hook` compiles an op's program to one C++ "
        "kernel. Unfused: the same program, one kernel after another. Large: a million floats. Tiny: 128."
    )
    return Section("fused", "Fused", how, _figures(rows), rows=rows)


def _figures(rows: list[dict[str, Any]]) -> list[Figure]:
    found: list[Figure] = []
    for size in dict.fromkeys(row["size"] for row in rows):
        here = [row for row in rows if row["size"] == size]
        for one in ("fused", "unfused"):
            spread = joint_spread([row["ratios"][one] for row in here])
            found.append(Figure.from_spread(f"{one} / native, {size}", spread, f"{len(here)} calls"))
        found += [Figure.from_spread(f"{row['call']}, {size}: fused / native", Spread.of(row["ratios"]["fused"])) for row in here]
    return found
