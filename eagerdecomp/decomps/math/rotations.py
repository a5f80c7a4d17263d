"""Hermitian matrices diagonalized by simultaneous rotations: the loop that eigenvalues and singular values share.

Jacobi's method rotates pairs of columns one after the other. Here a step computes the angles of *all* pairs from the same matrix,
as a skew-Hermitian ``X``, and rotates all columns by ``exp(X)``, which takes a few matrix products. The angles are Jacobi's:
``tan 2t = 2 a_ij / (a_jj - a_ii)``. A step is shortened if the norm of ``X`` exceeds `_LONGEST` (as in Ziehe, Laskov, Nolte and
Mueller, "A fast algorithm for joint diagonalization with non-orthogonal transformations", JMLR 5, 2004, section 3). While angles
are large, a pair is not rotated if its off-diagonal entry (*coupling*) is far below the largest: if its values are nearly equal,
the angle would depend on entries that the other rotations are about to change. Convergence is quadratic at the end: 8 to 11 steps
at n = 16, 20 to 25 at n = 256, and more if values are clustered at several scales.

Rounding errors do not accumulate over the steps: the rotated matrix is computed from the given one, and the basis is made
orthonormal repeatedly (Bjorck and Bowie, "An iterative algorithm for computing the best estimate of an orthogonal matrix", SIAM J.
Numer. Anal. 8, 1971). The number of steps is read from the data.

If eigenvalues have many magnitudes, the steps for one magnitude come after the steps for larger ones. A function of the matrix
that grows like the logarithm has the same eigenvectors, and its eigenvalues have similar magnitudes (`logarithm_of`). So that
function is diagonalized first.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import adjoint, arange, conjugate, eye, lifted, no_end, real_part
from eagerdecomp.eager.promotion import number_like

__all__ = ["diagonalized", "diagonalized_blindly", "logarithm_of", "rotated"]

aten = torch.ops.aten

#: If the norm of ``X`` is above this, the step is shortened.
_LONGEST = 1.25

#: If the norm of ``X`` is below this, the next step rotates all pairs.
_SHORT = 0.25

#: If the norm of ``X`` is below this, the exponential is its first three terms.
_TINY = 0.05

#: While angles are large, a pair is not rotated if its coupling is below this fraction of the largest.
_WAITS = 0.01

#: Coefficients of ``cos x = 1 - x^2 / 2 + _EVEN x^4`` and ``sin x = x (1 - _ODD x^2 + _LAST x^4)``. They make the sum of squares
#: ``1 + _LAST ** 2 x ** 10``.
_ODD = (math.sqrt(5) - 1) / 8
_EVEN = _ODD - 1 / 8
_LAST = (_EVEN - _ODD**2) / 2

#: From this step on, the basis is made orthonormal in each step; before, only after short steps.
_APART = 7

#: The constant term of the polynomial by which `_orthonormal` approximates an inverse root.
_START = 1.875

#: After this number of steps, the bound for noise doubles with each step, so that the loop ends.
_STEPS = 200

#: By then the bound is above the norm of the matrix, which is not near the limits of the dtype.
_LAST_STEP = _STEPS + 300


def logarithm_of(matrix: Tensor, looks: tuple[int, int] = (4, 10), spread: float = 0.15) -> Tensor | None:
    """Return a function of positive semidefinite matrices that grows like the base-4 logarithm, or None if it would not help.

    It helps if a fraction of at least `spread` of the eigenvalues lies between ``4 ** -looks[0]`` and ``4 ** -looks[1]`` of the
    largest. The function is ``sum of 1 - (1 - x) ** (4 ** k)``. A term is near 1 from ``x = 4 ** -k`` on, and near 0 below.
    """
    size, levels = matrix.size(2), math.ceil(-math.log2(torch.finfo(matrix.dtype).eps) / 2)
    sizes = aten.abs.default(aten.bmm.default(matrix, matrix))
    bound = aten.sqrt.default(aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(sizes, sizes), [1, 2], True)))
    bound = lifted(aten.clamp.default(bound, torch.finfo(bound.dtype).tiny), matrix)
    unit = eye(size, matrix)
    power = aten.sub.Tensor(unit, aten.div.Tensor(matrix, bound))
    found, smaller = power, None
    for level in range(1, levels):
        for _ in range(2):
            power = aten.bmm.default(power, power)
        found = aten.add.Tensor(found, power)
        if level in looks:
            share = aten.sum.dim_IntList(real_part(aten.diagonal.default(power, 0, 1, 2)), [1])
            between = share if smaller is None else aten.sub.Tensor(smaller, share)
            if not aten._local_scalar_dense.default(aten.amax.default(between)) > spread * size:
                return None
            smaller = share
    return aten.sub.Tensor(aten.mul.Scalar(unit, levels), found)  # type: ignore[no-any-return]


def diagonalized(matrix: Tensor, basis: Tensor | None = None) -> tuple[Tensor, Tensor] | None:
    """Return a unitary ``V [Q, n, n]`` and the real diagonal of ``V^H matrix V``, which is diagonal up to rounding errors.

    The matrix is Hermitian, with entries far from overflow and underflow. The rotations start from a unitary `basis`, if given.
    Return None if there are infinities or NaNs.
    """
    eps = torch.finfo(matrix.dtype).eps
    unit, tie, off = _masks(matrix.size(2), matrix)
    start = aten.mul.Scalar(unit, _START)
    noise = _noise_of(matrix, False)
    zero = number_like(unit, 0.0)
    work = matrix if basis is None else aten.bmm.default(adjoint(basis), aten.bmm.default(matrix, basis))
    length, last, stalls, step, late, clean = math.inf, math.inf, 0, 0, False, True
    while step < _LAST_STEP:
        diagonal = real_part(aten.diagonal.default(work, 0, 1, 2))
        row, column = aten.unsqueeze.default(diagonal, 1), aten.unsqueeze.default(diagonal, 2)
        both = aten.add.Tensor(work, adjoint(work))
        sizes = aten.abs.default(both)
        angles = _angles(both, aten.add.Tensor(aten.sub.Tensor(row, column), tie), sizes)
        short = length <= _SHORT
        coupling, least = _threshold(noise, sizes, row, column) if late else (sizes, noise.floor)
        if not short and step > 1:
            most = aten.amax.default(aten.mul.Tensor(coupling, off), [1, 2], True)
            least = aten.maximum.default(least, aten.mul.Scalar(most, _WAITS))
        turn = aten.where.self(aten.le.Tensor(coupling, least), zero, angles)
        rotation, length = _rotation(turn, unit, short)
        if math.isnan(length):
            return None
        done = length < eps**0.5
        stalls = stalls + 1 if last < _TINY and length > 0.2 * last else 0
        settled = short and clean and (done or (stalls > 2 and _is_noise(aten.mul.Tensor(coupling, off), least)))
        if settled:  # small angles count, be they rounding errors or not
            turn = aten.where.self(aten.lt.Scalar(aten.abs.default(angles), 4 * eps**0.5), angles, zero if done else turn)
            rotation = _short(turn, unit, aten.bmm.default(turn, turn)) if done else _rotation(turn, unit, short)[0]
        basis = rotation if basis is None else aten.bmm.default(basis, rotation)
        clean = short or step >= _APART
        if clean:
            basis = _orthonormal(basis, start)
        image = aten.bmm.default(matrix, basis)
        if settled:
            return basis, _quotients(basis, image, False)
        work = aten.bmm.default(adjoint(basis), image)
        late = late or length <= _SHORT
        last, step = length, step + 1
        if step > _STEPS:
            noise = _Noise(False, aten.mul.Scalar(noise.floor, 2), aten.mul.Scalar(noise.mean, 2), noise.lost)
    raise no_end(_LAST_STEP)


def diagonalized_blindly(matrix: Tensor, gram: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Return ``V``, ``matrix @ V`` and the diagonal of ``V^H matrix V``, by a fixed number of steps, without reading data.

    The number of steps is what `diagonalized` needs for matrices on which it is slow. With `gram` the matrix is ``[Q, m, n]``, and
    `V` makes the columns of ``matrix V`` orthogonal. Matrices with infinities or NaNs give NaN.
    """
    size, eps = matrix.size(2), torch.finfo(matrix.dtype).eps
    unit, tie, off = _masks(size, matrix)
    start = aten.mul.Scalar(unit, _START)
    noise = _noise_of(matrix, gram)
    zero = number_like(unit, 0.0)
    basis, image = aten.expand.default(unit, [matrix.size(0), size, size]), matrix
    steps = int((10 + (6 if gram else 4) * math.sqrt(size)) * (1 if eps > 1e-10 else 1.7))
    for left in reversed(range(steps)):
        work = aten.bmm.default(adjoint(image if gram else basis), image)
        diagonal = real_part(aten.diagonal.default(work, 0, 1, 2))
        row, column = aten.unsqueeze.default(diagonal, 1), aten.unsqueeze.default(diagonal, 2)
        both = aten.add.Tensor(work, adjoint(work))
        sizes = aten.abs.default(both)
        angles = _angles(both, aten.add.Tensor(aten.sub.Tensor(row, column), tie), sizes)
        coupling, least = _threshold(noise, sizes, row, column)
        if left > 4:
            most = aten.amax.default(aten.mul.Tensor(coupling, off), [1, 2], True)
            least = aten.maximum.default(least, aten.mul.Scalar(most, _WAITS))
        dropped = aten.le.Tensor(coupling, least) if left else aten.ge.Scalar(aten.abs.default(angles), 4 * eps**0.5)
        turn = aten.where.self(dropped, zero, angles)
        square = aten.bmm.default(turn, turn)
        power = aten.bmm.default(square, square)
        rotation = _exponential(*_shortened(turn, square, power, _row_sums(power)), unit, 0.5)
        basis = _orthonormal(aten.bmm.default(basis, rotation), start)
        image = aten.bmm.default(matrix, basis)
    return basis, image, _quotients(basis, image, gram)


