"""Torch's own decompositions as rules: their order, and what they import."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from on_core import on_core

from eagerdecomp.rules.shipped import shipped_rules

aten = torch.ops.aten


def test_a_composite_kernel_comes_before_the_tables() -> None:
    sources = [rule.source for rule in shipped_rules(aten.linear.default)]
    assert sources[0] == "composite"


def test_a_prim_that_inductor_adds_runs_as_its_composition() -> None:
    pytest.importorskip("torch._inductor.inductor_prims")
    fma = torch.ops.prims.fma.default
    x, y = torch.tensor([1.5, -2, 0.1]), torch.tensor([0.3, 7, -4])
    for b in (0.1, y):
        assert torch.equal(on_core(lambda: fma(x, b, y)), fma(x, b, y))  # noqa: B023 - called at once


@pytest.mark.full
def test_first_calls_import_neither_dynamo_nor_sympy() -> None:
    script = """
import sys, torch, eagerdecomp as ed
x = torch.rand(3, 4)
with ed.EagerDecompMode(ed.core_aten()):
    torch.quantile(x, 0.5), torch.cumprod(x, 0), torch.nanquantile(x, 0.5, dim=1), torch.prod(x), torch.lerp(x, x, x)
print(*({"torch._dynamo", "sympy"} & {*sys.modules}), sep=",")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == [], done.stderr
