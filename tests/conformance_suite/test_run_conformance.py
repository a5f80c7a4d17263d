"""The suite as its users run it: in Python, by the command, by pytest; kernels that crash and hang; what a report says."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.conformance import Report, check_again, check_call, run_conformance, suite
from eagerdecomp.conformance.devices import kernel_of

aten = torch.ops.aten

#: A module with a backend, as a user has it.
MODULE = """
import os, torch, eagerdecomp as ed
aten = torch.ops.aten
def exp(x):
    return torch.exp(x) * 1.001
calls = []
def tan(x):
    calls.append(1)
    return torch.tan(x) + (len(calls) > 64)
def sin(x):
    os._exit(0)
ops = [op for op in ed.core_aten() if op is not aten.tanh.default]
kernels = {aten.exp.default: exp, aten.neg.default: aten.neg.default, aten.tan.default: tan, aten.sin.default: sin}
backend = ed.Backend("mine", ops, kernels)
def made():
    return backend
"""


def backend(**kernels: Callable[..., Any]) -> ed.Backend:
    return ed.Backend("mine", ed.core_aten(), {f"aten.{name}.default": kernel for name, kernel in kernels.items()})


def aborting(x: Tensor) -> Tensor:
    if x.dim() == 3:
        os.abort()
    return aten.neg(x)


def leaving(x: Tensor) -> Tensor:
    return aten.neg(x) if x.dim() < 2 else sys.exit(7)


def raising(*_: Tensor) -> bool:
    raise ZeroDivisionError("in the predicate")


@pytest.mark.full
@pytest.mark.parametrize("isolate", [True, False])
def test_a_predicate_that_raises_is_a_failure_with_its_smallest_call(isolate: bool) -> None:
    ops = ed.core_aten().with_predicate("aten.exp", when=raising)
    mine = ed.Backend("mine", ops, {"aten.exp.default": torch.exp})
    (failure,) = run_conformance(mine, ops=["aten.exp"], profile="quick", isolate=isolate).failures
    assert (failure.property, failure.got) == ("predicate", "raised ZeroDivisionError: in the predicate")
    assert failure.message.startswith("its predicate ")
    assert failure.message.endswith(failure.got)
    assert failure.example.startswith("aten.exp.default(f32[")
    (_, ending) = failure.reproducer.split("fault = ")
    assert re.match(r"check_\w+\(mine, 'aten.exp.default', ", ending.replace("backend", "mine"))


def test_a_call_whose_result_has_a_dtype_that_the_backend_does_not_take_is_not_tested() -> None:
    """A float32 tensor plus a complex number is complex64. The mode refuses the call before the kernel."""
    single = ed.Backend("mine", ed.core_aten(), dtypes={torch.float32})
    x = torch.ones(2)
    for op, other, taken in ((aten.add.Tensor, 1 + 2j, False), (aten.eq.Tensor, x, False), (aten.add.Tensor, 1.5, True)):
        claims = kernel_of(single, op).claims
        assert claims is not None
        assert claims(x, other) is taken
    with ed.EagerDecompMode(single), pytest.raises(ed.UnsupportedOpError):
        torch.ones(2) + (1 + 2j)


@pytest.mark.full
@pytest.mark.parametrize(
    ("kernel", "words"), [(aborting, "SIGABRT"), (leaving, "exit code 7"), (lambda x: os._exit(0), "exit code 0")]
)
def test_a_kernel_that_ends_its_process_is_reported_and_the_rest_still_runs(kernel: Callable[..., Any], words: str) -> None:
    report = run_conformance(backend(neg=kernel, exp=torch.exp), ops=["aten.neg", "aten.exp"], profile="quick")
    (failure,) = report.failures
    assert failure.op is aten.neg.default
    assert failure.property == "crash"
    assert words in failure.message
    assert failure.example.startswith("aten.neg.default(")
    assert report.verdict("aten.exp.default").state == "right"


@pytest.mark.full
@pytest.mark.parametrize(("deaths", "state"), [(2, "right"), (100, "not exercised")])  # it dies once more when it is asked
def test_a_kernel_is_not_blamed_where_eagers_own_ends_the_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, deaths: int, state: str
) -> None:
    died = tmp_path / "died"
    died.touch()

    def native(x: Tensor) -> Tensor:
        if died.stat().st_size < deaths:
            with died.open("a") as file:
                file.write("x")
            os.abort()
        return aten.neg(x)

    kernel_of = suite.kernel_of
    monkeypatch.setattr(suite, "kernel_of", lambda backend, op: replace(kernel_of(backend, op), native=native))
    report = run_conformance(backend(neg=torch.neg), ops=["aten.neg"], profile="quick")
    verdict = report.verdict("aten.neg.default")
    assert (verdict.state, report.failures) == (state, ())
    assert ("SIGABRT" in verdict.note) == (state == "not exercised")


@pytest.mark.full
def test_a_kernel_that_hangs_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(suite.PROFILES, "quick", replace(suite.PROFILES["quick"], patience=2.0))

    def hanging(x: Tensor) -> Tensor:
        while x.numel() == 0:
            time.sleep(0.01)
        return aten.neg(x)

    report = run_conformance(backend(neg=hanging, exp=torch.exp), ops=["aten.neg", "aten.exp"], profile="quick")
    (failure,) = report.failures
    assert (failure.op, failure.property) == (aten.neg.default, "hang")
    assert report.verdict("aten.exp.default").state == "right"


@pytest.mark.full
def test_a_kernel_right_by_itself_and_wrong_in_a_program_is_named_with_the_consequences() -> None:
    def exp(x: Tensor) -> Tensor:
        return torch.exp(x) * 1.001

    given = backend(exp=exp)
    floats = replace(given, ops=given.ops.with_predicate("aten.exp.default", lambda x: x.is_floating_point()))
    report = run_conformance(floats, ops=[], programs=True, profile="quick")
    assert {failure.op for failure in report.failures} == {aten.exp.default}
    assert report.failures[0].property == "program"
    assert report.consequences
    assert {one.blamed for one in report.consequences} == {aten.exp.default}
    assert aten.exp.default not in {one.op for one in report.consequences}
    assert report.calls > 50


@pytest.mark.full
def test_an_interrupted_run_reports_what_it_knows() -> None:
    def progress(done: int, total: int, verdict: object) -> None:
        if done == 1:
            raise KeyboardInterrupt

    report = run_conformance(
        backend(exp=torch.exp), ops=["aten.exp", "aten.neg", "aten.sin"], profile="quick", processes=1, progress=progress
    )
    assert report.interrupted
    assert not report.ok
    assert sorted(verdict.state for verdict in report.results) == ["not exercised", "not exercised", "right"]


def test_one_call_and_one_case_are_checked_again() -> None:
    wrong = backend(exp=lambda x: torch.exp(x) * 1.001)
    assert check_call(wrong, "aten.exp.default", [torch.ones(2)]).kind == "values"
    assert check_call(backend(exp=torch.exp), "aten.exp.default", [torch.ones(2)]) is None
    narrow = ed.Backend("narrow", ed.core_aten(), {"aten.exp.default": torch.exp}, dtypes=[torch.float32])
    with pytest.warns(UserWarning, match="compared nothing .* its dtypes refuse"):
        assert check_call(narrow, "aten.exp", [torch.ones(2).double()]) is None
    for op, args in (("silu", [torch.ones(2)]), ("exp", torch.ones(2)), ("exp", [torch.ones(2)] * 2)):
        with pytest.raises((ed.OpSetError, ed.ArgumentError)):
            check_call(wrong, f"aten.{op}.default", args)
    assert check_again(wrong, "aten.exp.default", "values", [0]).kind == "values"
    assert check_again(backend(exp=torch.exp), "aten.exp.default", "values", [0]) is None


# -- as commands -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def project(tmp_path: Path) -> Path:
    (tmp_path / "mine.py").write_text(MODULE, encoding="utf-8")
    return tmp_path


def command(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True, check=False, env=environment)


def run_suite(folder: Path, *words: str, backend: str = "mine:backend") -> subprocess.CompletedProcess[str]:
    return command(folder, "-m", "eagerdecomp", "conformance", backend, "--profile", "quick", *words)


@pytest.mark.full
def test_the_command_names_the_wrong_kernel_writes_reports_and_scripts_that_run(project: Path) -> None:
    ops = "aten.exp,aten.neg,aten.tanh"
    files = ("--json", "r.json", "--markdown", "r.md", "--junit", "r.xml", "--html", "r.html", "--scripts", "wrong")
    done = run_suite(project, "--ops", ops, *files)
    assert done.returncode == 1, done.stderr
    assert "aten.exp.default" in done.stdout
    assert "Traceback" not in done.stderr
    report = Report.from_json((project / "r.json").read_text(encoding="utf-8"))
    assert {str(verdict.op): verdict.state for verdict in report.results} == {
        "aten.exp.default": "wrong",
        "aten.neg.default": "right",
        "aten.tanh.default": "absent",
    }
    for name in ("r.md", "r.xml", "r.html"):
        assert "aten.exp.default" in (project / name).read_text(encoding="utf-8")
    (script,) = sorted((project / "wrong").iterdir())
    again = command(project, str(script))
    assert again.returncode == 1, again.stderr
    assert "values" in again.stdout
    (project / "mine.py").write_text(MODULE.replace("* 1.001", ""), encoding="utf-8")
    assert command(project, str(script)).returncode == 0
    compared = run_suite(project, "--ops", ops, "--compare", "r.json", "--json", "-", backend="mine:made")
    assert compared.returncode == 0, compared.stderr
    assert json.loads(compared.stdout)["backend"] == "mine"


@pytest.mark.full
@pytest.mark.parametrize("op", ["tan", "sin"])
def test_a_script_shows_also_what_comes_of_many_calls_or_ends_the_process(project: Path, op: str) -> None:
    assert run_suite(project, "--ops", f"aten.{op}", "--scripts", "wrong").returncode == 1
    (script,) = sorted((project / "wrong").iterdir())
    again = command(project, str(script))
    assert again.returncode == 1, again.stderr


@pytest.mark.full
def test_pytest_runs_a_test_a_kernel(project: Path) -> None:
    words = (
        *("-m", "pytest", "--pyargs", "eagerdecomp.conformance", "--eagerdecomp-profile", "quick", "-p"),
        *("no:cacheprovider", "-rsf"),
    )
    some = ("-k", "exp.default or aten.neg.default or tanh.default or floor.default", "--junitxml", "r.xml")
    done = command(project, *words, "--eagerdecomp-backend", "mine:backend", *some)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "FAILED" in done.stdout
    assert "test_kernel[aten.exp.default]" in done.stdout
    assert "absent: the backend has no kernel for it" in done.stdout
    assert "test_kernel[aten.neg.default]" in (project / "r.xml").read_text(encoding="utf-8")
    unnamed = command(project, *words)
    assert "--eagerdecomp-backend MODULE:BACKEND names the backend" in unnamed.stdout + unnamed.stderr


@pytest.mark.full
def test_the_command_says_when_nothing_was_exercised_and_declares_all_that_is_absent(project: Path) -> None:
    nothing = run_suite(project, "--ops", "aten.tanh", "--write-absences", "absent.txt")
    assert nothing.returncode == 4, nothing.stderr
    held = run_suite(project, "--ops", "aten.neg", "--absences", "absent.txt")
    assert held.returncode == 0, held.stdout
    (project / "absent.txt").write_text("", encoding="utf-8")
    missing = run_suite(project, "--ops", "aten.neg", "--absences", "absent.txt")
    assert missing.returncode == 1
    assert "aten.tanh.default" in missing.stdout


def test_a_kernel_may_resize_what_it_writes() -> None:
    kernel = torch.ops.aten.addbmm_.default
    backend = ed.Backend("resizing", ["aten.addbmm_.default"], kernels={kernel: kernel})
    assert not run_conformance(backend, profile="quick", isolate=False).failures