class _Noise(NamedTuple):
    """Bounds of the rounding errors of couplings. Here, a coupling is twice the off-diagonal entry.

    Attributes:
        gram: whether the couplings belong to a Gram matrix.
        floor: a bound for all couplings, used while they are large.
        mean: the part of a bound that is proportional to the root mean square of all values.
        lost: the squared length of columns that are only rounding errors; used with `gram`.
    """

    gram: bool
    floor: Tensor
    mean: Tensor
    lost: Tensor


def _noise_of(matrix: Tensor, gram: bool) -> _Noise:
    eps = torch.finfo(matrix.dtype).eps
    sizes = aten.abs.default(matrix)
    total = aten.sum.dim_IntList(aten.mul.Tensor(sizes, sizes), [1, 2], True)
    norm = aten.sqrt.default(total)
    floor = aten.mul.Scalar(total if gram else norm, eps)
    mean = aten.mul.Scalar(norm, 4 * eps / math.sqrt(matrix.size(2)))
    return _Noise(gram, floor, mean, aten.mul.Scalar(total, 16 * eps**2))


def _threshold(noise: _Noise, sizes: Tensor, row: Tensor, column: Tensor) -> tuple[Tensor, Tensor]:
    """Return the couplings, and a bound of each one's rounding error, which depends on the two diagonal values that it couples.

    For a Gram matrix, the couplings are divided by the length of the longer column before they are compared.
    """
    scale, eps = aten.add.Tensor(row, column), torch.finfo(row.dtype).eps
    if not noise.gram:
        return sizes, aten.add.Tensor(noise.mean, aten.abs.default(scale), alpha=2 * eps)
    root = aten.sqrt.default(aten.add.Tensor(scale, noise.lost))
    divisor = aten.clamp.default(root, torch.finfo(root.dtype).tiny)
    return aten.div.Tensor(sizes, divisor), aten.add.Tensor(noise.mean, root, alpha=2 * eps)


