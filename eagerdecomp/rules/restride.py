"""Give the result of a rule the strides of eager's result."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import Wanted, iterator_strides, keep_strides
from eagerdecomp.rules.link import link_on_call

__all__ = ["elementwise_strides", "laying", "restrided", "with_eager_strides", "with_layout"]

aten = torch.ops.aten


@link_on_call  # most calls need it not, and a set without these ops still serves those
def restrided(result: Tensor, strides: Sequence[int]) -> Tensor:
    """Return the result with these strides: a view if they differ only in dimensions of size 1, else a copy."""
    lies = result.stride()
    if not result.numel() or tuple(lies) == tuple(strides):
        return result
    if all(size == 1 or here == there for size, here, there in zip(result.shape, lies, strides, strict=True)):
        return aten._reshape_alias.default(result, result.shape, strides)  # type: ignore[no-any-return]
    copy = aten.empty_strided.default(result.shape, strides, dtype=result.dtype, device=result.device)
    return aten.copy_.default(copy, result)  # type: ignore[no-any-return]


def elementwise_strides(result: Tensor, *operands: Any) -> Tensor:
    """Return the result with the strides that an elementwise kernel of these operands gives it; scalars are operands too."""
    if keep_strides(operands):
        return result
    return restrided(result, iterator_strides(result.shape, operands, result.dtype))


def with_eager_strides(fn: Callable[..., Any], wanted: Mapping[int, Wanted]) -> Callable[..., Any]:
    """Wrap the function of a rule to give the results at these positions the strides of eager's (`eager.layouts.LAYOUTS`)."""
    laid = laying(wanted)

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> Any:
        return laid(fn(*args, **kwargs), args)

    return run


def laying(wanted: Mapping[int, Wanted]) -> Callable[[Any, Sequence[Any]], Any]:
    """Return a function of a rule's result and the positional arguments, which returns the result with eager's strides.

    A linked rule returns these itself if its result and the op's first tensor are contiguous and have no dimension of size 1.
    """

    def laid(result: Any, args: Sequence[Any]) -> Any:
        if result is NotImplemented:
            return result
        if isinstance(result, Tensor):
            return with_layout(result, wanted[0](result, *args))
        return tuple(with_layout(r, wanted[i](r, *args)) if i in wanted and r is not None else r for i, r in enumerate(result))

    return laid


def with_layout(result: Tensor, strides: Sequence[int] | None) -> Tensor:
    """Return the result with these strides; for None, the result itself."""
    return result if strides is None else restrided(result, strides)
