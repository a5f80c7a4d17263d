"""A pool of threads serves requests in inference mode. They share a cache, which one request of each length fills.

python examples/shown/serving.py
"""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import torch
from showing import Checks

import eagerdecomp as ed

# The op set. GELU, layer norm and softmax are not in it, so that they are decomposed.
OPS = ed.core_aten() - ["aten.gelu", "aten.native_layer_norm", "aten._softmax"]
LENGTHS = (3, 5, 8, 13)
THREADS, REQUESTS = 4, 200


def model() -> torch.nn.Module:
    """Return the model, always with the same weights."""
    torch.manual_seed(0)
    layer = torch.nn.TransformerEncoderLayer(16, 2, 32, activation="gelu", batch_first=True)
    return torch.nn.Sequential(
        layer, torch.nn.Upsample(scale_factor=1.5, mode="linear"), torch.nn.LSTM(24, 8, batch_first=True)
    ).eval()


def requests(count: int) -> list[torch.Tensor]:
    """Return inputs of several lengths."""
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(1, LENGTHS[number % len(LENGTHS)], 16, generator=generator) for number in range(count)]


class Service:
    """Serve requests on threads. Each thread enters its own mode, and all modes share one cache."""

    def __init__(self, cache: ed.ProgramCache) -> None:
        self._cache, self._model, self._local = cache, model(), threading.local()
        self.modes: list[ed.EagerDecompMode] = []
        self.pool = ThreadPoolExecutor(THREADS)

    def predict(self, x: torch.Tensor) -> torch.Tensor:
        """Return the model's output, computed by kernels of the set."""
        if not hasattr(self._local, "mode"):
            self._local.mode = ed.EagerDecompMode(OPS, cache=self._cache)
            self.modes.append(self._local.mode)
        with torch.inference_mode(), self._local.mode:
            result: torch.Tensor = self._model(x)[0]
        return result

    def counts(self) -> tuple[int, int]:
        """Return the number of cache hits and of cache misses, in all threads."""
        totals = [mode.stats().total for mode in self.modes]
        return sum(total.hits for total in totals), sum(total.misses for total in totals)


def rate(counts: tuple[int, int]) -> str:
    """Return the text of the cache hit rate."""
    hits, misses = counts
    return f"{100 * hits / max(1, hits + misses):.1f} % of {hits + misses}"


def main() -> int:
    check = Checks()
    service, plain = Service(ed.ProgramCache()), model()
    for x in requests(len(LENGTHS)):
        service.predict(x)
    hits, recorded = service.counts()
    check(f"the first request of each length records programs; hits: {rate((hits, recorded))}", recorded > 0)

    inputs = requests(REQUESTS)
    with torch.inference_mode():
        expected = [plain(x)[0] for x in inputs]
    results = list(service.pool.map(service.predict, inputs))
    service.pool.shutdown()

    same: Any = [torch.allclose(one, other, atol=1e-5) for one, other in zip(results, expected, strict=True)]
    check(f"results of {len(service.modes) - 1} threads that match eager's", sum(same), REQUESTS)
    more_hits, more_recorded = service.counts()
    since = more_hits - hits, more_recorded - recorded
    check(f"calls recorded after that, by any thread; hits: {rate(since)}", since[1], 0)
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
