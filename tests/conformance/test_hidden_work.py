"""Nothing but kernels computes: the operator database on sets that compute nothing, and on kernels that write NaN."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
from sampled import sampled

from conformance.cases import opinfos
from conformance.hidden_work import SETS, sweep

PARTS = 64
IN_FULL_TIER = ("infra and as_strided", "NaN kernels")


@pytest.mark.full
def test_nan_kernels_show_what_else_computes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sweep itself, with `_convolution` as a rule again: oneDNN computes, and the sweep must see it."""
    infos = opinfos("^nn.functional.conv_transpose2d$")
    monkeypatch.setattr("eagerdecomp.rules.shipped.is_made_of_ops", lambda op, source: True)
    monkeypatch.setattr("eagerdecomp.tracing.written_memory.WrittenMemory.made", lambda *_: True)
    assert any("memory" in one.what for one in sweep(infos, ["infra and as_strided"], [torch.float32], 2))


@pytest.mark.full
@pytest.mark.parametrize("part", sampled(range(PARTS), 2))
def test_only_kernels_compute(part: int) -> None:
    counts: Counter[str] = Counter()
    assert not list(sweep(opinfos()[part::PARTS], IN_FULL_TIER, None, 1, counts))
    assert counts["no route"] > 40
    assert counts["result of NaN kernels"] > 40


@pytest.mark.nightly
@pytest.mark.parametrize("ops", sorted(SETS.keys() - {*IN_FULL_TIER}))
def test_only_kernels_compute_on_more_sets(ops: str) -> None:
    assert not list(sweep(opinfos(), [ops], None, 1))
