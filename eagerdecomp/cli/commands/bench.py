"""The command ``eagerdecomp bench``."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from eagerdecomp.bench import suite
from eagerdecomp.cli.commands.command import EXIT_CODES, Command, add_json, output_file, shown
from eagerdecomp.host.import_path import UsageError

__all__ = ["COMMAND"]


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", metavar="NAMES", help="some measurements, by comma: ops, kernels, models, ... (default: all)")
    parser.add_argument("--quick", action="store_true", help="a small part of everything, in under a minute")
    add_json(parser, "every single result")
    parser.add_argument("--svg", metavar="FILE", help="draw the ratios there")


_EPILOG = f"""examples:
  eagerdecomp bench --json ratios.json --svg ratios.svg
  eagerdecomp bench --quick --only ops,models

measurements: {", ".join(suite.SECTIONS)}

It prints Markdown: for each measurement what was done, a table of ratios with their quartiles, and the worst
cases. A full run takes some minutes.

{EXIT_CODES}"""


def _run(args: argparse.Namespace) -> int:
    names = args.only.split(",") if args.only else list(suite.SECTIONS)
    unknown = [name for name in names if name not in suite.SECTIONS]
    if unknown:
        raise UsageError(f"--only {','.join(unknown)}: choose from {', '.join(suite.SECTIONS)}")
    settings = suite.QUICK if args.quick else suite.FULL
    with output_file("--json", args.json) as write_json, output_file("--svg", args.svg) as write_svg, _told_on_terminal() as tell:
        sections = suite.run(names, settings, tell)
        tell("")
        shown(args)(suite.told(sections))
        write_json(json.dumps(suite.told_json(sections, settings), indent=1) + "\n")
        write_svg(suite.drawn(sections))
    return 0


@contextmanager
def _told_on_terminal() -> Iterator[Callable[[str], None]]:
    """A function that shows what is under way in one line of stderr that renews itself; nothing where that is no terminal."""
    if not sys.stderr.isatty():
        yield lambda text: None
        return
    try:
        yield lambda text: print(f"\r\x1b[K{text}", end="", file=sys.stderr, flush=True)
    finally:
        print("\r\x1b[K", end="", file=sys.stderr, flush=True)


COMMAND = Command("bench", "measure what the mode costs, on this machine", _configure, _run, _EPILOG)
