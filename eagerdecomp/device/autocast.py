"""`torch.autocast` on the device: the ops that run in the lower precision, and those that run in float32.

torch has the lists of its own devices only in C++, where Python cannot read them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.python_device import AUTOCAST_KEY, below_autocast

__all__ = ["FLOAT32", "LOWER_PRECISION", "register_autocast"]

#: Ops that run in the dtype of autocast, unless a device has its own list.
LOWER_PRECISION: Sequence[str] = (
    *("aten.linear.default", "aten.matmul.default", "aten.mm.default", "aten.bmm.default", "aten.mv.default"),
    *("aten.addmm.default", "aten.addmv.default", "aten.baddbmm.default", "aten.addbmm.default"),
    *("aten.chain_matmul.default", "aten.linalg_multi_dot.default", "aten.einsum.default"),
    *("aten.conv1d.default", "aten.conv2d.default", "aten.conv3d.default", "aten.convolution.default"),
    *("aten.scaled_dot_product_attention.default", "aten.prelu.default"),
)

#: Ops that run in float32, unless a device has its own list.
FLOAT32: Sequence[str] = (
    *("aten.softmax.int", "aten.log_softmax.int", "aten.layer_norm.default", "aten.group_norm.default"),
    *("aten.native_layer_norm.default", "aten.rms_norm.default"),
    *("aten.nll_loss.default", "aten.mse_loss.default", "aten.l1_loss.default", "aten.smooth_l1_loss.default"),
    "aten.cross_entropy_loss.default",
    *("aten.exp.default", "aten.log.default", "aten.pow.Tensor_Scalar", "aten.sum.default", "aten.sum.dim_IntList"),
    *("aten.cumsum.default", "aten.norm.Scalar"),
)

#: The registrations, which end with these objects.
_libraries: list[torch.library.Library] = []


def register_autocast(name: str, lower_precision: Iterable[OpOverload], float32: Iterable[OpOverload]) -> None:
    """Register autocast kernels for these ops, and for all others a kernel that does nothing."""
    everything: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    everything.fallback(torch.library.fallthrough_kernel, AUTOCAST_KEY)
    _libraries.append(everything)
    libraries: dict[str, Any] = {}
    for ops, in_float32 in ((lower_precision, False), (float32, True)):
        for op in ops:
            if op.namespace not in libraries:
                libraries[op.namespace] = torch.library.Library(op.namespace, "IMPL")  # type: ignore[no-untyped-call]
            libraries[op.namespace].impl(op, _casting(name, op, in_float32), AUTOCAST_KEY)
    _libraries.extend(libraries.values())


def _casting(name: str, op: OpOverload, in_float32: bool) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        dtype = torch.float32 if in_float32 else torch.get_autocast_dtype(name)
        with below_autocast():
            return op(*_cast(args, name, dtype), **{key: _cast(value, name, dtype) for key, value in kwargs.items()})

    return kernel


def _cast(value: Any, name: str, dtype: torch.dtype) -> Any:
    if isinstance(value, Tensor):
        floating = value.is_floating_point() and value.dtype is not torch.float64 and value.device.type == name
        return value.to(dtype) if floating else value
    return type(value)([_cast(one, name, dtype) for one in value]) if isinstance(value, (list, tuple)) else value
