"""The command ``eagerdecomp conformance``: find the wrong kernels of a backend, and the kernels to write next."""

from __future__ import annotations

import argparse
import json
import os.path
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eagerdecomp.cli.arguments.shared import FAILED, INTERRUPTED, NOTHING_EXERCISED
from eagerdecomp.cli.commands.command import Command, device_backend, is_factory, named_backend, output_file, shown
from eagerdecomp.errors import FileError
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import NAMED_SETS, core_aten, resolve_ops
from eagerdecomp.verify.reproducer import named_by_spec, named_device

if TYPE_CHECKING:  # a command imports its modules when it runs
    from eagerdecomp.conformance.comparing import ReportComparison
    from eagerdecomp.conformance.kernel_folders import KernelFile
    from eagerdecomp.conformance.results import Report, Verdict

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.conformance.comparing import compare
    from eagerdecomp.conformance.manifest import check_manifest, read_manifest, write_manifest
    from eagerdecomp.conformance.reports.junit import report_junit
    from eagerdecomp.conformance.reports.markdown import report_markdown
    from eagerdecomp.conformance.reports.page import report_page
    from eagerdecomp.conformance.reports.text import report_text
    from eagerdecomp.conformance.reports.words import write_scripts
    from eagerdecomp.conformance.results import Verdict
    from eagerdecomp.conformance.specs import FAMILIES

    if args.kernels:
        return _judge(args)
    backend = device_backend(args, args.backend) or named_backend(args.backend, "conformance")
    old = _old(args.compare) if args.compare else None
    declared = None
    if args.absences:
        try:
            declared = read_manifest(args.absences)
        except FileError as error:
            raise UsageError(f"--absences {error}") from None
    if args.ops in NAMED_SETS or (args.ops and (":" in args.ops or os.path.isfile(args.ops))):
        raise UsageError(
            f"--ops {args.ops}: this is a set of ops or a backend, and --ops takes the names of ops to test, separated by commas: "
            f"--ops aten.add.Tensor,aten.sum. Leave --ops out to test all kernels of {args.backend or args.device}"
        )
    ops = [name.strip() for name in args.ops.split(",") if name.strip()] if args.ops else None
    families = {name: family for family, specs in FAMILIES.items() for name in specs}
    with ExitStack() as files:
        outputs = {
            name: files.enter_context(output_file(f"--{name.replace('_', '-')}", getattr(args, name)))
            for name in ("json", "markdown", "junit", "html", "write_absences")
        }
        report = _report(args, backend, ops)
        report = report if declared is None else check_manifest(report, declared, backend)
        comparison = compare(old, report) if old is not None else None
        scripts = write_scripts(report, args.scripts) if args.scripts else None
        width = shutil.get_terminal_size((100, 24)).columns
        shown(args)(report_text(report, scripts=scripts, comparison=comparison, absent=args.absent, width=min(width, 120)))
        outputs["json"](report.to_json())
        outputs["markdown"](report_markdown(report, comparison=comparison))
        outputs["junit"](report_junit(report, families=families))
        outputs["html"](report_page(report, families=families, comparison=comparison))
        absent = tuple(Verdict(op, "absent") for op in core_aten() if op not in backend.ops)
        outputs["write_absences"](write_manifest(replace(report, results=absent, limited=False), declared))
    return _exit_code(report, comparison, args.strict)


