"""The cache: recorded programs by op and key, bounded, shared, safe between threads, and able to say why a call missed."""

from __future__ import annotations

import itertools
import json
import os
import threading
import warnings
from collections import Counter, OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.program.ir import Program
from eagerdecomp.program.key import Column, key_labels, key_or_none, shown_fact
from eagerdecomp.runtime.cache_file import Filed, Owned, Saved, load, owner_text, save
from eagerdecomp.runtime.fingerprint import NoIdentity, Owner, owner_identity

__all__ = ["CacheInfo", "OpPrograms", "ProgramCache", "shared_cache"]

# After so many recordings without a program, an op's rule is run directly.
_VAIN_RECORDINGS = 3

# So often may an op's rules turn out to read more than was known, before every fact counts as read.
_WIDENINGS = 8


@dataclass(frozen=True)
class CacheInfo:
    """Counts of one cache: programs held and evicted, the bound on programs of one op, and the programs read from files."""

    programs: int
    evictions: int
    limit_per_op: int
    loaded: int = 0


class OpPrograms:
    """The programs of one op. Reads (`programs`) take no lock: a dict lookup is atomic; every change takes the cache's.

    Attributes:
        columns: what its rules were seen to read of their arguments, in the order in which keys hold it; see `widen`.
        programs: key -> what runs the call; handlers hold this very dict.
        listings: key -> the program, for people.
        filed: programs read from files, each taken over when a call asks for it.
    """

    __slots__ = (
        *("_churn", "_limit", "_lock", "_seen", "_vain", "_widened", "columns", "evictions", "filed", "listings", "programs"),
        "_taken",
    )

    def __init__(self, limit: int, lock: threading.RLock) -> None:
        self.programs: dict[Any, Callable[..., Any]] = {}
        self.listings: dict[Any, Any] = {}
        self.columns: tuple[Column, ...] = ()
        self.filed: tuple[Filed, ...] = ()
        self._taken: set[Any] = set()  # keys of programs that `filed` holds as well
        self._widened = 0
        self.evictions = 0
        self._limit = limit
        self._lock = lock
        # Keys met once while the op is in churn; a key met again is worth a program.
        self._seen: deque[int] = deque(maxlen=4 * limit)
        self._churn = False
        self._vain = 0

    def worth_recording(self, key: Any) -> bool:
        """Whether a missed call should be recorded. Once the bound has been reached, only a key met before is: an op whose shapes
        keep changing then runs its rule directly, and neither fills the cache nor pays for recording. Nor does an op whose
        recordings have never yielded a program."""
        with self._lock:
            if self._vain >= _VAIN_RECORDINGS and not self.programs:
                return False
            if len(self.programs) < self._limit and not self._churn:
                return True
            self._churn = True
            mark = hash(key)
            if mark in self._seen:
                return True
            self._seen.append(mark)
            return False

    def store(self, key: Any, run: Callable[..., Any], listing: Any, columns: tuple[Column, ...] | None = None) -> None:
        """Keep a program; the oldest goes when the bound is reached. One under a key of other `columns` than the table's is not."""
        with self._lock:
            if columns is not None and columns != self.columns:
                return  # another thread has widened the key meanwhile
            if key not in self.programs and len(self.programs) >= self._limit:
                oldest = next(iter(self.programs))
                del self.programs[oldest]
                self.listings.pop(oldest, None)
                self.evictions += 1
            self.programs[key] = run
            self.listings[key] = listing

    def widen(self, columns: Iterable[Column], exact: tuple[Column, ...]) -> tuple[Column, ...]:
        """All columns, now that a rule of the op has read these: the old ones and the new, or `exact`, those that tell all calls
        apart, once that is less to read or new ones keep coming. Programs under other columns are dropped; handlers that hold
        their dict keep an empty one."""
        with self._lock:
            wanted = dict.fromkeys((*self.columns, *columns))
            if self._widened >= _WIDENINGS or len(wanted) > 2 * len(exact) or wanted.keys() >= set(exact):
                wanted = dict.fromkeys(exact)
            if tuple(wanted) != self.columns:
                self.columns = tuple(wanted)
                self._widened += 1
                self.programs.clear()
                self.listings.clear()
                self._taken.clear()
                self.programs = {}
            return self.columns

    def now(self) -> tuple[tuple[Column, ...], dict[Any, Callable[..., Any]]]:
        """The columns and the programs that are kept under them, from one moment."""
        with self._lock:
            return self.columns, self.programs

    def from_file(self, op: OpOverload, values: Sequence[Any]) -> tuple[Program, tuple[Column, ...]] | None:
        """The program that a file has for a call, given all its arguments in schema order, and the columns it depends on."""
        for group in self.filed:
            program = group.programs.get(key_or_none(op, values, group.columns))
            if program is not None:
                return program, group.columns
        return None

    def took(self, key: Any) -> None:
        """Note that the program under this key is one of a file's."""
        with self._lock:
            self._taken.add(key)

    def to_be_filed(self) -> list[Filed]:
        """All its programs as a file holds them: those read from one, and its own."""
        with self._lock:
            ours = {key: one for key, one in self.listings.items() if isinstance(one, Program) and key not in self._taken}
            return [*self.filed, Filed(self.columns, ours)] if ours else list(self.filed)

    def forget(self) -> None:
        """Drop every program and what was learnt of the op's calls."""
        with self._lock:
            self.filed = ()
            self._taken.clear()
            self.programs.clear()
            self.listings.clear()
            self._seen.clear()
            self._churn = False
            self._vain = 0

    def recorded_in_vain(self) -> None:
        """Note that a recording could not become a program (it reads data, or has effects)."""
        with self._lock:
            self._vain += 1

    def replace(self, key: Any, run: Callable[..., Any], columns: tuple[Column, ...] | None = None) -> None:
        """Put a compiled function in the place of a recorded program, unless that was evicted meanwhile or keys were widened."""
        with self._lock:
            if key in self.programs and (columns is None or columns == self.columns):
                self.programs[key] = run

    def why_missed(self, key: Any) -> str:
        """Which facts of `key` differ from those of the other stored key that is nearest to it, each by its column."""
        with self._lock:
            stored = [other for other in self.programs if other != key]
            listing = next((one for one in self.listings.values() if isinstance(one, Program)), None)
            labels = key_labels(listing.op, self.columns) if listing is not None else ()
        if not stored:
            return "the first call of this op"
        nearest = max(stored, key=lambda other: sum(a == b for a, b in zip(key, other, strict=False)))
        named = itertools.chain((f"{one}: " for one in labels), itertools.repeat(""))
        changed = [
            f"{label}{shown_fact(old)} became {shown_fact(new)}"
            for old, new, label in zip(nearest, key, named, strict=False)
            if old != new
        ]
        return "; ".join(changed)


