"""Tables of dtypes that eager's kernels reject and NumPy would accept."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import common
from eagerdecomp.eager.messages import not_implemented

__all__ = ["check"]

_BOOL = frozenset({torch.bool})
_BYTE = _BOOL | {torch.uint8}
_COMPLEX = frozenset({torch.complex64, torch.complex128})
_HALF = frozenset({torch.float16, torch.bfloat16})
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_ALL_BUT_REAL = _BOOL | _INTEGERS | _COMPLEX

#: op -> the kernel's name in eager's message, and the dtypes that it rejects, of those that the operands promote to.
_TOGETHER: dict[str, tuple[str, frozenset[torch.dtype]]] = {
    "abs": ("abs_cpu", _BOOL),
    "ceil": ("ceil_vml_cpu", _BOOL),
    "floor": ("floor_vml_cpu", _BOOL),
    "fmod.Scalar": ("fmod_cpu", _BOOL),
    "fmod.Tensor": ("fmod_cpu", _BOOL),
    "ge.Scalar": ("ge_cpu", _COMPLEX),
    "ge.Tensor": ("ge_cpu", _COMPLEX),
    "gt.Scalar": ("gt_cpu", _COMPLEX),
    "gt.Tensor": ("gt_cpu", _COMPLEX),
    "le.Scalar": ("le_cpu", _COMPLEX),
    "le.Tensor": ("le_cpu", _COMPLEX),
    "lt.Scalar": ("lt_cpu", _COMPLEX),
    "lt.Tensor": ("lt_cpu", _COMPLEX),
    "maximum": ("maximum", _COMPLEX),
    "minimum": ("minimum", _COMPLEX),
    "remainder.Scalar": ("remainder_cpu", _BOOL),
    "remainder.Tensor": ("remainder_cpu", _BOOL),
    "round": ("round_vml_cpu", _BOOL),
    "trunc": ("trunc_vml_cpu", _BOOL),
}

#: The same for ops whose kernel depends on the dtype of the first operand.
_FIRST: dict[str, tuple[str, frozenset[torch.dtype]]] = {
    "_adaptive_avg_pool2d": ("adaptive_avg_pool2d", _ALL_BUT_REAL),
    "_adaptive_avg_pool2d_backward": ("adaptive_avg_pool2d_backward", _ALL_BUT_REAL),
    "_adaptive_avg_pool3d": ("adaptive_avg_pool3d_cpu", _ALL_BUT_REAL),
    "_cdist_forward": ("cdist", _HALF),
    "_log_softmax": ("log_softmax_lastdim_kernel_impl", _ALL_BUT_REAL),
    "_pdist_forward": ("pdist", _ALL_BUT_REAL | _HALF),
    "_softmax": ("softmax_lastdim_kernel_impl", _ALL_BUT_REAL),
    "adaptive_avg_pool1d": ("adaptive_avg_pool2d", _ALL_BUT_REAL),
    "amax": ("max_values_cpu", _COMPLEX),
    "amin": ("min_values_cpu", _COMPLEX),
    "avg_pool1d": ("avg_pool2d", _BYTE | _COMPLEX),
    "avg_pool2d": ("avg_pool2d", _BYTE | _COMPLEX),
    "avg_pool2d_backward": ("avg_pool2d_backward", _BYTE | _COMPLEX),
    "avg_pool3d": ("avg_pool3d_out_frame", _BYTE | _HALF | _COMPLEX),
    "col2im": ("col2im_out_cpu", _INTEGERS),
    "convolution": ("slow_conv2d_cpu", _BOOL | _COMPLEX),
    "convolution_backward": ("slow_conv2d_cpu_grad_input", _ALL_BUT_REAL),
    "max_pool2d_with_indices_backward": ("max_pool2d_backward", _ALL_BUT_REAL),
    "native_group_norm": ("GroupNormKernelImpl", _ALL_BUT_REAL),
    "native_group_norm_backward": ("GroupNormBackwardKernelImpl", _ALL_BUT_REAL),
    "native_layer_norm": ("LayerNormKernelImpl", _ALL_BUT_REAL),
    "native_layer_norm_backward": ("LayerNormBackwardKernelImpl", _ALL_BUT_REAL),
    "sort": ("sort", _COMPLEX),
    "topk": ("topk", _COMPLEX),
    "reflection_pad1d": ("reflection_pad1d", _BOOL),
    "reflection_pad2d": ("reflection_pad2d", _BOOL),
    "reflection_pad3d": ("reflection_pad3d", _BOOL),
    "replication_pad2d": ("replication_pad2d", _BOOL),
    "replication_pad3d": ("replication_pad3d", _BOOL),
}


def check(name: str, args: tuple[Any, ...]) -> None:
    """Raise eager's error for a dtype that its kernel rejects.

    Raises:
        NotImplementedError: for a dtype in the tables.
    """
    if name in _FIRST:
        kernel, refused = _FIRST[name]
        dtype = args[0].dtype
    elif name in _TOGETHER:
        kernel, refused = _TOGETHER[name]
        dtype = common(*(one for one in args[:2] if isinstance(one, (Tensor, bool, int, float, complex))))
    else:
        return
    if dtype in refused:
        raise not_implemented(kernel, dtype)
