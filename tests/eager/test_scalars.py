"""Scalars that a dtype cannot hold: they are cast or refused as by eager."""

from __future__ import annotations

import functools
from typing import Any

import pytest
import torch
from on_core import check

import eagerdecomp as ed
from eagerdecomp.eager.scalars import HELD, held_number
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.ops.opset import resolve_ops
from eagerdecomp.ops.schema import facts_of

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")


@pytest.mark.parametrize("op", HELD)
def test_the_table_names_arguments_of_the_ops(op: str) -> None:
    (found,) = resolve_ops([op])
    names = [argument.name for argument in facts_of(found).arguments]
    assert [names[held.place] for held in HELD[op]] == [held.name for held in HELD[op]]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.float64, torch.int64, torch.int32, torch.complex64])
@pytest.mark.parametrize("value", [1e300, 1e5, INF, -INF, NAN, 1j, 2 + 0j, 2.7, True, -1, 2**40, 1e-45])
def test_scalars_are_cast_to_a_dtype_as_eager_casts_them(dtype: torch.dtype, value: Any) -> None:
    try:
        want: Any = aten.fill_.Scalar(torch.zeros(2, dtype=dtype), value)[0].item()
    except RuntimeError:
        with pytest.raises(Declined):
            held_number(value, dtype)
        return
    got = torch.tensor(held_number(value, dtype), dtype=dtype).item()
    assert got == want or (got != got and want != want)


@pytest.mark.parametrize("number", [5e306, -1e39, 70000, 2**62, -(2**63)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int32])
def test_a_scalar_operand_beyond_the_dtype_is_cast_as_a_wrapped_number(number: float, dtype: torch.dtype) -> None:
    x = torch.tensor([1, -2, 0, 7]).to(dtype)
    for op in ("eq.Scalar", "gt.Scalar", "sub.Scalar", "remainder.Scalar", "xlogy.Scalar_Other", "special_zeta.other_scalar"):
        check(functools.reduce(getattr, op.split("."), aten), x, number, ops=ed.tiny())
