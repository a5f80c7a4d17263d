"""The command ``eagerdecomp compare``: run a script on two backends, and report which ops differ, and by how much."""

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
    what = "MODULE:NAME of a Backend or OpSet, a set that runs torch's own kernels (core, or a FILE of op names), or native"
    parser.add_argument(
        "--backend", metavar="A", default="native", help=f"{what} (default %(default)s); the script continues with its results"
    )
    parser.add_argument("--against", metavar="B", required=True, help="the other backend, written in the same way")
    add_rules(parser)
    add_on_unsupported(parser, "to a set: raise an error, or run torch's own kernel")
    parser.add_argument("--markdown", metavar="FILE", help="write the findings to FILE as Markdown")
    add_json(parser, "the findings")
    add_script(parser, "compare")


_OPTIONS_WITH_VALUE = frozenset({"--backend", "--against", "--rules", "--on-unsupported", "--markdown", "--json"})

_EPILOG = f"""examples:
  eagerdecomp compare --against my_backend:backend train.py --epochs 1           compare plain eager with a backend
  eagerdecomp compare --backend my:old --against my:new --json found.json train.py
  eagerdecomp compare --backend core --against prims --markdown ulps.md -m package.train

Each op of the script runs on both backends with the same inputs, so differences do not accumulate. The script continues
with the results of --backend. The report lists the ops that differ by more than rounding, in the order of their calls:
the source line, and which backend differs from native eager. For each op and dtype it also shows how many ULPs the
values are apart. Values of random ops are not compared.

exit codes: 0 no op differs; {FAILED} an op differs; {USAGE_ERROR} wrong command line, backend, rules, op file or script
name; {SCRIPT_FAILED} no op differs, but the script ended with an error; {NOT_COMPARED} no call was compared;
{INTERRUPTED} interrupted (Ctrl-C)"""


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


COMMAND = Command("compare", _configure, _run, _EPILOG, own_words(_OPTIONS_WITH_VALUE))
