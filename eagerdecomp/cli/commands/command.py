"""A command as a value, and what commands share: exit codes, usual options, files that are written, objects that are named."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.cli.front import EXIT_CODES, SUMMARIES
from eagerdecomp.errors import EagerDecompError, OpSetError
from eagerdecomp.host.atomic_file import check_writable, write_text
from eagerdecomp.host.import_path import UsageError, object_of
from eagerdecomp.host.source_lines import fault_in_words
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import NAMED_SETS, OpSet, resolve_ops
from eagerdecomp.ops.opset_file import op_set_from
from eagerdecomp.rules.rule import Rule

__all__ = [
    "Command",
    "EXIT_CODES",
    "FAILED",
    "INTERRUPTED",
    "add_json",
    "add_keep",
    "add_ops",
    "add_rules",
    "backend_from",
    "backend_of",
    "called",
    "kept_ops",
    "output_file",
    "positive",
    "print_whole",
    "rules_of",
    "set_from",
    "shown",
]

FAILED = 1
INTERRUPTED = 130


@dataclass(frozen=True)
class Command:
    """One command: its name, how to read its arguments, and what runs it. Its line of help is in `SUMMARIES`."""

    name: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    epilog: str = ""
    own_words: Callable[[Sequence[str]], int] = len
    """How many of the words behind the command's name are its own; the others it finds, untouched, in ``args.rest``."""

    @property
    def help(self) -> str:
        return SUMMARIES[self.name]


def print_whole(text: str) -> None:
    """Print a text, in colour on a terminal; a reader who stops reading early is no fault."""
    try:
        print(painted(text), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # whoever reads has read enough: `eagerdecomp opset core | head`
            raise UsageError(f"cannot write to stdout: {error.strerror}", FAILED) from None


def add_ops(parser: argparse.ArgumentParser) -> None:
    """The option ``--ops``, which `set_from` and `backend_from` read; a backend is more readily looked for as ``--backend``."""
    names = ", ".join(NAMED_SETS)
    parser.add_argument(
        "--ops",
        "--backend",
        dest="ops",
        default="core",
        metavar="SET",
        help=f"the op set: {names}, a FILE of op names, or MODULE:NAME of a Backend or OpSet (default %(default)s)",
    )


def add_rules(parser: argparse.ArgumentParser) -> None:
    """The option ``--rules``, which `rules_of` reads."""
    parser.add_argument("--rules", metavar="MODULE:NAME", help="your own rules: a Rule, or a list of them")


def add_keep(parser: argparse.ArgumentParser) -> None:
    """The option ``--keep``, which `kept_ops` reads."""
    parser.add_argument(
        "--keep", metavar="OPS", help="composite ops that are not decomposed, separated by commas: aten.linear,aten.layer_norm"
    )


def kept_ops(text: str | None) -> tuple[str, ...]:
    """The names that ``--keep`` gives, each an op.

    Raises:
        OpSetError: where some are none; all in one line, since they stand in one word.
    """
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    try:
        resolve_ops(names)
    except OpSetError as error:
        raise OpSetError(" ".join(str(error).split("\n"))) from None
    return names


def add_json(parser: argparse.ArgumentParser, what: str) -> None:
    """The option ``--json``, which every command that reports something has; `what` it writes."""
    parser.add_argument("--json", metavar="FILE", help=f"also write {what} to FILE as JSON (-: print the JSON instead of the text)")


def shown(args: argparse.Namespace) -> Callable[[str], None]:
    """Return the function that shows a command's text: `print_whole`, or a no-op where JSON goes to stdout."""
    return (lambda text: None) if args.json == "-" else print_whole


def positive(text: str) -> int:
    """A number from 1 on, as argparse asks for it."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 on")
    return int(text)


@contextmanager
def output_file(option: str, name: str | None) -> Iterator[Callable[[str], None]]:
    """A function that writes the file an option names, whole or not at all; ``-`` is stdout. A path that cannot be written is an
    error before the run, not after it."""
    if name is None:
        yield lambda text: None
        return
    if name == "-":
        yield lambda text: print_whole(text.rstrip("\n"))
        return
    target = Path(name).absolute()  # the script may change the working directory
    try:
        check_writable(target)
    except OSError as error:
        raise UsageError(f"{option} {name}: cannot write this file: {error.strerror}. Choose another path") from None

    def write(text: str) -> None:
        try:
            write_text(target, text)
        except OSError as error:
            raise UsageError(f"{option} {name}: cannot write this file: {error.strerror}. Choose another path", FAILED) from None

    yield write


def backend_of(option: str, spec: str) -> Backend | OpSet:
    """The backend or op set that ``--option module:name`` names.

    Raises:
        UsageError: where there is none, or it is something else.
    """
    found = object_of(option, spec)
    if not isinstance(found, (Backend, OpSet)):
        raise UsageError(f"{option} {spec}: expected an eagerdecomp.Backend or OpSet, found {found!r}")
    return found


def backend_from(spec: str, option: str = "--ops") -> Backend | OpSet:
    """Resolve an option that takes a set: a set's name, a file of ops, or ``module:name``.

    Raises:
        OpSetError: where there is no such file or set.
        UsageError: where there is no such backend.
    """
    return backend_of(option, spec) if ":" in spec and not os.path.exists(spec) else op_set_from(spec, option)


def set_from(spec: str, option: str = "--ops") -> OpSet:
    """The set of `backend_from`, with the predicates of a backend; `option` is "" for an argument without one."""
    found = backend_from(spec, option)
    return found.ops if isinstance(found, Backend) else found


def called(option: str, spec: str, factory: Callable[[], Any]) -> Any:
    """Call the function that ``--option module:name`` names and return its result.

    Raises:
        UsageError: where it raises; errors of the library's own pass.
    """
    try:
        return factory()
    except EagerDecompError:
        raise
    except Exception as error:  # the function is the user's, and may raise anything
        raise UsageError(f"{option} {spec}: calling it raises {fault_in_words(error)}. Fix that first".strip()) from error


def rules_of(spec: str) -> tuple[tuple[Rule, ...], bool]:
    """The rules that ``--rules module:name`` names, and whether it names one alone.

    Raises:
        UsageError: where it names nothing, or something else.
    """
    found = object_of("--rules", spec)
    rules = (found,) if isinstance(found, Rule) else found
    if not isinstance(rules, (list, tuple)) or not all(isinstance(rule, Rule) for rule in rules):
        raise UsageError(
            f"--rules {spec}: expected a rule made by @eagerdecomp.register_decomposition, or a list of rules, found {found!r}"
        )
    return tuple(rules), isinstance(found, Rule)
