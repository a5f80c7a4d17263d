"""The command line: arguments in, an exit code out, errors in a line or two."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from eagerdecomp.commands import COMMANDS
from eagerdecomp.commands.colour import painted
from eagerdecomp.commands.command import EXIT_CODES, FAILED, INTERRUPTED, USAGE_ERROR, Command, UsageError
from eagerdecomp.errors import EagerDecompError, OpSetError, PlanError
from eagerdecomp.runscript import ScriptNotFound

__all__ = ["COMMANDS", "main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run a command line; the exit code."""
    words = list(sys.argv[1:] if argv is None else argv)
    named = {command.name: command for command in COMMANDS}.get(words[0]) if words else None
    own = 1 + named.own_words(words[1:]) if named else len(words)
    args, unknown = _parser().parse_known_args(words[:own])
    if unknown:
        args.parser.error(f"unrecognized arguments: {' '.join(unknown)}")
    args.rest = words[own + (words[own : own + 1] == ["--"]) :]
    command: Command = args.command
    try:
        return command.run(args)
    except (UsageError, OpSetError, PlanError, ScriptNotFound) as error:
        _tell(command, error)
        return error.exit_code if isinstance(error, UsageError) else USAGE_ERROR
    except EagerDecompError as error:
        _tell(command, error)
        return FAILED
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return INTERRUPTED


def _tell(command: Command, error: Exception) -> None:
    print(painted(f"eagerdecomp {command.name}: {error}", sys.stderr), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="eagerdecomp", description="Run eager PyTorch on a small set of operators.", epilog=EXIT_CODES, allow_abbrev=False
    )
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
