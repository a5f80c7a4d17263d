"""Dispatch modes of torch: entered, left, and taken off the stack for a while."""

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
    "fake_mode_entered",
    "leave_modes",
    "mode_stack",
    "modes_entered",
    "no_current_modes",
    "pop_mode",
    "push_mode",
    "python_kernels",
    "with_torch_function",
    "without_torch_function",
]

#: Removes every `__torch_function__` mode and subclass hook while it is held: ambient modes such as
#: `torch.set_default_device` act on the user's calls, never on the calls a rule makes.
without_torch_function = private("torch._C.DisableTorchFunction", "dispatch modes")

#: Lets `__torch_function__` modes act again while it is held within `without_torch_function`.
with_torch_function = private("torch._C._EnableTorchFunction", "`torch.compile`")

#: Takes every dispatch mode off the stack while it is held, so that modes entered under it are the only ones.
no_current_modes = private("torch.utils._python_dispatch._disable_current_modes", "dispatch modes")

#: While it is held, kernels written in Python go before those in C++: they keep a symbolic size open, where those take its number.
python_kernels = private("torch._dispatch.python.enable_python_dispatcher", "symbolic sizes")

#: The dispatch modes entered in this thread, the outermost first, without the one whose handler runs.
mode_stack: Callable[[], list[Any]] = private("torch.utils._python_dispatch._get_current_dispatch_mode_stack", "dispatch modes")

#: Enters a dispatch mode without the process-global flags that `TorchDispatchMode.__enter__` leaves wrong between threads.
push_mode: Callable[[Any], None] = private("torch._C._push_on_torch_dispatch_stack", "dispatch modes")

#: Leaves the mode that was entered last. No function of Python's, on whose way in an interrupt could come.
pop_mode: Callable[[], Any] = functools.partial(private("torch._C._pop_torch_dispatch_stack", "dispatch modes"), None)


def modes_entered() -> tuple[int, int]:
    """Return how many dispatch modes and function modes are entered in this thread."""
    return torch._C._len_torch_dispatch_stack(), torch._C._len_torch_function_stack()


def leave_modes(before: tuple[int, int]) -> None:
    """Leave the modes that were entered since `modes_entered` gave these numbers, and that an interrupt kept from being left."""
    while torch._C._len_torch_dispatch_stack() > before[0]:
        pop_mode()
    while torch._C._len_torch_function_stack() > before[1]:
        torch._C._pop_torch_function_stack()


def fake_mode_entered() -> bool:
    """Return whether a `FakeTensorMode` is entered in this thread. It runs below all other modes, whichever was entered first."""
    return torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None


#: Restores, in a mode's handler, what of the dispatcher was on when the op was called.
_AsCalled = private("torch._C._RestorePythonTLSSnapshot", "gradients of rules")


@contextmanager
def above_autograd() -> Iterator[None]:
    """Let autograd act again inside a mode's handler, by itself: no modes, no autocast, no `__torch_function__`, none of the user's
    hooks on saved tensors (which would be handed tensors that are not theirs), no anomaly checks (which read values).

    Another mode must be entered under it: the dispatcher still counts on one.
    """
    checked = torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()
    with _AsCalled(), torch._C._DisableAutocast(), without_torch_function(), no_current_modes():
        tracing = torch._C._autograd._saved_tensors_hooks_set_tracing(True)
        if checked[0]:
            torch.set_anomaly_enabled(False)  # of the whole process: left alone where it is off
        try:
            yield
        finally:
            torch._C._autograd._saved_tensors_hooks_set_tracing(tracing)
            if checked[0]:
                torch.set_anomaly_enabled(*checked)


class DispatchMode(TorchDispatchMode):
    """A `TorchDispatchMode` with a short way in: no wrapper around the handler, no process-global flags at enter and exit.

    torch wraps a mode's handler in a Dynamo guard, which costs 0.6 us an op; here Dynamo is reported once, when the class is made.
    """

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
            return self
        except BaseException:  # an interrupt behind the push
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


def _leave_below(mode: Any, left: Any) -> None:
    """Leave a mode that others were entered after. `left` is the last of those, already off the stack; all of them stay entered.

    torch's own modes leave whichever was entered last. Where one of them took this mode off the stack, `left` is the one to go.
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
