"""Run callbacks of collectives under the modes of the thread that added them: a process group calls them in its own threads."""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import torch

from eagerdecomp._torch.modes import DispatchMode, mode_stack
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.passthrough import COLLECTIVE_NAMESPACES

__all__ = ["Callbacks", "with_modes_of_here"]

_NAMES = ("then", "add_done_callback")

_lock = free_in_child(threading.RLock())
_holders: set[Callbacks] = set()
_original_methods: dict[str, Callable[..., Any]] = {}  # original methods of torch while they are replaced


class Callbacks:
    """Makes each callback of a future run under the modes that are active when the callback is added.

    It starts to do so when a mode of the runtime first sees a collective, and stops when no mode is active. DDP's communication
    hooks compute in such callbacks (`Future.then`), which gloo runs in threads without modes.
    """

    def __init__(self) -> None:
        self._entered: list[None] = []  # one item per active mode: list append and pop are atomic
        self._seen = False

    def enter(self) -> None:
        """Count a mode that is entered."""
        self._entered.append(None)
        if self._seen:
            _patch_future(self)

    def leave(self) -> None:
        """Count a mode that is exited."""
        if self._entered:
            self._entered.pop()
        if self._seen and not self._entered:
            _unpatch_future(self)

    def passing(self, op: OpOverload) -> Callable[..., Any]:
        """Return the handler of an op that passes through."""
        if op.namespace in COLLECTIVE_NAMESPACES:
            self._seen = True
            if self._entered:
                _patch_future(self)
        return native(op)


def _patch_future(callbacks: Callbacks) -> None:
    """Replace the methods of `Future` that add callbacks, as long as any `Callbacks` needs it."""
    with _lock:
        _holders.add(callbacks)
        if not _original_methods:
            _original_methods.update({name: getattr(torch._C.Future, name) for name in _NAMES})
            for name, original in _original_methods.items():
                setattr(torch._C.Future, name, _with_modes(original))


def _unpatch_future(callbacks: Callbacks) -> None:
    """Restore the methods of `Future`, if no other `Callbacks` needs the replacements."""
    with _lock:
        _holders.discard(callbacks)
        if not _holders:
            for name, original in _original_methods.items():
                setattr(torch._C.Future, name, original)
            _original_methods.clear()


def _with_modes(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: Any, callback: Callable[..., Any]) -> Any:
        return original(self, with_modes_of_here(callback))

    return method


def with_modes_of_here(callback: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a callback to run under the modes that are active now, if the thread that calls it has no active modes."""
    modes = [mode for mode in mode_stack() if isinstance(mode, DispatchMode)]
    if not modes:
        return callback

    @functools.wraps(callback)
    def carried(*args: Any) -> Any:
        if mode_stack():  # the future was complete, so the callback runs in the same thread
            return callback(*args)
        with ExitStack() as entered:
            for mode in modes:
                entered.enter_context(mode)
            return callback(*args)

    return carried
