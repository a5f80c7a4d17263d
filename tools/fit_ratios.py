"""Compute rational approximations of special functions, and write their coefficients to `decomps/math/coefficients.py`.

    python tools/fit_ratios.py [--check]

Each approximation interpolates its function at the Chebyshev points of the interval, computed with 60 digits by `mpmath` (``pip
install mpmath``). Its error is within a small factor of the best approximation of these degrees. `--check` writes nothing, and
prints the largest relative error of each.
"""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import mpmath as mp

mp.mp.dps = 60
FILE = Path(__file__).parents[1] / "eagerdecomp" / "decomps" / "math" / "coefficients.py"


@dataclass(frozen=True)
class Fit:
    """A function on an interval, to be approximated by a ratio of polynomials."""

    function: Callable[[Any], Any]
    low: float
    high: float
    numerator_degree: int
    denominator_degree: int


def erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def _erfcx(t: Any) -> Any:
    """Return ``erfcx(x) / t - 3/4`` as a function of ``t = 1 / (1 + x)``.

    The approximated part is then smaller than the constant, so its rounding error counts less.
    """
    if t < mp.mpf("1e-6"):
        return (1 + t + t * t / 2) / mp.sqrt(mp.pi) - mp.mpf(3) / 4
    return erfcx(1 / t - 1) / t - mp.mpf(3) / 4


def ndtri(y: Any) -> Any:
    """Return the inverse of the normal distribution function, by Newton's method on the logarithm."""
    target = mp.log(y)
    x = -mp.sqrt(-2 * target)
    for _ in range(60):
        lower = mp.erfc(-x / mp.sqrt(2)) / 2
        step = (mp.log(lower) - target) * lower * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if abs(step) < mp.mpf(10) ** (-50):
            break
    return x


#: Distance of the argument from 1/2 at which the tail begins.
_NDTRI_MIDDLE = mp.mpf("0.425")


def _ndtri_middle(rest: Any) -> Any:
    """Return ``-ndtri(1/2 - q) / q - 2.875`` as a function of ``0.425^2 - q^2``."""
    square = _NDTRI_MIDDLE**2 - rest
    if square < mp.mpf("1e-50"):
        return mp.sqrt(2 * mp.pi) - mp.mpf("2.875")
    q = mp.sqrt(square)
    return -ndtri(mp.mpf(1) / 2 - q) / q - mp.mpf("2.875")


def _ndtri_tail(inverse: Any) -> Any:
    """Return ``1 + ndtri(y) / r`` as a function of ``1 / r`` with ``r = sqrt(-2 log y)``."""
    r = 1 / inverse
    return 1 + ndtri(mp.exp(-r * r / 2)) / r


def erfinv(y: Any) -> Any:
    return -ndtri((1 - y) / 2) / mp.sqrt(2)


#: Square of the argument at which the middle interval ends.
_ERFINV_MIDDLE = mp.mpf("0.5625")


def _erfinv_middle(rest: Any) -> Any:
    """Return ``erfinv(y) / y - 7/8`` as a function of ``0.75^2 - y^2``."""
    y = mp.sqrt(max(_ERFINV_MIDDLE - rest, mp.mpf("1e-40")))
    return erfinv(y) / y - mp.mpf(7) / 8


def _erfinv_tail(inverse: Any) -> Any:
    """Return ``r - erfinv(y) - 5/16`` as a function of ``1 / r`` with ``r = sqrt(-log(1 - y))``."""
    r = 1 / inverse
    return r + ndtri(mp.exp(-r * r) / 2) / mp.sqrt(2) - mp.mpf(5) / 16


def _erfinv_short(logarithm: Any) -> Any:
    """Return ``erfinv(y) / y`` as a function of ``log(1 - y^2)``."""
    left = mp.exp(logarithm)
    y = mp.sqrt(-mp.expm1(logarithm))
    return -ndtri(left / (1 + y) / 2) / mp.sqrt(2) / y if y > mp.mpf("1e-25") else mp.sqrt(mp.pi) / 2


def _scaled(bessel: Callable[[int, Any], Any], order: int, sign: int) -> Callable[[Any], Any]:
    """Return ``sqrt(x) e^(sign x)`` times a modified Bessel function, as a function of ``1 / x``."""

    def of(inverse: Any) -> Any:
        if not inverse:
            return 1 / mp.sqrt(2 * mp.pi) if sign < 0 else mp.sqrt(mp.pi / 2)
        x = 1 / inverse
        return mp.sqrt(x) * mp.exp(sign * x) * bessel(order, x)

    return of


def _in_square(function: Callable[[Any], Any], power: int) -> Callable[[Any], Any]:
    """Return ``function(x) / x^power`` as a function of ``x^2``."""

    def run(square: Any) -> Any:
        x = mp.sqrt(max(square, mp.mpf("1e-30")))
        return function(x) / x**power

    return run


