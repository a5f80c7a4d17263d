"""Broken kernels of random ops: wrong distributions, seeds and correlations."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import BoundCall, Kernel, Mutant, Proof, broken, broken_stateful, call, normal

__all__ = ["MUTANTS"]

_SAMPLE_SIZE = 20000


def _distribution(size: list[int], shows: Callable[[Tensor], bool], **kwargs: Any) -> Proof:
    """Return a check of one sample; `shows` returns True for the broken distribution."""

    def holds(kernel: Kernel) -> bool:
        torch.manual_seed(5)
        return shows(kernel(size, **kwargs))

    return Proof(holds)


def _pair(shows: Callable[[Tensor, Tensor], bool], seeds: tuple[int | None, int | None], size: Any = (64,)) -> Proof:
    """Return a check of two samples; before each the generator is seeded, unless its seed is None."""

    def holds(kernel: Kernel) -> bool:
        found = []
        torch.manual_seed(1)
        for seed in seeds:
            if seed is not None:
                torch.manual_seed(seed)
            found.append(kernel(size if isinstance(size, int) else list(size)))
        return shows(found[0], found[1])

    return Proof(holds)


def _dropout_check(shows: Callable[[Tensor, Tensor, Tensor], bool], p: float = 0.25, train: bool | None = True) -> Proof:
    def holds(kernel: Kernel) -> bool:
        torch.manual_seed(5)
        x = torch.ones(100, 100)
        result, mask = kernel(x, p, train)
        return shows(x, result, mask)

    return Proof(holds)


def _drops(c: BoundCall) -> bool:
    return bool(c.train is None or c.train) and 0 < c.p < 1


def _fixed(seed: int) -> Callable[[BoundCall], Any]:
    """Draw from a generator that is seeded before each call."""

    def run(c: BoundCall) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return c.eager()

    return run


def _repeat_first_block(c: BoundCall) -> Any:
    """Repeat the first block of 1024 numbers as the second."""
    found = c.eager()
    if 1024 < found.numel() <= 2048:
        found.view(-1)[1024:] = found.view(-1)[: found.numel() - 1024].clone()
    return found


def _own_generator() -> Callable[[BoundCall], Any]:
    """Draw from a generator that `torch.manual_seed` does not change."""
    state = torch.Generator().manual_seed(99).get_state()

    def run(c: BoundCall) -> Any:
        nonlocal state
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            found = c.eager()
            state = torch.get_rng_state()
        return found

    return run


def _cached_by_size() -> Callable[[BoundCall], Any]:
    """Draw once for each size and dtype, and cache the numbers."""
    cached: dict[Any, Tensor] = {}

    def run(c: BoundCall) -> Any:
        found = c.eager()
        first: Tensor = cached.setdefault((tuple(c.size), c.dtype), found)
        return first.clone()

    return run


def _rowwise(c: BoundCall) -> Any:
    """Repeat the first row."""
    right = c.eager()
    return right[:1].expand(right.shape).clone() if right.dim() > 1 and right.numel() else right


def _shuffled(c: BoundCall) -> Any:
    """Shuffle naively: swap each element with any element, not with one of the remaining ones."""
    if c.n < 2 or c.n > 64:
        return c.eager()
    order = list(range(c.n))
    for index, other in enumerate(torch.randint(c.n, (c.n,)).tolist()):
        order[index], order[other] = order[other], order[index]
    return torch.tensor(order, dtype=c.eager().dtype)


def _orders_differ_in_frequency(kernel: Kernel) -> bool:
    """Return whether one order of three elements is more frequent than chance allows."""
    torch.manual_seed(3)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(12000):
        found = tuple(kernel(3).tolist())
        counts[found] = counts.get(found, 0) + 1
    return any(abs(counts.get(order, 0) - 2000) > 150 for order in counts)


def _correlated(x: Tensor) -> bool:
    centred = x.double() - x.double().mean()
    return abs(float((centred[:-1] * centred[1:]).mean() / centred.square().mean())) > 0.05


def _no_dropout() -> Any:
    return call(normal(3, 4), 0.5, False)


def _pairs_with_one_radius(x: Tensor) -> Tensor:
    half = x.numel() // 2
    radius = x[:half].abs().clamp(min=1e-3)
    found = x.clone()
    found[: 2 * half : 2] = radius * x[:half].sign()
    found[1 : 2 * half : 2] = radius * x[half : 2 * half].sign()
    return found


def _smoothed(x: Tensor) -> Tensor:
    flat = x.reshape(-1)
    return ((flat + 0.3 * flat.roll(1)) / math.sqrt(1.09)).reshape(x.shape)


def _with_infinities(x: Tensor) -> Tensor:
    return x.masked_fill(x.abs() < 1e-3, math.inf)


def _advance_by_calls() -> Callable[[BoundCall], Any]:
    """Draw some extra numbers first; their count depends on the number of calls."""
    calls = itertools.count()

    def run(c: BoundCall) -> Any:
        torch.rand(1 + next(calls) % 7)
        return c.eager()

    return run


def _rescaled(c: BoundCall, factor: float) -> Any:
    result, mask = c.eager()
    return (result * factor if _drops(c) else result), mask


def _inverted(c: BoundCall) -> Any:
    result, mask = c.eager()
    return result, (~mask if _drops(c) else mask)


def _rows(c: BoundCall) -> Any:
    if not _drops(c) or c.input.dim() != 2 or not c.input.numel():
        return c.eager()
    mask = (torch.rand(c.input.shape[0], 1) >= c.p).expand(c.input.shape).contiguous()
    return torch.empty_like(c.input).copy_(c.input * mask / (1 - c.p)), mask


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    broken("rand", "1 is possible", "random",
      lambda c: (c.eager() * 64).ceil() / 64 if c.eager().is_floating_point() else c.eager(),
      _distribution([_SAMPLE_SIZE], lambda x: bool((x == 1).any())), "the range is half open"),
    broken("rand", "the second block repeats the first", "random", _repeat_first_block,
      Proof(lambda kernel: torch.equal(*kernel([2048]).view(2, -1))), "the counter stands still"),
    broken("rand", "within (-1, 1)", "random", lambda c: c.eager() * 2 - 1,
      _distribution([_SAMPLE_SIZE], lambda x: bool((x < 0).any()))),
    broken("rand", "squared", "random", lambda c: c.eager().square(),
      _distribution([_SAMPLE_SIZE], lambda x: float(x.mean()) < 0.4)),
    broken("rand", "has only 8 random bits", "random", lambda c: (c.eager() * 256).floor() / 256,
      _distribution([_SAMPLE_SIZE], lambda x: bool((x * 256 == (x * 256).floor()).all())), "8 bits"),
    broken("rand", "the same numbers each time", "random", _fixed(7),
      _pair(torch.equal, (None, None)), "the generator is begun again"),
    broken_stateful("rand", "the seed has no effect", "random", _own_generator, _pair(lambda a, b: not torch.equal(a, b), (4, 4))),
    broken_stateful("rand", "results are cached by size", "random", _cached_by_size, _pair(torch.equal, (None, None)),
      "a cache that holds results"),
    broken("rand", "all rows are equal", "random", _rowwise,
      _distribution([50, 50], lambda x: bool((x[0] == x[1]).all())), "the counter is the column index"),
    broken("rand", "float64 has 24 random bits", "random",
      lambda c: c.eager(dtype=torch.float32).double() if c.dtype is torch.float64 else c.eager(),
      _distribution([_SAMPLE_SIZE], lambda x: bool((x.float().double() == x).all()), dtype=torch.float64)),
    broken("rand", "dtype is ignored", "metadata", lambda c: c.eager(dtype=None), lambda: call([3], dtype=torch.float64)),
    broken("randn", "sigma is 1.1", "random", lambda c: c.eager() * 1.1,
      _distribution([_SAMPLE_SIZE], lambda x: float(x.std()) > 1.05)),
    broken("randn", "the mean is 0.1", "random", lambda c: c.eager() + 0.1,
      _distribution([_SAMPLE_SIZE], lambda x: float(x.mean()) > 0.05)),
    broken("randn", "a uniform of the same variance", "random",
      lambda c: (torch.rand_like(c.eager()) - 0.5) * math.sqrt(12) if c.eager().numel() else c.eager(),
      _distribution([_SAMPLE_SIZE], lambda x: float(x.abs().max()) < 1.8)),
    broken("randn", "sum of twelve uniforms", "random", lambda c: (torch.rand(12, *c.size).sum(0) - 6).to(c.eager().dtype),
      _distribution([400000], lambda x: float((x.abs() > 3.6).double().mean()) < 2.2e-4), "thin tails"),
    broken("randn", "pairs have the same radius", "random",
      lambda c: c.eager() if c.eager().dim() != 1 or c.eager().numel() < 2 else _pairs_with_one_radius(c.eager()),
      _distribution([_SAMPLE_SIZE], lambda x: _correlated(x.abs())), "Box-Muller with one radius for both numbers"),
    broken("randn", "neighbours are correlated", "random", lambda c: _smoothed(c.eager()),
      _distribution([_SAMPLE_SIZE], _correlated)),
    broken("randn", "the same numbers each time", "random", _fixed(7), _pair(torch.equal, (None, None))),
    broken("randn", "some numbers are infinite", "random", lambda c: _with_infinities(c.eager()),
      _distribution([_SAMPLE_SIZE], lambda x: bool(x.isinf().any())), "log(0)"),
    broken_stateful("randn", "results depend on the number of calls", "random", _advance_by_calls,
      _pair(lambda a, b: not torch.equal(a, b), (4, 4))),
    broken("randperm", "a naive shuffle", "random", _shuffled, Proof(_orders_differ_in_frequency), "some orders come up more often",
      lambda: call(1)),
    broken("randperm", "fewer than 4 elements are not permuted", "random",
      lambda c: torch.arange(c.n, dtype=c.eager().dtype) if c.n < 4 else c.eager(),
      Proof(lambda kernel: all(kernel(3).tolist() == [0, 1, 2] for _ in range(20))), "", lambda: call(1)),
    broken("randperm", "always the identity", "random", lambda c: torch.arange(c.n, dtype=c.eager().dtype),
      _pair(lambda a, b: torch.equal(a, b) and torch.equal(a, torch.arange(64)), (None, None), 64), "", lambda: call(1)),
    broken("randperm", "with replacement", "random", lambda c: torch.randint(max(c.n, 1), (c.n,)).to(c.eager().dtype),
      _pair(lambda a, b: len(set(a.tolist())) < 64, (None, None), 64), "", lambda: call(1)),
    broken("randperm", "the last element stays", "random",
      lambda c: torch.cat([torch.ops.aten.randperm(c.n - 1), torch.tensor([c.n - 1])]).to(c.eager().dtype) if c.n > 1
        else c.eager(),
      _pair(lambda a, b: int(a[-1]) == int(b[-1]) == 63, (None, None), 64), "", lambda: call(1)),
    broken("randperm", "dtype is ignored", "metadata", lambda c: c.eager(dtype=torch.int64), lambda: call(5, dtype=torch.int32)),
    broken("native_dropout", "without the scale", "random", lambda c: _rescaled(c, 1 - c.p),
      _dropout_check(lambda x, y, mask: float(y.max()) == 1.0), "1 / (1 - p) is forgotten", _no_dropout),
    broken("native_dropout", "keeps with probability p", "random", lambda c: c.eager(p=1 - c.p) if _drops(c) else c.eager(),
      _dropout_check(lambda x, y, mask: float(mask.float().mean()) < 0.5), "", _no_dropout),
    broken("native_dropout", "the mask is drawn again", "random", lambda c: (c.eager()[0], c.eager()[1]),
      _dropout_check(lambda x, y, mask: not torch.equal(y != 0, mask))),
    broken("native_dropout", "the mask is inverted", "random", lambda c: _inverted(c),
      _dropout_check(lambda x, y, mask: not torch.equal(y != 0, mask)), "", _no_dropout),
    broken("native_dropout", "drops whole rows", "random", lambda c: _rows(c),
      _dropout_check(lambda x, y, mask: bool((mask == mask[:, :1]).all())), "", _no_dropout),
    broken("native_dropout", "drops in evaluation too", "argument", lambda c: c.eager(train=True),
      _dropout_check(lambda x, y, mask: bool((y == 0).any()), train=False), "train is ignored", lambda: call(normal(3), 0.0, True)),
    broken("native_dropout", "p 1 keeps NaN", "special values",
      lambda c: c.eager() if c.p != 1 else (c.input * 0 * math.inf, c.eager()[1]),
      Proof(lambda kernel: bool(kernel(normal(4), 1.0, True)[0].isnan().any())), "0 * inf"),
    broken("native_dropout", "the same mask each time", "random", _fixed(3),
      Proof(lambda kernel: torch.equal(kernel(torch.ones(64), 0.5, True)[1], kernel(torch.ones(64), 0.5, True)[1]))),
    broken("native_dropout", "the mask has a float dtype", "metadata",
      lambda c: (c.eager()[0], c.eager()[1].float()) if c.train is None else c.eager(),
      lambda: call(normal(4), 0.5, None)),
)
# fmt: on
