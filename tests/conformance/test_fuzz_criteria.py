"""The fuzzer's criteria of linear algebra accept results that differ only by arbitrary choices, and reject wrong results."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.fuzz_criteria import CRITERIA, has_singular, is_right
from conformance.fuzz_roundings import is_within_rounding_of_steps, matched_to
from conformance.fuzz_running import Program, first_difference

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
    "eigenvalues of rank one": (
        aten.linalg_eigvals.default,
        [torch.ones(5, 5)],
        lambda w: [torch.tensor([0, 5, 0, 0, 1e-6]).to(w)],
        lambda w: [torch.tensor([0, 5, 0, 0, 5]).to(w)],
    ),
    "eigenvectors": (
        aten.linalg_eig.default,
        [full(4, 4)],
        lambda w, v: [w.flip(0), -v.flip(1)],
        lambda w, v: [w, v.flip(1)],
    ),
    "symmetric": (aten.linalg_eigh.default, [full(4, 4)], lambda w, v: [w, -v], lambda w, v: [w, v.flip(1)]),
    "singular values": (
        aten.linalg_svd.default,
        [full(4, 3), False],
        lambda u, s, v: [-u, s, -v],
        lambda u, s, v: [-u, s, v],
    ),
    "condition": (aten.linalg_cond.default, [low(4, 4)], lambda c: [c * 0 + torch.inf], lambda c: [c * 0 + 7]),
    "orthogonal": (aten.linalg_qr.default, [low(4, 4)], _flipped, lambda q, r: [q, -r]),
    "orthogonal, of full rank": (aten.linalg_qr.default, [full(4, 4)], None, _flipped),
    "orthogonal, of what is triangular": (aten.linalg_qr.default, [full(4, 4).triu()], _flipped, lambda q, r: [q, -r]),
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
    "pivots that are alike": (
        aten.linalg_lu.default,
        [torch.tensor([[2.0, 1.0], [-2.0, 5.0]])],
        lambda order, lower, upper: [order.flip(0), lower, torch.tensor([[-2.0, 5.0], [0.0, 6.0]])],
        lambda order, lower, upper: [order.flip(0), lower, upper],
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
    "symmetric factors of full rank": (aten.linalg_ldl_factor.default, [full(4, 4)], None, lambda packed, pivots: [packed, pivots]),
    "solution": (
        aten.linalg_solve_ex.default,
        [full(4, 4), full(4, 2)],
        lambda x, info: [x * (1 + 1e-6), info],
        lambda x, info: [x, info + 1],
    ),
    "solution of vectors from the right": (
        lambda a, b: aten.linalg_solve_ex.default(a, b, left=False),
        [full(4, 4), full(2, 4)],
        None,
        lambda x, info: [x * torch.inf, info],
    ),
    "solution of what is singular": (
        aten.linalg_solve_ex.default,
        [low(4, 4), full(4, 2)],
        lambda x, info: [x * torch.nan, info + 3],
        lambda x, info: [torch.ones_like(x), info * 0],  # not computed from x, which is NaN if LAPACK finds a pivot of 0
    ),
    "inverse of what is singular": (
        aten.linalg_inv_ex.default,
        [torch.stack([low(4, 4), full(4, 4)])],
        lambda x, info: [torch.stack([x[0] * torch.nan, x[1]]), info * 0 + torch.tensor([3, 0])],
        lambda x, info: [x * torch.nan, info],
    ),
    "solution of a rank that nobody looked at": (
        lambda a, b: aten.linalg_lstsq.default(a, b, driver="gelsd"),
        [low(4, 4), full(4, 2)],
        lambda x, residuals, rank, values: [x, residuals, rank, values],
        lambda x, residuals, rank, values: [2 * x, residuals, rank, values],
    ),
}


#: Name of a call above -> its op and its options.
_LAMBDAS: dict[str, tuple[Any, dict[str, Any]]] = {
    "solution of vectors from the right": (aten.linalg_solve_ex.default, {"left": False}),
    "solution of a rank that nobody looked at": (aten.linalg_lstsq.default, {}),
}


@pytest.mark.parametrize("name", CASES)
def test_arbitrary_choices_are_accepted_and_wrong_results_are_not(name: str) -> None:
    run, args, other, wrong = CASES[name]
    op, given = (run, {}) if isinstance(run, torch._ops.OpOverload) else _LAMBDAS[name]
    assert op._schema.name in CRITERIA
    found = run(*args)
    results = [found] if isinstance(found, Tensor) else list(found)
    if other is not None:
        assert is_right(op, args, given, results)
        assert is_right(op, args, given, other(*results))
    assert is_right(op, args, given, wrong(*results)) is False


def test_a_pseudo_inverse_is_accepted_if_rounding_decides_the_rank() -> None:
    op, nothing = aten.linalg_pinv.atol_rtol_float, {"rtol": 0.0}
    assert is_right(op, [low(4, 4)], nothing, [full(4, 4)])
    assert is_right(op, [low(4, 4)], {"atol": -3.0}, [full(4, 4) / 0])
    assert is_right(op, [low(4, 4)], {"rtol": 1e-3}, [full(4, 4)]) is None
    assert is_right(op, [full(4, 4)], {"atol": -3.0}, [full(4, 4)]) is None
    assert is_right(op, [full(4, 4)], nothing, [full(4, 4)]) is None


def test_residuals_of_an_exact_fit_are_squares_of_rounding_errors() -> None:
    matrix, op, gels = full(4, 3), aten.linalg_lstsq.default, {"driver": "gels"}
    right = matrix @ full(3, 2)
    solution, _, *rest = op(matrix, right, **gels)
    assert is_right(op, [matrix, right], gels, [solution, torch.full((2,), 1e-12), *rest])
    assert is_right(op, [matrix, right], gels, [solution, torch.full((2,), 1e-3), *rest]) is None
    assert is_right(op, [matrix, right], gels, [solution * 1.01, torch.full((2,), 1e-12), *rest]) is None
    assert is_right(op, [matrix, right + full(4, 2)], gels, [solution, torch.full((2,), 1e-12), *rest]) is None


def test_16_bit_results_of_composites_may_round_at_each_step() -> None:
    logits = torch.tensor([[0.3, -1.2, 0.8], [1.1, 0.4, -0.7]]).bfloat16()
    op, chances = aten.cross_entropy_loss.default, logits * 0.5
    true = op(logits.double(), chances.double())
    assert is_within_rounding_of_steps(op, [logits, chances], {}, [true.bfloat16()])
    assert not is_within_rounding_of_steps(op, [logits, chances], {}, [(true + 0.05).bfloat16()])
    assert not is_within_rounding_of_steps(op, [logits, chances], {}, [true.float()])
    assert not is_within_rounding_of_steps(aten.exp.default, [logits], {}, [logits.exp()])  # one kernel


def test_a_matrix_is_singular_if_rounding_decides_its_pivots() -> None:
    assert has_singular([2, low(4, 4)])
    assert has_singular([full(4, 4) / 0])
    assert not has_singular([full(4, 4), full(4), torch.ones(4, 4, dtype=torch.int64), torch.ones(0, 4)])


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
    "reflectors of nothing": (
        "t1 = leaf('bool', [5, 10, 5], 'small', 'offset', 976)",
        "t2 = t1.to(torch.float32).reshape(-1)[0:][:25].view([5, 5])",
        "t3 = aten.linalg_qr.default(t2)",
    ),
    "pivots": ("t1 = leaf('float32', [6, 5], 'uniform', 'expanded', 226)", "t2 = aten.linalg_lu.default(t1)"),
    "pivots that are alike": ("t1 = leaf('float32', [6, 5], 'small', 'strided', 842)", "t2 = aten.linalg_lu_factor.default(t1)"),
    "symmetric factors": (
        "t1 = leaf('float32', [5, 5], 'normal', 'contiguous', 2)",
        "t2 = torch.where(t1 > 1.0, -1.0, -1.4596977233886719)",
        "t3 = aten.linalg_ldl_factor_ex.default(t2)",
    ),
    "condition": ("t1 = leaf('float32', [5, 5], 'small', 'contiguous', 771)", "t2 = aten.linalg_cond.default(t1)"),
    "norm of singular values": (
        "t1 = leaf('float32', [6, 4], 'small', 'contiguous', 28, grad=True)",
        "t2 = aten.linalg_matrix_norm.default(t1, 2)",
        "backward(t2)",
    ),
    "sum of singular values that are none": (
        "t1 = leaf('float64', [5, 5], 'ones', grad=True)",
        "t2 = aten.linalg_matrix_norm.str_ord(t1, 'nuc')",
        "backward(t2)",
    ),
    "sum of singular values that are none, and its gradient's": (
        "t1 = leaf('float32', [5, 5], 'normal', 'expanded', 784, grad=True)",
        "t2 = aten.linalg_matrix_norm.str_ord(t1, 'nuc', [0, 1])",
        "t3 = gradient(t2, t1, create_graph=True)",
        "backward(t2, t3)",
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
    "a gradient of numbers beside NaN of which eager gives one by its place": (
        "t1 = leaf('float32', [1, 2, 4, 5], 'small', 'expanded', 97, grad=True)",
        "t2 = aten.pow.Tensor_Scalar(t1, -0.5)",
        "t3 = t2.to(torch.float64).reshape(-1)[0:][:25].view([5, 5])",
        "t4 = aten.gradient.scalarrayint(t3, spacing=[2.0, 2.1])",
        "t5 = t4[0].to(torch.float32)",
        "t6 = aten.hardtanh.default(t5, -0.5, 0.5)",
        "backward(t4[1], t6)",
    ),
    "eager's gradient in bfloat16 is NaN": (
        "t1 = leaf('bfloat16', [5, 5], 'normal', 'contiguous', 159, grad=True)",
        "t2 = aten.linalg_matrix_exp.default(t1)",
        "backward(t2)",
    ),
    "a gradient of float64 by way of float32, past a write to what was cast": (
        "t1 = leaf('float64', [20], 'normal', 'contiguous', 415, grad=True)",
        "t2 = aten.silu.default(t1)",
        "t3 = t2.to(torch.float32)",
        "t4 = aten.mish.default(t3)",
        "t5 = t2.sub_(-2)",
        "backward(t4)",
    ),
    "a gradient by NaN that eager gives by its place": (
        "t1 = leaf('float32', [10, 10], 'special', 'contiguous', 203, grad=True)",
        "t2 = aten.hardswish.default(t1)",
        "backward(t2)",
    ),
    "a gradient of rows that are all but equal, in few kernels": (
        "t1 = leaf('float32', [3, 4])",
        "t2 = leaf('float32', [2, 3, 4], 'ones', 'contiguous', 896, grad=True)",
        "t3 = leaf('float32', [4], 'ones', 'contiguous', 402)",
        "t4 = aten.layer_norm.default(t2, [4], t3, t3)",
        "t5 = gradient(t4, t2, create_graph=True)",
    ),
    "a polynomial of integers, by a recurrence that rounding grows in": (
        "t1 = leaf('int64', [1, 1, 60], 'below 60')",
        "t2 = aten.special_shifted_chebyshev_polynomial_w.default(t1, t1)",
    ),
    "infinite weights, and zeros that a kernel multiplies by them": (
        "t1 = leaf('float32', [2, 2, 4])",
        "t2 = leaf('float32', [2, 2, 4], 'special', 'contiguous', 3)",
        "t3 = aten.convolution.default(t1, t2, None, [3], [1], [4], True, [2], 1)",
    ),
    "solution of what is singular as a matrix": (
        "t1 = leaf('float32', [2, 3, 3], 'normal', 'contiguous', 942)",
        "t2 = leaf('float32', [5, 10, 5], 'small', 'transposed', 290)",
        "t3 = t2.reshape(-1)[0:][:36].view([2, 3, 6])",
        "t4 = t1.reshape(-1)[0:][:6].view([2, 3])",
        "t5 = aten.linalg_tensorsolve.default(t3, t4)",
    ),
    "solution of tensors whose dims are moved": (
        "t2 = leaf('float32', [5, 5, 5, 5], 'uniform', 'contiguous', 204)",
        "t4 = leaf('float32', [5, 5, 5], 'ones', 'contiguous', 112)",
        "t5 = aten.prod.int_out(t2, 0, out=t4)",
        "t6 = t4.reshape(-1)[0:][:6].view([2, 3])",
        "t7 = t4.reshape(-1)[0:][:6].view([3, 2])",
        "t9 = leaf('float32', [6, 6], 'normal', 'contiguous', 88)",
        "t10 = aten.kron.out(t6, t7, out=t9)",
        "t13 = t9.reshape(-1)[0:][:36].view([2, 3, 6])",
        "t14 = aten.linalg_tensorsolve.default(t13, t6, [0, 2])",
    ),
    "a layer norm of bfloat16 that batch norm computes": (
        "t12 = leaf('bfloat16', [1, 2, 3], 'normal', 'strided', 394)",
        "t13 = aten.native_layer_norm.default(t12, [1, 2, 3], None, None, 0.5)",
    ),
    "a gradient of rounding alone, of a tensor that float64 must not make contiguous": (
        "t2 = leaf('float32', [2, 3, 4], 'normal', 'contiguous', 9, grad=True)",
        "t3 = t2.transpose(-2, -2)",
        "t4 = t3.to(torch.float32).reshape(-1)[0:][:24].view([4, 2, 1, 3])",
        "t7 = leaf('float32', [3, 2, 4, 4], 'ones', 'contiguous', 298, grad=True)",
        "t8 = leaf('float32', [3, 2, 4, 4], 'normal', 'contiguous', 360)",
        "t9 = leaf('float32', [3, 2, 4, 4], 'ones', 'strided', 159)",
        "t10 = aten.scaled_dot_product_attention.default(t7, t8, t9)",
        "t16 = t8.transpose_(-1, 0)",
        "backward(t4, t10)",
    ),
    "solution of rank one": (
        "t1 = leaf('float32', [5, 5], 'normal', 'expanded', 718)",
        "t2 = leaf('float32', [5], 'normal', 'contiguous', 237)",
        "t3 = aten.linalg_solve_ex.default(t1, t2)",
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
