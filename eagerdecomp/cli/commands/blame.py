"""The command ``eagerdecomp blame``: which op of a script goes wrong on a backend first, and whose fault that is."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from pathlib import Path

from eagerdecomp.cli.commands.command import FAILED, INTERRUPTED, Command, add_json, add_rules, backend_of, output_file, rules_of
from eagerdecomp.cli.commands.scripts import (
    NOT_COMPARED,
    SCRIPT_FAILED,
    add_on_unsupported,
    add_script,
    own_words,
    print_last,
    script_of,
    watched_exit,
    with_ending,
)
from eagerdecomp.host.import_path import USAGE_ERROR, UsageError
from eagerdecomp.host.run_script import run_script
from eagerdecomp.ops.opset import NAMED_SETS
from eagerdecomp.ops.opset_file import op_set_from

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--backend", metavar="MODULE:NAME", help="the Backend whose kernels are judged, and the rules to its set")
    names = ", ".join(NAMED_SETS)
    parser.add_argument(
        "--ops", metavar="SET", help=f"in place of --backend, a set with torch's own kernels: {names}, or a FILE (default core)"
    )
    add_rules(parser)
    parser.add_argument("--all", action="store_true", help="go on to the script's end, and report every op and line that differs")
    add_on_unsupported(parser, "to the set: raise, or run it natively")
    parser.add_argument("--reproducer", metavar="FILE", help="write the script that shows the first difference there")
    add_json(parser, "what was found")
    add_script(parser, "blame")


_VALUES = frozenset({"--backend", "--ops", "--rules", "--on-unsupported", "--reproducer", "--json"})

_EPILOG = f"""examples:
  eagerdecomp blame --backend my_backend:backend train.py --epochs 1     up to the first op that is not eager's
  eagerdecomp blame --rules my_rules:RULES train.py                      rules of your own, to Core ATen
  eagerdecomp blame --backend my_backend:backend --all --json found.json -m package.train
  eagerdecomp blame --backend my_backend:backend --reproducer wrong.py train.py; python wrong.py

Every op of the script that runs more than torch's own kernel is run twice on the same inputs, by the backend and natively, and
what both leave behind is compared: values (within rounding), NaN, dtype, shape, strides, what is a view of what, what was written.
At the first difference the script is cut short; the op, its line, the kernel or rule to blame and a script that shows it by itself
are printed after the script's own output. Of ops that draw random numbers, values are not compared, nor is what an
EagerDecompMode that the script enters itself makes of its calls. It takes some times as long as on the backend alone; no tensor is
kept beyond its call.

exit codes: 0 no difference; {FAILED} a difference was found; {USAGE_ERROR} the command line, the backend, the rules, an op file or
the script's name is wrong; {SCRIPT_FAILED} no difference, but the script itself ended with an error;
{NOT_COMPARED} no difference, but no call was compared, or some came out of an EagerDecompMode that the script enters itself;
{INTERRUPTED} interrupted (Ctrl-C)"""


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


COMMAND = Command("blame", _configure, _run, _EPILOG, own_words(_VALUES))
