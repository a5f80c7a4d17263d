"""Release locks in a forked child, because the thread that held a lock does not exist there."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

__all__ = ["free_in_child"]

_Lock = TypeVar("_Lock")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def free_in_child(lock: _Lock) -> _Lock:
    """Register a lock to be released in the child of `os.fork`, and return it.

    Acquiring all locks before the fork instead could deadlock, if the holder of a lock waits for the thread that forks.
    """
    _locks.add(lock)
    return lock


def _free() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
