"""With a kernel that returns wrong numbers, an iteration ends with an error instead of running on."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.backends.null import null_backend


def _always_one(tensor: Tensor) -> Any:
    return torch.ones((), dtype=tensor.dtype).item()


@pytest.mark.parametrize("function", [torch.linalg.svdvals, torch.linalg.eigvalsh, torch.linalg.svd, torch.linalg.pinv])
def test_kernels_that_write_nan_are_named(function: Callable[[Tensor], Any]) -> None:
    backend, _ = null_backend(value=math.nan)
    matrix = torch.ones(4, 3).mT @ torch.ones(4, 3)
    error = r"A kernel of the backend returns wrong numbers\. .*: eagerdecomp conformance MODULE"
    with pytest.raises(RuntimeError, match=error), ed.EagerDecompMode(backend):
        function(matrix)


@pytest.mark.full
@pytest.mark.parametrize("function", [torch.linalg.svdvals, torch.linalg.eigvalsh, torch.linalg.svd])
@pytest.mark.parametrize("size", [3, 20])
def test_wrong_reads_do_not_hang(function: Callable[[Tensor], Any], size: int) -> None:
    backend = ed.Backend("wrong", ed.core_aten(), kernels={"aten._local_scalar_dense": _always_one})
    error = r"did not end after \d+ steps\. A kernel of the backend returns wrong numbers"
    with pytest.raises(RuntimeError, match=error), ed.EagerDecompMode(backend):
        function(torch.randn(size, size))
