"""Packed sequences: what recurrent layers read instead of padding.

Lengths and batch sizes are host memory by contract (torch refuses others), so reading them asks no kernel; but a call that reads
cannot be replayed for other lengths.
"""

from __future__ import annotations

import itertools

import torch
from torch import Tensor

from eagerdecomp.rules import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten


def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """``[T, B, *]`` (or ``[B, T, *]``) and ``B`` lengths, longest first -> the steps end to end, and the batch size of each."""
    steps = aten.transpose.int(input, 0, 1) if batch_first else input
    sizes: list[int] = lengths.tolist()
    _check(steps, sizes)
    pieces: list[Tensor] = []
    batch_sizes: list[int] = []
    # From the shortest up: the steps between one length and the next have the batch that is left.
    for length, ends in itertools.groupby(reversed(list(enumerate(sizes))), key=lambda entry: entry[1]):
        batch = max(position for position, _ in ends) + 1
        start = len(batch_sizes)
        chunk = aten.slice.Tensor(aten.slice.Tensor(steps, 0, start, length), 1, 0, batch)
        pieces.append(aten.reshape.default(chunk, [-1, *steps.shape[2:]]))
        batch_sizes.extend([batch] * (length - start))
    return aten.cat.default(pieces), torch.tensor(batch_sizes, dtype=torch.int64)


def _check(steps: Tensor, sizes: list[int]) -> None:
    if not steps.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != steps.size(1):
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={steps.size(1)})")
    if sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(shorter > longer for longer, shorter in itertools.pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not "
            "need ONNX exportability."
        )


RULES: tuple[Rule, ...] = (own(aten._pack_padded_sequence.default, pack_padded_sequence, effects=True),)
