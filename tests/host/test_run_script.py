"""A script runs as Python itself would run it, inside a context that its threads enter too.

Each script runs in a process of its own, once by `python` and once by the module under test, and what it prints is compared.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path

import pytest

from eagerdecomp.host import run_script as runscript
from eagerdecomp.host.run_script import Script, ScriptNotFound, run_script, threads_entering

# Starts the module under test as a command would. Loaded by its file: the package would import torch, a second for each process.
RUNNER = f"""
import importlib.util, sys
from contextlib import nullcontext
spec = importlib.util.spec_from_file_location("runscript", {runscript.__file__!r})
runscript = sys.modules["runscript"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(runscript)
module = sys.argv[1] == "-m"
name, *args = sys.argv[1 + module:]
sys.exit(runscript.run_script(runscript.Script(name, tuple(args), module), nullcontext).exit_code)
"""

PROBE = """
import sys, __main__
print(__name__, sys.argv, sys.path[0])
print(__file__, __spec__ is None, type(__loader__).__name__, __package__, __cached__)
print(__main__.__dict__ is globals(), sorted(name for name in globals() if name.startswith("__")))
"""


@pytest.fixture
def runner(tmp_path: Path) -> Path:
    path = tmp_path / "runner" / "runner.py"
    path.parent.mkdir()
    path.write_text(RUNNER, encoding="utf-8")
    return path


def both(runner: Path, *command: str, cwd: Path) -> tuple[subprocess.CompletedProcess[str], subprocess.CompletedProcess[str]]:
    """The command by plain Python, and by the runner."""
    plain, ours = (
        subprocess.run([sys.executable, *start, *command], cwd=cwd, capture_output=True, text=True, check=False)
        for start in ([], [str(runner)])
    )
    return plain, ours


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(textwrap.dedent(text), encoding="utf-8")
    return path


@pytest.mark.full
@pytest.mark.parametrize("name", ["script.py", "./script.py", "inner/script.py", "no_ending", "link.py", "-m package.inner"])
def test_a_script_or_module_sees_what_python_would_show_it(runner: Path, tmp_path: Path, name: str) -> None:
    """Also a link to a script, which is followed for the path."""
    if name == "link.py":
        write(tmp_path / "real" / "script.py", PROBE)
        (tmp_path / name).symlink_to(tmp_path / "real" / "script.py")
    elif name.startswith("-m"):
        write(tmp_path / "package" / "__init__.py", "")
        shown = "import sys\nprint(__name__, __package__, __spec__.name, __file__, sys.argv, sys.path[0])\n"
        write(tmp_path / "package" / "inner.py", shown)
    else:
        write(tmp_path / name, PROBE)
    plain, ours = both(runner, *name.split(), "a", "--b", "-m", cwd=tmp_path)
    assert ours.stdout == plain.stdout
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr) == (0, "")


@pytest.mark.full
@pytest.mark.parametrize(
    "ending", ["sys.exit()", "sys.exit(7)", "sys.exit(256 + 3)", "sys.exit('a word')", "sys.exit([1])", "1 / 0"]
)
def test_the_exit_code_and_last_output_are_the_scripts(runner: Path, tmp_path: Path, ending: str) -> None:
    write(tmp_path / "script.py", f"import sys\n{ending}\n")
    plain, ours = both(runner, "script.py", cwd=tmp_path)
    assert (ours.returncode, ours.stderr) == (plain.returncode, plain.stderr)


@pytest.mark.full
@pytest.mark.parametrize(
    "text",
    [
        "def f():\n    raise ValueError('no')\nf()\n",
        "try:\n    1 / 0\nexcept ZeroDivisionError as error:\n    raise KeyError('x') from error\n",
        "import not_there_at_all\n",
        "x = (\n",
        "import sys\nsys.excepthook = lambda kind, error, trace: print('hook', kind.__name__, trace.tb_lineno)\n1 / 0\n",
    ],
)
def test_a_traceback_is_the_one_python_prints(runner: Path, tmp_path: Path, text: str) -> None:
    write(tmp_path / "script.py", text)
    plain, ours = both(runner, "script.py", cwd=tmp_path)
    assert (ours.stdout, ours.stderr, ours.returncode) == (plain.stdout, plain.stderr, plain.returncode)
    assert ours.returncode == 1


def test_frames_of_the_library_are_omitted_with_a_note(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """
        import torch, eagerdecomp as ed
        with ed.EagerDecompMode(ed.core_aten()):
            torch.mm(torch.ones(2, 3), torch.ones(2, 3))
    """
    script = Script(str(write(tmp_path / "script.py", text)))
    assert run_script(script, nullcontext).exit_code == 1
    short = capsys.readouterr().err
    assert short.count('File "') == 1
    assert "mat1 and mat2 shapes cannot be multiplied" in short
    assert "--full-trace" in short
    assert run_script(script, nullcontext, full_trace=True).exit_code == 1
    assert "__torch_dispatch__" in capsys.readouterr().err


@pytest.mark.full
def test_a_signal_ends_the_script_and_not_the_process_that_runs_it(runner: Path, tmp_path: Path) -> None:
    # Whoever started the tests in the background may have left SIGINT ignored, which children inherit.
    script = """
        import signal, time
        signal.signal(signal.SIGINT, signal.default_int_handler)
        print('ready', flush=True)
        time.sleep(600)
    """
    write(tmp_path / "script.py", textwrap.dedent(script))
    process = subprocess.Popen(
        [sys.executable, str(runner), "script.py"], cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    process.send_signal(signal.SIGINT)
    process.communicate()
    assert process.returncode == 130


def test_the_state_of_the_process_is_restored(tmp_path: Path) -> None:
    def state() -> tuple[object, ...]:
        return sys.argv, list(sys.path), sys.modules["__main__"], threading.Thread.start, os.getcwd()

    before = state()
    for text in ("pass", "import sys\nsys.path.insert(0, 'x')\nsys.argv.append('y')\nraise SystemExit(1)\n", "1 / 0"):
        run_script(Script(str(write(tmp_path / "script.py", text))), nullcontext)
        assert state() == before


@pytest.mark.full
@pytest.mark.parametrize("pool", ["ThreadPoolExecutor", "ProcessPoolExecutor"])
def test_an_executor_that_the_script_leaves_open_ends_with_its_work_done(tmp_path: Path, pool: str) -> None:
    text = f"""
        import pathlib, sys, time
        from concurrent.futures import {pool}
        pool = {pool}(1)
        pool.submit(time.sleep, 0.2)
        later = pool.submit(pathlib.Path(sys.argv[1]).touch)
    """
    run_script(Script(str(write(tmp_path / "script.py", text)), (str(tmp_path / "done"),)), nullcontext)
    assert (tmp_path / "done").exists()


class Inside:
    """Knows, per thread, whether it was entered."""

    def __init__(self) -> None:
        self.here = threading.local()
        self.entered = 0

    @contextmanager
    def __call__(self) -> Iterator[None]:
        self.entered += 1
        self.here.yes = True
        try:
            yield
        finally:
            self.here.yes = False

    def seen(self, found: list[bool]) -> None:
        found.append(getattr(self.here, "yes", False))


def test_threads_started_by_the_script_run_inside_the_context() -> None:
    inside, found = Inside(), list[bool]()

    class Written(threading.Thread):
        def run(self) -> None:
            inside.seen(found)

    with threads_entering(inside):
        threads = [threading.Thread(target=inside.seen, args=(found,)), Written(), threading.Timer(0, inside.seen, (found,))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert found == [True, True, True]


def test_a_missing_script_is_distinguished_from_a_failing_one(tmp_path: Path) -> None:
    with pytest.raises(ScriptNotFound, match="no_such_file"):
        run_script(Script("no_such_file.py"), nullcontext)
    with pytest.raises(ScriptNotFound, match="no_such_module"):
        run_script(Script("no_such_module", is_module=True), nullcontext)
    with pytest.raises(ScriptNotFound, match="can't find '__main__' module"):
        run_script(Script(str(tmp_path)), nullcontext)


def test_ctrl_c_is_reported_and_exits_with_130(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    outcome = run_script(Script(str(write(tmp_path / "script.py", "raise KeyboardInterrupt\n"))), nullcontext)
    assert (outcome.exit_code, outcome.interrupted) == (130, True)
    assert "KeyboardInterrupt" in capsys.readouterr().err


@pytest.mark.full
def test_threads_of_the_script_are_waited_for(tmp_path: Path) -> None:
    text = """
        import pathlib, sys, threading, time
        def work():
            time.sleep(0.3)
            pathlib.Path(sys.argv[1]).touch()
        threading.Thread(target=work).start()
        threading.Thread(target=time.sleep, args=(600,), daemon=True).start()
    """
    run_script(Script(str(write(tmp_path / "script.py", text)), (str(tmp_path / "done"),)), nullcontext)
    assert (tmp_path / "done").exists()
