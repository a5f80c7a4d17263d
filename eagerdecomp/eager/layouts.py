"""The strides of eager's results, for ops whose entries in torch's tables return other strides.

These entries return correct values, with the strides of the ops that they call. For inputs that are dense but not contiguous, these
differ from the strides of eager's kernels. The table has eager's strides for each such op.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.promotion import promoted
from eagerdecomp.eager.strides import in_order, is_dense, memory_order

__all__ = ["LAYOUTS", "all_contiguous", "as_contiguous", "as_operands", "in_format_of", "iterator_strides", "with_eager_strides"]

aten = torch.ops.aten

#: ``wanted(result, *args)`` returns the strides of a result; None if its strides are right. Each fact that it reads becomes a guard
#: of the program, so it first reads facts that most calls share.
Wanted: TypeAlias = Callable[..., "Sequence[int] | None"]


def with_eager_strides(entry: Callable[..., Any], wanted: Mapping[int, Wanted]) -> Callable[..., Any]:
    """Wrap a table entry to copy the results at these positions if their strides are not eager's."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = entry(*args, **kwargs)
        if result is NotImplemented:
            return result
        if isinstance(result, Tensor):
            return _lay(result, wanted[0](result, *args))
        return tuple(_lay(r, wanted[i](r, *args)) if i in wanted and r is not None else r for i, r in enumerate(result))

    return run


def all_contiguous(values: Sequence[Any]) -> bool:
    """Return whether the tensors among the values are contiguous and have one shape, so that elementwise results are too."""
    operands = [value for value in values if isinstance(value, Tensor)]
    return all(operand.is_contiguous() for operand in operands) and all(
        operand.shape == operands[0].shape for operand in operands[1:] if operand.dim()
    )


def as_contiguous(x: Tensor) -> Tensor:
    """Return `x` itself if it is contiguous, else a contiguous copy."""
    return x if x.is_contiguous() else aten.clone.default(x, memory_format=torch.contiguous_format)


def in_format_of(result: Tensor, given: Tensor | None) -> Tensor:
    """Return `result` in the memory format that ATen's `suggest_memory_format` returns for `given`; contiguous if that is None."""
    form = torch.contiguous_format if given is None else suggested_memory_format(given)
    if result.is_contiguous(memory_format=form):
        return result
    return aten.clone.default(result, memory_format=form)  # type: ignore[no-any-return]


def _lay(result: Tensor, strides: Sequence[int] | None) -> Tensor:
    if strides is None:
        return result
    lies = zip(result.shape, result.stride(), strides, strict=True)
    if not result.numel() or all(size == 1 or here == there for size, here, there in lies):
        return result
    copy = aten.empty_strided.default(result.shape, strides, dtype=result.dtype, device=result.device)
    return aten.copy_.default(copy, result)  # type: ignore[no-any-return]


def _in_order(shape: Sequence[int], innermost_first: Sequence[int]) -> list[int]:
    strides, step = [0] * len(shape), 1
    for dim in innermost_first:
        strides[dim] = step
        step *= max(shape[dim], 1)
    return strides


def _contiguous(result: Tensor, *args: Any) -> Sequence[int] | None:
    if all_contiguous(args) or result.is_contiguous():
        return None
    return _in_order(result.shape, range(result.dim() - 1, -1, -1))


def _channels_last_as_input(position: int) -> Wanted:
    """Return channels-last strides if `suggest_memory_format` of this argument is channels last, else contiguous strides."""

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        given, dims = args[position], result.dim()
        if given.dim() == dims and suggested_memory_format(given) in (torch.channels_last, torch.channels_last_3d):
            return _in_order(result.shape, [1, *range(dims - 1, 1, -1), 0])
        return _contiguous(result, *args)

    return wanted


def as_operands(count: int | None = None, *, promotes: bool = True) -> Wanted:
    """Return the strides of an elementwise kernel's result.

    Args:
        count: the number of operands, which are the first tensors of the call; None for all tensors.
        promotes: whether the operands are first converted to the result's dtype.
    """

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        operands = [arg for arg in args if isinstance(arg, Tensor)][:count]
        if all_contiguous(operands):
            return None
        return iterator_strides(result.shape, operands, result.dtype if promotes else None)

    return wanted


