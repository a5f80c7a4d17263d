"""Read op sets from the command line: the name of a set, such as ``core``, or a file with one op per line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from importlib.util import find_spec
from pathlib import Path

from eagerdecomp.errors import OpSetError
from eagerdecomp.ops.opset import NAMED_SETS, OpSet, resolve_ops

__all__ = ["op_set_from", "parse_ops"]


def op_set_from(spec: str, option: str = "--ops") -> OpSet:
    """Return the set for ``--ops SPEC``: a named set, or the ops of a file.

    Args:
        spec: the name or the path.
        option: the option, for messages.

    Raises:
        OpSetError: if there is no such file, it cannot be read, or a line names no operator. The message gives the line.
    """
    named = NAMED_SETS.get(spec)
    if named is not None:
        return named()
    path = Path(spec)
    try:
        text = path.read_text(encoding="utf-8-sig")  # with or without a byte order mark
    except FileNotFoundError:
        known = ", ".join(NAMED_SETS)
        if _is_op(spec):
            raise OpSetError(
                f"{f'{option} ' if option else ''}{spec}: this is an op, and a set of ops is expected here: one of {known}, a file "
                "with one op a line, or MODULE:NAME of a Backend or OpSet. To plan this op alone, type: eagerdecomp plan --match "
                f"{spec}. To test its kernel: eagerdecomp conformance MODULE:BACKEND --ops {spec}"
            ) from None
        close = difflib.get_close_matches(spec, NAMED_SETS, n=1)
        hint = f" Did you mean {close[0]}?" if close else ""
        if spec.isidentifier() and (Path(f"{spec}.py").exists() or find_spec(spec) is not None):
            hint = f" It is a module; did you mean {spec}:NAME, of a Backend or OpSet in it?"
        cure = f"Pass one of {known}, a file with one op a line, or MODULE:NAME of a Backend or OpSet"
        raise OpSetError(f"{option} {spec}: no op set and no file has this name.{hint} {cure}".strip()) from None
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8 text"
        words = f"{option} {spec}".strip()
        raise OpSetError(f"{words}: cannot read this file: {reason}. Pass a file, or one of {', '.join(NAMED_SETS)}") from None
    return parse_ops(text.splitlines(), source=spec, label=path.name)


def _is_op(spec: str) -> bool:
    try:
        resolve_ops([spec])
    except OpSetError:
        return False
    return True


def parse_ops(lines: Iterable[str], *, source: str, label: str = "") -> OpSet:
    """Return the set that the lines of an op file describe.

    A line has one op (``aten.add.Tensor``), a packet for all its overloads (``aten.add``), or ``@core``, ``@prims``, ``@infra`` or
    ``@tiny`` for a whole set; ``#`` starts a comment. Memory ops are not added: a file of arithmetic ops needs ``@infra`` too. A
    file with nothing but a comment is the set of a backend that has no kernel yet.

    Raises:
        OpSetError: for lines that name no operator, each with its number and close matches; for a file without a word.
    """
    found = OpSet()
    wrong: list[str] = []
    lines = list(lines)
    if not any(map(str.strip, lines)):
        raise OpSetError(
            f"{source}: the file is empty. Write one op per line, such as aten.add.Tensor, or @core for a whole set. "
            "For a set without ops, write a comment"
        )
    for number, line in enumerate(lines, 1):
        entry = line.partition("#")[0].strip()
        if not entry:
            continue
        try:
            found |= _included(entry) if entry.startswith("@") else OpSet([entry])
        except OpSetError as error:
            wrong.append(f"{source}:{number}: {error}")
    if wrong:
        raise OpSetError("\n".join(wrong))
    return OpSet(found, label=label)


def _included(entry: str) -> OpSet:
    named = NAMED_SETS.get(entry[1:])
    if named is None:
        raise OpSetError(f"there is no op set {entry}. Use one of {', '.join('@' + name for name in NAMED_SETS)}")
    return named()