def _judge(args: argparse.Namespace) -> int:
    """Judge the kernels in the files of a folder."""
    from eagerdecomp.conformance.kernel_folders import FORMAT, Limits, judge, kernel_files, newest

    if args.backend or args.device:
        raise UsageError(f"--kernels {args.kernels} and {args.backend or args.device}: pass one of them")
    files, unknown = kernel_files(Path(args.kernels))
    wanted = {str(op) for op in resolve_ops(args.ops.split(","))} if args.ops else None
    files = [one for one in files if wanted is None or str(one.op) in wanted]
    if not files and not unknown:
        raise UsageError(f"--kernels {args.kernels}: no file such as add__Tensor/add__Tensor_implementation_v1.py is there")
    progress = Progress(len(files), sys.stderr)
    limits = Limits(args.time_limit, args.memory_limit * 2**20)
    options = {"profile": args.profile, "seed": args.seed, "strict": args.strict, "processes": args.processes}
    verdicts: dict[KernelFile, Mapping[str, Any]] = {}
    interrupted = False
    with output_file("--json", args.json) as write, output_file("--passed", args.passed) as write_passed:
        try:
            with _sigterm_as_ctrl_c():
                for done, (file, verdict) in enumerate(judge(files, limits=limits, **options), 1):
                    verdicts[file] = verdict
                    progress.step(done, f"{verdict['file']}: {verdict['verdict']}")
        except KeyboardInterrupt:
            interrupted = True
        finally:
            progress.close()
        rows = [verdicts[file] for file in files if file in verdicts]
        lines = [f"unknown: {name} (no operator has this name)" for name in unknown]
        shown(args)("\n".join([line for row in rows for line in _lines_of(row)] + lines))
        write(json.dumps({"format": FORMAT, "verdicts": rows, "unknown": unknown}, indent=1) + "\n")
        states = {file.op: verdicts[file]["verdict"] for file in newest(files) if file in verdicts}
        passed = [str(op) for op, state in states.items() if state == "passed"]
        write_passed("\n".join(["# ops whose newest kernel passed", *passed, ""]))
    if interrupted:
        return INTERRUPTED
    if not set(states.values()) <= {"passed", "not exercised"}:
        return FAILED
    return 0 if "passed" in states.values() else NOTHING_EXERCISED


def _lines_of(verdict: Mapping[str, Any]) -> Iterator[str]:
    yield f"{verdict['verdict']}: {verdict['file']}" + (f" ({verdict['note']})" if verdict["note"] else "")
    for failure in (*verdict["failures"], *verdict["accepts"]):
        yield f"  {failure['property']}: {failure['message']}"
        yield from (f"    {name:9} {failure[name]}" for name in ("input", "expected", "got") if failure[name])


def _exit_code(report: Report, comparison: ReportComparison | None, strict: bool) -> int:
    if report.interrupted:
        return INTERRUPTED
    if not report.counts["right"] and not report.counts["wrong"]:
        return NOTHING_EXERCISED
    if not report.ok or (strict and report.accepts) or (comparison is not None and comparison.worse):
        return FAILED
    return 0


def _report(args: argparse.Namespace, backend: Backend, ops: list[str] | None) -> Report:
    from eagerdecomp.conformance.suite import run_conformance

    if args.device:
        named = named_device(args.device, args.imports)
    else:
        named = named_by_spec(args.backend)
        if is_factory(args.backend):
            named = replace(named, backend=f"{named.backend}()")
    lines: list[Progress] = []

    def report(done: int, total: int, verdict: Verdict | None) -> None:
        if verdict is None:
            lines.append(Progress(total, sys.stderr))
        else:
            lines[0].step(done, f"{verdict.op}: {verdict.state}")
            if done == total and ops is None:
                lines[0].close()
                print("next: test the ops that call these kernels", file=sys.stderr)

    try:
        with _sigterm_as_ctrl_c():
            return run_conformance(
                backend,
                ops=ops,
                profile=args.profile,
                seed=args.seed,
                isolate=False if args.in_process else None,
                processes=args.processes,
                progress=report,
                named=named,
            )
    finally:
        for line in lines:
            line.close()


@contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    """Let SIGTERM end a run as Ctrl-C does, so that what is known is still reported."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _old(name: str) -> Report:
    from eagerdecomp.conformance.results import Report

    try:
        return Report.from_json(Path(name).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, ValueError) as error:
        reason = str(error)
        if isinstance(error, OSError):
            command = "eagerdecomp conformance MODULE:BACKEND --json FILE"
            reason = f"cannot read this file: {error.strerror}. Write a report with: {command}"
        raise UsageError(f"--compare {name}: {reason}") from None


COMMAND = Command("conformance", _run)
