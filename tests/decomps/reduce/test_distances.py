"""Distances and their gradients at every p, products of three tensors, running log-sum-exps: eager's, coinciding rows included."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor
from torch.testing import assert_close

import eagerdecomp as ed

aten = torch.ops.aten
BARE = CORE - ["aten._cdist_forward", "aten._pdist_forward"]
POWERS = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, math.inf]
DTYPES = [torch.float32, torch.float64]


def rows(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    """Random rows, some of which coincide, or share a coordinate."""
    x = torch.linspace(-2, 2, math.prod(shape), dtype=dtype).reshape(shape).sin() * 3
    if x.dim() == 2 and x.size(0) > 2 and x.size(1):
        x[2] = x[0]
        x[1, 0] = x[0, 0]
    return x


SHAPES = [
    ((3, 4), (5, 4)),
    ((2, 3, 4), (1, 5, 4)),
    ((2, 1, 3, 4), (3, 5, 4)),
    ((30, 4), (5, 4)),
    ((3, 0), (2, 0)),
    ((0, 4), (2, 4)),
    ((1, 4), (1, 4)),
]


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("shapes", SHAPES, ids=str)
@pytest.mark.parametrize("dtype", DTYPES)
def test_distances_between_two_sets(p: float, shapes: Any, dtype: torch.dtype) -> None:
    x, y = (rows(*shape, dtype=dtype) for shape in shapes)
    for mode in (None, 1, 2) if p == 2 else (None,):
        check(aten._cdist_forward.default, x, y, p, mode, ops=BARE)
    distances = torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
    check(aten._cdist_backward.default, torch.ones_like(distances), x, y, p, distances)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("shape", [(4, 3), (1, 3), (2, 1), (7, 2), (3, 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_distances_within_a_set(p: float, shape: tuple[int, int], dtype: torch.dtype) -> None:
    x = rows(*shape, dtype=dtype)
    check(aten._pdist_forward.default, x, p, ops=BARE)
    distances = aten._pdist_forward(x, p)
    check(aten._pdist_backward.default, torch.ones_like(distances).cumsum(0), x, p, distances)


def test_distances_within_a_set_on_prims() -> None:
    ops = ed.prims() | ["aten.index.Tensor", "aten.bmm.default", "aten.index_put.default"]
    for shape in ((5, 3), (7, 2)):
        x = rows(*shape)
        check(F.pdist, x, ops=ops)
        distances = F.pdist(x)
        check(aten._pdist_backward.default, torch.ones_like(distances), x, 2.0, distances, ops=ops)


@pytest.mark.parametrize("p", POWERS)
@pytest.mark.parametrize("odd", [math.nan, math.inf])
def test_gradients_of_what_is_not_finite(p: float, odd: float) -> None:
    x, y, z = rows(5, 3), rows(4, 3) + 0.1, rows(5, 3)
    z[0, 1] = z[1, 1] = odd
    z[3, 2] = odd  # the only one of its column
    between, within = aten._cdist_forward(z, y, p, 2), aten._pdist_forward(z, p)
    check(aten._cdist_backward.default, torch.ones_like(between), z, y, p, between)
    check(aten._pdist_backward.default, torch.ones_like(within), z, p, within)
    between, within = aten._cdist_forward(x, y, p, 2), aten._pdist_forward(x, p)
    check(aten._cdist_backward.default, torch.full_like(between, odd), x, y, p, between)
    check(aten._pdist_backward.default, torch.full_like(within, odd), x, p, within)


@pytest.mark.parametrize("p", [0.5, 1.0, 2.0, 3.0, math.inf])
@pytest.mark.parametrize("shapes", [((300, 2), (260, 2)), ((2, 90, 9), (80, 9))], ids=str)
def test_gradients_by_blocks(p: float, shapes: Any) -> None:
    """More pairs than one block holds, and more coordinates."""
    x, y = (torch.rand(shape, dtype=torch.float64, generator=torch.Generator().manual_seed(0)) for shape in shapes)
    between = torch.cdist(x, y, p, compute_mode="donot_use_mm_for_euclid_dist")
    assert_close(on_core(lambda: aten._cdist_backward(between, x, y, p, between)), aten._cdist_backward(between, x, y, p, between))
    x = x.flatten(0, -2)
    within = torch.pdist(x, p)
    assert_close(on_core(lambda: aten._pdist_backward(within, x, p, within)), aten._pdist_backward(within, x, p, within))


@pytest.mark.parametrize("p", [0.5, 1.0, 1.5, 2.0, 3.0, math.inf])
def test_gradients_agree_with_finite_differences(p: float) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(n, 2, dtype=torch.float64, requires_grad=True) for n in (3, 2))

    def run() -> bool:
        between = torch.autograd.gradcheck(lambda a, b: torch.cdist(a, b, p), (x, y))
        return between and torch.autograd.gradcheck(lambda a: torch.pdist(a, p), (x,))

    assert on_core(run)
    assert on_core(run, BARE)


TYPES = [torch.float32, torch.float64, torch.bfloat16, torch.complex64, torch.int64]


@pytest.mark.parametrize("dtype", TYPES)
def test_products_of_three(dtype: torch.dtype) -> None:
    # Small integers: exact in every type, whichever sum comes first.
    first, weight, second, grad = ((torch.arange(n) % 5 - 2).to(dtype) for n in (12, 90, 24, 20))
    first, weight, second, grad = first.view(4, 3), weight.view(5, 3, 6), second.view(4, 6), grad.view(4, 5)
    product = aten._trilinear.default
    check(product, first, weight, second, [1, 3], [0], [1, 2], [2, 3])
    check(product, grad, weight, second, [2, 3], [0], [1, 2], [1, 3])
    check(product, first, grad, second, [1, 3], [2, 3], [1, 2], [0])
    check(product, first, weight, grad, [1, 3], [0], [2, 3], [1, 2])
    check(product, first, weight, second, [1, 3], [0], [1, 2], [0, 2, 3], 0)
    check(product, first, weight, second, [1, 3], [0], [1, 2], [2, 3], 4)


@pytest.mark.parametrize("biased", [False, True])
def test_bilinear_layers_train(biased: bool) -> None:
    torch.manual_seed(0)
    leaves = [torch.randn(s, dtype=torch.float64, requires_grad=True) for s in ((2, 3), (2, 2), (3, 3, 2), (3,))[: 3 + biased]]
    assert on_core(lambda: torch.autograd.gradcheck(F.bilinear, leaves))
    assert on_core(lambda: torch.autograd.gradgradcheck(F.bilinear, leaves))


@pytest.mark.full
@given(length=st.integers(1, 70), spread=st.sampled_from([1.0, 30.0, 1e4]), dim=st.sampled_from([0, 1]))
@settings(max_examples=15)
def test_running_log_sum_exp(length: int, spread: float, dim: int) -> None:
    x = torch.randn(length, 3).mul(spread)
    check(aten.logcumsumexp.default, x if dim == 0 else x.t(), dim)


TYPES = [torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex32, torch.int64]


@pytest.mark.parametrize("dtype", TYPES)
def test_running_log_sum_exp_of_every_type(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for shape, dim in (((5,), 0), ((3, 7), -1), ((), 0), ((0, 3), 0), ((), 1), ((3,), -2)):
        wide = torch.complex64 if dtype.is_complex else torch.float32
        check(aten.logcumsumexp.default, torch.randn(shape, dtype=wide).to(dtype), dim)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("spread", [0.3, 3.0, 17.0])
def test_running_log_sum_exp_of_complex_numbers_is_on_eagers_branch(spread: float, dtype: torch.dtype) -> None:
    torch.manual_seed(1)
    for length in (1, 2, 3, 50, 130):
        x = torch.complex(torch.randn(4, length) * spread, torch.randn(4, length) * 9 * spread).to(dtype)
        check(aten.logcumsumexp.default, x, 1)
        check(aten.logcumsumexp.default, x.t(), 0)
    falling = torch.complex(-torch.arange(40.0) * spread, torch.arange(40.0) * 2).to(dtype)
    for x in (falling, falling.flip(0), falling.conj(), falling.real + 0j):
        check(aten.logcumsumexp.default, x, 0)


def test_running_log_sum_exp_over_infinite_and_absent_complex_numbers() -> None:
    nan, inf = math.nan, math.inf
    rows = [[-inf, -inf, 1, 2, 0], [0, -inf, 2, 1, -inf], [1, nan, 2, 0, 3], [2, 1, -1, nan, 0]]
    x = torch.complex(torch.tensor(rows), torch.tensor([4.0, 9.0, -7.0, 5.0, 11.0]).expand(4, 5).contiguous())
    check(aten.logcumsumexp.default, x[:, 1:], 1)
    check(aten.logcumsumexp.default, x, 1)


def test_running_log_sum_exp_over_infinities() -> None:
    x = torch.tensor([[0, 1, math.inf, 2], [-math.inf, -math.inf, 3, 1], [1, math.nan, 0, 2], [-1e30, 5, -math.inf, 1e30]])
    check(aten.logcumsumexp.default, x, 1)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.complex64])
def test_logcumsumexp_is_contiguous(dtype: torch.dtype) -> None:
    for x in (torch.randn(2, 3, 4, 2).contiguous(memory_format=torch.channels_last), torch.randn(2, 3, 4, 2).transpose(1, 3)):
        for dim in range(4):
            check(aten.logcumsumexp.default, x.to(dtype), dim)


def test_running_log_sum_exp_twice_differentiable() -> None:
    x = torch.randn(2, 5, dtype=torch.float64, requires_grad=True)
    assert on_core(lambda: torch.autograd.gradcheck(lambda a: a.logcumsumexp(1), (x,)))
    assert on_core(lambda: torch.autograd.gradgradcheck(lambda a: a.logcumsumexp(1), (x,)))


def test_stays_short() -> None:
    x, y = rows(4, 6), rows(5, 6)
    between, within = torch.cdist(x, y), torch.pdist(x)
    assert kernel_calls(lambda: aten._cdist_backward(between, x, y, 2.0, between)) <= 22
    assert kernel_calls(lambda: aten._pdist_backward(within, x, 2.0, within)) <= 38
    assert kernel_calls(lambda: aten.logcumsumexp(x, 1)) <= 40


_ENDS = (math.inf, -math.inf, math.nan, 0.5, -800.0)
_ANGLES = (0.0, 0.785, -2.0, math.inf, math.nan, 3.0)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("op", ["logaddexp", "logcumsumexp"])
def test_exponentials_of_complex_infinities_are_added_as_in_eager(op: str, dtype: torch.dtype) -> None:
    values = torch.tensor([complex(end, angle) for end in _ENDS for angle in _ANGLES], dtype=dtype)
    x, y = (one.flatten() for one in torch.meshgrid(values, values, indexing="ij"))
    if op == "logaddexp":
        check(lambda x, y: torch.view_as_real(torch.logaddexp(x, y)), x, y)
    else:
        check(lambda x: torch.view_as_real(torch.logcumsumexp(x, 1)), torch.stack([x, y], 1))


def test_logcumsumexp_of_several_infinities_keeps_the_angle_of_their_sum() -> None:
    x = torch.tensor([1 + 1j, complex(math.inf, 0.785), complex(math.inf, 0.5), 3, complex(math.inf, 1.2), 2j])
    check(lambda x: torch.view_as_real(torch.logcumsumexp(x, 0)), x)
    assert on_core(lambda: torch.logcumsumexp(x, 0))[-1].imag.item() == pytest.approx(math.pi / 4)


def test_logaddexp_of_complex_operands_has_eagers_strides() -> None:
    x, y = torch.randn(3, 4, dtype=torch.complex64), torch.randn(4, 3, dtype=torch.complex64).t()
    check(torch.logaddexp, x, y)
    check(torch.logaddexp, y, y)
    check(torch.logaddexp, x.conj(), y[:1])


@pytest.mark.parametrize("ops", [BARE, ed.tiny(), ed.prims()])
def test_the_largest_difference_skips_nan_in_cdist_only(ops: ed.OpSet) -> None:
    x1, x2 = rows(3, 4), rows(5, 4)
    x1[1, 2], x2[3, 0], x2[4] = math.nan, math.nan, math.nan
    x1[2, 1] = x2[2, 1] = math.inf
    check(torch.cdist, x1, x2, p=math.inf, ops=ops)
    check(torch.pdist, x2, p=math.inf, ops=ops)
