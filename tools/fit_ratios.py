"""Find the ratios of polynomials by which special functions are computed, and write them down as data.

    python tools/fit_ratios.py [--check]

Each is the ratio that takes its function's value at the Chebyshev points of the interval, found with 60 digits by `mpmath`
(``pip install mpmath``): within a small factor of the best ratio of its degrees. `--check` compares instead of writing, and prints
the largest relative error of each.
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
FILE = Path(__file__).parents[1] / "eagerdecomp" / "ratios.py"


@dataclass(frozen=True)
class Fit:
    """`of`, from `low` to `high`, as a ratio of polynomials of the degrees `above` and `below`."""

    of: Callable[[Any], Any]
    low: float
    high: float
    above: int
    below: int


def erfcx(x: Any) -> Any:
    return mp.exp(x * x) * mp.erfc(x)


def _erfcx(t: Any) -> Any:
    """Over `t`, of ``t = 1 / (1 + x)``."""
    if t < mp.mpf("1e-6"):
        return (1 + t + t * t / 2) / mp.sqrt(mp.pi)
    return erfcx(1 / t - 1) / t


def ndtri(y: Any) -> Any:
    """By Newton's method on the logarithm, from the start that the asymptotic gives."""
    target = mp.log(y)
    x = -mp.sqrt(-2 * target)
    for _ in range(60):
        lower = mp.erfc(-x / mp.sqrt(2)) / 2
        step = (mp.log(lower) - target) * lower * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        x -= step
        if abs(step) < mp.mpf(10) ** (-50):
            break
    return x


def _ndtri_middle(square: Any) -> Any:
    """Over `q`, of its square, where ``y = 1/2 + q``."""
    if not square:
        return mp.sqrt(2 * mp.pi)
    q = mp.sqrt(square)
    return -ndtri(mp.mpf(1) / 2 - q) / q


def _ndtri_tail(inverse: Any) -> Any:
    """Over ``-r``, of ``1 / r`` with ``r = sqrt(-2 log y)``."""
    r = 1 / inverse
    return -ndtri(mp.exp(-r * r / 2)) / r


def _scaled(bessel: Callable[[int, Any], Any], order: int, sign: int) -> Callable[[Any], Any]:
    """``sqrt(x) e^(sign x)`` times a modified Bessel function, of ``1 / x``."""

    def of(inverse: Any) -> Any:
        if not inverse:
            return 1 / mp.sqrt(2 * mp.pi) if sign < 0 else mp.sqrt(mp.pi / 2)
        x = 1 / inverse
        return mp.sqrt(x) * mp.exp(sign * x) * bessel(order, x)

    return of


def _in_square(of: Callable[[Any], Any], power: int) -> Callable[[Any], Any]:
    """`of` over a power of its argument, of the square."""

    def run(square: Any) -> Any:
        x = mp.sqrt(max(square, mp.mpf("1e-30")))
        return of(x) / x**power

    return run


def _k_regular(order: int) -> Callable[[Any], Any]:
    """What `K` is beside its logarithm: of order 1 times `x`."""

    def of(x: Any) -> Any:
        if order == 0:
            return mp.besselk(0, x) + mp.log(x) * mp.besseli(0, x)
        return (mp.besselk(1, x) - mp.log(x) * mp.besseli(1, x)) * x

    return _in_square(of, 0)


def _y_regular(order: int) -> Callable[[Any], Any]:
    """What `Y` is beside its logarithm: of order 1 without its pole, and over `x`."""

    def of(x: Any) -> Any:
        rest = mp.bessely(order, x) - 2 / mp.pi * mp.log(x) * mp.besselj(order, x)
        return rest if order == 0 else (rest + 2 / (mp.pi * x)) / x

    return _in_square(of, 0)


def zeros_of_j(order: int) -> list[Any]:
    return [mp.besseljzero(order, 1), mp.besseljzero(order, 2)]


