"""`torch.autocast("jax")`: the ops that run in the lower precision, and those that run in float32.

The lists are short. torch has the lists of its own devices only in C++, where Python cannot read them.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from xla.device import NAME

__all__ = ["register"]

aten = torch.ops.aten

LOWER_PRECISION = [
    *("linear", "matmul", "mm", "bmm", "mv", "addmm", "addmv", "baddbmm", "addbmm", "chain_matmul", "linalg_multi_dot", "einsum"),
    *("conv1d", "conv2d", "conv3d", "convolution", "scaled_dot_product_attention", "prelu"),
]

FLOAT32 = [
    *("softmax.int", "log_softmax.int", "layer_norm", "group_norm", "native_layer_norm", "rms_norm"),
    *("nll_loss", "mse_loss", "l1_loss", "smooth_l1_loss", "cross_entropy_loss"),
    *("exp", "log", "pow.Tensor_Scalar", "sum", "sum.dim_IntList", "cumsum", "norm.Scalar"),
]

_KEY = "AutocastPrivateUse1"
_below = torch._C.DispatchKeySet(torch._C._dispatch_key_parse(_KEY))
_library = torch.library.Library("aten", "IMPL")
_all = torch.library.Library("_", "IMPL")


def register() -> None:
    """Register autocast kernels for these ops, and for all others a kernel that does nothing."""
    _all.fallback(torch.library.fallthrough_kernel, _KEY)
    for names, in_float32 in ((LOWER_PRECISION, False), (FLOAT32, True)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(aten, packet), overload or "default")
            _library.impl(op, _casting(op, in_float32), _KEY)


def _casting(op: Any, in_float32: bool) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.float32 if in_float32 else torch.get_autocast_dtype(NAME)
        with torch._C._ExcludeDispatchKeyGuard(_below):
            return op(*_cast(args, dtype), **{name: _cast(value, dtype) for name, value in kwargs.items()})

    return kernel


def _cast(value: Any, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        floating = value.is_floating_point() and value.dtype is not torch.float64 and value.device.type == NAME
        return value.to(dtype) if floating else value
    return type(value)([_cast(one, dtype) for one in value]) if isinstance(value, (list, tuple)) else value