def _is_noise(coupling: Tensor, least: Tensor) -> bool:
    above = aten.gt.Tensor(coupling, aten.mul.Scalar(least, 8))
    return not aten._local_scalar_dense.default(aten.any.default(above))


def _quotients(basis: Tensor, image: Tensor, gram: bool) -> Tensor:
    """Return Rayleigh quotients, which correct for rounding errors in the lengths of the basis vectors."""
    values = aten.sum.dim_IntList(aten.mul.Tensor(conjugate(image if gram else basis), image), [1])
    lengths = aten.sum.dim_IntList(aten.mul.Tensor(conjugate(basis), basis), [1])
    return aten.div.Tensor(real_part(values), real_part(lengths))  # type: ignore[no-any-return]


def _masks(size: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the identity, the tie-breaker for gaps, and the mask of off-diagonal entries.

    The tie-breaker makes equal values rotate in one direction, and is infinite on the diagonal, which does not rotate.
    """
    index = arange(0, size, like)
    apart = aten.sub.Tensor(index, aten.unsqueeze.default(index, 1))
    diagonal = aten.eq.Scalar(apart, 0)
    sign = aten._to_copy.default(aten.clamp.default(apart, -1, 1), dtype=like.dtype.to_real())
    tie = aten.where.self(diagonal, number_like(sign, math.inf), aten.mul.Scalar(sign, torch.finfo(sign.dtype).tiny))
    return aten._to_copy.default(diagonal, dtype=like.dtype), tie, aten.abs.default(sign)


def _angles(both: Tensor, gap: Tensor, sizes: Tensor) -> Tensor:
    """Return twice the angles, ``atan(2 a / gap)``, with the phase of ``a``."""
    if not both.is_complex():
        return aten.atan.default(aten.div.Tensor(both, gap))  # type: ignore[no-any-return]
    angles = aten.atan.default(aten.div.Tensor(sizes, gap))
    safe = aten.clamp.default(sizes, torch.finfo(sizes.dtype).tiny)
    return aten.mul.Tensor(both, lifted(aten.div.Tensor(angles, safe), both))  # type: ignore[no-any-return]


def _rotation(double: Tensor, unit: Tensor, short: bool) -> tuple[Tensor, float]:
    """Return ``exp(X)`` for skew-Hermitian ``X``, given ``2 X``, and a bound of the largest norm.

    It is unitary up to ``8e-6 |X| ** 10``, or ``|X| ** 4 / 4`` in the short form.
    """
    square = aten.bmm.default(double, double)
    if short:
        bound = _row_sums(square)
        length = 0.5 * _largest(bound) ** 0.5
        if length <= _TINY:
            return _short(double, unit, square), length
    power = aten.bmm.default(square, square)
    bound = _row_sums(power)
    length = 0.5 * _largest(bound) ** 0.25
    part = 0.5
    if length > _LONGEST:
        if bound.numel() == 1:
            part *= _LONGEST / length
        else:
            double, square, power = _shortened(double, square, power, bound)
    return _exponential(double, square, power, unit, part), length


def rotated(basis: Tensor, angles: Tensor) -> Tensor:
    """Return ``basis exp(angles)``, made orthonormal, for skew-Hermitian angles. Angles of large norm are scaled down."""
    unit = eye(angles.size(2), angles)
    rotation, _ = _rotation(aten.mul.Scalar(angles, 2), unit, False)
    return _orthonormal(aten.bmm.default(basis, rotation), aten.mul.Scalar(unit, _START))


def _shortened(double: Tensor, square: Tensor, power: Tensor, bound: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Scale ``2 X``, its square and its fourth power to norms of at most `_LONGEST`, by the row sums of the fourth power."""
    scale = aten.clamp.default(aten.mul.Scalar(aten.pow.Tensor_Scalar(bound, -0.25), 2 * _LONGEST), None, 1.0)
    scale = lifted(scale, double)
    double, scale = aten.mul.Tensor(double, scale), aten.mul.Tensor(scale, scale)
    return double, aten.mul.Tensor(square, scale), aten.mul.Tensor(power, aten.mul.Tensor(scale, scale))


def _exponential(double: Tensor, square: Tensor, power: Tensor, unit: Tensor, part: float) -> Tensor:
    even = aten.add.Tensor(aten.add.Tensor(unit, square, alpha=part**2 / 2), power, alpha=_EVEN * part**4)
    odd = aten.add.Tensor(aten.add.Tensor(unit, square, alpha=_ODD * part**2), power, alpha=_LAST * part**4)
    return aten.add.Tensor(even, aten.bmm.default(double, odd), alpha=part)  # type: ignore[no-any-return]


def _short(double: Tensor, unit: Tensor, square: Tensor) -> Tensor:
    return aten.add.Tensor(aten.add.Tensor(unit, double, alpha=0.5), square, alpha=0.125)  # type: ignore[no-any-return]


def _row_sums(x: Tensor) -> Tensor:
    return aten.amax.default(aten.sum.dim_IntList(aten.abs.default(x), [2], True), [1], True)  # type: ignore[no-any-return]


def _largest(x: Tensor) -> float:
    return aten._local_scalar_dense.default(aten.amax.default(x) if x.numel() > 1 else x)  # type: ignore[no-any-return]


def _orthonormal(basis: Tensor, start: Tensor) -> Tensor:
    """Take a step of order 3 to the nearest unitary matrix: the remaining error is the cube of the error.

    `start` is the identity times `_START`, which a loop computes once.
    """
    overlap = aten.bmm.default(adjoint(basis), basis)
    inverse = aten.add.Tensor(start, overlap, alpha=-1.25)
    inverse = aten.add.Tensor(inverse, aten.bmm.default(overlap, overlap), alpha=0.375)
    return aten.bmm.default(basis, inverse)  # type: ignore[no-any-return]
