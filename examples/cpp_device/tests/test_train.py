"""Five models train on the device to the CPU's losses, with each optimizer, and nothing runs on the CPU."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import chip
import pytest
import train

import eagerdecomp as ed

#: More than half of the kernels that compute.
LEFT_OUT = [
    *("aten.abs", "aten.argmax", "aten.atan", "aten.bitwise_and.Tensor", "aten.cos", "aten.div.Tensor_mode", "aten.erf"),
    *("aten.floor", "aten.ge.Tensor", "aten.le.Tensor", "aten.lt.Tensor", "aten.mm", "aten.ne.Tensor", "aten.neg", "aten.nonzero"),
    *("aten.normal_", "aten.pow.Tensor_Tensor", "aten.remainder.Tensor", "aten.round", "aten.scatter_add", "aten.sigmoid"),
    *("aten.sin", "aten.sort.stable", "aten.sub.Tensor", "aten.tanh", "aten.uniform_"),
]


@pytest.mark.parametrize("optimizer", list(train.OPTIMIZERS))
@pytest.mark.parametrize("model", list(train.MODELS))
def test_training_reaches_the_cpus_losses(model: str, optimizer: str) -> None:
    expected = train.train(model, optimizer, "cpu", 3)
    chip.reset_calls()
    losses = train.train(model, optimizer, "chip", 3)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert expected[0] != pytest.approx(expected[-1], rel=1e-4)
    assert sum(chip.kernel_calls().values()) > 1000
    assert chip.fallback_calls() == {}


def test_the_transformer_trains_without_half_of_the_kernels() -> None:
    """Refuse calls of these kernels, as a device that lacks them: neither they nor the CPU's run."""
    expected = train.train("transformer", "AdamW", "cpu", 3)
    chip.handle.remove()
    try:
        with ed.install(replace(chip.backend, ops=chip.backend.ops - LEFT_OUT)) as few:
            chip.reset_calls()
            losses = train.train("transformer", "AdamW", "chip", 3)
            called = set(chip.kernel_calls())
    finally:
        ed.install(chip.backend)
    assert losses == pytest.approx(expected, rel=1e-5)
    assert called <= {str(op) for op in few.backend.ops}
    assert len(called) > 20
    assert chip.fallback_calls() == {}


def test_the_script_prints_what_it_saw(capsys: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--steps", "1", "--only", "mlp"])
    assert train.main() == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()[1:4]]
    assert [row[1] for row in rows] == list(train.OPTIMIZERS)
    assert all(int(row[-2]) > 100 and row[-1] == "0" for row in rows)
