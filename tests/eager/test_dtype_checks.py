"""Dtypes that eager's kernels reject raise eager's error under the mode."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check
from torch import Tensor

import eagerdecomp as ed


def test_the_gradient_of_a_permuted_plane_raises_eagers_error() -> None:
    def run() -> Tensor:
        x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last).requires_grad_()
        return torch.autograd.grad(torch.nn.functional.nll_loss(x, torch.zeros(2, 4, 5).long()), x)[0]

    check(run)


N, B, C, EYE = torch.arange(3), torch.arange(3) > 0, torch.arange(3) + 1j, torch.eye(3)


@pytest.mark.parametrize("dtype", [torch.bool, torch.float32], ids=str)
def test_linspace_and_logspace_of_at_most_one_step_equal_eager(dtype: torch.dtype) -> None:
    for steps in (0, 1):
        check(torch.linspace, 0, 1, steps, dtype=dtype)
        check(torch.logspace, 0, 1, steps, dtype=dtype)


def test_a_tensor_of_another_dtype_promotes_the_rest() -> None:
    check(torch.logaddexp, torch.arange(3), torch.randn(3))


ROWS = torch.arange(24.0).view(2, 3, 4)
HALVES = torch.ones(3, dtype=torch.complex32)


def test_views_and_cat_accept_right_shapes_on_prims() -> None:
    prims = ed.prims()
    check(lambda x: x.transpose(0, 1).view(3, -1, 4), ROWS, ops=prims)
    check(lambda x: torch.cat([x[0, :, 0][:0], x, x[:1]], -3), ROWS, ops=prims)
    check(lambda x: x[1].as_strided((2, 3), (4, 2), 3), ROWS, ops=prims)
    check(lambda x: x[1].as_strided((0, 3), (4, 2), 99), ROWS, ops=prims)
    check(lambda x: x[:0].sum(0), HALVES, ops=prims)
    check(torch.clamp, B, 0, 1, ops=prims)
    check(lambda x: x.pow(0) + x.pow(1) + torch.pow(1, x), HALVES, ops=prims)


# -- words for an `out=` of a wrong dtype -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ops", [CORE, ed.tiny(), ed.prims()])
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float32, torch.complex64])
def test_the_dtype_of_out_does_not_make_a_mean_of_integers(dtype: torch.dtype, ops: ed.OpSet) -> None:
    def mean(x: torch.Tensor, out: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.mean(x, out=out, **options)

    x = torch.tensor([200, 100]).to(dtype)
    for wanted in (torch.float32, torch.int64, torch.complex64):
        for given in (None, torch.float32):
            check(mean, x, torch.zeros((), dtype=wanted), dtype=given, ops=ops)
            check(mean, x, torch.zeros((), dtype=wanted), dim=[0], dtype=given, ops=ops)
    check(lambda: torch.mean(torch.ones(2, dtype=torch.uint8), out=torch.zeros(())))
    check(lambda: torch.mean(torch.ones(2), out=torch.zeros((), dtype=torch.int64)))


def test_out_of_a_norm_has_its_dtype() -> None:
    def norm(x: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        return torch.ops.aten.norm.dtype_out(x, 2, [0], False, dtype=torch.float64, out=out)

    for dtype in (torch.float32, torch.float64):
        check(norm, torch.ones(3), torch.zeros((), dtype=dtype))


def test_nansum_of_nothing_into_integers() -> None:
    check(lambda x, out: torch.nansum(x, 0, out=out), torch.ones(0, 2), torch.zeros(2, dtype=torch.int64))
