"""The commands: what they print, and how they end."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

import eagerdecomp as ed
import eagerdecomp_script
from eagerdecomp.cli.arguments import DECLARED, parser_of
from eagerdecomp.cli.arguments.shared import SETS
from eagerdecomp.cli.commands import bench, run
from eagerdecomp.cli.main import COMMANDS, main
from eagerdecomp.conformance.suite import PROFILES
from eagerdecomp.coverage.plan_report import REQUIREMENTS
from eagerdecomp.ops.opset import NAMED_SETS
from eagerdecomp.ops.opset_file import parse_ops


def value_of(out: str, label: str) -> str:
    """Return the text after a label in the closing table."""
    (line,) = [line for line in out.splitlines() if line.strip().startswith(label)]
    return line.strip().removeprefix(label).strip()


def test_every_command_of_the_table_has_its_own_name_and_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert len({command.name for command in COMMANDS}) == len(COMMANDS)
    assert [*(command.name for command in COMMANDS), "completion"] == list(DECLARED)
    assert main(["--help"]) == main([]) == 0
    out = capsys.readouterr().out
    for name in DECLARED:
        assert name in out
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
    assert "exit codes" in out


@pytest.mark.parametrize("words", [["--only", "ops"], ["--json", "j.json"], ["--svg", "s.svg"]])
def test_bench_rejects_options_that_costs_would_ignore(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(["bench", "--costs", "c.json", *words])
    assert left.value.code == 2
    assert f"leave out {words[0]}" in capsys.readouterr().err
    assert not Path("c.json").exists()


def test_bench_needs_a_checkout(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(bench, "__file__", str(tmp_path / "eagerdecomp" / "cli" / "commands" / "bench.py"))
    assert main(["bench", "--quick"]) == 2
    assert "not in the wheel" in capsys.readouterr().err


@pytest.mark.parametrize("argv", [["run", "--nonsense", "x.py"], ["run", "--ops"], ["demo", "--steps", "0"]])
def test_a_wrong_command_line_exits_with_2(argv: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main(argv)
    assert left.value.code == 2
    assert "Traceback" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["run", "plan", "explain", "trace", "demo"])
@pytest.mark.parametrize("words", [["--ops", "prims", "--backend", "core"], ["--backend=prims", "--ops=core"]])
def test_a_second_op_set_is_refused(command: str, words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as left:
        main([command, *words, "x:y"])
    assert left.value.code == 2
    first, second = (word.split("=")[0] for word in words if word.startswith("--"))
    assert f"{first} prims and {second} core: pass one of them" in capsys.readouterr().err


def test_a_misspelt_option_is_reported_with_a_close_match(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["plan", "--backnd", "prims"], ["run", "--backnd=prims", "x.py"]):
        with pytest.raises(SystemExit):
            main(words)
        assert "Did you mean --backend?" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main(["plan", "x"])
    assert "Did you mean" not in capsys.readouterr().err


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "code"),
    [
        *(([], 0), (["--help"], 0), (["--version"], 0), (["--nonsense"], 2), (["runn"], 2)),
        *(([name, "--help"], 0) for name in DECLARED if name != "bench"),
        *((["plan", "--nonsense"], 2), (["plan", "--require", "x"], 2), (["completion", "bash"], 0)),
    ],
    ids=str,
)
def test_help_completion_the_version_and_wrong_arguments_import_no_torch(words: list[str], code: int) -> None:
    script = f"import sys; sys.modules['torch'] = None; sys.argv = ['eagerdecomp', *{words}]; import eagerdecomp_script as front; "
    done = subprocess.run([sys.executable, "-c", f"{script}sys.exit(front.main())"], capture_output=True, text=True, check=False)
    assert done.returncode == code, done.stderr
    assert "Traceback" not in done.stderr
    if not code:
        expected = {(): "new-backend", ("--help",): "new-backend", ("--version",): f"eagerdecomp {ed.__version__}"}
        assert expected.get(tuple(words), "eagerdecomp") in done.stdout


@pytest.mark.parametrize("option", ["--ops", "--backend"])
def test_a_script_runs_with_the_kernels_of_a_backend(
    option: str, script: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    name = f"chip_by_{option[2:]}"
    (tmp_path / f"{name}.py").write_text(
        "import torch, eagerdecomp as ed\n"
        "calls = []\n"
        "def sigmoid(x):\n"
        "    calls.append(x)\n"
        "    return torch.special.expit(x)\n"
        "backend = ed.Backend('chip', ed.core_aten(), {'aten.sigmoid.default': sigmoid})\n",
        encoding="utf-8",
    )
    script.write_text("import torch\nprint(torch.nn.functional.silu(torch.ones(2)))\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["run", option, f"{name}:backend", str(script)]) == 0
    assert len(sys.modules[name].calls) == 1
    out = capfd.readouterr().out
    assert value_of(out, "of those outside the set") == "0"
    assert value_of(out, "distinct ops called inside its kernels") == "1 (aten.special_expit.default)"
    assert main(["opset", f"{name}:backend"]) == 0
    assert "aten.sigmoid.default" in capfd.readouterr().out


@pytest.mark.full
def test_an_op_without_a_route_stops_the_script_or_is_counted(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ops = tmp_path / "ops.txt"
    ops.write_text("@infra\n", encoding="utf-8")
    assert main(["run", "--ops", str(ops), str(script)]) == 1
    captured = capfd.readouterr()
    assert "UnsupportedOpError" in captured.err
    assert "script done" not in captured.out
    assert "eagerdecomp on OpSet(ops.txt" in captured.out
    assert f"write the names that the error lists into {ops}; --on-unsupported fallback runs them" in captured.out
    with pytest.warns(UserWarning, match="runs natively"):
        assert main(["run", "--ops", str(ops), "--on-unsupported", "fallback", str(script)]) == 0
    out = capfd.readouterr().out
    assert int(value_of(out, "calls that fell back to native")) > 0
    assert not value_of(out, "of those outside the set").startswith("0")


def test_arguments_after_the_script_are_passed_to_it(script: Path, capfd: pytest.CaptureFixture[str]) -> None:
    script.write_text("import sys\nprint(sys.argv[1:])\n", encoding="utf-8")
    rest = ["--quiet", "--ops", "x", "-m", "y", "--", "z"]
    for start in (["--quiet"], ["--quiet", "--"], ["--quiet", "--ops", "core"], ["--ops=core", "--quiet"]):
        assert main(["run", *start, str(script), *rest]) == 0
        assert capfd.readouterr().out == f"{rest}\n"


@pytest.mark.parametrize("command", ["run", "blame", "compare"])
@pytest.mark.parametrize(
    ("words", "late"),
    [
        (["SCRIPT", "--backend", "my:BACKEND"], "--backend"),
        (["SCRIPT", "x", "--full-trace=no"], "--full-trace"),
        (["-m", "no_such_module", "--json", "x.json"], "--json"),
        (["--", "SCRIPT", "--backend", "my:BACKEND"], ""),
        (["SCRIPT", "--epochs", "1", "--help", "-m", "backend"], ""),
    ],
)
def test_an_option_of_the_command_after_the_script_is_pointed_out(
    command: str, words: list[str], late: str, script: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    sides = {"compare": ["--against", "prims"]}.get(command, [])
    main([command, *sides, *(str(script) if word == "SCRIPT" else word for word in words)])
    hints = [line for line in capfd.readouterr().err.splitlines() if "is passed to the script" in line]
    assert [line.split()[2] for line in hints] == [late] * bool(late)


def test_the_arguments_name_what_the_library_has() -> None:
    """They cannot import it: it imports torch."""
    assert tuple(NAMED_SETS) == SETS
    actions = {action.dest: action for name in ("plan", "conformance") for action in parser_of(name)._actions}
    assert actions["require"].choices == (*REQUIREMENTS, "no-worse")
    assert tuple(actions["profile"].choices or ()) == tuple(PROFILES)


@pytest.mark.parametrize("option", ["--ops", "--backend"])
@pytest.mark.parametrize("command", ["run", "plan", "explain", "trace", "demo"])
def test_errors_name_the_option_as_it_was_written(command: str, option: str, capsys: pytest.CaptureFixture[str]) -> None:
    own = {"run": ["x.py"], "explain": ["aten.silu"], "trace": ["x:y"]}.get(command, [])
    for value in ("cores", "math:pi"):
        words = [command, option, value, *own] if command == "run" else [command, *own, option, value]
        assert main(words) == 2
        said = capsys.readouterr().err
        assert f"{option} {value}: " in said
        assert {"--ops": "--backend", "--backend": "--ops"}[option] not in said


@pytest.mark.full
def test_with_preflight_a_gradient_without_a_route_stops_the_script_in_the_forward_pass(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    ops = tmp_path / "ops.txt"
    kept = [op for op in ed.core_aten() | ["aten.silu"] if str(op) not in ("aten.sigmoid.default", "aten.exp.default")]
    ops.write_text("\n".join(map(str, kept)), encoding="utf-8")
    script.write_text(
        "import torch\nx = torch.ones(3, requires_grad=True)\n"
        "y = torch.nn.functional.silu(x)\nprint('forward done')\ny.sum().backward()\n",
        encoding="utf-8",
    )
    for asked in (False, True):
        assert main(["run", "--ops", str(ops), *(["--preflight"] if asked else []), str(script)]) == 1
        captured = capfd.readouterr()
        assert ("forward done" in captured.out) is not asked
        assert ("UnsupportedGradientError: aten.silu.default was called" in captured.err) is asked
        assert ("without --preflight, backward() raises instead" in captured.out) is asked
        assert "aten.silu_backward.default" in captured.err


def test_ops_of_the_scripts_threads_are_decomposed(script: Path, tmp_path: Path) -> None:
    script.write_text(
        "import threading, torch\n"
        "from concurrent.futures import ThreadPoolExecutor\n"
        "x = torch.ones(3)\n"
        "thread = threading.Thread(target=torch.nn.functional.silu, args=(x,))\n"
        "thread.start(); thread.join()\n"
        "with ThreadPoolExecutor(2) as pool:\n"
        "    list(pool.map(torch.nn.functional.hardswish, [x, x, x]))\n",
        encoding="utf-8",
    )
    target = tmp_path / "facts.json"
    assert main(["run", "--quiet", "--json", str(target), str(script)]) == 0
    facts = json.loads(target.read_text())
    assert facts["calls"]["called"]["aten.silu.default"] == 1
    assert facts["calls"]["called"]["aten.hardswish.default"] == 3
    assert facts["ops_outside"] == 0


@pytest.mark.full
def test_a_forked_child_that_exits_prints_no_table_of_its_own(script: Path) -> None:
    script.write_text(
        "import os, sys\npid = os.fork()\nif pid == 0:\n    sys.exit(5)\nprint(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, "-m", "eagerdecomp", "run", str(script)], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("5\n")
    assert done.stdout.count("eagerdecomp on") == 1


@pytest.mark.full
def test_baseline_reports_both_times(script: Path, tmp_path: Path) -> None:
    target = tmp_path / "facts.json"
    command = [sys.executable, "-m", "eagerdecomp", "run", "--baseline", "--no-record", "--json", str(target), str(script)]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.count("script done") == 1
    assert "times plain eager" in value_of(out, "time, the whole run")
    assert value_of(out, "distinct ops that reached the backend") == "not recorded"
    facts = json.loads(target.read_text())
    assert facts["plain_seconds"] > 0
    assert facts["time_ratio"] == facts["seconds"] / facts["plain_seconds"]


@pytest.mark.full
@pytest.mark.parametrize("ops", ["prims", "typed:BACKEND"])
def test_few_modules_are_imported_while_the_runs_of_a_baseline_are_timed(
    ops: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dynamo is 800 modules, which take longer to import than a small script takes, and would be imported in one run only."""
    monkeypatch.chdir(tmp_path)
    Path("typed.py").write_text(
        "import eagerdecomp as ed, torch\n"
        "BACKEND = ed.Backend('typed', ed.core_aten(), dtypes=[torch.float32, torch.int64, torch.bool])\n",
        encoding="utf-8",
    )
    Path("trains.py").write_text(
        "import sys, torch\n"
        "before = set(sys.modules)\n"
        "model = torch.nn.Linear(2, 2)\n"
        "optimizer = torch.optim.AdamW(model.parameters())\n"
        "torch.nn.functional.gelu(model(torch.ones(3, 2))).sum().backward()\n"
        "optimizer.step()\n"
        "print(len({*sys.modules} - before) < 10)\n",
        encoding="utf-8",
    )
    command = [sys.executable, "-m", "eagerdecomp", "run", "--baseline", "--no-record", "--backend", ops, "trains.py"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.startswith("True\n")
    assert value_of(out, "output, against plain eager") == "same output"


def test_a_failed_run_is_not_compared_with_plain_eager(
    script: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "_baseline", None)  # it is not called
    script.write_text("print(1)\nraise SystemExit(4)\n", encoding="utf-8")
    assert main(["run", "--baseline", str(script)]) == 4
    out = capfd.readouterr().out
    assert "not compared with plain eager: the run on the set ended with exit code 4" in out
    assert "output, against plain eager" not in out


class Endless:
    """A process that does not end until Ctrl-C comes at the second wait."""

    returncode, waits, killed = None, 0, False

    def __init__(self, *args: object, **kwargs: object) -> None:
        Endless.last = self

    def poll(self) -> None:
        return None

    def wait(self, timeout: float = 0.0) -> None:
        if self.killed:
            return
        self.waits += 1
        raise KeyboardInterrupt if self.waits == 2 else subprocess.TimeoutExpired("script", timeout)

    def kill(self) -> None:
        self.killed = True


def test_ctrl_c_in_the_baseline_prints_the_table_of_the_first_run(
    script: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    monkeypatch.setattr(subprocess, "Popen", Endless)
    monkeypatch.setattr(run.SoFar, "report", lambda self, words: shown.append(words))
    target = tmp_path / "facts.json"
    assert main(["run", "--baseline", "--json", str(target), str(script)]) == 130
    assert Endless.last.killed
    assert len(shown) == 2
    assert shown[0].startswith("running the script again, in plain eager")
    out = capfd.readouterr().out
    assert value_of(out, "of those outside the set") == "0"
    assert "the run in plain eager was interrupted" in out
    assert json.loads(target.read_text())["output"] is None


RANDOM = "import torch\ntorch.manual_seed(0)\nprint(torch.multinomial(torch.ones(99), 9), torch.randn(4, 3).bernoulli(0.5))\n"


@pytest.mark.full
@pytest.mark.parametrize("ops", ["core", "my ops.txt"])
def test_the_line_after_random_calls_makes_the_outputs_equal(script: Path, tmp_path: Path, ops: str) -> None:
    script.write_text(RANDOM, encoding="utf-8")
    (tmp_path / "my ops.txt").write_text("@core", encoding="utf-8")  # without a line end

    def compared(line: str) -> str:
        command = f'eagerdecomp() {{ "{sys.executable}" -m eagerdecomp "$@"; }}; {line}'
        return subprocess.run(["bash", "-ec", command], capture_output=True, text=True, check=True, cwd=tmp_path).stdout

    out = compared(f"eagerdecomp run --baseline --ops={shlex.quote(ops)} script.py")
    assert value_of(out, "output, against plain eager") == "4 lines differ: random calls drew other numbers, see below"
    (line,) = [line for line in out.splitlines() if line.startswith("  printf ")]
    out = compared(line)
    assert value_of(out, "output, against plain eager") == "same output"
    assert value_of(out, "random calls with other numbers than eager") == "0"


def test_opset_lists_a_set_in_the_format_that_ops_reads(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["opset", "core"]) == 0
    assert parse_ops(capsys.readouterr().out.splitlines(), source="opset") == ed.core_aten()


@pytest.mark.full
def test_a_closed_pipe_is_not_an_error() -> None:
    command = [sys.executable, "-m", "eagerdecomp", "opset", "core"]
    listing = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert listing.stdout is not None
    listing.stdout.close()
    assert listing.stderr is not None
    assert (listing.wait(), listing.stderr.read()) == (0, b"")


@pytest.mark.full
def test_ctrl_c_while_the_package_is_imported_ends_without_a_traceback(tmp_path: Path) -> None:
    (tmp_path / "torch.py").write_text("raise KeyboardInterrupt\n", encoding="utf-8")
    code = "import sys; sys.argv = ['eagerdecomp', 'demo']; from eagerdecomp_script import main; sys.exit(main())"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(Path(eagerdecomp_script.__file__).parent)])}
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=False)
    assert (ended.returncode, ended.stderr) == (130, "interrupted\n")


@pytest.mark.full
def test_a_closed_or_full_stdout_causes_no_traceback() -> None:
    command = f"{sys.executable} -m eagerdecomp opset core"
    closed = subprocess.run(f"{command} >&-", shell=True, capture_output=True, text=True, check=False)
    assert (closed.returncode, closed.stderr) == (0, "")
    full = subprocess.run(f"{command} > /dev/full", shell=True, capture_output=True, text=True, check=False)
    assert (full.returncode, full.stderr) == (1, "eagerdecomp opset: cannot write to stdout: No space left on device\n")


def test_a_misspelt_command_is_reported_with_close_matches(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["runn", "x.py"]) == 2
    assert "there is no command 'runn'. Did you mean run?" in capsys.readouterr().err


def test_a_mistake_leaves_no_json_file_behind(tmp_path: Path) -> None:
    assert main(["run", "--json", str(tmp_path / "facts.json"), "no_such.py"]) == 2
    assert not (tmp_path / "facts.json").exists()
