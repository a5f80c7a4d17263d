"""Measure a training loop whose sequence lengths and learning rates keep changing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.baselines import Noop
from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import NETS, VOCABULARY
from benchmarks.timing import Contestant, time_runs, without_gc
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

_GPT = next(net for net in NETS if net.name == "GPT with a cache")
_WINDOW = 50


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Train in the mode and in a no-op mode, alternating, over all lengths twice; then run the last steps in a new mode."""
    lengths, rates, window = (8, 3, 4) if settings.quick else (500, 100, _WINDOW)
    cache = ProgramCache()
    mode = EagerDecompMode(core_aten(), cache=cache)
    ours, noop = _Loop(mode, lengths), _Loop(Noop(), lengths)
    # The order is random, so that each compared part has short and long sequences.
    order = torch.randperm(lengths, generator=torch.Generator().manual_seed(0)).tolist()
    plan = [(4 + order[number % lengths], 1e-4 * (1 + number % rates)) for number in range(2 * lengths)]
    rows: list[dict[str, Any]] = []
    with without_gc():
        for number, (length, rate) in enumerate(plan):
            if number % 20 == 0:
                progress(f"growth: step {number} of {len(plan)}")
            row: dict[str, Any] = {"length": length, "rate": rate, "ours": ours.step(length, rate), "noop": noop.step(length, rate)}
            rows.append(row | {"programs": cache.info().programs})
        fresh_mode = EagerDecompMode(core_aten(), cache=ProgramCache())
        fresh = _Loop(fresh_mode, lengths)
        repeated = [fresh.step(length, rate) for length, rate in (*plan[-window:], *plan[-window:])][window:]
    parts = {
        f"ours / noop mode, first {window} steps": rows[:window],
        f"ours / noop mode, last {window} of the first pass": rows[lengths - window : lengths],
        "ours / noop mode, second pass": rows[lengths:],
        f"ours / noop mode, last {window} steps": rows[-window:],
    }
    figures = [_ratio(name, taken) for name, taken in parts.items()]
    last = sum(row["ours"] for row in rows[-window:])
    figures.append(Figure(f"last {window} steps / the same steps by a mode that has seen no others", last / sum(repeated)))
    for name, at in (("tenth step", 9), ("first pass", lengths - 1), ("second pass", len(rows) - 1)):
        figures.append(Figure(f"programs held after the {name}", rows[min(at, len(rows) - 1)]["programs"]))
    figures.append(Figure(f"programs held, {window} steps alone", fresh_mode.cache.info().programs))
    how = (
        f"A small GPT trains with AdamW on sequences of {lengths} different lengths, with {rates} learning rates. No two steps are "
        "equal. All lengths come twice, in random order. Values are ratios of the total time of the steps of a part."
    )
    return Section("growth", "Growth", how, figures, rows=rows)


def _ratio(name: str, rows: Sequence[dict[str, Any]]) -> Figure:
    return Figure(name, sum(row["ours"] for row in rows) / sum(row["noop"] for row in rows), note=f"{len(rows)} steps")


class _Loop:
    """One training run under one mode."""

    def __init__(self, mode: Any, lengths: int) -> None:
        torch.manual_seed(0)
        self._mode = mode
        self._model: Any = _GPT.make()
        self._model.positions = torch.nn.Embedding(lengths + 4, 32)
        self._optimizer = torch.optim.AdamW(self._model.parameters(), foreach=True)
        self._generator = torch.Generator().manual_seed(0)

    def step(self, length: int, rate: float) -> float:
        """Return the seconds of one step."""
        tokens = torch.randint(VOCABULARY, (1, length), generator=self._generator)
        self._optimizer.param_groups[0]["lr"] = rate

        def run() -> None:
            scores, _ = self._model(tokens[:, :-1])
            F.cross_entropy(scores.flatten(0, 1), tokens[:, 1:].flatten()).backward()  # type: ignore[no-untyped-call]
            self._optimizer.step()
            self._optimizer.zero_grad()

        return time_runs(Contestant(run, self._mode), 1)
