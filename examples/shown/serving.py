"""A service: a pool of threads serves requests in inference mode from one cache, warmed by a request of each length.

python examples/shown/serving.py
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from showing import Shown

import eagerdecomp as ed

# What this backend has kernels for: it takes GELU, layer norm and softmax apart.
OPS = ed.core_aten() - ["aten.gelu", "aten.native_layer_norm", "aten._softmax"]
LENGTHS = (3, 5, 8, 13)
THREADS, REQUESTS = 4, 200


def model() -> torch.nn.Module:
    """The model that is served, with the same weights in every process."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    return torch.nn.Sequential(
        layer, torch.nn.Upsample(scale_factor=1.5, mode="linear"), torch.nn.LSTM(24, 8, batch_first=True)
    ).eval()


def requests(count: int) -> list[torch.Tensor]:
    """Inputs of several lengths."""
    draws = torch.Generator().manual_seed(1)
    return [torch.randn(1, LENGTHS[number % len(LENGTHS)], 16, generator=draws) for number in range(count)]


class Service:
    """Serves requests on threads, each of which enters a mode of its own, with one cache for all."""

    def __init__(self, cache: ed.ProgramCache) -> None:
        self._cache, self._served, self._local = cache, model(), threading.local()
        self.modes: list[ed.EagerDecompMode] = []
        self.pool = ThreadPoolExecutor(THREADS)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """Return the model's output, by kernels of the set."""
        if not hasattr(self._local, "mode"):
            self._local.mode = ed.EagerDecompMode(OPS, cache=self._cache)
            self.modes.append(self._local.mode)
        with torch.inference_mode(), self._local.mode:
            found: torch.Tensor = self._served(x)[0]
        return found

    def counts(self) -> tuple[int, int]:
        """Calls that ran a program, and calls that were recorded, in all threads."""
        totals = [mode.stats().total for mode in self.modes]
        return sum(total.hits for total in totals), sum(total.misses for total in totals)


def rate(counts: tuple[int, int]) -> str:
    """Which part of the calls ran a program that was there."""
    hits, misses = counts
    return f"{100 * hits / max(1, hits + misses):.1f} % of {hits + misses}"


def main() -> int:
    show = Shown()
    service, plain = Service(ed.ProgramCache()), model()
    for x in requests(len(LENGTHS)):
        service.predict(x)
    hits, recorded = service.counts()
    show(f"the first request of each length records programs; hits: {rate((hits, recorded))}", recorded > 0)

    given = requests(REQUESTS)
    with torch.inference_mode():
        wanted = [plain(x)[0] for x in given]
    results = list(service.pool.map(service.predict, given))
    service.pool.shutdown()

    same: Any = [torch.allclose(one, other, atol=1e-5) for one, other in zip(results, wanted, strict=True)]
    show(f"results of {len(service.modes) - 1} threads that match eager's", sum(same), REQUESTS)
    more_hits, more_recorded = service.counts()
    since = more_hits - hits, more_recorded - recorded
    show(f"calls recorded after that, by any thread; hits: {rate(since)}", since[1], 0)
    return int(show.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
