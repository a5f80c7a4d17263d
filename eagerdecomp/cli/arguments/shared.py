"""Options and exit codes that several commands share."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import Any

__all__ = [
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "NOTHING_EXERCISED",
    "NOT_COMPARED",
    "SCRIPT_FAILED",
    "SETS",
    "USAGE_ERROR",
    "add_device",
    "add_import",
    "add_json",
    "add_keep",
    "add_on_unsupported",
    "add_ops",
    "add_rules",
    "add_script",
    "positive",
]

FAILED = 1
USAGE_ERROR = 2
INTERRUPTED = 130

# Exit codes of `blame` and `compare` if nothing was found: the script ended with an error, or no call was compared.
SCRIPT_FAILED = 3
NOT_COMPARED = 4

# Exit code of `conformance` if no kernel was exercised.
NOTHING_EXERCISED = 4

EXIT_CODES = """exit codes: 0 success; 2 wrong command line, op file or script name;
130 interrupted (Ctrl-C)"""

#: The names of op sets, for help texts and completion.
SETS = ("core", "prims", "infra", "tiny")


class _Named(argparse.Action):
    """Stores the value, and the option as it was written, for errors: ``args.ops_option``. Refuses a second value."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: str | Sequence[Any] | None,
        option: str | None = None,
    ) -> None:
        first = getattr(namespace, f"{self.dest}_option")
        if first:
            raise argparse.ArgumentError(self, f"{first} {getattr(namespace, self.dest)} and {option} {values}: pass one of them")
        setattr(namespace, self.dest, values)
        setattr(namespace, f"{self.dest}_option", option)


def add_ops(
    parser: argparse.ArgumentParser, what: str = "the op set", default: str | None = "core", without: str = "%(default)s"
) -> None:
    """Add the option ``--ops``, also named ``--backend``. `set_from` and `backend_from` read it."""
    parser.add_argument(
        "--ops",
        "--backend",
        action=_Named,
        dest="ops",
        default=default,
        metavar="SET",
        help=f"{what}: {', '.join(SETS)}, a FILE of op names, or MODULE:NAME of a Backend or OpSet (default {without})",
    )
    parser.set_defaults(ops_option="")


def add_device(parser: argparse.ArgumentParser, instead: str) -> None:
    """Add the options ``--device`` and ``--import``, which `device_backend` reads; `instead` names what the device replaces."""
    parser.add_argument(
        "--device", metavar="TYPE", help=f"instead of {instead}: the ops for which this device has kernels of its own"
    )
    add_import(parser)


def add_import(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--import``."""
    parser.add_argument(
        "--import",
        dest="imports",
        action="append",
        default=[],
        metavar="MODULE",
        help="import this first, such as a device's package",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--rules``, which `rules_of` reads."""
    parser.add_argument("--rules", metavar="MODULE:NAME", help="your own rules: a Rule, or a list of them")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """Add the option ``--keep``, which `kept_ops` reads."""
    parser.add_argument(
        "--keep", metavar="OPS", help="composite ops that are not decomposed, separated by commas: aten.linear,aten.layer_norm"
    )


def add_json(parser: argparse.ArgumentParser, what: str, *, bare: bool = False) -> None:
    """Add the option ``--json``; `what` names its content in the help. If `bare`, it may stand without a file, and prints."""
    text = f"also write {what} to FILE as JSON (-: print the JSON instead of the text)"
    if bare:
        parser.add_argument("--json", metavar="FILE", help=text, nargs="?", const="-")
    else:
        parser.add_argument("--json", metavar="FILE", help=text)


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


def positive(text: str) -> int:
    """Return the integer of an argument that must be at least 1, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not an integer from 1 up")
    return int(text)
