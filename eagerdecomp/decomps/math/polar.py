"""Unitary polar factors by matrix products only.

The Newton-Schulz iteration ``X <- X p(X^H X)`` keeps singular vectors and moves singular values towards 1 (Higham, Functions of
Matrices, section 8.3). Its quintic form, ``p = (15 - 10 t + 3 t^2) / 8``, converges with order 3, but small values grow by a factor
of at most 1.9 per step. While there are small values, another quintic is used: they grow by a factor of 3.4, and all values end
between 0.68 and 1.14 (Jordan et al., Muon, 2024, https://kellerjordan.github.io/posts/muon). It maps no large value to a small one,
so rounding errors of large singular values do not spoil small ones (Nakatsukasa and Higham, "Backward stability of iterations for
computing the polar decomposition", SIAM J. Matrix Anal. Appl. 33, 2012).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from eagerdecomp.decomps.math.matrices import adjoint, arange, eye, lifted, no_end, plus_product, product, single, whole_batch

__all__ = ["unitary_factor"]

aten = torch.ops.aten

#: The coefficients of 1, t and t^2 in the steps that make small values grow, and in the last steps.
_GROWS = (3.4445, -4.7750, 2.0315)
_SETTLES = (15 / 8, -10 / 8, 3 / 8)

#: The number of steps between two reads of the smallest value.
_EACH = 4

#: The most times that zero singular values are filled. Once is enough, unless the noise happens to be orthogonal to their spaces.
_FILLS = 8

#: The contribution of a singular value of 0.68 to `_apart`.
_EACH_APART = 5e-5


def unitary_factor(x: Tensor) -> Tensor | None:
    """Return a unitary ``U [Q, m, n]``, ``m >= n``, for which ``U^H x`` is positive semidefinite up to rounding errors.

    If singular values of `x` are at rounding level, `U` maps their right vectors to arbitrary vectors orthogonal to the others.
    Return None if `x` has infinities or NaNs.
    """
    eps = torch.finfo(x.dtype).eps
    rounds = math.ceil(-math.log(eps / 8) / math.log(_GROWS[0]) / _EACH)
    most = 0.05 + _EACH_APART * x.size(2)
    unit, x = eye(x.size(2), x), single(_shrunk(x))
    for _ in range(_FILLS):
        for _ in range(rounds):
            for _ in range(_EACH):
                x = _step(x, _GROWS)
            apart = _apart(x, unit)
            if math.isnan(apart):
                return None
            if apart < most:
                break
        for _ in range(3 + (apart > _EACH_APART) + (eps < 1e-10)):
            x = _step(x, _SETTLES)
        if apart < most:
            return whole_batch(x)
        x = _filled(x)
    raise no_end(_FILLS * rounds * _EACH)


def _shrunk(x: Tensor) -> Tensor:
    """Divide `x` by an upper bound of its largest singular value: the square root of the norm of ``x^H x``."""
    gram = aten.abs.default(aten.bmm.default(adjoint(x), x))
    bound = aten.sqrt.default(aten.sqrt.default(aten.sum.dim_IntList(aten.mul.Tensor(gram, gram), [1, 2], True)))
    return aten.div.Tensor(x, lifted(aten.clamp.default(bound, torch.finfo(bound.dtype).tiny), x))  # type: ignore[no-any-return]


def _step(x: Tensor, coefficients: tuple[float, float, float]) -> Tensor:
    first, second, third = coefficients
    gram = product(adjoint(x), x)
    if x.dim() == 2:
        inner = aten.addmm.default(gram, gram, gram, beta=second, alpha=third)
        return aten.addmm.default(x, x, inner, beta=first)  # type: ignore[no-any-return]
    inner = aten.add.Tensor(aten.mul.Scalar(gram, second), aten.bmm.default(gram, gram), alpha=third)
    return aten.add.Tensor(aten.bmm.default(x, inner), x, alpha=first)  # type: ignore[no-any-return]


def _apart(x: Tensor, unit: Tensor) -> float:
    """Return the sum of ``(1 - s^2)^16`` over all singular values `s`, the maximum over the batch. One small `s` contributes 1."""
    power = aten.sub.Tensor(unit, product(adjoint(x), x))
    for _ in range(3):
        power = product(power, power)
    sizes = aten.abs.default(power)
    norm = aten.sum.dim_IntList(aten.mul.Tensor(sizes, sizes), [-2, -1])
    return aten._local_scalar_dense.default(aten.amax.default(norm))  # type: ignore[no-any-return]


def _filled(x: Tensor) -> Tensor:
    """Make zero singular values nonzero: add pseudo-random entries in their spaces. Keep singular values of 1."""
    rows, columns = x.shape[-2:]
    place = aten.add.Tensor(aten.unsqueeze.default(arange(1, rows + 1, x), 1), arange(1, columns + 1, x), alpha=6)
    waves = aten.sin.default(aten.mul.Scalar(aten._to_copy.default(place, dtype=torch.float32), 12.9898))
    large = aten.mul.Scalar(waves, 43758.547)
    noise = aten.sub.Scalar(aten.sub.Tensor(large, aten.floor.default(large)), 0.5)
    noise = lifted(aten.mul.Scalar(noise, 1.5 / math.sqrt(rows)), x)
    if x.dim() == 3:
        noise = aten.expand.default(aten.unsqueeze.default(noise, 0), x.shape)
    across = adjoint(x)
    noise = plus_product(noise, aten.neg.default(x), product(across, noise))
    return aten.add.Tensor(x, plus_product(noise, aten.neg.default(product(noise, across)), x))  # type: ignore[no-any-return]
