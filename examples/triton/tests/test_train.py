"""The models of `train.py` train to eager's losses."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path

import on_triton
import pytest

import eagerdecomp as ed

SPEC = importlib.util.spec_from_file_location("triton_train", Path(__file__).parent.parent / "train.py")
assert SPEC is not None
assert SPEC.loader is not None
script = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(script)


@pytest.mark.parametrize("name", script.MODELS)
def test_a_model_trains_to_eagers_losses(name: str) -> None:
    expected = script.train(name, 2, "cpu", contextlib.nullcontext())
    before = on_triton.launches()
    losses = script.train(name, 2, "cpu", ed.EagerDecompMode(on_triton.backend))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert on_triton.launches() > before + 100
