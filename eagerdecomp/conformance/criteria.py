"""Criteria for results of linear algebra that are not unique: residuals, as LAPACK's own tests measure them.

Eager's order of eigenvalues, signs of vectors, and pivots and reflectors below rounding are arbitrary. So a criterion checks two
things instead. The results must be exact for a matrix within rounding of the given one: the product of the factors must equal it,
within a multiple of its size, its norm and the epsilon of its dtype. And they must have the form that the op promises (triangular,
orthonormal, sorted). The conformance suite accepts such results of any matrix. With `only_open`, as the fuzzer calls it, factors
must be eager's unless rounding decides them: the matrix is singular to working precision, or pivots are tied.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import leaves_of
from eagerdecomp.ops.schema import arguments_of, facts_of

__all__ = ["CRITERIA", "has_singular", "is_right", "matrices_of"]

#: The permitted residual of a factorization, in epsilons of the norm, per row of the matrix. LAPACK's tests permit 30.
_ROUNDINGS = 64


def is_right(
    op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], results: Sequence[Any], *, only_open: bool = False
) -> bool | None:
    """Return whether results meet the criterion of their op; None if it has none, or none for these arguments.

    With `only_open`, factors of a matrix that determines them up to a convention, such as the signs of QR, are not right.
    """
    criterion = CRITERIA.get(op._schema.name)
    if criterion is None:
        return None
    given = dict(zip((one.name for one in facts_of(op).arguments), arguments_of(op, args, kwargs), strict=True))
    tensors = [one for one in results if isinstance(one, Tensor)]
    matrix = next(one for one in given.values() if isinstance(one, Tensor)).detach()
    bounded = (matrix,) if criterion in _OF_ANY_RESULTS else (matrix, *tensors)
    empty = not matrix.numel() and (only_open or criterion not in _OF_EMPTY_MATRICES)
    if empty or not all(bool(one.isfinite().all()) for one in bounded):
        return None
    stored = max(torch.finfo(one.dtype).eps for one in (matrix, *tensors) if one.dtype.is_floating_point or one.dtype.is_complex)
    rounding = max(_rounding(matrix), 4 * stored * max(matrix.shape[-2:]))  # `out=` tensors may have a narrower dtype
    wide = _wide(matrix), [_wide(one) for one in tensors], given, rounding
    if only_open and criterion in _OPEN and not _OPEN[criterion](*wide):
        return False
    return criterion(*wide)


def _wide(x: Tensor) -> Tensor:
    if not (x.dtype.is_floating_point or x.dtype.is_complex):
        return x
    return x.detach().resolve_conj().resolve_neg().to(torch.complex128 if x.dtype.is_complex else torch.float64)


def _size(x: Tensor) -> Tensor:
    return x.abs().square().sum((-2, -1)).sqrt()


def _small(missed: Tensor, whole: Tensor, rounding: float) -> bool:
    return bool((_size(missed) <= rounding * _size(whole)).all())


def _orthonormal(x: Tensor, rounding: float) -> bool:
    one = torch.eye(x.size(-1), dtype=x.dtype)
    return not x.numel() or _small(x.mH @ x - one, one, rounding)


def _singular_ones(matrix: Tensor, rounding: float) -> Tensor:
    """Mark the matrices of the batch whose candidate pivot columns are linearly dependent within rounding."""
    values: Tensor = torch.linalg.svdvals(matrix[..., : min(matrix.shape[-2:])])
    return values[..., -1] <= rounding * values[..., 0]


def _is_singular(matrix: Tensor, rounding: float) -> bool:
    return bool(_singular_ones(matrix, rounding).any())


def has_singular(values: Iterable[Any]) -> bool:
    """Return whether one of these matrices is singular to working precision, or not finite."""
    matrices = [one for one in values if isinstance(one, Tensor) and one.dim() > 1 and one.numel()]
    return any(
        not bool(one.isfinite().all()) or _is_singular(_wide(one), _rounding(one))
        for one in matrices
        if one.dtype.is_floating_point or one.dtype.is_complex
    )


def matrices_of(name: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the matrix that a call factorizes; some ops reshape a tensor to one."""
    if name == "linalg_tensorinv":
        ind = args[1] if len(args) > 1 else kwargs.get("ind", 2)
        return [args[0].flatten(ind).flatten(0, ind - 1)]
    if name == "linalg_tensorsolve":
        dims = args[2] if len(args) > 2 else kwargs.get("dims")
        moved = args[0] if dims is None else args[0].movedim(dims, list(range(-len(dims), 0)))
        return [moved.reshape(args[1].numel(), -1)]
    return list(leaves_of([*args, *kwargs.values()]))