def _as_compared(result: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of a bool result, whose operands are first converted to their promoted dtype."""
    operands = [arg for arg in args if isinstance(arg, Tensor)][:2]
    return None if all_contiguous(operands) else iterator_strides(result.shape, operands, promoted(operands))


def iterator_strides(shape: Sequence[int], operands: Sequence[Tensor], computed_in: torch.dtype | None = None) -> Sequence[int]:
    """Return the strides that ATen's `TensorIterator` gives a result of `shape`.

    The first operand that distinguishes two dimensions determines their order. Operands of another dtype than `computed_in` are
    copied first, so their expanded dimensions do not count as expanded.
    """
    dims = len(shape)
    spread = [_spread(operand, shape, computed_in or operand.dtype) for operand in operands]
    order = list(range(dims - 1, -1, -1))  # innermost first; an insertion sort, as in TensorIteratorBase::reorder_dimensions
    for start in range(1, dims):
        here = start
        for other in range(start - 1, -1, -1):
            compared = _compare(order[other], order[here], spread, shape)
            if compared < 0:
                break
            if compared > 0:
                order[other], order[here] = order[here], order[other]
                here = other
    return _in_order(shape, order)


def _spread(operand: Tensor, shape: Sequence[int], computed_in: torch.dtype) -> list[int]:
    """Return the operand's strides for the whole shape: 0 for broadcast dimensions."""
    missing = len(shape) - operand.dim()
    kept = operand.dtype is computed_in or is_dense(operand)
    strides = operand.stride() if kept else in_order(operand.shape, memory_order(operand))
    own = zip(operand.shape, strides, shape[missing:], strict=True)
    return [0] * missing + [0 if size == 1 != whole else stride for size, stride, whole in own]


def _compare(left: int, right: int, spread: Sequence[Sequence[int]], shape: Sequence[int]) -> int:
    for strides in spread:
        if not strides[left] or not strides[right]:
            continue
        if strides[left] != strides[right]:
            return -1 if strides[left] < strides[right] else 1
        if shape[left] > shape[right]:
            return 1
    return 0


def _all(wanted: Wanted, count: int = 1) -> dict[int, Wanted]:
    return dict(zip(range(count), itertools.repeat(wanted), strict=False))


#: op -> result position -> its strides in eager.
LAYOUTS: dict[str, dict[int, Wanted]] = {
    # Elementwise kernels whose entries use the strides of another operand.
    "aten.hardsigmoid_backward.default": _all(as_operands(2)),
    "aten.hardswish_backward.default": _all(as_operands(2)),
    "aten.softplus_backward.default": _all(as_operands(2)),
    "aten.xlogy.Tensor": _all(as_operands(2)),
    "aten.copysign.Tensor": _all(as_operands(2)),
    "aten.special_xlog1py.default": _all(as_operands(2)),
    "aten.hardtanh_backward.default": _all(as_operands(2)),
    "aten.logit_backward.default": _all(as_operands(2)),
    "aten.native_dropout_backward.default": _all(as_operands(2)),
    "aten.div.Tensor_mode": _all(as_operands(2)),
    "aten.floor_divide.default": _all(as_operands(2)),
    "aten.logical_and.default": _all(_as_compared),
    "aten.logical_or.default": _all(_as_compared),
    "aten.logical_xor.default": _all(_as_compared),
    "aten.complex.default": _all(as_operands(2, promotes=False)),
    "aten.polar.default": _all(as_operands(2, promotes=False)),
    "aten.hypot.default": _all(as_operands(2)),
    "aten.logaddexp.default": _all(as_operands(2)),
    "aten.logaddexp2.default": _all(as_operands(2)),
    "aten.heaviside.default": _all(as_operands(2)),
    "aten.lcm.default": _all(as_operands(2)),
    "aten.lerp.Tensor": _all(as_operands(3)),
    "aten.select_scatter.default": _all(as_operands(1)),
    "aten.slice_scatter.default": _all(as_operands(1)),
    # Kernels that always allocate a contiguous result.
    "aten.pow.Scalar": _all(_contiguous),
    "aten.mse_loss_backward.default": _all(_contiguous),
    "aten.smooth_l1_loss_backward.default": _all(_contiguous),
    "aten.huber_loss_backward.default": _all(_contiguous),
    "aten.log_sigmoid_forward.default": _all(_contiguous, 2),
    "aten._log_softmax_backward_data.default": _all(_contiguous),
    "aten._softmax_backward_data.default": _all(_contiguous),
    "aten.upsample_nearest1d.default": _all(_contiguous),
    "aten._upsample_nearest_exact1d.default": _all(_contiguous),
    "aten.baddbmm.default": _all(_contiguous),
    # Kernels that return either channels last or contiguous results.
    "aten._adaptive_avg_pool2d.default": _all(_channels_last_as_input(0)),
    "aten.channel_shuffle.default": _all(_channels_last_as_input(0)),
    "aten.max_unpool2d.default": _all(_channels_last_as_input(0)),
    "aten.native_batch_norm.default": _all(_channels_last_as_input(0)),
    "aten._native_batch_norm_legit.default": _all(_channels_last_as_input(0)),
    "aten._native_batch_norm_legit.no_stats": _all(_channels_last_as_input(0)),
    "aten._batch_norm_with_update_functional.default": _all(_channels_last_as_input(0)),
    "aten._batch_norm_with_update.default": _all(_channels_last_as_input(0)),
    "aten.batch_norm_backward.default": _all(_channels_last_as_input(1)),
    "aten.native_batch_norm_backward.default": _all(_channels_last_as_input(1)),
}
