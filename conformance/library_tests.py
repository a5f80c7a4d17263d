"""Run the pytest suite of another library on a backend, and compare every test with plain eager.

    python conformance/library_tests.py transformers/tests/models/bert/test_modeling_bert.py
    python conformance/library_tests.py --match 'resnet' --resume results.jsonl timm/tests/test_models.py

The library must be installed, and its checkout be of the installed release. Each file's tests run natively; those that pass run in
the mode with the recorder outside it, each with the same seed. Those that fail there run once more, in a new process: natively, in
the mode, and in a mode that does nothing. The table and its columns are those of `conformance/pytorch_tests.py`.

Exit code 0: nothing differs without a reason; 1: something does, or a file cannot be collected; 2: invalid arguments.
"""

from __future__ import annotations

import argparse
import multiprocessing
import random
import re
import signal
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest
import torch

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.baselines import Noop
from conformance.models.torchvision_ops import prepare_torchvision
from conformance.pytorch_files import DeviceNames, install_stand_ins
from conformance.pytorch_reasons import REASONS, read_reasons
from conformance.pytorch_tests import Journal, Leaked, Outcome, Row, add_options, in_mode, report_of, status_of
from eagerdecomp import Backend, EagerDecompError, EagerDecompMode
from eagerdecomp.cli.commands.command import backend_from
from eagerdecomp.host.import_path import UsageError

__all__ = ["compare_file", "main", "outcomes_of"]

#: How a lane's context is made: plain eager, the mode, or a mode that does nothing.
Around = Callable[[], Any]

_OPTIONS = ("-q", "-p", "no:cacheprovider", "-p", "no:xdist", "-W", "ignore", "--no-header", "--no-summary", "--tb=no")

#: In place of a test's name: the message is why a file was not collected.
_COLLECTED = ""


class _TimedOut(BaseException):
    """A test ran longer than the limit. No `Exception`, so that neither the test nor the library handles it."""


