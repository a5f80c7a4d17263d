"""Measure a training loop whose sequence lengths and learning rates keep changing."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.nn import functional as F

from benchmarks.figures import Figure, Section, Settings
from benchmarks.nets import NETS, VOCABULARY
from benchmarks.rivals import Noop
from benchmarks.timing import Contestant, block, quiet_collector
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.ops.opset import core_aten
from eagerdecomp.runtime.cache import ProgramCache

__all__ = ["measure"]

_GPT = next(net for net in NETS if net.name == "GPT with a cache")
_WINDOW = 50


def measure(settings: Settings, progress: Callable[[str], None]) -> Section:
    """Train under the mode and a no-op mode, in alternating steps, over all lengths twice; then the last steps under a new mode."""
    lengths, rates, window = (8, 3, 4) if settings.quick else (500, 100, _WINDOW)
    cache = ProgramCache()
    mode = EagerDecompMode(core_aten(), cache=cache)
    ours, noop = _Loop(mode, lengths), _Loop(Noop(), lengths)
    # In random order, so that all compared parts have short and long sequences.
    order = torch.randperm(lengths, generator=torch.Generator().manual_seed(0)).tolist()
    plan = [(4 + order[number % lengths], 1e-4 * (1 + number % rates)) for number in range(2 * lengths)]
    rows: list[dict[str, Any]] = []
    with quiet_collector():
        for number, (length, rate) in enumerate(plan):
            if number % 20 == 0:
                progress(f"growth: step {number} of {len(plan)}")
            row: dict[str, Any] = {"length": length, "rate": rate, "ours": ours.step(length, rate), "noop": noop.step(length, rate)}
            rows.append(row | {"programs": cache.info().programs})
        steady = EagerDecompMode(core_aten(), cache=ProgramCache())
        alone = _Loop(steady, lengths)
        single = [alone.step(length, rate) for length, rate in (*plan[-window:], *plan[-window:])][window:]
    parts = {
        f"ours / noop mode, first {window} steps": rows[:window],
        f"ours / noop mode, last {window} of the first pass": rows[lengths - window : lengths],
        "ours / noop mode, second pass": rows[lengths:],
        f"ours / noop mode, last {window} steps": rows[-window:],
    }
    figures = [_ratio(name, taken) for name, taken in parts.items()]
    last = sum(row["ours"] for row in rows[-window:])
    figures.append(Figure(f"last {window} steps / the same steps by a mode that has seen no others", last / sum(single)))
    for name, at in (("tenth step", 9), ("first pass", lengths - 1), ("second pass", len(rows) - 1)):
        figures.append(Figure(f"programs held after the {name}", rows[min(at, len(rows) - 1)]["programs"]))
    figures.append(Figure(f"programs held, {window} steps alone", steady.cache.info().programs))
    how = (
        f"A small GPT trained with AdamW on sequences of {lengths} different lengths, the learning rate one of {rates}, no step "
        "like another; the lengths come twice, in an order of chance. Sums of step times within each part."
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
        self._model.places = torch.nn.Embedding(lengths + 4, 32)
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

        return block(Contestant(run, self._mode), 1)
