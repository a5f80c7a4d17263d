"""The arguments of ``eagerdecomp report``."""

from __future__ import annotations

import argparse

from .shared import add_json

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("record", metavar="RECORD", help="a file that eagerdecomp run --record wrote")
    parser.add_argument("--html", metavar="FILE", help="where to write the page (default: the name of the record with .html)")
    add_json(parser, "a summary")


EPILOG = """examples:
  eagerdecomp run --record run.json train.py         write the record
  eagerdecomp report run.json                        write run.html, and print a summary
  eagerdecomp report run.json --html /tmp/slow.html
  eagerdecomp report run.json --json - | jq '.ops[:3]'

The page is one file and needs no network. It shows which ops were called and which kernels they became, time and calls
by op and by source line, cache hits and misses over time, and the reason of each miss. For ops that could not be
decomposed it lists the missing kernels. With --json and without --html, no page is written.

exit codes: 0 success; 2 wrong command line or record, or a file cannot be written; 130 interrupted (Ctrl-C)"""
