"""Dispatch modes of torch: enter, exit, and remove them for a while."""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from eagerdecomp._torch.dynamo import skipped_by_dynamo
from eagerdecomp._torch.private import private

if TYPE_CHECKING:
    from torch.utils._python_dispatch import TorchDispatchMode as TorchDispatchMode
    from typing_extensions import Self
else:
    TorchDispatchMode = private("torch.utils._python_dispatch.TorchDispatchMode", "dispatch modes")

__all__ = [
    "DispatchMode",
    "TorchDispatchMode",
    "above_autograd",
    "active_fake_mode",
    "fake_mode_entered",
    "leave_modes",
    "mode_stack",
    "modes_entered",
    "no_current_modes",
    "pop_mode",
    "push_mode",
    "python_kernels",
    "with_torch_function",
    "without_torch_dispatch",
    "without_torch_function",
]

#: A guard that disables all `__torch_function__` modes and subclass methods. Modes such as
#: `torch.set_default_device` must act on the user's calls, but not on the calls of a rule.
without_torch_function = private("torch._C.DisableTorchFunction", "dispatch modes")

#: A guard that enables `__torch_function__` modes again inside `without_torch_function`.
with_torch_function = private("torch._C._EnableTorchFunction", "`torch.compile`")

#: A guard that disables all dispatch modes and `__torch_dispatch__` of subclasses. It takes a twentieth of the time of
#: `no_current_modes`, but no mode can be entered in it.
without_torch_dispatch = private("torch._C._DisableTorchDispatch", "recorded values")

#: A context manager that removes every dispatch mode from the stack, so that only modes that are entered in it are active.
no_current_modes = private("torch.utils._python_dispatch._disable_current_modes", "dispatch modes")

#: A context manager in which kernels in Python come before those in C++. Python kernels keep sizes symbolic; C++ kernels turn them
#: into ints.
python_kernels = private("torch._dispatch.python.enable_python_dispatcher", "symbolic sizes")

#: Returns the active dispatch modes of this thread, outermost first, without the one whose handler is running.
mode_stack: Callable[[], list[Any]] = private("torch.utils._python_dispatch._get_current_dispatch_mode_stack", "dispatch modes")

#: Enters a dispatch mode without setting the process-wide flags, which `TorchDispatchMode.__enter__` leaves wrong if several
#: threads enter modes.
push_mode: Callable[[Any], None] = private("torch._C._push_on_torch_dispatch_stack", "dispatch modes")

#: Exits the innermost mode. It is a C function, so that no interrupt can come before it runs.
pop_mode: Callable[[], Any] = functools.partial(private("torch._C._pop_torch_dispatch_stack", "dispatch modes"), None)


def modes_entered() -> tuple[int, int]:
    """Return the number of dispatch modes and of function modes that are active in this thread."""
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def leave_modes(before: tuple[int, int]) -> None:
    """Exit the modes that were entered since `modes_entered` returned `before`, and that an interrupt kept from exiting."""
    while torch._C._len_torch_dispatch_stack() > before[0]:
        pop_mode()
    while torch._C._len_torch_function_stack() > before[1]:
        torch._C._pop_torch_function_stack()


#: Returns the `FakeTensorMode` that is active in this thread, or None. It runs below all other modes, in whichever order they were
#: entered.
active_fake_mode: Callable[[], Any] = functools.partial(
    private("torch._C._get_dispatch_mode", "fake tensors"), torch._C._TorchDispatchModeKey.FAKE
)


def fake_mode_entered() -> bool:
    """Return whether a `FakeTensorMode` is active in this thread."""
    return active_fake_mode() is not None


#: A guard for a mode's handler that restores the dispatcher's state at the call of the op.
_AsCalled = private("torch._C._RestorePythonTLSSnapshot", "gradients of rules")


@contextmanager
def above_autograd() -> Iterator[None]:
    """Enable autograd inside a mode's handler, and disable all else that may act on the calls.

    It disables modes, autocast, `__torch_function__`, the user's saved-tensor hooks (they would get tensors that are not the
    user's) and anomaly detection (it reads values). Another mode must be entered inside, because the dispatcher expects one.
    """
    checked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with _AsCalled(), torch._C._DisableAutocast(), without_torch_function(), no_current_modes():
        tracing = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
        if checked[0]:
            torch.set_anomaly_enabled(False)  # a process-wide flag, so set it only if it is on
        try:
            yield
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(tracing)
            if checked[0]:
                torch.set_anomaly_enabled(*checked)


class DispatchMode(TorchDispatchMode):
    """A faster `TorchDispatchMode`: its handler has no wrapper, and it sets no process-wide flags.

    torch wraps a mode's handler in a Dynamo guard, which takes 0.6 us per op. Here the handler is marked for Dynamo once, with its
    class.
    """

    #: Whether the mode stays the innermost one of these modes, and so gets the program's calls before modes that are entered in it.
    stays_innermost = False

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()  # type: ignore[no-untyped-call]
        if "__torch_dispatch__" in vars(cls):
            skipped_by_dynamo(cls.__torch_dispatch__)

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False

    def __enter__(self) -> Self:
        before = modes_entered()
        try:
            if torch.compiler.is_dynamo_compiling():
                torch._dynamo.graph_break()  # a mode entered inside a compiled function ends the graph there, as torch's own do
            push_mode(self)
            if before[0] and not self.stays_innermost:
                _move_below_innermost(self)
            return self
        except BaseException:  # an interrupt after the push
            leave_modes(before)
            raise

    def __exit__(self, *exc: object) -> None:
        try:
            if torch.compiler.is_dynamo_compiling():
                torch._dynamo.graph_break()
        finally:
            left = pop_mode()
            if left is not self:
                _leave_below(self, left)


def _move_below_innermost(mode: Any) -> None:
    """Move the mode that was just entered below the modes that stay innermost."""
    above = []
    for other in reversed(mode_stack()[:-1]):
        if not getattr(other, "stays_innermost", False):
            break
        above.append(other)
    if above:
        for _ in range(1 + len(above)):
            pop_mode()
        for one in (mode, *reversed(above)):
            push_mode(one)


def _leave_below(mode: Any, left: Any) -> None:
    """Exit a mode that is not the innermost one; the others stay active.

    The exit of one of torch's modes removes whichever mode is innermost. If an earlier exit removed `mode` in this way, `left`
    stays removed, with a warning.

    Args:
        mode: the mode to exit.
        left: the innermost mode, which is off the stack already.
    """
    others = [left]
    while mode in mode_stack():
        found = pop_mode()
        if found is mode:
            break
        others.append(found)
    else:
        name, other = type(mode).__name__, type(left).__name__
        warnings.warn(
            f"{name} was not entered any more when it was left, and the {other} that was entered last is left instead; "
            "leave modes in the reverse order in which they were entered",
            UserWarning,
            stacklevel=4,
        )
        return
    for one in reversed(others):
        push_mode(one)


for _frame in (DispatchMode.__enter__, DispatchMode.__exit__):
    skipped_by_dynamo(_frame)
