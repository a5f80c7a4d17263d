"""The command line: run a command, print its errors, and return its exit code."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from eagerdecomp._version import __version__
from eagerdecomp.cli.arguments import escaped, parse
from eagerdecomp.cli.arguments.shared import FAILED, INTERRUPTED, USAGE_ERROR
from eagerdecomp.cli.commands import COMMANDS
from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.cli.commands.command import Command
from eagerdecomp.errors import ArgumentError, EagerDecompError, FileError, OpSetError, naming_set
from eagerdecomp.host.import_path import UsageError
from eagerdecomp.host.run_script import ScriptNotFound

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    args = parse(words, __version__)
    if isinstance(args, int):
        return args
    command = next(command for command in COMMANDS if command.name == args.command)
    try:
        with naming_set(_set_of(args)):
            return command.run(args)
    except (ArgumentError, OpSetError, FileError, ScriptNotFound) as error:
        _report(command, error, words)
        exit_code = error.exit_code if isinstance(error, UsageError) else USAGE_ERROR
        if exit_code == USAGE_ERROR and "\n" not in str(error):  # a longer message lists each fault with its line
            print(f"  see more: eagerdecomp {command.name} --help", file=sys.stderr)
        return exit_code
    except EagerDecompError as error:
        _report(command, error, words)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _set_of(args: argparse.Namespace) -> str:
    """Return the op set or backend that the command line names, and "" if it names none."""
    if args.command == "compare":  # it names two
        return ""
    spec = getattr(args, "backend", None) or getattr(args, "ops", None)
    return spec if isinstance(spec, str) else ""


def _report(command: Command, error: Exception, words: Sequence[str]) -> None:
    said = str(error)
    for word in words:
        for part in (word, *word.split(":"), *word.split(",")):  # messages quote the whole word or a part
            if not part.isprintable():
                said = said.replace(part, escaped(part))
    lines = [escaped(line) for line in said.split("\n")]
    print(painted("\n".join([f"eagerdecomp {command.name}: {lines[0]}", *lines[1:]]), sys.stderr), file=sys.stderr)
