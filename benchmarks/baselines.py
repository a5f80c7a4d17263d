"""The modes to compare with: a mode that only calls the op, a mode that applies torch's decomposition table, and the floor.

The floor is the least that a decomposition of one call can cost in a mode: the shortest possible mode, and a function that calls
the op's kernels one after another, without checks. The function is generated: a recorder outside our mode records the kernel calls
of one call of the op.
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

__all__ = ["Floor", "Naive", "Noop", "KernelRecorder", "dispatched_arguments", "floor", "straight_line"]


class Noop(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Call the op and do nothing else, written as in torch's examples."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return func(*args, **(kwargs or {}))


class Naive(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Decompose each op outside the set by torch's decomposition table, again at each call: the usual example of a mode.

    Args:
        ops: the ops that are not decomposed. With no ops (the usual example) the table decomposes down to prims.
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
    """The shortest possible mode: it looks up the function of an op's builtin, and calls it."""

    def __init__(self, functions: dict[Callable[..., Any], Callable[..., Any]]) -> None:
        super().__init__()
        self._functions = functions

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        function = self._functions[func._op]
        return function(*args, **kwargs) if kwargs else function(*args)

    def function_of(self, op: OpOverload) -> Callable[..., Any]:
        """Return the function that runs an op."""
        return self._functions[builtin(op)]


class KernelRecorder(DispatchMode):
    """Record the kernel calls of one call of an op as a `Program`. Enter it before the mode that decomposes.

    Args:
        op: the op.
        args: its positional arguments. Each becomes a parameter of the program; only tensors are read.
        kwargs: its keyword arguments, likewise.
    """

    def __init__(self, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> None:
        super().__init__()
        self._op = op
        self._slots: dict[int, Slot] = {}
        self._kept: list[Any] = []  # tensors whose ids are keys: they must stay alive
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
        """Return the recorded calls as a program that returns `returned`."""
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
            if found is None:  # a constant of a rule
                found = self._new(value)
                self._constants.append((found, value))
            return found
        if isinstance(value, (list, tuple)):
            return [self._read(item) for item in value] if isinstance(value, list) else tuple(self._read(item) for item in value)
        return value


class _ArgumentRecorder(DispatchMode):
    """Store the arguments of the last call."""

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.last = tuple(args), dict(kwargs or {})
        return func(*args, **(kwargs or {}))


def floor(op: OpOverload, run: Callable[[], Any], mode: AbstractContextManager[Any]) -> Floor:
    """Return the shortest mode that runs a call of an op with the kernel calls that our mode makes when warm."""
    with mode:
        for _ in range(3):  # recorded, replayed, compiled
            run()
    args, kwargs = dispatched_arguments(run)
    with KernelRecorder(op, args, kwargs) as observed, mode:
        result = run()
    return Floor({builtin(op): straight_line(observed.program(result), tuple(kwargs))})


def dispatched_arguments(run: Callable[[], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments that a mode gets for a call of one op: torch omits those that equal the schema's defaults."""
    mode = _ArgumentRecorder()
    with mode:
        run()
    return mode.last


def straight_line(program: Program, keywords: Sequence[str]) -> Callable[..., Any]:
    """Return the program as a function of the op's arguments that calls builtins. `keywords` become its keyword-only parameters."""
    function = generate(program, builtin)
    assert isinstance(function, FunctionType)
    return FunctionType(_with_keywords(function.__code__, keywords), function.__globals__) if keywords else function


def _with_keywords(code: CodeType, keywords: Sequence[str]) -> CodeType:
    positional = code.co_argcount - len(keywords)
    names = (*code.co_varnames[:positional], *keywords, *code.co_varnames[code.co_argcount :])
    return code.replace(co_argcount=positional, co_kwonlyargcount=len(keywords), co_varnames=names)
