"""The demo, short: it trains, both runs agree, and an interrupt leaves a table and a usable library."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.cli import demo as demo_module
from eagerdecomp.cli.demo import Demo
from eagerdecomp.cli.main import main


@pytest.fixture(scope="module")
def trained() -> Demo:
    demo = Demo(ed.core_aten(), steps=30)
    demo.train(io.StringIO())
    return demo


@pytest.mark.full
def test_nothing_outside_the_set_reaches_the_backend(trained: Demo) -> None:
    facts = trained.facts()
    assert facts.outside == {}
    assert facts.reached
    assert facts.total.fell_back == 0
    for name in (
        "_scaled_dot_product_flash_attention_for_cpu",
        "native_layer_norm",
        "gelu_backward",
        "_foreach_lerp_",
        "embedding",
    ):
        assert any(called.startswith(f"aten.{name}.") for called in facts.called), name


@pytest.mark.full
def test_the_checks_notice_a_wrong_gradient(trained: Demo) -> None:
    # A rule that is wrong by a factor, as a backend's own could be.
    @ed.register_decomposition("aten.gelu_backward.default")
    def wrong(grad: torch.Tensor, x: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
        return grad * 0.5

    context = trained._mode_context
    right = context.mode
    context.mode = ed.EagerDecompMode(ed.core_aten(), rules=[wrong])
    try:
        assert trained._gradient_difference() > 1e-3
        assert trained._difference_without_dropout() > 1e-3
    finally:
        context.mode = right


@pytest.mark.full
def test_the_command_prints_progress_and_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "facts.json"
    assert main(["demo", "--steps", "2", "--json", str(target)]) == 0
    out = capsys.readouterr().out
    assert "step 2/2  loss" in out
    assert "times plain eager" in out
    assert json.loads(target.read_text())["finished"] is True


@pytest.mark.full
def test_the_command_ends_with_130_and_the_table_on_ctrl_c(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = demo_module._TrainingRun.step

    def interrupted(self: demo_module._TrainingRun) -> None:
        step(self)
        if len(self.losses) == 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(demo_module._TrainingRun, "step", interrupted)
    assert main(["demo", "--steps", "9"]) == 130
    assert "steps done before the interrupt" in capsys.readouterr().out
