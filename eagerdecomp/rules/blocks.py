"""Run ops on large tensors block by block: elementwise ops, and ops that compute each row independently.

Intermediate results of a formula are then as large as a block and stay in the CPU cache. Without blocks they are as large as the
result, and the system must allocate new pages for them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence, Set
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp._torch.tensors import PLAIN_TENSORS
from eagerdecomp.eager.layouts import has_default_strides
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules.link import Linkable, RunnerOf, has_kernels
from eagerdecomp.rules.no_route import link_when_called

__all__ = ["BLOCK_OPS", "elementwise_in_blocks", "large_from", "rows_in_blocks", "run_in_blocks"]

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


def run_in_blocks(
    run: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any], lead: int | None = None
) -> Tensor | None:
    """Run an op block by block, on CPU tensors with contiguous strides and on 0-dim tensors.

    Args:
        run: runs the op.
        args: its positional arguments.
        kwargs: its keyword arguments.
        lead: number of leading dimensions, at least 1, over which the op is a loop. Blocks are cut along these, so all tensors must
            have the same sizes there. By default all dimensions: the op is elementwise, and all tensors have one shape.

    Returns:
        The result; None for other calls, which must run without blocks.
    """
    tensors = [arg for arg in args if isinstance(arg, Tensor) and arg.dim()]
    if not tensors or not PLAIN_TENSORS.issuperset(map(type, tensors)):
        return None
    shape = tensors[0].shape[:lead]
    for tensor in tensors:
        if not tensor.is_cpu or tensor.layout is not torch.strided or tensor.shape[:lead] != shape:
            return None
        if not has_default_strides(tensor) or tensor.is_neg() or tensor.is_conj():
            return None
    rows = math.prod(shape)
    block = max(1, _BLOCK * torch.get_num_threads() * rows // (tensors[0].numel() or 1))
    whole, rest = divmod(rows, block)
    if whole < 2:
        return None
    sizes = [block] * whole + [rest] * bool(rest)
    columns = [
        aten.split_with_sizes.default(aten.view.default(arg, [rows, *arg.shape[len(shape) :]]), sizes)
        if isinstance(arg, Tensor) and arg.dim()
        else [arg] * len(sizes)
        for arg in args
    ]
    result: Any = None
    targets: Sequence[Tensor] = ()
    for at, row in enumerate(zip(*columns, strict=True)):
        piece = run(*row, **kwargs)
        if result is None:
            if not isinstance(piece, Tensor) or not piece.dim() or piece.shape[0] != block or (lead is None and piece.dim() != 1):
                return None
            below = piece.shape[1:]
            result = aten.empty.memory_format([*shape, *below], dtype=piece.dtype, device=piece.device)
            targets = aten.split_with_sizes.default(aten.view.default(result, [rows, *below]), sizes)
        aten.copy_.default(targets[at], piece)
        del piece
    return result  # type: ignore[no-any-return]


def _bind_elementwise(call: RunnerOf) -> Callable[..., Any]:
    run = _run_large(call)
    if run is None:
        return _whole

    def in_blocks(formula: Callable[..., Any], *args: Any) -> Any:
        size = args[0].numel()
        if size.__class__ is int and size >= _LARGE and (found := run(formula, args, {})) is not None:
            return found
        return formula(*args)

    return in_blocks


def _bind_rows(call: RunnerOf) -> Callable[..., Any]:
    run = _run_large(call)
    if run is None:
        return _whole

    def in_blocks(formula: Callable[..., Any], *args: Any) -> Any:
        size, dim, rank = args[0].numel(), args[-1], args[0].dim()
        if size.__class__ is int and size >= _LARGE and -rank <= dim < rank:
            lead = dim % rank
            if lead and (found := run(formula, (*args[:-1], lead - rank), {}, lead)) is not None:
                return found
        return formula(*args)

    return in_blocks


def _run_large(call: RunnerOf) -> Callable[..., Any] | None:
    """Return `run_in_blocks` for a linked rule, linked at its first call, since few programs have tensors large enough."""
    return link_when_called(run_in_blocks, call) if has_kernels(call, *BLOCK_OPS) else None


def _whole(formula: Callable[..., Any], *args: Any) -> Any:
    return formula(*args)


#: ``elementwise_in_blocks(formula, tensor, *args)``: ``formula(tensor, *args)``, block by block where the tensor is large and the
#: rule is linked. For formulas within a rule whose op is not elementwise, such as a loss that is reduced.
elementwise_in_blocks = Linkable(_bind_elementwise)

#: ``rows_in_blocks(formula, tensor, *args, dim)``: the same for a formula that combines elements only along `dim` and the
#: dimensions after it. The formula gets a negative `dim`.
rows_in_blocks = Linkable(_bind_rows)
