"""Specs of random ops: any generator that follows seeds passes; wrong distributions, seeds and masks are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults
from torch import Tensor

from eagerdecomp.conformance.spec import TestedKernel
from eagerdecomp.conformance.specs import random as random_specs
from eagerdecomp.ops.opset import resolve_ops

aten = torch.ops.aten


def test_trying_a_kernel_leaves_the_generator_where_it_was() -> None:
    torch.manual_seed(3)
    expected = torch.rand(4)
    torch.manual_seed(3)
    (op,) = resolve_ops(["aten.rand.default"])
    for prop in random_specs.SPECS["aten.rand.default"].properties:
        assert prop.find_fault(TestedKernel(op, op, op), random_specs.SPECS["aten.rand.default"], random_specs.Draw()) is None
    assert torch.equal(torch.rand(4), expected)


# -- right in another way ----------------------------------------------------------------------------------------------------


def words(size: Any) -> Tensor:
    """Integers of 32 bits, from torch's generator by a way of our own."""
    return torch.empty(list(size), dtype=torch.int64).random_(2**32)


def uniform_of_words(size, dtype=None, **options):
    """The upper 24 bits in place of eager's lower ones; halves rounded down."""
    made = aten.rand(size, dtype=dtype, **options)
    if made.is_complex():
        return made
    number = words(size) >> 8
    if made.dtype is torch.float64:
        return (number.double() * 2**28 + (words(size) >> 4)) * 2.0**-52
    digits = {torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}[made.dtype]
    return ((number >> (24 - digits)).double() * 2.0**-digits).to(made.dtype)


def normal_by_inverse(size, dtype=None, **options):
    made = aten.randn(size, dtype=dtype, **options)
    if made.is_complex():
        return made
    return torch.special.ndtri((words(size).double() + 0.5) * 2.0**-32).to(made.dtype)


def normal_by_pairs(size, dtype=None, **options):
    made = aten.randn(size, dtype=dtype, **options)
    if made.is_complex():
        return made
    half = (math.prod(size) + 1) // 2
    radius = (-2 * torch.log1p(-torch.rand(half, dtype=torch.float64))).sqrt()
    angle = 2 * math.pi * torch.rand(half, dtype=torch.float64)
    found = torch.cat([radius * angle.cos(), radius * angle.sin()])
    return found[: math.prod(size)].reshape(list(size)).to(made.dtype)


def permutation_by_keys(n, **options):
    made = aten.randperm(n, **options)
    return torch.rand(n, dtype=torch.float64).argsort().to(made.dtype) if n else made


def dropout_by_division(x, p, train):
    made, mask = aten.native_dropout(x, p, train)
    if train is False or not 0 < p < 1:
        return made, mask
    mask = torch.rand(x.shape) >= p
    wide = x.float() if x.dtype.itemsize == 2 else x
    return torch.where(mask, wide / (1 - p), 0).to(x.dtype), mask


def dropout_by_uniform_numbers(x, p, train):
    """Draws first what inputs are made of: after a seed of theirs it would draw their very numbers."""
    if train is False or not 0 < p < 1:
        return aten.native_dropout(x, p, train)
    mask = torch.empty(x.shape).uniform_() >= p
    return torch.where(mask, x * (1 / (1 - p)), 0).to(x.dtype), mask


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.rand.default", uniform_of_words),
    ("aten.randn.default", normal_by_inverse),
    ("aten.randn.default", normal_by_pairs),
    ("aten.randperm.default", permutation_by_keys),
    ("aten.native_dropout.default", dropout_by_division),
    ("aten.native_dropout.default", dropout_by_uniform_numbers),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "run"), sampled(RIGHT, 3))
def test_another_algorithm_passes(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run, 250) == []


# -- broken ------------------------------------------------------------------------------------------------------------------


def changed(op: Callable[..., Tensor], change: Callable[[Tensor], Tensor]) -> Callable[..., Tensor]:
    """The op with its numbers changed, where they are real."""

    def run(*args: Any, **kwargs: Any) -> Tensor:
        made = op(*args, **kwargs)
        return made if made.is_complex() or not made.numel() else change(made).to(made.dtype)

    return run


