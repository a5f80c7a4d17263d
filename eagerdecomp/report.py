"""Reports: facts of planner and runtime put into words. For now the error of a call without a route."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.diagnosis import attempts, ends, failed_ops, openers, path
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.opset import infra
from eagerdecomp.planner import Planner
from eagerdecomp.rules import NoRoute
from eagerdecomp.spelling import tensor_text, value_text

__all__ = ["describe_call", "unsupported_error"]


def describe_call(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> str:
    """A call in short: ``aten.add.Tensor(f32[2, 3], 1, alpha=2)``."""
    shown = [_describe(arg) for arg in args] + [f"{name}={_describe(value)}" for name, value in kwargs.items()]
    return f"{op}({', '.join(shown)})"


def _describe(value: Any) -> str:
    if isinstance(value, Tensor):
        return tensor_text(value)
    if isinstance(value, (list, tuple)):
        shown = ", ".join(map(_describe, value[:8])) + (f", ... {len(value)} in all" if len(value) > 8 else "")
        return f"[{shown}]"
    return value_text(value)


def unsupported_error(
    planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute
) -> UnsupportedOpError:
    """The error for a call that has no route, from what the search left behind."""
    steps = path(failure)
    return UnsupportedOpError(
        str(op),
        describe_call(op, args, kwargs),
        chain=[str(step) for step in (steps if steps[0] is op else [op, *steps])],
        missing=[str(end) for end in ends(failure)],
        tried=list(dict.fromkeys(attempts(failure))),
        openers=[[str(kernel) for kernel in kernels] for kernels in openers(planner, op, args, kwargs, failure)],
        op_set=repr(planner.backend.ops),
        hint=_hint(failure),
    )


def _hint(failure: NoRoute) -> str:
    plumbing = [str(op) for op in dict.fromkeys(failed_ops(failure)) if op in infra()]
    if not plumbing:
        return ""
    return f"{', '.join(plumbing)}: storage plumbing that every eager backend needs; `| eagerdecomp.infra()` adds it all"
