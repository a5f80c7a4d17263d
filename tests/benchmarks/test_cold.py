"""Cold: what is compared, and what has nothing to be compared with."""

from __future__ import annotations

from functools import partial

import pytest
import torch

import eagerdecomp as ed
from benchmarks.baselines import Naive
from benchmarks.cold import _decomposes, _op_figures

aten = torch.ops.aten


def test_an_op_that_torchs_table_lacks_is_not_decomposed_by_the_naive_mode() -> None:
    naive, x = Naive(ed.core_aten()), torch.rand(2, 3, 4, 4)
    assert _decomposes(aten.silu.default, partial(aten.silu.default, x), naive)
    upsampled = partial(aten.upsample_bilinear2d_backward.default, x, [4, 4], [2, 3, 2, 2], False)
    assert not _decomposes(aten.upsample_bilinear2d_backward.default, upsampled, naive)


def test_ratios_are_of_ops_that_both_decompose_and_the_others_are_distinguished() -> None:
    def run(both: float, alone: float) -> dict[str, object]:
        ops = [
            {"op": "both", "times": {"ours": both, "naive": 1.0}, "naive_decomposes": True},
            {"op": "alone", "times": {"ours": alone, "naive": 0.001}, "naive_decomposes": False},
            {"op": "failing", "times": {"ours": alone}, "naive_decomposes": False},
        ]
        return {"start": {"ours": 1.0, "naive": 1.0}, "ops": ops}

    ratio, others, *_ = _op_figures([run(2.0, 0.5), run(3.0, 0.5), run(4.0, 0.5)])
    assert (ratio.value, ratio.note) == (pytest.approx(3), "1 ops, 3 processes")
    assert (others.value, others.note) == (pytest.approx(500), "2 ops")