class ProgramCache:
    """Programs of one backend. Give one to several modes (``cache=``) to share it beyond what equal backends share anyway.

    Args:
        limit_per_op: how many programs one op may hold; the oldest goes first.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> cache = ed.ProgramCache(limit_per_op=64)
        >>> x = torch.ones(1, 1, 5)
        >>> with ed.EagerDecompMode(ed.core_aten(), cache=cache):
        ...     y = torch.nn.functional.interpolate(x, size=7, mode="linear")
        >>> cache.info().programs
        1
    """

    def __init__(self, limit_per_op: int = 256) -> None:
        if type(limit_per_op) is not int or limit_per_op < 1:
            raise ValueError(f"ProgramCache(limit_per_op=) must be a whole number of programs from 1 on, not {limit_per_op!r}")
        self._limit = limit_per_op
        self._lock = free_in_child(threading.RLock())
        self._spaces: dict[Hashable, dict[OpOverload, OpPrograms]] = {}
        self._filed: dict[str, list[Owned]] = {}  # by owner
        self._loaded = 0

    def space(self, owner: Hashable) -> dict[OpOverload, OpPrograms]:
        """The programs made for one backend and one set of rules; others never see them."""
        with self._lock:
            found = self._spaces.get(owner)
            if found is None:
                found = self._spaces[owner] = {}
                if self._filed:
                    self._hand_out(owner, found)
            return found

    def of(self, space: dict[OpOverload, OpPrograms], op: OpOverload) -> OpPrograms:
        """The programs of an op, an empty table at first."""
        with self._lock:
            found = space.get(op)
            if found is None:
                found = space[op] = OpPrograms(self._limit, self._lock)
            return found

    def info(self) -> CacheInfo:
        """How full the cache is."""
        with self._lock:
            tables = [table for space in self._spaces.values() for table in space.values()]
            return CacheInfo(sum(len(t.programs) for t in tables), sum(t.evictions for t in tables), self._limit, self._loaded)

    def save(self, path: str | os.PathLike[str]) -> Saved:
        """Write the programs to a file, from which another process starts warm (`load`); what the file holds already stays in it.

        Programs are kept with all that they depend on: torch and Python, the machine, the library's sources, the op set, and its
        predicates, kernels and rules with their compiled source and what they read. What has no text is left out and counted: a
        program with a large constant, and all programs of a backend one of whose functions reads something that may be another in
        another process, such as a tensor or an object.

        The file is put in its place at once. Of processes that save to it at the same time none loses anything.

        Returns:
            what was saved, and what was left out.

        Raises:
            CacheError: where the path holds a file that is none of ours, a device or a pipe, or the library's sources changed since
                their import.
            OSError: where the file cannot be written; it names `path`, and nothing is left beside it.
        """
        owned: list[Owned] = []
        left_out: Counter[str] = Counter()
        with self._lock:
            spaces = [(owner, {op: table.to_be_filed() for op, table in space.items()}) for owner, space in self._spaces.items()]
            handed_out = {id(group) for _, tables in spaces for groups in tables.values() for group in groups}
            waiting = [one for filed in self._filed.values() for one in filed]
        for one in waiting:  # those whose owner has not come
            tables = {op: [group for group in groups if id(group) not in handed_out] for op, groups in one.tables.items()}
            owned.append(Owned(one.owner, tables))
        for owner, held in spaces:
            if not any(group.programs for groups in held.values() for group in groups):
                continue
            try:
                owned.append(Owned(_identity(owner), held))
            except NoIdentity as unknown:
                left_out[str(unknown)] += sum(len(group.programs) for groups in held.values() for group in groups)
        return save(path, owned, left_out)

    def load(self, path: str | os.PathLike[str]) -> int:
        """Take in the programs of a file that `save` wrote: calls that they were made for are not recorded again.

        A file is data: nothing in it is executed. Before any of it is used, each call in it is held to the schema of its operator:
        the arguments there are, each of its type, tensors made before they are read, as many results as the operator returns;
        and so is what each program is given and answers. It is taken whole or not at all. What no schema says is left to the
        operators: a size or a dimension that eager refuses, it refuses when it is used, in eager's words, or Python's where a size
        is computed (of a dimension that a tensor has not, by division by zero). That programs compute what their operators do,
        nobody can check: load files that you, or those whom you trust with your results, have saved.

        Where no program of it is for a mode's op set and rules, the mode warns of it, with what differs.

        Returns:
            how many programs it holds.

        Raises:
            CacheError: for a file that is damaged, no cache, or made by another torch, Python, machine or version of the library.
            OSError: where there is no such file.
        """
        found = load(path)
        count = sum(len(group.programs) for one in found for groups in one.tables.values() for group in groups)
        with self._lock:
            self._loaded += count
            for one in found:
                self._filed.setdefault(owner_text(one.owner), []).append(one)
            for owner, space in self._spaces.items():
                for table in space.values():
                    table.filed = ()
                self._hand_out(owner, space)
        return count

    def _hand_out(self, owner: Hashable, space: dict[OpOverload, OpPrograms]) -> None:
        """Give an owner's tables the programs that files have for it."""
        try:
            identity = _identity(owner)
        except NoIdentity as unknown:
            warnings.warn(f"no program of a file is used: {unknown}", UserWarning, stacklevel=2)
            return
        found = self._filed.get(owner_text(identity), [])
        if not found:
            warnings.warn(f"no program of a file is used: {_differences(identity, self._filed)}", UserWarning, stacklevel=2)
        for one in found:
            for op, groups in one.tables.items():
                self.of(space, op).filed += tuple(groups)

    def clear(self) -> None:
        """Forget every program, those of files too; the modes that use the cache record anew."""
        with self._lock:
            self._filed.clear()
            self._loaded = 0
            for space in self._spaces.values():
                for table in space.values():
                    table.forget()


