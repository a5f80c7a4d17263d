"""The page of linear algebra, Fourier transforms, sorting and the rest: no op is left out, and each has a route."""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest
import torch
from on_core import on_core

from eagerdecomp.planner.rule_calls import load_calls

ROOT = Path(__file__).parents[2]

#: What was found to have no route by anything that torch ships, by the census of gap ops; packets, special functions aside.
GAPS = [
    "_linalg_svd",
    "linalg_solve_triangular",
    "linalg_lu_solve",
    "linalg_qr",
    "_linalg_eigh",
    "linalg_inv_ex",
    "_linalg_solve_ex",
    "lu_unpack",
    "linalg_lu_factor_ex",
    "_linalg_slogdet",
    "linalg_cholesky_ex",
    "linalg_eig",
    "linalg_ldl_factor_ex",
    "linalg_lstsq",
    "addbmm",
    "cholesky",
    "cholesky_inverse",
    "_cholesky_solve_helper",
    "geqrf",
    "linalg_matrix_exp",
    "ormqr",
    "triangular_solve",
    "_linalg_det",
    "linalg_householder_product",
    "linalg_ldl_solve",
    "linalg_lu",
    "_cdist_backward",
    "_pdist_backward",
    "_linalg_eigvals",
    "_fft_c2c",
    "equal",
    "index_reduce",
    "masked_select",
    "searchsorted",
    "nanmedian",
    "sort",
    "segment_reduce",
    "put",
    "cummax",
    "cummin",
    "kthvalue",
    "median",
    "mode",
    "_unique2",
    "unique_dim",
    "unique_consecutive",
    "unique_dim_consecutive",
    "histogram",
    "_histogramdd_from_bin_cts",
    "_histogramdd_bin_edges",
    "_histogramdd_from_bin_tensors",
    "histc",
    "bincount",
    "_logcumsumexp",
    "nonzero_static",
    "_segment_reduce_backward",
    "scatter",
    "_unique",
    "min",
    "exp2",
    "_conj_physical",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "fmax",
    "fmin",
    "max",
    "signbit",
    "gcd",
    "frexp",
    "nextafter",
    "angle",
    "hypot",
    "hash_tensor",
    "repeat_interleave",
    "softshrink_backward",
    "hardshrink_backward",
    "_efficientzerotensor",
    "_scaled_mm",
    "_scaled_mm_v2",
]


sys.path.insert(0, str(ROOT / "tools"))
TOOL: ModuleType = importlib.import_module("mathematics_table")
DATA = TOOL.Data()
CALLS = {name: functools.partial(run, DATA) for ops in TOOL.OPS.values() for name, run in ops.items()}


def test_no_op_is_left_out() -> None:
    assert sorted(CALLS) == sorted(GAPS)


def test_each_rule_that_was_observed_to_read_data_is_named_with_the_reason() -> None:
    def reads(calls: Mapping[str, int]) -> bool:
        return not {"aten._local_scalar_dense.default", "aten.nonzero.default", "aten.masked_select.default"}.isdisjoint(calls)

    observed = {
        op
        for op, seen in load_calls().items()
        if any(reads(called) for call in seen.calls for key, called in call.by_rule.items() if key.startswith("own"))
    }
    named = set(TOOL.READERS).union(*(names for names, _, _ in TOOL.ELSEWHERE))
    assert {op.split(".")[1] for op in observed} <= named
    assert all(hasattr(torch.ops.aten, name) for name in named)


@pytest.mark.full
@pytest.mark.parametrize("name", CALLS)
def test_each_call_reaches_the_set_alone(name: str) -> None:
    results = on_core(CALLS[name]), CALLS[name]()
    shapes = [[getattr(x, "shape", x) for x in (found if isinstance(found, (tuple, list)) else [found])] for found in results]
    assert shapes[0] == shapes[1]


def test_errors_on_the_page_are_within_lapacks_threshold_or_twice_eagers() -> None:
    rows = [line.split(" | ") for line in TOOL.FILE.read_text().splitlines() if line.startswith("| `") and line.count(" | ") == 6]
    assert len(rows) == len(CALLS)
    for name, *_, ours, eagers, _, _ in rows:
        assert (ours == "exact") == (eagers == "exact"), name
        assert ours == "exact" or float(ours) <= max(30, 2 * float(eagers)), name


@pytest.mark.parametrize("name", ["sort", "hypot", "linalg_qr", "_linalg_eigh"])
def test_errors_are_ours_and_eagers_against_float64(name: str) -> None:
    run = next(ops[name] for ops in TOOL.OPS.values() if name in ops)
    assert all(0 <= error < 30 for error in TOOL.errors(name, run))
    wide = TOOL.Data(torch.float64, random=True)
    if name == "_linalg_eigh":  # a vector's sign is nobody's
        values, vectors = run(wide)
        assert TOOL._error(name, wide, (values, -vectors), run) < 1e-6
        assert TOOL._error(name, wide, (values * 1.001, vectors), run) > 1000
    else:
        assert TOOL._error(name, wide, run(wide), run) == 0


def test_one_digit_is_shown_rounded_up() -> None:
    assert [TOOL.shown(error) for error in (0.0, 0.31, 0.4, 2.0, 9.2, 19.0)] == ["exact", "0.4", "0.4", "2", "10", "20"]


@pytest.mark.full
def test_the_page_is_what_the_tool_writes(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    monkeypatch.setattr(TOOL, "errors", lambda name, run: (1.0, 1.0))
    assert TOOL.without_measurements(TOOL.FILE.read_text()) == TOOL.without_measurements(TOOL.page())