def _rounding(matrix: Tensor) -> float:
    return torch.finfo(matrix.dtype).eps * _ROUNDINGS * max(matrix.shape[-2:])


# -- eigenvalues and singular values -----------------------------------------------------------------------------------------------


def _eigenvalues(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Check each eigenvalue (`A - x I` is singular), and their multiplicities (power sums equal the traces of powers of `A`)."""
    values, matrix = results[0].to(torch.complex128), matrix.to(torch.complex128)
    count, one = matrix.size(-1), torch.eye(matrix.size(-1), dtype=torch.complex128)
    size = _size(matrix).unsqueeze(-1)
    shifted = matrix.unsqueeze(-3) - values[..., None, None] * one
    if not bool((torch.linalg.svdvals(shifted)[..., -1] <= rounding * size).all()):
        return False
    unit = torch.where(size == 0, 1, size)
    values, matrix = values / unit, matrix / unit.unsqueeze(-1)
    power = matrix
    for exponent in range(1, count + 1):
        missed = values.pow(exponent).sum(-1) - power.diagonal(dim1=-2, dim2=-1).sum(-1)
        if not bool((missed.abs() <= exponent * rounding).all()):
            return False
        power = power @ matrix
    return True


def _eigenvectors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    values, vectors = (one.to(torch.complex128) for one in results)
    matrix = matrix.to(torch.complex128)
    lengths = vectors.abs().square().sum(-2)
    return (
        _eigenvalues(matrix, [values], given, rounding)
        and bool(((lengths - 1).abs() <= rounding).all())
        and _small(matrix @ vectors - vectors * values.unsqueeze(-2), matrix, rounding)
    )


def _from_lower(matrix: Tensor, adjoint: bool = True) -> Tensor:
    """Return the Hermitian matrix with this lower triangle; the symmetric one unless `adjoint`."""
    half, diagonal = matrix.tril(-1), matrix.diagonal(dim1=-2, dim2=-1)
    diagonal = diagonal.real.to(matrix.dtype) if adjoint else diagonal
    return half + (half.mH if adjoint else half.mT) + torch.diag_embed(diagonal)


def _symmetric(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
    values, vectors = results
    if not vectors.numel():
        return None
    whole = _from_lower(matrix.mH if str(given.get("UPLO", "L")).upper() == "U" else matrix)
    ascending = bool((values.diff() >= 0).all())
    return (
        ascending and _orthonormal(vectors, rounding) and _small(whole @ vectors - vectors * values.unsqueeze(-2), whole, rounding)
    )


def _singular(adjoint: bool) -> Callable[..., bool | None]:
    def criterion(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
        left, values, right = results
        if given.get("compute_uv") is False or not left.numel():
            return None
        right = right if adjoint else right.mH
        count = values.size(-1)
        product = (left[..., :count] * values.unsqueeze(-2)) @ right[..., :count, :]
        falling = bool((values.diff() <= 0).all()) and bool((values >= 0).all())
        apart = _orthonormal(left, rounding) and _orthonormal(right.mH, rounding)
        return falling and apart and _small(product - matrix, matrix, rounding)

    return criterion


def _condition(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Check the condition number of a matrix that is singular to working precision.

    The permitted error grows with the square of the true value.
    """
    if given.get("p") in (-2, -1, float("-inf")):
        return False
    values = torch.linalg.svdvals(matrix)
    singular = values[..., -1] <= rounding * values[..., 0]
    true = torch.linalg.cond(matrix, given.get("p"))
    right = torch.where(singular, results[0] >= 1 / rounding, (results[0] - true).abs() <= rounding * true.square())
    return bool(singular.any()) and bool(right.all())


def _solution(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
    """Check least squares in two cases where eager's values are arbitrary.

    With an exact fit, the residuals are squared rounding errors. Without full rank, the driver decides: `gels` requires full rank,
    and otherwise returns quotients of rounding errors. `gelsy`, the default, gets its initial pivots from eager in uninitialized
    memory, so the rank that it returns differs from call to call. Here the rank is checked by the singular values.
    """
    values = torch.linalg.svdvals(matrix)
    if bool((values[..., -1] > rounding * values[..., 0]).all()) and _fits(matrix, _wide(given["b"]), results, rounding):
        return True
    if given.get("driver") == "gels":
        return True if bool((values[..., -1] <= rounding * values[..., 0]).all()) else None
    cut = given["rcond"] if given.get("rcond") is not None else 0.0
    if given.get("driver") not in (None, "gelsy") or matrix.dim() > 2:
        return None
    rank = int(results[2])
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    fits = bool((values[:rank] >= (cut - rounding) * values[0]).all()) and bool(
        (values[rank:] <= (cut + rounding) * values[0]).all()
    )
    if not fits or not rank:
        return fits and not bool(results[0].any())
    wanted = right.mH[:, :rank] @ ((left.mH[:rank] @ _wide(given["b"])) / values[:rank, None])
    return _small(results[0] - wanted, wanted, rounding * float(values[0] / values[rank - 1]))


def _fits(matrix: Tensor, right: Tensor, results: Sequence[Tensor], rounding: float) -> bool:
    solution, squares, *_ = results
    if not squares.numel() or right.dim() != matrix.dim():
        return False
    most = rounding * (_size(matrix)[..., None] * _columns(solution) + _columns(right))
    return bool((_columns(right - matrix @ solution) <= most).all()) and bool((squares.sqrt() <= most).all())


def _columns(x: Tensor) -> Tensor:
    return x.abs().square().sum(-2).sqrt()


# -- solutions ---------------------------------------------------------------------------------------------------------------------


def _solved(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Check that the result solves the system. If the matrix is singular to working precision, it may also be non-finite."""
    solution, right = results[0], given.get("B")
    right = torch.eye(matrix.size(-1), dtype=matrix.dtype) if right is None else _wide(right)
    if right.dim() == 1 or (right.dim() == matrix.dim() - 1 and right.shape == matrix.shape[:-1]):
        solution, right = solution.unsqueeze(-1), right.unsqueeze(-1)
    missed = (matrix @ solution if given.get("left", True) else solution @ matrix) - right
    solves = _size(missed) <= rounding * _size(matrix) * _size(solution)
    succeeded = results[1] == 0 if len(results) > 1 else torch.tensor(True)
    none = _singular_ones(matrix, rounding) & ~solution.isfinite().flatten(-2).all(-1)
    return bool(((solves & succeeded) | none).all())


def _tensor_solved(tensor: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    right = given["other"]
    (matrix,) = matrices_of("linalg_tensorsolve", [tensor, right], {"dims": given.get("dims")})
    rounding *= matrix.size(-1) / max(tensor.shape[-2:])
    return _solved(matrix, [results[0].flatten()], {"B": right.flatten()}, rounding)


def _pseudo_inverse(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
    """Check a pseudo-inverse if rounding decides whether a singular value is below the tolerance, so that it may be dropped.

    Without tolerance, the inverse of a singular value below rounding is present: it may be any large number.
    """
    if given.get("hermitian"):
        matrix = _from_lower(matrix)
    left, values, right = torch.linalg.svd(matrix, full_matrices=False)
    largest = values[..., :1]
    absolute, relative = (given.get(name) for name in ("atol", "rtol"))
    if relative is None:
        relative = given.get("rcond", 0.0)
    absolute, relative = (_beside(0.0 if one is None else one) for one in (absolute, relative))
    bound = torch.maximum(relative * largest, absolute)
    if not bool(results[0].isfinite().all()) and bool((bound > 0).all()):
        return None  # a zero singular value is inverted only if the tolerance is zero
    decides = ((values - bound).abs() <= rounding * largest).any(-1)
    tiny = rounding * largest
    kept = (bound <= tiny).squeeze(-1) & (values[..., -1:] <= tiny).squeeze(-1)
    if not bool((decides | kept).all()):
        return None
    inverse = results[0]
    huge = ~inverse.isfinite().flatten(-2).all(-1) | (_size(inverse) * tiny.squeeze(-1) >= 0.1)
    ranks = range(values.size(-1) + 1)
    found = [kept & huge]
    for rank in ranks:
        possible = ((values >= bound - tiny).sum(-1) >= rank) & ((values > bound + tiny).sum(-1) <= rank)
        scales = torch.where(torch.arange(values.size(-1)) < rank, values.reciprocal(), 0.0)
        wanted = (right.mH * scales.unsqueeze(-2)) @ left.mH
        condition = largest.squeeze(-1) * scales.amax(-1)
        found.append(possible & (_size(inverse - wanted) <= rounding * condition.clamp(min=1.0) * _size(wanted)))
    return bool(torch.stack(found).any(0).all())


def _beside(tolerance: Any) -> Tensor:
    return torch.as_tensor(tolerance, dtype=torch.float64).unsqueeze(-1)


# -- factors of a matrix that is singular to working precision ---------------------------------------------------------------------


def _orthogonal_factors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    basis, upper = results
    if not torch.equal(upper, upper.triu()):
        return False
    if not basis.numel():
        return _small(upper.mH @ upper - matrix.mH @ matrix, matrix.mH @ matrix, rounding)
    return _orthonormal(basis, rounding) and _small(basis @ upper - matrix, matrix, rounding)


def _has_free_sign(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Return whether rounding decides the sign of a row of R.

    This is so if the matrix is singular, or the first element of a column is below rounding, or the rest of the column is: then
    rounding decides whether the column gets a reflector at all.
    """
    if _is_singular(matrix, rounding):
        return True
    scales = torch.geqrf(matrix)[1]
    none = scales[..., : matrix.size(-2) - 1]
    below = (none == 0) | ((none - 2).abs() <= max(rounding**2, 1e-15))
    return bool(((scales - 1).abs() <= rounding).any() or below.any())


def _reflectors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    packed, scales = results
    count = scales.size(-1)
    basis = torch.linalg.householder_product(packed[..., :count], scales)
    return _orthogonal_factors(matrix, [basis, packed[..., :count, :].triu()], given, rounding)


def _triangular_factors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    order, lower, upper = results
    largest = lower.abs().max() if order.numel() else lower.new_zeros(())  # without pivoting there is no bound
    bound = (2.0**0.5 if matrix.is_complex() else 1.0) * (1 + rounding)
    shaped = torch.equal(upper, upper.triu()) and torch.equal(lower, lower.tril())
    product = lower @ upper
    if order.numel():
        product = order @ product
    return shaped and float(largest) <= bound and _small(product - matrix, matrix, rounding)


def _has_free_pivots(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Return whether the matrix is singular, or two candidate pivots are equal within rounding: LAPACK's `|real| + |imag|`."""
    order, lower, upper = results
    if _is_singular(matrix, rounding) or not order.numel():
        return _is_singular(matrix, rounding)
    pivots = upper.diagonal(dim1=-2, dim2=-1).unsqueeze(-2)
    others = (lower * pivots).tril(-1)
    sizes, largest = (torch.view_as_real(one.to(torch.complex128)).abs().sum(-1) for one in (others, pivots))
    return bool(((sizes > 0) & (sizes >= (1 - rounding) * largest)).any())


def _root(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
    """Check the columns before the first pivot that is below rounding; the sign of that pivot decides whether the op fails."""
    upper = bool(given.get("upper"))
    factor, matrix = ((one.mH if upper else one).tril() for one in (results[0], matrix))
    failed = results[1] if len(results) > 1 else torch.zeros(matrix.shape[:-2], dtype=torch.int32)
    found = []
    for one, root, info in zip(*(x.reshape(-1, *matrix.shape[-2:]) for x in (matrix, factor)), failed.flatten(), strict=True):
        at = _pivot_of_rounding(one, rounding)
        if at is None:
            return None
        missed = (root[:, :at] @ root[:at, :at].mH - one[:, :at]).tril()
        found.append(_small(missed, one, rounding) and int(info) not in range(1, at + 1))
    return all(found)


def _pivot_of_rounding(lower: Tensor, rounding: float) -> int | None:
    """Return the index of the first pivot below rounding, from the lower triangle of a Hermitian matrix.

    None if there is no such pivot, or if a negative one comes before it.
    """
    left = lower.clone()
    for at in range(left.size(-1)):
        pivot, column = left[at, at].real, left[at + 1 :, at].clone()
        if abs(pivot) <= rounding * abs(lower[at, at]):
            return at
        if pivot <= 0:
            break
        left[at + 1 :, at + 1 :] -= torch.outer(column / pivot, column.conj())
    return None


def _packed_factors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool | None:
    if given.get("pivot") is False:
        return None
    failed = results[2] if len(results) > 2 else torch.zeros((), dtype=torch.int32)
    zero = torch.nn.functional.pad(results[0].diagonal(dim1=-2, dim2=-1) == 0, (0, 1), value=True)
    first = torch.where(zero[..., :-1].any(-1), zero.to(torch.uint8).argmax(-1) + 1, 0)
    parts = torch.lu_unpack(results[0], results[1])
    return (len(results) < 3 or bool((failed == first).all())) and _triangular_factors(matrix, parts, given, rounding)


def _has_free_packed_pivots(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    return _has_free_pivots(matrix, torch.lu_unpack(results[0], results[1]), given, rounding)


def _is_factored(matrix: Tensor, packed: Tensor, pivots: Tensor, rounding: float) -> bool:
    """Check the factors of a matrix, or of its transpose: eager factors that of a contiguous one."""
    parts = torch.lu_unpack(packed, pivots)
    return any(_triangular_factors(one, parts, {}, rounding) for one in (matrix, matrix.mT))


def _determinant(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Check the factors, and that the determinant, or its sign and logarithm, is theirs."""
    *found, packed, pivots = results
    swaps = (pivots != torch.arange(1, pivots.size(-1) + 1)).sum(-1)
    values = packed.diagonal(dim1=-2, dim2=-1)
    sign = torch.where(swaps % 2 == 0, 1.0, -1.0)
    wanted = [sign * values.prod(-1)] if len(found) == 1 else [sign * values.sgn().prod(-1), values.abs().log().sum(-1)]
    least = 2.0**-120 if len(found) == 1 else 1.0  # products underflow in float32
    same = (
        ((one == other) | ((one - other).abs() <= rounding * other.abs().clamp(min=least))).all()
        for one, other in zip(found, wanted, strict=True)
    )
    return all(map(bool, same)) and _is_factored(matrix, packed, pivots, rounding)


def _solved_by_factors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    solution, packed, pivots, failed = results
    factored = not bool(packed.isfinite().all()) or _is_factored(matrix, packed, pivots, rounding)
    return factored and _solved(matrix, [solution, failed], given, rounding)


def _symmetric_factors(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    """Check that the factors of ``sytrf`` multiply to the matrix: blocks of one or two rows, each with its row exchange."""
    adjoint = bool(given.get("hermitian"))
    whole = _from_lower(matrix, adjoint)
    count = matrix.size(-1)
    rows = zip(
        *(one.reshape(-1, *one.shape[-rank:]) for one, rank in zip((whole, *results[:2]), (2, 2, 1), strict=True)), strict=True
    )
    for one, packed, pivots in rows:
        product, starts, place = torch.zeros_like(packed), [], 0
        while place < count:
            size = 1 if int(pivots[place]) > 0 else 2
            block = packed[place : place + size, place : place + size].tril()
            product[place : place + size, place : place + size] = block + (block.tril(-1).mH if adjoint else block.tril(-1).mT)
            starts.append((place, size))
            place += size
        for place, size in reversed(starts):
            lower = torch.eye(count, dtype=packed.dtype)
            lower[place + size :, place : place + size] = packed[place + size :, place : place + size]
            product = lower @ product @ (lower.mH if adjoint else lower.mT)
            last, other = place + size - 1, abs(int(pivots[place])) - 1
            order = torch.arange(count)
            order[[last, other]] = order[[other, last]]
            product = product[order][:, order]
        if not _small(product - one, one, rounding):
            return False
    return True


def _is_singular_symmetric(matrix: Tensor, results: Sequence[Tensor], given: Mapping[str, Any], rounding: float) -> bool:
    return _is_singular(_from_lower(matrix, bool(given.get("hermitian"))), rounding)


_SINGULAR, _SINGULAR_OF_OLD = _singular(adjoint=True), _singular(adjoint=False)

#: Criteria for results that have elements although the matrix has none: any orthonormal basis is right.
_OF_EMPTY_MATRICES = (_SINGULAR, _SINGULAR_OF_OLD, _orthogonal_factors)

#: Criteria that can accept non-finite results.
_OF_ANY_RESULTS = (_condition, _solution, _solved, _solved_by_factors, _tensor_solved, _pseudo_inverse, _determinant)

#: Criterion of a factorization -> whether rounding decides which of the right factors eager returns.
_OPEN: Mapping[Callable[..., bool | None], Callable[..., bool]] = {
    _orthogonal_factors: _has_free_sign,
    _reflectors: _has_free_sign,
    _triangular_factors: _has_free_pivots,
    _packed_factors: _has_free_packed_pivots,
    _symmetric_factors: _is_singular_symmetric,
}

CRITERIA: Mapping[str, Callable[..., bool | None]] = {
    **dict.fromkeys(("aten::linalg_eigvals", "aten::_linalg_eigvals"), _eigenvalues),
    "aten::linalg_eig": _eigenvectors,
    **dict.fromkeys(("aten::linalg_eigh", "aten::_linalg_eigh"), _symmetric),
    **dict.fromkeys(("aten::linalg_svd", "aten::_linalg_svd"), _SINGULAR),
    "aten::svd": _SINGULAR_OF_OLD,
    "aten::linalg_cond": _condition,
    "aten::linalg_lstsq": _solution,
    **dict.fromkeys(("aten::linalg_solve", "aten::linalg_solve_ex"), _solved),
    "aten::_linalg_solve_ex": _solved_by_factors,
    **dict.fromkeys(("aten::_linalg_det", "aten::_linalg_slogdet"), _determinant),
    "aten::linalg_tensorsolve": _tensor_solved,
    **dict.fromkeys(("aten::linalg_inv", "aten::linalg_inv_ex", "aten::inverse"), _solved),
    **dict.fromkeys(("aten::linalg_pinv", "aten::pinverse"), _pseudo_inverse),
    "aten::linalg_qr": _orthogonal_factors,
    "aten::qr": _orthogonal_factors,
    "aten::geqrf": _reflectors,
    **dict.fromkeys(("aten::linalg_cholesky", "aten::linalg_cholesky_ex", "aten::cholesky"), _root),
    **dict.fromkeys(("aten::linalg_ldl_factor", "aten::linalg_ldl_factor_ex"), _symmetric_factors),
    "aten::linalg_lu": _triangular_factors,
    **dict.fromkeys(("aten::linalg_lu_factor", "aten::linalg_lu_factor_ex", "aten::_lu_with_info"), _packed_factors),
}
