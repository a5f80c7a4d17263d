"""The counts of random calls: calls that return eager's numbers are not counted, and calls that return other numbers are."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.eager.random_numbers import FACTS

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
DTYPES = (*FLOATS, torch.int64, torch.bool, torch.complex64)
# The samplers' fused multiply-adds are compiled in where the machine has them, as those of `add` are.
EXACT = torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512")


def layouts(dtype: torch.dtype) -> dict[str, Tensor]:
    def zeros(*shape: int) -> Tensor:
        return torch.zeros(shape, dtype=dtype)

    return {
        "scalar": zeros(),
        "small": zeros(3, 4),
        "small, transposed": zeros(4, 3).t(),
        "a block": zeros(16),
        "blocks": zeros(3, 16),
        "blocks, transposed": zeros(16, 3).t(),
        "a remainder": zeros(103),
        "a remainder, transposed": zeros(21, 5).t(),
        "channels last": zeros(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "rows": zeros(6, 20)[::2],
        "every second": zeros(12, 20)[:, ::2],
        "empty": zeros(0, 3),
    }


CALLS: dict[str, Callable[[Tensor], Any]] = {
    "uniform_": lambda x: x.uniform_(-0.3, 1.9),
    "uniform_ from zero": lambda x: x.uniform_(0, 0.7),
    "rand by generator": lambda x: torch.rand(x.shape, dtype=x.dtype, generator=torch.default_generator),
    "rand_like": torch.rand_like,
    "geometric_": lambda x: x.geometric_(0.3),
    "cauchy_": lambda x: x.cauchy_(0.5, 2),
    "bernoulli_": lambda x: x.bernoulli_(0.3),
    "bernoulli_ rare": lambda x: x.bernoulli_(1e-4),
    "bernoulli_ always": lambda x: x.bernoulli_(1.0),
    "bernoulli_ never": lambda x: x.bernoulli_(0.0),
    "bernoulli_ by tensor": lambda x: x.bernoulli_(torch.tensor(0.4, dtype=torch.float64)),
    "bernoulli.p": lambda x: torch.bernoulli(x, 0.6),
    "bernoulli": lambda x: torch.bernoulli(x + 0.4),
    "dropout": lambda x: torch.dropout(x + 1, 0.3, True),
    "feature_dropout_": lambda x: torch.feature_dropout_(x, 0.3, True),
    "attention": lambda x: F.scaled_dot_product_attention(x + 1, x + 1, x + 1, dropout_p=0.3),
    "randn by generator": lambda x: torch.randn(x.shape, dtype=x.dtype, generator=torch.default_generator),
    "randn into": lambda x: torch.randn(x.shape, dtype=x.dtype, out=x),
    "rand into": lambda x: torch.rand(x.shape, dtype=x.dtype, out=x),
    "randn_like": torch.randn_like,
    "randn_like, contiguous": lambda x: torch.randn_like(x, memory_format=torch.contiguous_format),
    "normal_": lambda x: x.normal_(0.3, 1.7),
    "normal_, standard": lambda x: x.normal_(),
    "normal_functional": lambda x: aten.normal_functional(x, 0.3, 1.7),
    "normal": lambda x: torch.normal(0.3, 1.7, x.shape, dtype=x.dtype),
    "normal of tensors": lambda x: torch.normal(x + 1, x + 2),
    "log_normal_": lambda x: x.log_normal_(0.5, 0.7),
    "exponential_": lambda x: x.exponential_(),
    "multinomial": lambda x: torch.multinomial(x.flatten() + 0.3, min(5, x.numel())),
    "multinomial, with replacement": lambda x: torch.multinomial(x.flatten() + 0.3, 50, True),
    "randperm by generator": lambda x: torch.randperm(x.numel(), generator=torch.default_generator),
    "rrelu, idle": lambda x: F.rrelu(x - 1, training=False),
    # Never eager's numbers.
    "random_": lambda x: x.random_(),
    "random_, up to": lambda x: x.random_(100),
    "randint": lambda x: torch.randint(2**20, x.shape),
    "randint_like": lambda x: torch.randint_like(x, 100),
    "rrelu": lambda x: F.rrelu(x - 1, training=True),
    "gamma": lambda x: torch._standard_gamma(x + 0.7),
    "poisson": lambda x: torch.poisson(x + 30),
    "binomial": lambda x: torch.binomial(x + 90, x + 0.3),
}


#: Recorded, compiled and from the cache.
TIMES = 3


def once(run: Callable[[Tensor], Any], dtype: torch.dtype, layout: str, mode: ed.EagerDecompMode | None) -> tuple[Any, Tensor]:
    x = layouts(dtype)[layout]
    torch.manual_seed(3)
    with nullcontext() if mode is None else mode:
        for _ in range(TIMES):
            result = run(x)
    return result, torch.get_rng_state()


def is_eagers(name: str, got: tuple[Tensor, Tensor], want: tuple[Tensor, Tensor]) -> bool:
    if EXACT and name.startswith(("uniform_", "rand", "normal", "geometric_")) and got[0].dtype in (torch.float32, torch.float64):
        return torch.equal(got[0], want[0]) and torch.equal(got[1], want[1])
    eps = torch.finfo(got[0].dtype).eps if got[0].is_floating_point() or got[0].is_complex() else 0
    values = [one.to(torch.complex128) for one in (got[0], want[0])]
    return torch.equal(got[1], want[1]) and torch.allclose(*values, rtol=8 * eps, atol=8 * eps, equal_nan=True)


def counted_and_eagers(name: str, dtype: torch.dtype, layout: str, *, inference: bool = False) -> tuple[int, bool] | None:
    """Return how many calls were counted, and whether the numbers equal eager's; None if eager rejects the call."""
    with torch.inference_mode(inference):
        try:
            want = once(CALLS[name], dtype, layout, None)
        except (RuntimeError, NotImplementedError, ValueError):
            return None
        mode = ed.EagerDecompMode(ed.core_aten())
        got = once(CALLS[name], dtype, layout, mode)
    return mode.stats().total.other_numbers // TIMES, is_eagers(name, got, want)


