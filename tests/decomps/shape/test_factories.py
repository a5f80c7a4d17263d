"""Factories, and what moves pixels: fresh tensors with eager's type, layout and errors, by no program for each size."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, kernel_calls, on, on_core
from torch.utils._python_dispatch import TorchDispatchMode

import eagerdecomp as ed

aten = torch.ops.aten

PRIMS = ed.prims()
DTYPES = [None, torch.float64, torch.float16, torch.int64, torch.bool, torch.complex64]


@pytest.mark.parametrize("make", [torch.zeros, torch.ones])
@pytest.mark.parametrize("dtype", DTYPES)
def test_filled(make: Callable[..., Any], dtype: torch.dtype | None) -> None:
    for size in ((), (2, 3), (0,)):
        check(make, size, dtype=dtype)
    check(make, 2, dtype=dtype, device="meta")
    check(make, -1, dtype=dtype)


NUMBERS = [0, 1, 3, -1, 300, True, 2.5, -0.0, math.nan, math.inf, 2 + 0j, 1j]


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.bool, torch.uint8, torch.int64, torch.float16, torch.float32, torch.complex64], ids=str)
@pytest.mark.parametrize("value", NUMBERS)
def test_numbers_are_cast_on_prims_as_by_eager(value: Any, dtype: torch.dtype) -> None:
    like = torch.ones(3, 2, dtype=dtype).t()
    check(torch.full, (2, 3), value, dtype=dtype, ops=PRIMS)
    check(torch.full_like, like, value, ops=PRIMS)
    check(torch.fill, like, value, ops=PRIMS)
    check(lambda x: x.fill_(value), like, ops=PRIMS)
    check(lambda x: x.new_full((2,), value), like, ops=PRIMS)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int8, torch.float16, torch.complex64], ids=str)
def test_zeros_and_ones_on_prims(dtype: torch.dtype) -> None:
    like = torch.ones(3, 2, dtype=dtype).t()
    for size in ((), (2, 3), (0,)):
        check(torch.zeros, size, dtype=dtype, ops=PRIMS)
        check(torch.ones, size, dtype=dtype, ops=PRIMS)
        check(like.new_zeros, size, ops=PRIMS)
        check(like.new_ones, size, ops=PRIMS)
    check(torch.zeros_like, like, ops=PRIMS)
    check(torch.ones_like, torch.ones(2), dtype=dtype, ops=PRIMS)
    check(lambda x: x.zero_(), like, ops=PRIMS)


def test_a_bool_reaches_prims_fill_as_one() -> None:
    filled: list[Any] = []

    class Numbers(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func is torch.ops.prims.fill.default:
                filled.append(args[1])
            return func(*args, **(kwargs or {}))

    with Numbers(), on(PRIMS):
        torch.ones(2, dtype=torch.bool)
    assert [value is True for value in filled] == [True]


def test_buckets_on_prims() -> None:
    check(torch.bucketize, torch.tensor([-1.0, 0.5, 3.0]), torch.tensor([0.0, 1.0]), ops=PRIMS | ["aten.index.Tensor"])


def test_the_default_type_is_asked_at_every_call() -> None:
    with on(CORE):
        assert torch.zeros(2).dtype is torch.float32
        torch.set_default_dtype(torch.float64)
        try:
            assert torch.zeros(2).dtype is torch.ones(2).dtype is torch.float64
        finally:
            torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("name", ["new_zeros", "new_ones", "new_full", "new_empty"])
@pytest.mark.parametrize(
    "like",
    [torch.randn(2), torch.arange(3), torch.randn(2, dtype=torch.float16), torch.ones(2) > 0],
    ids=lambda like: str(like.dtype),
)
def test_new(name: str, like: torch.Tensor) -> None:
    def run(like: torch.Tensor, **options: Any) -> torch.Tensor:
        made: torch.Tensor = getattr(like, name)((2, 3), *([1] if name == "new_full" else []), **options)
        return made.fill_(1) if name == "new_empty" else made

    check(run, like)
    check(run, like, dtype=torch.float64)
    check(run, like, device="meta")


PLACED: dict[str, Callable[[], torch.Tensor]] = {
    "row major": lambda: torch.randn(2, 3, 4),
    "transposed": lambda: torch.randn(2, 3, 4).transpose(0, 2),
    "permuted": lambda: torch.randn(2, 3, 4).permute(1, 2, 0),
    "gapped": lambda: torch.randn(2, 6, 4)[:, ::2],
    "expanded": lambda: torch.randn(3, 4).expand(2, 3, 4),
    "turned and expanded": lambda: torch.randn(2, 3, 4).transpose(1, 2)[..., None].expand(2, 4, 3, 2),
    "of size 1": lambda: torch.randn(1, 3, 1, 5).transpose(1, 3),
    "column": lambda: torch.randn(4, 1).expand(4, 3).t(),
    "without dimensions": lambda: torch.randn(()),
    "empty": lambda: torch.randn(0, 3).t(),
    "channels last": lambda: torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last),
}


@pytest.mark.parametrize("name", PLACED)
def test_empty_like_has_the_strides_of_eager(name: str) -> None:
    def run(x: torch.Tensor, **options: Any) -> torch.Tensor:
        return torch.empty_like(x, **options).fill_(1)

    x = PLACED[name]()
    for options in (
        {},
        {"dtype": torch.float64},
        {"memory_format": torch.preserve_format},
        {"memory_format": torch.contiguous_format},
    ):
        check(run, x, **options)
    if x.dim() == 4:
        check(run, x, memory_format=torch.channels_last)


SHAPES = [
    (12,),
    (3, -1),
    (2, 6),
    (-1,),
    (4, 3),
    (1, 12),
    (2, 2, -1, 1),
    (12, 1, 1),
    (24,),
    (6, 4),
    (5, -1),
    (-1, -1),
    (0, -1),
    (1,),
    (),
]


@pytest.mark.parametrize("name", PLACED)
def test_reshape_is_a_view_where_eagers_is(name: str) -> None:
    def written(x: torch.Tensor, shape: tuple[int, ...]) -> torch.Tensor:
        return torch.reshape(x, shape).mul_(2) if 0 not in x.stride() else torch.reshape(x, shape)

    for shape in SHAPES:
        check(written, PLACED[name](), shape)


@pytest.mark.parametrize("move", [F.pixel_shuffle, F.pixel_unshuffle])
@pytest.mark.parametrize("factor", [1, 2, 3, 0, -1])
def test_pixels(move: Callable[..., Any], factor: int) -> None:
    for x in (
        torch.randn(2, 8, 4, 6),
        torch.randn(8, 4, 6),
        torch.randn(2, 8, 4, 6).contiguous(memory_format=torch.channels_last),
        torch.randn(2, 3, 8, 4, 6),
        torch.randn(2, 6, 4, 8).transpose(1, 3),
        torch.randn(1, 8, 4, 6).half(),
        torch.arange(96).view(1, 4, 4, 6),
        torch.randn(0, 8, 4, 6),
        torch.randn(1, 4, 1, 1),
        torch.randn(8),
    ):
        check(move, x, factor)


@pytest.mark.parametrize("dtype", [None, torch.float32, torch.float64])
def test_safe_softmax(dtype: torch.dtype | None) -> None:
    x = torch.randn(2, 3, 4)
    x[0, 1], x[1, 2, 1], x[1, 0, :2] = -torch.inf, torch.nan, -torch.inf
    for scores in (
        x,
        x.double(),
        x.half(),
        x.bfloat16(),
        x.transpose(0, 2),
        torch.randn(()),
        torch.zeros(0, 3),
        torch.arange(6).view(2, 3),
    ):
        for dim in (-1, 0, 1):
            check(aten._safe_softmax.default, scores, dim, dtype)


def test_none_of_them_leaves_a_program_for_each_size() -> None:
    with on(CORE) as (mode, _):
        for size in range(3, 9):
            torch.zeros(size), torch.ones(size, 2), torch.ones(2).new_zeros(size)
            x = torch.randn(4, size, 2)
            F.pixel_shuffle(x, 2), torch.empty_like(x.transpose(0, 1)), aten._safe_softmax(x, 1)
    assert mode.stats().total.misses == 0


@pytest.mark.parametrize("ops", [CORE, PRIMS], ids=["core", "prims"])
def test_unit_matrices_of_any_size(ops: ed.OpSet) -> None:
    # Torch's decomposition raised for 256 to 65,535 rows.
    for sizes in ((0,), (3,), (3, 5), (256,), (2, 300), (300, 0)):
        check(torch.eye, *sizes, ops=ops)
    for dtype in (*DTYPES, torch.float8_e4m3fn):
        check(torch.eye, 257, 2, dtype=dtype, ops=ops)
    check(torch.eye, 3, device="meta", ops=ops)


def test_kernel_calls() -> None:
    assert kernel_calls(lambda: torch.zeros(3)) == 1
    assert kernel_calls(lambda: F.pixel_shuffle(torch.ones(4, 2, 2), 2)) <= 5
    assert kernel_calls(lambda: torch.ones(2).new_full([3], 2.0)) <= 2


@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize("name", ["empty_like", "zeros_like", "rand_like", "randn_like", "randint_like"])
def test_like_keeps_the_strides_of_dimensions_of_size_1(name: str, ops: ed.OpSet) -> None:
    parameters = (3,) if name == "randint_like" else ()
    for like in (
        torch.zeros(8, 1, 3, 3).to(memory_format=torch.channels_last),
        torch.zeros(4, 1, 3, 1).as_strided((4, 1, 3, 1), (3, 7, 1, 9)),
        torch.zeros(24)[::2].view(4, 1, 3),
        torch.zeros(1, 3).expand(4, 3),
    ):
        made = on_core(lambda like=like: getattr(torch, name)(like, *parameters), ops)
        assert made.stride() == getattr(torch, name)(like, *parameters).stride()


@pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16])
@pytest.mark.parametrize("length", [0, 1, 2, 9])
def test_hann_window_is_eagers(length: int, dtype: torch.dtype | None) -> None:
    for options in ((), (False,)):
        check(lambda *given: torch.hann_window(length, *given, dtype=dtype), *options)
