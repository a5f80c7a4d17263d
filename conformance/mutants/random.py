"""Broken kernels of random ops: the distribution, the seed, what one number has to do with the next."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Kernel, Mutant, Proof, given, m, n, s

__all__ = ["MUTANTS"]

_MANY = 20000


def _distribution(size: list[int], shows: Callable[[Tensor], bool], **kwargs: Any) -> Proof:
    """Check a sample: true for the broken distribution and not for the right one."""

    def holds(kernel: Kernel) -> bool:
        torch.manual_seed(5)
        return shows(kernel(size, **kwargs))

    return Proof(holds)


def _pair(shows: Callable[[Tensor, Tensor], bool], seeds: tuple[int | None, int | None], size: Any = (64,)) -> Proof:
    """Check two samples, drawn with the generator seeded before each, or not."""

    def holds(kernel: Kernel) -> bool:
        found = []
        torch.manual_seed(1)
        for seed in seeds:
            if seed is not None:
                torch.manual_seed(seed)
            found.append(kernel(size if isinstance(size, int) else list(size)))
        return shows(found[0], found[1])

    return Proof(holds)


def _dropped(shows: Callable[[Tensor, Tensor, Tensor], bool], p: float = 0.25, train: bool | None = True) -> Proof:
    def holds(kernel: Kernel) -> bool:
        torch.manual_seed(5)
        x = torch.ones(100, 100)
        result, mask = kernel(x, p, train)
        return shows(x, result, mask)

    return Proof(holds)


def _drop(c: Bound) -> bool:
    return bool(c.train is None or c.train) and 0 < c.p < 1


def _fixed(seed: int) -> Callable[[Bound], Any]:
    """Numbers from a generator of its own, begun again each time."""

    def run(c: Bound) -> Any:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            return c.but()

    return run


def _twice(c: Bound) -> Any:
    """Repeat the first block of 1,024 numbers in the second."""
    found = c.but()
    if 1024 < found.numel() <= 2048:
        found.view(-1)[1024:] = found.view(-1)[: found.numel() - 1024].clone()
    return found


def _own() -> Callable[[Bound], Any]:
    """Numbers from a generator of its own, which torch's seed does not reach."""
    state = torch.Generator().manual_seed(99).get_state()

    def run(c: Bound) -> Any:
        nonlocal state
        with torch.random.fork_rng(devices=[]):
            torch.set_rng_state(state)
            found = c.but()
            state = torch.get_rng_state()
        return found

    return run


def _once() -> Callable[[Bound], Any]:
    """Numbers are drawn once for a size, then kept."""
    kept: dict[Any, Tensor] = {}

    def run(c: Bound) -> Any:
        found = c.but()
        first: Tensor = kept.setdefault((tuple(c.size), c.dtype), found)
        return first.clone()

    return run


def _rowwise(c: Bound) -> Any:
    """All rows alike."""
    right = c.but()
    return right[:1].expand(right.shape).clone() if right.dim() > 1 and right.numel() else right


def _shuffled(c: Bound) -> Any:
    """A naive shuffle of long permutations: each place is swapped with any, not with one that is left."""
    if c.n < 2 or c.n > 64:
        return c.but()
    places = list(range(c.n))
    for place, other in enumerate(torch.randint(c.n, (c.n,)).tolist()):
        places[place], places[other] = places[other], places[place]
    return torch.tensor(places, dtype=c.but().dtype)


def _order(kernel: Kernel) -> bool:
    """Whether of three elements one order comes up more often than chance allows."""
    torch.manual_seed(3)
    counts: dict[tuple[int, ...], int] = {}
    for _ in range(12000):
        found = tuple(kernel(3).tolist())
        counts[found] = counts.get(found, 0) + 1
    return any(abs(counts.get(order, 0) - 2000) > 150 for order in counts)


def _correlated(x: Tensor) -> bool:
    centred = x.double() - x.double().mean()
    return abs(float((centred[:-1] * centred[1:]).mean() / centred.square().mean())) > 0.05


