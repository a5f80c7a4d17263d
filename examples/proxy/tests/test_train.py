"""A transformer trains in the other process to the CPU's losses, and large ops save messages."""

from __future__ import annotations

import re

import pytest
import train


def test_the_script_reaches_the_cpus_losses_and_prints_what_crossed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.argv", ["train.py", "--steps", "3"])
    assert train.main() == 0
    out = capsys.readouterr().out
    rows = re.findall(r"messages: +(\d+) forward, +(\d+) a step; +(\d+) ops reached the server, (\d+) outside", out)
    assert len(rows) == len(train.OPTIMIZERS) * len(train.FORMS)
    for start in range(0, len(rows), len(train.FORMS)):
        core, whole, large = ([int(number) for number in row] for row in rows[start : start + len(train.FORMS)])
        assert whole[0] * 2 < core[0], "composites cross whole in the forward pass"
        assert large[1] * 2 < core[1], "large operators save messages in a step"
        assert core[3] == whole[3] == large[3] == 0


def test_a_wrong_loss_is_an_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    right = train.on_proxy

    def wrong(*args: object) -> train.Measured:
        measured = right(*args)
        measured.losses[-1] += 0.01
        return measured

    monkeypatch.setattr(train, "on_proxy", wrong)
    monkeypatch.setattr(train, "FORMS", {"Core ATen": train.FORMS["Core ATen"]})
    monkeypatch.setattr("sys.argv", ["train.py", "--steps", "2"])
    assert train.main() == 1