@contextmanager
def _limited(seconds: float) -> Iterator[None]:
    def stop(*_: Any) -> None:
        raise _TimedOut(f"no end after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


class _Lane:
    """A pytest plugin that runs tests inside a context, and sends their outcomes."""

    def __init__(self, around: Around, chosen: Callable[[str], bool], limit: float, send: Callable[[Any], None]) -> None:
        self._around, self._chosen, self._limit, self._send = around, chosen, limit, send
        self._outcome = Outcome("pass")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = [item for item in items if self._chosen(item.nodeid)]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self._send((_COLLECTED, " ".join(report.longreprtext.split())[-300:]))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Iterator[None]:
        self._send((item.nodeid, None))
        random.seed(0)
        torch.manual_seed(0)
        with _limited(self._limit), self._around():
            return (yield)

    def pytest_runtest_makereport(self, item: pytest.Item, call: pytest.CallInfo[None]) -> None:
        if call.excinfo is None or self._outcome.kind != "pass":
            return
        error = call.excinfo.value
        if isinstance(error, pytest.skip.Exception):
            self._outcome = Outcome("skip", str(error))
        elif isinstance(error, Leaked):
            self._outcome = Outcome("leak", str(error))
        else:
            message = " ".join(str(error).split())[:600]
            self._outcome = Outcome("fail", f"{type(error).__name__}: {message}", str(call.excinfo.getrepr(style="native"))[-3000:])

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        self._send((nodeid, self._outcome))
        self._outcome = Outcome("pass")


def outcomes_of(
    path: Path, around: Around, limit: float, wanted: Callable[[str], bool], seen: Callable[[str, Outcome], None] | None = None
) -> dict[str, Outcome]:
    """Run the tests of a file that are wanted, in a context, and return their outcomes.

    They run in a fork of this process. If it ends within a test, that test is lost, and a new fork runs the tests after it.

    Args:
        seen: called with each outcome at once.

    Raises:
        ValueError: if pytest cannot collect the file.
    """
    context = multiprocessing.get_context("fork")
    found: dict[str, Outcome] = {}
    while True:
        receive, send = context.Pipe(duplex=False)

        def serve(send: Any = send) -> None:
            lane = _Lane(around, lambda test: test not in found and wanted(test), limit, send.send)
            options = [
                "-q",
                "-p",
                "no:cacheprovider",
                "-p",
                "no:xdist",
                "--no-header",
                "--no-summary",
                "--capture=fd",
                "--tb=no",
                "-W",
                "ignore",
            ]
            sys.exit(pytest.main([*options, str(path)], plugins=[lane]))

        process = context.Process(target=serve)
        process.start()
        send.close()
        running, reason = "", ""
        try:
            while True:
                name, outcome = receive.recv()
                if name == _COLLECTED:
                    reason = outcome
                    continue
                running = name if outcome is None else ""
                if outcome is not None:
                    found[name] = outcome
                    if seen is not None:
                        seen(name, outcome)
        except EOFError:
            process.join()
        if running:
            found[running] = Outcome("lost", f"the process ended with exit code {process.exitcode}")
        elif process.exitcode in (0, 1, 5):  # all passed, some failed, nothing was collected
            return found
        else:
            raise ValueError(f"pytest ended with exit code {process.exitcode}: {reason}")


def compare_file(
    path: Path, lanes: Mapping[str, Around], limit: float, wanted: Callable[[str], bool], emit: Callable[[Row], None]
) -> None:
    """Run the tests of a file natively, and in the mode those that pass; emit a row for each."""
    file = path.name

    def select(names: Collection[str]) -> Callable[[str], bool]:
        return lambda name: name in names

    def row(name: str, status: str, *outcomes: Outcome | None) -> Row:
        return Row(file, name.partition("::")[2], status, *outcomes)  # type: ignore[arg-type]

    native = outcomes_of(path, lanes["native"], limit, wanted)
    for name, outcome in native.items():
        if outcome.kind != "pass":
            emit(row(name, "not counted", outcome))
    passed = {name for name, outcome in native.items() if outcome.kind == "pass"}

    def take(name: str, outcome: Outcome) -> None:
        if outcome.kind in ("pass", "skip"):
            emit(row(name, status_of(native[name], outcome, None), native[name], outcome))

    mode = outcomes_of(path, lanes["mode"], limit, select(passed), take) if passed else {}
    suspects = {name for name, outcome in mode.items() if outcome.kind not in ("pass", "skip")}
    if not suspects:
        return
    again = {lane: outcomes_of(path, around, limit, select(suspects)) for lane, around in lanes.items()}
    for name in sorted(suspects):
        plain, ours, nothing = (again[lane].get(name, Outcome("lost")) for lane in ("native", "mode", "nothing"))
        status = status_of(plain, ours, nothing)
        emit(row(name, "alone" if status == "mode" else status, plain, mode[name] if status == "mode" else ours, nothing))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="test files")
    parser.add_argument("--without", metavar="REGEX", help="leave out tests whose name matches")
    add_options(parser)
    return parser


def _run(files: Iterable[Path], backend: Any, options: argparse.Namespace, journal: Journal) -> None:
    mode = EagerDecompMode(backend)
    ops = backend.ops if isinstance(backend, Backend) else backend
    lanes: dict[str, Around] = {"native": nullcontext, "mode": lambda: in_mode(mode, ops), "nothing": Noop}
    for path in files:
        print(path, file=sys.stderr, flush=True)
        done = journal.done(path.name)

        def wanted(name: str, done: Collection[str] = done) -> bool:
            skipped = options.without is not None and re.search(options.without, name)
            return name.partition("::")[2] not in done and bool(re.search(options.match, name)) and not skipped

        try:
            compare_file(path.resolve(), lanes, options.limit, wanted, lambda row: journal.add(asdict(row)))
        except ValueError as error:
            journal.add({"file": path.name, "import": str(error)})


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    options = parser.parse_args(argv)
    missing = [str(path) for path in options.files if not path.is_file()]
    if missing:
        parser.error(f"no such file: {', '.join(missing)}")
    try:
        backend = backend_from(options.backend, "--backend") if options.backend else backend_from(options.ops)
        reasons = read_reasons(Path(options.reasons)) if options.reasons else REASONS
    except (UsageError, EagerDecompError, OSError, ValueError) as error:
        parser.error(str(error))
    prepare_torchvision()
    install_stand_ins(DeviceNames(), options.stub)
    journal = Journal(options.resume, options.again)
    started = time.monotonic()
    if not options.report:
        _run(options.files, backend, options, journal)
    text, clean = report_of(journal, reasons, options.show)
    print(text)
    print(f"{time.monotonic() - started:.0f} s", file=sys.stderr)
    return 0 if clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