def _plain_drop() -> Any:
    return given(n(3, 4), 0.5, False)


def _paired(x: Tensor) -> Tensor:
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


def _by_clock() -> Callable[[Bound], Any]:
    """Draws some numbers first, more with every call."""
    calls = itertools.count()

    def run(c: Bound) -> Any:
        torch.rand(1 + next(calls) % 7)
        return c.but()

    return run


def _rescaled(c: Bound, factor: float) -> Any:
    result, mask = c.but()
    return (result * factor if _drop(c) else result), mask


def _inverted(c: Bound) -> Any:
    result, mask = c.but()
    return result, (~mask if _drop(c) else mask)


def _rows(c: Bound) -> Any:
    if not _drop(c) or c.input.dim() != 2 or not c.input.numel():
        return c.but()
    mask = (torch.rand(c.input.shape[0], 1) >= c.p).expand(c.input.shape).contiguous()
    return torch.empty_like(c.input).copy_(c.input * mask / (1 - c.p)), mask


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    m("rand", "1 is among them", "random", lambda c: (c.but() * 64).ceil() / 64 if c.but().is_floating_point() else c.but(),
      _distribution([_MANY], lambda x: bool((x == 1).any())), "the range is half open"),
    m("rand", "a second block like the first", "random", _twice,
      Proof(lambda kernel: torch.equal(*kernel([2048]).view(2, -1))), "the counter stands still"),
    m("rand", "within (-1, 1)", "random", lambda c: c.but() * 2 - 1, _distribution([_MANY], lambda x: bool((x < 0).any()))),
    m("rand", "squared", "random", lambda c: c.but().square(), _distribution([_MANY], lambda x: float(x.mean()) < 0.4)),
    m("rand", "16 bits of it", "random", lambda c: (c.but() * 256).floor() / 256,
      _distribution([_MANY], lambda x: bool((x * 256 == (x * 256).floor()).all())), "coarse"),
    m("rand", "the same numbers each time", "random", _fixed(7),
      _pair(torch.equal, (None, None)), "the generator is begun again"),
    s("rand", "seeds do not reach it", "random", _own, _pair(lambda a, b: not torch.equal(a, b), (4, 4))),
    s("rand", "kept by size", "random", _once, _pair(torch.equal, (None, None)), "a cache that holds results"),
    m("rand", "rows are alike", "random", _rowwise,
      _distribution([50, 50], lambda x: bool((x[0] == x[1]).all())), "the counter is the column"),
    m("rand", "float64 has 24 bits", "random",
      lambda c: c.but(dtype=torch.float32).double() if c.dtype is torch.float64 else c.but(),
      _distribution([_MANY], lambda x: bool((x.float().double() == x).all()), dtype=torch.float64)),
    m("rand", "dtype is ignored", "metadata", lambda c: c.but(dtype=None), lambda: given([3], dtype=torch.float64)),
    m("randn", "sigma is 1.1", "random", lambda c: c.but() * 1.1, _distribution([_MANY], lambda x: float(x.std()) > 1.05)),
    m("randn", "its mean is 0.1", "random", lambda c: c.but() + 0.1, _distribution([_MANY], lambda x: float(x.mean()) > 0.05)),
    m("randn", "a uniform of the same variance", "random",
      lambda c: (torch.rand_like(c.but()) - 0.5) * math.sqrt(12) if c.but().numel() else c.but(),
      _distribution([_MANY], lambda x: float(x.abs().max()) < 1.8)),
    m("randn", "twelve uniforms added", "random", lambda c: (torch.rand(12, *c.size).sum(0) - 6).to(c.but().dtype),
      _distribution([400000], lambda x: float((x.abs() > 3.6).double().mean()) < 2.2e-4), "thin tails"),
    m("randn", "pairs have one radius", "random",
      lambda c: c.but() if c.but().dim() != 1 or c.but().numel() < 2 else _paired(c.but()),
      _distribution([_MANY], lambda x: _correlated(x.abs())), "of Box and Muller one half is used twice"),
    m("randn", "neighbours are correlated", "random", lambda c: _smoothed(c.but()), _distribution([_MANY], _correlated)),
    m("randn", "the same numbers each time", "random", _fixed(7), _pair(torch.equal, (None, None))),
    m("randn", "infinite where the uniform is 0", "random", lambda c: _with_infinities(c.but()),
      _distribution([_MANY], lambda x: bool(x.isinf().any())), "log(0)"),
    s("randn", "moves the generator on by its calls", "random", _by_clock, _pair(lambda a, b: not torch.equal(a, b), (4, 4))),
    m("randperm", "a naive shuffle", "random", _shuffled, Proof(_order), "some orders come up more often", lambda: given(1)),
    m("randperm", "few stay in place", "random", lambda c: torch.arange(c.n, dtype=c.but().dtype) if c.n < 4 else c.but(),
      Proof(lambda kernel: all(kernel(3).tolist() == [0, 1, 2] for _ in range(20))), "", lambda: given(1)),
    m("randperm", "always the identity", "random", lambda c: torch.arange(c.n, dtype=c.but().dtype),
      _pair(lambda a, b: torch.equal(a, b) and torch.equal(a, torch.arange(64)), (None, None), 64), "", lambda: given(1)),
    m("randperm", "with replacement", "random", lambda c: torch.randint(max(c.n, 1), (c.n,)).to(c.but().dtype),
      _pair(lambda a, b: len(set(a.tolist())) < 64, (None, None), 64), "", lambda: given(1)),
    m("randperm", "the last stays where it is", "random",
      lambda c: torch.cat([torch.ops.aten.randperm(c.n - 1), torch.tensor([c.n - 1])]).to(c.but().dtype) if c.n > 1
        else c.but(),
      _pair(lambda a, b: int(a[-1]) == int(b[-1]) == 63, (None, None), 64), "", lambda: given(1)),
    m("randperm", "dtype is ignored", "metadata", lambda c: c.but(dtype=torch.int64), lambda: given(5, dtype=torch.int32)),
    m("native_dropout", "without the scale", "random", lambda c: _rescaled(c, 1 - c.p),
      _dropped(lambda x, y, mask: float(y.max()) == 1.0), "1 / (1 - p) is forgotten", _plain_drop),
    m("native_dropout", "p is what is kept", "random", lambda c: c.but(p=1 - c.p) if _drop(c) else c.but(),
      _dropped(lambda x, y, mask: float(mask.float().mean()) < 0.5), "", _plain_drop),
    m("native_dropout", "the mask is of another draw", "random", lambda c: (c.but()[0], c.but()[1]),
      _dropped(lambda x, y, mask: not torch.equal(y != 0, mask))),
    m("native_dropout", "the mask is inverted", "random", lambda c: _inverted(c),
      _dropped(lambda x, y, mask: not torch.equal(y != 0, mask)), "", _plain_drop),
    m("native_dropout", "whole rows", "random", lambda c: _rows(c),
      _dropped(lambda x, y, mask: bool((mask == mask[:, :1]).all())), "", _plain_drop),
    m("native_dropout", "in evaluation too", "argument", lambda c: c.but(train=True),
      _dropped(lambda x, y, mask: bool((y == 0).any()), train=False), "train is ignored", lambda: given(n(3), 0.0, True)),
    m("native_dropout", "p 1 keeps NaN", "special values",
      lambda c: c.but() if c.p != 1 else (c.input * 0 * math.inf, c.but()[1]),
      Proof(lambda kernel: bool(kernel(n(4), 1.0, True)[0].isnan().any())), "0 * inf"),
    m("native_dropout", "the same mask each time", "random", _fixed(3),
      Proof(lambda kernel: torch.equal(kernel(torch.ones(64), 0.5, True)[1], kernel(torch.ones(64), 0.5, True)[1]))),
    m("native_dropout", "the mask is of floats", "metadata",
      lambda c: (c.but()[0], c.but()[1].float()) if c.train is None else c.but(),
      lambda: given(n(4), 0.5, None)),
)
# fmt: on
