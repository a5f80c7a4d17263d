"""The cache of recorded programs, by op and key. It is bounded, shared and thread-safe, and reports why a call missed."""

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

# After recordings of this many keys that gave no program, run an op's rules without recording.
_MAX_FAILED_RECORDINGS = 3

# The share of an op's misses that are recorded if it cycles through more keys than its limit.
_SHARE_RECORDED = 1 / 16

# How often an op may get new guards; after that it is guarded by all facts of all its tensors.
_WIDENINGS = 8


@dataclass(frozen=True)
class CacheInfo:
    """Counts of one cache: cached programs, evicted programs, and the maximum number of programs per op."""

    programs: int
    evictions: int
    limit_per_op: int


class OpPrograms:
    """The programs of one op. Lookups in `programs` take no lock, since a dict lookup is atomic. Changes take the cache's lock.

    Attributes:
        guards: the facts that its rules have read of their arguments, in the order of the key; see `widen`.
        programs: key -> function that runs the call. Handlers hold this dict object.
        listings: key -> the program, for display.
    """

    __slots__ = (
        "_limit",
        "_lock",
        "_seen",
        "_spare",
        "_unrecorded",
        "_was_full",
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
        # Hashes of keys that were seen once while the op had too many keys; a key that is seen again is recorded.
        self._seen: deque[int] = deque(maxlen=4 * limit)
        self._was_full = False  # whether the limit was reached, so that keys which are seen once are no longer recorded
        self._spare = float(limit)  # how many more keys may be recorded after that
        self._unrecorded: OrderedDict[int, str] = OrderedDict()  # hash of a key -> why its recording gave no program

    def why_not_recorded(self, key: Any, most: int = 0) -> str:
        """Return why a call that missed is not worth recording; "" if it is.

        After the limit is reached, only a key that was seen before is recorded: an op whose shapes keep changing then runs its
        rules directly, without the cost of recording. So do most calls of an op that cycles through more keys than the limit, where
        each program would be evicted before its key comes again. A key whose recording gave no program is not recorded again, nor
        is an op whose recordings have never given one.

        Args:
            key: the key.
            most: a lower limit for this, if not 0.
        """
        mark = hash(key)
        with self._lock:
            if mark in self._unrecorded:
                return self._unrecorded[mark]
            if len(self._unrecorded) >= _MAX_FAILED_RECORDINGS and not self.programs:
                return next(reversed(self._unrecorded.values()))
            if len(self.programs) < (most or self._limit) and not self._was_full:
                return ""
            self._was_full = True
            self._spare = min(self._spare + _SHARE_RECORDED, self._limit)
            if mark not in self._seen:
                self._seen.append(mark)
            elif self._spare >= 1:
                self._spare -= 1
                return ""
            return "its shapes or scalars keep changing"

    def store(self, key: Any, run: Callable[..., Any], listing: Any, guards: tuple[Guard, ...] | None = None) -> None:
        """Store a program, and evict the oldest at the limit. Do nothing if `guards` are not the current guards of the op."""
        with self._lock:
            if guards is not None and guards != self.guards:
                return  # another thread has added guards
            if key not in self.programs and len(self.programs) >= self._limit:
                oldest = next(iter(self.programs))
                del self.programs[oldest]
                self.listings.pop(oldest, None)
                self.evictions += 1
            self.programs[key] = run
            self.listings[key] = listing

    def widen(self, guards: Iterable[Guard], exact: tuple[Guard, ...], always: tuple[Guard, ...] = ()) -> tuple[Guard, ...]:
        """Add guards that a rule has read, and return all guards of the op.

        `exact` are the guards for all facts of all tensors. They replace all other guards if they are cheaper to evaluate, or if
        rules keep reading new facts. Otherwise the guards `always` are added. If the guards change, all programs are dropped, and
        `programs` is a new dict: handlers that hold the old dict then find nothing in it.
        """
        with self._lock:
            wanted = dict.fromkeys((*self.guards, *guards, *always))
            if self._widened >= _WIDENINGS or len(wanted) - len(always) > 2 * len(exact) or wanted.keys() >= set(exact):
                wanted = dict.fromkeys(exact)
            if tuple(wanted) != self.guards:
                self.guards = tuple(wanted)
                self._widened += 1
                self.programs.clear()
                self.listings.clear()
                self.programs = {}
            return self.guards

    def now(self) -> tuple[tuple[Guard, ...], dict[Any, Callable[..., Any]]]:
        """Return the current guards and the programs for them, read under one lock."""
        with self._lock:
            return self.guards, self.programs

    def forget(self) -> None:
        """Drop every program, the keys that were seen and the failed recordings."""
        with self._lock:
            self.programs.clear()
            self.listings.clear()
            self._seen.clear()
            self._was_full = False
            self._unrecorded.clear()

    def recording_failed(self, key: Any, why: str) -> None:
        """Note that the recording of a call gave no program, because the rule reads data or has effects, or is too long."""
        with self._lock:
            self._unrecorded[hash(key)] = why
            if len(self._unrecorded) > 4 * self._limit:
                self._unrecorded.popitem(last=False)

    def replace(self, key: Any, run: Callable[..., Any], guards: tuple[Guard, ...] | None = None) -> None:
        """Replace a program by a compiled function, unless the program was evicted or the guards have changed."""
        with self._lock:
            if key in self.programs and (guards is None or guards == self.guards):
                self.programs[key] = run

    def why_missed(self, key: Any) -> str:
        """Return the facts in which `key` differs from the most similar stored key, each with its guard."""
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


#: An op, and whether its programs are recorded for a compile hook, beside a linked rule -> these programs.
Space = dict[tuple[OpOverload, bool], OpPrograms]


class ProgramCache:
    """A cache of programs. Pass one to several modes (``cache=``) to share it; modes with equal backends share one anyway.

    Args:
        limit_per_op: maximum number of programs per op; the oldest is evicted first.

    Raises:
        ArgumentError: if the limit is not a positive integer.

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
        self._spaces: dict[Hashable, Space] = {}

    def space(self, owner: Hashable) -> Space:
        """Return the *space* of a backend with its rules, which no other backend or rules use.

        Args:
            owner: identifies the backend and the rules.
        """
        with self._lock:
            found = self._spaces.get(owner)
            if found is None:
                found = self._spaces[owner] = {}
            return found

    def of(self, space: Space, op: OpOverload, linked: bool = False) -> OpPrograms:
        """Return the programs of an op, an empty table at first.

        Args:
            space: a result of `space`.
            op: the op.
            linked: whether they are recorded for a compile hook, beside a linked rule.
        """
        with self._lock:
            found = space.get((op, linked))
            if found is None:
                found = space[op, linked] = OpPrograms(self._limit, self._lock)
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
    """Return the cache that modes with equal backends and rules share; only the 16 most recently used caches are kept.

    With it, a ``with EagerDecompMode(...)`` inside a training loop does not record again at each step.
    """
    with _shared_lock:
        cache = _shared.pop(owner, None) or ProgramCache()
        _shared[owner] = cache
        if len(_shared) > _SHARED_LIMIT:
            _shared.popitem(last=False)
        return cache
