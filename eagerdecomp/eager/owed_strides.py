"""Which results of an op must have eager's strides, and which may have their kernel's.

torch promises the layout of views, of what is written, of what is asked for by ``memory_format`` or ``stride``, of functions of
elements whose operands lie alike, and the memory format of windows, convolutions and norms. Products, reductions and the like
promise none: a kernel may return a column-major product. The conformance suite, `blame` and ``verify=`` judge kernels by this.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import leaves_of, significant_strides
from eagerdecomp.eager.strides import is_dense
from eagerdecomp.ops.schema import facts_of

__all__ = ["is_dense_alike", "owes_strides"]

_FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def owes_strides(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether the results of a call must have eager's strides."""
    facts = facts_of(op)
    if facts.returns_alias or facts.mutated:
        return True
    rule = _RULES.get(str(op))
    if rule is not None:
        return rule(args, kwargs)
    return torch.Tag.pointwise in op.tags and is_dense_alike(_tensors(args, kwargs))


def is_dense_alike(tensors: Sequence[Tensor]) -> bool:
    """Whether tensors fill their memory without gaps and all lie alike: have the same shape and strides, or are all contiguous."""
    if all(one.is_contiguous() for one in tensors):
        return True
    kinds = set()
    largest = max((one.dim() for one in tensors), default=0)
    for one in tensors:
        if one.dim() == 0:
            continue
        if not is_dense(one) or one.dim() != largest:
            return False
        kinds.add((tuple(one.shape), significant_strides(one)))
    return len(kinds) <= 1


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    return [one for one in leaves_of([*args, *kwargs.values()]) if isinstance(one, Tensor)]


def _copied(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """A format that is asked for is kept, and the layout of a tensor that fills its memory."""
    asked = kwargs.get("memory_format") not in (None, torch.preserve_format)
    return asked or is_dense_alike(_tensors(args, kwargs)[:1])


def _in_formats_of(*places: int) -> Callable[[Sequence[Any], Mapping[str, Any]], bool]:
    """Where the tensors at these places lie as channels_last or all are contiguous, and none is both.

    That is what torch promises of windows, convolutions and norms: results lie as their inputs' memory format says.
    """

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        kinds = set()
        for one in [one for place in places for one in leaves_of([args[place]])]:
            one = one.unsqueeze(2) if one.dim() == 3 else one  # eager's windows of one dimension are ones of two
            last = one.dim() in _FORMATS and one.is_contiguous(memory_format=_FORMATS[one.dim()])
            kinds.add((one.is_contiguous(), last))
        return kinds in ({(True, False)}, {(False, True)})

    return rule


def _always(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return True


def _of_dense_self(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Self's, which what is made of views counts on, where self fills its memory."""
    return is_dense(args[0])


_RULES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], bool]] = {
    **{
        f"aten.{name}": rule
        for rule, names in (
            (_copied, "_to_copy.default clone.default copy.default fill.Scalar"),
            (
                _always,
                "arange.start_step full.default full_like.default scalar_tensor.default empty.memory_format empty_strided.default "
                "rand.default randn.default randperm.default",
            ),
            (_of_dense_self, "select_scatter.default slice_scatter.default"),
            (
                _in_formats_of(0),
                "cat.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats native_group_norm.default "
                "_native_batch_norm_legit_no_training.default avg_pool2d.default max_pool2d_with_indices.default "
                "max_pool3d_with_indices.default _adaptive_avg_pool2d.default upsample_nearest2d.vec upsample_bilinear2d.vec",
            ),
            (
                _in_formats_of(0, 1),
                "native_group_norm_backward.default avg_pool2d_backward.default max_pool2d_with_indices_backward.default "
                "_adaptive_avg_pool2d_backward.default convolution.default",
            ),
            (_in_formats_of(0, 1, 2), "convolution_backward.default"),
        )
        for name in names.split()
    }
}
