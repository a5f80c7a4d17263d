"""Shared code of the commands that run a script: its arguments, the text after its output, and the exit code."""

from __future__ import annotations

import argparse
import sys

from eagerdecomp.cli.arguments import parser_of
from eagerdecomp.cli.arguments.shared import FAILED, INTERRUPTED, NOT_COMPARED, SCRIPT_FAILED
from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.outputs import flush_stdout
from eagerdecomp.host.run_script import Outcome, Script

__all__ = [
    "print_last",
    "script_of",
    "watched_exit",
    "with_ending",
]


def script_of(args: argparse.Namespace, command: str) -> Script:
    """Return the script that a command line names. Print a hint if the script gets an option that the command has too.

    Raises:
        UsageError: if it names no script.
    """
    if not args.rest:
        raise UsageError("-m needs the name of a module" if args.module else "no script is named: pass its path, or -m MODULE")
    script = Script(args.rest[0], tuple(args.rest[1:]), is_module=args.module)
    own = {option for action in parser_of(command)._actions for option in action.option_strings} - {"-h", "--help", "-m"}
    late = next((name for word in script.args if (name := word.partition("=")[0]) in own), "")
    if late and args.script_words[0] != "--":
        print(
            f"eagerdecomp {command}: {late} is passed to the script, because it comes after the script's name. Put options of "
            "eagerdecomp before the name. If the script has such an option, -- before the name turns this hint off",
            file=sys.stderr,
        )
    return script


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
    """Return the report, after a line that says so if the script failed: "no difference" alone would look like success."""
    if found or not outcome.exit_code:
        return text
    ended = f"the script ended with exit code {outcome.exit_code}: what it would have called after that was not compared"
    if isinstance(outcome.raised, UnsupportedOpError):
        ended += "; --on-unsupported fallback runs ops without a route natively, and goes on"
    return f"{ended}\n{text}"


def print_last(text: str) -> None:
    """Print to the original stdout of the process, because the script may have replaced or closed it."""
    flush_stdout()
    try:
        if sys.__stdout__ is not None:
            print(painted(text, sys.__stdout__), file=sys.__stdout__, flush=True)
    except (OSError, ValueError):
        print(text, file=sys.stderr, flush=True)
