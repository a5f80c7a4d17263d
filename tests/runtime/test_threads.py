"""Many threads, modes and requests with one cache: values right, counters that add up, races that record at most once each."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest
import torch
from on_core import CORE
from threads import PATIENCE, together

import eagerdecomp as ed

aten = torch.ops.aten

#: Ops that are recorded on this set: their rules are not linked.
OPS = CORE - ["aten.native_layer_norm", "aten.native_group_norm", "aten._softmax", "aten.upsample_bilinear2d.vec"]


def _requests(seed: int, count: int) -> list[tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]]:
    """Make calls of several kinds and sizes."""
    draws = random.Random(seed)
    kinds: list[tuple[Callable[[torch.Tensor], torch.Tensor], int]] = [
        (lambda x: torch.nn.functional.layer_norm(x, x.shape[-1:]), 2),
        (lambda x: torch.linalg.matrix_exp(x @ x.mT / 8), 2),
        (lambda x: torch.nn.functional.interpolate(x[None, None], scale_factor=2, mode="bilinear"), 2),
        (lambda x: torch.softmax(x, -1).cumsum(0), 2),
        (lambda x: torch.fft.rfft(x).abs(), 2),
    ]
    made = []
    for _ in range(count):
        run, dims = draws.choice(kinds)
        sizes = [draws.choice((2, 3, 4)) for _ in range(dims)]
        made.append((run, torch.randn(sizes, generator=torch.Generator().manual_seed(draws.randrange(1000)))))
    return made


@pytest.mark.full
@pytest.mark.parametrize("per_thread", ["one mode", "a mode a request"])
def test_results_of_many_threads_equal_eager_and_counts_add_up(per_thread: str) -> None:
    cache, modes, lock = ed.ProgramCache(), [], threading.Lock()
    alone = ed.EagerDecompMode(OPS, cache=ed.ProgramCache())
    work = []
    for number in range(6):
        given = _requests(number, 25)
        wanted = [run(x) for run, x in given]
        with alone:
            for run, x in given:
                run(x)

        def serve(given: object = given, wanted: list[torch.Tensor] = wanted) -> None:
            mode = ed.EagerDecompMode(OPS, cache=cache)
            mine = [mode]
            for (run, x), want in zip(given, wanted, strict=True):  # type: ignore[call-overload]
                if per_thread != "one mode":
                    mine.append(ed.EagerDecompMode(OPS, cache=cache))
                with torch.no_grad(), mine[-1]:
                    got = run(x)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
            with lock:
                modes.extend(mine)

        work.append(serve)
    together(*work)
    total, before = [mode.stats().total for mode in modes], alone.stats().total
    assert sum(one.calls for one in total) == before.calls
    assert sum(one.decomposed for one in total) == before.decomposed
    recorded = sum(one.hits + one.misses + one.bypassed for one in total)
    assert recorded == before.hits + before.misses + before.bypassed
    # Concurrent threads may each record the call, but it is stored once.
    assert 0 < cache.info().programs <= sum(one.misses for one in total) <= 6 * before.misses


@pytest.mark.full
def test_a_random_call_waits_while_another_thread_uses_its_generators_state() -> None:
    mine = torch.Generator().manual_seed(3)
    want = torch.empty(4).uniform_(generator=torch.Generator().manual_seed(3))
    torch.manual_seed(5)
    want_there = torch.rand(4)
    drawn: list[torch.Tensor] = []

    def draw() -> None:
        with ed.EagerDecompMode(backend):
            drawn.append(torch.rand(4))

    other = threading.Thread(target=draw, daemon=True)

    def kernel(*args: object, **kwargs: object) -> torch.Tensor:
        if threading.current_thread() is not other:
            other.start()
            other.join(0.3)  # it would end if it did not wait
        return aten.rand.default(*args, **kwargs)

    backend = ed.Backend("slow", CORE, {"aten.rand.default": kernel})
    torch.manual_seed(5)
    with ed.EagerDecompMode(backend, host_random="decomposed"):
        got = torch.empty(4).uniform_(generator=mine)
    other.join(PATIENCE)
    assert torch.equal(got, want)
    assert torch.equal(drawn[0], want_there)


@pytest.mark.full
def test_concurrent_first_calls_store_one_program() -> None:
    for number in range(10):
        cache, x = ed.ProgramCache(), torch.rand(2 + number, 3)
        modes: list[ed.EagerDecompMode] = []
        got: list[torch.Tensor] = []

        def call(cache: ed.ProgramCache = cache, x: torch.Tensor = x, modes: list[ed.EagerDecompMode] = modes) -> None:
            mode = ed.EagerDecompMode(OPS, cache=cache)
            modes.append(mode)
            with mode:
                got.append(torch.linalg.matrix_exp(x.mT @ x))  # noqa: B023 - called at once

        alone = ed.EagerDecompMode(OPS, cache=ed.ProgramCache())
        with alone:
            want = torch.linalg.matrix_exp(x.mT @ x)
        together(*[call] * 5)
        for one in got:
            torch.testing.assert_close(one, want)
        assert len(got) == 5
        misses = sum(mode.stats().total.misses for mode in modes)
        once = alone.stats().total
        assert once.misses <= misses <= 5 * once.misses
        assert cache.info().programs == once.misses


@pytest.mark.full
def test_values_are_right_while_the_cache_is_cleared() -> None:
    cache, stop = ed.ProgramCache(limit_per_op=3), threading.Event()
    given = _requests(7, 60)
    wanted = [run(x) for run, x in given]

    def serve() -> None:
        try:
            mode = ed.EagerDecompMode(OPS, cache=cache)
            for (run, x), want in zip(given, wanted, strict=True):
                with mode:
                    got = run(x)
                torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
        finally:
            stop.set()

    def disturb() -> None:
        while not stop.wait(0.002):
            cache.clear()

    together(serve, serve, disturb)
