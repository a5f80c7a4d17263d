"""Errors that rules raise: one that eager raises for the same call is the user's; after any other one, the next rule is tried.

Eager itself is asked (`eager.verdict`), at each level that an error passes: for the op of each active rule. So a call that a rule
passes on, and that eager refuses, fails that rule, and not the user's call.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from eagerdecomp.eager.verdict import refusal
from eagerdecomp.errors import EagerDecompError
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


def may_be_failed_route(error: Exception) -> bool:
    """Return whether an error may be a failed route; some types never are."""
    return not isinstance(error, (EagerDecompError, NotOnFakes, MemoryError, torch.OutOfMemoryError, RecursionError, Warning))


def reason_of_failure(
    rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception, *, is_last: bool = False
) -> str:
    """Return why the next rule is tried after an error of a rule; "" if the error propagates.

    It propagates from a user's rule, from a kernel or predicate of the backend, and if `is_last`: then no other rule may run.

    Raises:
        Exception: eager's error, if eager refuses the call.
    """
    if not may_be_failed_route(error):
        return ""
    refused = refusal(rule.op, args, kwargs)
    if refused is not None:
        raise refused from None
    if is_last or rule.source == "user" or is_noted(error):
        return ""
    return f"raised {type(error).__name__}, which eager does not: {(str(error).splitlines() or [''])[0]}"
