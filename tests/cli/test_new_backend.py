"""A project that ``new-backend`` writes passes its tests and checks as it stands; what cannot be written is reported in a line."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path
from string import Template
from typing import Any

import pytest

import eagerdecomp
from eagerdecomp.cli.main import main
from eagerdecomp.cli.new_backend import DEVICE_FILES, FILES, requirement

PACKAGE = Path(eagerdecomp.__file__).parent
ROOT = PACKAGE.parent
LONGEST = "a_backend_named_at_length"[:24]
#: By kind of project: what is said of it on the command line, and its files.
KINDS: dict[str, tuple[list[str], Any]] = {"backend": ([], FILES), "device": (["--device", "toy"], DEVICE_FILES)}


def run(project: Path, *words: str, path: tuple[Path, ...] = (ROOT,)) -> str:
    """Run Python in a project, where nothing is installed: a module, or ``-c`` and code; what it printed."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment = {**kept, "PYTHONPATH": os.pathsep.join(map(str, path)), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *(words if words[0] == "-c" else ("-m", *words))]
    done = subprocess.run(command, cwd=project, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def written(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


@pytest.fixture(scope="module")
def projects(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A project of each kind."""
    folder = tmp_path_factory.mktemp("projects")
    for kind, (words, _) in KINDS.items():
        assert main(["new-backend", "mine", *words, "--dir", str(folder / kind)]) == 0
    return {kind: folder / kind for kind in KINDS}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def project(kind: str, projects: dict[str, Path]) -> Path:
    return projects[kind]


@pytest.mark.full
def test_a_project_passes_its_own_tests(project: Path) -> None:
    out = run(project, "pytest", "-p", "no:cacheprovider")
    assert " passed" in out
    assert "skipped" not in out


#: Faults in files of a project, and the tests of the project that see them.
FAULTS = {
    "backend": [
        ("kernels", "a + alpha * b", "a + b", "test_add_scales_its_second_operand"),
    ],
    "device": [
        ("kernels", "a + alpha * b", "a + b", "test_add_scales_its_second_operand"),
        ("kernels", "aten.mul.Tensor: mul,", "aten.mul.Tensor: add,", "test_a_net_trains_to_the_losses_of_the_cpu[mode]"),
        ("kernels", '"read"), dtype=out.dtype,', '"read"),', "test_a_scalar_is_rounded_only_to_the_dtype_of_the_result[add]"),
        (
            "host",
            "for op in ops:",
            "for op in (*ops, aten.silu.default):",
            "test_the_device_has_kernels_for_its_set_and_for_no_other_op",
        ),
        ("host", "if has_generator and", "if not has_generator and", "test_random_numbers_come_from_the_devices_own_generator"),
        ("device", "(NAME, new_storage)", "(NAME)", "test_copies_by_deepcopy_save_and_load"),
    ],
}


def change(file: Path, before: str, after: str) -> None:
    text = file.read_text(encoding="utf-8")
    assert text.count(before) == 1
    file.write_text(text.replace(before, after), encoding="utf-8")


@pytest.mark.full
def test_its_tests_find_faults(kind: str, tmp_path: Path) -> None:
    assert main(["new-backend", "mine", *KINDS[kind][0], "--dir", str(tmp_path)]) == 0
    for file, right, wrong, _ in FAULTS[kind]:
        change(tmp_path / "mine" / f"{file}.py", right, wrong)
    with pytest.raises(AssertionError) as caught:
        run(tmp_path, "pytest", "-p", "no:cacheprovider")
    for _, _, _, seen_by in FAULTS[kind]:
        assert f"FAILED tests/test_mine.py::{seen_by}" in str(caught.value)


@pytest.mark.full
def test_the_conformance_suite_finds_faults_that_its_own_tests_do_not(kind: str, tmp_path: Path) -> None:
    assert main(["new-backend", "mine", *KINDS[kind][0], "--dir", str(tmp_path)]) == 0
    change(tmp_path / "mine" / "kernels.py", "if isinstance(alpha, bool):", "if alpha == 7:")
    change(tmp_path / "tests" / "test_mine.py", '"quick"', '"standard"')
    with pytest.raises(AssertionError) as caught:
        run(tmp_path, "pytest", "-p", "no:cacheprovider", "-k", "kernel or suite or mm or add")
    failed = [line.strip() for line in str(caught.value).splitlines() if line.strip().startswith("FAILED")]
    assert len(failed) == 1
    assert failed[0].startswith("FAILED tests/test_mine.py::test_the_conformance_suite_finds_nothing_wrong")
    assert "aten.add.Tensor: returns a call that eager refuses" in str(caught.value)


@pytest.mark.full
def test_a_device_says_which_kernels_a_step_runs_and_which_are_yours(projects: dict[str, Path]) -> None:
    lines = run(projects["device"], "mine").splitlines()
    losses = [line.partition(":")[2] for line in lines if line.startswith("losses on")]
    assert losses[0] == losses[1] != ""
    (head,) = [line for line in lines if line.startswith("kernel ")]
    assert head.split() == ["kernel", "calls", "yours", "the", "CPU's"]
    rows = [line for line in lines if line.startswith("aten.")]
    assert {len(line) for line in rows} == {len(head)}
    kernels = {line.split()[0]: [*map(int, line.split()[1:])] for line in rows}
    assert all(calls == yours + others for calls, yours, others in kernels.values())
    assert all(kernels[op][1] for op in ("aten.add.Tensor", "aten.mul.Tensor", "aten.mm.default"))
    assert kernels["aten.div.Tensor"][1] == 0


@pytest.mark.full
def test_it_is_typed(project: Path, tmp_path: Path) -> None:
    run(project, "mypy", "--strict", "--cache-dir", str(tmp_path), "mine", "tests")


@pytest.mark.full
@pytest.mark.parametrize("first", ["torch", "eagerdecomp", "mine", "mine.kernels"])
def test_an_installed_device_is_available_after_any_import_of_torch(first: str, projects: dict[str, Path], tmp_path: Path) -> None:
    settings = (projects["device"] / "pyproject.toml").read_text(encoding="utf-8")
    (entry,) = re.findall(r'^\[project\.entry-points\."torch\.backends"\]\nmine = "(.*)"$', settings, re.MULTILINE)
    package = tmp_path / "mine-0.1.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: mine\nVersion: 0.1\n", encoding="utf-8")
    (package / "entry_points.txt").write_text(f"[torch.backends]\nmine = {entry}\n", encoding="utf-8")
    code = """
import torch
x = torch.ones(2, device="toy", requires_grad=True)
torch.nn.functional.gelu(x).sum().backward()
print(x.grad.cpu(), eagerdecomp.install is sys.modules["eagerdecomp.frontends.installation"].install)
"""
    out = run(tmp_path, "-c", f"import {first}, sys, eagerdecomp{code}", path=(tmp_path, projects["device"], ROOT))
    assert out == "tensor([1.0833, 1.0833]) True\n"


@pytest.mark.full
def test_an_editable_device_is_available_from_the_parent_folder_of_its_project(tmp_path: Path) -> None:
    """From there the project's own folder is a package of its name, without a file."""
    project, site = tmp_path / "mine", tmp_path / "site"
    assert main(["new-backend", "mine", "--device", "toy", "--dir", str(project)]) == 0
    run(project, "-c", f"from setuptools import build_meta; build_meta.build_editable({str(site)!r})")
    (wheel,) = site.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(site)
    code = f"import site; site.addsitedir({str(site)!r}); import torch; print(torch.ones(2, device='toy').cpu())"
    for folder in (tmp_path, project, tmp_path / "site"):
        assert run(folder, "-c", code) == "tensor([1., 1.])\n"


@pytest.mark.parametrize("file", ["device", "host", "memory"])
def test_files_of_a_device_are_those_of_the_example(file: str) -> None:
    """The example's own tests, and the scoreboard on it, then hold for every device that is written.

    The linter of a project sorts the imports of eagerdecomp differently.
    """
    template = (PACKAGE / "cli" / "templates" / DEVICE_FILES[f"${{name}}/{file}.py"]).read_text(encoding="utf-8")
    text = (ROOT / "examples" / "npu" / "npu" / f"{file}.py").read_text(encoding="utf-8")
    made = Template(template).substitute(name="npu", device="npu")
    assert sorted(filter(None, made.splitlines())) == sorted(filter(None, text.splitlines()))


@pytest.mark.full
@pytest.mark.parametrize("name", ["z", LONGEST])
def test_a_project_of_any_name_is_linted_and_formatted(name: str, kind: str, tmp_path: Path) -> None:
    device = ["--device", name.strip("_")] if kind == "device" else []
    assert main(["new-backend", name, *device, "--dir", str(tmp_path)]) == 0
    run(tmp_path, "ruff", "check", "--no-cache", ".")
    run(tmp_path, "ruff", "format", "--no-cache", "--check", ".")


def test_its_files_are_those_of_the_table_with_the_name_inserted(kind: str, project: Path) -> None:
    made = [name for name in written(project) if "__pycache__" not in name]
    assert made == sorted(name.replace("${name}", "mine") for name in KINDS[kind][1])
    texts = {name: (project / name).read_text(encoding="utf-8") for name in made}
    assert not [name for name, text in texts.items() if "$" in text]
    assert 'name = "mine"\n' in texts["pyproject.toml"]
    assert f'dependencies = ["{requirement()}"]\n' in texts["pyproject.toml"]
    assert f'test = ["{requirement("[conformance]")}", "pytest' in texts["pyproject.toml"]


def test_every_template_is_used_and_in_the_wheel() -> None:
    templates = {path.name for path in (PACKAGE / "cli" / "templates").iterdir()}
    assert templates == {template for template in (*FILES.values(), *DEVICE_FILES.values()) if template}
    settings = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    _, _, data = settings.partition("\neagerdecomp = [")
    globs = re.findall('"([^"]+)"', data.partition("]")[0])
    assert templates <= {path.name for glob in globs for path in PACKAGE.glob(glob)}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["my-backend"], "letters, digits and _"),
        (["mine", "--device", "requires_grad"], "Tensor.requires_grad exists already"),
        (["mine", "--device", "train"], "Module.train exists already"),
    ],
)
def test_of_an_invalid_name_nothing_is_written(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The errors of other names are in `tests/golden_errors.txt`."""
    assert main(["new-backend", *words, "--dir", str(tmp_path / "there"), "--json", str(tmp_path / "x.json")]) == 2
    assert said in capsys.readouterr().err
    assert written(tmp_path) == []


@pytest.mark.parametrize(
    ("source", "asked"),
    [
        (None, "eagerdecomp{}"),
        ('{"url": "file:///somewhere", "dir_info": {"editable": true}}', "eagerdecomp{}"),
        (
            '{"url": "https://host/eagerdecomp.git", "vcs_info": {"vcs": "git", "commit_id": "abc"}}',
            "eagerdecomp{} @ git+https://host/eagerdecomp.git@abc",
        ),
    ],
)
def test_a_project_requires_the_library_as_it_is_installed(source: str | None, asked: str, monkeypatch: pytest.MonkeyPatch) -> None:
    class Installed:
        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return source

    monkeypatch.setattr("importlib.metadata.distribution", lambda name: Installed())
    assert requirement() == asked.format("")
    assert requirement("[conformance]") == asked.format("[conformance]")
