"""Where plain eager on the CPU is no standard of values: one table, which every scoreboard asks.

An entry stands here only as long as it is needed: `tests/conformance/test_standards.py` fails for one that passes without.
"""

from __future__ import annotations

from typing import Any

import torch

from conformance.cases import full_name

__all__ = ["NO_STANDARD", "no_standard"]

_HALF = (torch.float16, torch.bfloat16)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOAT64 = (torch.float64,)
_FEW_DIGITS = "eager's own has six digits beside 5; the rule is held to the true values"
_BY_DEVICE = "torch's Python code sums in other precisions where the device is not the CPU"

#: For what it is none, by OpInfo: the dtypes, whether only on another device, and why.
NO_STANDARD: dict[str, tuple[tuple[torch.dtype, ...], bool, str]] = {
    "kthvalue": (_WHOLE, False, "of equal values it may return the place of any"),
    "matrix_exp": (_HALF, False, "eager's own goes over the range of the dtype, and returns NaN"),
    "nn.functional.linear_cross_entropy.chunked": (_HALF, True, _BY_DEVICE),
    "nn.functional.linear_cross_entropy.chunked_none": (_HALF, True, _BY_DEVICE),
    **{f"special.bessel_{name}": (_FLOAT64, False, _FEW_DIGITS) for name in ("j0", "j1", "y1")},
}


def no_standard(info: Any, device: str, dtype: torch.dtype) -> str:
    """Why plain eager on the CPU is no standard for an OpInfo; "" where it is."""
    dtypes, elsewhere, why = NO_STANDARD.get(full_name(info), ((), False, ""))
    return why if dtype in dtypes and (device != "cpu" or not elsewhere) else ""
