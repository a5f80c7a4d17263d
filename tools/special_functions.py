"""The special functions that the library decomposes: their exact values, and random points at which tests measure errors."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

import mpmath as mp
import torch
from torch import Tensor

special = torch.special

#: The operands of one call.
Point = tuple[float, ...]

#: Returns ``count`` random points: ``sampler(generator, count)``.
Sampler: TypeAlias = "Callable[[random.Random, int], list[Point]]"

_FITTED = "rational functions fitted by `tools/fit_ratios.py`"
_HANKEL = f"{_FITTED}; above 5 in Hankel's expansion (Abramowitz and Stegun 9.2.5)"
_LARGE_I = f"{_FITTED}; above 8 in the asymptotic expansion (Abramowitz and Stegun 9.7.1)"
_LARGE_K = f"{_FITTED}; above 1 in the asymptotic expansion (Abramowitz and Stegun 9.7.2)"
_AIRY = f"the two series at 0; the expansions of Abramowitz and Stegun 10.4.59 and 10.4.60, by {_FITTED}"
_EULER = "the formula of Euler and Maclaurin (DLMF 25.11.5)"
_STIRLING = f"Stirling's formula (DLMF 5.11.1); for its series, and near 1 and 2, {_FITTED}; reflection (DLMF 5.5.3)"
_TEMME = "Gil, Segura and Temme, SIAM J. Sci. Comput. 34 (2012)"
_CHEBYSHEV = "recurrence for low orders, sines and cosines for others (DLMF 18.5.1 to 18.5.4), as eager"
_RECURRENCE = "the recurrence (DLMF 18.9), as eager"
_DEFINITION = "the definition, as eager"


@dataclass(frozen=True)
class Function:
    """One special function.

    Attributes:
        name: the op's name.
        call: torch's function.
        reference: the exact value by `mpmath`, as a function of the operands.
        source: the source of the approximation.
        sample: returns random points.
        error_scale: near a zero of the function, errors are in ulps of this value, a function of the operands.
        error_scale_text: a description of `error_scale`.
    """

    name: str
    call: Callable[..., Tensor]
    reference: Callable[..., Any]
    source: str
    sample: Sampler
    error_scale: Callable[..., Any] | None = None
    error_scale_text: str = ""


# -- points -------------------------------------------------------------------------------------------------------


def interval(low: float, high: float, *edges: float, smallest: float = 1e-12) -> Sampler:
    """Sample one operand from an interval: half uniformly, half log-uniformly from `smallest` on, and the given edges."""

    def draw(generator: random.Random, count: int) -> list[Point]:
        half = count // 2
        even = [low + (high - low) * (i + generator.random()) / half for i in range(half)]
        top = math.log(max(abs(low), abs(high)))
        logarithmic = [math.exp(generator.uniform(math.log(smallest), top)) for _ in range(count - half)]
        signed = [generator.choice((-1, 1)) * x for x in logarithmic] if low < 0 else logarithmic
        return [(x,) for x in [*even, *signed, *edges] if low <= x <= high]

    return draw


def _to_one(low: float, generator: random.Random, count: int) -> list[Point]:
    """Sample from (`low`, 1): uniformly, near 0, and near 1 (and -1)."""
    even = [low + (1 - low) * generator.random() for _ in range(count // 2)]
    near_zero = [10 ** generator.uniform(-30, 0) for _ in range(count // 4)]
    near_one = [1 - 10 ** generator.uniform(-7, 0) for _ in range(count // 4)]
    signs = (-1, 1) if low < 0 else (1,)
    return [(generator.choice(signs) * x,) for x in near_zero + near_one if x < 1] + [(x,) for x in even]


def _incomplete_gamma_points(generator: random.Random, count: int) -> list[Point]:
    found: list[Point] = []
    for low, high, spread in ((-6, 0, 3), (0, 1.08, 1), (1.08, 4, 0.02), (1.08, 3, 0.2)):
        for _ in range(count // 5):
            a = 10 ** generator.uniform(low, high)
            found.append((a, a * 10 ** generator.uniform(-spread, spread)))
    return found + [(generator.uniform(1e-3, 4), generator.uniform(0.9, 4)) for _ in range(count // 5)]


def _zeta_points(generator: random.Random, count: int) -> list[Point]:
    orders = (1.0001, 1.5, 2.0, 3.0, 4.0, 7.0, 20.0, 50.5)
    right = [(generator.choice(orders), 10 ** generator.uniform(-3, 3)) for _ in range(count // 2)]
    return right + [(generator.uniform(1.01, 30), generator.uniform(0.01, 40)) for _ in range(count // 2)]


def _between_poles(low: int, generator: random.Random, count: int) -> list[Point]:
    return [(generator.randrange(low, 0) + generator.uniform(0.05, 0.95),) for _ in range(count)]


def _and_between_poles(right: Sampler, low: int) -> Sampler:
    """Take a quarter of the points from between the poles at 0, -1, ..., `low`."""
    return lambda generator, count: right(generator, count - count // 4) + _between_poles(low, generator, count // 4)


def _span(name: str) -> tuple[float, float]:
    if "hermite" in name:
        return -8, 8
    return (0, 20) if "laguerre" in name else (0, 1) if "shifted" in name else (-1, 1)


def _argument_and_degree(low: float, high: float, top: int) -> Sampler:
    return lambda generator, count: [(generator.uniform(low, high), float(generator.randrange(top))) for _ in range(count)]


def _pairs(generator: random.Random, count: int) -> list[Point]:
    return [(generator.uniform(-5, 5), 10 ** generator.uniform(-10, 5)) for _ in range(count)]


# -- exact values -------------------------------------------------------------------------------------------------


def erfcx(x: Any) -> Any:
    return (
        mp.erfc(x) * mp.exp(x * x) if x < 100 else (1 - 1 / (2 * x * x) + 3 / (4 * x**4) - 15 / (8 * x**6)) / (x * mp.sqrt(mp.pi))
    )


def log_ndtr(x: Any) -> Any:
    tail = mp.erfc(abs(x) / mp.sqrt(2)) / 2
    return mp.log(tail) if x < 0 else mp.log1p(-tail)


def ndtri(y: Any) -> Any:
    """Improve eager's result by Newton's method on the logarithm of the smaller tail."""
    with mp.workdps(60):
        x = -abs(mp.mpf(float(special.ndtri(torch.tensor(float(y), dtype=torch.float64)))))
        target = min(y, 1 - y)
        for _ in range(6):
            lower_incomplete_gamma = mp.erfc(-x / mp.sqrt(2)) / 2
            x -= mp.log(lower_incomplete_gamma / target) * lower_incomplete_gamma * mp.sqrt(2 * mp.pi) * mp.exp(x * x / 2)
        return x if y < 0.5 else -x


def erfinv(y: Any) -> Any:
    """Improve eager's result by Newton's method."""
    with mp.workdps(60):
        x = mp.mpf(float(torch.erfinv(torch.tensor(float(y), dtype=torch.float64))))
        for _ in range(6):
            x -= (mp.erf(x) - y) * mp.sqrt(mp.pi) / 2 * mp.exp(x * x)
        return x


def lgamma(x: Any) -> Any:
    return mp.log(abs(mp.gamma(x))) if abs(x) < 1e3 else mp.loggamma(x)


def zeta(s: Any, q: Any) -> Any:
    """Add the terms with negative `q` one by one, because `mpmath` needs a positive one.

    The precision is raised: `mpmath` counts digits after the decimal point.
    """
    terms = max(int(mp.ceil(-q)), 0)
    with mp.workdps(60 + int(s * max(mp.log10(abs(q)), 0))):
        return _zeta(s, q, terms)


def _zeta(s: Any, q: Any, terms: int) -> Any:
    return mp.zeta(s, q + terms) + sum((q + k) ** -int(s) for k in range(terms))


def polygamma(n: int, x: Any) -> Any:
    return (-1) ** (n + 1) * mp.factorial(n) * zeta(mp.mpf(n + 1), x)


def lower_incomplete_gamma(a: Any, x: Any) -> Any:
    return mp.gammainc(a, 0, x, regularized=True)


def upper_incomplete_gamma(a: Any, x: Any) -> Any:
    return mp.gammainc(a, x, mp.inf, regularized=True)


def mvlgamma(x: Any) -> Any:
    return 3 * mp.log(mp.pi) / 2 + sum(mp.loggamma(x - mp.mpf(k) / 2) for k in range(3))


def exponentially_scaled(function: Callable[..., Any], order: int, sign: int) -> Callable[[Any], Any]:
    return lambda x: function(order, x) * mp.exp(sign * abs(x))


def _by_recurrence(first: Callable[[Any], Any], following: Callable[[Any, Any, Any, int], Any]) -> Callable[[Any, Any], Any]:
    def of(x: Any, n: Any) -> Any:
        previous, last = mp.mpf(1), first(x)
        for k in range(1, int(n)):
            previous, last = last, following(x, last, previous, k)
        return last if n else previous

    return of


def _chebyshev(slope: int, start: int, shifted: bool) -> Callable[[Any, Any], Any]:
    of = _by_recurrence(lambda y: slope * y + start, lambda y, q, p, k: 2 * y * q - p)
    return (lambda x, n: of(2 * x - 1, n)) if shifted else of


_POLYNOMIALS: dict[str, Callable[[Any, Any], Any]] = {
    **{
        f"{prefix}chebyshev_polynomial_{kind}": _chebyshev(*first, bool(prefix))
        for prefix in ("", "shifted_")
        for kind, first in {"t": (1, 0), "u": (2, 0), "v": (2, -1), "w": (2, 1)}.items()
    },
    "hermite_polynomial_h": _by_recurrence(lambda x: 2 * x, lambda x, q, p, k: 2 * x * q - 2 * k * p),
    "hermite_polynomial_he": _by_recurrence(lambda x: x, lambda x, q, p, k: x * q - k * p),
    "laguerre_polynomial_l": _by_recurrence(lambda x: 1 - x, lambda x, q, p, k: ((2 * k + 1 - x) * q - k * p) / (k + 1)),
    "legendre_polynomial_p": _by_recurrence(lambda x: x, lambda x, q, p, k: ((2 * k + 1) * x * q - k * p) / (k + 1)),
}


def _effect_of_rounding(of: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return the change of the value per relative change of `x`."""
    small = mp.mpf(10) ** -15
    return lambda x, n: abs(of(x * (1 + small), n) - of(x * (1 - small), n)) / (2 * small)


