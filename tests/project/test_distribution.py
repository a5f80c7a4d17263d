"""The wheel and the source distribution: what they hold, and that the wheel alone serves a user, types included."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ("eagerdecomp", "eagerdecomp_pytest.py", "eagerdecomp_script.py")

pytestmark = pytest.mark.full
pytest.importorskip("setuptools", minversion="77")

#: What users write down: each kind of public name, its types spelled out where a checker would otherwise make them up.
PROGRAM = """\
from __future__ import annotations

import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.frontends.dynamo import DynamoBackend
from eagerdecomp.profile import Record, RecordingMode
from eagerdecomp.runtime.stats import Stats
from eagerdecomp.verify.findings import BlameReport


@ed.register_decomposition("aten.hardswish.default")
def hardswish(x: Tensor) -> Tensor:
    return x * (x + 3).clamp(0, 6) / 6


def my_mul(x: Tensor, y: Tensor) -> Tensor:
    return torch.mul(x, y)


def is_single(x: Tensor) -> bool:
    return x.dtype == torch.float32


def step(model: torch.nn.Module, batch: Tensor) -> int:
    ops: ed.OpSet = (ed.core_aten() | ed.infra() | ["aten.silu"]) - ["aten.gelu"]
    backend = ed.Backend("mine", ops.with_predicate("aten.silu", is_single), kernels={"aten.mul.Tensor": my_mul})
    with ed.EagerDecompMode(backend, rules=[hardswish], on_unsupported="fallback", verify=ed.Verify(every=10)) as mode:
        model(batch)
        whole: Explanation = mode.explain("aten.silu", batch)
    stats: Stats = mode.stats()
    with ed.install(ops, "cpu", cache=ed.ProgramCache()) as handle:
        model(batch)
    calls: dict[str, int] = {name: counted.calls for name, counted in stats.items()}
    found: Plan = ed.plan(ops)
    print(calls, handle.stats().total, mode.why_missed("aten.silu"), whole, found)
    with ed.BackendRecorder() as seen, RecordingMode(ops) as recording:
        model(batch)
    record: Record = recording.record()
    report: BlameReport = ed.blame(lambda: my_mul(batch, batch), ops)
    backend_of_compile: DynamoBackend = ed.dynamo_backend(ops)
    print(record, report.found, seen.outside(ops), backend_of_compile.stats())
    try:
        graph: torch.fx.GraphModule = ed.trace(my_mul, ops)(batch, batch)
        print(graph)
    except ed.UnsupportedOpError as error:
        op: str = error.op
        print(op)
    return stats.total.misses
"""

#: What neither checker may pass: a name that is none, a literal that is none, and a result taken for another.
WRONG = """\
import eagerdecomp as ed

