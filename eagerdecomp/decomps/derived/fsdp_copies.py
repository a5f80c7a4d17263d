"""FSDP's copies into and out of the buffers of its collectives: ops of PyTorch's own that it composes of ATen's in Python.

They exist once `torch.distributed.fsdp` is imported, so their rules are found by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.rules.link import Call, Linkable
from eagerdecomp.rules.rule import Rule, make_rule

__all__ = ["rules_for"]

aten = torch.ops.aten


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """The rule of an op of FSDP's; nothing for others."""
    link = _LINKS.get(op._schema.name)
    if link is not None:
        # With effects: schemas leave out that buffers are written, and that results are views of them.
        yield make_rule(op, Linkable(link), effects=True)


def _all_gather_copy_in(call: Call) -> Callable[..., Any]:
    part, copy = call(aten.slice.Tensor), call(aten.copy_.default)

    def run(
        all_gather_inputs: Sequence[Tensor],
        all_gather_output: Tensor,
        inp_split_sizes: Sequence[int],
        all_gather_input_numel: int,
        rank: int,
    ) -> tuple[Tensor, Tensor]:
        start = all_gather_input_numel * rank
        mine = part(all_gather_output, 0, start, start + all_gather_input_numel)
        at = 0
        for given, size in zip(all_gather_inputs, inp_split_sizes, strict=True):
            copy(part(mine, 0, at, at + size), given)
            at += size
        return mine, all_gather_output

    return run


def _split_with_sizes_copy(call: Call) -> Callable[..., Any]:
    copy = call(aten.split_with_sizes_copy.out)

    def run(all_gather_output: Tensor, all_gather_input_split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor]) -> None:
        copy(all_gather_output, all_gather_input_split_sizes, dim, out=out)

    return run


def _chunk_cat(call: Call) -> Callable[..., Any]:
    join = call(aten._chunk_cat.out)

    def run(tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor) -> None:
        join(tensors, dim, num_chunks, out=out)

    return run


def _copy(call: Call) -> Callable[..., Any]:
    copy = call(aten.copy_.default)

    def run(tensor: Tensor, data: Tensor) -> None:
        copy(tensor, data)

    return run


_LINKS: dict[str, Callable[[Call], Callable[..., Any]]] = {
    "fsdp::all_gather_copy_in": _all_gather_copy_in,
    "fsdp::chunk_cat": _chunk_cat,
    "fsdp::copy_": _copy,
    "fsdp::split_with_sizes_copy": _split_with_sizes_copy,
}
