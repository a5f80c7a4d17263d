"""Products to which something is added: of nothing, of bool, and what they cost."""

from __future__ import annotations

import pytest
import torch
from on_core import CORE, check, kernel_calls

import eagerdecomp as ed


def test_stays_short() -> None:
    assert kernel_calls(lambda: torch.baddbmm(torch.ones(2, 3, 5), torch.ones(2, 3, 4), torch.ones(2, 4, 5))) == 2 + 3
    vector, matrix = torch.ones(3), torch.ones(3, 3)
    assert kernel_calls(lambda: torch.addmv(vector, matrix, vector)) == 4


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
