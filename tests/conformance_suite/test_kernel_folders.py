"""Kernels in files: a verdict on each, whatever it does to its process; verdicts that are there are kept."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eagerdecomp.cli.main import main
from eagerdecomp.conformance import kernel_folders
from eagerdecomp.conformance.kernel_folders import KernelFile, kernel_files

pytestmark = pytest.mark.full

#: Folder -> the bodies of its versions.
BODIES = {
    "add__Tensor": ["return torch.add(x, y)", "return torch.add(x, y, alpha=alpha)"],
    "neg__default": ["return -x if x.numel() < 5 else os._exit(3)"],
    "relu__default": ["while x.dim() == 3: pass\n    return x.relu()"],
    "abs": ["return x)"],
    "mul__Tensor": ["return torch.empty(10**11)"],
}


def write(folder: Path, bodies: dict[str, list[str]]) -> None:
    for name, versions in bodies.items():
        (folder / name).mkdir(exist_ok=True)
        for version, body in enumerate(versions, 1):
            arguments = {"add__Tensor": "x, y, *, alpha=1", "mul__Tensor": "x, y", "cat__default": "x, dim=0"}.get(name, "x")
            code = f"import os, torch\n\ndef {name}_kernel_impl({arguments}):\n    {body}\n"
            (folder / name / f"{name}_implementation_v{version}.py").write_text(code)


def judged(folder: Path, *options: str) -> tuple[int, dict[str, dict[str, Any]]]:
    code = main(["conformance", "--kernels", str(folder), "--profile", "quick", "--time-limit", "40", *options])
    found = [json.loads(path.read_text()) for path in folder.rglob("*.verdict.json")]
    return code, {one["file"].partition("/")[2].partition("_implementation_")[0] + one["file"][-4:-3]: one for one in found}


def test_each_file_has_a_verdict_and_the_newest_versions_decide(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write(tmp_path, BODIES)
    (tmp_path / "nonsense__op").mkdir()
    (tmp_path / "nonsense__op" / "nonsense__op_implementation_v1.py").touch()
    code, verdicts = judged(tmp_path, "--json", str(tmp_path / "all.json"), "--passed", str(tmp_path / "passed.txt"))
    assert code == 1
    states = {"add__Tensor1": "wrong", "add__Tensor2": "passed", "neg__default1": "crashed", "relu__default1": "timed out"}
    assert {name: one["verdict"] for name, one in verdicts.items()} == {**states, "abs1": "wrong", "mul__Tensor1": "wrong"}
    wrong = verdicts["add__Tensor1"]["failures"][0]
    assert set(wrong) == {"property", "message", "input", "expected", "got", "reproducer"}
    assert "alpha" in wrong["input"]
    assert verdicts["abs1"]["failures"][0]["property"] == "load"
    assert verdicts["mul__Tensor1"]["failures"][0]["property"] == "raises"  # it may not have so much memory
    assert "--memory-limit 4096 MiB" in verdicts["mul__Tensor1"]["note"]
    with pytest.raises(SystemExit) as ended:
        exec(compile(wrong["reproducer"], "reproducer", "exec"), {"__name__": "__main__"})
    assert ended.value.code == 1
    listed = json.loads((tmp_path / "all.json").read_text())
    assert (listed["unknown"], len(listed["verdicts"])) == (["nonsense__op"], 6)
    assert "unknown: nonsense__op (no operator has this name)" in capsys.readouterr().out
    assert (tmp_path / "passed.txt").read_text() == "# ops whose newest kernel passed\naten.add.Tensor\n"


def test_a_file_is_judged_again_only_if_it_changed(tmp_path: Path) -> None:
    write(tmp_path, {"neg__default": ["return -x"]})
    code, before = judged(tmp_path)
    assert (code, before["neg__default1"]["verdict"]) == (0, "passed")
    path = next(tmp_path.rglob("*.verdict.json"))
    path.write_text(path.read_text().replace('"note": ""', '"note": "kept"'))
    assert judged(tmp_path)[1]["neg__default1"]["note"] == "kept"
    assert judged(tmp_path, "--memory-limit", "5000")[1]["neg__default1"]["note"] == ""  # judged with other limits
    write(tmp_path, {"neg__default": ["return x"]})
    code, after = judged(tmp_path)
    assert (code, after["neg__default1"]["verdict"]) == (1, "wrong")


def test_a_kernel_cannot_write_its_verdict(tmp_path: Path) -> None:
    write(tmp_path, {"neg__default": ["return x"]})
    judged(tmp_path)
    verdict = next(tmp_path.rglob("*.verdict.json"))
    forged = f"""