def _sinc(x: Any) -> Any:
    return mp.sinc(mp.pi * x)


def _other_order(function: Callable[..., Any], order: int) -> Callable[[Any], Any]:
    return lambda x: abs(function(1 - order, x))


def _airy_size(x: Any) -> Any:
    return mp.hypot(mp.airyai(x), mp.airybi(x)) if x < 0 else mp.mpf(0)


_ONE = (lambda *_: mp.mpf(1), "1")
_REFLECTED = (lambda x: max(1, mp.loggamma(1 - x)) if x < 0 else 0, "`lgamma(1 - x)`, for x < 0")
_ORDER = "the Bessel function of the other order"
_ROUNDING = "the effect of rounding `x`"

_GAMMA_LINE = _and_between_poles(interval(0, 50, 1 + 1e-8, 2 - 1e-8, 1.5, 6.9999, 7.0, 1e5, 1e10, smallest=1e-20), -12)
_BESSEL = interval(0, 60, 2.404825557695773, 5.0, 5.0000001, 7.015586669815619, 100.0, 1e3, smallest=1e-8)
_BESSEL_BOTH_SIGNS = interval(-60, 60, 2.404825557695773, 5.0, 5.0000001, 7.015586669815619, smallest=1e-8)
_MODIFIED_BESSEL_I = interval(-85, 85, 8.0, 8.0000001, smallest=1e-8)
_MODIFIED_BESSEL_K = interval(0, 85, 1.0, 1.0000001, smallest=1e-20)
_NORMAL = interval(-9, 9, 0.5, 0.4999999, 0.7, 0.6999999, -1.0, -1.0000001, smallest=1e-20)

