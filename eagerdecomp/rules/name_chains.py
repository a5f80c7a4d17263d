"""The global names that code reads, each with the attributes that it reads of it: ``aten.mul.Tensor``.

The chains of this package's functions are shipped in ``data/name_chains.txt``, because disassembling takes twenty times as long as
looking them up. `dis` disassembles all other code: rules of users, and modules that have changed since the file was written.
``python tools/record_rules.py --changed`` writes the file.
"""

from __future__ import annotations

import builtins
import dis
import functools
import os
import sys
import warnings
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import CodeType
from typing import TypeAlias

__all__ = ["FILE", "NEWEST_PYTHON", "NameChain", "can_disassemble", "name_chains", "text"]

#: A global name followed by attributes: ``aten.mul.Tensor`` is ``("aten", "mul", "Tensor")``.
NameChain: TypeAlias = tuple[str, ...]

#: The newest Python on which the tests were run. On newer ones, `can_disassemble` tries one function first.
NEWEST_PYTHON = (3, 13)

_PACKAGE = f"{Path(__file__).parents[1]}{os.sep}"
FILE = Path(_PACKAGE, "data", "name_chains.txt")

#: The folders of rules and their helpers.
_FOLDERS = ("_torch", "decomps", "eager", "ops", "rules")

_GLOBALS = frozenset({"LOAD_GLOBAL", "LOAD_NAME"})
_ATTRIBUTES = frozenset({"LOAD_ATTR", "LOAD_METHOD"})
_STORES = frozenset({"STORE_GLOBAL", "STORE_NAME"})
_BETWEEN = frozenset({"CACHE", "EXTENDED_ARG", "PRECALL", "PUSH_NULL"})


@functools.cache
def name_chains(code: CodeType) -> tuple[NameChain, ...]:
    """Return the chains of code, including those of inner functions. Some chains of builtins may be missing."""
    shipped = _shipped(code.co_filename).get(f"{code.co_name}:{code.co_firstlineno}")
    if shipped is None:
        return _disassembled(code)
    return tuple(tuple(chain.split(".")) for chain in shipped.split(",") if chain)


def _disassembled(code: CodeType) -> tuple[NameChain, ...]:
    found: dict[NameChain, None] = {}
    chain: list[str] = []
    for one in dis.get_instructions(code):
        if one.opname in _GLOBALS:
            found[tuple(chain)] = None
            chain = [one.argval]
        elif one.opname in _ATTRIBUTES and chain:
            chain.append(one.argval)
        elif one.opname not in _BETWEEN:
            found[tuple(chain)] = None
            chain = []
    found.update(dict.fromkeys(chain for inner in code.co_consts if isinstance(inner, CodeType) for chain in _disassembled(inner)))
    found.pop((), None)
    return tuple(found)


@functools.cache
def can_disassemble() -> bool:
    """Return whether this Python's instructions are understood; warn if they are not. Linked rules are recorded then."""
    if sys.version_info[:2] <= NEWEST_PYTHON or set(_disassembled(_known.__code__)) == _CHAINS_OF_KNOWN:
        return True
    warnings.warn(
        f"eagerdecomp does not know the instructions of Python {sys.version.split()[0]}, so it records all rules, which is slower. "
        f"Values are the same; some errors may have another class. Use Python {'.'.join(map(str, NEWEST_PYTHON))} or older, or a "
        "newer eagerdecomp",
        stacklevel=2,
    )
    return False


def _known(x: Path) -> object:
    inner = [sys.modules.get(one) for one in dis.opname]
    return zlib.crc32(x.read_bytes()), warnings.catch_warnings(record=True), inner, functools.partial


_CHAINS_OF_KNOWN = {
    ("sys", "modules", "get"),
    ("dis", "opname"),
    ("zlib", "crc32"),
    ("warnings", "catch_warnings"),
    ("functools", "partial"),
}


@functools.cache
def _shipped(filename: str) -> Mapping[str, str]:
    """Return ``name:line`` -> chains for the functions of a source file; nothing if the file is not the one that was recorded."""
    path = filename.removeprefix(_PACKAGE).replace(os.sep, "/")
    records = _records()
    start = records.find(f"\n{path} ".encode())
    if start < 0:
        return {}
    found = records[start + len(path) + 2 : records.find(b"\n", start + 1)].decode()
    checksum, *rest = found.split(" ")
    try:
        with open(filename, "rb") as file:
            source = file.read()
    except OSError:
        return {}
    return dict(zip(rest[::2], rest[1::2], strict=True)) if checksum == _checksum(source) else {}


@functools.cache
def _records() -> bytes:
    """Return the file, in which each line is the record of a source file: its path, a checksum, ``name:line`` and chains."""
    return b"\n" + FILE.read_bytes()  # split into lines it would take ten times as long, for the few files that are needed


def _checksum(source: bytes) -> str:
    return f"{zlib.crc32(source):08x}"


def text() -> str:
    """Return the text of `FILE`, from the sources of the package."""
    paths = sorted(path for folder in _FOLDERS for path in Path(_PACKAGE, folder).rglob("*.py"))
    return "".join(f"{path.relative_to(_PACKAGE).as_posix()} {_record(path)}\n" for path in paths)


def _record(path: Path) -> str:
    """Return the record of a source file. Functions of the same name on one line are left out if they differ."""
    source = path.read_bytes()
    module = compile(source, str(path), "exec", dont_inherit=True)
    stored = {one.argval for one in dis.get_instructions(module) if one.opname in _STORES}
    found: dict[str, str | None] = {}
    for code in _functions(module):
        name = f"{code.co_name}:{code.co_firstlineno}"
        read = (chain for chain in _disassembled(code) if chain[0] in stored or not hasattr(builtins, chain[0]))
        chains = ",".join(map(".".join, read))
        found[name] = chains if found.get(name, chains) == chains else None
    return " ".join([_checksum(source), *(text for name, chains in found.items() if chains is not None for text in (name, chains))])


def _functions(code: CodeType) -> Iterator[CodeType]:
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield one
            yield from _functions(one)