@pytest.mark.full
@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_is_not_counted_returns_eagers_numbers(name: str) -> None:
    seen = 0
    for dtype in DTYPES:
        for layout in layouts(dtype):
            for inference in (False, True) if layout in ("blocks", "channels last") else (False,):
                found = counted_and_eagers(name, dtype, layout, inference=inference)
                if found is not None:
                    seen += 1
                    assert found[0] or found[1], (dtype, layout, inference)
    assert seen


F32, F64 = torch.float32, torch.float64


OTHER_NUMBERS = [
    *((name, F32, "blocks") for name in ("random_", "random_, up to", "randint", "randint_like", "rrelu", "gamma", "poisson")),
    ("binomial", F32, "blocks"),
    ("exponential_", F32, "blocks"),
    ("multinomial", F32, "a remainder"),
    ("normal_", F32, "blocks, transposed"),
    ("normal_", F32, "every second"),
    ("normal of tensors", torch.bfloat16, "a remainder"),
    ("randn into", F32, "blocks, transposed"),
]
EAGERS_NUMBERS = [
    *((name, F32, "channels last") for name in ("uniform_", "rand_like", "bernoulli_", "dropout", "cauchy_", "geometric_")),
    ("normal_", F32, "blocks"),
    ("normal_", F32, "small, transposed"),
    ("randn_like", F32, "every second"),
    ("randn_like, contiguous", F32, "blocks, transposed"),
    ("exponential_", F64, "blocks, transposed"),
    ("multinomial", F64, "a remainder"),
    ("multinomial, with replacement", F64, "a remainder"),
    ("random_", F32, "empty"),
    ("rrelu, idle", F32, "blocks"),
    ("randn into", F32, "blocks"),
    ("attention", F32, "blocks"),
]


@pytest.mark.parametrize(("name", "dtype", "layout"), [*OTHER_NUMBERS, *EAGERS_NUMBERS])
def test_a_call_is_counted_if_it_returns_other_numbers(name: str, dtype: torch.dtype, layout: str) -> None:
    counted = (name, dtype, layout) in OTHER_NUMBERS
    assert counted_and_eagers(name, dtype, layout) == (int(counted), not counted)


def test_facts_name_ops_that_torch_has() -> None:
    for name in FACTS:
        packet, _, overload = name.partition(".")
        assert not overload or overload in getattr(aten, packet).overloads()


def test_calls_on_a_set_without_the_random_kernel_are_counted() -> None:
    mode = ed.EagerDecompMode(ed.core_aten() - ["aten.native_dropout"])
    with mode:
        torch.zeros(40).bernoulli_(0.3)
        torch.zeros(40).uniform_()
    assert mode.stats().other_numbers == {"aten.bernoulli_.float": 1}


def test_calls_whose_kernel_a_predicate_accepts_are_not_counted() -> None:
    """`uniform_` draws by `rand`, and `bernoulli_` by `native_dropout`: the predicate decides about these calls."""
    ops = ed.core_aten().with_predicate("aten.rand.default", lambda *args, dtype=None, **more: dtype is not torch.float64)
    ops = ops.with_predicate("aten.native_dropout.default", lambda x, *args: x.numel() < 30)
    mode = ed.EagerDecompMode(ops)
    with mode:
        for size in (20, 40):
            for _ in range(3):  # recorded, compiled, from the cache
                torch.zeros(size).bernoulli_(0.3)
                torch.nn.functional.dropout(torch.zeros(size))
        torch.zeros(20).uniform_()
        torch.rand(20)
    assert mode.stats().other_numbers == {"aten.bernoulli_.float": 6}
    assert mode.stats()["aten.rand.default"].direct == 1


def test_counts_are_summed_and_printed_by_packet() -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    with mode:
        for _ in range(3):
            torch.zeros(4).random_()
        torch.zeros(4).random_(7)
        torch.zeros(4).exponential_()
    stats = mode.stats()
    assert list(stats.other_numbers.items()) == [
        ("aten.random_.default", 3),
        ("aten.exponential_.default", 1),
        ("aten.random_.to", 1),
    ]
    assert "random calls with other numbers than eager: 5 (aten.random_ 4, aten.exponential_ 1)" in str(stats).splitlines()
