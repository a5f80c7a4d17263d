"""The arguments of ``eagerdecomp demo``."""

from __future__ import annotations

import argparse

from .shared import EXIT_CODES, add_json, add_ops, positive

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=positive, default=300, metavar="N", help="training steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed (default %(default)s)")
    add_ops(parser)
    add_json(parser, "the table")


EPILOG = f"""examples:
  eagerdecomp demo                             a minute or so; Ctrl-C ends it early and still prints the table
  eagerdecomp demo --steps 20 --ops prims

{EXIT_CODES}"""