def _j_small(order: int) -> Callable[[Any], Any]:
    """Over the factors of its first two zeros, and for order 1 over `x`."""
    first, second = zeros_of_j(order)

    def of(x: Any) -> Any:
        return mp.besselj(order, x) / ((x - first) * (x + first) * (x - second) * (x + second))

    return _in_square(of, order)


def _hankel(order: int, quadrature: bool) -> Callable[[Any], Any]:
    """The two amplitudes of Hankel's expansion, of ``(5 / x)^2``; the second one over ``5 / x``."""

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
    """``2 sqrt(pi) x^(1/4) e^z Ai(x)``, of ``1 / z`` with ``z = 2/3 x^(3/2)``."""
    z = 1 / max(inverse, mp.mpf("1e-12"))
    x = (z * 3 / 2) ** (mp.mpf(2) / 3)
    return 2 * mp.sqrt(mp.pi) * mp.root(x, 4) * mp.exp(z) * mp.airyai(x)


def _airy_left(quadrature: bool) -> Callable[[Any], Any]:
    """The two amplitudes to the left, of ``1 / z^2``; the second one times `z`."""

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
    """The two solutions that are 1, and `x`, at the origin, of ``x^3``; the second one over `x`."""

    def of(cube: Any) -> Any:
        parameter = mp.mpf(4 if second else 2) / 3
        return mp.hyp0f1(parameter, cube / 9)

    return of


FITS: dict[str, Fit] = {
    "ERFCX": Fit(_erfcx, 0, 0.6667, 12, 12),
    "NDTRI_MIDDLE": Fit(_ndtri_middle, 0, 0.105, 6, 5),
    "NDTRI_TAIL": Fit(_ndtri_tail, 1 / 38.7, 0.537, 13, 14),
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
}


def solved(fit: Fit) -> tuple[list[Any], list[Any]]:
    """Numerator and denominator, constant terms first, that of the denominator 1."""
    count = fit.above + fit.below + 1
    middle, half = mp.mpf(fit.low + fit.high) / 2, mp.mpf(fit.high - fit.low) / 2
    nodes = [middle + half * mp.cos(mp.pi * (2 * i + 1) / (2 * count)) for i in range(count)]
    matrix, right = mp.matrix(count, count), mp.matrix(count, 1)
    for i, x in enumerate(nodes):
        value = fit.of(x)
        right[i] = 1  # of relative errors: every equation is over the value
        for k in range(fit.above + 1):
            matrix[i, k] = x**k / value
        for k in range(1, fit.below + 1):
            matrix[i, fit.above + k] = -(x**k)
    found = list(mp.lu_solve(matrix, right))
    return found[: fit.above + 1], [mp.mpf(1), *found[fit.above + 1 :]]


def error(fit: Fit, ratio: tuple[Sequence[Any], Sequence[Any]], points: int = 257) -> float:
    """The largest relative error of the ratio with its coefficients as given, at evenly spaced points."""
    above, below = (list(reversed(part)) for part in ratio)
    width = mp.mpf(fit.high) - fit.low
    places = [fit.low + width * i / (points - 1) for i in range(1, points)]
    return max(float(abs(mp.polyval(above, x) / mp.polyval(below, x) / fit.of(x) - 1)) for x in places)


def text() -> str:
    """The module that holds the coefficients."""
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
        *_filled(f'"{name}"' for name in sorted(FITS)),
        "]",
        "",
    ]
    for name, fit in FITS.items():
        rows = [line for part in solved(fit) for line in ("    (", *_filled(map(repr, map(float, part)), 8), "    ),")]
        lines += [f"{name} = (", *rows, ")"]
    return "\n".join(lines) + "\n"


def _filled(words: Iterable[str], indent: int = 4) -> list[str]:
    """Words as lines of a display, as many in each as fit."""
    return textwrap.wrap(
        "".join(f"{word}, " for word in words).rstrip(), 128, initial_indent=" " * indent, subsequent_indent=" " * indent
    )


def main(argv: Sequence[str] | None = None) -> int:
    """The command; answers its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="print how good each is instead of writing")
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
