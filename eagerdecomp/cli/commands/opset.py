"""The command ``eagerdecomp opset``."""

from __future__ import annotations

import argparse
import json

from eagerdecomp.cli.commands.command import Command, output_file, set_from, shown

__all__ = ["COMMAND"]


def _run(args: argparse.Namespace) -> int:
    ops = set_from(args.ops, "")
    with output_file("--json", args.json) as write:
        shown(args)("\n".join([f"# {ops!r}", *map(str, ops)]))
        write(json.dumps({"op_set": repr(ops), "ops": list(map(str, ops))}, indent=2) + "\n")
    return 0


COMMAND = Command("opset", _run)
