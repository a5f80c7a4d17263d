"""The command ``eagerdecomp demo``."""

from __future__ import annotations

import argparse
import json
import sys

from eagerdecomp.cli.commands.command import (
    EXIT_CODES,
    INTERRUPTED,
    Command,
    add_json,
    add_ops,
    output_file,
    positive,
    set_from,
    shown,
)
from eagerdecomp.cli.run_table import summary_json, summary_table
from eagerdecomp.host.terminal import columns

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--steps", type=positive, default=300, metavar="N", help="training steps (default %(default)s)")
    parser.add_argument("--seed", type=int, default=0, metavar="S", help="random seed (default %(default)s)")
    add_ops(parser)
    add_json(parser, "the table")


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.cli.demo import Demo

    ops = set_from(args.ops)
    with output_file("--json", args.json) as write:
        demo = Demo(ops, steps=args.steps, seed=args.seed)
        interrupted = False
        try:
            demo.train(sys.stderr if args.json == "-" else sys.stdout)
        except KeyboardInterrupt:
            if not demo.started:
                raise
            interrupted = True
        facts = demo.facts()
        shown(args)(summary_table(facts, columns()))
        write(json.dumps(summary_json(facts), indent=2) + "\n")
    return INTERRUPTED if interrupted else 0


_EPILOG = f"""examples:
  eagerdecomp demo                             a minute or so; Ctrl-C ends it early and still prints the table
  eagerdecomp demo --steps 20 --ops prims

{EXIT_CODES}"""

COMMAND = Command("demo", _configure, _run, _EPILOG)
