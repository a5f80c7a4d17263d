"""The command ``trace``: a model's kernel calls as text and JSON, and what it refuses in a line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eagerdecomp.cli.main import main

NETS = """
import torch
import eagerdecomp as ed

def mlp():
    return torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.SiLU()), (torch.randn(4, 8),)

def empty():
    class Net(torch.nn.Module):
        def forward(self, x):
            raise KeyError()
    return Net(), torch.ones(2)

@ed.register_decomposition("aten.silu.default")
def hard_silu(x):
    return x * (x > 0)

def misfit():
    return torch.nn.Linear(3, 3), torch.randn(4, 8)
"""


@pytest.fixture(autouse=True)
def nets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "trace_nets.py").write_text(NETS, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)


def test_forward_and_backward_are_printed_with_a_count(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["trace", "trace_nets:mlp"]) == 0
    out = capsys.readouterr().out
    assert 'addmm: "f32[4, 8]" = torch.ops.aten.addmm.default(' in out
    assert "torch.ops.aten.mm.default(" in out, "the gradient of the weight"
    assert "kernel calls of" in out.splitlines()[-1]


def test_named_composites_are_kept_and_named_rules_are_tried_first(capsys: pytest.CaptureFixture[str]) -> None:
    assert (
        main(["trace", "trace_nets:mlp", "--json", "-", "--keep", "aten.linear, aten.relu", "--rules", "trace_nets:hard_silu"]) == 0
    )
    printed = json.loads(capsys.readouterr().out)
    assert printed["kernels"]["aten.linear.default"] == 1
    assert printed["kernels"]["aten.gt.Scalar"] == 1
    assert "aten.addmm.default" not in printed["kernels"]
    assert "core_aten | 3 ops" in printed["op_set"], "linear and its out variant, relu's; relu itself is of the set"


@pytest.mark.parametrize(
    ("words", "code", "printed"),
    [
        (["trace_nets:misfit"], 1, "mat1 and mat2 shapes cannot be multiplied"),
        (["trace_nets:empty"], 1, "trace_nets:empty: running it raises KeyError ("),
        (["trace_nets:mlp", "--ops", "infra"], 1, "no route"),
    ],
)
def test_a_function_that_cannot_be_traced_is_reported_in_one_or_two_lines(
    words: list[str], code: int, printed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["trace", *words]) == code
    err = capsys.readouterr().err
    assert printed in err
    assert "Traceback" not in err
    assert len(err.splitlines()) <= 2 or code == 1
