"""The command ``eagerdecomp compare``: run a script on two backends, and report which ops differ, and by how much."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from eagerdecomp.cli.commands.command import Command, backend_from, output_file, rules_of
from eagerdecomp.cli.commands.scripts import print_last, script_of, watched_exit, with_ending
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.progress import SoFar
from eagerdecomp.host.run_script import run_script
from eagerdecomp.host.terminal import columns

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.insight.compare_mode import Comparing
    from eagerdecomp.insight.comparison import comparison_text

    script = script_of(args, "compare")
    sides = [_side(option, spec) for option, spec in (("--backend", args.backend), ("--against", args.against))]
    rules = rules_of(args.rules)[0] if args.rules else ()
    names = (args.backend, args.against) if args.backend != args.against else None
    progress = SoFar(sys.stderr)

    def show_counts(compared: int, diverging: int) -> None:
        progress.report(f"calls compared: {compared}  diverging: {diverging}")

    try:
        watch = Comparing(*sides, rules=rules, on_unsupported=args.on_unsupported, names=names, progress=show_counts)
    except ValueError as error:
        raise UsageError(str(error)) from None
    with output_file("--json", args.json) as write, output_file("--markdown", args.markdown) as write_markdown:
        try:
            outcome = run_script(script, lambda: watch, full_trace=args.full_trace)
        finally:
            progress.clear()
        if outcome.in_child:
            return outcome.exit_code
        report = watch.report()
        if args.json != "-":
            print_last(with_ending(comparison_text(report, columns()), outcome, found=bool(report)))
        write(json.dumps({"script": script.name, "exit_code": outcome.exit_code, **report.as_dict()}, indent=2) + "\n")
        write_markdown(report.markdown())
    return watched_exit(outcome, found=bool(report), compared=bool(report.compared))


def _side(option: str, spec: str) -> Any:
    if spec == "native":
        return spec
    return backend_from(spec, option)


COMMAND = Command("compare", _run)
