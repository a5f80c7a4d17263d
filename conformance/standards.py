"""The table of OpInfos for which the values of plain eager on the CPU are no reference; all scoreboards use it.

`tests/conformance/test_standards.py` fails if an entry is not needed any more.
"""

from __future__ import annotations

from typing import Any

import torch

from conformance.cases import full_name

__all__ = ["NOT_A_REFERENCE", "why_no_reference"]

_HALF = (torch.float16, torch.bfloat16)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_FLOAT64 = (torch.float64,)
_FEW_DIGITS = "near 5 eager has only six correct digits; the rule is compared with the true values"
_BY_DEVICE = "torch's Python code sums in another precision if the device is not the CPU"

#: OpInfo -> the dtypes, whether this is only so on another device than the CPU, and the reason.
NOT_A_REFERENCE: dict[str, tuple[tuple[torch.dtype, ...], bool, str]] = {
    "kthvalue": (_WHOLE, False, "of equal values it may return the index of any"),
    "matrix_exp": (_HALF, False, "eager's kernel overflows, and returns NaN"),
    "nn.functional.linear_cross_entropy.chunked": (_HALF, True, _BY_DEVICE),
    "nn.functional.linear_cross_entropy.chunked_none": (_HALF, True, _BY_DEVICE),
    **{f"special.bessel_{name}": (_FLOAT64, False, _FEW_DIGITS) for name in ("j0", "j1", "y1")},
}


def why_no_reference(info: Any, device: str, dtype: torch.dtype) -> str:
    """Return why plain eager on the CPU is no reference for an OpInfo; "" if it is one."""
    dtypes, elsewhere, why = NOT_A_REFERENCE.get(full_name(info), ((), False, ""))
    return why if dtype in dtypes and (device != "cpu" or not elsewhere) else ""
