"""Reports: facts of planner and runtime put into words. For now the error of a call without a route."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.errors import Attempt, UnsupportedOpError
from eagerdecomp.planner import Planner
from eagerdecomp.rules import NoRoute

__all__ = ["describe_call", "unsupported_error"]

_DTYPES = {"float32": "f32", "float64": "f64", "float16": "f16", "bfloat16": "bf16", "complex64": "c64", "complex128": "c128"}
_DTYPES |= {"int64": "i64", "int32": "i32", "int16": "i16", "int8": "i8", "uint8": "u8", "bool": "b8"}


def describe_call(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """A call in short: ``aten.add.Tensor(f32[2, 3], 1, alpha=2)``."""
    shown = [_describe(arg) for arg in args] + [f"{name}={_describe(value)}" for name, value in kwargs.items()]
    return f"{op}({', '.join(shown)})"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        dtype = str(value.dtype).removeprefix("torch.")
        place = "" if value.device.type == "cpu" else f" on {value.device}"
        return f"{_DTYPES.get(dtype, dtype)}{list(value.shape)}{place}"
    if isinstance(value, (list, tuple)):
        shown = ", ".join(map(_describe, value[:8])) + (f", ... {len(value)} in all" if len(value) > 8 else "")
        return f"[{shown}]"
    return repr(value)


def unsupported_error(
    planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute
) -> UnsupportedOpError:
    """The error for a call that has no route, from what the search left behind."""
    chain = _chain(failure)
    ends = list(dict.fromkeys(_ends(failure)))
    openers = list(dict.fromkeys([*((str(end),) for end in ends), (str(op),)])) if len(ends) == 1 else [(str(op),)]
    return UnsupportedOpError(
        str(op),
        describe_call(op, args, kwargs),
        chain=[str(step) for step in ([op] if chain[0] is not op else []) + chain],
        missing=[str(end) for end in ends],
        tried=list(dict.fromkeys(_attempts(failure))),
        openers=openers,
        op_set=repr(planner.backend.ops),
    )


def _chain(failure: NoRoute) -> list[OpOverload]:
    """The ops on the way to the first op without a route."""
    chain = [failure.op]
    while failure.attempts:
        nested = [inner for _, _, inner in failure.attempts if inner is not None]
        if not nested:
            break
        failure = nested[0]
        if failure.op is not chain[-1]:
            chain.append(failure.op)
    return chain


def _ends(failure: NoRoute) -> Iterator[OpOverload]:
    nested = [inner for _, _, inner in failure.attempts if inner is not None]
    if not nested:
        yield failure.op
    for inner in nested:
        yield from _ends(inner)


def _attempts(failure: NoRoute) -> Iterator[Attempt]:
    for rule, reason, inner in failure.attempts:
        yield Attempt(str(failure.op), str(rule), reason or f"needs {inner.op if inner else '?'}, which has no route")
        if inner is not None:
            yield from _attempts(inner)
