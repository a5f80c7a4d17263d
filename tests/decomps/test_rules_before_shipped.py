"""Each repair against eager, on the calls that the shipped rule gets wrong among others."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check, on_core

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.mark.parametrize("index", [torch.tensor(v, dtype=torch.int64) for v in (4, [0, -1, 5], [[1, 2], [3, 3]], [])])
@pytest.mark.parametrize("x", [torch.randn(2, 3), torch.randn(3, 2).t(), torch.arange(6)])
def test_take_gives_fresh_elements_by_flat_index(x: torch.Tensor, index: torch.Tensor) -> None:
    check(torch.take, x, index)


@pytest.mark.parametrize("x", [torch.randn(4, 6), torch.randn(6, 4).t(), torch.randn(4, 12)[:, ::2]])
@pytest.mark.parametrize("size", [(24,), (2, 12), (4, 6), (-1, 3)])
def test_view_copy_takes_any_strides(x: torch.Tensor, size: tuple[int, ...]) -> None:
    check(aten.view_copy.default, x, list(size))


@pytest.mark.parametrize("x", [torch.randn(2, 4, 4, 6), torch.randn(6, 4, 4, 2).permute(3, 2, 1, 0), torch.randn(1, 2, 4, 4, 4)])
def test_adaptive_max_pool3d_takes_any_strides(x: torch.Tensor) -> None:
    check(torch.nn.functional.adaptive_max_pool3d, x, (2, 2, 2), strides=False)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("span", [(-2, 3, 50), (0.3, 50, 7), (1, 0, 5000), (5, 5, 2), (1, 2, 1), (1, 2, 0)])
def test_linspace_of_float16_and_bfloat16_rounds_each_step_as_the_kernel_does(
    span: tuple[float, float, int], dtype: torch.dtype
) -> None:
    check(torch.linspace, *span, dtype=dtype, exact=True)


@pytest.mark.parametrize("ends", [(1.0, float("inf")), (float("-inf"), 0.0), (-3.0, 0.5), (1e38, -1e38)])
def test_linspace_counts_the_middle_of_an_odd_number_from_the_end(ends: tuple[float, float]) -> None:
    check(torch.linspace, *ends, 3)


@pytest.mark.parametrize("order", [float("inf"), -float("inf"), 2, 1.5, 0])
def test_a_norm_with_a_wider_dtype_is_computed_in_it(order: float) -> None:
    x = torch.randn(50, dtype=torch.complex64)
    check(torch.linalg.vector_norm, x, order, dtype=torch.complex128, exact=order in (float("inf"), -float("inf")))


@pytest.mark.parametrize("dim", [-3, 0, -2, (-3, -1), 5])
def test_a_norm_of_no_elements_counts_dimensions_from_either_end(dim: int | tuple[int, ...]) -> None:
    for order in (float("inf"), -float("inf"), 2):
        check(torch.linalg.vector_norm, torch.zeros(2, 0, 3), order, dim)


@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("shape", [(0,), (0, 3), (2, 0)])
@pytest.mark.parametrize("loss", ["mse_loss", "smooth_l1_loss", "huber_loss"])
def test_losses_of_nothing_have_gradients_of_nothing(loss: str, shape: tuple[int, ...], reduction: int) -> None:
    def gradient(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        value = getattr(torch.nn.functional, loss)(x, y, reduction=("none", "mean", "sum")[reduction])
        return torch.autograd.grad(value.sum(), x)[0]

    check(gradient, torch.empty(shape, requires_grad=True), torch.empty(shape))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_linspace_of_integers_starts_and_ends_at_integers(dtype: torch.dtype) -> None:
    for ends in ((0.9, 120), (5.9, 1.2), (0, 1), (100, 3), (7, 7), (-2.5, 9.7), (0, 300), (-129, 3)):
        for steps in (0, 1, 2, 3, 7, 50, 333):
            check(torch.linspace, *ends, steps, dtype=dtype)
    check(lambda out: torch.linspace(0.9, 100, 50, out=out), torch.empty(50, dtype=dtype))


@pytest.mark.parametrize("alpha", [0, 1, 2, -1, True, False])
def test_bools_are_added_on_prims(alpha: int | bool) -> None:
    left, right = (
        torch.tensor([[True, False, True], [False, False, True]]),
        torch.tensor([[True, True, False], [False, True, False]]),
    )
    for x, y in (
        (left, right),
        (left.t(), right.t()),
        (left[:, :1], right),
        (left, torch.tensor(True)),
        (torch.tensor(False), right),
    ):
        check(torch.add, x, y, alpha=alpha, ops=ed.prims())
    check(torch.add, left, True, alpha=alpha, ops=ed.prims())
    check(lambda x, y: x.add_(y, alpha=alpha), left, right, ops=ed.prims())
    check(torch._foreach_add, [left], [right], alpha=alpha, ops=ed.prims())
    if not isinstance(alpha, bool):
        check(torch.add, left, torch.arange(3), alpha=alpha, ops=ed.prims())


@pytest.mark.parametrize("exponent", [True, False, 1, 2, 2.0])
def test_powers_of_bools_on_prims(exponent: float) -> None:
    for x in (torch.tensor([[True, False, True]]).t(), torch.arange(3)):
        check(torch.pow, x, exponent, ops=ed.prims())
        check(torch._foreach_pow, [x], exponent, ops=ed.prims())


def test_on_prims_views_of_numbers_with_lazy_bits_stay_views() -> None:
    z = torch.randn(3, 4, dtype=torch.complex64)
    for shape in ([12], [2, 6], [3, 4, 1], [3, 2, 2]):
        check(lambda z: z.conj().view(shape), z, ops=ed.prims())  # noqa: B023
    check(lambda z: z.conj().imag.view(3, 2, 2), z, ops=ed.prims())
    check(lambda z: z.conj().view(3, 2, 2).mul_(2), z, ops=ed.prims())


ENDS = {
    "numbers": (0, 1j),
    "numbers the other way": (1j, 2),
    "complex tensors": (torch.tensor(1j), torch.tensor(2)),
    "a complex tensor and a scalar": (torch.tensor(1j), 2),
    "a number and a complex tensor": (0, torch.tensor(1j)),
    "a tensor and a complex number": (torch.tensor(0.0), 1j),
    "a complex scalar and a tensor": (1j, torch.tensor(2.0)),
}


@pytest.mark.full
@pytest.mark.parametrize("steps", [0, 1, 2, 5])
@pytest.mark.parametrize("dtype", [None, torch.complex64, torch.complex128])
@pytest.mark.parametrize("ends", ENDS)
@pytest.mark.parametrize("run", [torch.linspace, torch.logspace], ids=["linspace", "logspace"])
def test_steps_between_complex_ends(run: Callable[..., Any], ends: str, dtype: torch.dtype | None, steps: int) -> None:
    check(run, *ENDS[ends], steps, dtype=dtype)


@pytest.mark.parametrize("dtype", [torch.bool, torch.complex32])
@pytest.mark.parametrize("ends", [(0, 3), (torch.tensor(0), torch.tensor(3)), (0, torch.tensor(3)), (torch.tensor(0), 3)], ids=str)
@pytest.mark.parametrize("run", [torch.linspace, torch.logspace], ids=["linspace", "logspace"])
def test_steps_of_dtypes_without_a_kernel_are_refused(run: Callable[..., Any], ends: tuple[Any, Any], dtype: torch.dtype) -> None:
    check(lambda: run(*ends, 3, dtype=dtype))
    assert on_core(lambda: run(*ends, 1, dtype=dtype)).dtype is dtype


@pytest.mark.parametrize("dtype", [torch.int64, torch.uint8])
def test_logspace_of_one_integer_is_the_power_of_the_uncut_start(dtype: torch.dtype) -> None:
    check(torch.logspace, 0.5, 3, 1, dtype=dtype, exact=True)
    check(torch.logspace, 0.5, 3, 3, dtype=dtype, exact=True)
