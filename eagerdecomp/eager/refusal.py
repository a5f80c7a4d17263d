"""Ask eager whether it refuses a call: run torch's own CPU kernel on copies of the arguments."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.tensors import has_values
from eagerdecomp.eager.observe import Caught, copied
from eagerdecomp.ops.passthrough import TORCH_NAMESPACES
from eagerdecomp.ops.schema import tensors_in

__all__ = ["refusal"]

#: Calls on more elements are not run, because that may take long.
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
        without a CPU kernel, large calls, and tensors without values or of special layouts.
    """
    tensors = [*tensors_in([*args, *kwargs.values()])]
    if op.namespace not in TORCH_NAMESPACES or not any(has_kernel(op, key) for key in _KEYS):
        return None
    if not all(map(has_values, tensors)) or sum(tensor.numel() for tensor in tensors) > _MOST_ELEMENTS:
        return None
    with Caught() as caught, warnings.catch_warnings(), no_current_modes(), torch.random.fork_rng(devices=[]):
        warnings.simplefilter("ignore")  # the mode has warned, or will
        given, named = copied(op, args, kwargs, home=True)
        op(*given, **named)
    return caught.error
