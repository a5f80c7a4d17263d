"""Products of 8-bit floats with scales, one for a matrix or one for each of its rows; and what ATen refuses."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from on_core import check, kernel_calls

import eagerdecomp as ed
from conformance.cases import without_onednn

aten = torch.ops.aten
FN, E5 = torch.float8_e4m3fn, torch.float8_e5m2
FLOAT8 = (FN, E5, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz)


@pytest.fixture(autouse=True)
def _emulated() -> Iterator[None]:
    """Run ATen's own kernel: where a processor has a unit for such products, eager hands them to oneDNN, which rounds otherwise."""
    with without_onednn():
        yield


def matrix(*shape: int, dtype: torch.dtype = FN) -> torch.Tensor:
    return torch.randn(shape).to(dtype)


def one(value: float = 0.75) -> torch.Tensor:
    return torch.tensor(value)


def checked(*args: Any, **kwargs: Any) -> None:
    # Bit for bit: the emulation is the same steps.
    check(torch._scaled_mm, *args, **kwargs)


@pytest.mark.parametrize(("left", "right"), list(itertools.product(FLOAT8, FLOAT8)), ids=str)
def test_one_scale_for_a_matrix(left: torch.dtype, right: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = matrix(5, 16, dtype=left), matrix(7, 16, dtype=right).t()
    for dtype in (None, torch.float32, torch.bfloat16, torch.float16, E5):
        checked(a, b, one(), one(-3.0), out_dtype=dtype)
    checked(a, b, one().view(1, 1, 1), one(2.0).view(1), out_dtype=torch.float32)


def test_layouts_and_sizes() -> None:
    torch.manual_seed(0)
    for a, b in (
        (matrix(5, 16), matrix(16, 7)),
        (matrix(16, 5).t(), matrix(16, 14)[:, ::2]),
        (matrix(1, 1), matrix(1, 1)),
        (matrix(0, 4), matrix(4, 3)),
        (matrix(3, 0), matrix(0, 3)),
        (matrix(1, 4).expand(3, 4), matrix(4, 3)),
    ):
        checked(a, b, one(), one(), out_dtype=torch.float32)
        check(aten._scaled_mm_v2, a, b, [one()], [0], [0], [one()], [0], [0], None, torch.float32)


@pytest.mark.parametrize("bias", [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int64], ids=str)
def test_a_bias_is_added_before_the_result_is_rounded(bias: torch.dtype) -> None:
    torch.manual_seed(0)
    a, b = matrix(5, 16), matrix(7, 16).t()
    for shape in ((7,), (1, 7)):
        checked(a, b, one(), one(), bias=(torch.randn(shape) * 4).to(bias), out_dtype=torch.bfloat16)


def test_a_result_of_8_bits_is_divided_by_its_scale() -> None:
    torch.manual_seed(0)
    a, b = matrix(5, 16), matrix(7, 16).t()
    for dtype in (FN, E5, None, torch.float32, torch.float8_e4m3fnuz):
        checked(a, b, one(), one(), scale_result=one(3.0), out_dtype=dtype)


def test_a_scale_for_each_row_and_column() -> None:
    torch.manual_seed(0)
    a, b = matrix(5, 16), matrix(7, 16).t()
    rows, columns = torch.randn(5, 1), torch.randn(1, 7)
    for dtype in (torch.float32, torch.bfloat16, None):
        checked(a, b, rows, columns, out_dtype=dtype)
        check(aten._scaled_mm_v2, a, b, [rows], [1], [0], [columns], [1], [0], None, dtype)
    check(aten._scaled_mm_v2, a, b, [one()], [0], [0], [one()], [0], [0], torch.randn(7), torch.float16)
    check(aten._scaled_mm_v2, a, b, [one()], [0], [0], [one()], [0], [0], torch.randn(7), torch.float16, [1, 0])


def test_written_into_what_is_given() -> None:
    torch.manual_seed(0)
    check(aten._scaled_mm.out, matrix(5, 16), matrix(7, 16).t(), one(), one(), out_dtype=torch.float32, out=torch.empty(5, 7))


def test_it_takes_few_kernels() -> None:
    a, b = matrix(5, 16), matrix(7, 16).t()
    assert kernel_calls(lambda: torch._scaled_mm(a, b, one(), one(), out_dtype=torch.float32)) <= 10


def test_off_the_cpu_a_product_in_float8_saturates() -> None:
    """CUDA's kernel does; the CPU's overflows to NaN."""
    left = torch.empty(16, 32, device="meta", dtype=torch.float8_e4m3fn)
    right, scale = torch.empty(32, 16, device="meta", dtype=torch.float8_e4m3fn), torch.empty((), device="meta")
    for device, clamps in (("meta", 1), ("cpu", 0)):
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.core_aten()):
            torch._scaled_mm(*(torch.zeros_like(one, device=device) for one in (left, right, scale, scale)), out_dtype=left.dtype)
        assert seen.ops[torch.ops.aten.clamp.default] == clamps
