"""Notes on errors that a backend's own kernels and predicates raise: the op, the call, and the op that was being decomposed.

Kernels run with nothing around them once their first calls were checked. So the notes are made where an error arrives: where a
handler catches it anyway, and otherwise in the mode, from the frames of the traceback.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any

from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.errors import EagerDecompError, KernelError
from eagerdecomp.host.notes import add_note
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import call_text, describe_call
from eagerdecomp.rules.rule import place_of

__all__ = ["code_of", "is_own_kernel", "note_call", "note_error"]

# Attribute of an error: the op whose kernel or predicate raised it, until the op that was being decomposed is noted too.
_RAISED_BY = "_eagerdecomp_raised_by"

#: Number of ops that a note names if they share one function.
_SHOWN = 4


def is_own_kernel(op: OpOverload, kernel: Callable[..., Any]) -> bool:
    """Return whether a kernel of an op is the backend's own, not torch's."""
    return kernel is not op and kernel is not builtin(op)


def note_call(
    error: Exception, op: OpOverload, run: Callable[..., Any], kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Note which call of an op raised an error in its kernel or its predicate.

    Args:
        error: the error.
        op: the op.
        run: the kernel or predicate.
        kind: ``"kernel"`` or ``"predicate"``.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    if not _is_noted(error):
        _note(error, str(op), f"in the {kind} {place_of(run)} of {op}\n  called as: {describe_call(op, args, kwargs)}")


def note_error(backend: Backend, error: Exception, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Complete the notes of an error that a call of the user's program raised, if a kernel or a predicate of the backend raised it.

    Args:
        backend: the backend.
        error: the error.
        op: the op that the program called.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    kernel = backend.kernels.get(op)
    if not _is_noted(error) and kernel is not None and is_own_kernel(op, kernel) and backend.ops.predicate(op) is None:
        note_call(error, op, kernel, "kernel", args, kwargs)
    if not _is_noted(error) and (backend.kernels or backend.ops.has_predicates):
        _note_frame(error, _functions_of(backend))
    if not _is_noted(error):
        return
    raised_by = error.op if isinstance(error, KernelError) else getattr(error, _RAISED_BY)
    if raised_by != str(op):
        add_note(error, f"while decomposing {describe_call(op, args, kwargs)}")
    setattr(error, _RAISED_BY, str(op))


def _is_noted(error: Exception) -> bool:
    return isinstance(error, KernelError) or hasattr(error, _RAISED_BY)


def _note(error: Exception, raised_by: str, note: str) -> None:
    if not isinstance(error, EagerDecompError):  # their messages name the op
        add_note(error, note)
        setattr(error, _RAISED_BY, raised_by)


def _note_frame(error: Exception, functions: Mapping[CodeType, Sequence[tuple[OpOverload, Callable[..., Any], str]]]) -> None:
    """Note the outermost frame of a traceback that runs one of these functions."""
    trace = error.__traceback__
    while trace is not None:
        found = functions.get(trace.tb_frame.f_code)
        if found:
            ops = [str(op) for op, _, _ in found]
            _, run, kind = found[0]
            named = ", ".join(ops[:_SHOWN]) + (", ..." if len(ops) > _SHOWN else "")
            _note(
                error,
                ops[0] if len(ops) == 1 else "",
                f"in the {kind} {place_of(run)} of {named}\n  its arguments: {_arguments(trace.tb_frame)}",
            )
            return
        trace = trace.tb_next


def _arguments(frame: FrameType) -> str:
    """Return the arguments of a running function, as they are now."""
    names, more, named, values = inspect.getargvalues(frame)
    keywords = {name: values[name] for name in names if name in values}
    extra = values.get(more, ()) if more is not None else ()
    return call_text(tuple(extra), {**keywords, **(values.get(named, {}) if named is not None else {})}, items=8)


@functools.lru_cache(maxsize=4)
def _functions_of(backend: Backend) -> Mapping[CodeType, Sequence[tuple[OpOverload, Callable[..., Any], str]]]:
    """Return the ops of each code object of the backend's own kernels and predicates."""
    found: dict[CodeType, list[tuple[OpOverload, Callable[..., Any], str]]] = {}
    kernels = [(op, kernel, "kernel") for op, kernel in backend.kernels.items() if is_own_kernel(op, kernel)]
    predicates = [(op, when, "predicate") for op in backend.ops if (when := backend.ops.predicate(op)) is not None]
    for op, run, kind in (*kernels, *predicates):
        code = code_of(run)
        if code is not None:
            found.setdefault(code, []).append((op, run, kind))
    return found


def code_of(function: Callable[..., Any]) -> CodeType | None:
    """Return the Python code of a function or callable object; None if it has none."""
    function = inspect.unwrap(function)
    while isinstance(function, functools.partial):
        function = inspect.unwrap(function.func)
    for found in (function, getattr(function, "__func__", None), inspect.getattr_static(type(function), "__call__", None)):
        if isinstance(found, FunctionType):
            return found.__code__
    return None
