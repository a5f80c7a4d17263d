"""Suites of others are scored by op, with a reason for each op that a column loses. The checkouts here are stand-ins."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from conformance.outside_suites import main

EVAL = """
import torch, types
def eval_correctness_test(op, impl, test):
    want = op(*test.args, **test.kwargs)
    try:
        found, kind, said = impl(*test.args, **test.kwargs), "", ""
    except Exception as error:
        found, kind, said = None, type(error).__name__, f"exc: {error}"
    right = found is not None and torch.allclose(want, found)
    return types.SimpleNamespace(is_correct=right, error_type=kind, error_msg=said, max_abs_error=1.0, args="x")
"""
SUITE = """
import torch, types
X = torch.ones(3)
def tests(*ops):
    return [types.SimpleNamespace(op=op, correctness_tests=[types.SimpleNamespace(args=args, kwargs={})]) for op, *args in ops]
def build_op_tests(device, dtype):
    aten = torch.ops.aten
    return tests((aten.silu.default, X), (aten.bernoulli.default, X / 2), (aten.nonzero.default, X))
build_facto_op_tests = build_op_tests
"""


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    suite = tmp_path / "BackendBench" / "suite"
    suite.mkdir(parents=True)
    (tmp_path / "BackendBench" / "__init__.py").write_text("import a_package_that_the_suite_does_not_need", encoding="utf-8")
    (tmp_path / "BackendBench" / "eval.py").write_text(EVAL, encoding="utf-8")
    for name in ("opinfo", "facto"):
        (suite / f"{name}.py").write_text(SUITE, encoding="utf-8")
    before = set(sys.modules)
    monkeypatch.setattr(sys, "path", [*sys.path])
    yield tmp_path
    for name in set(sys.modules) - before:
        if name.startswith("BackendBench"):
            del sys.modules[name]


def test_each_lost_op_has_a_reason(checkout: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = checkout / "page.md"
    words = ["--backendbench", str(checkout), "--facto", str(checkout), "--ops", "infra", "--markdown", str(page)]
    assert main([*words, "--backend", "eagerdecomp.backends.numpy:BACKEND"]) == 0
    printed = capsys.readouterr().out
    assert "| BackendBench OpInfo: 3 overloads, 3 calls | 2 | 0 | 2 |" in printed
    assert "- `aten.bernoulli.default`: random numbers" in printed
    assert "BackendBench OpInfo `eagerdecomp.backends.numpy:BACKEND` 0 of 1" in printed
    assert "- `aten.silu.default`: raises: aten.silu.default is not in OpSet(infra" in printed
    assert printed.strip() in page.read_text(encoding="utf-8")
