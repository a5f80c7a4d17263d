"""README's own examples and commands."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest
import torch

from eagerdecomp.backends.inductor_hook import cpp_compiler
from eagerdecomp.cli.main import COMMANDS, main

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
TOUR = (ROOT / "docs" / "tour.md").read_text(encoding="utf-8")  # goes on where README's ends


#: How comments behind a `print` begin that say what it prints; all others are what it prints, with ... for what is left out.
ABOUT_OUTPUT = ("per op", "ops by status", "all ops that do not close")


def blocks(language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", README + TOUR, re.MULTILINE | re.DOTALL)


@pytest.mark.full
def test_the_examples_run_in_the_order_they_stand() -> None:
    namespace: dict[str, Any] = {}
    assert blocks("python")
    told = 0
    for number, block in enumerate(blocks("python")):
        if "inductor_hook" in block and cpp_compiler() is None:
            continue  # there is nothing to compile with
        with redirect_stdout(io.StringIO()) as out:
            exec(compile(block, f"README example {number}", "exec"), namespace)
        for output in re.findall(r"print\w*\(.*  # (.*)$", block, re.MULTILINE):
            if not output.startswith(ABOUT_OUTPUT):
                told += 1
                for part in output.split("..."):
                    assert part.strip() in " ".join(out.getvalue().split()), output
    assert told > 3
    assert torch._C._len_torch_dispatch_stack() == 0


def test_the_two_commands_are_the_first_in_it_and_a_line_each() -> None:
    first, second = blocks("sh")[:2]
    assert first.count("\n") == second.count("\n") == 1
    assert first.startswith("python3 -m venv .venv && ")
    assert first.endswith("eagerdecomp demo\n")
    assert " pytest" in second


@pytest.mark.full
def test_ci_runs_the_second_command_as_it_stands(tmp_path: Path) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "README.md").write_text(README, encoding="utf-8")
    # A python3 that tells how it was called and fails: the line ends there.
    fake = tmp_path / "bin" / "python3"
    fake.parent.mkdir()
    fake.write_text('#!/bin/sh\necho "called: $*"\nexit 7\n', encoding="utf-8")
    fake.chmod(0o755)
    environment = {**os.environ, "PATH": f"{fake.parent}{os.pathsep}{os.environ['PATH']}", "CI": "true"}
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, env=environment, cwd="/", check=False)
    assert done.returncode == 1
    line = blocks("sh")[1].strip()
    assert done.stdout.splitlines() == ["", f"+ {line}", "called: -m venv .venv", f"= 0 min 0 s, exit code 7: {line}"]


@pytest.mark.full
@pytest.mark.parametrize("count", [0, 2])
def test_ci_refuses_a_readme_without_one_such_line(tmp_path: Path, count: int) -> None:
    (tmp_path / ".ci").mkdir()
    script = tmp_path / ".ci" / "run"
    script.write_text((ROOT / ".ci" / "run").read_text(encoding="utf-8"), encoding="utf-8")
    (tmp_path / "README.md").write_text("python3 -m venv .venv && false pytest\n" * count, encoding="utf-8")
    done = subprocess.run(["bash", str(script)], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert f"it holds {count}" in done.stderr


@pytest.mark.full
def test_its_lines_that_make_projects_can_be_pasted_in_their_order(tmp_path: Path) -> None:
    (lines,) = [block for block in blocks("sh") if "new-backend" in block]
    tools, here = tmp_path / "bin", tmp_path / "here"
    here.mkdir()
    tools.mkdir()
    for name, does in (
        ("eagerdecomp", f'PYTHONPATH="{ROOT}" exec "{sys.executable}" -m eagerdecomp "$@" > /dev/null'),
        ("python", 'echo "$PWD: $*"'),
    ):
        (tools / name).write_text(f"#!/bin/sh\n{does}\n", encoding="utf-8")
        (tools / name).chmod(0o755)
    environment = {**os.environ, "PATH": f"{tools}{os.pathsep}{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-e"], input=lines, capture_output=True, text=True, env=environment, cwd=here, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    made = [folder.name for folder in here.iterdir()]
    assert len(made) == lines.count("new-backend") == 2
    ran = done.stdout.splitlines()
    assert sorted(ran) == sorted(f"{here / name}: -m {module}" for name in made for module in ("pytest", name))


def test_every_command_in_it_exists(capsys: pytest.CaptureFixture[str]) -> None:
    used = {match for block in blocks("sh") for match in re.findall(r"\beagerdecomp ([a-z][\w-]*)", block)}
    assert used
    assert used <= {command.name for command in COMMANDS}
    for name in sorted(used):
        with pytest.raises(SystemExit) as left:
            main([name, "--help"])
        assert left.value.code == 0
    assert "usage: eagerdecomp" in capsys.readouterr().out