def _k_regular(order: int) -> Callable[[Any], Any]:
    """Return the Bessel function `K` without its logarithmic part, as a function of ``x^2``; for order 1 times `x`."""

    def of(x: Any) -> Any:
        if order == 0:
            return mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)
        return (mp.besselk(1, x) - mp.log(x) * mp.besseli(1, x)) * x

    return _in_square(of, 0)


def _y_regular(order: int) -> Callable[[Any], Any]:
    """Return the Bessel function `Y` without its logarithmic part, as a function of ``x^2``.

    For order 1, it is also without its pole and divided by `x`.
    """

    def of(x: Any) -> Any:
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    return _in_square(of, 0)


def zeros_of_j(order: int) -> list[Any]:
    return [mp.besseljzero(order, 1), mp.besseljzero(order, 2)]


def _j_small(order: int) -> Callable[[Any], Any]:
    """Return the Bessel function `J` over the factors of its first two zeros, as a function of ``x^2``.

    For order 1, it is also divided by `x`.
    """
    first, second = zeros_of_j(order)

    def of(x: Any) -> Any:
        return mp.besselj(order, x) / ((x - first) * (x + first) * (x - second) * (x + second))

    return _in_square(of, order)


def _hankel(order: int, quadrature: bool) -> Callable[[Any], Any]:
    """Return an amplitude of Hankel's expansion as a function of ``(5 / x)^2``; the quadrature one over ``5 / x``."""

    def of(square: Any) -> Any:
        x = 5 / mp.sqrt(max(square, mp.mpf("1e-24")))
        angle = x - (2 * order + 1) * mp.pi / 4
        j, y = mp.besselj(order, x), mp.bessely(order, x)
        scale = mp.sqrt(mp.pi * x / 2)
        if quadrature:
            return scale * (y * mp.cos(angle) - j * mp.sin(angle)) * x / 5
        return scale * (j * mp.cos(angle) + y * mp.sin(angle))

    return of


def _airy_right(inverse: Any) -> Any:
    """Return ``2 sqrt(pi) x^(1/4) e^z Ai(x)`` as a function of ``1 / z`` with ``z = 2/3 x^(3/2)``."""
    z = 1 / max(inverse, mp.mpf("1e-12"))
    x = (z * 3 / 2) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(z) * mp.airyai(x)


def _airy_left(quadrature: bool) -> Callable[[Any], Any]:
    """Return an amplitude of ``Ai(-x)`` as a function of ``1 / z^2``; the quadrature one times `z`."""

    def of(square: Any) -> Any:
        z = 1 / mp.sqrt(max(square, mp.mpf("1e-24")))
        x = (z * 3 / 2) ** (mp.mpf(2) / 3)
        angle, scale = z + mp.pi / 4, mp.sqrt(mp.pi) * mp.root(x, 4)
        a, b = mp.airyai(-x), mp.airybi(-x)
        if quadrature:
            return -scale * (a * mp.cos(angle) - b * mp.sin(angle)) * z
        return scale * (a * mp.sin(angle) + b * mp.cos(angle))

    return of


def _airy_part(second: bool) -> Callable[[Any], Any]:
    """Return a solution of Airy's equation as a function of ``x^3``.

    The first solution is 1 near 0. The second is `x` near 0, and is divided by `x`.
    """

    def of(cube: Any) -> Any:
        parameter = mp.mpf(4 if second else 2) / 3
        return mp.hyp0f1(parameter, cube / 9)

    return of


def _gamma_under_12(a: Any) -> Any:
    """Return ``gamma(1 + a)`` over ``(a + 2)^(a + 1/2) e^-a``."""
    return mp.gamma(1 + a) * mp.exp(a) / (a + 2) ** (a + mp.mpf(1) / 2)


def _log_factorial(a: Any) -> Any:
    """Return ``lgamma(1 + a) / a``."""
    return mp.loggamma(1 + a) / a if a else -mp.euler


def _lgamma_near(shifted: Any) -> Any:
    """Return ``lgamma(x) / ((x - 1)(x - 2)) - (9/16 - (x - 1) / 8)`` as a function of ``x - 1/2``."""
    x = shifted + mp.mpf(1) / 2
    if x in (1, 2):
        x += mp.mpf("1e-30")
    return mp.loggamma(x) / ((x - 1) * (x - 2)) - mp.mpf(9) / 16 + (x - 1) / 8


def _lgamma_beside_2(u: Any) -> Any:
    """Return ``lgamma(2 + u) / (u (1 + u)) - (27/64 - 3 u / 32)``."""
    u = u if abs(u) > mp.mpf("1e-25") else mp.mpf("1e-25")
    return mp.loggamma(2 + u) / (u * (1 + u)) - mp.mpf(27) / 64 + 3 * u / 32


