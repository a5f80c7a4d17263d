"""Run elementwise ops on large tensors block by block.

Intermediate results of a formula are then as large as a block and stay in the CPU cache. Without blocks they are as large as the
result, and the system must allocate new pages for them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import PLAIN_TENSORS
from eagerdecomp.ops.schema import facts_of

__all__ = ["BLOCK_OPS", "large_from", "run_in_blocks"]

aten = torch.ops.aten

#: Elements of a block per thread. A multiple of the SIMD width, so that each element is computed as in the whole tensor.
_BLOCK = 1 << 15

#: Minimum number of elements. For smaller tensors, more calls and the copy of the result cost more than blocks save.
_LARGE = 1 << 19

#: The same minimum for formulas of two ops, which have only one intermediate tensor.
_LARGE_FOR_TWO = 1 << 22

#: The ops that `run_in_blocks` calls in addition to the op itself.
BLOCK_OPS = tuple(
    map(op_called, ("aten.empty.memory_format", "aten.view.default", "aten.split_with_sizes.default", "aten.copy_.default"))
)


def large_from(op: OpOverload, used: Set[OpOverload] | None = None) -> int:
    """Return the minimum number of elements for a call to run in blocks; 0 if the op is not elementwise.

    Args:
        op: the overload.
        used: the ops that its formula calls, if they are known.
    """
    if not facts_of(op).is_elementwise:
        return 0
    return _LARGE_FOR_TWO if used is not None and len(used - {op, aten._to_copy.default}) <= 2 else _LARGE


def run_in_blocks(run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> Tensor | None:
    """Run an elementwise op block by block, on contiguous tensors of one shape and on 0-dim tensors.

    Returns:
        The result; None for other calls, which must run without blocks.
    """
    tensors = [arg for arg in args if isinstance(arg, Tensor) and arg.dim()]
    if not tensors or not PLAIN_TENSORS.issuperset(map(type, tensors)):
        return None
    shape = tensors[0].shape
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.shape != shape:
            return None
        if not tensor.is_contiguous() or tensor.is_neg() or tensor.is_conj():
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