def rounded_from_float32(size, dtype=None, **options):
    made = aten.rand(size, dtype=dtype, **options)
    return aten.rand(size, dtype=torch.float32).to(made.dtype) if made.dtype.itemsize == 2 else made


def of_float32(size, dtype=None, **options):
    made = aten.rand(size, dtype=dtype, **options)
    return aten.rand(size, dtype=torch.float32).double() if made.dtype is torch.float64 else made


def of_twelve(size, dtype=None, **options):
    made = aten.randn(size, dtype=dtype, **options)
    return made if made.is_complex() or not made.numel() else (torch.rand(12, *size).sum(0) - 6).to(made.dtype)


def normal_complex_of_two(size, dtype=None, **options):
    made = aten.randn(size, dtype=dtype, **options)
    return made * math.sqrt(2) if made.is_complex() else made


class Own:
    """A generator of its own, which starts again every so many calls."""

    def __init__(self, op: Callable[..., Any], again: bool) -> None:
        self.op, self.again = op, again
        self.state = torch.Generator().manual_seed(5).get_state()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        kept = torch.get_rng_state()
        torch.set_rng_state(self.state)
        made = self.op(*args, **kwargs)
        if not self.again:
            self.state = torch.get_rng_state()
        torch.set_rng_state(kept)
        return made


def from_the_seed(op: Callable[..., Any]) -> Callable[..., Any]:
    """A generator of its own for each seed, kept between calls: rng states do not reach it."""
    generators: dict[int, Tensor] = {}

    def run(*args: Any, **kwargs: Any) -> Any:
        kept, seed = torch.get_rng_state(), torch.initial_seed()
        torch.set_rng_state(generators.get(seed, torch.Generator().manual_seed(seed).get_state()))
        made = op(*args, **kwargs)
        generators[seed] = torch.get_rng_state()
        torch.set_rng_state(kept)
        return made

    return run


