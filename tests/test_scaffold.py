"""A project that ``new-backend`` writes passes its tests and checks as it stands; what cannot be written is told in a line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import eagerdecomp
from eagerdecomp.cli import main
from eagerdecomp.scaffold import FILES, requirement

PACKAGE = Path(eagerdecomp.__file__).parent
LONGEST = "a_backend_named_at_length"[:24]


def run(project: Path, *words: str) -> str:
    """Run a module in a project, where nothing is installed; what it printed."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent), "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run([sys.executable, "-m", *words], cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("projects") / "mine"
    assert main(["new-backend", "mine", "--dir", str(folder)]) == 0
    return folder


def test_a_project_passes_its_own_tests(project: Path) -> None:
    out = run(project, "pytest", "-p", "no:cacheprovider")
    assert " passed" in out
    assert "skipped" not in out


def test_its_tests_see_a_kernel_that_is_wrong(project: Path, tmp_path: Path) -> None:
    folder = tmp_path / "wrong"
    assert main(["new-backend", "wrong", "--dir", str(folder)]) == 0
    kernels = folder / "wrong" / "kernels.py"
    right = kernels.read_text(encoding="utf-8")
    kernels.write_text(right.replace("a + alpha * b", "a + b"), encoding="utf-8")
    assert kernels.read_text(encoding="utf-8") != right
    with pytest.raises(AssertionError, match="test_add_scales_its_second_operand"):
        run(folder, "pytest", "-p", "no:cacheprovider")


def test_it_tells_which_kernels_to_write_next(project: Path) -> None:
    out = run(project, "mine")
    assert "kernels to write; they open" in out
    assert "aten.relu.default" in out


def test_it_is_typed(project: Path, tmp_path: Path) -> None:
    run(project, "mypy", "--strict", "--cache-dir", str(tmp_path), "mine", "tests")


@pytest.mark.parametrize("name", ["z", LONGEST])
def test_a_project_of_any_name_is_linted_and_formatted(name: str, tmp_path: Path) -> None:
    assert main(["new-backend", name, "--dir", str(tmp_path)]) == 0
    run(tmp_path, "ruff", "check", "--no-cache", ".")
    run(tmp_path, "ruff", "format", "--no-cache", "--check", ".")


def test_its_files_are_those_of_the_table_with_the_name_in_place(project: Path) -> None:
    made = [name for name in written(project) if "__pycache__" not in name]
    assert made == sorted(name.replace("${name}", "mine") for name in FILES)
    texts = {name: (project / name).read_text(encoding="utf-8") for name in made}
    assert not [name for name, text in texts.items() if "$" in text]
    assert 'name = "mine"\n' in texts["pyproject.toml"]
    assert f'dependencies = ["{requirement()}"]\n' in texts["pyproject.toml"]


def test_every_template_is_used_and_travels_in_the_wheel() -> None:
    templates = {path.name for path in (PACKAGE / "templates").iterdir()}
    assert templates == {template for template in FILES.values() if template}
    settings = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    _, _, data = settings.partition("\neagerdecomp = [")
    globs = re.findall('"([^"]+)"', data.partition("]")[0])
    assert templates <= {path.name for glob in globs for path in PACKAGE.glob(glob)}


def test_json_tells_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["new-backend", "mine", "--dir", str(tmp_path / "there"), "--json", "-"]) == 0
    told: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert told["name"] == "mine"
    assert sorted(told["files"]) == written(tmp_path / "there")
    assert told["next"][0] == f"cd {tmp_path / 'there'}"


def test_it_goes_to_a_folder_of_its_name_unless_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["new-backend", "mine"]) == 0
    assert (tmp_path / "mine" / "mine" / "backend.py").exists()


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("my-backend", "letters, digits and _"),
        ("2nd", "letters, digits and _"),
        ("_mine", "letters, digits and _"),
        ("mine\n", "letters, digits and _"),
        ("größe", "letters, digits and _"),
        ("", "letters, digits and _"),
        ("class", "no keyword"),
        ("x" * 25, "longer than 24"),
        ("tests", "something else"),
        ("json", "something else"),
        ("torch", "there is a module 'torch' already"),
    ],
)
def test_a_name_that_no_package_can_have_is_refused_in_a_line(
    name: str, words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["new-backend", name, "--dir", str(tmp_path / "there"), "--json", str(tmp_path / "x.json")]) == 2
    err = capsys.readouterr().err
    assert words in err
    assert len(err.splitlines()) == 1
    assert written(tmp_path) == []


def test_what_is_in_the_project_s_place_stays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "notes.txt").write_text("mine", encoding="utf-8")
    for folder in (tmp_path, tmp_path / "notes.txt", tmp_path / "notes.txt" / "below"):
        assert main(["new-backend", "mine", "--dir", str(folder)]) == 2
        err = capsys.readouterr().err
        assert str(folder) in err
        assert len(err.splitlines()) == 1
    assert written(tmp_path) == ["notes.txt"]


def test_an_empty_folder_will_do(tmp_path: Path) -> None:
    assert main(["new-backend", "mine", "--dir", str(tmp_path)]) == 0
    assert (tmp_path / "README.md").exists()


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        (None, "eagerdecomp"),
        ('{"url": "file:///somewhere", "dir_info": {"editable": true}}', "eagerdecomp"),
        (
            '{"url": "https://host/eagerdecomp.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "eagerdecomp @ git+https://host/eagerdecomp.git@abc",
        ),
    ],
)
def test_a_project_asks_for_the_library_as_it_was_installed(
    source: str | None, asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return source

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert requirement() == asked


def test_help_shows_examples_and_exit_codes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["new-backend", "--help"])
    out = capsys.readouterr().out
    assert "examples:" in out
    assert "exit codes:" in out
