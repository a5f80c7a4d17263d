"""The arguments of ``eagerdecomp diff``."""

from __future__ import annotations

import argparse

from .shared import FAILED, INTERRUPTED, NOT_COMPARED, USAGE_ERROR, add_json

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("first", metavar="RUN_A", help="the folder of the run that is right, or of one of its ranks")
    parser.add_argument("second", metavar="RUN_B", help="the folder of the run to compare with it")
    parser.add_argument(
        "--noise",
        metavar="RUN_A2",
        help="a second run of RUN_A's program on its machine: what differs between the two is allowed in RUN_B too",
    )
    parser.add_argument("--html", metavar="FILE", help="write a page with a chart of the distance over the calls to FILE")
    parser.add_argument(
        "--reproduce",
        metavar="FILE",
        help="if the first wrong call was saved in RUN_A: write a script to FILE that makes this call and compares its result",
    )
    add_json(parser, "the differences")


EPILOG = f"""examples:
  eagerdecomp record --values run_cpu train.py
  eagerdecomp record --values run_mine --backend my:backend train.py
  eagerdecomp diff run_cpu run_mine
  eagerdecomp diff run_cpu run_mine --noise run_cpu_again --html page.html
  eagerdecomp diff run/rank0 run/rank1                         two ranks of one run

The calls of the two runs are aligned; calls may be missing, repeated or in another order. The result is the first call
whose inputs agree and whose outputs differ by more than rounding explains, and the first such call in each module after
it. If random numbers differ, they are named as the cause.

exit codes: 0 no call differs; {FAILED} a call differs; {USAGE_ERROR} wrong command line, or a folder holds no run or a
damaged one; {NOT_COMPARED} no call has a partner in the other run, or none differs and a run has no end;
{INTERRUPTED} interrupted (Ctrl-C)"""
