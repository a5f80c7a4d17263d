"""Measure in-place ops on large tensors, against eager's in-place kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor

from benchmarks.cases import ADAMW
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import Contestant, Spread, joint_spread, race, ratios
from eagerdecomp._torch.ops import builtin
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

aten = torch.ops.aten
_FULL_SIZE, _QUICK_SIZE = 1 << 20, 1 << 14
#: Calls that also run on eight times as many floats, which do not fit into the processor's caches.
_ALSO_LARGER = ("add_", "addcmul_", "_foreach_mul_", "_foreach_addcmul_", "_fused_adamw_")


def _calls(count: int) -> dict[str, Callable[[], Any]]:
    """Return in-place calls on `count` floats. The values stay finite however often a call runs."""
    target, zeros, ones, other = torch.rand(count), torch.zeros(count), torch.ones(count), torch.rand(count) + 0.5
    part = count // 8

    def tensors(make: Callable[[int], Tensor] = torch.zeros) -> list[Tensor]:
        return [make(part) for _ in range(8)]

    mask = torch.rand(count) > 0.5
    return {
        "add_": partial(builtin(aten.add_.Tensor), target, zeros),
        "mul_": partial(builtin(aten.mul_.Tensor), target, ones),
        "mul_ by a number": partial(builtin(aten.mul_.Scalar), target, 1.0),
        "lerp_": partial(builtin(aten.lerp_.Scalar), target, other, 0.3),
        "addcmul_": partial(builtin(aten.addcmul_.default), target, zeros, other, value=0.5),
        "addcdiv_": partial(builtin(aten.addcdiv_.default), target, zeros, other, value=0.5),
        "clamp_": partial(builtin(aten.clamp_.default), target, 0.0, 1.0),
        "relu_": partial(builtin(aten.relu_.default), target),
        "sigmoid_": partial(builtin(aten.sigmoid_.default), target),
        "masked_fill_": partial(builtin(aten.masked_fill_.Scalar), target, mask, 0.5),
        "zero_": partial(builtin(aten.zero_.default), target),
        "_foreach_add_": partial(builtin(aten._foreach_add_.List), tensors(), tensors()),
        "_foreach_mul_": partial(builtin(aten._foreach_mul_.Scalar), tensors(), 1.0),
        "_foreach_addcmul_": partial(builtin(aten._foreach_addcmul_.Scalar), tensors(), tensors(), tensors(), 0.5),
        "_fused_adamw_": partial(
            builtin(aten._fused_adamw_.default),
            *(tensors(torch.rand) for _ in range(4)),  # not zeros: their square root takes ten times as long
            [],
            [torch.tensor(10.0) for _ in range(8)],
            **ADAMW,
        ),
    }


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Race each in-place call in eager and in the mode."""
    count = _QUICK_SIZE if settings.quick else _FULL_SIZE
    mode = EagerDecompMode(core_aten())
    rows: list[dict[str, Any]] = []
    for size, names in ((count, None), (8 * count, _ALSO_LARGER)):
        for name, run in _calls(size).items():
            if names is not None and name not in names:
                continue
            progress(f"writeback: {name} on {size:,} floats")
            times = race({"native": Contestant(run), "ours": Contestant(run, mode)}, settings.rounds, 4 * settings.seconds)
            rows.append({"call": name, "floats": size, "times": times, "ratio": ratios(times["ours"], times["native"])})
    figures = []
    for title, size in (("ours / native, geometric mean", count), ("the same on eight times as many floats", 8 * count)):
        taken = [row["ratio"] for row in rows if row["floats"] == size]
        figures.append(Figure.from_spread(title, joint_spread(taken), f"{len(taken)} calls"))
    figures += [Figure.from_spread(f"{row['call']}, {row['floats']:,} floats", Spread.of(row["ratio"])) for row in rows]
    how = f"In-place calls on {count:,} floats and more, on Core ATen, which has none of these ops. A list has eight equal tensors."
    return Section("writeback", "Writeback", how, figures, rows=rows)
