"""Whether an error raised inside a library rule is an error that eager PyTorch raises for the same call.

A rule may fail where eager does not: a decomposition of torch calls `view` on strides that it cannot view. Such an error is a
failed route, and the next rule is tried. Every other error is the program's own and propagates. Nothing here runs unless an error
was raised.

The question is asked at each level that an error passes, innermost first: of the kernel that raised it, then of the op of each rule
under way. The op's own kernel for fake tensors decides whether eager accepts a call with these dtypes, shapes and strides.
- These kernels check less than eager does: many accept dtypes and dimensions that eager rejects. So an error counts only if strides
  caused it: the same call with contiguous tensors raises nothing. Any other error is final and propagates through every level.
- Where eager rejects the call at which the error began, and accepts the call of an outer op, the rule of that op failed.
"""

from __future__ import annotations

import dis
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

__all__ = ["eager_accepts", "judge_kernel_error", "last_asked", "make_final", "may_be_failed_route", "reason_of_failure"]

_PACKAGE = str(Path(__file__).parents[1])
_RAISE = dis.opmap["RAISE_VARARGS"]

# Where an error keeps the op that was last asked about it, or `_FINAL`.
_MARK = "_eagerdecomp_asked"
_FINAL = "final"


def eager_accepts(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the op's kernel for fake tensors accepts a call; False too where there is no such kernel, or data decides."""
    if has_kernel(op, "CompositeExplicitAutograd") and not has_kernel(op, "CPU") and meta_is_decomposition(op):
        # Eager runs this C++ composition. torch's decomposition in Python stands for it, and accepts more dtypes.
        return _accepts(call_at_key(op, "CompositeExplicitAutograd"), op, args, kwargs)
    if _accepts(op, op, args, kwargs):
        return True
    # torch registers decompositions as such kernels: those may fail by strides as rules do.
    facts = facts_of(op)
    asked_again = facts.is_functional and not facts.rejects_strides and meta_is_decomposition(op)
    return asked_again and _accepts(op, op, args, kwargs, contiguous=True)


def _accepts(
    run: Callable[..., Any], op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], *, contiguous: bool = False
) -> bool:
    tensors = [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Tensor)]
    if facts_of(op).mutated and any(isinstance(one, FakeTensor) for one in tensors):
        return False  # the call would change them
    fakes = mode_of_fakes(tensors)

    def fake(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        made = value if isinstance(value, FakeTensor) else fakes.from_tensor(value.detach(), static_shapes=True)
        return made.contiguous() if contiguous else made

    with Caught() as caught, handling_fakes(fakes), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # they are not of the program's own calls
        run(*[mapped(value, fake) for value in args], **{name: mapped(value, fake) for name, value in kwargs.items()})
    return caught.error is None


def make_final(error: Exception) -> None:
    """Let an error propagate through every rule under way."""
    setattr(error, _MARK, _FINAL)


def last_asked(error: Exception) -> Any:
    """The op last asked about an error that propagates; None for an error that no op was asked about."""
    return getattr(error, _MARK, None)


def may_be_failed_route(error: Exception) -> bool:
    """Whether an error could be a rule's failure at all."""
    never = (EagerDecompError, MemoryError, torch.OutOfMemoryError, RecursionError, Warning)
    return last_asked(error) != _FINAL and not isinstance(error, never)


def judge_kernel_error(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> None:
    """Make the error of a kernel final, unless only the strides of its arguments made it raise: then the rule may have failed."""
    if last_asked(error) is None:
        by_strides = may_be_failed_route(error) and not eager_accepts(op, args, kwargs)
        if by_strides and _accepts(op, op, args, kwargs, contiguous=True):
            setattr(error, _MARK, op)
        else:
            make_final(error)


def reason_of_failure(rule: Rule, args: Sequence[Any], kwargs: Mapping[str, Any], error: Exception) -> str:
    """Return why a library rule failed for a call by raising this error; "" if the error propagates."""
    if not may_be_failed_route(error):
        return ""
    op = rule.op
    begun_here = last_asked(error) is None
    # Kernels for fake tensors check less than eager. Strides must be the only cause of an error that the rule raises itself.
    if begun_here and not _accepts(rule, op, args, kwargs, contiguous=True):
        make_final(error)
        return ""
    # A composition that eager runs itself makes the calls that eager makes, and raises what eager raises.
    eagers_own = rule.source in ("composite", "explicit") and not has_kernel(op, "CPU")
    if eagers_own or not eager_accepts(op, args, kwargs):
        setattr(error, _MARK, op)
        return ""
    if begun_here and _is_deliberate(error):  # a check of this very op, which the kernel for fake tensors lacks
        make_final(error)
        return ""
    return f"raised {type(error).__name__}, which eager does not: {_first_line(error)}"


def _is_deliberate(error: Exception) -> bool:
    """Whether a check of the library raised the error, in eager's words, or a C++ kernel that has no code for a dtype."""
    trace = error.__traceback__
    if trace is None:
        return True
    while trace.tb_next is not None:
        trace = trace.tb_next
    code = trace.tb_frame.f_code
    if code.co_code[trace.tb_lasti] != _RAISE:
        return isinstance(error, NotImplementedError)
    return code.co_filename.startswith(_PACKAGE)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
