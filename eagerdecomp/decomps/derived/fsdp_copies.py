"""FSDP's copies into and out of the buffers of its collectives: PyTorch ops that are composed of ATen ops in Python.

They exist once `torch.distributed.fsdp` is imported, so their rules are found by name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.rules.rule import Rule, make_rule

__all__ = ["rules_for"]

aten = torch.ops.aten


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """Yield the rule of an FSDP op; nothing for other ops."""
    fn = _RULES.get(op._schema.name)
    if fn is not None:
        # `effects=True`, because the schemas do not declare that the ops write buffers and return views of them.
        yield make_rule(op, fn, effects=True)


def _all_gather_copy_in(
    all_gather_inputs: Sequence[Tensor],
    all_gather_output: Tensor,
    inp_split_sizes: Sequence[int],
    all_gather_input_numel: int,
    rank: int,
) -> tuple[Tensor, Tensor]:
    start = all_gather_input_numel * rank
    mine = aten.slice.Tensor(all_gather_output, 0, start, start + all_gather_input_numel)
    at = 0
    for given, size in zip(all_gather_inputs, inp_split_sizes, strict=True):
        aten.copy_.default(aten.slice.Tensor(mine, 0, at, at + size), given)
        at += size
    return mine, all_gather_output


def _split_with_sizes_copy(
    all_gather_output: Tensor, all_gather_input_split_sizes: Sequence[int], dim: int = 0, *, out: Sequence[Tensor]
) -> None:
    aten.split_with_sizes_copy.out(all_gather_output, all_gather_input_split_sizes, dim, out=out)


def _chunk_cat(tensors: Sequence[Tensor], dim: int, num_chunks: int, *, out: Tensor) -> None:
    aten._chunk_cat.out(tensors, dim, num_chunks, out=out)


def _copy(tensor: Tensor, data: Tensor) -> None:
    aten.copy_.default(tensor, data)


_RULES: dict[str, Callable[..., Any]] = {
    "fsdp::all_gather_copy_in": _all_gather_copy_in,
    "fsdp::chunk_cat": _chunk_cat,
    "fsdp::copy_": _copy,
    "fsdp::split_with_sizes_copy": _split_with_sizes_copy,
}
