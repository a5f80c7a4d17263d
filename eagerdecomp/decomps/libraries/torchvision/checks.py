"""Argument checks that the kernels of torchvision and torchaudio share, with their messages.

Eager is asked only about torch's own ops. So the rules of other libraries' ops make these checks themselves.
"""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["check", "check_dtype", "check_rois", "type_name"]

_FLOATING = (torch.float32, torch.float64, torch.float16)


def check(condition: bool, message: str) -> None:
    """Raise the error of a kernel's check."""
    if not condition:
        raise RuntimeError(message)


def check_dtype(kernel: str, tensor: Tensor, dtypes: tuple[torch.dtype, ...] = _FLOATING) -> None:
    """Refuse the dtypes that the CPU kernel refuses: integers, bfloat16, and for `nms` float16. Other devices accept all floats."""
    taken = tensor.dtype in dtypes or (tensor.device.type != "cpu" and tensor.dtype.is_floating_point)
    check(taken, f"\"{kernel}\" not implemented for '{type_name(tensor)}'")


def type_name(tensor: Tensor) -> str:
    """Return the name of a tensor's dtype in messages: ``Half``."""
    return tensor.type().rpartition(".")[2].removesuffix("Tensor")  # of ``torch.HalfTensor``


def check_rois(kernel: str, input: Tensor, rois: Tensor, named: str = "input") -> None:
    """Run the checks of the kernels that pool `input` or its gradient in boxes."""
    check(rois.shape[1] == 5, "rois must have shape as Tensor[K, 5]")
    check(input.dtype == rois.dtype, f"{named} should have the same type as rois")
    check_dtype(kernel, input)
