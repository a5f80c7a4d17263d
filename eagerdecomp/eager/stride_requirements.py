"""When the strides of an op's results follow from its call, so that a kernel of a backend must return them: predicates of a call.

`eager.layouts` has the table of the ops.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.observe import leaves_of, significant_strides
from eagerdecomp.eager.strides import is_channels_last, is_dense
from eagerdecomp.ops.schema import facts_of, tensors_in

__all__ = ["Determined", "always", "dense_self", "explicit_or_dense", "is_dense_alike", "memory_format_of", "never", "of_any_op"]

#: ``determined(args, kwargs)`` returns whether the strides of a call's results are determined.
Determined: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any]], bool]


def of_any_op(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the strides of an op without a predicate are determined.

    So they are for views and written tensors, for pointwise ops of inputs with the same strides, and if all tensors are contiguous.
    """
    if facts_of(op).returns_alias or facts_of(op).mutated:
        return True
    tensors = list(tensors_in([*args, *kwargs.values()]))
    if torch.Tag.pointwise in op.tags:
        return is_dense_alike(tensors)
    return all(one.is_contiguous() and suggested_memory_format(one) is torch.contiguous_format for one in tensors)


def is_dense_alike(tensors: Sequence[Tensor]) -> bool:
    """Return whether all tensors are contiguous, or all are dense with the same shape and strides (0-dim tensors are ignored)."""
    if all(tensor.is_contiguous() for tensor in tensors):
        return True
    layouts = set()
    largest = max((tensor.dim() for tensor in tensors), default=0)
    for tensor in tensors:
        if tensor.dim() == 0:
            continue
        if not is_dense(tensor) or tensor.dim() != largest:
            return False
        layouts.add((tuple(tensor.shape), significant_strides(tensor)))
    return len(layouts) <= 1


def explicit_or_dense(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the call passes a memory format or the input is dense. Then strides must match."""
    explicit = kwargs.get("memory_format") not in (None, torch.preserve_format)
    return explicit or is_dense_alike([*tensors_in([*args, *kwargs.values()])][:1])


def memory_format_of(*indices: int, mixed: bool = False) -> Determined:
    """Return a rule: strides must match if the inputs at `indices` are all contiguous or all channels_last, and none is both.

    Pooling ops, convolutions and norms return results with the memory format of their inputs. With `mixed`, the other inputs of one
    in channels_last may be contiguous: a convolution's result is then channels_last.
    """

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        formats = []
        for tensor in [leaf for index in indices for leaf in leaves_of([args[index]])]:
            planar = tensor.unsqueeze(2) if tensor.dim() == 3 else tensor  # eager computes 1-d pooling and convolutions as 2-d
            formats.append((tensor.is_contiguous(), is_channels_last(planar)))
            # Which of these eager computes in channels_last depends on the op and on the machine.
            if not tensor.is_contiguous() and (tensor.dim() == 3 or not tensor.is_floating_point()):
                return False
        alike = len({*formats}) == 1 or (mixed and formats[0] == (False, True))
        return alike and {*formats} <= {(True, False), (False, True)}

    return rule


def always(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return True: the op, or its arguments, say the strides."""
    return True


def never(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return False: torch's kernels on other devices return other strides."""
    return False


def dense_self(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether `self` is dense. Then strides must match, because view decompositions rely on them."""
    return is_dense(args[0])
