"""Special functions of one number as rules: computed in float64, rounded once to eager's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.operators import Term
from eagerdecomp.eager.messages import not_implemented
from eagerdecomp.eager.precision import HALF
from eagerdecomp.eager.promotion import floating

__all__ = ["of_one"]


def of_one(
    formula: Callable[[Term], Term], kernel: str, *, half: bool = True, short: Callable[[Term], Term] | None = None
) -> Callable[[Tensor], Any]:
    """The rule of a formula in float64: integers become the default dtype.

    Complex numbers are refused by the name of eager's kernel, and half types where eager has no `half`. For types of fewer digits
    than float64 there may be a `short` formula, which need not be right to its last place.
    """

    def run(self: Tensor) -> Any:
        if self.dtype.is_complex or (self.dtype in HALF and not half):
            raise not_implemented(kernel, self.dtype)
        dtype = floating(self.dtype)
        chosen = formula if short is None or dtype is torch.float64 else short
        return chosen(Term(self).to(torch.float64)).to(dtype).tensor

    return run
