"""Fused cells of LSTM and GRU: one step of a recurrent layer. On accelerators torch calls them; on the CPU it calls single ops.

A forward cell returns a workspace for its backward cell: the activated gates, and for a GRU also the state and the term that its
reset gate scales. float16 and bfloat16 are computed in float32 and rounded once, as in the fused kernels. Formulas: Hochreiter and
Schmidhuber 1997, gates in torch's order i, f, g, o; Cho et al. 2014, gates r, z, n, with the reset gate after the product, as in
cuDNN.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.promotion import in_type, widened
from eagerdecomp.rules.rule import rule

__all__ = ["gru_cell", "gru_cell_backward", "lstm_cell", "lstm_cell_backward"]

aten = torch.ops.aten


@rule("aten._thnn_fused_lstm_cell.default", recorded=True)
def lstm_cell(
    input_gates: Tensor, hidden_gates: Tensor, cx: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the next state, the next cell and the workspace."""
    before = aten.add.Tensor(_with_bias(input_gates, input_bias), _with_bias(hidden_gates, hidden_bias))
    # The candidate's sigmoid is not used: one call for all four gates is cheaper than one per gate.
    i, f, _, o = _parts(aten.sigmoid.default(before), 4)
    g = aten.tanh.default(_parts(before, 4)[2])
    cy = aten.add.Tensor(aten.mul.Tensor(f, widened(cx)), aten.mul.Tensor(i, g))
    hy = aten.mul.Tensor(o, aten.tanh.default(cy))
    return in_type(hy, cx.dtype), in_type(cy, cx.dtype), in_type(aten.cat.default([i, f, g, o], 1), cx.dtype)


@rule("aten._thnn_fused_lstm_cell_backward_impl.default", recorded=True)
def lstm_cell_backward(
    grad_hy: Tensor | None, grad_cy: Tensor | None, cx: Tensor, cy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Return the gradients of the gates, of the previous cell and of each bias."""
    if grad_hy is None and grad_cy is None:
        return None, None, None
    i, f, g, o = _parts(widened(workspace), 4)
    reached = aten.tanh.default(widened(cy))
    grad_cell = widened(grad_cy) if grad_cy is not None else None
    if grad_hy is not None:
        grad_state = widened(grad_hy)
        grad_o = _through_sigmoid(aten.mul.Tensor(grad_state, reached), o)
        through = _through_tanh(aten.mul.Tensor(grad_state, o), reached)
        grad_cell = through if grad_cell is None else aten.add.Tensor(through, grad_cell)
    else:
        grad_o = aten.full_like.default(o, 0)
    assert grad_cell is not None
    grad_i = _through_sigmoid(aten.mul.Tensor(grad_cell, g), i)
    grad_f = _through_sigmoid(aten.mul.Tensor(grad_cell, widened(cx)), f)
    grad_g = _through_tanh(aten.mul.Tensor(grad_cell, i), g)
    grad_gates = in_type(aten.cat.default([grad_i, grad_f, grad_g, grad_o], 1), cx.dtype)
    grad_bias = aten.sum.dim_IntList(grad_gates, [0]) if has_bias else None
    return grad_gates, in_type(aten.mul.Tensor(grad_cell, f), cx.dtype), grad_bias


@rule("aten._thnn_fused_lstm_cell_backward.default", recorded=True)
def _lstm_cell_gradients(*args: Any) -> Any:
    """Return the gradients of input gates and hidden gates, of the previous cell and of both biases.

    This is torch's composition, which asserts that the gradients themselves need no gradient.
    """
    grad_gates, grad_cell, grad_bias = lstm_cell_backward(*args)
    return grad_gates, grad_gates, grad_cell, grad_bias, grad_bias


@rule("aten._thnn_fused_gru_cell.default", recorded=True)
def gru_cell(
    input_gates: Tensor, hidden_gates: Tensor, hx: Tensor, input_bias: Tensor | None = None, hidden_bias: Tensor | None = None
) -> tuple[Tensor, Tensor]:
    """Return the next state and the workspace."""
    given, state = _with_bias(input_gates, input_bias), _with_bias(hidden_gates, hidden_bias)
    (given_r, given_z, given_n), (state_r, state_z, state_n) = _parts(given, 3), _parts(state, 3)
    r = aten.sigmoid.default(aten.add.Tensor(given_r, state_r))
    z = aten.sigmoid.default(aten.add.Tensor(given_z, state_z))
    n = aten.tanh.default(aten.add.Tensor(given_n, aten.mul.Tensor(r, state_n)))
    before = widened(hx)
    hy = aten.add.Tensor(n, aten.mul.Tensor(z, aten.sub.Tensor(before, n)))
    return in_type(hy, hx.dtype), in_type(aten.cat.default([r, z, n, before, state_n], 1), hx.dtype)


@rule("aten._thnn_fused_gru_cell_backward.default", recorded=True)
def gru_cell_backward(
    grad_hy: Tensor, workspace: Tensor, has_bias: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor | None, Tensor | None]:
    """Return the gradients of input gates and hidden gates, of the previous state and of both biases."""
    r, z, n, before, state_n = _parts(widened(workspace), 5)
    grad = widened(grad_hy)
    grad_z = _through_sigmoid(aten.mul.Tensor(grad, aten.sub.Tensor(before, n)), z)
    grad_n = _through_tanh(aten.sub.Tensor(grad, aten.mul.Tensor(grad, z)), n)
    grad_r = _through_sigmoid(aten.mul.Tensor(grad_n, state_n), r)
    grad_input = in_type(aten.cat.default([grad_r, grad_z, grad_n], 1), grad_hy.dtype)
    grad_hidden = in_type(aten.cat.default([grad_r, grad_z, aten.mul.Tensor(grad_n, r)], 1), grad_hy.dtype)
    biases = (aten.sum.dim_IntList(one, [0]) if has_bias else None for one in (grad_input, grad_hidden))
    return grad_input, grad_hidden, in_type(aten.mul.Tensor(grad, z), grad_hy.dtype), *biases  # type: ignore[return-value]


def _parts(gates: Tensor, count: int) -> Sequence[Any]:
    parts: Sequence[Any] = aten.split_with_sizes.default(gates, [gates.size(1) // count] * count, 1)
    return parts


def _with_bias(gates: Tensor, bias: Tensor | None) -> Any:
    wide = widened(gates)
    return wide if bias is None else aten.add.Tensor(wide, widened(bias))


def _through_sigmoid(grad: Tensor, out: Tensor) -> Any:
    return aten.mul.Tensor(grad, aten.mul.Tensor(out, aten.rsub.Scalar(out, 1)))


def _through_tanh(grad: Tensor, out: Tensor) -> Any:
    return aten.sub.Tensor(grad, aten.mul.Tensor(grad, aten.mul.Tensor(out, out)))
