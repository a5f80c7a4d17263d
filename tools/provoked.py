"""Provocations: for each error that a user can cause, code or a command line that causes it, and the files that it needs.

They stand in `tests/golden_errors.txt` behind ``> ``, with the errors. `provoke` runs all of them, and
`python tools/golden_errors.py` prints the errors. This module has what their code uses.
"""

from __future__ import annotations

import ast
import functools
import io
import json
import linecache
import os
import re
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

import torch

import eagerdecomp as ed
from eagerdecomp.cli import main
from eagerdecomp.conformance import run_conformance
from eagerdecomp.conformance.manifest import parse_manifest, read_manifest
from eagerdecomp.conformance.results import Report
from eagerdecomp.conformance.scorecard import Scorecard
from eagerdecomp.coverage.plan_report import Plan  # noqa: F401 - the provocations are text
from eagerdecomp.device import make_device
from eagerdecomp.ops.call_text import parse_call
from eagerdecomp.profile import Record, RecordingMode  # noqa: F401
from eagerdecomp.program.ir import KernelCall, Program, Slot, check
from eagerdecomp.rules.link import link
from eagerdecomp.rules.rule import library_rule, rule

__all__ = ["Provoked", "provoke", "as_text"]

GOLDEN = Path(__file__).parents[1] / "tests" / "golden_errors.txt"

aten = torch.ops.aten
core = ed.core_aten
silu = torch.nn.functional.silu
x = torch.ones(2)
KERNEL = functools.partial(aten.exp.default)


@dataclass(frozen=True)
class Provoked:
    """The result of a provocation.

    Attributes:
        source: the code or the command line.
        error: the exception, or None.
        as_text: the error's text without what differs between machines.
    """

    source: str
    error: BaseException | None
    as_text: str


#: Internal functions and classes that provocations use.
_LIBRARY = {
    one.__name__: one
    for one in (
        *(KernelCall, Program, Report, Scorecard, Slot, check, library_rule, link, parse_call, parse_manifest, read_manifest, rule),
        make_device,
        run_conformance,
    )
}


class _CommandOutput(Exception):
    """Output and exit code of a command."""


@ed.register_decomposition("aten.silu.default")
def none(x: Any) -> Any:
    return None


@ed.register_decomposition("aten.silu.default")
def shorter(x: Any) -> Any:
    return x[:1]


@ed.register_decomposition("aten.silu.default")
def halved(x: Any) -> Any:
    return (x * torch.sigmoid(x)).half()


@ed.register_decomposition("aten.silu.default")
def two(x: Any) -> Any:
    return x, x


def bad_hook(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("no compiler today")


def wrong_hook(graph: Any, inputs: Any) -> Any:
    return lambda *args: args[0][:1]


def wrong_sigmoid(x: Any) -> Any:
    return aten.sigmoid.default(x) * 1.01


def program(*calls: KernelCall) -> Program:
    return Program(aten.exp.default, (Slot(0),), (), calls, Slot(1))


def branch(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.sum() > 0 else x


def by_size(x: torch.Tensor) -> torch.Tensor:
    return x + 1 if x.shape[0] == 4 else x


with RecordingMode(core()) as _recording:
    silu(x)
RECORD = _recording.record().to_json()


def without_lines(record: str) -> str:
    data = json.loads(record)
    data["lines"]["rows"] = []
    return json.dumps(data)


def with_wrong_note(record: str) -> str:
    return json.dumps({**json.loads(record), "notes": [3]})


def report() -> Report:
    return run_conformance(core(), ops=["aten.neg.default"], profile="quick", isolate=False)


def provoke(folder: Path) -> Iterator[Provoked]:
    """Run each provocation in a new folder, and yield its result."""
    sys_path = list(sys.path)
    for number, source in enumerate(_sources()):
        place = folder / str(number)
        place.mkdir()
        error: BaseException | None = None
        with _inside(place), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                _run(source)
            except Exception as caught:  # any error is a result to compare
                error = caught
        for module in [one for one in sys.modules if re.fullmatch(r"\w+_module", one)]:
            del sys.modules[module]
        sys.path[:] = sys_path
        yield Provoked(source, error, _without_machine_details(error, place))


def _sources() -> Iterator[str]:
    text = GOLDEN.read_text(encoding="utf-8")
    for lines in re.findall(r"(?:^> .*\n)+", text, re.MULTILINE):
        yield "\n".join(line[2:] for line in lines.splitlines())


def _run(source: str) -> None:
    """Run Python code, which may use the public names of this module and of `_LIBRARY`, or a command, in a folder with files."""
    if (command := re.search(r"^\$ eagerdecomp (.*)", source, re.MULTILINE)) is not None:
        for name, content in re.findall(r"^([\w.]+): (.*)$", source, re.MULTILINE):
            text = RECORD if content == "RECORD" else ast.literal_eval(content)
            Path(name).write_text(text, encoding="utf-8", errors="surrogateescape")
        _run_command(command[1].split())
    linecache.cache["user.py"] = (len(source), None, [f"{line}\n" for line in source.splitlines()], "user.py")
    ours = {name: value for name, value in globals().items() if not name.startswith("_")}
    exec(compile(source, "user.py", "exec"), {**ours, **_LIBRARY, "__name__": "user"})


def _run_command(words: list[str]) -> NoReturn:
    err = io.StringIO()
    errors: list[Exception] = []
    progress = main._report
    main._report = lambda command, error, words: (errors.append(error), progress(command, error, words))[1]
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(err):
            code = main.main(words)
    finally:
        main._report = progress
    raise _CommandOutput(f"{err.getvalue().rstrip()}\nexit code {code}") from (errors[-1] if errors else None)


@contextmanager
def _inside(place: Path) -> Iterator[None]:
    before = os.getcwd()
    os.chdir(place)
    try:
        yield
    finally:
        os.chdir(before)


def _without_machine_details(error: BaseException | None, place: Path) -> str:
    """Return the error's text without paths, versions, line numbers and addresses."""
    if error is None:
        return "nothing"
    text = str(error) if isinstance(error, _CommandOutput) else f"{type(error).__name__}: {error}"
    text = text.replace(str(place), "FOLDER").replace(str(Path(__file__).parent), "tests/support")
    text = text.replace(torch.__version__, "VERSION")
    text = re.sub(r"((?:provoked|eagerdecomp)\.[\w.<>]+):\d+", r"\1:LINE", text)
    # The list of an op's rules may change without a change of the message.
    text = re.sub(r"(routes tried:\n)(?:    - .* by .* rule .*\n)+", r"\1    - …\n", text)
    text = re.sub(r"(\n    - aten\S+\(.*\)\n)(?: {8}\S.*\n)+", r"\1        …\n", text)
    text = re.sub(r"(reached by: \S+ -> ).*", r"\1…", text)
    text = re.sub(r"\n +during +.*", "", text)  # the caller of the provocation
    text = re.sub(r"\S*site-packages", "SITE", text)
    return re.sub(r"0x[0-9a-f]+", "0x…", text)


def as_text(observed: list[Provoked]) -> str:
    """Return the content of `tests/golden_errors.txt`."""
    parts = []
    for one in observed:
        source = "\n".join(f"> {line}" for line in one.source.splitlines())
        parts.append(f"{source}\n{one.as_text}\n")
    return "\n".join(parts)
