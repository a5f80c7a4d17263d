"""README's commands, in the order in which a reader pastes them; tests/docs/test_pages.py runs its Python."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")


def blocks(text: str = README) -> list[str]:
    return re.findall(r"^```sh\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


#: The first makes and activates the environment that all others need, the last makes it again and runs the tests.
SETUP, *BETWEEN, TESTS = blocks()


def test_the_first_command_and_the_test_command_are_one_line_each_and_leave_the_environment_active() -> None:
    assert SETUP.count("\n") == TESTS.count("\n") == 1
    for line in (SETUP, TESTS):
        assert line.startswith(
            "python3 -m venv .venv && . .venv/bin/activate && pip install -c requirements/tested.txt -e "
        )  # without -e, build/ keeps removed modules; with -q, nothing is printed for minutes
    assert SETUP.endswith("eagerdecomp demo\n")
    assert TESTS.endswith("python -m pytest -n auto\n")
    assert ".venv/" not in "".join(BETWEEN)


def test_its_costs_are_those_of_the_saved_run() -> None:
    results = (ROOT / "benchmarks" / "results.md").read_text(encoding="utf-8")
    numbers = (ROOT / "docs" / "numbers" / "numbers.md").read_text(encoding="utf-8")

    def value(figure: str) -> str:
        (found,) = re.findall(rf"^\| {figure} \| ([\d.]+) \|", results, re.MULTILINE)
        assert f"| {figure} | {found} |" in numbers
        return found

    native = [f"{float(value(f'ours / native, {what}')):.1f}" for what in ("infer", "train")]
    noop = [round(100 * (float(value(f"ours / noop mode, {what}")) - 1)) for what in ("infer", "train")]
    assert f"take {native[0]}x the time of eager ({native[1]}x in training)" in README
    assert f"eagerdecomp adds {noop[0]} % and {noop[1]} %" in README


def ci_script(folder: Path, readme: str) -> Path:
    """Copy `.ci/run` into a folder with this README; return the path of the copy."""
    script = folder / ".ci" / "run"
    script.parent.mkdir()
    script.write_text((ROOT / ".ci" / "run").read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "README.md").write_text(readme, encoding="utf-8")
    return script


@pytest.mark.full
def test_ci_runs_the_test_command_on_two_pythons(tmp_path: Path) -> None:
    script = ci_script(tmp_path, README)
    folder = tmp_path / "bin"
    folder.mkdir()
    # Programs that say how they were called and succeed. Python makes the script that activates, or says where it is.
    text = '#!/bin/sh\nif [ "$1" = -c ]; then echo "$0"; exit; fi\nmkdir -p .venv/bin; touch .venv/bin/activate\n'
    text += 'echo "called: $0 $*"\n'
    for name in ("python3", "python3.13", "python", "pip", "git", "ruff", "mypy", "codespell", "chromium"):
        (folder / name).write_text(text, encoding="utf-8")
        (folder / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{folder}{os.pathsep}{os.environ['PATH']}", "CI": "true"}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=environment, check=False)
    assert done.returncode == 0, done.stderr
    calls = [line for line in done.stdout.splitlines() if line.startswith("called: ")]
    venvs = [line.split()[1] for line in calls if line.endswith(" -m venv .venv")]
    assert venvs == [f"{folder}/python3", f"{folder}/python3.13"]
    assert calls.count(f"called: {folder}/python -m pytest -n auto") == 2
    assert calls[-1] == f"called: {folder}/python -m pytest -n auto -m full --durations=40"


def pasted(lines: str, folder: Path, here: Path, python: str = 'exec "$REAL" "$@"') -> str:
    """Run the lines in a shell in which `eagerdecomp` and `python` are those of an environment; return the output."""
    tools = folder / "bin"
    tools.mkdir()
    for name, does in (("eagerdecomp", 'exec python -m eagerdecomp "$@"'), ("python", python)):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    path = f"{tools}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "PATH": path, "REAL": sys.executable, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(["bash", "-e"], input=lines, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.full
def test_its_other_commands_can_be_pasted_in_their_order(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    printed = pasted(re.sub(r"^.*new-backend.*\n", "", "".join(BETWEEN), flags=re.MULTILINE), tmp_path, here)
    assert sorted(path.name for path in here.iterdir()) == ["my_ops.txt", "run.html", "run.json", "train.py"]
    assert re.search(r"outside the set +0$", printed, re.MULTILINE)
    assert re.search(r"^output, against plain eager +nothing to compare", printed, re.MULTILINE)


@pytest.mark.full
def test_its_lines_that_make_projects_can_be_pasted_in_their_order(tmp_path: Path) -> None:
    here = tmp_path / "here"
    here.mkdir()
    lines = "".join(line for block in BETWEEN for line in block.splitlines(keepends=True) if "new-backend" in line)
    python = 'case "$*" in "-m eagerdecomp"*) exec "$REAL" "$@" > /dev/null ;; *) echo "$PWD: $*" ;; esac'
    ran = pasted(lines, tmp_path, here, python).splitlines()
    made = [folder.name for folder in here.iterdir()]
    assert len(made) == lines.count("new-backend") == 2
    assert sorted(ran) == sorted(f"{here / name}: -m {module}" for name in made for module in ("pytest", name))