FUNCTIONS: tuple[Function, ...] = (
    Function("lgamma", torch.lgamma, lgamma, _STIRLING, _GAMMA_LINE, *_REFLECTED),
    Function(
        "digamma", torch.digamma, lambda x: mp.psi(0, x), "the derivative of Stirling's series (DLMF 5.11.2)", _GAMMA_LINE, *_ONE
    ),
    *(
        Function(
            f"polygamma({n})",
            lambda x, n=n: torch.polygamma(n, x),  # type: ignore[misc]
            lambda x, n=n: polygamma(n, x),  # type: ignore[misc]
            _EULER,
            _and_between_poles(interval(0, 50, 1e4, smallest=1e-4), -8),
            lambda x, n=n: abs(x * polygamma(n + 1, x)) if x < 0 else 0,  # type: ignore[misc]
            f"{_ROUNDING}, for x < 0",
        )
        for n in (1, 2, 5)
    ),
    Function("zeta", special.zeta, zeta, _EULER, _zeta_points),
    Function("igamma", torch.igamma, lower_incomplete_gamma, _TEMME, _incomplete_gamma_points),
    Function("igammac", torch.igammac, upper_incomplete_gamma, _TEMME, _incomplete_gamma_points),
    Function(
        "mvlgamma(3)", lambda x: torch.mvlgamma(x, 3), mvlgamma, "sums of `lgamma`", interval(1.01, 50, 1e4, smallest=1.01), *_ONE
    ),
    Function("erfc", torch.erfc, mp.erfc, _FITTED, interval(-9, 9, 0.5, 0.4999999, 20.0, 26.0, smallest=1e-20)),
    Function("erfcx", special.erfcx, erfcx, _FITTED, interval(-9, 50, 0.5, 0.4999999, -20.0, -26.0, 1e3, 1e10, smallest=1e-20)),
    Function(
        "erfinv", torch.erfinv, erfinv, f"{_FITTED}, of the argument and of the root of a logarithm", lambda g, n: _to_one(-1, g, n)
    ),
    Function("ndtr", special.ndtr, mp.ncdf, "`erf` and `erfc`, as eager", _NORMAL),
    Function("ndtri", special.ndtri, ndtri, _FITTED, lambda g, n: _to_one(0, g, n), *_ONE),
    Function(
        "log_ndtr",
        special.log_ndtr,
        log_ndtr,
        f"`erfcx`: {_FITTED}",
        interval(-100, 9, 0.7, 0.6999999, -1.0, -1.0000001, smallest=1e-20),
    ),
    Function(
        "bessel_j0", special.bessel_j0, lambda x: mp.besselj(0, x), _HANKEL, _BESSEL_BOTH_SIGNS, _other_order(mp.besselj, 0), _ORDER
    ),
    Function(
        "bessel_j1",
        special.bessel_j1,
        lambda x: mp.besselj(1, x),
        _HANKEL,
        _BESSEL_BOTH_SIGNS,
        lambda x: abs(mp.besselj(0, x)) * min(1, abs(x)),
        _ORDER,
    ),
    Function(
        "bessel_y0",
        special.bessel_y0,
        lambda x: mp.bessely(0, x),
        _HANKEL,
        _BESSEL,
        lambda x: min(1, abs(mp.bessely(1, x))),
        _ORDER,
    ),
    Function("bessel_y1", special.bessel_y1, lambda x: mp.bessely(1, x), _HANKEL, _BESSEL, _other_order(mp.bessely, 1), _ORDER),
    Function("i0", torch.i0, lambda x: mp.besseli(0, x), _LARGE_I, _MODIFIED_BESSEL_I),
    Function("i0e", special.i0e, exponentially_scaled(mp.besseli, 0, -1), _LARGE_I, _MODIFIED_BESSEL_I),
    Function("i1", special.i1, lambda x: mp.besseli(1, x), _LARGE_I, _MODIFIED_BESSEL_I),
    Function("i1e", special.i1e, exponentially_scaled(mp.besseli, 1, -1), _LARGE_I, _MODIFIED_BESSEL_I),
    *(
        Function(
            f"modified_bessel_i{n}",
            getattr(special, f"modified_bessel_i{n}"),
            lambda x, n=n: mp.besseli(n, x),
            _LARGE_I,
            _MODIFIED_BESSEL_I,
        )  # type: ignore[misc]
        for n in (0, 1)
    ),
    *(
        Function(
            f"modified_bessel_k{n}",
            getattr(special, f"modified_bessel_k{n}"),
            lambda x, n=n: mp.besselk(n, x),
            _LARGE_K,
            _MODIFIED_BESSEL_K,
        )  # type: ignore[misc]
        for n in (0, 1)
    ),
    *(
        Function(
            f"scaled_modified_bessel_k{n}",
            getattr(special, f"scaled_modified_bessel_k{n}"),
            exponentially_scaled(mp.besselk, n, 1),
            _LARGE_K,
            _MODIFIED_BESSEL_K,
        )
        for n in (0, 1)
    ),
    Function(
        "spherical_bessel_j0",
        special.spherical_bessel_j0,
        mp.sinc,
        _DEFINITION,
        _BESSEL_BOTH_SIGNS,
        lambda x: 1 / max(1, abs(x)),
        "`1 / x`",
    ),
    Function(
        "airy_ai",
        special.airy_ai,
        mp.airyai,
        _AIRY,
        interval(-20, 20, -2.6, 1.5, smallest=1e-8),
        _airy_size,
        "`hypot(Ai, Bi)`, for x < 0",
    ),
    *(
        Function(
            name,
            getattr(special, name),
            exact,
            _CHEBYSHEV if "chebyshev" in name else _RECURRENCE,
            _argument_and_degree(*_span(name), 30),
            _effect_of_rounding(exact),
            _ROUNDING,
        )
        for name, exact in _POLYNOMIALS.items()
    ),
    Function("entr", special.entr, lambda x: -x * mp.log(x), _DEFINITION, interval(0, 50, 1.0, smallest=1e-30)),
    Function("xlogy", torch.xlogy, lambda x, y: x * mp.log(y), _DEFINITION, _pairs),
    Function("xlog1py", special.xlog1py, lambda x, y: x * mp.log1p(y), _DEFINITION, _pairs),
    Function(
        "sinc",
        torch.sinc,
        _sinc,
        _DEFINITION,
        interval(-20, 20, smallest=1e-12),
        lambda x: 1 / max(1, abs(mp.pi * x)),
        "`1 / (pi x)`",
    ),
    Function("logit", torch.logit, lambda x: mp.log(x / (1 - x)), _DEFINITION, lambda g, n: _to_one(0, g, n), *_ONE),
    Function(
        "expit", special.expit, lambda x: 1 / (1 + mp.exp(-x)), "`sigmoid`, a kernel of the set", interval(-80, 30, smallest=1e-12)
    ),
)
