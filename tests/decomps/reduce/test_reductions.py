"""Reductions off the CPU, of many numbers, and where several indices are right."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core
from torch import Tensor

import eagerdecomp as ed


def test_kth_value_is_the_kth_and_at_its_index() -> None:
    x = torch.randint(0, 4, (50,))
    for k in (1, 7, 50):
        value, index = on_core(lambda: x.kthvalue(k))  # noqa: B023 - called at once
        assert value == x.kthvalue(k)[0]
        assert x[index] == value
    check(lambda x: tuple(x.kthvalue(51)), x)
    check(lambda x: tuple(x.kthvalue(0)), x)


@pytest.mark.parametrize("shape", [(2,), (3,), ()])
def test_equal_refuses_a_meta_tensor(shape: tuple[int, ...]) -> None:
    for pair in ((torch.ones(shape), torch.ones(2, device="meta")), (torch.ones(2, device="meta"), torch.ones(shape))):
        check(torch.equal, *pair)


def test_a_running_product_of_many_numbers_takes_memory_of_their_length() -> None:
    x = 1 + torch.randn(50_000, generator=torch.Generator().manual_seed(0)) / 1000
    expected = torch.cumprod(x.double(), 0)
    found = on_core(lambda: torch.cumprod(x, 0))
    torch.testing.assert_close(found.double(), expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_off_the_cpu_deviations_are_computed_in_float32_as_eager_does(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def var(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(x.dtype)
        return torch.ops.aten.var.correction(x, *args, **kwargs)  # type: ignore[no-any-return]

    with ed.EagerDecompMode(CORE, kernels={"aten.var.correction": var}):
        assert torch.empty(3, 4, dtype=dtype, device="meta").std(1).dtype is dtype
    assert seen == [torch.float64 if dtype is torch.float64 else torch.float32]
