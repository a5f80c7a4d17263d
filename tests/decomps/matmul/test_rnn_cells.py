"""Fused cells of LSTM and GRU: no CPU kernel exists, so the oracle is the layer's own formula by autograd, in float64."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from on_core import on_core
from torch import Tensor

aten = torch.ops.aten


def on_set(op: Any, *args: Any) -> Any:
    """Run the op on Core ATen three times (recorded, replayed, hit) and return the last result."""
    return on_core(lambda: [op(*copy.deepcopy(args)) for _ in range(3)])[-1]


def lstm(given: Tensor, state: Tensor, cx: Tensor, b1: Tensor | None, b2: Tensor | None) -> tuple[Tensor, Tensor]:
    gates = given + state + (0 if b1 is None or b2 is None else b1 + b2)
    i, f, g, o = gates.chunk(4, 1)
    cy = f.sigmoid() * cx + i.sigmoid() * g.tanh()
    return o.sigmoid() * cy.tanh(), cy


def gru(given: Tensor, state: Tensor, hx: Tensor, b1: Tensor | None, b2: Tensor | None) -> Tensor:
    given, state = given + (0 if b1 is None else b1), state + (0 if b2 is None else b2)
    (ir, iz, i_n), (hr, hz, hn) = given.chunk(3, 1), state.chunk(3, 1)
    r, z = (ir + hr).sigmoid(), (iz + hz).sigmoid()
    n = (i_n + r * hn).tanh()
    return (1 - z) * n + z * hx


def inputs(gates: int, dtype: torch.dtype, *, bias: bool) -> list[Any]:
    torch.manual_seed(0)
    made: list[Any] = [torch.randn(3, gates * 5), torch.randn(3, gates * 5), torch.randn(3, 5)]
    made += [torch.randn(gates * 5), torch.randn(gates * 5)] if bias else [None, None]
    return [one if one is None else one.to(dtype) for one in made]


def wide(values: list[Any]) -> list[Any]:
    return [one if one is None else one.detach().double().requires_grad_() for one in values]


def close(got: Any, want: Any, dtype: torch.dtype) -> None:
    assert got.dtype is dtype
    tolerance = 2e-6 if dtype is torch.float32 else 2e-2
    torch.testing.assert_close(got.double(), want.detach(), rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("grads", ["both", "state", "cell"])
def test_lstm_cells_give_the_formulas_values_and_gradients(bias: bool, dtype: torch.dtype, grads: str) -> None:
    given = inputs(4, dtype, bias=bias)
    exact = wide(given)
    hy, cy = lstm(*exact)
    got = on_set(aten._thnn_fused_lstm_cell.default, *given)
    close(got[0], hy, dtype)
    close(got[1], cy, dtype)
    weights = [torch.randn(3, 5).to(dtype) for _ in range(2)]
    grad_hy, grad_cy = weights[0] if grads != "cell" else None, weights[1] if grads != "state" else None
    parts = [(out, grad.double()) for out, grad in ((hy, grad_hy), (cy, grad_cy)) if grad is not None]
    wanted = [one for one in exact if one is not None]
    found = torch.autograd.grad([out for out, _ in parts], wanted, [grad for _, grad in parts])
    back = on_set(aten._thnn_fused_lstm_cell_backward_impl.default, grad_hy, grad_cy, given[2], got[1], got[2], bias)
    close(back[0], found[0], dtype)
    close(back[1], found[2], dtype)
    assert (back[2] is None) == (not bias)
    if bias:
        close(back[2], found[3], dtype)


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_gru_cells_give_the_formulas_values_and_gradients(bias: bool, dtype: torch.dtype) -> None:
    given = inputs(3, dtype, bias=bias)
    exact = wide(given)
    hy = gru(*exact)
    got = on_set(aten._thnn_fused_gru_cell.default, *given)
    close(got[0], hy, dtype)
    grad = torch.randn(3, 5).to(dtype)
    found = torch.autograd.grad(hy, [one for one in exact if one is not None], grad.double())
    back = on_set(aten._thnn_fused_gru_cell_backward.default, grad, got[1], bias)
    for one, other in zip(back[:3], found[:3], strict=True):
        close(one, other, dtype)
    assert [one is None for one in back[3:]] == [not bias] * 2
    if bias:
        close(back[3], found[3], dtype)
        close(back[4], found[4], dtype)


def test_a_cell_without_gradients_has_none() -> None:
    cx = torch.ones(2, 3)
    none = on_set(aten._thnn_fused_lstm_cell_backward_impl.default, None, None, cx, cx, torch.ones(2, 12), True)
    assert list(none) == [None] * 3
