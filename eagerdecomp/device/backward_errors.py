"""Keep Python errors of a backward pass. torch calls the device guard while an error is pending, and would lose the error.

Python cannot return from a call that began with a pending error. So the guard stores the error, and `backward()` raises it.
"""

from __future__ import annotations

import atexit
import ctypes
import functools
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.python_device import DEVICE_TYPE, DeviceGuard, current_node, empty_tensor, nodes_of, wrap_backward

__all__ = ["ErrorGuard", "raise_stored_errors"]

#: Raises the pending error. A ctypes call checks for one at its end; Python's builtins may skip the check.
_raise_pending = ctypes.PYFUNCTYPE(None)(("PyErr_Occurred", ctypes.pythonapi))

#: Seconds that the thread gets at exit.
_LAST_RELEASE = 0.2

#: The autograd nodes in which errors were raised, with the errors. One thread works for the backward passes of all threads.
_stored: list[tuple[Any, BaseException]] = []


class _Nothing(torch.autograd.Function):
    """A function whose backward computes nothing."""

    @staticmethod
    def forward(ctx: Any, leaf: Tensor) -> Tensor:
        return leaf.detach()

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> None:
        return


@functools.cache
def _wait_for_autograd_threads_at_exit() -> None:
    """At exit, run a backward pass on the device, so that its autograd thread first releases the objects of earlier passes.

    The thread needs the interpreter for that. If it asks for the interpreter while Python shuts down, the process ends with
    SIGABRT. The pass calls no kernel.
    """

    def run() -> None:
        leaf = empty_tensor((), torch.float32).requires_grad_()
        torch.autograd.backward(_Nothing.apply(leaf), leaf.detach())  # type: ignore[no-untyped-call]
        time.sleep(_LAST_RELEASE)  # the thread gets the interpreter to release the objects of this pass

    atexit.register(run)


class ErrorGuard(DeviceGuard):  # type: ignore[misc]
    """The device guard. C++ calls it while it unwinds frames after an error."""

    def type_(self) -> Any:
        try:
            _raise_pending()
        except BaseException as error:  # `backward` raises it again, whatever it is
            node = current_node()
            if node is not None:
                _stored.append((node, error))
        return DEVICE_TYPE


def raise_stored_errors() -> None:
    """Make ``backward()`` and `torch.autograd.grad` raise the stored error instead of a SystemError."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def run_backward(t_outputs: Sequence[Any], *args: Any, **kwargs: Any) -> Any:
            _wait_for_autograd_threads_at_exit()
            try:
                return original(t_outputs, *args, **kwargs)
            except BaseException as error:
                stored = _take_stored(t_outputs)
                if stored is None or not isinstance(error, SystemError):
                    raise
                try:
                    raise stored from None
                finally:
                    del stored  # its traceback holds this frame

        return run_backward

    wrap_backward(make)


def _take_stored(roots: Sequence[Any]) -> BaseException | None:
    """Remove the errors of a backward pass, and return the last one."""
    nodes = nodes_of(roots) if _stored else set()
    found = [entry for entry in _stored if entry[0] in nodes]
    for entry in found:
        _stored.remove(entry)
    return found[-1][1] if found else None
