"""Run PyTorch's own test files on a backend, and compare every test with plain eager.

    python conformance/pytorch_tests.py --tests pytorch/test test_torch.py nn/test_pooling.py
    python conformance/pytorch_tests.py --tests pytorch/test --sample 2 --workers 2 --resume results.jsonl
    python conformance/pytorch_tests.py --tests backend/test --names npu test_view_ops.py
    python conformance/pytorch_tests.py --tests pytorch/test --backend npu:backend --device npu test_view_ops.py

DIR is the `test/` folder of a PyTorch checkout that you provide; it should be of the installed torch release. `--names`
reads a backend's own copy of these tests, whose device names are replaced by the CPU.

Each test runs natively and in the mode with the recorder outside it. A test that passes natively and not in the mode runs again,
each time in a new process: natively, in the mode, and in a mode that does nothing. The table has a row per file:

    native      tests that pass in plain eager: only these count
    mode        of these, tests that pass in the mode
    any mode    tests that also fail in a mode that does nothing: not an error of the backend
    alone       tests that fail in the mode after others and pass alone: state left by another test, or by the mode
    known       differences with a reason in the table of reasons (`--reasons`)
    differs     differences without one
    lost        tests that end or block the process, in the mode only

Exit code 0: nothing differs without a reason; 1: something does, or a file cannot be imported; 2: invalid arguments; 130: Ctrl-C.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import re
import sys
import time
import unittest
import warnings
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.baselines import Noop
from conformance.pytorch_files import DeviceNames, cases_of, function_of, import_test_file, install_stand_ins, key_of, select_device
from conformance.pytorch_reasons import REASONS, Reason, read_reasons, reason_for
from eagerdecomp import Backend, BackendRecorder, EagerDecompError, EagerDecompMode, OpSet
from eagerdecomp.cli.commands.command import backend_from
from eagerdecomp.conformance.workers import Lost, done_in_processes
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.progress import Progress

__all__ = ["COLUMNS", "Outcome", "Row", "Job", "add_options", "chosen", "compare", "main", "outcome_of", "status_of", "table"]

#: The columns of the table that count tests, in order. A test has one status; "native" and "mode" are sums of statuses.
COLUMNS = ("native", "mode", "any mode", "alone", "known", "differs", "lost")

#: Seconds after which a test counts as hanging.
LIMIT = 120.0

_GOOD = ("pass", "skip", "expected failure")


@dataclass(frozen=True)
class Outcome:
    """The outcome of one run of one test.

    Attributes:
        kind: ``pass``, ``fail``, ``error``, ``skip``, ``expected failure``, ``unexpected success``, ``leak`` (an op outside the
            set reached the backend) or ``lost`` (the process ended or blocked).
        message: the last line of the error, or the ops that leaked.
        trace: where the error was raised.
    """

    kind: str
    message: str = ""
    trace: str = ""


@dataclass(frozen=True)
class Row:
    """A test's results: natively, in the mode, and, if these differ, alone in fresh processes.

    Attributes:
        test: the file and the test's name without its device.
        status: ``not counted``, ``mode``, ``any mode``, ``alone``, ``known``, ``differs`` or ``lost``.
    """

    file: str
    test: str
    status: str
    native: Outcome
    mode: Outcome | None = None
    nothing: Outcome | None = None
    reason: str = ""


@dataclass(frozen=True)
class Job:
    """A test to run: its plain form, and the form that runs in the mode (the same, unless a device is given)."""

    name: str
    function: str
    plain: unittest.TestCase
    ours: unittest.TestCase


# -- one test -----------------------------------------------------------------------------------------------------


class _Result(unittest.TestResult):
    """A test result that keeps one outcome; if there are several, as with subtests, the worst."""

    def __init__(self) -> None:
        super().__init__()
        self.outcome = Outcome("pass")

    def _fail(self, kind: str, err: Any) -> None:
        text = self._exc_info_to_string(err, _ANY_CASE)  # type: ignore[attr-defined]
        # torch's TestCase adds the same lines to each message, on how to run the test.
        message = " ".join(str(err[1]).partition("To execute this test, run")[0].split())[:600]
        self.outcome = Outcome(kind, f"{err[0].__name__}: {message}", text[-3000:])

    def addError(self, test: Any, err: Any) -> None:
        self._fail("error", err)

    def addFailure(self, test: Any, err: Any) -> None:
        self._fail("fail", err)

    def addSubTest(self, test: Any, subtest: Any, err: Any) -> None:
        if err is not None:
            self._fail("fail", err)

    def addSkip(self, test: Any, reason: str) -> None:
        if self.outcome.kind == "pass":
            self.outcome = Outcome("skip", reason)

    def addExpectedFailure(self, test: Any, err: Any) -> None:
        self.outcome = Outcome("expected failure")

    def addUnexpectedSuccess(self, test: Any) -> None:
        self.outcome = Outcome("unexpected success")


_ANY_CASE = unittest.FunctionTestCase(lambda: None)


def outcome_of(case: unittest.TestCase, around: Callable[[], Any] = nullcontext) -> Outcome:
    """Run one test case, with its class's and module's set-up, inside a context.

    Args:
        around: creates the context, which may raise `Leaked` at its exit.
    """
    result = _Result()
    suite = unittest.TestSuite([type(case)(case._testMethodName)])
    try:
        with around():
            suite.run(result)
    except Leaked as leak:
        return Outcome("leak", str(leak)) if result.outcome.kind in _GOOD else result.outcome
    return result.outcome


class _DeviceRecorder(BackendRecorder):
    """Counts ops that use or create a tensor of one device. A backend of that device does not handle other calls."""

    def __init__(self, device: str) -> None:
        super().__init__()
        self._device = device

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        devices = [kwargs.get("device"), *(one.device for one in tree_leaves((args, kwargs)) if isinstance(one, torch.Tensor))]
        if any(device is not None and torch.device(device).type == self._device for device in devices):
            return super().__torch_dispatch__(func, types, args, kwargs)
        return func(*args, **kwargs)


class Leaked(Exception):
    """Ops outside the set reached the backend; `str` lists them."""


@contextmanager
def in_mode(mode: EagerDecompMode, op_set: OpSet, device: str = "cpu") -> Iterator[None]:
    before = mode.stats().host_random
    with BackendRecorder() if device == "cpu" else _DeviceRecorder(device) as seen, mode:
        yield
    # The mode runs random calls for the host natively: they are not for the backend.
    host = {op for op, count in mode.stats().host_random.items() if count > before.get(op, 0)}
    outside = [op for op in seen.outside(op_set) if str(op) not in host]
    if outside:
        raise Leaked(", ".join(sorted(map(str, outside))))


def status_of(native: Outcome, mode: Outcome | None, nothing: Outcome | None) -> str:
    """Return a test's status from its outcomes. If it ran twice, each outcome is from its own process."""
    # A test that passes natively is skipped in the mode only if it is not for the mode's device.
    if native.kind != "pass" or mode is None or mode.kind == "skip":
        return "not counted"
    if mode.kind == "pass":
        return "mode"
    if nothing is not None and nothing.kind != "pass":
        return "any mode"
    return "lost" if mode.kind == "lost" else "differs"


