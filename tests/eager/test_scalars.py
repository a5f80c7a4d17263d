"""Scalars that a dtype cannot hold, and uncommon dtypes: calls return eager's result or raise its error."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import check
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import op_named
from eagerdecomp.eager.scalars import HELD, held_number
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.ops.schema import facts_of

aten = torch.ops.aten
INF, NAN = float("inf"), float("nan")
_LEFT_OUT = ("addmm.default", "clamp.default", "elu.default", "leaky_relu.default", "hardtanh.default", "sub.Tensor")
FEW = ed.core_aten() - [f"aten.{name}" for name in _LEFT_OUT]


def _ones(dtype: torch.dtype, *sizes: int) -> Tensor:
    return torch.ones(sizes, dtype=dtype)


@pytest.mark.parametrize("op", HELD)
def test_the_table_names_arguments_of_the_ops(op: str) -> None:
    found = op_named(op)
    assert found is not None
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


def _around_zero(x: Tensor) -> Tensor:
    return x - 2 * x.tril() + x.triu() if x.dtype not in (torch.bool, torch.uint8) else x


def _real(number: Any) -> float:
    return 1e-45 if isinstance(number, complex) else number


CALLS: dict[str, Callable[[Tensor, Any], Any]] = {
    "addbmm": lambda x, number: aten.addbmm(x, x.expand(2, 3, 3), x.expand(2, 3, 3), alpha=number),
    "addcdiv": lambda x, number: aten.addcdiv(x, x, x, value=number),
    "addcmul": lambda x, number: aten.addcmul(x, x, x, value=number),
    "_foreach_addcmul_": lambda x, number: aten._foreach_addcmul_([x], [x], [x], number),
    "add": lambda x, number: aten.add(x, x, alpha=number),
    "add.Scalar": lambda x, number: aten.add.Scalar(x, 2, number),
    "addmm": lambda x, number: aten.addmm(x, x, x, beta=number),
    "addmv": lambda x, number: aten.addmv(x[0], x, x[0], alpha=number),
    "addr": lambda x, number: aten.addr(x, x[0], x[0], beta=number),
    "baddbmm": lambda x, number: aten.baddbmm(x[None], x[None], x[None], alpha=number),
    "baddbmm, none of it": lambda x, number: aten.baddbmm(x[None], x[None], x[None], beta=number, alpha=0),
    "cdist": lambda x, number: aten.cdist(x, 2 * x, _real(number) if _real(number) < 1e5 else INF),
    "celu": lambda x, number: aten.celu(_around_zero(x), number),
    "clamp": lambda x, number: aten.clamp(x, 0, number),
    "clamp_max": lambda x, number: aten.clamp_max(x, number),
    "elu": lambda x, number: aten.elu(_around_zero(x), number),
    "elu_backward": lambda x, number: aten.elu_backward(x, number, 1, 1, False, x),
    "fill_": lambda x, number: aten.fill_(x, number),
    "hardshrink": lambda x, number: aten.hardshrink(x, number),
    "hardtanh": lambda x, number: aten.hardtanh(x, -1, number),
    "hardtanh_backward": lambda x, number: aten.hardtanh_backward(x, x, -1, number),
    "histc": lambda x, number: aten.histc(x, 4, 0, number),
    "index_add": lambda x, number: aten.index_add(x, 0, torch.tensor([0, 2]), x[:2], alpha=number),
    "huber_loss": lambda x, number: aten.huber_loss(x, 3 * x, 0, _real(number)),
    "leaky_relu_backward": lambda x, number: aten.leaky_relu_backward(x, x, number, False),
    "lerp": lambda x, number: aten.lerp(x, x + 1, number),
    "linalg_vector_norm": lambda x, number: aten.linalg_vector_norm(x, number) if number != -INF else x,
    "multi_margin_loss": lambda x, number: aten.multi_margin_loss(x, torch.zeros(3, dtype=torch.int64), number),
    "nan_to_num": lambda x, number: aten.nan_to_num(x / 0, posinf=_real(number)),
    "pow": lambda x, number: aten.pow(x, number),
    "scatter": lambda x, number: aten.scatter(x, 0, torch.tensor([[0, 1]]), number),
    "renorm": lambda x, number: aten.renorm(x, 2, 0, number),
    "smooth_l1_loss": lambda x, number: aten.smooth_l1_loss(x, 3 * x, 1, _real(number)),
    "sub": lambda x, number: aten.sub(x, x, alpha=number),
    "uniform_": lambda x, number: aten.uniform_(x[:0], _real(number), 1.0),
    "softplus": lambda x, number: aten.softplus(x, number),
    "softplus_backward": lambda x, number: aten.softplus_backward(x, x, 1, number),
    "softshrink": lambda x, number: aten.softshrink(x, number),
    "std": lambda x, number: aten.std(x, correction=number),
    "threshold": lambda x, number: aten.threshold(x, number, 1),
}


#: Calls that are (nearly) ops of Core ATen, and not ops of prims.
ON_FEW = ("addbmm", "addmm", "celu", "clamp", "clamp_max", "elu", "hardtanh", "sub")
ON_PRIMS = ("add", "add.Scalar", "addmm", "cdist", "hardtanh", "pow", "scatter")


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.uint8, torch.complex64])
@pytest.mark.parametrize("name", CALLS)
def test_unusual_scalars_give_eagers_result_or_error(name: str, dtype: torch.dtype) -> None:
    x = _ones(dtype, 3, 3)
    for number in (1e300, INF, NAN, 2 + 0j, 1j):
        for ops in (ed.core_aten(), *([FEW] if name in ON_FEW else []), *([ed.prims()] if name in ON_PRIMS else [])):
            check(CALLS[name], x, number, ops=ops)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("number", [1e300, INF, 1e-45])
def test_scalar_arguments_out_of_the_range_of_the_dtype_equal_eager(number: float, dtype: torch.dtype) -> None:
    x, y = torch.linspace(-3, 3, 10).to(dtype), torch.linspace(-3, 3, 10).to(dtype).flip(0)
    for run in (aten.smooth_l1_loss_backward, aten.huber_loss_backward):
        check(run.default, x, x, y, 0, number)
    check(aten.normal_.default, x, number, 0.0)
    check(aten.lerp.Scalar, x, y, -(2**63))


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64])
def test_dtype_arguments_give_eagers_result_or_error(dtype: torch.dtype) -> None:
    x = _ones(dtype, 3, 3)
    for asked in (torch.float64, torch.float16, torch.bfloat16, torch.int32, torch.complex64, torch.complex128, torch.uint16):
        for run in (aten.cumsum_.default, aten.cumprod_.default):
            check(run, x, 0, dtype=asked)
        check(aten.linalg_vector_norm.default, x, 2, [0], dtype=asked)
        check(aten.nansum.default, x, dtype=asked)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("size", [2, 20])
def test_baddbmm_with_alpha_zero_equals_eager_if_the_product_overflows(dtype: torch.dtype, size: int) -> None:
    added, odd = torch.full((2, size, size), 2.0, dtype=dtype), torch.full((2, size, size), INF, dtype=dtype)
    if dtype is not torch.float32 and size > 2 and aten.baddbmm(added, odd, odd, alpha=0).isnan().any():
        pytest.skip("oneDNN has no products of these float16 and bfloat16 here")
    check(aten.baddbmm.default, added, odd, odd, alpha=0)
    check(aten.baddbmm.default, added, torch.full_like(odd, torch.finfo(dtype).max), added, alpha=0)
