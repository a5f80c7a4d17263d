"""The command ``eagerdecomp conformance``: which kernels of a backend are wrong, on which smallest call, and what to write next."""

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

if TYPE_CHECKING:  # each command's own imports wait until it is run
    from eagerdecomp.conformance.comparing import Comparison
    from eagerdecomp.conformance.results import Report, Verdict

__all__ = ["COMMAND"]

NOTHING_EXERCISED = 4
_PROFILES = ("quick", "standard", "thorough")


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("backend", metavar="MODULE:BACKEND", help="a Backend or OpSet, or a function that returns one")
    parser.add_argument("--profile", choices=_PROFILES, default="standard", help="seconds, minutes, an hour (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of all that is drawn (default %(default)s)")
    parser.add_argument("--ops", metavar="OPS", help="only these kernels, with commas between: aten.add.Tensor,aten.sum")
    parser.add_argument("--processes", type=positive, metavar="N", help="how many at a time (default: one a core)")
    parser.add_argument("--in-process", action="store_true", help="no processes of their own: a kernel that crashes ends the run")
    parser.add_argument("--scripts", metavar="FOLDER", help="write a script there for each fault, which shows it by itself")
    parser.add_argument("--markdown", metavar="FILE", help="write the report there as Markdown, for a pull request")
    parser.add_argument("--junit", metavar="FILE", help="write it there as JUnit XML")
    parser.add_argument("--html", metavar="FILE", help="write it there as a page of its own")
    parser.add_argument("--compare", metavar="OLD.json", help="say what got better and worse since the run that wrote this")
    parser.add_argument("--absences", metavar="FILE", help="the ops that the backend lacks, declared; what does not hold fails")
    parser.add_argument("--write-absences", metavar="FILE", help="write such a file, with the reasons of --absences")
    parser.add_argument("--absent", action="store_true", help="name the kernels that are absent, too")
    add_json(parser, "the report")


_EPILOG = f"""examples:
  eagerdecomp conformance my_backend:backend                                   all kernels, in minutes
  eagerdecomp conformance my_backend:backend --profile quick --ops aten.add    the kernel under way, in a second
  eagerdecomp conformance my_backend:backend --scripts wrong/             a script for each fault
  eagerdecomp conformance my_backend:backend --json new.json --compare main.json --markdown comment.md
  eagerdecomp conformance my_backend:backend --html report.html --junit report.xml --absences absent.txt

Each kernel is called as EagerDecompMode calls it, with values, dtypes, shapes and layouts that kernels go wrong on, and held to
what eager does on the CPU; values to what the op gives in float64. Then ops without a kernel are run by what the kernels make of
them. A kernel that is not there is absent, one that no call could be made for is not exercised: neither counts as right.

exit codes: 0 nothing wrong; {FAILED} a kernel is wrong, the absences do not hold, or --compare finds anything worse;
{USAGE_ERROR} the command line, the backend or a file is wrong; {NOTHING_EXERCISED} no kernel was exercised, so none can be right;
{INTERRUPTED} interrupted (Ctrl-C), after the report of what was known by then"""


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.conformance.comparing import compare
    from eagerdecomp.conformance.manifest import hold_to_manifest, read_manifest, write_manifest
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
        report = report if declared is None else hold_to_manifest(report, declared, backend)
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
                print("now the ops that these kernels are called by, together", file=sys.stderr)

    before = signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: what is known by then is reported
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
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise UsageError(f"--compare {name}: {reason}") from None


COMMAND = Command("conformance", _configure, _run, _EPILOG)
