"""The cache: recorded programs by op and key, bounded, shared, safe between threads, and able to say why a call missed."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.errors import ArgumentError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.program.ir import Program
from eagerdecomp.program.key import Guard, key_labels, shown_fact

__all__ = ["CacheInfo", "OpPrograms", "ProgramCache", "shared_cache"]

# After so many recordings without a program, an op's rule is run directly.
_MAX_FAILED_RECORDINGS = 3

# So often may an op's rules turn out to read more than was known, before every fact counts as read.
_WIDENINGS = 8


@dataclass(frozen=True)
class CacheInfo:
    """Counts of one cache: programs held and evicted, and the bound on programs of one op."""

    programs: int
    evictions: int
    limit_per_op: int


class OpPrograms:
    """The programs of one op. Reads (`programs`) take no lock: a dict lookup is atomic; every change takes the cache's.

    Attributes:
        guards: what its rules were seen to read of their arguments, in the order in which keys hold it; see `widen`.
        programs: key -> what runs the call; handlers hold this very dict.
        listings: key -> the program, for people.
    """

    __slots__ = (
        "_churn",
        "_failed_recordings",
        "_limit",
        "_lock",
        "_seen",
        "_widened",
        "evictions",
        "guards",
        "listings",
        "programs",
    )

    def __init__(self, limit: int, lock: threading.RLock) -> None:
        self.programs: dict[Any, Callable[..., Any]] = {}
        self.listings: dict[Any, Any] = {}
        self.guards: tuple[Guard, ...] = ()
        self._widened = 0
        self.evictions = 0
        self._limit = limit
        self._lock = lock
        # Keys seen once while the op is in churn; a key seen again is worth a program.
        self._seen: deque[int] = deque(maxlen=4 * limit)
        self._churn = False
        self._failed_recordings = 0

    def worth_recording(self, key: Any) -> bool:
        """Whether a missed call should be recorded. Once the bound has been reached, only a key seen before is: an op whose shapes
        keep changing then runs its rule directly, and neither fills the cache nor pays for recording. Nor does an op whose
        recordings have never yielded a program."""
        with self._lock:
            if self._failed_recordings >= _MAX_FAILED_RECORDINGS and not self.programs:
                return False
            if len(self.programs) < self._limit and not self._churn:
                return True
            self._churn = True
            mark = hash(key)
            if mark in self._seen:
                return True
            self._seen.append(mark)
            return False

    def store(self, key: Any, run: Callable[..., Any], listing: Any, guards: tuple[Guard, ...] | None = None) -> None:
        """Keep a program; the oldest goes when the bound is reached. One under a key of other `guards` than the table's is not."""
        with self._lock:
            if guards is not None and guards != self.guards:
                return  # another thread has widened the key meanwhile
            if key not in self.programs and len(self.programs) >= self._limit:
                oldest = next(iter(self.programs))
                del self.programs[oldest]
                self.listings.pop(oldest, None)
                self.evictions += 1
            self.programs[key] = run
            self.listings[key] = listing

    def widen(self, guards: Iterable[Guard], exact: tuple[Guard, ...]) -> tuple[Guard, ...]:
        """All guards, now that a rule of the op has read these: the old ones and the new, or `exact`, those that separate all calls
        apart, once that is less to read or new ones keep coming. Programs under other guards are dropped; handlers that hold
        their dict keep an empty one."""
        with self._lock:
            wanted = dict.fromkeys((*self.guards, *guards))
            if self._widened >= _WIDENINGS or len(wanted) > 2 * len(exact) or wanted.keys() >= set(exact):
                wanted = dict.fromkeys(exact)
            if tuple(wanted) != self.guards:
                self.guards = tuple(wanted)
                self._widened += 1
                self.programs.clear()
                self.listings.clear()
                self.programs = {}
            return self.guards

    def now(self) -> tuple[tuple[Guard, ...], dict[Any, Callable[..., Any]]]:
        """The guards and the programs that are kept under them, from one moment."""
        with self._lock:
            return self.guards, self.programs

    def forget(self) -> None:
        """Drop every program and what was learnt of the op's calls."""
        with self._lock:
            self.programs.clear()
            self.listings.clear()
            self._seen.clear()
            self._churn = False
            self._failed_recordings = 0

    def recording_failed(self) -> None:
        """Note that a recording could not become a program (it reads data, or has effects)."""
        with self._lock:
            self._failed_recordings += 1

    def replace(self, key: Any, run: Callable[..., Any], guards: tuple[Guard, ...] | None = None) -> None:
        """Put a compiled function in the place of a recorded program, unless that was evicted meanwhile or keys were widened."""
        with self._lock:
            if key in self.programs and (guards is None or guards == self.guards):
                self.programs[key] = run

    def why_missed(self, key: Any) -> str:
        """Which facts of `key` differ from those of the other stored key that is nearest to it, each by its guard."""
        with self._lock:
            stored = [other for other in self.programs if other != key]
            listing = next((one for one in self.listings.values() if isinstance(one, Program)), None)
            labels = key_labels(listing.op, self.guards) if listing is not None else ()
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
    """A cache of programs. Pass one to several modes (``cache=``) to share it; modes with equal backends share one anyway.

    Args:
        limit_per_op: the most programs of one op; the oldest is evicted first.

    Raises:
        ArgumentError: for a limit that is not a positive integer.

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
            raise ArgumentError(f"limit_per_op must be an integer from 1 up, not {limit_per_op!r}")
        self._limit = limit_per_op
        self._lock = free_in_child(threading.RLock())
        self._spaces: dict[Hashable, dict[OpOverload, OpPrograms]] = {}

    def space(self, owner: Hashable) -> dict[OpOverload, OpPrograms]:
        """Return the programs of one backend and one set of rules, which no other backend or rules share.

        Args:
            owner: identifies the backend and the rules.
        """
        with self._lock:
            found = self._spaces.get(owner)
            if found is None:
                found = self._spaces[owner] = {}
            return found

    def of(self, space: dict[OpOverload, OpPrograms], op: OpOverload) -> OpPrograms:
        """Return the programs of an op, an empty table at first.

        Args:
            space: a result of `space`.
            op: the op.
        """
        with self._lock:
            found = space.get(op)
            if found is None:
                found = space[op] = OpPrograms(self._limit, self._lock)
            return found

    def info(self) -> CacheInfo:
        """Return the number of cached and evicted programs, and the limit per op."""
        with self._lock:
            tables = [table for space in self._spaces.values() for table in space.values()]
            return CacheInfo(sum(len(t.programs) for t in tables), sum(t.evictions for t in tables), self._limit)

    def clear(self) -> None:
        """Forget every program; the modes that use the cache record again."""
        with self._lock:
            for space in self._spaces.values():
                for table in space.values():
                    table.forget()


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
