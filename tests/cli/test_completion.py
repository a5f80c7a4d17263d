"""``eagerdecomp completion``: the script has every command and option, and each shell completes by it."""

from __future__ import annotations

import argparse
import re
import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from eagerdecomp.cli.arguments import DECLARED, completion_script, parser_of
from eagerdecomp.cli.main import main

SHELLS = ["bash", "fish", "zsh"]

# The words of a command line, the last of which is incomplete -> what completes it.
COMPLETED = [
    (["pl"], ["plan"]),
    (["plan", "--req"], ["--require"]),
    (["plan", "--require", ""], ["closed", "gradients", "known", "no-worse"]),
    (["plan", "--ops", "pr"], ["prims"]),
    (["plan", "--ops", "my_"], ["my_ops.txt"]),
    (["plan", "--json", "x.json", "--backe"], ["--backend"]),
    (["compare", "--against", "nat"], ["native"]),
    (["run", "--quiet", "--base"], ["--baseline"]),
    (["run", "tra"], ["train.py"]),
    (["opset", "co"], ["core"]),
    (["opset", "--json", ""], ["my_ops.txt", "train.py"]),
    (["completion", ""], SHELLS),
]


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_has_every_command_option_and_choice(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["completion", shell]) == 0
    printed = capsys.readouterr().out
    for name in DECLARED:
        own = "\n".join(line for line in printed.splitlines() if re.search(rf"(?<!\w){name}(?![\w-])", line))
        for action in parser_of(name)._actions:
            shown = [] if action.help is argparse.SUPPRESS else action.option_strings
            for word in (name, *shown, *map(str, action.choices or ())):
                assert re.search(rf"(?<!\w){word.lstrip('-')}(?![\w-])", own), (name, word)
    assert "plain-seconds-to" not in printed


@pytest.mark.full
@pytest.mark.parametrize(("words", "found"), COMPLETED, ids=lambda words: "_".join(words))
@pytest.mark.parametrize("shell", ["bash", "fish"])
def test_the_shell_completes(shell: str, words: list[str], found: list[str], tmp_path: Path) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    for name in ("my_ops.txt", "train.py"):
        (tmp_path / name).touch()
    line = ["eagerdecomp", *words]
    ask = {
        # Bash itself completes files where the function completes nothing.
        "bash": f"COMP_WORDS=({shlex.join(line)}); COMP_CWORD={len(words)}; _eagerdecomp; "
        f'[ "${{#COMPREPLY[@]}}" -gt 0 ] || COMPREPLY=($(compgen -f -- {shlex.quote(words[-1])})); '
        'printf "%s\\n" "${COMPREPLY[@]}"',
        "fish": f"complete -C {shlex.quote(' '.join(line))}",
    }
    code = f"{completion_script(shell)}\n{ask[shell]}"
    done = subprocess.run([shell, "-c", code], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(each.split("\t")[0] for each in done.stdout.splitlines()) == sorted(found)


@pytest.mark.full
@pytest.mark.parametrize(
    ("words", "found"),
    [
        (["plan", "--ops", "="], ["core", "prims", "infra", "tiny"]),  # bash splits --ops=pr into three words
        (["plan", "--ops", "=", "pr"], ["prims"]),
        (["run", "train.py", "--"], []),  # the script's own options
        (["run", "-m", "module", "--"], []),
        (["run", "--ops", "core", "train.py", "--"], []),
        (["run", "--ops", "core", "--qu"], ["--quiet"]),
    ],
    ids=str,
)
def test_bash_follows_the_order_of_a_command_line(words: list[str], found: list[str]) -> None:
    line = shlex.join(["eagerdecomp", *words])
    code = f'{completion_script("bash")}\nCOMP_WORDS=({line}); COMP_CWORD={len(words)}; _eagerdecomp; echo "${{COMPREPLY[@]}}"'
    done = subprocess.run(["bash", "-uc", code], capture_output=True, text=True, check=True)
    assert (done.stdout.split(), done.stderr) == (found, "")


@pytest.mark.full
@pytest.mark.parametrize("shell", SHELLS)
def test_the_shell_can_read_the_script(shell: str) -> None:
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed")
    subprocess.run([shell, "-n"], input=completion_script(shell), text=True, check=True)
