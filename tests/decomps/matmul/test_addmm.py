"""Products to which something is added."""

from __future__ import annotations

import pytest
import torch
from on_core import CORE, check, kernel_calls

import eagerdecomp as ed

TYPES = (torch.float32, torch.float64, torch.complex64, torch.bfloat16, torch.int64)


def rand(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.randn(shape) * 4).to(dtype)


ADDED = {
    "whole": lambda dtype: rand(2, 3, 5, dtype=dtype),
    "turned": lambda dtype: rand(5, 3, 2, dtype=dtype).permute(2, 1, 0),
    "a row": lambda dtype: rand(5, dtype=dtype),
    "a column": lambda dtype: rand(2, 3, 1, dtype=dtype),
    "a number": lambda dtype: rand(dtype=dtype),
}


@pytest.mark.parametrize("factors", [{}, {"beta": 2}, {"alpha": 3}, {"beta": 0, "alpha": 2}, {"beta": 3, "alpha": 0}], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("added", ADDED)
def test_baddbmm(added: str, dtype: torch.dtype, factors: dict[str, int]) -> None:
    torch.manual_seed(0)
    check(torch.baddbmm, ADDED[added](dtype), rand(2, 3, 4, dtype=dtype), rand(2, 5, 4, dtype=dtype).mT, **factors)


@pytest.mark.parametrize("factors", [{}, {"beta": 2}, {"alpha": 3}, {"beta": 0, "alpha": 2}], ids=str)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(3,), (1,), ()], ids=str)
def test_addmv(shape: tuple[int, ...], dtype: torch.dtype, factors: dict[str, int]) -> None:
    torch.manual_seed(0)
    for mat in (rand(3, 4, dtype=dtype), rand(4, 3, dtype=dtype).mT):
        check(torch.addmv, rand(*shape, dtype=dtype), mat, rand(4, dtype=dtype), **factors)


def test_what_is_not_added_need_not_be_a_number() -> None:
    nan = torch.full((2, 3, 5), float("nan"))
    check(torch.baddbmm, nan, rand(2, 3, 4), rand(2, 4, 5), beta=0)
    check(torch.addmv, nan[0, :, 0], rand(3, 4), rand(4), beta=0)


def test_empty_products() -> None:
    check(torch.baddbmm, rand(2, 3, 5), rand(2, 3, 0), rand(2, 0, 5))
    check(torch.baddbmm, rand(0, 3, 5), rand(0, 3, 4), rand(0, 4, 5))
    check(torch.addmv, rand(3), rand(3, 0), rand(0))
    check(torch.addmv, rand(0), rand(0, 4), rand(4))
    for shape in ((), (1,)):
        for mat in (rand(0, 4), rand(3, 0), rand(0, 0)):
            for beta in (1, 2.5, 0):
                check(torch.addmv, rand(*shape), mat, rand(mat.size(1)), beta=beta)
    check(torch.addmv, rand(1), rand(3, 0), rand(2))


def test_stays_short() -> None:
    assert kernel_calls(lambda: torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5))) == 2 + 3
    vector, matrix = torch.ones(3), torch.ones(3, 3)
    assert kernel_calls(lambda: torch.addmv(vector, matrix, vector)) == 4


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.complex64, torch.int64, torch.uint8])
def test_cross_products_round_as_eager_does(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x, y = (torch.randn(4, 3, 50).mul(8).to(dtype) for _ in range(2))
    exact = dtype not in (torch.float32, torch.complex64)  # where the compiler of ATen's kernel fuses a product and the difference
    check(torch.linalg.cross, x, y, dim=1, exact=exact)
    check(torch.linalg.cross, x, y[:1], dim=-2, exact=exact)
    check(torch.linalg.cross, x.mT, y[..., :1].mT, exact=exact)
    check(torch.linalg.cross, x[:, :, :0], y[:, :, :0], dim=1)
    check(torch.cross, x.permute(1, 2, 0), y.permute(1, 2, 0), dim=0, exact=exact)
    check(lambda x, y: torch.linalg.cross(x, y, dim=1, out=torch.empty_like(x)), x, y, exact=exact)
    if dtype.is_floating_point:

        def gradients(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
            leaves = x.requires_grad_(), y.requires_grad_()
            return torch.autograd.grad(torch.linalg.cross(*leaves, dim=1).sum(), leaves)

        check(gradients, x, y, exact=exact)


SETS = {"core": CORE, "tiny": ed.tiny(), "prims": ed.prims()}
#: Rows, summed elements and columns of products without elements, and of sums of nothing.
EMPTY = [(2, 0, 2), (0, 3, 2), (2, 3, 0)]


@pytest.mark.parametrize("beta", [1, 2, 0, True, 2.5])
@pytest.mark.parametrize("dtype", [torch.bool, torch.int8])
@pytest.mark.parametrize("ops", SETS)
def test_products_that_sum_nothing_scale_the_added_term_in_place(ops: str, dtype: torch.dtype, beta: float) -> None:
    """Eager runs `mul_` there, which refuses factors of a higher kind; for other products it casts the factors."""
    for rows, inner, columns in EMPTY:
        one, other = (torch.ones(2, *size).to(dtype) for size in ((rows, inner), (inner, columns)))
        added = torch.ones(rows, columns).to(dtype)
        for op, batch in ((torch.addbmm, 2), (torch.addbmm, 1), (torch.addbmm, 0), (torch.baddbmm, 1)):
            check(op, added, one[:batch], other[:batch], beta=beta, ops=SETS[ops])
        check(torch.addmm, added, one[0], other[0], beta=beta, ops=SETS[ops])


@pytest.mark.parametrize("ops", SETS)
def test_bool_matrices_without_elements_have_products(ops: str) -> None:
    for rows, inner, columns in [(2, 0, 2), (2, 3, 2)]:
        matrix, vector = torch.ones(rows, inner).bool(), torch.ones(inner).bool()
        check(torch.mv, matrix, vector, ops=SETS[ops])
        for beta in (0, 2):
            check(torch.addmv, torch.ones(rows).bool(), matrix, vector, beta=beta, ops=SETS[ops])
            check(torch.addmv, torch.ones(1).bool(), matrix, vector, beta=beta, ops=SETS[ops])
        check(torch.mm, matrix, torch.ones(inner, columns).bool(), ops=SETS[ops])
        check(torch.bmm, matrix[None], torch.ones(1, inner, columns).bool(), ops=SETS[ops])
