"""The modes to measure against: one that only passes calls on, the well-known table in a mode, and the lean floor.

The floor is what a patient person would write by hand for one op: a mode as short as a mode can be, and below it the kernels of
that op in a straight line. The line is not written by hand but observed: a mode outside ours notes every kernel call that reaches
the backend, and the notes become a function.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractContextManager
from types import CodeType, FunctionType
from typing import Any

from torch import Tensor

from eagerdecomp._torch.decomp_tables import full_table
from eagerdecomp._torch.modes import DispatchMode, TorchDispatchMode
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp.program.codegen import generate
from eagerdecomp.program.ir import KernelCall, Program, Slot, check

__all__ = ["Floor", "Naive", "Noop", "Straight", "arrival", "floor", "straight_line"]


class Noop(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Calls on, written as torch's own examples are."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Naive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The well-known example: what is not in the set is looked up in torch's table and decomposed, again at every call.

    Args:
        ops: where it stops. The example as it is mostly found stops nowhere, and ends where the table does, in prims: no ops.
    """

    def __init__(self, ops: Iterable[OpOverload] = ()) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._ops = frozenset(ops)
        self._table = full_table()

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if func in self._ops:
            return func(*args, **kwargs)
        entry = self._table.get(func)
        if entry is not None:
            with self:
                result = entry(*args, **kwargs)
            if result is not NotImplemented:
                return result
        with self:
            result = func.decompose(*args, **kwargs)
        return func(*args, **kwargs) if result is NotImplemented else result


class Floor(DispatchMode):
    """The lean mode: a dictionary keyed by the builtin behind an overload, no checks, no counts."""

    def __init__(self, lines: dict[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self._lines = lines

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        line = self._lines[func._op]
        return line(*args, **kwargs) if kwargs else line(*args)

    def line(self, op: OpOverload) -> Callable[..., Any]:
        """Return the function that runs an op."""
        return self._lines[builtin(op)]


class Straight(DispatchMode):
    """Notes the kernel calls that come out of what is entered after it, as a `Program` of one op's call.

    Args:
        op: the op that is called.
        args, kwargs: what it is called with; every value is a parameter, and those that are no tensors are never read.
    """

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self._op = op
        self._slots: dict[int, Slot] = {}
        self._kept: list[Any] = []  # an id is of use only while its tensor lives
        self._made = 0
        self._constants: list[tuple[Slot, Tensor]] = []
        self.calls: list[KernelCall] = []
        self._parameters = tuple(self._parameter(value) for value in (*args, *kwargs.values()))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        read = tuple(self._read(value) for value in args)
        named = tuple((name, self._read(value)) for name, value in (kwargs or {}).items())
        result = func(*args, **(kwargs or {}))
        packed = isinstance(result, (list, tuple))
        results = tuple(self._result(value) for value in (result if packed else (result,)))
        self.calls.append(KernelCall(func, read, named, results, packed))
        return result

    def program(self, returned: Any) -> Program:
        """Return the recorded calls as a program that returns `result`."""
        result = self._read(returned)
        return check(Program(self._op, self._parameters, tuple(self._constants), tuple(self.calls), result))

    def _new(self, value: Any) -> Slot:
        slot = Slot(self._made)
        self._made += 1
        if isinstance(value, Tensor):
            self._slots[id(value)] = slot
            self._kept.append(value)
        return slot

    def _parameter(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            return self._slots.get(id(value)) or self._new(value)
        if isinstance(value, (list, tuple)) and any(isinstance(item, Tensor) for item in value):
            return [self._parameter(item) for item in value]
        return self._new(value)

    def _result(self, value: Any) -> Slot | None:
        return self._new(value) if isinstance(value, Tensor) and id(value) not in self._slots else None

    def _read(self, value: Any) -> Any:
        if isinstance(value, Tensor):
            found = self._slots.get(id(value))
            if found is None:  # a tensor that a rule keeps
                found = self._new(value)
                self._constants.append((found, value))
            return found
        if isinstance(value, (list, tuple)):
            return [self._read(item) for item in value] if isinstance(value, list) else tuple(self._read(item) for item in value)
        return value


class _Listener(DispatchMode):
    """Notes how the last call arrived."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.last = tuple(args), dict(kwargs or {})
        return func(*args, **(kwargs or {}))


def floor(op: OpOverload, run: Callable[[], Any], mode: AbstractContextManager[Any]) -> Floor:
    """The lean mode with the kernels of a call in a straight line, as our mode calls them once it is warm."""
    with mode:
        for _ in range(3):  # recorded, replayed, compiled
            run()
    args, kwargs = arrival(run)
    with Straight(op, args, kwargs) as observed, mode:
        result = run()
    return Floor({builtin(op): straight_line(observed.program(result), tuple(kwargs))})


def arrival(run: Callable[[], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """The arguments with which a call of one op arrives at a mode: without those that equal the schema's defaults."""
    mode = _Listener()
    with mode:
        run()
    return mode.last


def straight_line(program: Program, keywords: Sequence[str]) -> Callable[..., Any]:
    """The program as a function of the op's own arguments, its kernels called as builtins; the last parameters are those
    that the op is given by keyword."""
    function = generate(program, builtin)
    assert isinstance(function, FunctionType)
    return FunctionType(_with_keywords(function.__code__, keywords), function.__globals__) if keywords else function


def _with_keywords(code: CodeType, keywords: Sequence[str]) -> CodeType:
    positional = code.co_argcount - len(keywords)
    names = (*code.co_varnames[:positional], *keywords, *code.co_varnames[code.co_argcount :])
    return code.replace(co_argcount=positional, co_kwonlyargcount=len(keywords), co_varnames=names)
