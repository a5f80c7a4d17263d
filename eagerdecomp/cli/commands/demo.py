"""The command ``eagerdecomp demo``."""

from __future__ import annotations

import argparse
import json
import sys

from eagerdecomp.cli.arguments.shared import INTERRUPTED
from eagerdecomp.cli.commands.command import Command, output_file, set_from, shown
from eagerdecomp.cli.run_table import summary_json, summary_table
from eagerdecomp.host.terminal import columns

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    from eagerdecomp.cli.demo import Demo

    ops = set_from(args.ops, args.ops_option)
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


COMMAND = Command("demo", _run)
