"""The null backend computes nothing and returns what fits."""

from __future__ import annotations

import torch

import eagerdecomp as ed
from eagerdecomp.backends.null import null_backend


def test_null_computes_nothing() -> None:
    backend, calls = null_backend()
    x = torch.tensor([1.0, 2.0])
    with ed.EagerDecompMode(backend):
        y = torch.exp(x) + 1
        x.mul_(3)
        found = torch.nonzero(x)
    assert y.tolist() == [1.0, 1.0]
    assert x.tolist() == [1.0, 2.0]
    assert list(found.shape) == [0, 1]
    assert calls["aten.exp.default"] == 1
