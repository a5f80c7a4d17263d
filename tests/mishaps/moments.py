"""Interrupts at chosen moments, and the state that must be as it was after them."""

from __future__ import annotations

import ast
import contextlib
import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import torch

import eagerdecomp as ed

PACKAGE = str(Path(ed.__file__).parent)


class Interrupted(KeyboardInterrupt):
    """The Ctrl-C that is raised here: where, and after how many moments."""


@functools.cache
def _withs(file: str) -> frozenset[int]:
    tree = ast.parse(Path(file).read_text(encoding="utf-8"))
    return frozenset(node.lineno for node in ast.walk(tree) if isinstance(node, (ast.With, ast.AsyncWith)))


def at_line(number: int, run: Callable[[], Any]) -> tuple[Any, int]:
    """`run()` with an interrupt before the line of this number among those that it executes of the library: what it gave, or the
    interrupt; and how many lines there were.

    Left out is a ``with`` on its way out, which Python reports as the ``with`` line once more: there no signal is looked for.
    """
    seen = 0
    entered: dict[FrameType, set[int]] = {}

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal seen
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "return":
            entered.pop(frame, None)
        if event == "line":
            if frame.f_lineno in _withs(frame.f_code.co_filename):
                before = entered.setdefault(frame, set())
                if frame.f_lineno in before:
                    return trace
                before.add(frame.f_lineno)
            seen += 1
            if seen - 1 == number:
                raise Interrupted(_place(frame))
        return trace

    return _under(sys.settrace, sys.gettrace(), trace, run), seen


def at_call(number: int, run: Callable[[], Any]) -> tuple[Any, int]:
    """The same, with an interrupt where Python looks for signals: as a function of Python's begins, or one of C has come back.
    Counted are those of the library and of `contextlib`. Left out are the ways into an ``__exit__`` and out of a generator, where
    nobody can fix it: Python has not begun to leave."""
    seen = 0

    def trace(frame: FrameType, event: str, _: Any) -> None:
        nonlocal seen
        file = frame.f_code.co_filename
        if event in ("call", "c_return") and (file.startswith(PACKAGE) or file == contextlib.__file__):
            if event == "call" and (frame.f_code.co_name == "__exit__" or (frame.f_lasti > 0 and frame.f_code.co_flags & 0x20)):
                return
            seen += 1
            if seen - 1 == number:
                raise Interrupted(f"{event} {_place(frame)}")

    return _under(sys.setprofile, sys.getprofile(), trace, run), seen


def _place(frame: FrameType) -> str:
    return f"{Path(frame.f_code.co_filename).name}:{frame.f_lineno} {frame.f_code.co_name}"


def _under(setter: Callable[[Any], None], before: Any, trace: Any, run: Callable[[], Any]) -> Any:
    setter(trace)
    try:
        return run()
    except Interrupted as interrupt:
        return interrupt.with_traceback(None)
    finally:
        setter(before)


def state() -> dict[str, Any]:
    """Return the part of torch's state in this thread that the library changes while it runs."""
    return {
        "dispatch modes": torch._C._len_torch_dispatch_stack(),
        "function modes": torch._C._len_torch_function_stack(),
        "torch function": torch._C._is_torch_function_enabled(),
        "included keys": str(torch._C._dispatch_tls_local_include_set()),
        "excluded keys": str(torch._C._dispatch_tls_local_exclude_set()),
        "grad": torch.is_grad_enabled(),
        "autocast": torch._C._is_any_autocast_enabled(),
        "anomaly": torch.is_anomaly_enabled(),
    }


def in_another_thread(run: Callable[[], Any], seconds: float = 60.0) -> Any:
    """Return `run()` from another thread; fail where that does not end: a lock was left held."""
    got: list[Any] = []
    thread = threading.Thread(target=lambda: got.append(run()), daemon=True)
    thread.start()
    thread.join(seconds)
    assert not thread.is_alive(), "a lock was left held"
    return got[0]