ed.core_atem()
mode = ed.EagerDecompMode(ed.core_aten(), on_unsupported="ignore")
misses: str = mode.stats().total.misses
"""


def run(*command: str | Path, cwd: Path) -> str:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, cwd=cwd, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(tree: Path, into: Path) -> Path:
    options = ["--no-build-isolation", "--no-deps", "--no-index", "--quiet"]
    run(sys.executable, "-m", "pip", "wheel", *options, "--wheel-dir", into, tree, cwd=tree)
    (wheel,) = into.glob("*.whl")
    return wheel


def contents(wheel: Path) -> dict[str, bytes]:
    """The files of a wheel, less the list of them with their sums."""
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith((".dist-info/RECORD", "/"))}


@pytest.fixture(scope="module")
def tree(tmp_path_factory: pytest.TempPathFactory) -> Path:
    kept = (".ci", ".gitignore", ".pre-commit-config.yaml")
    left_out = shutil.ignore_patterns("__pycache__", "*.egg-info", "build", "dist", "site")

    def ignored(folder: str, names: list[str]) -> set[str]:
        return {name for name in names if name.startswith(".") and name not in kept} | left_out(folder, names)

    return shutil.copytree(ROOT, tmp_path_factory.mktemp("built") / "tree", ignore=ignored)


@pytest.fixture(scope="module")
def wheel(tree: Path) -> Path:
    return build_wheel(tree, tree.parent / "wheel")


@pytest.fixture(scope="module")
def sdist(tree: Path) -> Path:
    code = "import sys; from setuptools import build_meta; build_meta.build_sdist(sys.argv[1])"
    run(sys.executable, "-c", code, tree.parent / "sdist", cwd=tree)
    (found,) = (tree.parent / "sdist").glob("*.tar.gz")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path) -> Path:
    """The Python of an environment with the wheel and the packages here; no source tree is on its path."""
    place = wheel.parent.parent / "environment"
    venv.create(place, with_pip=False)
    python = place / ("Scripts" if sys.platform == "win32" else "bin") / "python"
    packages = Path(run(python, "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=place).strip())
    run(sys.executable, "-m", "pip", "install", "--no-deps", "--no-index", "--quiet", "--target", packages, wheel, cwd=place)
    add_packages_here(packages)
    return python


def add_packages_here(packages: Path) -> None:
    here = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (packages / "those_here.pth").write_text("".join(f"{path}\n" for path in sorted(here)), encoding="utf-8")


@pytest.fixture(scope="module")
def editable_python(tree: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of the environment that README's first command makes in a copy of the checkout, with the packages here."""
    (line,) = re.findall(r"^python3 -m venv .*?(?= && eagerdecomp demo$)", (tree / "README.md").read_text("utf-8"), re.MULTILINE)
    checkout = shutil.copytree(tree, tmp_path_factory.mktemp("readme") / "eagerdecomp")
    (checkout / "bin").mkdir()
    (checkout / "bin" / "python3").symlink_to(sys.executable)
    offline = {"PIP_NO_DEPS": "1", "PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}  # "0": no isolation
    path = f"{checkout / 'bin'}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, **offline, "PATH": path, "PYTHONPATH": sysconfig.get_path("purelib")}
    done = subprocess.run(["bash", "-ec", line], capture_output=True, text=True, cwd=checkout, env=environment, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    (packages,) = (checkout / ".venv").glob("lib/python*/site-packages")
    add_packages_here(packages)
    return checkout / ".venv" / "bin" / "python"


def test_a_script_beside_the_checkout_imports_the_package(editable_python: Path) -> None:
    """To Python, the checkout's folder is a namespace package of the same name; a path in a .pth file comes before it."""
    beside = editable_python.parents[3]
    assert (beside / "eagerdecomp" / "README.md").exists()
    (beside / "script.py").write_text("import eagerdecomp as ed\nprint(len(ed.core_aten()) > 100, ed.__file__)\n", "utf-8")
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    command = [str(editable_python), "script.py"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=beside, env=environment, check=False)
    assert done.stdout == f"True {beside / 'eagerdecomp' / 'eagerdecomp' / '__init__.py'}\n", done.stderr


def test_the_wheel_contains_the_complete_package_and_nothing_else(wheel: Path, tree: Path) -> None:
    held = contents(wheel)
    written = {path.relative_to(tree).as_posix() for source in SOURCES for path in [tree / source, *(tree / source).rglob("*")]}
    files = {name for name in written if (tree / name).is_file() and "__pycache__" not in name}
    own = {name for name in held if ".dist-info/" not in name}
    assert own == files
    assert {"eagerdecomp/py.typed", "eagerdecomp/data/torch-2.13/rules.json.gz", "eagerdecomp/cli/templates/backend.py.txt"} <= own
    assert "eagerdecomp/host/templates/base.html.jinja" in own
    about = {name.partition(".dist-info/")[2] for name in held} - {""}
    assert about == {"METADATA", "WHEEL", "entry_points.txt", "top_level.txt", "licenses/LICENSE"}
    assert sum(map(len, held.values())) < 8_000_000


@pytest.fixture(scope="module")
def unpacked(sdist: Path) -> Path:
    with tarfile.open(sdist) as archive:
        archive.extractall(sdist.parent / "unpacked", filter="data")
    (found,) = (sdist.parent / "unpacked").iterdir()
    return found


def test_the_sdist_holds_the_checkout(unpacked: Path, tree: Path) -> None:
    def files(folder: Path) -> set[str]:
        return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}

    made = {name for name in files(unpacked) if name.partition("/")[0] in ("PKG-INFO", "setup.cfg", "eagerdecomp.egg-info")}
    assert files(unpacked) - made == {name for name in files(tree) if not name.startswith(("eagerdecomp.egg-info/", "build/"))}
    assert {"tests/docs/test_pages.py", "docs/tutorial/tour.md", "examples/npu/train.py", ".ci/run"} <= files(unpacked)


def test_the_sdist_builds_the_same_wheel(unpacked: Path, wheel: Path, tmp_path: Path) -> None:
    assert contents(build_wheel(unpacked, tmp_path)) == contents(wheel)


def test_the_wheel_alone_runs_readmes_first_example_elsewhere_with_warnings_as_errors(python: Path, tmp_path: Path) -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    example = re.search(r"^```python\n(.*?)^```$", readme, re.MULTILINE | re.DOTALL)
    assert example is not None
    reported = run(python, "-I", "-W", "error", "-c", f"{example[1]}\nprint(ed.__file__, ed.__version__)", cwd=tmp_path)
    place, version = reported.splitlines()[-1].split()
    assert Path(place).is_relative_to(python.parent.parent)
    assert (
        version == run(python, "-I", "-c", "import importlib.metadata as m; print(m.version('eagerdecomp'))", cwd=tmp_path).strip()
    )


def checked(tool: str, python: Path, folder: Path, text: str) -> subprocess.CompletedProcess[str]:
    (folder / "program.py").write_text(text, encoding="utf-8")
    (folder / "pyrightconfig.json").write_text('{"typeCheckingMode": "strict"}', encoding="utf-8")
    options = {
        "mypy": ["--strict", "--python-executable", str(python), "--cache-dir", str(folder / "cache")],
        "pyright": ["--pythonpath", str(python)],
    }
    command = [sys.executable, "-m", tool, *options[tool], "program.py"]
    environment = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "MYPYPATH")}
    return subprocess.run(command, capture_output=True, text=True, cwd=folder, env=environment, check=False)


@pytest.mark.parametrize("tool", ["mypy", "pyright"])
@pytest.mark.parametrize("environment", ["python", "editable_python"])
def test_a_users_program_passes_a_strict_type_checker_and_its_faults_do_not(
    tool: str, environment: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    pytest.importorskip(tool)
    python: Path = request.getfixturevalue(environment)
    done = checked(tool, python, tmp_path, PROGRAM)
    assert done.returncode == 0, done.stdout + done.stderr
    wrong = checked(tool, python, tmp_path, WRONG)
    for line in (3, 4, 5):
        assert f"program.py:{line}:" in wrong.stdout, wrong.stdout + wrong.stderr