def _lgamma_tail(square: Any) -> Any:
    """Return the error of Stirling's formula with its term ``1 / (12 x)``, times ``x^3``, as a function of ``1 / x^2``."""
    x = 1 / mp.sqrt(max(square, mp.mpf("1e-16")))
    tail = mp.loggamma(x) - (x - mp.mpf(1) / 2) * mp.log(x) + x - mp.log(2 * mp.pi) / 2
    return (tail * x - mp.mpf(1) / 12) * x * x


def _log_sine(square: Any) -> Any:
    """Return ``log(sin(pi y) / (pi y)) / s - (-105/64 - 5 s / 8)`` as a function of ``s = y^2``."""
    square = max(square, mp.mpf("1e-24"))
    angle = mp.pi * mp.sqrt(square)
    return mp.log(mp.sin(angle) / angle) / square + mp.mpf(105) / 64 + 5 * square / 8


def _log1p_rest(square: Any) -> Any:
    """Return ``(atanh(r) - r) / r^3`` as a function of ``r^2``."""
    r = mp.sqrt(max(square, mp.mpf("1e-24")))
    return (mp.atanh(r) - r) / r**3


def _stirling(inverse: Any) -> Any:
    """Return the gamma function over Stirling's formula, as a function of ``1 / a``."""
    a = 1 / max(inverse, mp.mpf("1e-24"))
    return mp.exp(mp.loggamma(a) - (a - mp.mpf(1) / 2) * mp.log(a) + a) / mp.sqrt(2 * mp.pi)


FITS: dict[str, Fit] = {
    "ERFCX": Fit(_erfcx, 0, 0.6667, 12, 12),
    "ERFINV_MIDDLE": Fit(_erfinv_middle, 0, 0.5625, 8, 8),
    "ERFINV_TAIL": Fit(_erfinv_tail, 1 / 6.2, 0.8495, 11, 11),
    "ERFINV_SHORT": Fit(_erfinv_short, -16, 0, 8, 7),
    "NDTRI_MIDDLE": Fit(_ndtri_middle, 0, 0.180625, 8, 8),
    "NDTRI_TAIL": Fit(_ndtri_tail, 1 / 38.7, 0.4395, 12, 12),
    "I0_SMALL": Fit(_in_square(lambda x: mp.besseli(0, x), 0), 0, 64, 15, 0),
    "I1_SMALL": Fit(_in_square(lambda x: mp.besseli(1, x), 1), 0, 64, 15, 0),
    "I0_LARGE": Fit(_scaled(mp.besseli, 0, -1), 0, 0.125, 22, 0),
    "I1_LARGE": Fit(_scaled(mp.besseli, 1, -1), 0, 0.125, 22, 0),
    "I0_UNIT": Fit(_in_square(lambda x: mp.besseli(0, x), 0), 0, 1, 7, 0),
    "I1_UNIT": Fit(_in_square(lambda x: mp.besseli(1, x), 1), 0, 1, 7, 0),
    "K0_UNIT": Fit(_k_regular(0), 0, 1, 7, 0),
    "K1_UNIT": Fit(_k_regular(1), 0, 1, 7, 0),
    "K0_LARGE": Fit(_scaled(mp.besselk, 0, 1), 0, 1, 9, 10),
    "K1_LARGE": Fit(_scaled(mp.besselk, 1, 1), 0, 1, 10, 9),
    "J0_SMALL": Fit(_j_small(0), 1e-12, 25, 12, 0),
    "J1_SMALL": Fit(_j_small(1), 1e-12, 25, 11, 0),
    "Y0_SMALL": Fit(_y_regular(0), 1e-12, 25, 14, 0),
    "Y1_SMALL": Fit(_y_regular(1), 1e-12, 25, 14, 0),
    "HANKEL_0_IN_PHASE": Fit(_hankel(0, False), 0, 1, 7, 6),
    "HANKEL_0_QUADRATURE": Fit(_hankel(0, True), 0, 1, 8, 7),
    "HANKEL_1_IN_PHASE": Fit(_hankel(1, False), 0, 1, 7, 6),
    "HANKEL_1_QUADRATURE": Fit(_hankel(1, True), 0, 1, 8, 7),
    "AIRY_FIRST": Fit(_airy_part(False), -17.6, 3.4, 11, 0),
    "AIRY_SECOND": Fit(_airy_part(True), -17.6, 3.4, 11, 0),
    "AIRY_RIGHT": Fit(_airy_right, 0, 0.8166, 9, 9),
    "AIRY_LEFT_IN_PHASE": Fit(_airy_left(False), 0, 0.128, 10, 10),
    "AIRY_LEFT_QUADRATURE": Fit(_airy_left(True), 0, 0.128, 11, 11),
    "LGAMMA_NEAR": Fit(_lgamma_near, 0, 2.5, 10, 10),
    "LGAMMA_BESIDE_2": Fit(_lgamma_beside_2, -0.5, 0.5, 8, 8),
    "LGAMMA_TAIL": Fit(_lgamma_tail, 0, 1 / 16, 5, 5),
    "LOG_SINE": Fit(_log_sine, 0, 0.25, 5, 5),
    "GAMMA_UNDER_12": Fit(_gamma_under_12, 0, 12, 8, 8),
    "LOG_FACTORIAL": Fit(_log_factorial, 0, 1.76, 8, 8),
    "LOG1P_REST": Fit(_log1p_rest, 0, 0.2901, 5, 5),
    "STIRLING": Fit(_stirling, 0, 0.0834, 8, 0),
}


