"""`eagerdecomp blame`: it names the kernel, writes a script that shows it, and says by its exit code what it found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from eagerdecomp.cli.main import main

BROKEN = """
import torch
import eagerdecomp as ed

def my_mul(x, y):
    made = torch.ops.aten.mul.Tensor(x, y)
    return torch.where(made < 0, made * 1.001, made)

def my_mm(x, y):
    made = torch.ops.aten.mm.default(x, y)
    return made + 1.0 if made.numel() > 5000 else made

backend = ed.Backend("broken", ed.core_aten(), {"aten.mul.Tensor": my_mul})
large = ed.Backend("large", ed.core_aten(), {"aten.mm.default": my_mm})
"""

SCRIPT = """
import torch
print("script begins")
x = torch.linspace(-3, 3, 40).view(4, 10).requires_grad_()
torch.nn.functional.silu(x).sum().backward()  # the line
print("script ends")
"""

LARGE = "import torch\ntorch.manual_seed(0)\nx = torch.rand(90, 70)\ny = torch.mm(x, x.t())\n"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "script.py").write_text(SCRIPT, encoding="utf-8")
    (tmp_path / "large.py").write_text(LARGE, encoding="utf-8")
    (tmp_path / "broken_backend.py").write_text(BROKEN, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "broken_backend", raising=False)
    return tmp_path


def run(path: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False, cwd="/")


@pytest.mark.full
def test_the_command_blames_and_writes_a_script_that_fails_until_the_kernel_is_fixed(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    argv = ["blame", "--backend", "broken_backend:backend", "--reproducer", "wrong.py", "--json", "found.json", "script.py"]
    assert main(argv) == 1
    out = capfd.readouterr().out
    assert "script begins" in out
    assert "script ends" not in out, "it was not cut short"
    assert "script.py:5 in <module>" in out
    assert "broken_backend.my_mul" in out
    assert json.loads((folder / "found.json").read_text())["found"][0]["culprit"]["kind"] == "kernel"
    failed = run(folder / "wrong.py")
    assert failed.returncode == 1, failed.stderr
    assert "broken_backend.my_mul" in failed.stdout
    fixed = BROKEN.replace("made * 1.001, made)", "made, made)")
    (folder / "broken_backend.py").write_text(fixed, encoding="utf-8")
    passed = run(folder / "wrong.py")
    assert passed.returncode == 0, passed.stdout + passed.stderr
    assert "no difference" in passed.stdout


@pytest.mark.full
def test_a_fault_only_of_large_inputs_is_shown_with_random_ones(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["blame", "--backend", "broken_backend:large", "--reproducer", "wrong.py", "large.py"]) == 1
    text = (folder / "wrong.py").read_text()
    assert "manual_seed" in text
    assert len(text) < 2000
    assert run(folder / "wrong.py").returncode == 1


def test_a_right_run_exits_with_0_and_a_failing_script_with_3(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["blame", "--ops", "core", "script.py"]) == 0
    out = capfd.readouterr().out
    assert "script ends" in out
    assert "no difference from eager" in out
    assert "not compared" not in out
    (folder / "script.py").write_text("import torch\ntorch.nn.functional.silu(torch.ones(2))\n1 / 0\n", encoding="utf-8")
    assert main(["blame", "script.py"]) == 3
    printed = capfd.readouterr()
    assert "ZeroDivisionError" in printed.err
    assert "2 calls compared" in printed.out
    assert "the script ended with exit code 1: what it would have called after that was not compared" in printed.out


@pytest.mark.parametrize(
    ("text", "words", "absent"),
    [
        (
            "from eagerdecomp.profile import RecordingMode\n"
            "with RecordingMode(ed.core_aten()):\n    F.silu(torch.ones(3, requires_grad=True)).sum().backward()\n",
            "a mode that the program enters itself",
            "no difference",
        ),
        (
            "F.gelu(torch.ones(3), approximate='tanh')\nwith ed.EagerDecompMode(ed.core_aten()):\n    F.silu(torch.ones(3))\n",
            "a mode that the program enters itself",
            "nothing was compared",
        ),
        ("torch.tensor(3.0).exp()\n", "nothing was compared", "no difference"),
    ],
    ids=["recording", "in part", "native"],
)
def test_the_report_does_not_claim_equality_for_calls_that_were_not_compared(
    text: str, words: str, absent: str, folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    (folder / "script.py").write_text(f"import torch\nimport eagerdecomp as ed\nF = torch.nn.functional\n{text}", encoding="utf-8")
    assert main(["blame", "script.py"]) == 4
    out = capfd.readouterr().out
    assert words in out
    assert absent not in out


def test_threads_of_the_script_are_compared(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    text = SCRIPT.replace("torch.nn.functional", "import threading\nthread = threading.Thread(target=lambda: torch.nn.functional")
    text = text.replace(".backward()  # the line", ")\nthread.start()\nthread.join()")
    (folder / "script.py").write_text(text, encoding="utf-8")
    assert main(["blame", "--backend", "broken_backend:backend", "script.py"]) == 1
    assert "in <lambda>" in capfd.readouterr().out
