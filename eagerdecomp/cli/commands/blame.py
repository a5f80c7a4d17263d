"""The command ``eagerdecomp blame``: find the first op of a script that differs from eager, and the wrong kernel or rule."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from eagerdecomp.cli.commands.command import Command, backend_of, output_file, rules_of
from eagerdecomp.cli.commands.scripts import print_last, script_of, watched_exit, with_ending
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.run_script import run_script
from eagerdecomp.ops.opset_file import op_set_from

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.insight.blame_mode import BlameMode
    from eagerdecomp.verify.reproducer import named_by_spec

    script = script_of(args, "blame")
    if args.backend and args.ops:
        raise UsageError("--backend and --ops exclude each other: pass one of them")
    backend = backend_of("--backend", args.backend) if args.backend else op_set_from(args.ops or "core")
    rules, one = rules_of(args.rules) if args.rules else ((), False)
    named = named_by_spec(args.backend or "", args.rules or "", ops=args.ops or "core")
    named = replace(named, rules=f"[{named.rules}]") if one else named
    watch = BlameMode(backend, rules=rules, every=args.all, on_unsupported=args.on_unsupported, named=named)
    with output_file("--json", args.json) as write, output_file("--reproducer", args.reproducer) as write_script:
        beside = Path(args.reproducer).absolute().with_suffix(".pt") if args.reproducer else None  # the script may change folders
        outcome = run_script(script, watch.watching, full_trace=args.full_trace)
        if outcome.in_child:
            return outcome.exit_code
        report = watch.report()
        if args.json != "-":
            print_last(with_ending(report.text(scripts=beside is None), outcome, found=bool(report)))
        write(json.dumps({"script": script.name, "exit_code": outcome.exit_code, **report.as_dict()}, indent=2) + "\n")
        if report and beside is not None:
            write_script(report.found[0].reproducer)
            if report.found[0].data:
                beside.write_bytes(report.found[0].data)
    return watched_exit(outcome, found=bool(report), compared=bool(report.compared) and not report.inside)


COMMAND = Command("blame", _run)
