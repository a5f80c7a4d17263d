"""The coefficients of special functions are those that their script finds."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

from eagerdecomp.decomps.math import coefficients

SCRIPT = Path(__file__).parents[3] / "tools" / "fit_ratios.py"
spec = importlib.util.spec_from_file_location("fit_ratios", SCRIPT)
assert spec is not None
assert spec.loader is not None
fit_ratios = importlib.util.module_from_spec(spec)
sys.modules["fit_ratios"] = fit_ratios
spec.loader.exec_module(fit_ratios)


def test_each_fit_is_written_down() -> None:
    assert sorted([*fit_ratios.FITS, *fit_ratios.SERIES]) == sorted(coefficients.__all__)


@pytest.mark.parametrize("name", ["I1_UNIT", "K0_UNIT", "AIRY_SECOND"])
def test_coefficients_are_what_the_script_finds(name: str) -> None:
    with fit_ratios.mp.workdps(60):
        found = fit_ratios.solved(fit_ratios.FITS[name])
    for written, part in zip(getattr(coefficients, name), found, strict=True):
        assert list(written) == pytest.approx([float(value) for value in part], rel=1e-14)
