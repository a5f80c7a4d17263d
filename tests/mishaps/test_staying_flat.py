"""Repeated calls do not use more memory, and the work is linear in the length of a program."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from opaque import OPAQUE, opaque_rule
from torch._subclasses.fake_tensor import FakeTensorMode

import eagerdecomp as ed
from conformance.python_calls import python_calls

pytestmark = pytest.mark.full

X = torch.arange(6.0).view(2, 3)


def step() -> None:
    leaf = X.clone().requires_grad_()
    (F.mish(leaf).sum() + F.gelu(OPAQUE(leaf.detach())).sum()).backward()


def grown(run: Callable[[], Any], times: int) -> tuple[int, int]:
    """Return the growth of Python's memory, in objects and blocks, over so many runs after as many to warm up.

    Measured twice, the smaller counts: what leaks grows each time, and what earlier tests left may be freed or filled once.
    """

    def now() -> tuple[int, int]:
        gc.collect()
        return len(gc.get_objects()), sys.getallocatedblocks()

    seen = []
    for _ in range(3):
        for _ in range(times):
            run()
        seen.append(now())
    (objects, blocks), *_ = sorted((after[0] - before[0], after[1] - before[1]) for before, after in itertools.pairwise(seen))
    return objects, blocks


@ed.register_decomposition("aten.mish.default")
def wrong(x: torch.Tensor) -> torch.Tensor:
    return x.sum()


@ed.register_decomposition("aten.mish.default")
def raising(x: torch.Tensor) -> torch.Tensor:
    raise ValueError(f"mine, of {len(x * 2)}")


def entered(**options: Any) -> Callable[[], None]:
    mode = ed.EagerDecompMode(CORE, **{"rules": [opaque_rule], "cache": ed.ProgramCache(), **options})

    def run() -> None:
        with mode, suppress(ed.EagerDecompError, ValueError):
            step()

    return run


def installed() -> None:
    with ed.install(CORE, "cpu", rules=[opaque_rule], cache=ed.ProgramCache()):
        step()


def many_shapes() -> Callable[[], None]:
    mode = ed.EagerDecompMode(CORE, rules=[opaque_rule], cache=ed.ProgramCache(limit_per_op=8))
    sizes = iter(range(1, 10**6))

    def run() -> None:
        with mode:
            for _ in range(4):
                OPAQUE(torch.ones(next(sizes)))

    return run


RUNS: dict[str, Callable[[], Callable[[], None]]] = {
    "one mode": entered,
    "composites that are kept": lambda: entered(keep={"aten.linear"}),
    "a wrong rule": lambda: entered(rules=[opaque_rule, wrong]),
    "a rule that raises": lambda: entered(rules=[opaque_rule, raising]),
    "installed again": lambda: installed,
    "other shapes": many_shapes,
}


@pytest.mark.parametrize("name", RUNS)
def test_memory_does_not_grow_over_repeats(name: str) -> None:
    times = 4 if name == "installed again" else 12
    objects, blocks = grown(RUNS[name](), times)
    assert objects < times, f"{objects} more objects"
    assert blocks < 40 * times, f"{blocks} more blocks"


@pytest.mark.parametrize("hook", [None, lambda graph, inputs: graph])
def test_the_work_to_record_and_compile_a_program_is_linear(hook: Any) -> None:
    def work(kernels: int) -> list[int]:
        @ed.register_decomposition(OPAQUE)
        def long(x: torch.Tensor) -> torch.Tensor:
            for _ in range(kernels // 2):
                x = torch.sin(x) + 1
            return x

        with ed.EagerDecompMode(ed.Backend("long", CORE, compile=hook), rules=[long], cache=ed.ProgramCache()):
            return [python_calls(lambda: OPAQUE(X)) for _ in range(20 if hook else 4)]

    work(10)
    small, middle, large = work(40), work(80), work(160)
    for one, two, four in zip(small, middle, large, strict=True):
        # Twice the program is at most twice the work, whatever each call costs besides.
        assert four - two <= 2.2 * (two - one) + 60, (one, two, four)


def test_the_work_of_a_call_is_linear_in_the_number_of_its_tensors() -> None:
    def work(count: int) -> list[int]:
        numbers = [torch.tensor(float(one)) for one in range(count)]
        with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            return [python_calls(lambda: torch.stack(numbers)) for _ in range(4)]

    work(10)
    for one, two, four in zip(work(40), work(80), work(160), strict=True):
        assert four - two <= 2.2 * (two - one) + 60, (one, two, four)


def test_a_stack_of_numbers_makes_no_program() -> None:
    """A program of a kernel call for each of them takes 20 times as long to record and compile as the rule takes to run."""
    with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()) as mode:
        stacked = torch.stack([X.sum()] * 300)
    assert torch.equal(stacked, X.sum().expand(300))
    counts = mode.stats()[torch.ops.aten.stack.default]
    assert (counts.misses, counts.bypassed) == (0, 0)


LONGER: dict[str, Callable[[int], Any]] = {
    "adaptive_max_pool1d": lambda n: F.adaptive_max_pool1d(torch.ones(1, 2, 64), n + 3),
    "adaptive_avg_pool1d": lambda n: F.adaptive_avg_pool1d(torch.ones(1, 2, 64), n + 3),
    "avg_pool1d": lambda n: torch.func.grad(lambda x: F.avg_pool1d(x, 5, 3, 2).sum())(torch.ones(1, 2, n)),
    "max_pool1d": lambda n: F.max_pool1d(torch.ones(1, 2, n), 5, 3),
    "antialias": lambda n: F.interpolate(torch.ones(1, 2, 64, 3), (n + 3, 2), mode="bilinear", antialias=True),
    "interpolate": lambda n: F.interpolate(torch.ones(1, 2, 64), n + 3, mode="linear"),
    "linspace": lambda n: torch.linspace(0, 1, n),
    "tril_indices": lambda n: torch.tril_indices(n, 3),
    "unfold": lambda n: torch.ones(n).unfold(0, 5, 3) + 1,
    "cumsum": lambda n: torch.ones(n).cumsum(0),
    "kron": lambda n: torch.kron(torch.ones(n), torch.ones(3)),
}


@pytest.mark.parametrize("name", LONGER)
def test_the_work_of_a_call_does_not_grow_with_its_sizes(name: str) -> None:
    def work(size: int) -> int:
        with ed.EagerDecompMode(CORE, cache=ed.ProgramCache()):
            return sum(python_calls(lambda: LONGER[name](size)) for _ in range(3))

    work(100)
    few, many = work(200), work(20_000)
    assert many <= 1.3 * few + 200, (few, many)


def test_the_work_of_a_call_does_not_depend_on_earlier_shapes() -> None:
    FakeTensorMode.cache_clear()  # torch caches the results per process, so shapes of earlier tests would cost less
    cache = ed.ProgramCache(limit_per_op=10_000)
    with ed.EagerDecompMode(CORE, rules=[opaque_rule], cache=cache):
        work = [python_calls(lambda size=size: OPAQUE(torch.ones(size))) for size in range(1, 300)]  # type: ignore[misc]
        warm = [python_calls(lambda size=size: OPAQUE(torch.ones(size))) for size in (2, 150, 299)]  # type: ignore[misc]
    assert max(work[200:]) <= 1.2 * max(work[10:110]), (max(work[200:]), max(work[10:110]))
    assert max(warm) <= min(warm) + 40