def _identity(owner: Hashable) -> dict[str, Any]:
    if not isinstance(owner, Owner):
        raise NoIdentity(f"{owner!r}, which is no backend")
    return owner_identity(owner)


def _differences(owner: Mapping[str, Any], others: Iterable[str]) -> str:
    """In what an owner differs from the nearest of others."""
    known = [json.loads(one) for one in others]
    differ = min(([part for part in owner if owner[part] != other.get(part)] for other in known), key=len)
    told = {
        "ops": "op set",
        "predicates": "predicates of the op set",
        "kernels": "kernels",
        "compile": "compile hook",
        "rules": "rules",
    }
    return f"it was made for another {', '.join(told[part] for part in differ)}"


_SHARED_LIMIT = 16
_shared: OrderedDict[Hashable, ProgramCache] = OrderedDict()
_shared_lock = free_in_child(threading.Lock())


def shared_cache(owner: Hashable) -> ProgramCache:
    """The cache that modes with an equal backend and rules share; the least recently asked for of 16 is dropped.

    It changes no result, only cost, and keeps a ``with`` inside a training loop from starting cold at each step.
    """
    with _shared_lock:
        cache = _shared.pop(owner, None) or ProgramCache()
        _shared[owner] = cache
        if len(_shared) > _SHARED_LIMIT:
            _shared.popitem(last=False)
        return cache
