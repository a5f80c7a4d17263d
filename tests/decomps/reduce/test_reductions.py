"""Reductions off the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check
from torch import Tensor

import eagerdecomp as ed


@pytest.mark.parametrize("shape", [(2,), (3,), ()])
def test_equal_refuses_a_meta_tensor(shape: tuple[int, ...]) -> None:
    for pair in ((torch.ones(shape), torch.ones(2, device="meta")), (torch.ones(2, device="meta"), torch.ones(shape))):
        check(torch.equal, *pair)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_off_the_cpu_deviations_are_computed_in_float32_as_eager_does(dtype: torch.dtype) -> None:
    seen: list[torch.dtype] = []

    def var(x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        seen.append(x.dtype)
        return torch.ops.aten.var.correction(x, *args, **kwargs)  # type: ignore[no-any-return]

    with ed.EagerDecompMode(CORE, kernels={"aten.var.correction": var}):
        assert torch.empty(3, 4, dtype=dtype, device="meta").std(1).dtype is dtype
    assert seen == [torch.float64 if dtype is torch.float64 else torch.float32]
