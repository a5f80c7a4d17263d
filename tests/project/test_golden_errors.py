"""Every error that a user can bring about says what `golden_errors.txt` has: what was asked, why it cannot go on, what to do.

Where a message is meant to change: ``python tools/golden_errors.py --write``, and read what it wrote.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import eagerdecomp
from eagerdecomp import errors
from tools.provoked import Provoked, as_text, provoke

pytestmark = pytest.mark.full

HERE = Path(__file__).parents[1]
PACKAGE = Path(eagerdecomp.__file__).parent

#: The kinds whose every `raise` is provoked, or stands below.
KINDS = {name for name in errors.__all__ if name.endswith("Error")} | {
    "UsageError",
    "ScaffoldError",
    "ScriptNotFound",
    "CallTextError",
}

#: What no provocation can bring about in a moment, by its function: why, and where it is brought about instead.
ELSEWHERE = {
    "coverage/opinfo_allowlist.py:opinfos": "a package that torch's own tests need is missing",
    "ops/call_text.py:call": "what Python reads as something else than one call, found by no text so far",
    "frontends/fx/capture.py:_result": "an LSTM, in seconds: tests/frontends/test_capture_symbolic.py",
    "cli/commands/command.py:print_whole": "a full disk: tests/cli/test_cli.py",
    "cli/commands/bench.py:_run": "a wheel, without the repository: tests/cli/test_cli.py",
    "cli/arguments/shared.py:__call__": "argparse's own error: tests/cli/test_cli.py",
    "cli/arguments/shared.py:positive": "argparse's own error, of the same name as one of ours: tests/cli/test_cli.py",
    "cli/commands/plan.py:_matching": "an expression of a megabyte",
    "conformance/devices.py:_there_and_home": "a device that is broken",
    "conformance/devices.py:reached": "a device that is broken",
    "conformance/kernel_folders.py:backend_of_file": "a damaged file: tests/conformance_suite/test_kernel_folders.py",
    "conformance/suite.py:check_again": "a reproducer of another version of the library",
    "conformance/suite.py:check_call": "tests/conformance_suite/test_run_conformance.py",
    "conformance/test_kernels.py:_backend": "pytest's options: tests/conformance_suite",
    "cli/arguments/record.py:_bytes": "argparse's own error: eagerdecomp record --save-limit x",
    "cli/arguments/record.py:_number": "argparse's own error: tests/recording/test_differences.py",
    "recording/reproduce.py:save_script": "a missing file: tests/recording/test_differences.py",
    "cli/commands/record.py:_run": "a folder that holds a run: tests/recording/test_differences.py",
    **dict.fromkeys(
        [
            f"recording/run_folder.py:{name}"
            for name in ("__init__", "_opened", "read_run", "_rows", "_check_header", "_with_digest")
        ],
        "damaged folders: tests/recording/test_recorder.py",
    ),
    "recording/saved_call.py:_loaded": "a damaged file",
    "cli/commands/scorecard.py:_run": "a package that is missing: tests/conformance_suite/test_scorecard.py",
    "backends/inductor.py:inductor_hook": "no C++ compiler",
    "frontends/installation.py:kernel": "a device of its own: examples/npu/tests",
    "device/make.py:_check_unnamed": "a device of its own: tests/device/test_make_device.py",
    "device/storages.py:_rebuild": "a process without the device: tests/device/test_make_device.py",
    "dispatcher/composites.py:_install": "another kernel in torch's dispatcher: tests/dispatcher/test_composites_registered.py",
    "frontends/fx/recorder.py:_size": "a size of which no expression is known",
    "ops/opset_file.py:_included": "reported as a line of a file, with others",
    "dispatcher/composite_gradient.py:_check_random_numbers": "needs a kernel that draws other numbers: tests/dispatcher/",
}


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> list[Provoked]:
    return list(provoke(tmp_path_factory.mktemp("provoked")))


@pytest.mark.full
def test_every_error_says_what_is_written_down(observed: list[Provoked]) -> None:
    written = (HERE / "golden_errors.txt").read_text(encoding="utf-8")
    assert as_text(observed).split("\n\n") == written.split("\n\n")


@pytest.mark.full
def test_every_raise_of_the_library_is_provoked(observed: list[Provoked]) -> None:
    reached = {place for one in observed for place in _places(one.error)}
    missed = {where for where, lines in _raises() if not reached & lines}
    assert missed == set(ELSEWHERE)


def _raises() -> Iterator[tuple[str, set[tuple[str, int]]]]:
    """Each `raise` of an error of the library's own: in which function it is, and its lines."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(function, ast.FunctionDef):
                continue
            for node in _own(function):
                if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and _kind(node.exc.func) in KINDS:
                    lines = range(node.lineno, (node.end_lineno or node.lineno) + 1)
                    yield f"{name}:{function.name}", {(str(path), line) for line in lines}


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """Return the nodes of a function, without the functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, ast.FunctionDef):
            yield node
            yield from _own(node)


def _kind(called: ast.expr) -> str:
    return called.id if isinstance(called, ast.Name) else called.attr if isinstance(called, ast.Attribute) else ""


def _places(error: BaseException | None) -> Iterator[tuple[str, int]]:
    """The files and lines that an error, and those that it was raised for, came through."""
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            yield trace.tb_frame.f_code.co_filename, trace.tb_lineno
            trace = trace.tb_next
        error = error.__cause__ or error.__context__
