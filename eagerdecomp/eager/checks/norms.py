"""Checks of arguments that eager's norms make and torch's decompositions leave out, in eager's words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.messages import not_true, shape_text
from eagerdecomp.eager.precision import HALF

__all__ = ["NORM_CHECKS"]


def _batch(places: Sequence[int], training: int) -> Callable[..., None]:
    """Of batch norm: types as `_normalized` asks; statistics are of at least one element."""
    typed = _normalized(*places)

    def check(input: Tensor, *more: Any) -> None:
        typed(input, *more)
        if more[training] and not input.numel():
            raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {shape_text(input.shape)}")

    return check


def _groups(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float) -> None:
    shape = shape_text(input.shape)
    if group < 1:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {group}")
    if C % group:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {shape} and num_groups={group}"
        )
    for name, one in (("weight", weight), ("bias", bias)):
        if one is not None and list(one.shape) != [C]:
            told = shape_text([0] if weight is None else weight.shape)  # of the bias too eager tells the weight's
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {told} and input of shape {shape}"
            )
    if input.numel() != N * C * HxW:
        raise not_true("X.numel() == N * C * HxW")
    _normalized(0, 1)(input, weight, bias)
    if not input.is_contiguous(memory_format=suggested_memory_format(input)):
        raise not_true("X.is_contiguous(memory_format)")


def _normalized(*places: int) -> Callable[..., None]:
    """Eager's norms take one type alone, or half floats beside parameters in float32; those stand at `places`."""

    def check(input: Tensor, *more: Any) -> None:
        given = [one for one in (more[place] for place in places) if one is not None]
        if not given or given[0].dtype is input.dtype:
            return
        if any(one.dtype is not torch.float32 for one in given):
            raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
        if input.dtype not in HALF:
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")

    return check


#: op -> a function of its arguments that raises eager's error.
NORM_CHECKS: dict[str, Callable[..., None]] = {
    "aten._native_batch_norm_legit.default": _batch((0, 1, 2, 3), 4),
    "aten._native_batch_norm_legit.no_stats": _batch((0, 1), 2),
    "aten._native_batch_norm_legit_no_training.default": _normalized(0, 1, 2, 3),
    "aten.native_group_norm.default": _groups,
    "aten.native_layer_norm.default": _normalized(1, 2),
}
