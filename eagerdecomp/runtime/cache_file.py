"""The file of a cache: programs by owner, op and columns, sealed by a checksum, with the facts of the process that made them.

A first line holds the format and the checksum of the rest, which is one line of JSON. A file is taken whole or not at all: what is
damaged, or was made by another torch, Python, machine or version of the library, is refused. It is written beside its place and
moved there, under a lock on ``.NAME.lock``, which is removed afterwards, with all that was in it before.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import platform
import stat
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any, TypeAlias

import torch

from eagerdecomp._torch.modes import no_current_modes, without_torch_function
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import CacheError
from eagerdecomp.host.atomic_file import check_writable, naming_path, write_bytes
from eagerdecomp.program.ir import Program
from eagerdecomp.program.key import Column
from eagerdecomp.program.serialize import (
    Unreadable,
    Unwritable,
    column_text,
    key_text,
    program_text,
    read_column,
    read_key,
    read_op,
    read_program,
)

__all__ = ["WHOLE", "Filed", "Owned", "Saved", "load", "owner_text", "save"]

#: Ops that a program calls as one though no set need have them: those with a `whole` rule.
WHOLE = frozenset(
    {
        "aten._lazy_clone.default",
        "aten.nll_loss2d_backward.default",
        "aten.nll_loss2d_forward.default",
        "aten.nll_loss_backward.default",
        "aten.nll_loss_forward.default",
        "aten.reshape.default",
    }
)

#: No more of one op, and of owners, are kept in a file: the oldest go.
_MOST_PROGRAMS = 4096
_MOST_OWNERS = 64

_NAME = b"eagerdecomp cache "
_FIRST = _NAME + b"1"
_IMPORTED = time.time()
_PACKAGE = Path(__file__).parent

#: What of the package has no say in programs.
_BESIDE = frozenset({"bench", "commands", "conformance", "templates"})

_WHAT_TO_DO = "delete it, or save to it again"


@dataclass(frozen=True)
class Filed:
    """Programs of one op whose keys hold the same columns."""

    columns: tuple[Column, ...]
    programs: Mapping[Any, Program]


#: op -> its programs.
Tables: TypeAlias = Mapping[OpOverload, Iterable[Filed]]


@dataclass(frozen=True)
class Owned:
    """The programs of one owner, known by its identity (see `identities`)."""

    owner: Mapping[str, Any]
    tables: Tables


@dataclass
class Saved:
    """What a save came to.

    Attributes:
        programs: how many programs the file holds now.
        added: how many of them it did not hold before.
        left_out: why -> how many programs of the cache have no place in a file.
        replaced: why what the file held before was dropped; "" where it was kept, or there was nothing.
    """

    programs: int = 0
    added: int = 0
    left_out: Counter[str] = field(default_factory=Counter)
    replaced: str = ""


def owner_text(owner: Mapping[str, Any]) -> str:
    """An owner's identity as text: equal where owners are."""
    return json.dumps(owner, sort_keys=True)


# -- what a process is ------------------------------------------------------------------------------------------------------------


@functools.cache
def _library(path: Path = _PACKAGE) -> str:
    """A digest of the library's sources and data.

    Raises:
        CacheError: where a file is newer than its import: what runs is not what the file says.
    """
    digest = hashlib.sha256()
    imported = {Path(file) for module in list(sys.modules.values()) if (file := getattr(module, "__file__", None))}
    for one in sorted(_sources(path)):
        if one.stat().st_mtime > _IMPORTED and (one in imported or one.suffix == ".json"):
            raise CacheError(f"{one} has changed since it was imported: start Python anew before programs are saved or loaded")
        digest.update(str(one.relative_to(path)).encode() + b"\0" + hashlib.sha256(one.read_bytes()).digest())
    return digest.hexdigest()[:32]


def _sources(path: Path) -> Iterator[Path]:
    for one in path.iterdir():
        if one.is_dir() and one.name not in _BESIDE:
            yield from _sources(one)
        elif one.suffix in (".py", ".json"):
            yield one


def _made_by() -> dict[str, Any]:
    """What programs depend on besides their owner: they are used where all of it is equal."""
    return {
        "torch": torch.__version__,
        "torch's commit": torch.version.git_version,
        "torch's CUDA": torch.version.cuda,
        "Python": f"{platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}",
        "machine": f"{sys.platform} {platform.machine()} {sys.byteorder}",
        "CPU": torch.backends.cpu.get_cpu_capability(),
        "MKL-DNN": torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        "eagerdecomp's sources": _library(),
    }


# -- loading ----------------------------------------------------------------------------------------------------------------------


