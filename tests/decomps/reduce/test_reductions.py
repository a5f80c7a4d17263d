"""Reductions on Core ATen: eager's values, indices (where one result is right), NaN rules, layouts and refusals."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
DTYPES = [*FLOATS, torch.int64, torch.int32, torch.uint8, torch.int8, torch.bool, torch.complex64]
NAN = math.nan

WHOLE: dict[str, Callable[[Tensor], Any]] = {
    "max": torch.max,
    "min": torch.min,
    "median": torch.median,
    "nanmedian": torch.nanmedian,
    "std_mean": torch.std_mean,
    "std_mean, corrected": lambda x: torch.std_mean(x, correction=0),
    "std": torch.std,
    "std, corrected": lambda x: torch.std(x, correction=0),
    "var_mean": torch.var_mean,
}
ALONG: dict[str, Callable[[Tensor, int], Any]] = {
    "median": lambda x, dim: tuple(x.median(dim)),
    "median, kept": lambda x, dim: tuple(x.median(dim, keepdim=True)),
    "nanmedian": lambda x, dim: tuple(x.nanmedian(dim)),
    "nanmedian, kept": lambda x, dim: tuple(x.nanmedian(dim, True)),
    "kthvalue": lambda x, dim: tuple(x.kthvalue(2, dim)),
    "kthvalue, kept": lambda x, dim: tuple(x.kthvalue(1, dim, True)),
    "cummax": lambda x, dim: tuple(x.cummax(dim)),
    "cummin": lambda x, dim: tuple(x.cummin(dim)),
    "std_mean": lambda x, dim: torch.std_mean(x, dim, keepdim=True),
    "std": lambda x, dim: torch.std(x, dim),
    "var_mean": lambda x, dim: torch.var_mean(x, dim, correction=0.5, keepdim=True),
}


def distinct(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
    """Values in random order, no two equal, so that an index is determined."""
    return (torch.randperm(math.prod(shape)).view(shape) - 5).to(dtype)


@pytest.mark.full
@pytest.mark.parametrize("name", WHOLE)
def test_of_all_elements(name: str) -> None:
    run = WHOLE[name]
    torch.manual_seed(0)
    for dtype in DTYPES:
        check(run, distinct(4, 5).abs().to(dtype))
        check(run, torch.tensor(3).to(dtype))
    for x in (distinct(3, 4, 5).permute(2, 0, 1), distinct(6, 4)[::2], torch.tensor([1.0, NAN, 3.0]), torch.full((3,), NAN)):
        check(run, x)
    check(run, torch.zeros(0))
    check(run, torch.zeros(0, 3, dtype=torch.int64))


def test_a_deviation_whose_variance_is_out_of_the_range_of_the_dtype() -> None:
    x = torch.tensor([1000.0, -1000.0, 3.0]).half()
    check(torch.std_mean, x)
    check(torch.std, x)


@pytest.mark.full
@pytest.mark.parametrize("name", ALONG)
def test_along_a_dimension(name: str) -> None:
    run = ALONG[name]
    torch.manual_seed(0)
    for dtype in DTYPES:
        check(run, distinct(4, 5).to(dtype) if dtype is not torch.bool else torch.tensor([[True, False]]), 0)
    for dim in (0, 1, -1):
        for x in (distinct(3, 4, 5).permute(2, 0, 1), distinct(6, 4)[::2], distinct(5, 3).t()):
            check(run, x, dim)
    check(run, torch.tensor([[1.0, NAN, 0.0, NAN, 7.0], [3.0, 2.0, NAN, 5.0, -1.0]]), 1)
    check(run, torch.tensor(2.0), 0)
    check(run, torch.zeros(0, 3), 0)
    check(run, torch.zeros(3, 0), 0)
    check(run, distinct(4, 5), 3)


def test_running_extremes_name_the_last_of_equals() -> None:
    for x in (torch.tensor([1, 1, 0, 1, 2, 2, 1]), torch.tensor([NAN, 1.0, NAN, 2.0]), torch.tensor([True, False, True, True])):
        check(lambda x: (*x.cummax(0), *x.cummin(0)), x)
    x = torch.randint(0, 5, (3, 33))
    check(lambda x: (*x.cummax(1), *x.cummin(1)), x)


@pytest.mark.parametrize("shape", [(), (0,), (2, 0), (1,)])
def test_running_extremes_ask_no_dimension_of_an_empty_tensor(shape: tuple[int, ...]) -> None:
    for name, dim in itertools.product(("cummax", "cummin"), (-3, 2)):
        check(lambda x, name=name, dim=dim: tuple(getattr(x, name)(dim)), torch.zeros(shape))  # type: ignore[misc]


def test_kth_value_is_the_kth_and_at_its_index() -> None:
    x = torch.randint(0, 4, (50,))
    for k in (1, 7, 50):
        value, index = on_core(lambda: x.kthvalue(k))  # noqa: B023 - called at once
        assert value == x.kthvalue(k)[0]
        assert x[index] == value
    check(lambda x: tuple(x.kthvalue(51)), x)
    check(lambda x: tuple(x.kthvalue(0)), x)


PAIRS: dict[str, tuple[Tensor, Tensor]] = {
    "equal": (torch.ones(3), torch.ones(3)),
    "another value": (torch.ones(3), torch.tensor([1.0, 1, 2])),
    "another shape": (torch.ones(3), torch.ones(1, 3)),
    "another type": (torch.ones(3), torch.ones(3, dtype=torch.float64)),
    "integers against floats": (torch.ones(3), torch.ones(3, dtype=torch.int64)),
    "nan": (torch.tensor([NAN]), torch.tensor([NAN])),
    "zeros of both signs": (torch.tensor([0.0]), torch.tensor([-0.0])),
    "nothing": (torch.ones(0), torch.ones(0)),
    "nothing in other shapes": (torch.ones(0), torch.ones(0, 1)),
    "complex": (torch.ones(2, dtype=torch.complex64), torch.ones(2, dtype=torch.complex64) * 1j),
    "conjugates": (torch.tensor([1 + 1j]).conj(), torch.tensor([1 - 1j])),
    "strided": (torch.arange(6).view(2, 3).t(), torch.arange(6).view(2, 3).t().contiguous()),
}


@pytest.mark.parametrize("name", PAIRS)
def test_equal_returns_a_python_bool(name: str) -> None:
    check(torch.equal, *PAIRS[name])


@pytest.mark.parametrize("shape", [(2,), (3,), ()])
def test_equal_refuses_a_meta_tensor(shape: tuple[int, ...]) -> None:
    for pair in ((torch.ones(shape), torch.ones(2, device="meta")), (torch.ones(2, device="meta"), torch.ones(shape))):
        check(torch.equal, *pair)


@pytest.mark.full
def test_gradients() -> None:
    def step(run: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
        def go(x: Tensor) -> Any:
            leaf = x.clone().requires_grad_()
            result = run(leaf)
            result = result if isinstance(result, Tensor) else sum(part.sum() for part in result if part.requires_grad)
            return torch.autograd.grad(result.sum(), leaf)

        return go

    for run in (*WHOLE.values(), *(lambda x, run=run: run(x, 1) for run in ALONG.values())):
        check(step(run), distinct(4, 6, dtype=torch.float64))


@pytest.mark.parametrize("dtype", [torch.uint16, torch.uint32, torch.uint64])
def test_all_of_the_wide_unsigned_types(dtype: torch.dtype) -> None:
    for x in (torch.tensor([[1, 0], [2, 3]]).to(dtype), torch.ones(2, 2).to(dtype), torch.empty(0, 2, dtype=dtype)):
        check(torch.all, x)
        check(torch.all, x, 0)
        check(torch.all, x, (0, 1), True)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("run", [torch.std_mean, torch.var_mean])
def test_complex_deviations_and_means_do_not_mix_parts(run: Callable[..., Any], dtype: torch.dtype) -> None:
    nan = float("nan")
    rows = [[1 + 2j, complex(nan, 1), 2j], [1, complex(2, nan), 3j], [1, 2 + 5j, complex(nan, 3)], [1, 2j, 3]]
    x = torch.tensor(rows, dtype=dtype)
    for options in ({}, {"dim": 1}, {"dim": 0, "keepdim": True}, {"dim": (0, 1), "correction": 0}):
        check(run, x, **options)
        check(run, x.t(), **options)
    check(run, x[:, :0], dim=1)
    check(run, x[:0], dim=1)
    check(run, x[3, 1])
    check(lambda x: torch.autograd.grad([y.abs().sum() for y in run(x.requires_grad_(), dim=1)], x), x[3:])


def test_a_running_product_of_many_numbers_takes_memory_of_their_length() -> None:
    x = 1 + torch.randn(50_000, generator=torch.Generator().manual_seed(0)) / 1000
    expected = torch.cumprod(x.double(), 0)
    found = on_core(lambda: torch.cumprod(x, 0))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("size", [1e30, 1e-30])
def test_deviations_of_values_whose_squares_leave_the_range(size: float, dtype: torch.dtype) -> None:
    x = (torch.linspace(-1, 1, 30) * size).reshape(5, 6).to(dtype)
    check(torch.std, x, 1)
    check(torch.std, x)
    assert torch.isfinite(on_core(lambda: x.std())) and on_core(lambda: x.std()) > 0  # noqa: PT018 - one range


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_off_the_cpu_deviations_are_computed_in_float32_as_eager_does(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def var(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(x.dtype)
        return torch.ops.aten.var.correction(x, *args, **kwargs)  # type: ignore[no-any-return]

    with ed.EagerDecompMode(CORE, kernels={"aten.var.correction": var}):
        assert torch.empty(3, 4, dtype=dtype, device="meta").std(1).dtype is dtype
    assert seen == [torch.float64 if dtype is torch.float64 else torch.float32]
