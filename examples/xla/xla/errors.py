"""Keep Python errors of a backward pass. torch calls the device guard while an error is pending, and would lose the error.

Python cannot return from a call that began with a pending error. So the guard stores the error, and `backward()` raises it.
"""

from __future__ import annotations

import atexit
import ctypes
from typing import Any

import torch
from torch.autograd import graph

__all__ = ["Guard", "patch"]

#: Raises the pending error. A ctypes call checks for one at its end; Python's builtins may skip the check.
_raise_pending = ctypes.PYFUNCTYPE(None)(("PyErr_Occurred", ctypes.pythonapi))

#: The stored errors.
_stored: list[BaseException] = []


def _wait_for_autograd_threads() -> None:
    """Run a backward pass on the device, so that its autograd thread releases the objects of the failed pass.

    The thread needs the interpreter for that. If it asks for the interpreter while Python shuts down, the process ends with
    SIGABRT.
    """
    leaf = torch.empty(1, device=torch._C._get_privateuse1_backend_name(), requires_grad=True)
    torch.autograd.backward(leaf.view(1), leaf.detach())


class Guard(torch._C._acc.DeviceGuard):
    """The device guard. C++ calls it while it unwinds frames after an error."""

    def type_(self) -> Any:
        try:
            _raise_pending()
        except BaseException as error:  # `backward` raises it again, whatever it is
            _stored.append(error)
        return torch._C._autograd.DeviceType.PrivateUse1


def patch() -> None:
    """Make ``backward()`` and `torch.autograd.grad` raise the stored error instead of a SystemError."""
    run_backward = graph._engine_run_backward

    def run(*args: Any, **kwargs: Any) -> Any:
        try:
            return run_backward(*args, **kwargs)
        except BaseException as error:
            atexit.unregister(_wait_for_autograd_threads)
            atexit.register(_wait_for_autograd_threads)
            if not (_stored and isinstance(error, SystemError)):
                raise
            raise _stored.pop() from None
        finally:
            _stored.clear()

    graph._engine_run_backward = run
    torch.autograd._engine_run_backward = run  # type: ignore[attr-defined]
