"""The calls whose results must have eager's strides. In all other calls, a kernel may choose the strides.

The strides of these results are determined:

- views, and tensors that the op writes in place
- results of calls whose tensors are all contiguous
- results whose call passes ``memory_format`` or ``stride``
- matrix products, which are contiguous whatever the strides of their operands
- pointwise ops whose inputs have the same strides; pooling ops, convolutions and norms whose inputs have the same memory format

Of other tensors, reductions and other ops may return any strides: torch's own kernels differ between devices. The mode does not
change the strides of a kernel's result. The conformance suite, `blame` and ``verify=`` compare strides by these rules.

Also where strides are determined, those of dimensions of size 1 may differ. In copies, joins, pooling ops, convolutions and norms
they count as far as a memory format follows from them (``visible``, see `Strides`). In other ops they do not count, because NumPy,
for example, chooses them in its own way.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.observe import Strides, leaves_of, significant_strides
from eagerdecomp.eager.strides import is_channels_last, is_dense
from eagerdecomp.ops.schema import facts_of

__all__ = ["is_dense_alike", "strides_of_kernel"]


def _must_match(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the results of a call must have eager's strides."""
    facts = facts_of(op)
    if facts.returns_alias or facts.mutated:
        return True
    rule = _RULES.get(str(op))
    if rule is not None:
        return rule(args, kwargs)
    tensors = _tensors(args, kwargs)
    if torch.Tag.pointwise in op.tags:
        return is_dense_alike(tensors)
    return all(one.is_contiguous() and suggested_memory_format(one) is torch.contiguous_format for one in tensors)


def strides_of_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    """Return which strides of its results a kernel must share with eager's for a call."""
    if not _must_match(op, args, kwargs):
        return "any"
    return "visible" if str(op) in _RULES else "significant"


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


def _tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Tensor]:
    return [leaf for leaf in leaves_of([*args, *kwargs.values()]) if isinstance(leaf, Tensor)]


def _explicit_or_dense(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether the call passes a memory format or the input is dense. Then strides must match."""
    explicit = kwargs.get("memory_format") not in (None, torch.preserve_format)
    return explicit or is_dense_alike(_tensors(args, kwargs)[:1])


def _memory_format_of(*indices: int, mixed: bool = False) -> Callable[[Sequence[Any], Mapping[str, Any]], bool]:
    """Return a rule: strides must match if the inputs at `indices` are all contiguous or all channels_last, and none is both.

    Pooling ops, convolutions and norms return results with the memory format of their inputs. With `mixed`, some inputs may be
    contiguous and others channels_last: a convolution's result is then channels_last.
    """

    def rule(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
        formats = set()
        for tensor in [leaf for index in indices for leaf in leaves_of([args[index]])]:
            tensor = tensor.unsqueeze(2) if tensor.dim() == 3 else tensor  # eager computes 1-d pooling and convolutions as 2-d
            formats.add((tensor.is_contiguous(), is_channels_last(tensor)))
        return formats <= {(True, False), (False, True)} and (mixed or len(formats) == 1)

    return rule


def _always(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return True


def _never(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    return False


def _dense_self(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether `self` is dense. Then strides must match, because view decompositions rely on them."""
    return is_dense(args[0])


_RULES: Mapping[str, Callable[[Sequence[Any], Mapping[str, Any]], bool]] = {
    **{
        f"aten.{name}": rule
        for rule, names in (
            (_explicit_or_dense, "_to_copy.default clone.default copy.default fill.Scalar"),
            (
                _always,
                "arange.start_step full.default full_like.default scalar_tensor.default empty.memory_format empty_strided.default "
                "rand.default randn.default randperm.default mm.default bmm.default addmm.default baddbmm.default",
            ),
            # torch's kernel for CUDA returns places transposed, and each library of transforms has strides of its own.
            (_never, "nonzero.default _fft_c2c.default _fft_c2r.default _fft_r2c.default"),
            (_dense_self, "select_scatter.default slice_scatter.default"),
            (
                _memory_format_of(0),
                "cat.default _native_batch_norm_legit.default _native_batch_norm_legit.no_stats native_group_norm.default "
                "_native_batch_norm_legit_no_training.default avg_pool2d.default max_pool2d_with_indices.default "
                "max_pool3d_with_indices.default _adaptive_avg_pool2d.default upsample_nearest2d.vec upsample_bilinear2d.vec",
            ),
            (
                _memory_format_of(0, 1),
                "native_group_norm_backward.default avg_pool2d_backward.default max_pool2d_with_indices_backward.default "
                "_adaptive_avg_pool2d_backward.default",
            ),
            (_memory_format_of(0, 1, mixed=True), "convolution.default"),
            (_memory_format_of(0, 1, 2), "convolution_backward.default"),
        )
        for name in names.split()
    }
}
