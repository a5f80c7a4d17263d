"""The command ``eagerdecomp conformance``: find the wrong kernels of a backend, and the kernels to write next."""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from eagerdecomp.cli.commands.command import FAILED, INTERRUPTED, Command, add_json, called, output_file, positive, shown
from eagerdecomp.errors import ConformanceError
from eagerdecomp.host.import_path import USAGE_ERROR, UsageError, object_of
from eagerdecomp.host.progress import Progress
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpSet, core_aten
from eagerdecomp.verify.reproducer import named_by_spec

if TYPE_CHECKING:  # a command imports its modules when it runs
    from eagerdecomp.conformance.comparing import Comparison
    from eagerdecomp.conformance.results import Report, Verdict

__all__ = ["COMMAND"]

NOTHING_EXERCISED = 4
_PROFILES = ("quick", "standard", "thorough")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", metavar="MODULE:BACKEND", help="a Backend or OpSet, or a function that returns one")
    parser.add_argument(
        "--profile",
        choices=_PROFILES,
        default="standard",
        help="how many inputs: quick takes seconds, standard minutes, thorough an hour (default %(default)s)",
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="seed of the random inputs (default %(default)s)")
    parser.add_argument("--ops", metavar="OPS", help="test only these ops, separated by commas: aten.add.Tensor,aten.sum")
    parser.add_argument("--processes", type=positive, metavar="N", help="number of worker processes (default: one per core)")
    parser.add_argument("--in-process", action="store_true", help="start no worker processes: a kernel that crashes ends the run")
    parser.add_argument("--scripts", metavar="FOLDER", help="write a script to FOLDER for each fault, which reproduces it")
    parser.add_argument("--markdown", metavar="FILE", help="write the report to FILE as Markdown, for a pull request")
    parser.add_argument("--junit", metavar="FILE", help="write the report to FILE as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="write the report to FILE as an HTML page")
    parser.add_argument(
        "--compare", metavar="OLD.json", help="print which kernels got better or worse since an older report, which --json wrote"
    )
    parser.add_argument(
        "--absences",
        metavar="FILE",
        help="a list of the kernels that are left out on purpose; fail if it does not match the backend",
    )
    parser.add_argument(
        "--write-absences",
        metavar="FILE",
        help="write the list for --absences, with the reasons of the --absences file that you pass",
    )
    parser.add_argument("--absent", action="store_true", help="print the names of absent kernels, not only their number")
    add_json(parser, "the report")


_EPILOG = f"""examples:
  eagerdecomp conformance my_backend:backend                                   test all kernels, in minutes
  eagerdecomp conformance my_backend:backend --profile quick --ops aten.add    test one kernel, in a second
  eagerdecomp conformance my_backend:backend --scripts wrong/                  a script for each fault
  eagerdecomp conformance my_backend:backend --json new.json --compare main.json --markdown comment.md
  eagerdecomp conformance my_backend:backend --html report.html --junit report.xml --absences absent.txt

Each kernel is called with difficult values, dtypes, shapes and strides. Its results are compared with eager on the CPU,
and values with the op computed in float64. Without --ops, the ops that the set decomposes are tested too, and their
faults are listed under the kernel that causes them. Each kernel is right, wrong, absent (the backend has none) or not
exercised (the suite has no call for it).

exit codes: 0 no kernel is wrong; {FAILED} a kernel is wrong, --absences does not match, or a kernel is worse than in --compare;
{USAGE_ERROR} wrong command line, backend or file; {NOTHING_EXERCISED} no kernel was exercised;
{INTERRUPTED} interrupted (Ctrl-C), after a report of the kernels tested until then"""


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

    backend = _backend(args.backend)
    old = _old(args.compare) if args.compare else None
    declared = None
    if args.absences:
        try:
            declared = read_manifest(args.absences)
        except ConformanceError as error:
            raise UsageError(f"--absences {error}") from None
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
    return _exit_code(report, comparison)


def _exit_code(report: Report, comparison: Comparison | None) -> int:
    if report.interrupted:
        return INTERRUPTED
    if not report.ok or (comparison is not None and comparison.worse):
        return FAILED
    return 0 if report.counts["right"] else NOTHING_EXERCISED


def _report(args: argparse.Namespace, backend: Backend, ops: list[str] | None) -> Report:
    from eagerdecomp.conformance.suite import run_conformance

    named = named_by_spec(args.backend)
    if _is_factory(args.backend):
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

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # like Ctrl-C: print the report so far
    try:
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
        signal.signal(signal.SIGTERM, before)
        for line in lines:
            line.close()


def _is_factory(spec: str) -> bool:
    found = object_of("", spec)
    return callable(found) and not isinstance(found, (Backend, OpSet))


def _backend(spec: str) -> Backend:
    found = object_of("", spec)
    if _is_factory(spec):
        found = called("", spec, found)
    if not isinstance(found, (Backend, OpSet)):
        raise UsageError(f"{spec}: expected an eagerdecomp.Backend or OpSet, found {found!r}")
    return as_backend(found)


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


COMMAND = Command("conformance", _configure, _run, _EPILOG)
