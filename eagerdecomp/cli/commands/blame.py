"""The command ``eagerdecomp blame``: find the first op of a script that differs from eager, and the wrong kernel or rule."""

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
    parser.add_argument(
        "--backend", metavar="MODULE:NAME", help="the Backend to check: its kernels, and the rules that decompose to its set"
    )
    names = ", ".join(NAMED_SETS)
    parser.add_argument(
        "--ops",
        metavar="SET",
        help=f"instead of --backend: a set that runs torch's own kernels: {names}, or a FILE of op names (default core)",
    )
    add_rules(parser)
    parser.add_argument("--all", action="store_true", help="run the script to its end, and report every op and line that differs")
    add_on_unsupported(parser, "to the set: raise an error, or run torch's own kernel")
    parser.add_argument("--reproducer", metavar="FILE", help="write to FILE a script that reproduces the first difference")
    add_json(parser, "the findings")
    add_script(parser, "blame")


_OPTIONS_WITH_VALUE = frozenset({"--backend", "--ops", "--rules", "--on-unsupported", "--reproducer", "--json"})

_EPILOG = f"""examples:
  eagerdecomp blame --backend my_backend:backend train.py --epochs 1     stop at the first op that differs from eager
  eagerdecomp blame --rules my_rules:RULES train.py                      check your own rules on Core ATen
  eagerdecomp blame --backend my_backend:backend --all --json found.json -m package.train
  eagerdecomp blame --backend my_backend:backend --reproducer wrong.py train.py; python wrong.py

Each op that is decomposed or has a kernel of the backend runs twice on the same inputs: on the backend and natively.
The results are compared: values (beyond rounding), NaN, dtype, shape, strides, views, and writes. At the first
difference the script stops. After its output, the command prints the op, its source line, the wrong kernel or rule, and
a script that reproduces the difference. Values of random ops are not compared. Calls inside an EagerDecompMode that the
script itself enters are not compared either. Expect several times the run time on the backend. No tensor is stored
longer than its call.

exit codes: 0 no difference; {FAILED} a difference; {USAGE_ERROR} wrong command line, backend, rules, op file or script name;
{SCRIPT_FAILED} no difference, but the script ended with an error;
{NOT_COMPARED} no difference, but no call was compared, or the script itself enters an EagerDecompMode;
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


COMMAND = Command("blame", _configure, _run, _EPILOG, own_words(_OPTIONS_WITH_VALUE))
