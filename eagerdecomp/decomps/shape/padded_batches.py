"""Batches of rows of different lengths, which the transformer encoder makes from a padded batch in evaluation mode.

Eager packs such a batch into a nested tensor, which no small op set supports. Here it stays padded, with the mask of its valid
rows, in a tensor subclass that supports the three ops of the encoder. Every other op on it raises.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import op_called
from eagerdecomp._torch.tensors import NO_TORCH_FUNCTION
from eagerdecomp.rules.rule import rule

__all__ = ["RaggedRows"]

aten = torch.ops.aten

# The `mask_type` of a mask of padded rows.
_OF_PADDING = 1


class RaggedRows(Tensor):
    """A batch ``[B, S, E]`` whose sequences have different lengths.

    `padded` has all rows; `valid`, ``[B, S]``, is true for the existing ones.
    """

    padded: Tensor
    valid: Tensor

    __torch_function__ = NO_TORCH_FUNCTION

    @staticmethod
    def __new__(cls, padded: Tensor, valid: Tensor) -> RaggedRows:
        made: RaggedRows = Tensor._make_wrapper_subclass(cls, padded.shape, dtype=padded.dtype, device=padded.device)
        made.padded, made.valid = padded, valid
        return made

    def __repr__(self) -> str:  # type: ignore[override]
        return f"RaggedRows({list(self.shape)}, {self.dtype})"

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        run = _OPS.get(func)
        if run is None:
            raise NotImplementedError(
                f"{func} of a ragged batch: under eagerdecomp such a tensor supports only encoder layers in evaluation mode and "
                "to_padded_tensor. torch.nn.TransformerEncoder(..., enable_nested_tensor=False) keeps its batch padded."
            )
        return run(*args, **(kwargs or {}))


def _layer(src: RaggedRows, *weights: Any, **named: Any) -> RaggedRows:
    """Compute an encoder layer with padding rows masked. `_to_padded` overwrites or drops these rows."""
    positional, masks = weights[:17], weights[17:]
    if any(mask is not None for mask in (*masks, *named.values())):
        raise RuntimeError("an encoder layer on a ragged batch does not take a mask")
    padding = aten.logical_not.default(src.valid)
    return RaggedRows(aten._transformer_encoder_layer_fwd.default(src.padded, *positional, padding, _OF_PADDING), src.valid)


def _to_padded(self: RaggedRows, padding: float, output_size: Sequence[int] | None = None) -> Tensor:
    """Return the batch as a plain tensor with `padding` in invalid rows, by default as long as the longest sequence.

    For a batch of empty sequences, return only padding. Eager raises. This rule would have to read data to raise, even for calls
    with `output_size`, which otherwise read none.
    """
    batch, rows = self.shape[:2]
    if output_size is not None and len(output_size) != 3:
        raise RuntimeError("Length of output_size does not match NestedTensor dims. Broadcasting is not supported.")
    fill = aten.scalar_tensor.default(padding, dtype=self.dtype, device=self.device)
    filled: Tensor = aten.where.self(aten.unsqueeze.default(self.valid, 2), self.padded, fill)
    if output_size is None or output_size[1] < rows:
        lengths = aten.sum.dim_IntList(self.valid, [1])
        rows = int(aten._local_scalar_dense.default(aten.amax.default(lengths))) if batch else 0
        filled = aten.clone.default(aten.slice.Tensor(filled, 1, 0, rows), memory_format=torch.contiguous_format)
    more = [0, 0, 0] if output_size is None else [wanted - size for wanted, size in zip(output_size, filled.shape, strict=True)]
    if min(more) < 0:
        raise RuntimeError("Value in output_size is less than NestedTensor padded size. Truncation is not supported.")
    return aten.constant_pad_nd.default(filled, [0, more[2], 0, more[1], 0, more[0]], padding) if any(more) else filled


def _valid(mask: Tensor) -> Tensor:
    """Return a mask that is true for as many rows from the left as the given mask has true ones."""
    rows = aten.arange.start_step(0, mask.size(1), 1, device=mask.device)
    return aten.lt.Tensor(rows, aten.sum.dim_IntList(mask, [1], True))  # type: ignore[no-any-return]


@rule("aten._nested_tensor_from_mask_left_aligned.default", recorded=True)
def _is_left_aligned(t: Tensor, mask: Tensor) -> Any:
    """Return whether all sequences start at the left. This reads data, because the caller branches on it."""
    if t.shape[:2] != mask.shape:
        return NotImplemented
    misplaced = aten.any.default(aten.ne.Tensor(_valid(mask), mask))
    return not aten._local_scalar_dense.default(misplaced)


@rule("aten._nested_tensor_from_mask.default", recorded=True, effects=True)
def _from_mask(t: Tensor, mask: Tensor, mask_check: bool = True) -> Any:
    if t.shape[:2] != mask.shape or (mask_check and not _is_left_aligned(t, mask)):
        return NotImplemented
    return RaggedRows(t, _valid(mask))


_OPS: dict[Any, Any] = {
    op_called("aten._transformer_encoder_layer_fwd.default"): _layer,
    op_called("aten.to_padded_tensor.default"): _to_padded,
}
