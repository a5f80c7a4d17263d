"""Activations, and the error function, which GELU uses."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from eagerdecomp.backends.numpy.arrays import Array, Number, compute, floating, scalar
from eagerdecomp.backends.numpy.elementwise import clamped
from eagerdecomp.eager.messages import not_implemented

__all__ = ["KERNELS"]


def _logistic(x: Array) -> Array:
    return 1 / (1 + np.exp(-x))


# Cephes' rational approximations of erf near 0 and of erfc beyond 1: within 2 units of the last place of float64.
_NEAR = (
    (9.60497373987051638749e0, 9.00260197203842689217e1, 2.23200534594684319226e3, 7.00332514112805075473e3,
     5.55923013010394962768e4),
    (1.0, 3.35617141647503099647e1, 5.21357949780152679795e2, 4.59432382970980127987e3, 2.26290000613890934246e4,
     4.92673942608635921086e4),
)  # fmt: skip
_FAR = (
    (2.46196981473530512524e-10, 5.64189564831068821977e-1, 7.46321056442269912687e0, 4.86371970985681366614e1,
     1.96520832956077098242e2, 5.26445194995477358631e2, 9.34528527171957607540e2, 1.02755188689515710272e3,
     5.57535335369399327526e2),
    (1.0, 1.32281951154744992508e1, 8.67072140885989742329e1, 3.54937778887819891062e2, 9.75708501743205489753e2,
     1.82390916687909736289e3, 2.24633760818710981792e3, 1.65666309194161350182e3, 5.57535340817727675546e2),
)  # fmt: skip


def _erfc(x: Array) -> Array:
    """Return ``1 - erf(x)`` for ``x > 1``."""
    return np.exp(-x * x) * np.polyval(_FAR[0], x) / np.polyval(_FAR[1], x)


def erf(x: Array) -> Array:
    """Compute the error function, which NumPy lacks."""
    x = np.asarray(x, np.float64)
    size = np.abs(x)
    near = np.minimum(size, 1)
    inside = near * np.polyval(_NEAR[0], near * near) / np.polyval(_NEAR[1], near * near)
    beyond = 1 - _erfc(np.clip(size, 1, 8))
    return np.where(np.isnan(x), x, np.copysign(np.where(size < 1, inside, beyond), x))


def _gelu(x: Array, approximate: str) -> Array:
    if approximate == "tanh":
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)))
    # For large negative x, 1 + erf(x) cancels; use erfc instead.
    x = np.asarray(x, np.float64)
    scaled = x * math.sqrt(0.5)
    return np.where(scaled < -1, 0.5 * x * _erfc(np.clip(-scaled, 1, 30)), 0.5 * x * (1 + erf(scaled)))


def _erf(x: Tensor) -> Tensor:
    if x.dtype.is_complex:
        raise NotImplementedError("erf of complex numbers")
    return compute(erf, [x], floating(x.dtype))


def _sigmoid(x: Tensor) -> Tensor:
    return compute(_logistic, [x], floating(x.dtype))


def _relu(x: Tensor) -> Tensor:
    if x.dtype is torch.bool:
        raise RuntimeError("Boolean inputs not supported for relu")
    return clamped(x, 0)


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype of the computation: float32 for float16 and bfloat16, without rounding of intermediate values."""
    return torch.float32 if dtype.itemsize == 2 else dtype


def _elu(x: Tensor, alpha: Number = 1, scale: Number = 1, input_scale: Number = 1) -> Tensor:
    dtype = _only_floating("elu", x)
    height, by, slope = (scalar(one, _wide(dtype)) for one in (alpha, scale, input_scale))
    return compute(lambda a: np.where(a <= 0, np.expm1(a * slope) * height, a) * by, [x], dtype)


def _hardtanh(x: Tensor, min_val: Number = -1, max_val: Number = 1) -> Tensor:
    if x.dtype is torch.bool:
        raise NotImplementedError("Bool inputs not supported for hardtanh")
    if not x.dtype.is_floating_point:
        min_val, max_val = int(min_val), int(max_val)
    if x.dtype is torch.uint8 and min(min_val, max_val) < 0:
        raise RuntimeError("cannot do hardtanh on an unsigned type with negative limits")
    return clamped(x, scalar(min_val, x.dtype).item(), scalar(max_val, x.dtype).item())


def _leaky_relu(x: Tensor, negative_slope: Number = 0.01) -> Tensor:
    dtype = _only_floating("leaky_relu_cpu", x)
    slope = scalar(negative_slope, _wide(dtype))
    return compute(lambda a: np.where(a > 0, a, a * slope), [x], dtype)


def _gelu_of(x: Tensor, *, approximate: str = "none") -> Tensor:
    if approximate not in ("none", "tanh"):
        raise RuntimeError("approximate argument must be either none or tanh.")
    return compute(functools.partial(_gelu, approximate=approximate), [x], _only_floating("GeluKernelImpl", x))


def _only_floating(name: str, x: Tensor) -> torch.dtype:
    if not x.dtype.is_floating_point:
        raise not_implemented(name, x.dtype)
    return x.dtype


KERNELS: dict[str, Callable[..., Any]] = {
    "elu": _elu,
    "erf": _erf,
    "gelu": _gelu_of,
    "hardtanh": _hardtanh,
    "leaky_relu": _leaky_relu,
    "relu": _relu,
    "sigmoid": _sigmoid,
}
