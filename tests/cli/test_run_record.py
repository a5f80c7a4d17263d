"""``eagerdecomp run --record`` and ``--perfetto``: files that are written however the script ends, and do not grow with it."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from eagerdecomp.cli.main import main
from eagerdecomp.profile.record import Record

STEP = "import torch\nx = torch.ones(3, requires_grad=True)\ntorch.nn.functional.silu(x).sum().backward()\n"


def test_a_run_writes_its_record_and_its_trace(script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    target, trace = tmp_path / "run.json", tmp_path / "run.trace"
    assert main(["run", "--record", str(target), "--perfetto", str(trace), str(script), "--epochs", "2"]) == 0
    record = Record.from_json(target.read_text(encoding="utf-8"))
    metadata = record.metadata
    assert (metadata.script, metadata.args, metadata.exit_code, metadata.error) == (str(script), ("--epochs", "2"), 0, "")
    assert metadata.op_set in capfd.readouterr().out
    (site,) = [site for site in record.sites if site.op == "aten.silu_backward.default"]
    line = record.lines[site.line]
    assert (line.file, line.number, line.backward) == (str(script), 3, "SiluBackward0")
    slices = [event for event in json.loads(trace.read_text(encoding="utf-8"))["traceEvents"] if event["ph"] == "X"]
    assert [one["name"] for one in slices if one["cat"] == "op"] == [event.op for event in record.events]


@pytest.mark.parametrize(
    ("ending", "code", "error"),
    [
        ("raise ValueError('one\\ntwo')", 1, "ValueError: one"),
        ("raise SystemExit(7)", 7, ""),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("torch.ones(2, 2).to_mkldnn()", 1, "UnsupportedOpError: this call takes or returns MKLDNN tensors"),
    ],
)
def test_the_table_the_record_and_the_exit_code_do_not_depend_on_how_the_script_ends(
    script: Path, tmp_path: Path, ending: str, code: int, error: str, capfd: pytest.CaptureFixture[str]
) -> None:
    script.write_text(STEP + ending + "\n", encoding="utf-8")
    target, trace = tmp_path / "run.json", tmp_path / "run.trace"
    assert main(["run", "--record", str(target), "--perfetto", str(trace), str(script)]) == code
    assert re.search(r"of those outside the set +0\n", capfd.readouterr().out)
    assert torch._C._len_torch_dispatch_stack() == 0
    record = Record.from_json(target.read_text(encoding="utf-8"))
    assert record.metadata.exit_code == code
    assert record.metadata.error.startswith(error)
    assert bool(record.metadata.error) == bool(error)
    assert [one.op for one in record.unsupported] == (["aten.to_mkldnn.default"] if "mkldnn" in ending else [])
    assert json.loads(trace.read_text(encoding="utf-8"))["traceEvents"]


def _signalled(command: list[str], script: Path, source: str, number: int) -> int:
    """The exit status of a command whose script is sent a signal once it has printed a line."""
    script.write_text(STEP + source, encoding="utf-8")
    line = [sys.executable, "-m", "eagerdecomp", *command, str(script)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        time.sleep(0.2)
        process.send_signal(number)
        process.communicate(timeout=60)
    return process.returncode


WAITING = "import time\nprint('ready', flush=True)\ntime.sleep(600)\n"
WITH_A_THREAD = "import threading, time\nthreading.Thread(target=time.sleep, args=(600,)).start()\n" + WAITING
HANDLING = "import signal, sys\nsignal.signal(signal.SIGTERM, lambda *_: sys.exit(5))\n" + WAITING


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="SIGTERM cannot be handled")
@pytest.mark.parametrize(
    ("source", "status", "recorded"),
    [(WAITING, -signal.SIGTERM, 143), (WITH_A_THREAD, -signal.SIGTERM, 143), (HANDLING, 5, 5)],
    ids=["waiting", "with a thread", "handling"],
)
def test_sigterm_ends_the_run_and_leaves_the_record(script: Path, tmp_path: Path, source: str, status: int, recorded: int) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target, table = folder / "run.json", folder / "table.json"
    command = ["run", "--quiet", "--record", str(target), "--json", str(table)]
    assert _signalled(command, script, source, signal.SIGTERM) == status
    record = Record.from_json(target.read_text(encoding="utf-8"))
    assert record.metadata.exit_code == recorded
    assert sum(site.calls for site in record.sites) > 0
    assert json.loads(table.read_text(encoding="utf-8"))["exit_code"] == recorded
    assert sorted(folder.iterdir()) == [target, table]


@pytest.mark.full
@pytest.mark.skipif(sys.platform == "win32", reason="no SIGKILL")
@pytest.mark.parametrize(
    ("command", "number"), [(["run", "--record"], signal.SIGKILL), (["blame", "--json"], signal.SIGTERM)], ids=["killed", "blame"]
)
def test_a_killed_process_leaves_the_old_file_or_none(script: Path, tmp_path: Path, command: list[str], number: int) -> None:
    folder = tmp_path / "out"
    folder.mkdir()
    target = folder / "run.json"
    assert _signalled([*command, str(target)], script, WAITING, number) == -number
    assert list(folder.iterdir()) == []
    target.write_text("the old one", encoding="utf-8")
    assert _signalled([*command, str(target)], script, WAITING, number) == -number
    assert target.read_text(encoding="utf-8") == "the old one"
    assert list(folder.iterdir()) == [target]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full")
def test_a_full_device_is_named_after_the_run(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--quiet", "--record", "/dev/full", str(script)]) == 1
    assert (
        capfd.readouterr().err
        == "eagerdecomp run: --record /dev/full: cannot write this file: No space left on device. Choose another path\n"
    )


def test_a_file_that_cannot_be_written_is_reported_before_the_run(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script.write_text("print('ran')\n", encoding="utf-8")
    for option in ("--record", "--perfetto"):
        assert main(["run", option, str(tmp_path / "nowhere" / "run.json"), str(script)]) == 2
        said = capfd.readouterr()
        assert said.out == ""
        assert said.err.startswith(f"eagerdecomp run: {option} ")
        assert said.err.count("\n") == 2
