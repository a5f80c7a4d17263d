"""Shared code of the commands that run a script: its arguments, the text after its output, and the exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence

from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.cli.commands.command import FAILED, INTERRUPTED
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.run_script import Outcome, Script

__all__ = [
    "NOT_COMPARED",
    "SCRIPT_FAILED",
    "add_on_unsupported",
    "add_script",
    "own_words",
    "print_last",
    "script_of",
    "watched_exit",
    "with_ending",
]

# Exit codes of `blame` and `compare` if nothing was found: the script ended with an error, or no call was compared.
SCRIPT_FAILED = 3
NOT_COMPARED = 4


def add_script(parser: argparse.ArgumentParser, command: str) -> None:
    """Add the script to a command's usage, and the options ``-m`` and ``--full-trace``."""
    usage = f"eagerdecomp {command} [options]"
    parser.usage = f"{usage} SCRIPT [ARGS ...]\n       {usage} -m MODULE [ARGS ...]"
    parser.add_argument("--full-trace", action="store_true", help="show this library's frames in tracebacks of the script")
    parser.add_argument("-m", dest="module", action="store_true", help="run a module instead of a script, as python -m does")


def add_on_unsupported(parser: argparse.ArgumentParser, what: str) -> None:
    """Add the option ``--on-unsupported``; `what` is the end of its help text."""
    parser.add_argument(
        "--on-unsupported",
        choices=("error", "fallback"),
        default="error",
        help=f"an op that cannot be decomposed {what} (default %(default)s)",
    )


def own_words(values: frozenset[str]) -> Callable[[Sequence[str]], int]:
    """Return a function that counts the words of a command line that belong to the command, not to the script.

    argparse cannot do this: it drops a ``--`` that belongs to the script. `values` are the options that have a value.
    """

    def count(argv: Sequence[str]) -> int:
        position = 0
        while position < len(argv) and argv[position].startswith("-") and argv[position] not in ("-m", "--"):
            position += 2 if argv[position] in values else 1
        return min(position + (argv[position : position + 1] == ["-m"]), len(argv))

    return count


def script_of(args: argparse.Namespace, command: str) -> Script:
    """Return the script that a command line names.

    Raises:
        UsageError: if it names no script.
    """
    if not args.rest:
        raise UsageError("-m needs the name of a module" if args.module else "no script is named: pass its path, or -m MODULE")
    return Script(args.rest[0], tuple(args.rest[1:]), is_module=args.module)


def watched_exit(outcome: Outcome, *, found: bool, compared: bool) -> int:
    """Return the exit code of a command that compared a script's calls."""
    if outcome.interrupted:
        return INTERRUPTED
    if found:
        return FAILED
    if outcome.exit_code:
        return SCRIPT_FAILED
    return 0 if compared else NOT_COMPARED


def with_ending(text: str, outcome: Outcome, *, found: bool) -> str:
    """Return the report, followed by a line if the script failed: "no difference" alone would look like success."""
    if found or not outcome.exit_code:
        return text
    ended = f"the script ended with exit code {outcome.exit_code}: what it would have called after that was not compared"
    return f"{text.rstrip()}\n{ended}"


def print_last(text: str) -> None:
    """Print to the original stdout of the process, because the script may have replaced or closed it."""
    for stream in (sys.stdout, sys.__stdout__):
        try:
            if stream is not None:
                stream.flush()
        except (OSError, ValueError):
            continue
    try:
        if sys.__stdout__ is not None:
            print(painted(text, sys.__stdout__), file=sys.__stdout__, flush=True)
    except (OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