def load(path: str | os.PathLike[str]) -> list[Owned]:
    """All that a file holds.

    Raises:
        CacheError: for a file that is damaged, stale, or no cache at all.
        OSError: where it cannot be read.
    """
    name = os.fspath(path)
    if stat.S_ISCHR(os.stat(path).st_mode):  # /dev/full and /dev/zero have no end
        raise CacheError(f"{name} is a device, not a file of programs of eagerdecomp; give another path")
    body = _opened(name, Path(path).read_bytes())
    try:
        with without_torch_function(), no_current_modes():
            return [_read_owned(one) for one in body["owners"]]
    except (Unreadable, RecursionError) as wrong:
        raise CacheError(f"{name} holds what is no program, and nothing of it is used: {wrong}; {_WHAT_TO_DO}") from wrong


def _opened(name: str, content: bytes) -> dict[str, Any]:
    """The JSON of a file that is whole and of a process like this.

    Raises:
        CacheError: for any other.
    """
    _of_ours(name, content)
    head, newline, rest = content.partition(b"\n")
    if not head.startswith(_FIRST + b" "):
        raise CacheError(
            f"{name} is of another format than this version of eagerdecomp writes, and nothing of it is used; {_WHAT_TO_DO}"
        )
    if not newline or head != _FIRST + b" " + hashlib.sha256(rest).hexdigest().encode():
        raise CacheError(f"{name} is damaged (its checksum is not that of its content), and nothing of it is used; {_WHAT_TO_DO}")
    try:
        body = json.loads(rest)
    except (ValueError, RecursionError) as wrong:
        raise CacheError(f"{name} is damaged (it holds no JSON), and nothing of it is used; {_WHAT_TO_DO}") from wrong
    if not _has_shape(body):
        raise CacheError(f"{name} is damaged (its JSON has another shape), and nothing of it is used; {_WHAT_TO_DO}")
    here = _made_by()
    if body["made by"] != here:
        differ = [
            f"{fact}: {str(body['made by'].get(fact))[:80]} there, {here.get(fact)} here"
            for fact in dict.fromkeys((*here, *map(str, body["made by"])))
            if body["made by"].get(fact) != here.get(fact)
        ]
        raise CacheError(f"{name} is stale, and nothing of it is used: {'; '.join(differ)}; {_WHAT_TO_DO}")
    return dict(body)


def _of_ours(name: str, content: bytes) -> None:
    """Raises CacheError for a file that never held programs, which is nobody's to replace."""
    if not content.startswith(_NAME):
        raise CacheError(f"{name} is no file of programs of eagerdecomp; give another path")


def _has_shape(body: Any) -> bool:
    if type(body) is not dict or body.keys() != {"made by", "owners"} or type(body["made by"]) is not dict:
        return False
    return type(body["owners"]) is list and all(map(_is_owned, body["owners"]))


def _is_owned(one: Any) -> bool:
    if type(one) is not dict or one.keys() != {"owner", "tables"} or type(one["owner"]) is not dict:
        return False
    if type(one["owner"].get("ops")) is not list or type(one["tables"]) is not dict:
        return False
    return all(type(groups) is list and all(map(_is_group, groups)) for groups in one["tables"].values())


def _is_group(group: Any) -> bool:
    if type(group) is not dict or group.keys() != {"columns", "programs"}:
        return False
    if type(group["columns"]) is not list or type(group["programs"]) is not list:
        return False
    return all(type(pair) is list and len(pair) == 2 for pair in group["programs"])


def _read_owned(one: dict[str, Any]) -> Owned:
    names = frozenset(map(str, one["owner"]["ops"])) | WHOLE

    def supported(op: OpOverload) -> bool:
        return str(op) in names

    tables = {}
    for name, groups in one["tables"].items():
        op = read_op(name)
        tables[op] = [_read_group(op, group, supported) for group in groups]
    return Owned(one["owner"], tables)


def _read_group(op: OpOverload, group: dict[str, Any], supported: Callable[[OpOverload], bool]) -> Filed:
    columns = tuple(read_column(op, one) for one in group["columns"])
    return Filed(columns, {read_key(op, columns, key): read_program(op, text, supported) for key, text in group["programs"]})


# -- saving -----------------------------------------------------------------------------------------------------------------------


