"""The part of the command line that needs no torch: the list of commands, the version, help, and errors for an unknown command.

The console script loads this file by its path, because an import of the package imports torch, which takes seconds. So this file
imports nothing of the package.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from collections.abc import Sequence

__all__ = ["EXIT_CODES", "SUMMARIES", "handle_without_command", "top_parser"]

#: A line of help for each command, in the order of the help.
SUMMARIES = {
    "demo": "train a small transformer in the mode and in plain eager, and compare the two",
    "run": "run a script, with every op decomposed to an op set",
    "report": "write an HTML page about a recorded run: ops, kernels, time, cache misses",
    "explain": "show how one call is decomposed: rules tried, kernels, program",
    "plan": "list what each op decomposes into on a set, and which kernels to write next",
    "trace": "print the ops of a model that reach the backend, forward and backward, as a graph",
    "blame": "find the first op of a script that differs from eager, and the wrong kernel or rule",
    "compare": "run a script on two backends, and report what differs",
    "conformance": "test the kernels of a backend against eager, and list which to write next",
    "opset": "print the ops of a set, one per line",
    "bench": "measure the cost of the mode, or of a backend's kernels (only in a checkout)",
    "new-backend": "create a project for a new backend: kernels, tests, CI",
}

EXIT_CODES = """exit codes: 0 success; 2 wrong command line, op file or script name;
130 interrupted (Ctrl-C)"""


def top_parser(version: str, kind: type[argparse.ArgumentParser] = argparse.ArgumentParser) -> argparse.ArgumentParser:
    """Return the parser of the options before the command."""
    parser = kind(
        prog="eagerdecomp", description="Run eager PyTorch on a small set of operators.", epilog=EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"eagerdecomp {version}")
    return parser


def handle_without_command(words: Sequence[str], version: str) -> int | None:
    """Print help, the version, or an error for an unknown command, and return the exit code. Return None if there is a command."""
    if words and words[0] in SUMMARIES:
        return None
    if words and not words[0].startswith("-") and words[0].isprintable():
        close = difflib.get_close_matches(words[0], SUMMARIES, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        print(f"eagerdecomp: there is no command {words[0]!r}.{hint} Commands: {', '.join(SUMMARIES)}.", file=sys.stderr)
        return 2
    parser = top_parser(version)
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, summary in SUMMARIES.items():
        commands.add_parser(name, help=summary)
    if not words:
        parser.print_help()
        return 0
    try:
        parser.parse_args(words)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else 2
    return None
