"""The error of a call without a route: what the search left behind, put into words."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.diagnosis.no_route import attempts, ends, failed_ops, openers, path
from eagerdecomp.eager.unsupported_layouts import outside_layouts
from eagerdecomp.errors import UnsupportedOpError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import infra
from eagerdecomp.planner.planner import Planner
from eagerdecomp.rules.rule import NoRoute

__all__ = ["unsupported_error"]


def unsupported_error(
    planner: Planner, op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute, *, may_fall_back: bool = True
) -> UnsupportedOpError:
    """The error for a call that has no route, from what the search left behind.

    Args:
        may_fall_back: whether such calls could be asked to run natively.
    """
    steps = path(failure)
    return UnsupportedOpError(
        str(op),
        describe_call(op, args, kwargs),
        chain=[str(step) for step in (steps if steps[0] is op else [op, *steps])],
        missing=[str(end) for end in ends(failure)],
        tried=list(dict.fromkeys(attempts(failure))),
        openers=[[str(kernel) for kernel in kernels] for kernels in openers(planner, op, args, kwargs, failure)],
        op_set=repr(planner.backend.ops),
        hint=outside_layouts(op, args, kwargs) or _hint(planner, failure),
        may_fall_back=may_fall_back,
    )


def _hint(planner: Planner, failure: NoRoute) -> str:
    plumbing = [str(op) for op in dict.fromkeys(failed_ops(failure)) if op in infra()]
    if not plumbing:
        return ""
    lacks = "lacks a part of" if any(op in planner.backend.ops for op in infra()) else "lacks"
    return (
        f"the op set {lacks} eagerdecomp.infra(), storage plumbing that every eager backend needs, here {', '.join(plumbing)}: "
        "`| eagerdecomp.infra()` adds it all"
    )
