"""The command ``eagerdecomp compare``: a script run on two backends, side by side: which op diverges first, and how far all do."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from eagerdecomp.cli.commands.command import FAILED, INTERRUPTED, Command, add_json, add_rules, backend_from, output_file, rules_of
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
from eagerdecomp.host.progress import SoFar
from eagerdecomp.host.run_script import run_script

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    what = "a Backend or OpSet as MODULE:NAME, a set with torch's own kernels as for --ops (core, a FILE), or native"
    parser.add_argument(
        "--backend", metavar="A", default="native", help=f"{what} (default %(default)s); the script goes on with it"
    )
    parser.add_argument("--against", metavar="B", required=True, help="the other one, named likewise")
    add_rules(parser)
    add_on_unsupported(parser, "to a set: raise, or run it natively")
    parser.add_argument("--markdown", metavar="FILE", help="write what was found there as Markdown")
    add_json(parser, "what was found")
    add_script(parser, "compare")


_VALUES = frozenset({"--backend", "--against", "--rules", "--on-unsupported", "--markdown", "--json"})

_EPILOG = f"""examples:
  eagerdecomp compare --against my_backend:backend train.py --epochs 1           plain eager and a backend
  eagerdecomp compare --backend my:old --against my:new --json found.json train.py
  eagerdecomp compare --backend core --against prims --markdown ulps.md -m package.train

Every op of the script is made on both with the same inputs, so that differences do not add up; the script goes on with A's results.
It reports the ops that differ by more than rounding, the first one first, each with its line and with which of the two is not what
native eager gives, and for every op and dtype how many values are how many ULPs apart. Values of random ops are not compared.

exit codes: 0 nothing diverges; {FAILED} an op diverges; {USAGE_ERROR} the command line, a backend, the rules, an op file or the
script's name is wrong; {SCRIPT_FAILED} nothing diverges, but the script itself ended with an error; {NOT_COMPARED} no call was
compared; {INTERRUPTED} interrupted (Ctrl-C)"""


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.insight.compare_mode import Comparing

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
            print_last(with_ending(str(report), outcome, found=bool(report)))
        write(json.dumps({"script": script.name, "exit_code": outcome.exit_code, **report.as_dict()}, indent=2) + "\n")
        write_markdown(report.markdown())
    return watched_exit(outcome, found=bool(report), compared=bool(report.compared))


def _side(option: str, spec: str) -> Any:
    if spec == "native":
        return spec
    return backend_from(spec, option)


COMMAND = Command("compare", _configure, _run, _EPILOG, own_words(_VALUES))
