"""Special functions of one number as rules: computed in float64, rounded once to eager's type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.formulas import Term
from eagerdecomp.precision import HALF
from eagerdecomp.promotion import floating
from eagerdecomp.spelling import not_implemented

__all__ = ["of_one"]


def of_one(formula: Callable[[Term], Term], kernel: str, *, half: bool = True) -> Callable[[Tensor], Any]:
    """The rule of a formula in float64: integers become the default dtype.

    Complex numbers are refused by the name of eager's kernel, and half types where eager has no `half`.
    """

    def run(self: Tensor) -> Any:
        if self.dtype.is_complex or (self.dtype in HALF and not half):
            raise not_implemented(kernel, self.dtype)
        return formula(Term(self).to(torch.float64)).to(floating(self.dtype)).tensor

    return run
