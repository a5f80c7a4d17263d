"""Elementwise ops on large tensors, block by block: what their formulas hold in between is as large as a block, which stays in the
processor's cache, instead of fresh pages of the system as large as the result."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import facts_of

__all__ = ["BLOCK_OPS", "large_from", "run_in_blocks"]

aten = torch.ops.aten

#: Elements of a block for each thread: blocks of vectors alone, so that each element is computed as it is in the whole tensor.
_BLOCK = 1 << 15

#: Tensors of fewer elements lose more by more calls and by the copy of the result than they gain.
_LARGE = 1 << 19

#: The same for formulas of two ops, which hold one tensor beside the result.
_LARGE_FOR_TWO = 1 << 22

#: The ops that `run_in_blocks` calls beside the op itself.
BLOCK_OPS = (aten.empty.memory_format, aten.view.default, aten.split_with_sizes.default, aten.copy_.default)

_PLAIN_TENSORS = frozenset({Tensor, torch.nn.Parameter})


def large_from(op: OpOverload, used: Set[OpOverload] | None = None) -> int:
    """Return the number of elements from which on a call of an op is to run in blocks; 0 for an op that is not elementwise.

    Args:
        used: the ops that its formula calls, if that is known.
    """
    if not facts_of(op).is_elementwise:
        return 0
    return _LARGE_FOR_TWO if used is not None and len(used - {op, aten._to_copy.default}) <= 2 else _LARGE


def run_in_blocks(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Run an elementwise op on contiguous tensors of one shape, and on tensors without dimensions, block by block.

    Returns:
        The result; None for other calls, which are to run as they are.
    """
    tensors = [arg for arg in args if isinstance(arg, Tensor) and arg.dim()]
    if not tensors or not _PLAIN_TENSORS.issuperset(map(type, tensors)):
        return None
    shape = tensors[0].shape
    for one in tensors:
        if not one.is_cpu or one.layout is not torch.strided or one.shape != shape:
            return None
        if not one.is_contiguous() or one.is_neg() or one.is_conj():
            return None
    block = _BLOCK * torch.get_num_threads()
    whole, rest = divmod(tensors[0].numel(), block)
    if whole < 2:
        return None
    sizes = [block] * whole + [rest] * bool(rest)
    columns = [
        aten.split_with_sizes.default(aten.view.default(arg, [-1]), sizes)
        if isinstance(arg, Tensor) and arg.dim()
        else [arg] * len(sizes)
        for arg in args
    ]
    result: Any = None
    targets: Sequence[Tensor] = ()
    for at, row in enumerate(zip(*columns, strict=True)):
        piece = run(*row, **kwargs)
        if result is None:
            if not isinstance(piece, Tensor) or piece.dim() != 1 or piece.shape[0] != block:
                return None
            result = aten.empty.memory_format(shape, dtype=piece.dtype, device=piece.device)
            targets = aten.split_with_sizes.default(aten.view.default(result, [-1]), sizes)
        aten.copy_.default(targets[at], piece)
        del piece
    return result  # type: ignore[no-any-return]
