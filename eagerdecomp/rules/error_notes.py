"""Notes on errors that a backend's own kernels and predicates raise: the op, the call, and the op that was being decomposed.

Kernels run with nothing around them once their first calls were checked. So the notes are made where an error arrives: where a
handler catches it anyway, and otherwise in the mode, from the frames of the traceback.

A `TypeError` of a kernel leaves the mode as the cause of a `KernelError`: methods such as `Tensor.__mul__` turn a `TypeError` into
``NotImplemented``, and Python then raises one that names neither the kernel nor its fault. Any error of a predicate is the cause of
a `KernelError`: it says nothing about the call, so no other rule is tried, and no tool may count the call as not supported.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, FrameType, FunctionType
from typing import Any, NamedTuple

import torch

from eagerdecomp._torch.fake import needs_data
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.verdict import refusal, refuse
from eagerdecomp.errors import EagerDecompError, KernelError
from eagerdecomp.host.notes import add_note
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.call_text import call_text, describe_call
from eagerdecomp.ops.opset import Predicate
from eagerdecomp.ops.schema import tensors_in
from eagerdecomp.rules.rule import place_of

__all__ = ["code_of", "device_of", "is_noted", "is_own_kernel", "note_call", "note_error", "predicate_holds"]

# Attribute of an error: the op whose kernel or predicate raised it, until the op that was being decomposed is noted too.
_RAISED_BY = "_eagerdecomp_raised_by"

# Attribute of an error: the `_Place` where it was raised.
_RAISED_IN = "_eagerdecomp_raised_in"

#: Errors that say nothing about a kernel.
_OUT_OF_MEMORY = (MemoryError, torch.OutOfMemoryError)

#: Number of ops that a note names if they share one function.
_SHOWN = 4


class _Place(NamedTuple):
    """The kernel or predicate that raised an error, and its call, as texts."""

    ops: str
    kind: str
    place: str
    call: str


def is_own_kernel(op: OpOverload, kernel: Callable[..., Any]) -> bool:
    """Return whether a kernel of an op is the backend's own, not torch's."""
    return kernel is not op and kernel is not builtin(op)


def note_call(error: Exception, op: OpOverload, kernel: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Note the call for which the kernel of a backend or a device raised an error, unless eager refuses the call too.

    Args:
        error: the error.
        op: the op.
        kernel: the backend's kernel; the op itself for torch's, which is noted for calls on a device.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.
    """
    if is_noted(error) or isinstance(error, _OUT_OF_MEMORY) or not _is_not_eagers(op, kernel, args, kwargs):
        return
    if refusal(op, args, kwargs) is None:
        _note_call(error, op, kernel, "kernel", args, kwargs)


def _is_not_eagers(op: OpOverload, kernel: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return is_own_kernel(op, kernel) or bool(device_of(args, kwargs))


def _note_call(
    error: Exception, op: OpOverload, run: Callable[..., Any], kind: str, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> None:
    """Note which call of an op raised an error in its kernel or its predicate."""
    if is_noted(error):
        return
    own = is_own_kernel(op, run)
    where = place_of(run) if own else f"on {device_of(args, kwargs)}"
    place = _Place(str(op), kind, where, describe_call(op, args, kwargs))
    named = f"{kind} {where} of {op}" if own else f"{kind} of {op} {where}"
    _note(error, str(op), place, f"in the {named}\n  called as: {place.call}")


def device_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
    """Return the type of the device on which torch's kernel runs a call, as text; "" for the CPU and for tensors without data."""
    types = {one.device.type for one in tensors_in([*args, *kwargs.values()]) if not isinstance(one, FakeTensor)}
    return next(iter(sorted(types - {"cpu", "meta"})), "")


def predicate_holds(op: OpOverload, when: Predicate, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a predicate supports a call.

    Raises:
        KernelError: if the predicate raises, for a call that eager accepts.
        Exception: eager's error, if the predicate raises for a call that eager refuses.
    """
    try:
        return bool(when(*args, **kwargs))
    except Exception as error:
        leaves = isinstance(error, EagerDecompError) or needs_data(error)
        if not leaves:
            refuse(op, args, kwargs)
        _note_call(error, op, when, "predicate", args, kwargs)
        if leaves:
            raise
        raise _kernel_error(error, getattr(error, _RAISED_IN)) from error


def _kernel_error(error: Exception, where: _Place) -> KernelError:
    return KernelError(where.ops, where.place, f"raised {type(error).__name__}: {error}", where.call, where.kind)


def note_error(backend: Backend, error: Exception, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Complete the notes of an error that a call of the user's program raised, if a kernel or a predicate of the backend raised it.

    Args:
        backend: the backend.
        error: the error.
        op: the op that the program called.
        args: positional arguments of the call.
        kwargs: keyword arguments of the call.

    Raises:
        KernelError: for a `TypeError` of a kernel or predicate, unless eager raises one too.
        Exception: eager's error, if a kernel of the backend raised the error of a call that eager refuses.
    """
    kernel = backend.kernels.get(op, op if op in backend.ops else None)
    if not is_noted(error) and kernel is not None and _is_not_eagers(op, kernel, args, kwargs):
        refuse(op, args, kwargs)
        # If the op has a predicate, rules may have run the call.
        if backend.ops.predicate(op) is None and not isinstance(error, _OUT_OF_MEMORY):
            _note_call(error, op, kernel, "kernel", args, kwargs)
    if not is_noted(error) and (backend.kernels or backend.ops.has_predicates):
        _note_frame(error, op, _functions_of(backend))
    if not is_noted(error):
        return
    raised_by = error.op if isinstance(error, KernelError) else getattr(error, _RAISED_BY)
    where: _Place | None = getattr(error, _RAISED_IN, None)
    shown = error
    if where is not None and isinstance(error, TypeError) and not isinstance(refusal(op, args, kwargs), TypeError):
        shown = _kernel_error(error, where)
    if raised_by != str(op):
        add_note(shown, f"while decomposing {describe_call(op, args, kwargs)}")
    setattr(shown, _RAISED_BY, str(op))
    if shown is not error:
        raise shown from error


def is_noted(error: Exception) -> bool:
    """Return whether a kernel or predicate of the backend raised an error, for a call that eager accepts."""
    return isinstance(error, KernelError) or hasattr(error, _RAISED_BY)


def _note(error: Exception, raised_by: str, place: _Place, note: str) -> None:
    if not isinstance(error, EagerDecompError):  # their messages name the op
        add_note(error, note)
        setattr(error, _RAISED_BY, raised_by)
        setattr(error, _RAISED_IN, place)


def _note_frame(
    error: Exception, op: OpOverload, functions: Mapping[CodeType, Sequence[tuple[OpOverload, Callable[..., Any], str]]]
) -> None:
    """Note the outermost frame of a traceback that runs one of these functions; `op` is the op that the program called."""
    trace = error.__traceback__
    while trace is not None:
        found = functions.get(trace.tb_frame.f_code)
        if found:
            found = [one for one in found if one[0] is op] or found  # one factory may have made the kernels of several ops
            ops = [str(other) for other, _, _ in found]
            _, run, kind = found[0]
            named = ", ".join(ops[:_SHOWN]) + (", ..." if len(ops) > _SHOWN else "")
            place = _Place(named, kind, place_of(run), _arguments(trace.tb_frame))
            note = f"in the {kind} {place.place} of {named}\n  its arguments: {place.call}"
            _note(error, ops[0] if len(ops) == 1 else "", place, note)
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
