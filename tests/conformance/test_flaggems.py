"""The page of FlagGems' kernels. FlagGems itself is not installed here: the rows are written by hand."""

from __future__ import annotations

import torch

from conformance.flaggems import MOST, is_small, known, table

ROW = {"op": "aten.abs.default", "state": "right", "seconds": 24.0, "cases": 93, "failures": [], "accepts": [], "note": ""}
NORM = "aten.native_layer_norm_backward.default"


def test_the_page_names_what_differs_and_public_issues() -> None:
    wrong = {**ROW, "op": NORM, "state": "wrong", "failures": [["values", "1 | 2", "aten.f(\n1)"], ["dtype", "", ""]]}
    lines = table([ROW, wrong])
    assert lines[0] == "1 wrong, 1 right, 0 not exercised, 0 timed out."
    assert lines[-2] == "| `native_layer_norm_backward.default` | wrong | 93 | 24 | values: 1 \\| 2, at `aten.f( 1)`; dtype |"
    assert lines[-1] == "| `abs.default` | right | 93 | 24 |  |"
    assert [line.split(" | ")[-1] for line in known([wrong])[2:]] == [
        "wrong |",
        "not tested: it is not in Core ATen, or was not reached |",
    ]


def test_only_small_tensors_are_drawn() -> None:
    assert is_small([torch.ones(MOST)], other=2)
    assert not is_small([torch.ones(MOST + 1)])