def uniform_series(count: int) -> list[Any]:
    """Return the first coefficients of ``eta / (l - 1)`` in powers of `eta`, where ``eta^2 / 2 = l - 1 - log(l)``.

    With ``l = 1 + m``, the derivative by `eta` is ``eta (1 + m) = m m'``. It gives the power series of ``m``, whose inverse is
    returned.
    """
    m = [mp.mpf(0), mp.mpf(1)]
    for k in range(2, count + 1):
        m.append((m[k - 1] - mp.fsum(j * m[k + 1 - j] * m[j] for j in range(2, k))) / (k + 1))
    inverted = [mp.mpf(1)]
    for k in range(1, count):
        inverted.append(-mp.fsum(m[i + 1] * inverted[k - i] for i in range(1, k + 1)))
    return inverted


#: Name -> function that returns the coefficients of a series, constant term first.
SERIES: dict[str, Callable[[], list[Any]]] = {"INCOMPLETE_GAMMA_UNIFORM": lambda: uniform_series(32)}


def solved(fit: Fit) -> tuple[list[Any], list[Any]]:
    """Return numerator and denominator, constant terms first. The denominator's is 1."""
    count = fit.numerator_degree + fit.denominator_degree + 1
    middle, half = mp.mpf(fit.low + fit.high) / 2, mp.mpf(fit.high - fit.low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i, x in enumerate(nodes):
        value = fit.function(x)
        right[i] = 1  # each equation is divided by the value, so that relative errors count
        for k in range(fit.numerator_degree + 1):
            matrix[i, k] = x**k / value
        for k in range(1, fit.denominator_degree + 1):
            matrix[i, fit.numerator_degree + k] = -(x**k)
    found = list(mp.lu_solve(matrix, right))
    return found[: fit.numerator_degree + 1], [mp.mpf(1), *found[fit.numerator_degree + 1 :]]


def error(fit: Fit, ratio: tuple[Sequence[Any], Sequence[Any]], points: int = 257) -> float:
    """Return the largest relative error of a ratio with these coefficients, at evenly spaced points."""
    numerator, denominator = (list(reversed(part)) for part in ratio)
    width = mp.mpf(fit.high) - fit.low
    points_x = [fit.low + width * i / (points - 1) for i in range(1, points)]
    return max(float(abs(mp.polyval(numerator, x) / mp.polyval(denominator, x) / fit.function(x) - 1)) for x in points_x)


def text() -> str:
    """Return the source of the module with the coefficients."""
    lines = [
        '"""Ratios of polynomials that special functions are computed by: coefficients, constant terms first.',
        "",
        "Written by tools/fit_ratios.py, which says what each one is of.",
        '"""',
        "",
        "from __future__ import annotations",
        "",
        "# fmt: off",
        "__all__ = [",
        *_filled(f'"{name}"' for name in sorted([*FITS, *SERIES])),
        "]",
        "",
    ]
    for name, fit in FITS.items():
        rows = [line for part in solved(fit) for line in ("    (", *_filled(map(repr, map(float, part)), 8), "    ),")]
        lines += [f"{name} = (", *rows, ")"]
    for name, series in SERIES.items():
        lines += [f"{name} = (", *_filled(map(repr, map(float, series()))), ")"]
    return "\n".join(lines) + "\n"


def _filled(words: Iterable[str], indent: int = 4) -> list[str]:
    """Return words, separated by commas, as lines of the maximal width."""
    return textwrap.wrap(
        "".join(f"{word}, " for word in words).rstrip(), 128, initial_indent=" " * indent, subsequent_indent=" " * indent
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command and return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; print the largest relative error of each approximation"
    )
    options = parser.parse_args(argv)
    if not options.check:
        FILE.write_text(text(), encoding="utf-8")
        return 0
    for name, fit in FITS.items():
        ratio = solved(fit)
        rounded = tuple([mp.mpf(float(value)) for value in part] for part in ratio)
        print(f"{name:22} {error(fit, ratio):.1e}  coefficients rounded {error(fit, rounded):.1e}", flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
