"""Errors that rules raise: one that eager raises for the same call is the user's; after any other one, the next rule is tried.

Eager itself is asked (`eager.verdict`), at each level that an error passes: for the op of each active rule. So a call that a rule
passes on, and that eager refuses, fails that rule, and not the user's call.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from eagerdecomp._torch.fake import needs_data
from eagerdecomp._torch.modes import fake_mode_entered
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.verdict import is_too_large, refuse
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import tensors_in
from eagerdecomp.rules.error_notes import is_noted
from eagerdecomp.rules.rule import Rule

__all__ = ["FAKE_TENSOR_ERRORS", "NotOnFakes", "may_be_failed_route", "reason_of_failure"]

#: Errors that a rule may raise for tensors without data, or for symbolic sizes.
FAKE_TENSOR_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    LookupError,
    ArithmeticError,
    AssertionError,
    AttributeError,
    struct.error,
)


class NotOnFakes(RuntimeError):
    """A rule calls an op that has no result on fake tensors, because it reads data. No other rule is tried."""


def may_be_failed_route(error: Exception, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether an error for a call may be a failed route.

    Never the library's own errors, classes of the user's program (of its modes, say), values that fake tensors lack, calls that are
    too large to ask eager about, and a fake mode's error for real tensors.
    """
    if isinstance(error, (EagerDecompError, NotOnFakes, MemoryError, torch.OutOfMemoryError, RecursionError, Warning)):
        return False
    if needs_data(error):
        return False
    if not isinstance(error, FAKE_TENSOR_ERRORS) or type(error).__module__.partition(".")[0] not in ("builtins", "torch", "struct"):
        return False
    if is_too_large(op, args, kwargs):
        return False
    tensors = [*tensors_in([*args, *kwargs.values()])]
    return not (fake_mode_entered() and tensors and not any(isinstance(one, FakeTensor) for one in tensors))


def reason_of_failure(
    rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception, *, is_last: bool = False
) -> str:
    """Return why the next rule is tried after an error of a rule; "" if the error propagates.

    It propagates from a user's rule, the body of another library's op, and a kernel or predicate of the backend.

    Args:
        rule: the rule.
        args: positional arguments of the call.
        kwargs: keyword arguments.
        error: what it raised.
        is_last: whether no other rule may run, because this one has read data, or has written to an argument.

    Raises:
        EagerDecompError: if `is_last`.
        Exception: eager's error, if eager refuses the call.
    """
    if not may_be_failed_route(error, rule.op, args, kwargs):
        return ""
    refuse(rule.op, args, kwargs)
    is_body = rule.op.namespace not in TORCH_NAMESPACES and rule.source in ("composite", "explicit")
    if rule.source == "user" or is_body or is_noted(error):
        return ""
    reason = f"raised {type(error).__name__}, which eager does not: {(str(error).splitlines() or [''])[0]}"
    if is_last:
        raise EagerDecompError(
            f"{rule.op}: its {rule} {reason}\n"
            f"  called as: {describe_call(rule.op, args, kwargs)}\n"
            "  why: it had read data or written to an argument, so no other rule was tried\n"
            "  what to do: if a kernel of the backend returns wrong numbers, fix it; else report a fault of the rule\n"
            "  test all kernels: eagerdecomp conformance MODULE:BACKEND"
        ) from error
    return reason
