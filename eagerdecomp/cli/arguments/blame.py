"""The arguments of ``eagerdecomp blame``."""

from __future__ import annotations

import argparse

from .shared import (
    FAILED,
    INTERRUPTED,
    NOT_COMPARED,
    SCRIPT_FAILED,
    SETS,
    USAGE_ERROR,
    add_json,
    add_on_unsupported,
    add_rules,
    add_script,
)

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--backend", metavar="MODULE:NAME", help="the Backend to check: its kernels, and the rules that decompose to its set"
    )
    names = ", ".join(SETS)
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


EPILOG = f"""examples:
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
