"""Ask eager whether it refuses a call: run torch's own CPU kernel on copies of the arguments."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.tensors import has_values
from eagerdecomp.eager.observe import Caught, copied, leaves_of, mapped, on_meta
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import arguments_of, facts_of, tensors_in

__all__ = ["lacks_workspace", "refusal"]

#: Calls that take or return more elements are not run, because that may take long.
_MOST_ELEMENTS = 1_000_000
_KEYS = ("CPU", "CompositeExplicitAutograd", "CompositeImplicitAutograd")


def refusal(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | None:
    """Return the error that eager raises for a call.

    Args:
        op: the overload.
        args: positional arguments; they are copied, and nothing is written.
        kwargs: keyword arguments.

    Returns:
        The error; None if eager accepts the call, or if it cannot be asked: for ops of other libraries, which may have effects, ops
        without a CPU kernel, large calls, tensors without values or of special layouts, and the workspaces of rules.
    """
    tensors = [*tensors_in([*args, *kwargs.values()])]
    if op.namespace not in TORCH_NAMESPACES or not any(has_kernel(op, key) for key in _KEYS):
        return None
    if not all(map(has_values, tensors)) or lacks_workspace(op, args, kwargs):
        return None
    if any(isinstance(value, torch.UntypedStorage) for value in args):  # its bytes are a device's
        return None
    if _size(tensors) > _MOST_ELEMENTS or _size_of_results(op, args, kwargs) > _MOST_ELEMENTS:
        return None
    with Caught() as caught, warnings.catch_warnings(), no_current_modes(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # the mode has warned, or will
        given, named = copied(op, args, kwargs, home=True)
        op(*given, **named)
    return caught.error


def lacks_workspace(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether torch's kernel would read beyond the empty workspace that a rule made for it, and crash."""
    if not facts_of(op).reads_workspace_of:
        return False
    names = [argument.name for argument in facts_of(op).arguments]
    return not arguments_of(op, args, kwargs)[names.index("workspace")].numel()


def _size(values: Iterable[Any]) -> int:
    return sum(one.numel() for one in values if isinstance(one, Tensor))


def _size_of_results(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> int:
    """Return the number of elements that a call returns, by its meta kernel; 0 if it cannot run."""
    takes_device = any(argument.name == "device" for argument in facts_of(op).arguments)
    with Caught(), warnings.catch_warnings(), no_current_modes():
        warnings.simplefilter("ignore")
        given = [mapped(value, _without_generator) for value in args]
        named = {name: mapped(value, _without_generator) for name, value in kwargs.items()}
        named |= {"device": "meta"} if takes_device else {}
        return _size(leaves_of(op(*given, **named)))
    return 0


def _without_generator(value: Any) -> Any:
    return None if isinstance(value, torch.Generator) else on_meta(value)
