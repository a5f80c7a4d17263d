"""Torch's own decompositions as rules: which ones are used, and in which order."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from eagerdecomp._torch.ops import overload
from eagerdecomp.ops.schema import facts_of, functional_variant
from eagerdecomp.rules.shipped import shipped_rules

aten = torch.ops.aten


def op_of(name: str) -> Any:
    op = overload(name.replace(".", "::", 1).removesuffix(".default"))
    assert op is not None, f"no operator is called {name}"
    return op


def test_a_composite_kernel_comes_before_the_tables() -> None:
    sources = [rule.source for rule in shipped_rules(aten.linear.default)]
    assert sources[0] == "composite"


@pytest.mark.full
def test_a_reference_runs_without_the_import_of_dynamo() -> None:
    script = """
import sys, torch, eagerdecomp as ed
from eagerdecomp._torch.ops import overload
from eagerdecomp.rules.shipped import shipped_rules
for name, args in {"frac": 1, "sinc": 1, "deg2rad": 1, "isposinf": 1, "logaddexp": 2, "heaviside": 2}.items():
    (rule,) = [rule for rule in shipped_rules(overload(f"aten::{name}")) if rule.source == "core"]
    with ed.EagerDecompMode(ed.core_aten()):
        rule(*[torch.rand(3)] * args)
print("torch._dynamo" in sys.modules)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.split() == ["False"], done.stderr


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


@pytest.mark.parametrize("name", ["aten.mode.values", "aten.add_.Tensor", "aten.relu_.default", "aten.stack.out"])
def test_ops_with_a_functional_variant_get_no_mutating_rule(name: str) -> None:
    op = op_of(name)
    assert facts_of(op).mutated
    assert functional_variant(op) is not None
    assert {rule.source for rule in shipped_rules(op)} <= {"composite"}
