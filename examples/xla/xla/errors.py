"""Errors of a mode in a backward pass: torch asks the device's guard things while one is under way, and so would lose it.

Python cannot return from a call that began with an error pending. The guard takes it over, and it is raised where the pass ends.
"""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

import torch
from torch.autograd import graph

__all__ = ["Guard", "patch"]

#: Raises what is pending: a call of this kind ends by asking for that. Python's own builtins leave it out once they are fast.
_raise_pending = ctypes.PYFUNCTYPE(None)(("PyErr_Occurred", ctypes.pythonapi))

_taken: list[BaseException] = []


def _wait_for_autograd_threads() -> None:
    """Run a backward pass on the device: its autograd thread has then dropped what the failed pass left behind.

    The thread needs the interpreter for that. A thread that asks for it while Python shuts down ends the process with SIGABRT.
    """
    leaf = torch.empty(1, device=torch._C._get_privateuse1_backend_name(), requires_grad=True)
    torch.autograd.backward(leaf.view(1), leaf.detach())


class Guard(torch._C._acc.DeviceGuard):
    """The device's guard, of which torch has the rest. C++ calls it while it leaves the frames that an error passes."""

    def type_(self) -> Any:
        try:
            _raise_pending()
        except BaseException as error:  # the border: whatever it is, `backward` raises it
            _taken.append(error)
        return torch._C._autograd.DeviceType.PrivateUse1


def patch() -> None:
    """Make ``backward()`` and `torch.autograd.grad` raise what the guard took over, where they would say that there is no error."""
    run_backward = graph._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return run_backward(*args, **kwargs)
        except BaseException as error:
            atexit.unregister(_wait_for_autograd_threads)
            atexit.register(_wait_for_autograd_threads)
            if not (_taken and isinstance(error, SystemError)):
                raise
            raise _taken.pop() from None
        finally:
            _taken.clear()

    graph._engine_run_backward = run
    torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]
