"""The command ``eagerdecomp opset``."""

from __future__ import annotations

import argparse
import json

from eagerdecomp.cli.commands.command import EXIT_CODES, Command, add_json, output_file, set_from, shown

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ops",
        nargs="?",
        default="core",
        metavar="SET",
        help="the op set: core, prims, infra, tiny, a FILE of op names, or MODULE:NAME of a Backend or OpSet (default %(default)s)",
    )
    add_json(parser, "the set")


_EPILOG = f"""examples:
  eagerdecomp opset                            Core ATen and infra, one op per line
  eagerdecomp opset prims --json prims.json
  eagerdecomp opset core > my_ops.txt          edit the file, then pass --ops my_ops.txt

{EXIT_CODES}"""


def _run(args: argparse.Namespace) -> int:
    ops = set_from(args.ops, "")
    with output_file("--json", args.json) as write:
        shown(args)("\n".join([f"# {ops!r}", *map(str, ops)]))
        write(json.dumps({"op_set": repr(ops), "ops": list(map(str, ops))}, indent=2) + "\n")
    return 0


COMMAND = Command("opset", _configure, _run, _EPILOG)