def save(path: str | os.PathLike[str], owners: Iterable[Owned], left_out: Counter[str]) -> Saved:
    """Add programs to a file, which is made where there is none. What it held and cannot be used any more is dropped.

    Raises:
        CacheError: where the file is none of ours, or is a device or a pipe.
        OSError: where it cannot be written; it names `path`.
    """
    saved = Saved(left_out=left_out)
    written = [_written(one, left_out) for one in owners]
    made_by = _made_by()
    place = Path(os.path.realpath(path))
    if place.exists() and not place.is_file() and not place.is_dir():
        raise CacheError(f"{os.fspath(path)} is not a regular file, so it cannot hold programs; give another path")
    check_writable(path)  # before the lock is made beside it
    with naming_path(path), _locked(place):
        before: list[Any] = []
        if place.exists():
            content = place.read_bytes()
            _of_ours(os.fspath(path), content)
            try:
                before = _opened(os.fspath(path), content)["owners"]
            except CacheError as refused:
                saved.replaced = str(refused)
        merged = _merged(before, written)
        saved.programs = _count(merged)
        saved.added = saved.programs - _count(before)
        rest = json.dumps({"made by": made_by, "owners": merged}, separators=(",", ":")).encode() + b"\n"
        write_bytes(place, _FIRST + b" " + hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest)
    return saved


def _written(owned: Owned, left_out: Counter[str]) -> dict[str, Any]:
    names = frozenset(owned.owner["ops"]) | WHOLE
    tables: dict[str, Any] = {}
    for op, groups in owned.tables.items():
        for group in groups:
            pairs = []
            columns = [column_text(one) for one in group.columns]
            for key, program in group.programs.items():
                try:
                    pair = [key_text(key), program_text(program)]
                    # Read once, as whoever loads it will: one program that cannot be would cost that process all others.
                    read = json.loads(json.dumps(pair))
                    held = tuple(read_column(op, one) for one in columns)
                    if held != group.columns or read_key(op, held, read[0]) != key:
                        raise Unwritable("a key that is another when it is read")
                    with without_torch_function(), no_current_modes():
                        read_program(op, read[1], lambda one: str(one) in names)
                    read_op(str(op))
                except (Unwritable, Unreadable, RecursionError) as wrong:
                    left_out[f"a program holds {wrong}" if isinstance(wrong, Unwritable) else f"a program {wrong}"] += 1
                else:
                    pairs.append(pair)
            if pairs:
                tables.setdefault(str(op), []).append({"columns": columns, "programs": pairs})
    return {"owner": dict(owned.owner), "tables": tables}


def _merged(before: Iterable[dict[str, Any]], added: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What was there and what is new, the new last; no more than there is room for."""
    owners: dict[str, Any] = {}
    for one in (*before, *added):
        text = owner_text(one["owner"])
        tables = owners.pop(text, (None, {}))[1]
        owners[text] = (one["owner"], tables)
        for name, groups in one["tables"].items():
            programs = tables.setdefault(name, {})
            for group in groups:
                columns = json.dumps(group["columns"])
                for key, program in group["programs"]:
                    programs.pop((columns, json.dumps(key)), None)
                    programs[columns, json.dumps(key)] = (group["columns"], key, program)
    kept = list(owners.values())[-_MOST_OWNERS:]
    return [{"owner": owner, "tables": {name: _groups(programs) for name, programs in tables.items()}} for owner, tables in kept]


def _groups(programs: dict[tuple[str, str], tuple[Any, Any, Any]]) -> list[dict[str, Any]]:
    groups: dict[str, dict[str, Any]] = {}
    for (text, _), (columns, key, program) in list(programs.items())[-_MOST_PROGRAMS:]:
        groups.setdefault(text, {"columns": columns, "programs": []})["programs"].append([key, program])
    return list(groups.values())


def _count(owners: Iterable[dict[str, Any]]) -> int:
    return sum(len(group["programs"]) for one in owners for groups in one["tables"].values() for group in groups)


@contextmanager
def _locked(place: Path) -> Iterator[None]:
    """While one process, or thread, writes to a file, others wait. A process that dies leaves no lock held; its lock file stays."""
    lock = place.with_name(f".{place.name}.lock")
    while True:
        with lock.open("ab") as file:
            _lock(file)
            try:
                if not _is_at(file, lock):
                    continue  # whoever held it before has removed it
                try:
                    yield
                finally:
                    if sys.platform != "win32":  # which removes no file that is open
                        lock.unlink(missing_ok=True)
                return
            finally:
                _unlock(file)  # a process forked meanwhile has the file open too: closing it would not unlock it


def _is_at(file: IO[bytes], path: Path) -> bool:
    """Whether an open file is still the one at a path."""
    try:
        return os.path.samestat(os.fstat(file.fileno()), os.stat(path))
    except FileNotFoundError:
        return False


def _lock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        while True:
            try:
                msvcrt.locking(file.fileno(), msvcrt.LK_LOCK, 1)  # tries for ten seconds
                return
            except OSError:
                continue
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_EX)


def _unlock(file: IO[bytes]) -> None:
    if sys.platform == "win32":
        import msvcrt

        file.seek(0)
        msvcrt.locking(file.fileno(), msvcrt.LK_UNLCK, 1)
    else:
        import fcntl

        fcntl.flock(file, fcntl.LOCK_UN)
