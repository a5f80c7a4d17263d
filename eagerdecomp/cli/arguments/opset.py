"""The arguments of ``eagerdecomp opset``."""

from __future__ import annotations

import argparse

from .shared import EXIT_CODES, add_json

__all__ = ["EPILOG", "configure"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "ops",
        nargs="?",
        default="core",
        metavar="SET",
        help="the op set: core, prims, infra, tiny, a FILE of op names, or MODULE:NAME of a Backend or OpSet (default %(default)s)",
    )
    add_json(parser, "the set")


EPILOG = f"""examples:
  eagerdecomp opset                            Core ATen and infra, one op per line
  eagerdecomp opset prims --json prims.json
  eagerdecomp opset core > my_ops.txt          edit the file, then pass --ops my_ops.txt

{EXIT_CODES}"""
