"""Count the Core ATen calls that each op decomposes into, against torch's own decomposition. Nothing is timed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from benchmarks.baselines import Naive
from benchmarks.cases import CASES, TINY, Case
from benchmarks.figures import Figure, Section, Settings
from benchmarks.timing import geometric_mean
from eagerdecomp._torch.ops import builtin
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten

__all__ = ["measure"]

_SHOWN = 8
_PARAMETERS = 100


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Count the calls that reach the backend for each op outside the set, in our mode and in the naive mode."""
    ops = core_aten()
    mode, naive = EagerDecompMode(ops), Naive(ops)
    rows: list[dict[str, Any]] = []
    progress("kernels")
    for case in CASES:
        if case.op not in ops:
            rows.append({"op": case.name, "ours": _count(case, mode, 3), "shipped": _shipped(case, naive)})
    both = [row for row in rows if row["shipped"]]
    most_calls = sorted(rows, key=lambda row: -row["ours"])[:_SHOWN]
    return Section(
        "kernels",
        "Kernel calls",
        "Calls that reach the backend for one warm, tiny call of an op, counted by an outer mode. Shipped: a mode that applies "
        "torch's decomposition table. Ops that the table does not have are not in the ratio.",
        [
            Figure(
                "ours / shipped, geometric mean",
                geometric_mean([row["ours"] / row["shipped"] for row in both]),
                note=f"{len(both)} ops",
            ),
            Figure("ours, all ops together", sum(row["ours"] for row in both)),
            Figure("shipped, all ops together", sum(row["shipped"] for row in both)),
            *(
                Figure(f"{name}, ours", _count_calls(mode, *_optimizer(foreach=way == "foreach", fused=way == "fused")))
                for way in ("single", "foreach", "fused")
                for name in [f"a step of AdamW on {_PARAMETERS} parameters, {way}"]
            ),
            *_cudnn_lstm(mode),
        ],
        {"Most kernel calls (ours, shipped)": [f"{row['op']} {row['ours']}, {row['shipped'] or '-'}" for row in most_calls]},
        rows,
    )


def _optimizer(*, foreach: bool, fused: bool) -> tuple[Callable[[], Any], int]:
    """Return an optimizer's step on many small parameters, and the number of warm-up calls that it needs."""
    parameters = [torch.nn.Parameter(torch.ones(64)) for _ in range(_PARAMETERS)]
    for parameter in parameters:
        parameter.grad = torch.ones(64)
    return torch.optim.AdamW(parameters, foreach=foreach, fused=fused).step, 2  # the first call creates the state


def _cudnn_lstm(mode: Any) -> list[Figure]:
    """Count the calls of cuDNN's LSTM op on CPU tensors, with two layers and 16 steps."""
    aten = torch.ops.aten
    layer = torch.nn.LSTM(8, 12, num_layers=2)
    x, state, weights = torch.randn(16, 4, 8), torch.zeros(2, 4, 12), [one.detach() for one in layer.parameters()]
    call: tuple[Any, ...] = (2, 12, 0, 2, False, 0.0, True, False, [], None)
    with mode:
        out, _, _, reserve, buffer = aten._cudnn_rnn(x, weights, 4, None, state, state, *call)
    runs = {
        "forward": lambda: aten._cudnn_rnn(x, weights, 4, None, state, state, *call),
        "backward": lambda: aten._cudnn_rnn_backward(
            x, weights, 4, buffer, state, state, out, out, None, None, *call, reserve, [True] * 4
        ),
    }
    return [Figure(f"an LSTM as cuDNN has it, {way}, ours", _count_calls(mode, run, 2)) for way, run in runs.items()]


def _count_calls(mode: Any, run: Callable[[], Any], warm: int) -> int:
    with mode:
        for _ in range(warm):
            run()
    with BackendRecorder() as seen, mode:
        run()
    return sum(seen.ops.values())


def _count(case: Case, mode: Any, warm: int) -> int:
    return sum(_backend_calls(case, mode, warm).values())


def _backend_calls(case: Case, mode: Any, warm: int) -> dict[Any, int]:
    args, kwargs, run = case.args(TINY), case.kwargs(TINY), builtin(case.op)
    with mode:
        for _ in range(warm):
            run(*args, **kwargs)
    with BackendRecorder() as seen, mode:
        run(*args, **kwargs)
    return dict(seen.ops)


def _shipped(case: Case, naive: Naive) -> int | None:
    """Return the number of calls in the naive mode; None if torch's table does not decompose the op or raises."""
    try:
        seen = _backend_calls(case, naive, 0)
    except (RuntimeError, TypeError, NotImplementedError):
        return None
    return None if case.op in seen else sum(seen.values())
