"""The command line: run a command, print its errors, and return its exit code."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import NoReturn

from eagerdecomp._version import __version__
from eagerdecomp.cli.commands import COMMANDS
from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.cli.commands.command import FAILED, INTERRUPTED, Command
from eagerdecomp.cli.front import handle_without_command, top_parser
from eagerdecomp.errors import ArgumentError, EagerDecompError, OpSetError, PlanError
from eagerdecomp.host.import_path import USAGE_ERROR, UsageError
from eagerdecomp.host.run_script import ScriptNotFound

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line, and return its exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    if not all(map(_is_word, words)):
        print("eagerdecomp: an argument contains a NUL or an invalid character. Remove it", file=sys.stderr)
        return USAGE_ERROR
    if (done := handle_without_command(words, __version__)) is not None:
        return done
    named = {command.name: command for command in COMMANDS}[words[0]]
    own = 1 + named.own_words(words[1:])
    args, unknown = _parser().parse_known_args(words[:own])
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.words, args.script_words = words[1:own], words[own:]
    args.rest = words[own + (words[own : own + 1] == ["--"]) :]
    command: Command = args.command
    try:
        return command.run(args)
    except (ArgumentError, OpSetError, PlanError, ScriptNotFound) as error:
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


class _Parser(argparse.ArgumentParser):
    """An argument parser that escapes line breaks and control characters in its errors."""

    def error(self, message: str) -> NoReturn:
        super().error(_escaped(message))


def _is_word(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False


def _report(command: Command, error: Exception, words: Sequence[str]) -> None:
    said = str(error)
    for word in words:
        for part in (word, *word.split(":"), *word.split(",")):  # messages quote the whole word or a part
            if not part.isprintable():
                said = said.replace(part, _escaped(part))
    lines = [_escaped(line) for line in said.split("\n")]
    print(painted("\n".join([f"eagerdecomp {command.name}: {lines[0]}", *lines[1:]]), sys.stderr), file=sys.stderr)


def _escaped(text: str) -> str:
    """Return the text with line breaks and control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def _parser() -> argparse.ArgumentParser:
    parser = top_parser(__version__, _Parser)
    raw = argparse.RawDescriptionHelpFormatter
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        sub = commands.add_parser(
            command.name,
            help=command.help,
            description=command.help,
            epilog=command.epilog,
            formatter_class=raw,
            allow_abbrev=False,
        )
        command.configure(sub)
        sub.set_defaults(command=command, parser=sub)
    return parser
