"""How near special functions are to the mathematics, by the page that says so; their coefficients are those of the script."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import mpmath as mp
import pytest
import torch
from sampled import sampled

from eagerdecomp.decomps.special import bessel
from tools.accuracy import errors, largest_errors, ulps
from tools.special_functions import FUNCTIONS, Function, lgamma

ROOT = Path(__file__).parents[2]
DTYPES = (torch.float32, torch.float64)


def of_the_page() -> dict[str, list[float]]:
    """Return the errors by function: float32's, ours and eager's, and float64's."""
    lines = (ROOT / "docs" / "numbers" / "accuracy.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.split("|")[1:-1]] for line in lines if line.startswith("| `")]
    return {name.strip("`"): [float(number) for number in rest[:4]] for name, *rest in cells}


PAGE = of_the_page()


def test_the_page_has_a_line_for_each_function() -> None:
    assert list(PAGE) == [function.name for function in FUNCTIONS]


@pytest.mark.parametrize("name", PAGE)
def test_no_function_of_the_page_is_further_off_than_twice_eager(name: str) -> None:
    single, eagers_single, double, eagers_double = PAGE[name]
    assert single <= 2 * eagers_single
    assert double <= 2 * eagers_double


def hold(function: Function, points: int, seed: int) -> None:
    for number, dtype in enumerate(DTYPES):
        ours, eagers = PAGE[function.name][2 * number : 2 * number + 2]
        found = largest_errors(function, dtype, points, seed)
        # Other points than those of the page, and another machine's exponential, may be a little worse.
        assert found.ours <= max(1.5 * ours + 0.5, 2 * eagers, found.eagers), found


@pytest.mark.full
@pytest.mark.parametrize("function", sampled(FUNCTIONS, 6, ids=lambda function: function.name))
def test_errors_are_at_most_those_of_the_page(function: Function) -> None:
    hold(function, 150, 1)


@pytest.mark.nightly
@pytest.mark.parametrize("function", FUNCTIONS, ids=lambda function: function.name)
def test_errors_are_at_most_those_of_the_page_at_many_points(function: Function) -> None:
    hold(function, 1000, 2)


def test_an_error_is_counted_in_units_of_the_value_or_of_the_scale_near_a_zero() -> None:
    one = mp.mpf(1)
    assert ulps(1 + 2.0**-52, one, torch.float64) == 1
    assert ulps(1 + 2.0**-23, one, torch.float32) == 1
    assert ulps(2.0**-50, mp.mpf(0), torch.float64, one) == 4
    assert ulps(torch.inf, mp.mpf(10) ** 39, torch.float32) == 0
    assert ulps(torch.inf, one, torch.float32) == ulps(torch.nan, one, torch.float32) == torch.inf


@pytest.mark.full
def test_the_script_computes_the_saved_coefficients() -> None:
    reported = "import fit_ratios as f, sys; sys.exit(f.text() != f.FILE.read_text(encoding='utf-8'))"
    done = subprocess.run([sys.executable, "-c", reported], cwd=ROOT / "tools", capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr


def test_the_zeros_and_values_that_bessel_functions_are_made_of() -> None:
    with mp.workdps(40):
        for order, zeros in enumerate(bessel._ZEROS):
            for number, (zero, rest) in enumerate(zeros, 1):
                assert abs(mp.mpf(zero) + mp.mpf(rest) - mp.besseljzero(order, number)) < mp.mpf(10) ** -30
        assert mp.mpf(bessel._AIRY_AT_0) == float(mp.airyai(0))
        assert mp.mpf(bessel._AIRY_SLOPE_AT_0) == float(-mp.airyai(0, derivative=1))


#: Beside zeros of the logarithm of the gamma function, and between them.
LEFT = ((-2.46, -2.45), (-2.5, -2.4), (-2.7476827, -2.7476825), (-3.1438, -3.1434), (-3.96, -3.95), (-4.04, -4.03), (-3.0, 0.0))


@pytest.mark.parametrize(("low", "high"), LEFT)
def test_near_its_zeros_lgamma_is_exact_to_the_last_place_of_a_hundredth(low: float, high: float) -> None:
    """In units of the last place of 2^-7: eager's kernels, which differ by processor, are up to 2.9 off there."""
    places = torch.linspace(low, high, 102, dtype=torch.float64)[1:-1].tolist()
    found = errors(torch.lgamma, lgamma, [(x,) for x in places], torch.float64, lambda _: mp.mpf(2) ** -7)
    assert max(ours for ours, _, _ in found) <= 3
