"""The arguments and the help of every command. This package imports neither torch nor any other part of the library.

The console script loads it by its path, because an import of the library imports torch, which takes seconds. So its modules import
each other by relative names.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NoReturn

from . import (
    bench,
    blame,
    compare,
    completion,
    conformance,
    demo,
    diff,
    explain,
    new_backend,
    opset,
    plan,
    record,
    report,
    run,
    scorecard,
    trace,
)
from .shared import EXIT_CODES, USAGE_ERROR

__all__ = ["DECLARED", "CommandArguments", "completion_script", "escaped", "own_words", "parse", "parser_of"]


@dataclass(frozen=True)
class CommandArguments:
    """The arguments of a command.

    Attributes:
        help: a line of help.
        configure: adds the arguments to a parser.
        epilog: the end of the help: examples, exit codes.
        rest: the words after which ``args.rest`` begins: "" if all words belong to the command, "script" if a script and its
            arguments follow the command's options, "all" if no word belongs to the command.
    """

    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    epilog: str = ""
    rest: str = ""


#: Command -> its arguments, in the order of the help.
DECLARED = {
    "demo": CommandArguments(
        "train a small transformer in the mode and in plain eager, and compare the two", demo.configure, demo.EPILOG
    ),
    "run": CommandArguments("run a script, with every op decomposed to an op set", run.configure, run.EPILOG, "script"),
    "report": CommandArguments(
        "write an HTML page about a recorded run: ops, kernels, time, cache misses", report.configure, report.EPILOG
    ),
    "explain": CommandArguments(
        "show how one call is decomposed: rules tried, kernels, program", explain.configure, explain.EPILOG
    ),
    "plan": CommandArguments(
        "list what each op decomposes into on a set, and which kernels to write next", plan.configure, plan.EPILOG
    ),
    "trace": CommandArguments(
        "print the ops of a model that reach the backend, forward and backward, as a graph", trace.configure, trace.EPILOG
    ),
    "blame": CommandArguments(
        "find the first op of a script that differs from eager, and the wrong kernel or rule",
        blame.configure,
        blame.EPILOG,
        "script",
    ),
    "compare": CommandArguments(
        "run a script on two backends, and report what differs", compare.configure, compare.EPILOG, "script"
    ),
    "record": CommandArguments(
        "run a script and record the values of each call, to compare two runs with diff", record.configure, record.EPILOG, "script"
    ),
    "diff": CommandArguments("find the first call that differs between two recorded runs", diff.configure, diff.EPILOG),
    "conformance": CommandArguments(
        "test the kernels of a backend against eager, and list which to write next", conformance.configure, conformance.EPILOG
    ),
    "scorecard": CommandArguments(
        "score a backend: kernels, overloads, OpInfos and models that work, and the change since last time",
        scorecard.configure,
        scorecard.EPILOG,
    ),
    "opset": CommandArguments("print the ops of a set, one per line", opset.configure, opset.EPILOG),
    "bench": CommandArguments(
        "measure the cost of the mode, or of a backend's kernels (only in a checkout)", bench.configure, rest="all"
    ),
    "new-backend": CommandArguments(
        "create a project for a new backend: kernels, tests, CI", new_backend.configure, new_backend.EPILOG
    ),
    "completion": CommandArguments(
        "print a script that completes commands and options in a shell", completion.configure, completion.EPILOG
    ),
}


def parse(words: Sequence[str], version: str) -> argparse.Namespace | int:
    """Return the parsed arguments of a command, or the exit code if there is no more to do: help, the version, a completion script.

    The command's name is ``args.command``.

    Raises:
        SystemExit: after the help of a command, and for wrong arguments.
    """
    if not all(map(_is_word, words)):
        print("eagerdecomp: an argument contains a NUL or an invalid character. Remove it", file=sys.stderr)
        return USAGE_ERROR
    if not words or words[0] not in DECLARED:
        return _without_command(words, version)
    name, declared = words[0], DECLARED[words[0]]
    parser = parser_of(name)
    own = 1 + own_words(name, words[1:])
    args, unknown = parser.parse_known_args(words[1:own])
    if unknown:
        options = [option for action in parser._actions for option in action.option_strings]
        close = difflib.get_close_matches(unknown[0].partition("=")[0], options, n=1)
        parser.error(f"unrecognized arguments: {' '.join(unknown)}{f'. Did you mean {close[0]}?' if close else ''}")
    if declared.configure is completion.configure:
        print(completion_script(args.shell), end="")
        return 0
    args.command, args.words, args.script_words = name, list(words[1:own]), list(words[own:])
    args.rest = args.script_words[args.script_words[:1] == ["--"] :]
    return args


def completion_script(shell: str) -> str:
    """Return the script with which a shell completes the commands and their arguments."""
    commands = {name: completion.Described(one.help, parser_of(name), bool(one.rest)) for name, one in DECLARED.items()}
    return completion.script(shell, commands)


def parser_of(name: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    declared = DECLARED[name]
    parser = _Parser(
        prog=f"eagerdecomp {name}",
        description=declared.help,
        epilog=declared.epilog,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    declared.configure(parser)
    return parser


def own_words(name: str, words: Sequence[str]) -> int:
    """Return how many words after the command's name belong to the command. The others are a script and its arguments.

    argparse cannot do this: it drops a ``--`` that belongs to the script.
    """
    rest = DECLARED[name].rest
    if rest != "script":
        return 0 if rest else len(words)
    values = {option for action in parser_of(name)._actions if action.nargs != 0 for option in action.option_strings}
    position = 0
    while position < len(words) and words[position].startswith("-") and words[position] not in ("-m", "--"):
        position += 2 if words[position] in values else 1
    return min(position + (list(words[position : position + 1]) == ["-m"]), len(words))


def escaped(text: str) -> str:
    """Return the text with line breaks and control characters escaped."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


class _Parser(argparse.ArgumentParser):
    """An argument parser that escapes line breaks and control characters in its errors."""

    def error(self, message: str) -> NoReturn:
        super().error(escaped(message))


def _without_command(words: Sequence[str], version: str) -> int:
    """Print help, the version, or an error for an unknown command, and return the exit code."""
    if words and not words[0].startswith("-") and words[0].isprintable():
        close = difflib.get_close_matches(words[0], DECLARED, n=3, cutoff=0.5)
        hint = f" Did you mean {' or '.join(close)}?" if close else ""
        print(f"eagerdecomp: there is no command {words[0]!r}.{hint} Commands: {', '.join(DECLARED)}.", file=sys.stderr)
        return USAGE_ERROR
    parser = _Parser(
        prog="eagerdecomp", description="Run eager PyTorch on a small set of operators.", epilog=EXIT_CODES, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"eagerdecomp {version}")
    commands = parser.add_subparsers(metavar="COMMAND")
    for name, declared in DECLARED.items():
        commands.add_parser(name, help=declared.help)
    if not words:
        parser.print_help()
        return 0
    try:
        parser.parse_args(words)
    except SystemExit as done:
        return done.code if isinstance(done.code, int) else USAGE_ERROR
    return USAGE_ERROR


def _is_word(word: str) -> bool:
    try:
        return b"\0" not in os.fsencode(word)
    except UnicodeEncodeError:
        return False
