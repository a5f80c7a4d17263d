"""Divisors, mantissas, hashes and writes through strides on Core ATen, all exactly eager's."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls

import eagerdecomp as ed

aten = torch.ops.aten

INTEGERS = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
FLOATS = (torch.float32, torch.float64, torch.bfloat16, torch.float16)


@pytest.mark.full
@given(st.sampled_from(INTEGERS), st.lists(st.tuples(*[st.integers(-(2**63), 2**63 - 1)] * 2), min_size=1, max_size=6))
@example(torch.int64, [(7540113804746346429, 4660046610375530309)])  # neighbours of Fibonacci: the most steps
@example(torch.int8, [(89, 55), (-128, -128), (-128, 0), (0, -128)])
@example(torch.int64, [(-(2**63), 0), (-(2**63), -(2**63)), (0, 0), (12, -18)])
def test_gcd(dtype: torch.dtype, pairs: list[tuple[int, int]]) -> None:
    left, right = (torch.tensor(column).to(dtype) for column in zip(*pairs, strict=True))
    check(torch.gcd, left, right, exact=True)


@pytest.mark.parametrize("dtype", FLOATS)
def test_frexp(dtype: torch.dtype) -> None:
    places = [1.0, 0.0, -0.0, torch.inf, -torch.inf, torch.nan, 1e-40, -3.7, 5e-324, -2.2e-308, 1e300, 0.5, 6e-8, 65504]
    x = torch.tensor(places, dtype=torch.float64).to(dtype)
    check(torch.frexp, x, exact=True)
    check(torch.frexp, x[:12].view(3, 4).t(), exact=True)
    check(torch.frexp, x[0], exact=True)
    check(torch.frexp, x[:0], exact=True)
    check(torch.frexp, torch.arange(3))


@pytest.mark.parametrize(
    ("size", "stride", "offset"), [((2, 2), (1, 2), 0), ((2, 2), (1, 2), 3), ((3,), (4,), 2), ((2,), (1,), None), ((), (), 1)]
)
def test_as_strided_scatter(size: tuple[int, ...], stride: tuple[int, ...], offset: int | None) -> None:
    source = torch.rand(size)
    base = torch.rand(24)
    for x in (base[:12].view(3, 4), base[:12].view(3, 4).t(), base[6:18].view(3, 4), base[::2].view(3, 4)):
        check(torch.as_strided_scatter, x, source, size, stride, offset, exact=True)
    check(torch.as_strided_scatter, base[:12], torch.rand(5), size, stride, offset)
    leaf = base[:12].clone().requires_grad_()
    check(lambda x, s: torch.autograd.grad(torch.as_strided_scatter(x, s, size, stride, offset).sin().sum(), x), leaf, source)


@pytest.mark.full
@pytest.mark.parametrize("ops", [CORE - ["aten.copy", "aten.fill"], ed.tiny(), ed.prims()], ids=["core", "tiny", "prims"])
def test_functional_copies_have_the_strides_of_their_input(ops: ed.OpSet) -> None:
    base = torch.arange(24.0)
    for x in (base[6:18].view(3, 4), base[2:14].view(4, 3).t(), base[:24].view(3, 8)[:, 1:5], torch.arange(4.0).expand(3, 4)):
        for source in (torch.arange(4), torch.rand(3, 1), torch.rand(5), torch.tensor(2.5)):
            check(lambda x, s: (lambda r: (r, r.storage_offset()))(aten.copy.default(x, s)), x, source, ops=ops)
    for number in (torch.tensor(2.5), torch.tensor(3), torch.rand(1)):
        for fill in (aten.fill.Tensor, aten.fill_.Tensor):
            check(fill, torch.zeros(2, 3).t(), number, ops=ops)


DIAGONALS = ((0, 0, 1), (1, 0, 1), (-2, 0, 1), (0, 1, 0), (0, 1, -1), (9, 0, 1), (-9, 0, 1), (0, 0, 0), (0, 0, 5))


@pytest.mark.full
@pytest.mark.parametrize("place", DIAGONALS, ids=str)
def test_diagonal_scatter(place: tuple[int, int, int]) -> None:
    offset, one, other = place
    base = torch.rand(48)
    matrix, cube = base[:12].view(3, 4), base[:24].view(2, 3, 4)
    overlapping = (torch.rand(()).expand(3, 4), torch.rand(4).expand(3, 4), torch.rand(3, 1).expand(3, 4), base.unfold(0, 4, 2))
    apart = (base[6:18].view(3, 4), base[::2].view(6, 4)[:3], base[:24].view(3, 8)[:, 1:5], base[:24].view(4, 6).t()[2:5])
    for x in (matrix, matrix.t(), cube, cube.transpose(0, 2), *overlapping, *apart, matrix[:0], matrix.int(), matrix + 1j):
        rank = x.dim()
        fits = one % rank != other % rank if -rank <= one < rank and -rank <= other < rank else False
        shape = torch.diagonal(x, offset, one, other).shape if fits else (3,)
        check(torch.diagonal_scatter, x, torch.rand(shape), offset, one, other, exact=True)
    for view in (torch.conj, lambda x: x.imag, lambda x: x.conj().imag):  # with lazy bits, which copies of arguments have not
        check(lambda x, row, view=view: torch.diagonal_scatter(view(x), row.conj().real), matrix.add(1j), torch.rand(3).add(2j))
    check(torch.diagonal_scatter, torch.empty(()), torch.rand(3))


SCATTERS = {
    "select": (torch.select_scatter, (0, -1), (1, 0), (2, 0), (0, 5)),
    "slice": (torch.slice_scatter, (0, 1, 2), (1, 0, None, 4), (1, 0, None, 0), (-1, 1, 2, 1)),
    "diagonal": (torch.diagonal_scatter, (0, 0, 1), (-1, 1, 0)),
    "as_strided": (torch.as_strided_scatter, ((3,), (1,)), ((3,), (1,), 1), ((3,), (0,))),
}


@pytest.mark.full
@pytest.mark.parametrize("name", SCATTERS)
def test_a_scatter_has_the_strides_of_its_input(name: str) -> None:
    function, *places = SCATTERS[name]
    few = CORE - {aten.select_scatter.default, aten.slice_scatter.default}
    base = torch.arange(48.0)
    apart = (base[6:18].view(3, 4), base[2:14].view(4, 3).t(), base[:24].view(3, 8)[:, 1:5], torch.arange(4.0).expand(3, 4))
    for x, place in itertools.product((base[:12].view(3, 4), *apart), places):
        for source in (torch.rand(4), torch.rand(3), torch.rand(1, 4), torch.rand(3, 1)):
            for ops in (few, ed.prims()):
                check(lambda x, s, place=place: (lambda r: (r, r.storage_offset()))(function(x, s, *place)), x, source, ops=ops)


def test_as_strided_scatter_refuses_gradients_of_what_is_not_contiguous() -> None:
    x = torch.rand(4, 3, requires_grad=True)
    check(lambda: torch.as_strided_scatter(x.t(), torch.rand(3), (3,), (1,)))


@pytest.mark.parametrize("ops", [CORE, ed.tiny(), ed.prims()], ids=["core", "tiny", "prims"])
@pytest.mark.parametrize("dtype", FLOATS)
def test_ldexp_rounds_once_and_overflows_only_where_the_result_does(dtype: torch.dtype, ops: ed.OpSet) -> None:
    bounds = torch.finfo(dtype)
    numbers = [0.0, -0.0, 1.5, -3.0, math.inf, bounds.max, bounds.tiny, bounds.smallest_normal * 1.3, bounds.smallest_normal / 4]
    x = torch.tensor(numbers, dtype=torch.float64).to(dtype)[:, None]
    exponents = [0, 1, -1, 15, -24, -25, -52, -126, -149, -150, 200, -1023, 1024, -1074, -1075, -1100, 2098, -2098]
    wide = [2**31, 2**32 + 1, -(2**63), 2**63 - 1]  # of which 32 bits count
    for drawn in (torch.tensor(exponents), torch.tensor(wide), torch.tensor([-128, 127], dtype=torch.int8)):
        check(torch.ldexp, *torch.broadcast_tensors(x, drawn), ops=ops, exact=True)


def test_diagonal_scatter_takes_no_other_sizes_and_has_a_gradient() -> None:
    x = torch.rand(3, 4)
    check(lambda: torch.diagonal_scatter(x, torch.rand(2)))
    check(lambda: torch.diagonal_scatter(x, torch.rand(1)))
    check(lambda: torch.diagonal_scatter(x, torch.rand(())))
    leaf, row = x.clone().requires_grad_(), torch.rand(3, requires_grad=True)
    check(lambda a, b: torch.autograd.grad(torch.diagonal_scatter(a, b).sum(), (a, b)), leaf, row)  # of an expanded gradient
    check(lambda a, b: torch.autograd.grad(torch.diagonal_scatter(a, b).sin().sum(), (a, b)), leaf, row)
    column = torch.rand(3)
    assert kernel_calls(lambda: torch.diagonal_scatter(x, column)) == 3