# -- one file -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Setting:
    """The settings of a run, for all files."""

    root: Path
    backend: Backend | OpSet
    devices: DeviceNames
    device: str
    packages: tuple[str, ...]
    sample: int
    match: str
    limit: float
    workers: int

    @property
    def op_set(self) -> OpSet:
        return self.backend.ops if isinstance(self.backend, Backend) else self.backend


def chosen(tests: Iterable[Job], sample: int, match: str) -> list[Job]:
    """Return the tests that match a regular expression; at most `sample` of each function, spread over its instances (0: all)."""
    groups: dict[str, list[Job]] = defaultdict(list)
    for test in tests:
        if re.search(match, test.name):
            groups[test.function].append(test)
    found = []
    for group in groups.values():
        count = min(sample or len(group), len(group))
        # From the middle of equal parts: neither the first dtype of every function nor the last.
        found += [group[(2 * n + 1) * len(group) // (2 * count)] for n in range(count)]
    return found


def _tests_of(path: Path, setting: _Setting) -> list[Job]:
    """Import a file, once for the CPU and once for the device if there is one, and pair the tests."""
    install_stand_ins(setting.devices, setting.packages)
    select_device("cpu")
    plain = {key_of(case): case for case in cases_of(import_test_file(path, setting.root, setting.devices))}
    ours: Mapping[str, unittest.TestCase] = plain
    if setting.device != "cpu":
        select_device(setting.device)
        devices = replace(setting.devices, target=setting.device)
        made = cases_of(import_test_file(path, setting.root, devices))
        # Tests without a device run on the CPU, which the mode of a device does not handle: nothing to compare.
        ours = {key_of(case): case for case in made if getattr(type(case), "device_type", "cpu") != "cpu"}
    return [Job(name, function_of(case), case, ours[name]) for name, case in plain.items() if name in ours]


def compare(test: Job, file: str, lanes: Mapping[str, Callable[[], Any]], progress: Callable[[Any], None]) -> Row:
    """Run a test natively and, if it passes there, in the mode."""
    progress([test.name, "native"])
    native = outcome_of(test.plain)
    if native.kind != "pass":
        return Row(file, test.name, "not counted", native)
    progress([test.name, "mode"])
    mode = outcome_of(test.ours, lanes["mode"])
    return Row(file, test.name, status_of(native, mode, None), native, mode)


def _alone(test: Job, row: Row, lanes: Mapping[str, Callable[[], Any]], limit: float) -> Row:
    """Run a test that differs again, each time in a new process."""
    names = [*lanes, "twice"]

    def work(number: int, progress: Callable[[Any], None]) -> Outcome:
        name = names[number]
        progress([test.name, name])
        if name == "twice":  # check whether the test fails because of state from its own first run
            outcome_of(test.plain)
            return outcome_of(test.plain)
        return outcome_of(test.plain if name == "native" else test.ours, lanes[name])

    outcomes = {}
    for number, found in done_in_processes(range(len(names)), work, len(names), limit):
        outcomes[names[number]] = Outcome("lost", found.message, found.words[-3000:]) if isinstance(found, Lost) else found
    native, mode, nothing = outcomes["native"], outcomes["mode"], outcomes.get("nothing")
    status = status_of(native, mode, nothing)
    if status == "mode":  # it fails only after other tests, or after its own native run
        timed_out = row.mode is not None and row.mode.message.startswith("no end")
        excused = timed_out or outcomes["twice"].kind != "pass"
        return replace(row, status="mode" if excused else "alone", nothing=nothing)
    return replace(row, status=status, native=native, mode=mode, nothing=nothing)


def _run_file(file: str, setting: _Setting, done: set[str], emit: Callable[[Row], None]) -> None:
    """Run the tests of a file that are not done, in forks of this process, which imports it."""
    warnings.simplefilter("ignore")
    tests = chosen(_tests_of(setting.root / file, setting), setting.sample, setting.match)
    left = {number: test for number, test in enumerate(tests) if test.name not in done}
    mode = EagerDecompMode(setting.backend)
    lanes: dict[str, Callable[[], Any]] = {"native": nullcontext, "mode": lambda: in_mode(mode, setting.op_set, setting.device)}
    if setting.device == "cpu":  # without the library, no test on a custom device could run
        lanes["nothing"] = Noop
    progress = Progress(len(left), sys.stderr)
    bad = 0

    def work(number: int, report: Callable[[Any], None]) -> Row:
        with warnings.catch_warnings():
            warnings.simplefilter("default")
            return compare(left[number], file, lanes, report)

    results = done_in_processes(list(left), work, setting.workers, setting.limit)
    for count, (number, found) in enumerate(results, 1):
        if isinstance(found, Lost):
            found = _lost_row(file, left[number], found)
        if found.status not in ("not counted", "mode"):
            found = _alone(left[number], found, lanes, setting.limit)
            bad += 1
        emit(found)
        progress.step(count, f"{bad} run again  {file}")
    progress.close()


def _lost_row(file: str, test: Job, lost: Lost) -> Row:
    lane = lost.last[1] if lost.last else "native"
    outcome = Outcome("lost", lost.message, lost.words[-3000:])
    if lane == "native":
        return Row(file, test.name, "not counted", outcome)
    return Row(file, test.name, "lost", Outcome("pass"), outcome)


# -- the run ------------------------------------------------------------------------------------------------------


class Journal:
    """A file of rows, one JSON line each, so that a run can be continued."""

    def __init__(self, path: str | None, again: bool) -> None:
        self._path = Path(path) if path else None
        self.rows: dict[tuple[str, str], Row] = {}
        self.failed: dict[str, str] = {}
        if self._path is not None and self._path.exists():
            for line in self._path.read_text(encoding="utf-8").splitlines():
                self._take(json.loads(line))
        if again:
            self.rows = {key: row for key, row in self.rows.items() if row.status in ("not counted", "mode", "any mode")}

    def _take(self, entry: dict[str, Any]) -> None:
        if "import" in entry:
            self.failed[entry["file"]] = entry["import"]
            return
        outcomes = {name: Outcome(**entry[name]) if entry[name] else None for name in ("native", "mode", "nothing")}
        row = Row(**{**entry, **outcomes})
        self.rows[row.file, row.test] = row
        self.failed.pop(row.file, None)  # it failed in an earlier run

    def add(self, entry: dict[str, Any]) -> None:
        self._take(entry)
        if self._path is not None:
            with self._path.open("a", encoding="utf-8") as file:
                file.write(json.dumps(entry) + "\n")

    def done(self, file: str) -> set[str]:
        return {test for known, test in self.rows if known == file}


def _run(files: Sequence[str], setting: _Setting, journal: Journal) -> None:
    """Run each file in its own process, which imports it once and forks for its tests."""
    context = multiprocessing.get_context("fork")
    for file in files:
        print(file, file=sys.stderr, flush=True)
        receive, send = context.Pipe(duplex=False)
        process = context.Process(target=_serve, args=(file, setting, journal.done(file), send))
        process.start()
        send.close()
        try:
            while True:
                journal.add(receive.recv())
        except EOFError:
            process.join()
        except KeyboardInterrupt:
            process.terminate()
            process.join()
            raise
        if process.exitcode:
            journal.add({"file": file, "import": f"its process ended with exit code {process.exitcode}"})


def _serve(file: str, setting: _Setting, done: set[str], send: Any) -> None:
    try:
        _run_file(file, setting, done, lambda row: send.send(asdict(row)))
    except Exception as error:  # the border: a file that cannot be imported is a counted result
        send.send({"file": file, "import": f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"})


def with_reasons(rows: Iterable[Row], reasons: Sequence[Reason]) -> list[Row]:
    """Return the rows, those that differ and have a reason in the table marked "known"."""
    found = []
    for row in rows:
        if row.status in ("differs", "lost", "alone") and row.mode is not None:
            reason = reason_for(row.file, row.test, row.mode.message, reasons)
            if reason is not None:
                row = replace(row, status="known", reason=reason.why)
        found.append(row)
    return found


def table(rows: Iterable[Row]) -> str:
    """Return the table: for each file, the number of tests with each status."""
    counts: dict[str, dict[str, int]] = defaultdict(lambda: dict.fromkeys(COLUMNS, 0))
    for row in rows:
        mine = counts[row.file]
        if row.status != "not counted":
            mine["native"] += 1
            mine[row.status] += 1
    total = {column: sum(mine[column] for mine in counts.values()) for column in COLUMNS}
    width = max([len("all files"), *map(len, counts)])
    head = f"{'file':<{width}}" + "".join(f"{column:>10}" for column in COLUMNS)
    body = [
        f"{name:<{width}}" + "".join(f"{mine[c]:>10}" for c in COLUMNS) for name, mine in [*counts.items(), ("all files", total)]
    ]
    return "\n".join([head, *body])


def groups(rows: Iterable[Row]) -> list[tuple[str, list[Row]]]:
    """Return the rows that differ without a reason, grouped by their message without its numbers, largest group first."""
    found: dict[str, list[Row]] = defaultdict(list)
    for row in rows:
        if row.status in ("differs", "lost", "alone") and row.mode is not None:
            found[re.sub(r"0x[0-9a-f]+|-?\d+(\.\d+)?(e[+-]?\d+)?", "#", row.mode.message)[:160]].append(row)
    return sorted(found.items(), key=lambda item: -len(item[1]))


def report_of(journal: Journal, reasons: Sequence[Reason], show: int) -> tuple[str, bool]:
    rows = with_reasons(journal.rows.values(), reasons)
    parts = [table(rows)]
    for message, mine in groups(rows):
        names = "\n".join(f"    {row.status:>8}  {row.file}::{row.test}" for row in mine[:show])
        more = f"\n    and {len(mine) - show} more" if len(mine) > show else ""
        parts.append(f"{len(mine)} x {message}\n{names}{more}")
    why: dict[str, int] = defaultdict(int)
    for row in rows:
        if row.status == "known":
            why[row.reason] += 1
    parts += ["known:\n" + "\n".join(f"    {count:>5}  {reason}" for reason, count in why.items())] if why else []
    parts += [f"{file} cannot be imported: {message}" for file, message in journal.failed.items()]
    return "\n\n".join(parts), not (journal.failed or any(row.status in ("differs", "lost", "alone") for row in rows))


def add_options(parser: argparse.ArgumentParser) -> None:
    """Add the options that this command and `library_tests.py` share."""
    parser.add_argument(
        "--ops", default="core", metavar="SET", help="the op set: core, prims, tiny, a file of op names, or MODULE:NAME"
    )
    parser.add_argument("--backend", metavar="MODULE:NAME", help="a Backend, with its kernels, in place of --ops")
    parser.add_argument("--stub", action="append", default=[], metavar="PACKAGE", help="a package to replace by an empty stand-in")
    parser.add_argument("--match", default="", metavar="REGEX", help="run only tests whose name matches")
    parser.add_argument(
        "--limit", type=float, default=LIMIT, metavar="SECONDS", help=f"time limit for a test (default {LIMIT:.0f})"
    )
    parser.add_argument("--resume", metavar="FILE", help="write each result to FILE at once, and continue from the results in it")
    parser.add_argument("--again", action="store_true", help="run again the tests that differ in the file of --resume")
    parser.add_argument("--report", action="store_true", help="print the report of the file of --resume, and run nothing")
    parser.add_argument("--reasons", metavar="FILE", help="a table of known differences, instead of the one for Core ATen")
    parser.add_argument("--show", type=int, default=5, metavar="N", help="how many tests of each group to print (default 5)")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="*", metavar="FILE", help="test files below DIR (default: every test_*.py directly in it)")
    parser.add_argument("--tests", required=True, metavar="DIR", help="the test/ folder of a checkout of PyTorch or of a backend")
    parser.add_argument("--device", default="cpu", metavar="NAME", help="make the tests for this device of the backend")
    parser.add_argument(
        "--names", action="append", default=[], metavar="NAME", help="a device name in these tests, replaced by the CPU"
    )
    parser.add_argument("--sample", type=int, default=0, metavar="N", help="at most N instances of each test function (0: all)")
    parser.add_argument("--workers", type=int, default=1, metavar="N", help="number of processes (default 1)")
    parser.add_argument("--json", metavar="FILE", help="write all results to FILE")
    add_options(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit code."""
    parser = _parser()
    args = parser.parse_args(argv)
    root = Path(args.tests).resolve()
    if not root.is_dir():
        parser.error(f"--tests {args.tests}: no such folder; give the test/ folder of a PyTorch checkout")
    files = args.files or sorted(path.name for path in root.glob("test_*.py"))
    missing = [file for file in files if not (root / file).is_file()]
    if missing or not files:
        parser.error(f"no such file below {args.tests}: {', '.join(missing) or 'test_*.py'}")
    try:
        backend = backend_from(args.backend, "--backend") if args.backend else backend_from(args.ops)
        reasons = read_reasons(Path(args.reasons)) if args.reasons else REASONS
    except (UsageError, EagerDecompError, OSError, ValueError) as error:
        parser.error(str(error))
    devices = DeviceNames(tuple(args.names))
    setting = _Setting(root, backend, devices, args.device, tuple(args.stub), args.sample, args.match, args.limit, args.workers)
    journal = Journal(args.resume, args.again)
    with ExitStack() as stack:
        started = time.monotonic()
        stack.callback(lambda: print(f"{time.monotonic() - started:.0f} s", file=sys.stderr))
        try:
            if not args.report:
                _run(files, setting, journal)
        except KeyboardInterrupt:
            print(report_of(journal, reasons, args.show)[0])
            return 130
    text, clean = report_of(journal, reasons, args.show)
    print(text)
    if args.json:
        rows = [asdict(row) for row in with_reasons(journal.rows.values(), reasons)]
        Path(args.json).write_text(json.dumps({"rows": rows, "imports": journal.failed}, indent=1), encoding="utf-8")
    return 0 if clean else 1


if __name__ == "__main__":
    raise SystemExit(main())
