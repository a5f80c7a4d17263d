"""Decide whether eager PyTorch raises the same error as a library rule for the same call.

A rule may fail for a call that eager accepts: a decomposition of torch calls `view` on strides that cannot be viewed. Such an error
is a failed route, and the next rule is tried. Every other error comes from the user's program and propagates. This module runs only
after an error.

The check runs at each level that an error passes, innermost first: for the kernel that raised it, then for the op of each active
rule. The op's meta kernel decides whether eager accepts a call with these dtypes, shapes and strides.

- Meta kernels check less than eager: many accept dtypes and dimensions that eager rejects. So an error is a failed route only if
  strides caused it: the same call with contiguous tensors raises nothing. Any other error is final and propagates.
- An error of torch's decomposition is a failed route if another rule had none: that rule may handle calls for which it raises.
- If eager rejects the inner call that raised the error, but accepts the call of an outer op, the rule of the outer op failed.
"""

from __future__ import annotations

import dis
import struct
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.decomp_tables import meta_is_decomposition
from eagerdecomp._torch.fake import handling_fakes, mode_of_fakes
from eagerdecomp._torch.ops import OpOverload, call_at_key, has_kernel
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.eager.observe import Caught, leaves_of, mapped
from eagerdecomp.errors import EagerDecompError
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.rule import Rule

__all__ = [
    "FAKE_TENSOR_ERRORS",
    "NotOnFakes",
    "eager_accepts",
    "judge_kernel_error",
    "last_checked_op",
    "make_final",
    "may_be_failed_route",
    "reason_of_failure",
]

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

    def __init__(self, words: str) -> None:
        super().__init__(words)
        make_final(self)


_PACKAGE = str(Path(__file__).parents[1])

# Attribute of an error: the op for which it was checked last, or `_FINAL`.
_MARK = "_eagerdecomp_asked"
_FINAL = "final"


def eager_accepts(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the op's meta kernel accepts a call; False if there is none, or if it needs data."""
    if has_kernel(op, "CompositeExplicitAutograd") and not has_kernel(op, "CPU") and meta_is_decomposition(op):
        # Eager runs this C++ composition. The meta kernel is torch's Python decomposition, which accepts more dtypes.
        return _accepts(call_at_key(op, "CompositeExplicitAutograd"), op, args, kwargs)
    if _accepts(op, op, args, kwargs):
        return True
    # torch registers decompositions as meta kernels. Like rules, they may fail because of strides.
    facts = facts_of(op)
    asked_again = facts.is_functional and not facts.rejects_strides and meta_is_decomposition(op)
    return asked_again and _accepts(op, op, args, kwargs, contiguous=True)


def _accepts(
    run: Callable[..., Any], op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], *, contiguous: bool = False
) -> bool:
    tensors = [leaf for leaf in leaves_of([*args, *kwargs.values()]) if isinstance(leaf, Tensor)]
    if facts_of(op).mutated and any(isinstance(tensor, FakeTensor) for tensor in tensors):
        return False  # the call would change them
    fakes = mode_of_fakes(tensors)

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        made = value if isinstance(value, FakeTensor) else fakes.from_tensor(value.detach(), static_shapes=True)
        return made.contiguous() if contiguous else made

    with Caught() as caught, handling_fakes(fakes), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the user did not make this call
        run(*[mapped(value, fake) for value in args], **{name: mapped(value, fake) for name, value in kwargs.items()})
    return caught.error is None


def make_final(error: Exception) -> None:
    """Mark an error as final: it propagates through every active rule."""
    setattr(error, _MARK, _FINAL)


def last_checked_op(error: Exception) -> Any:
    """Return the op for which an error was checked last; None if it was not checked."""
    return getattr(error, _MARK, None)


def may_be_failed_route(error: Exception) -> bool:
    """Return whether an error may be a failed route; some types never are."""
    never = (EagerDecompError, MemoryError, torch.OutOfMemoryError, RecursionError, Warning)
    return last_checked_op(error) != _FINAL and not isinstance(error, never)


def judge_kernel_error(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
    """Mark the error of a kernel as final, unless only the strides of its arguments caused it: then the rule may have failed."""
    if last_checked_op(error) is None:
        by_strides = may_be_failed_route(error) and not eager_accepts(op, args, kwargs)
        if by_strides and _accepts(op, op, args, kwargs, contiguous=True):
            setattr(error, _MARK, op)
        else:
            make_final(error)


def reason_of_failure(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception, unrouted: bool = False) -> str:
    """Return why this error of a library rule is a failed route; "" if the error must propagate.

    `unrouted`: whether an earlier rule, which may handle this call, has no route.
    """
    if not may_be_failed_route(error):
        return ""
    op = rule.op
    raised_here = last_checked_op(error) is None
    if unrouted and raised_here and rule.source == "table" and not _is_deliberate(error):
        return f"raised {type(error).__name__}: {_first_line(error)}"
    # Meta kernels check less than eager, so an error that the rule itself raises is a failed route only if strides alone cause it.
    if raised_here and not _accepts(rule, op, args, kwargs, contiguous=True):
        make_final(error)
        return ""
    # Eager runs this composition itself, so it raises the same errors.
    runs_in_eager = rule.source in ("composite", "explicit") and not has_kernel(op, "CPU")
    if runs_in_eager or not eager_accepts(op, args, kwargs):
        setattr(error, _MARK, op)
        return ""
    if raised_here and _is_deliberate(error):  # a check of this op that the meta kernel lacks
        make_final(error)
        return ""
    return f"raised {type(error).__name__}, which eager does not: {_first_line(error)}"


def _is_deliberate(error: Exception) -> bool:
    """Return whether a check of this library raised the error, or a C++ kernel that does not implement a dtype."""
    trace = error.__traceback__
    if trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if not any(one.offset == trace.tb_lasti and one.opname == "RAISE_VARARGS" for one in dis.get_instructions(code)):
        return isinstance(error, NotImplementedError)
    return code.co_filename.startswith(_PACKAGE)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
