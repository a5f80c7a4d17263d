"""Promotion of dtypes is torch's."""

from __future__ import annotations

import torch
from compare import outcome

from eagerdecomp.eager.promotion import FLOAT8, promote_types, promoted

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
UNSIGNED = [torch.uint16, torch.uint32, torch.uint64]


def test_promotion_is_torchs() -> None:
    dtypes = [*INTEGERS, *UNSIGNED, *FLOATS, torch.bool, torch.complex64, torch.complex128, torch.complex32, *FLOAT8]
    for left in dtypes:
        for right in dtypes:
            want, got = (
                outcome(lambda to=to, left=left, right=right: to(left, right)) for to in (torch.promote_types, promote_types)
            )
            assert str(got) == str(want), (left, right)
            for dims, others in ((1, 0), (0, 1), (1, 1), (0, 0)):
                operands = [torch.empty([1] * dims, dtype=left), torch.empty([1] * others, dtype=right)]
                want, got = outcome(lambda one=operands: torch.result_type(*one)), outcome(lambda one=operands: promoted(one))
                assert str(got) == str(want), (left, dims, right, others)