import hashlib, json, os
verdict = json.loads({verdict.read_text()!r}) | {{"verdict": "passed", "failures": []}}
verdict["judged"]["sha256"] = hashlib.sha256(open(__file__, "rb").read()).hexdigest()
open({str(verdict)!r}, "w").write(json.dumps(verdict))
os._exit(0)
"""
    next(tmp_path.rglob("*_v1.py")).write_text(forged)
    code, found = judged(tmp_path)
    assert (code, found["neg__default1"]["verdict"]) == (1, "crashed")
    assert found["neg__default1"]["failures"][0]["message"] == "the process ended with exit code 0, in its import"


def test_a_kernel_cannot_replace_what_judges_it(tmp_path: Path) -> None:
    write(tmp_path, {"neg__default": ["return x\n\ntorch.equal = lambda *args: True"]})
    code, found = judged(tmp_path)
    (failure,) = found["neg__default1"]["failures"]
    assert (code, failure["property"], "torch.equal" in failure["message"]) == (1, "replaced functions", True)
    assert subprocess.run([sys.executable, "-c", failure["reproducer"]], capture_output=True, text=True).returncode == 1


def test_a_failure_at_import_has_a_reproducer(tmp_path: Path) -> None:
    bodies = {"neg__default": "return -x\nos._exit(0)", "abs": "return x)", "relu__default": "return x.relu()\nwhile True: pass"}
    write(tmp_path, {name: [body.replace("\n", "\n\n")] for name, body in bodies.items()})
    code, verdicts = judged(tmp_path, "--time-limit", "5")
    states = {"neg__default1": "crashed", "abs1": "wrong", "relu__default1": "timed out"}
    assert (code, {name: one["verdict"] for name, one in verdicts.items()}) == (1, states)
    for broken in (True, False):
        for name in (*states,)[: 2 if broken else 3]:  # that of the hanging one takes a minute
            script = verdicts[name]["failures"][0]["reproducer"]
            done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
            assert done.returncode == broken, done.stderr
        write(tmp_path, {name: ["return x"] for name in bodies})


def test_an_interrupted_run_writes_what_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, {"neg__default": ["return -x"], "relu__default": ["return x.relu()"]})

    def interrupted(files: list[KernelFile], **options: Any) -> Iterator[Any]:
        yield next(judge(files[:1], **options))
        raise KeyboardInterrupt

    judge = kernel_folders.judge
    monkeypatch.setattr(kernel_folders, "judge", interrupted)
    code, _ = judged(tmp_path, "--json", str(tmp_path / "all.json"), "--passed", str(tmp_path / "passed.txt"))
    assert (code, len(json.loads((tmp_path / "all.json").read_text())["verdicts"])) == (130, 1)
    assert (tmp_path / "passed.txt").read_text() == "# ops whose newest kernel passed\naten.neg.default\n"


def test_strict_counts_accepted_calls(tmp_path: Path) -> None:
    write(tmp_path, {"cos__default": ["return x.cos()"], "cat__default": ["return torch.cat(x, dim if dim < 50 else 0)"]})
    code, verdicts = judged(tmp_path, "--ops", "aten.cat.default")
    assert (code, [*verdicts]) == (0, ["cat__default1"])
    assert verdicts["cat__default1"]["accepts"][0]["message"] == "accepts what eager refuses: dim out of range"
    code, verdicts = judged(tmp_path, "--strict")
    states = {one["op"]: one["verdict"] for one in verdicts.values()}
    assert (code, states) == (1, {"aten.cat.default": "wrong", "aten.cos.default": "passed"})


def test_folders_are_named_after_overloads_and_versions_are_in_order(tmp_path: Path) -> None:
    write(tmp_path, {"add___Tensor": ["return x"] * 11, "relu": ["return x"]})
    found, unknown = kernel_files(tmp_path)
    assert [str(one.op) for one in found] == ["aten.add_.Tensor"] * 11 + ["aten.relu.default"]
    assert found[10].path.name.endswith("v11.py")
    assert unknown == []
