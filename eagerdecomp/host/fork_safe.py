"""Locks that a forked process finds free: whoever held one was a thread that the child has not."""

from __future__ import annotations

import os
import weakref
from typing import Any, TypeVar

__all__ = ["free_in_child"]

_Lock = TypeVar("_Lock")

_locks: weakref.WeakSet[Any] = weakref.WeakSet()


def free_in_child(lock: _Lock) -> _Lock:
    """The lock itself, which a process that `os.fork` makes finds free, whichever thread held it. To wait for its holder before the
    fork instead would be a deadlock where that one waits for the thread that forks."""
    _locks.add(lock)
    return lock


def _free() -> None:
    for lock in _locks:
        lock._at_fork_reinit()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_free)
