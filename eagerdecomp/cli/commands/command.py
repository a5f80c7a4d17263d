"""The type of a command, and shared code of the commands: exit codes, options, output files, and objects named by MODULE:NAME."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eagerdecomp.cli.arguments.shared import FAILED
from eagerdecomp.cli.commands.colour import painted
from eagerdecomp.errors import EagerDecompError, InstallError, OpSetError
from eagerdecomp.host.atomic_file import check_writable, write_text
from eagerdecomp.host.import_path import UsageError, module_of, object_of
from eagerdecomp.host.source_lines import fault_in_words
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import NAMED_SETS, OpSet, resolve_ops
from eagerdecomp.ops.opset_file import op_set_from
from eagerdecomp.rules.rule import Rule

__all__ = [
    "Command",
    "backend_from",
    "backend_of",
    "called",
    "device_backend",
    "is_factory",
    "kept_ops",
    "named_backend",
    "output_file",
    "print_whole",
    "rules_of",
    "set_from",
    "shown",
]


@dataclass(frozen=True)
class Command:
    """One command: its name, and the function that runs it. Its arguments are in `eagerdecomp.cli.arguments`."""

    name: str
    run: Callable[[argparse.Namespace], int]


def print_whole(text: str) -> None:
    """Print a text, in colour on a terminal. It is no error if the reader closes the pipe early."""
    try:
        print(painted(text), flush=True)
    except OSError as error:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(error, BrokenPipeError):  # a closed pipe is normal: `eagerdecomp opset core | head`
            raise UsageError(f"cannot write to stdout: {error.strerror}", FAILED) from None


def kept_ops(text: str | None) -> tuple[str, ...]:
    """Return the op names in the value of ``--keep``.

    Raises:
        OpSetError: for unknown names. The message is one line.
    """
    names = tuple(name.strip() for name in (text or "").split(",") if name.strip())
    try:
        resolve_ops(names)
    except OpSetError as error:
        raise OpSetError(" ".join(str(error).split("\n"))) from None
    return names


def shown(args: argparse.Namespace) -> Callable[[str], None]:
    """Return the function that prints a command's text: `print_whole`, or a no-op if JSON goes to stdout."""
    return (lambda text: None) if args.json == "-" else print_whole


@contextmanager
def output_file(option: str, name: str | None) -> Iterator[Callable[[str], None]]:
    """Yield a function that writes the file of an option atomically; ``-`` is stdout.

    A path that cannot be written is an error before the run, not after it.
    """
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
    """Return the backend or op set that ``--option module:name`` names.

    Raises:
        UsageError: if there is no such object, or it is neither.
    """
    found = object_of(option, spec)
    if not isinstance(found, (Backend, OpSet)):
        raise UsageError(
            f"{option} {spec}: expected an eagerdecomp.Backend or OpSet, found an object of type {type(found).__name__}"
        )
    return found


def backend_from(spec: str, option: str = "--ops") -> Backend | OpSet:
    """Resolve an option that takes a set: a set's name, a file of ops, or ``module:name``.

    Raises:
        OpSetError: if there is no such file or set.
        UsageError: if there is no such backend.
    """
    return backend_of(option, spec) if ":" in spec and not os.path.exists(spec) else op_set_from(spec, option)


def device_backend(args: argparse.Namespace, other: str = "") -> Backend | None:
    """Import the modules of ``--import``, and return what the device of ``--device`` can run; None without that option.

    Args:
        args: the arguments.
        other: what else the command line names as the backend.

    Raises:
        UsageError: for a module that cannot be imported, if a backend is named twice, or if torch has no such device.
    """
    for module in args.imports:
        module_of("--import", module)
    if not args.device:
        return None
    if other:
        raise UsageError(f"--device {args.device} and {other}: pass one of them")
    try:
        return Backend.of_device(args.device)
    except InstallError as error:
        raise UsageError(f"--device {args.device}: {error}") from None


def set_from(spec: str, option: str = "--ops") -> OpSet:
    """Return the op set of `backend_from`, with its predicates. Pass "" as `option` for a positional argument."""
    found = backend_from(spec, option)
    return found.ops if isinstance(found, Backend) else found


def called(option: str, spec: str, factory: Callable[[], Any]) -> Any:
    """Call the function that ``--option module:name`` names and return its result.

    Raises:
        UsageError: if the function raises. An `EagerDecompError` is raised unchanged.
    """
    try:
        return factory()
    except EagerDecompError:
        raise
    except Exception as error:  # the function is the user's, and may raise anything
        raise UsageError(f"{option} {spec}: calling it raises {fault_in_words(error)}. Fix that first".strip()) from error


def rules_of(spec: str) -> tuple[tuple[Rule, ...], bool]:
    """Return the rules that ``--rules module:name`` names, and whether it names a single rule instead of a list.

    Raises:
        UsageError: if there is no such object, or it is neither a rule nor a list of rules.
    """
    found = object_of("--rules", spec)
    rules = (found,) if isinstance(found, Rule) else found
    if not isinstance(rules, (list, tuple)) or not all(isinstance(rule, Rule) for rule in rules):
        raise UsageError(
            f"--rules {spec}: expected a rule made by @eagerdecomp.register_decomposition, or a list of rules, found {found!r}"
        )
    return tuple(rules), isinstance(found, Rule)


def is_factory(spec: str) -> bool:
    """Return whether ``module:name`` names a function that returns a backend."""
    found = object_of("", spec)
    return callable(found) and not isinstance(found, (Backend, OpSet))


def named_backend(spec: str | None, command: str) -> Backend:
    """Return the backend that the positional argument of a command names.

    Raises:
        UsageError: if there is none, or it is no backend, op set, or function that returns one.
    """
    if spec is None:
        raise UsageError(
            f"name the backend to test, as MODULE:BACKEND, or a device: eagerdecomp {command} --device TYPE --import MODULE"
        )
    if ":" not in spec and (spec in NAMED_SETS or spec.startswith(("aten.", "prims."))):
        raise UsageError(
            f"{spec}: name the backend, as MODULE:BACKEND, not its ops. To test some ops: "
            "eagerdecomp conformance MODULE:BACKEND --ops aten.add.Tensor"
        )
    found = object_of("", spec)
    if is_factory(spec):
        found = called("", spec, found)
    if not isinstance(found, (Backend, OpSet)):
        raise UsageError(f"{spec}: expected an eagerdecomp.Backend or OpSet, found an object of type {type(found).__name__}")
    return as_backend(found)
