"""The fuzzer's criteria of linear algebra accept results that differ only by arbitrary choices, and reject wrong results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.fuzz_roundings import matched_to
from conformance.fuzz_running import Program, first_difference
from eagerdecomp import Backend
from eagerdecomp.conformance.criteria import CRITERIA, is_right
from eagerdecomp.conformance.suite import Profile, run_conformance
from eagerdecomp.conformance.trial import Effort

aten = torch.ops.aten


def full(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def low(rows: int, columns: int) -> Tensor:
    """Return a matrix of rank one."""
    return full(rows, 1) @ full(1, columns)


def _flipped(basis: Tensor, upper: Tensor) -> list[Tensor]:
    return [-basis, -upper]


#: Op -> a call, functions that change eager's results to other right ones, and to wrong ones.
CASES: dict[str, tuple[Any, list[Any], Callable[..., Any], Callable[..., Any]]] = {
    "eigenvalues": (aten.linalg_eigvals.default, [full(5, 5)], lambda w: [w.flip(0)], lambda w: [w[[0, 0, 2, 3, 4]]]),
    "eigenvectors": (aten.linalg_eig.default, [full(4, 4)], lambda w, v: [w.flip(0), -v.flip(1)], lambda w, v: [w, v.flip(1)]),
    "symmetric": (aten.linalg_eigh.default, [full(4, 4)], lambda w, v: [w, -v], lambda w, v: [w, v.flip(1)]),
    "singular values": (aten.linalg_svd.default, [full(4, 3), False], lambda u, s, v: [-u, s, -v], lambda u, s, v: [-u, s, v]),
    "condition": (aten.linalg_cond.default, [low(4, 4)], lambda c: [c * 0 + torch.inf], lambda c: [c * 0 + 7]),
    "orthogonal": (aten.linalg_qr.default, [low(4, 4)], _flipped, lambda q, r: [q, -r]),
    "orthogonal, of full rank": (aten.linalg_qr.default, [full(4, 4)], None, _flipped),
    "root, as far as there is one": (
        aten.linalg_cholesky_ex.default,
        [torch.ones(3, 3)],
        lambda root, info: [torch.tensor([[1.0, 0, 0], [1, 1e-4, 0], [1, 480, 3]]), info * 0 + 3],
        lambda root, info: [root * torch.tensor([[1.0], [1], [2]]), info],
    ),
    "pivots": (
        aten.linalg_lu.default,
        [torch.ones(4, 4)],
        lambda order, lower, upper: [order[[0, 2, 1, 3]], lower, upper],
        lambda order, lower, upper: [order, lower, 2 * upper],
    ),
    "pivots that are not": (
        aten.linalg_lu.default,
        [torch.tensor([[2.0, 1.0], [1.9, 5.0]])],
        None,
        lambda order, lower, upper: [
            order.flip(0),
            torch.tensor([[1.0, 0.0], [2 / 1.9, 1.0]]),
            torch.tensor([[1.9, 5.0], [0.0, 1 - 10 / 1.9]]),
        ],
    ),
    "symmetric factors": (
        aten.linalg_ldl_factor_ex.default,
        [full(1, 4).mT @ full(1, 4)],
        lambda packed, pivots, info: [packed + 1e-8 * torch.eye(4), pivots, info],
        lambda packed, pivots, info: [packed * 1.01, pivots, info],
    ),
    "solution": (
        aten.linalg_solve_ex.default,
        [full(4, 4), full(4, 2)],
        lambda x, info: [x * (1 + 1e-6), info],
        lambda x, info: [x, info + 1],
    ),
    "solution of what is singular": (
        aten.linalg_solve_ex.default,
        [low(4, 4), full(4, 2)],
        lambda x, info: [x * torch.nan, info + 3],
        lambda x, info: [torch.ones_like(x), info * 0],  # not computed from x, which is NaN if LAPACK finds a pivot of 0
    ),
    "solution of a rank that nobody looked at": (
        aten.linalg_lstsq.default,
        [low(4, 4), full(4, 2)],
        lambda x, residuals, rank, values: [x, residuals, rank, values],
        lambda x, residuals, rank, values: [2 * x, residuals, rank, values],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_arbitrary_choices_are_accepted_and_wrong_results_are_not(name: str) -> None:
    op, args, other, wrong = CASES[name]
    assert op._schema.name in CRITERIA
    found = op(*args)
    results = [found] if isinstance(found, Tensor) else list(found)
    if other is not None:
        assert is_right(op, args, {}, results, only_open=True)
        assert is_right(op, args, {}, other(*results), only_open=True)
    assert is_right(op, args, {}, wrong(*results), only_open=True) is False


#: A kernel that returns other factors than eager, and whether they are right.
KERNELS: dict[str, tuple[Any, Callable[..., Any], bool]] = {
    "signs of QR": (aten.linalg_qr.default, _flipped, True),
    "columns of QR": (aten.linalg_qr.default, lambda q, r: [q.flip(-1), r], False),
    "signs of eigenvectors": (aten._linalg_eigh.default, lambda w, v: [w, -v], True),
    "eigenvalues": (aten._linalg_eigh.default, lambda w, v: [w * 1.001, v], False),
    "signs of singular vectors": (aten._linalg_svd.default, lambda u, s, v: [-u, s, -v], True),
    "signs of one side": (aten._linalg_svd.default, lambda u, s, v: [-u, s, v], False),
    "strides beside signs": (aten.linalg_qr.default, lambda q, r: [-q, -r.double()], False),
    "the next index": (aten.kthvalue.default, lambda value, index: [value, (index - 1).clamp(min=0)], False),
}


@pytest.mark.parametrize("name", KERNELS)
def test_the_suite_accepts_other_right_factors_of_a_kernel(name: str) -> None:
    op, change, is_kept = KERNELS[name]
    backend = Backend("changed", [op], kernels={op: lambda *args, **kwargs: tuple(change(*op(*args, **kwargs)))})
    profile = Profile(Effort(20, 60.0, 20), Effort(0, 0.0, 0), 0, 0, 0, 60.0)
    report = run_conformance(backend, ops=[op], profile=profile, isolate=False)
    assert report.verdict(op).cases
    assert bool(report.failures) is not is_kept, [one.message for one in report.failures]


def test_eigenvalues_are_matched_to_the_nearest() -> None:
    values = torch.tensor([[1.0 + 2j, 3.0, -1.0], [0.0, 5.0, 7.0]])
    others = torch.stack([values[0].flip(0), values[1]]) + 1e-3
    assert torch.equal(matched_to(values, others), torch.stack([values[0].flip(0), values[1]]))
    assert matched_to(values, values) is values
    assert matched_to(values, others * 0) is values  # no order of theirs


#: Programs with arbitrary values, and one whose gradient uses a tensor that autograd saved inside a composite.
OPEN = {
    "eigenvalues": ("t1 = leaf('float32', [5, 5], 'ones')", "t2 = aten.linalg_eigvals.default(t1)"),
    "the gradient of eigenvalues, whose order is anybody's": (
        "t1 = leaf('float32', [5, 5], 'normal', 'offset', 997, grad=True)",
        "t2 = aten.linalg_eigvals.default(t1)",
        "t3 = gradient(t2, t1)",
        "backward(t2)",
    ),
    "a number without dimensions under autocast": (
        "t1 = leaf('float32', [], 'normal', 'contiguous', 777)",
        "t2 = leaf('bfloat16', [5, 5], 'normal', 'contiguous', 888)",
        "t3 = leaf('bfloat16', [5], 'normal', 'contiguous', 902)",
        "with torch.autocast('cpu', torch.bfloat16): t4 = aten.addcmul.default(t2, t3, t1)",
    ),
    "a gradient by numbers that were drawn": (
        "t1 = leaf('float32', [5, 5], 'normal', 'contiguous', 1, grad=True)",
        "t2 = t1.mul(2)",
        "t3 = aten.rrelu_.default(t2, 0.0, 1.0, True)",
        "t4 = gradient(t3, t1)",
    ),
    "solution cut by rcond": (
        "t1 = leaf('float32', [5, 5], 'uniform', 'transposed', 32)",
        "t2 = leaf('float32', [5, 2], 'normal', 'contiguous', 39)",
        "t3 = aten.linalg_lstsq.default(t1, t2, 0.3)",
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", OPEN)
def test_a_program_with_arbitrary_values_has_no_finding(name: str) -> None:
    assert all(first_difference(Program(OPEN[name], ops)) is None for ops in ("core", "few"))
