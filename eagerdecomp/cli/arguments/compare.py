"""The arguments of ``eagerdecomp compare``."""

from __future__ import annotations

import argparse

from .shared import (
    FAILED,
    INTERRUPTED,
    NOT_COMPARED,
    SCRIPT_FAILED,
    USAGE_ERROR,
    add_json,
    add_on_unsupported,
    add_rules,
    add_script,
)

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
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


EPILOG = f"""examples:
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