def tiled(x: Tensor) -> Tensor:
    """Blocks of threads that begin with the same counter."""
    flat = x.flatten()
    return flat[: 1 + (flat.numel() - 1) // 2].repeat(2)[: flat.numel()].reshape(x.shape)


def smoothed(x: Tensor) -> Tensor:
    flat = x.flatten()
    return ((flat + 0.3 * flat.roll(1)) / math.sqrt(1.09)).reshape(x.shape)


def naive_shuffle(n, **options):
    made = aten.randperm(n, **options)
    if not 1 < n <= 8:
        return made
    places = list(range(n))
    for place, other in enumerate(torch.randint(n, (n,)).tolist()):
        places[place], places[other] = places[other], places[place]
    return torch.tensor(places, dtype=made.dtype)


def one_cycle(n, **options):
    made = aten.randperm(n, **options)
    places = list(range(n))
    for place in range(n - 1 if n <= 8 else 0, 0, -1):
        other = int(torch.randint(place, ()))
        places[place], places[other] = places[other], places[place]
    return torch.tensor(places, dtype=made.dtype) if n <= 8 else made


def within_blocks(n, **options):
    made = aten.randperm(n, **options)
    if n < 512:
        return made
    return torch.cat([start + torch.randperm(min(256, n - start)) for start in range(0, n, 256)]).to(made.dtype)


def dropped(change: Callable[..., Any]) -> Callable[..., Any]:
    def run(x: Tensor, p: float, train: bool | None) -> Any:
        made, mask = aten.native_dropout(x, p, train)
        return change(x, p, made, mask) if train is not False and 0 < p < 1 and x.numel() else (made, mask)

    return run


def by_rows(x, p, made, mask):
    if x.dim() != 2:
        return made, mask
    mask = (torch.rand(x.shape[0], 1) >= p).expand(x.shape).contiguous()
    return (x * mask / (1 - p)).to(x.dtype), mask


def of_whole_values(x, p, made, mask):
    mask = (torch.rand(x.shape) * 8).floor() / 8 >= p
    return (x * mask / (1 - p)).to(x.dtype), mask


def rounded_to_bytes(x, p, made, mask):
    mask = torch.rand(x.shape) >= round(p * 256) / 256
    return (x * mask / (1 - p)).to(x.dtype), mask


BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("aten.rand.default", changed(aten.rand, lambda x: 1 - x)),
    ("aten.rand.default", rounded_from_float32),
    ("aten.rand.default", of_float32),
    ("aten.rand.default", changed(aten.rand, lambda x: x * 2 - 1)),
    ("aten.rand.default", changed(aten.rand, lambda x: (x * 256).floor() / 256)),
    ("aten.rand.default", changed(aten.rand, lambda x: x.square())),
    ("aten.rand.default", changed(aten.rand, tiled)),
    ("aten.rand.default", changed(aten.rand, lambda x: x[:1].expand(x.shape).clone() if x.dim() > 1 else x)),
    ("aten.rand.default", changed(aten.rand, lambda x: x * 0.95)),
    ("aten.rand.default", Own(aten.rand, again=True)),
    ("aten.rand.default", Own(aten.rand, again=False)),
    ("aten.rand.default", from_the_seed(aten.rand)),
    ("aten.rand.default", lambda size, **options: aten.rand(size, **{**options, "dtype": None})),
    ("aten.randn.default", of_twelve),
    ("aten.randn.default", normal_complex_of_two),
    ("aten.randn.default", changed(aten.randn, smoothed)),
    ("aten.randn.default", changed(aten.randn, lambda x: x.clamp(-3.0, 3.0))),
    ("aten.randn.default", changed(aten.randn, lambda x: torch.where(x.abs() > 3.5, 0, x))),
    ("aten.randn.default", changed(aten.randn, lambda x: x * 1.1)),
    ("aten.randn.default", changed(aten.randn, lambda x: x.abs())),
    ("aten.randn.default", changed(aten.randn, lambda x: (torch.rand(x.shape) - 0.5) * math.sqrt(12))),
    ("aten.randn.default", changed(aten.randn, lambda x: x.masked_fill(x.abs() < 1e-3, math.inf))),
    (
        "aten.randn.default",
        changed(aten.randn, lambda x: torch.where(torch.arange(x.shape[-1]) % 2 == 1, -x.roll(1, -1), x) if x.dim() else x),
    ),
    ("aten.randn.default", Own(aten.randn, again=False)),
    ("aten.randperm.default", naive_shuffle),
    ("aten.randperm.default", one_cycle),
    ("aten.randperm.default", within_blocks),
    ("aten.randperm.default", lambda n, **options: torch.randint(max(n, 1), (n,)).to(aten.randperm(n, **options).dtype)),
    ("aten.randperm.default", lambda n, **options: torch.arange(n).to(aten.randperm(n, **options).dtype)),
    ("aten.randperm.default", lambda n, **options: 1 + aten.randperm(n, **options)),
    ("aten.randperm.default", Own(aten.randperm, again=True)),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: (made * (1 - p), mask))),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: (made, ~mask))),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: (made, aten.native_dropout(x, p, True)[1]))),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: aten.native_dropout(x, 1 - p, True))),
    ("aten.native_dropout.default", dropped(by_rows)),
    ("aten.native_dropout.default", dropped(of_whole_values)),
    ("aten.native_dropout.default", dropped(rounded_to_bytes)),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: (made, made != 0))),
    ("aten.native_dropout.default", dropped(lambda x, p, made, mask: (made, mask ^ (x == 0)))),
    ("aten.native_dropout.default", lambda x, p, train: aten.native_dropout(x, p, bool(train))),
    ("aten.native_dropout.default", lambda x, p, train: aten.native_dropout(x, p, p < 1)),
    ("aten.native_dropout.default", Own(aten.native_dropout, again=True)),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "run"), sampled(BROKEN, 3, group=lambda case: case[0]))
def test_a_broken_kernel_is_found(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run, 250)
