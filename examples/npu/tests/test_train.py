"""Both nets train on the device to the CPU's losses, with each optimizer and in each form, and only kernels of the set run."""

from __future__ import annotations

from typing import Any

import npu
import pytest
import torch
import train
from npu.kernels import COMPOSITES

import eagerdecomp as ed


@pytest.mark.parametrize("form", list(train.FORMS))
@pytest.mark.parametrize("optimizer", list(train.OPTIMIZERS))
@pytest.mark.parametrize("model", list(train.MODELS))
def test_training_reaches_the_cpus_losses(model: str, optimizer: str, form: str) -> None:
    expected = train.train(model, optimizer, "cpu", 3)
    npu.reset_counts()
    with train.FORMS[form]() as way:
        losses = train.train(model, optimizer, "npu", 3)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-4)
    assert way.stats().total.decomposed > 50
    counted = npu.counts()
    assert set(counted) <= {str(op) for op in (npu.whole if form == "keep" else npu.backend).ops}
    assert way.stats().total.fell_back == 0
    # Each step of the transformer calls 9 linear layers; backward calls those of the checkpointed blocks again.
    kept = {"conv": (3, 0, 0, 3), "transformer": (3 * (9 + 8), 3 * (3 + 2), 3 * (2 + 2), 0)}[model]
    assert tuple(counted.get(op, 0) for op in COMPOSITES) == (kept if form == "keep" else (0, 0, 0, 0))


def test_composites_are_kept_in_a_mode_too() -> None:
    expected = train.train("transformer", "AdamW", "cpu", 2)
    npu.reset_counts()
    with ed.EagerDecompMode(npu.whole):
        assert train.train("transformer", "AdamW", "npu", 2) == pytest.approx(expected, rel=1e-5)
    assert [npu.counts().get(op, 0) for op in COMPOSITES] == [2 * (9 + 8), 2 * (3 + 2), 2 * (2 + 2), 0]


def test_the_script_prints_what_it_saw(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--steps", "1", "--only", "conv"])
    assert train.main() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:10]]
    assert {(row[1], row[2]) for row in rows} == {(one, form) for one in train.OPTIMIZERS for form in train.FORMS}
    assert all(int(row[-3]) > 100 and row[-2] == ("2" if row[2] == "keep" else "0") and row[-1] == "0" for row in rows)
    assert torch._C._len_torch_dispatch_stack() == 0
