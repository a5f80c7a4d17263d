"""The models of `train.py` train to eager's losses, and so do two of `benchmark_models.py`: one draws noise, one has bags."""

from __future__ import annotations

import contextlib
import importlib.util
from pathlib import Path
from typing import Any

import on_triton
import pytest

import eagerdecomp as ed


def script(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(f"triton_{name}", Path(__file__).parent.parent / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    made = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(made)
    return made


train, benchmark_models = script("train"), script("benchmark_models")


@pytest.mark.parametrize("name", train.MODELS)
def test_a_model_trains_to_eagers_losses(name: str) -> None:
    expected = train.train(name, 2, "cpu", contextlib.nullcontext())
    before = on_triton.launches()
    losses = train.train(name, 2, "cpu", ed.EagerDecompMode(on_triton.backend))
    assert losses == pytest.approx(expected, rel=1e-5)
    assert on_triton.launches() > before + 100


@pytest.mark.parametrize("name", ["variational autoencoder", "DLRM"])
def test_a_model_of_the_benchmark_trains_to_eagers_losses(name: str) -> None:
    from benchmarks.nets import NETS

    (net,) = (one for one in NETS if one.name == name)
    expected = benchmark_models.losses(net, contextlib.nullcontext())
    assert benchmark_models.losses(net, ed.EagerDecompMode(on_triton.backend)) == pytest.approx(expected, rel=1e-5)
