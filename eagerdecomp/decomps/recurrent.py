"""Recurrent layers: packed sequences, which they read instead of padding, and oneDNN's fused LSTM layer, forward and backward.

Lengths and batch sizes are host memory by contract (torch refuses others), so reading them asks no kernel; but a call that reads
cannot be replayed for other lengths.

The LSTM layer is a loop over time, since each step needs the last one's state: 12 kernel calls a step forward, 9 backward. All that
needs no state (products with the input, activations in backward, the gradients of the weights) is done for all steps at once.
Formulas: Hochreiter and Schmidhuber 1997, gates in torch's order i, f, g, o.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.precision import HALF
from eagerdecomp.rules import Rule, own

__all__ = ["RULES"]

aten = torch.ops.aten


def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """``[T, B, *]`` (or ``[B, T, *]``) and ``B`` lengths, longest first -> the steps end to end, and the batch size of each."""
    steps = aten.transpose.int(input, 0, 1) if batch_first else input
    sizes: list[int] = lengths.tolist()
    _check(steps, sizes)
    pieces: list[Tensor] = []
    batch_sizes: list[int] = []
    # From the shortest up: the steps between one length and the next have the batch that is left.
    for length, ends in itertools.groupby(reversed(list(enumerate(sizes))), key=lambda entry: entry[1]):
        batch = max(position for position, _ in ends) + 1
        start = len(batch_sizes)
        chunk = aten.slice.Tensor(aten.slice.Tensor(steps, 0, start, length), 1, 0, batch)
        pieces.append(aten.reshape.default(chunk, [-1, *steps.shape[2:]]))
        batch_sizes.extend([batch] * (length - start))
    return aten.cat.default(pieces), torch.tensor(batch_sizes, dtype=torch.int64)


def _check(steps: Tensor, sizes: list[int]) -> None:
    if not steps.numel():
        raise RuntimeError("Cannot pack empty tensors.")
    if len(sizes) != steps.size(1):
        raise RuntimeError(f"Expected `len(lengths)` to be equal to batch_size, but got {len(sizes)} (batch_size={steps.size(1)})")
    if sizes[-1] <= 0:
        raise RuntimeError("Length of all samples has to be greater than 0, but found an element in 'lengths' that is <= 0")
    if any(shorter > longer for longer, shorter in itertools.pairwise(sizes)):
        raise RuntimeError(
            "`lengths` array must be sorted in decreasing order when `enforce_sorted` is True. You can pass "
            "`enforce_sorted=False` to pack_padded_sequence and/or pack_sequence to sidestep this requirement if you do not "
            "need ONNX exportability."
        )


def _in_float32(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Half types are widened before and rounded after, as the fused layer's kernels sum: rounded at every step, the error would
    grow with time."""

    def run(input: Tensor, *rest: Any) -> Any:
        narrow = input.dtype
        if narrow not in HALF:
            return layer(input, *rest)
        answer = layer(*(_cast(given, narrow, torch.float32) for given in (input, *rest)))
        return answer if answer is NotImplemented else tuple(_cast(result, torch.float32, narrow) for result in answer)

    return run


def _cast(given: Any, source: torch.dtype, target: torch.dtype) -> Any:
    return aten._to_copy.default(given, dtype=target) if isinstance(given, Tensor) and given.dtype is source else given


# `mode` of the fused layer; it serves no other kind of layer on the CPU.
_LSTM = 2


def lstm_layer(
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    hx: Tensor,
    cx: Tensor,
    reverse: bool,
    batch_sizes: Sequence[int],
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    bidirectional: bool,
    batch_first: bool,
    train: bool,
) -> Any:
    """``[T, B, I]`` and states ``[B, H]`` -> output ``[T, B, H]``, last states, and a workspace that our backward does not read."""
    if mode != _LSTM or batch_sizes:
        return NotImplemented
    steps = input.size(0)
    from_input = _rows(input, w_ih, aten.add.Tensor(b_ih, b_hh) if has_biases else None)
    recurrent = aten.permute.default(w_hh, [1, 0])
    hidden, cell = hx, cx
    outputs: list[Tensor] = [hx] * steps
    for time in _times(steps, reverse):
        gates = aten.addmm.default(aten.select.int(from_input, 0, time), hidden, recurrent)
        forget_in, candidate, out = aten.split_with_sizes.default(gates, [2 * hidden_size, hidden_size, hidden_size], 1)
        gate_i, gate_f = aten.split_with_sizes.default(aten.sigmoid.default(forget_in), [hidden_size, hidden_size], 1)
        fresh = aten.mul.Tensor(gate_i, aten.tanh.default(candidate))
        cell = aten.add.Tensor(aten.mul.Tensor(gate_f, cell), fresh)
        hidden = outputs[time] = aten.mul.Tensor(aten.sigmoid.default(out), aten.tanh.default(cell))
    workspace = aten.empty.memory_format([0], dtype=torch.uint8, device=input.device)
    return aten.stack.default(outputs), hidden, cell, workspace


def lstm_layer_backward(
    input: Tensor,
    w_ih: Tensor,
    w_hh: Tensor,
    b_ih: Tensor,
    b_hh: Tensor,
    hx: Tensor,
    cx: Tensor,
    output: Tensor,
    hy: Tensor,
    cy: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reverse: bool,
    mode: int,
    hidden_size: int,
    num_layers: int,
    has_biases: bool,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    batch_first: bool,
    workspace: Tensor,
) -> Any:
    """Gradients of input, both weights, both biases and both states. The gates are computed again from input and output, so that
    it does not matter whether a kernel or `lstm_layer` ran forward."""
    if mode != _LSTM or batch_sizes:
        return NotImplemented
    steps = input.size(0)
    times = _times(steps, reverse)
    outputs = aten.unbind.int(output)
    before: list[Tensor] = [hx] * steps
    for earlier, time in itertools.pairwise(times):
        before[time] = outputs[earlier]
    hidden_before = aten.stack.default(before)
    gates = aten.add.Tensor(
        _rows(input, w_ih, aten.add.Tensor(b_ih, b_hh) if has_biases else None), _rows(hidden_before, w_hh, None)
    )
    raw_i, raw_f, raw_g, raw_o = aten.split_with_sizes.default(gates, [hidden_size] * 4, 2)
    gate_i, gate_f, gate_o = (aten.sigmoid.default(raw) for raw in (raw_i, raw_f, raw_o))
    gate_g = aten.tanh.default(raw_g)

    fresh, kept = aten.unbind.int(aten.mul.Tensor(gate_i, gate_g)), aten.unbind.int(gate_f)
    cells: list[Tensor] = [cx] * steps
    cells_before: list[Tensor] = [cx] * steps
    cell = cx
    for time in times:
        cells_before[time] = cell
        cell = cells[time] = aten.add.Tensor(aten.mul.Tensor(kept[time], cell), fresh[time])
    squashed = aten.tanh.default(aten.stack.default(cells))

    # What a cell's and an output's gradient are multiplied with on their way to each gate.
    to_cell = aten.unbind.int(aten.mul.Tensor(gate_o, _tanh_slope(squashed)))
    to_gates = aten.unbind.int(
        aten.cat.default(
            [
                aten.mul.Tensor(gate_g, _sigmoid_slope(gate_i)),
                aten.mul.Tensor(aten.stack.default(cells_before), _sigmoid_slope(gate_f)),
                aten.mul.Tensor(gate_i, _tanh_slope(gate_g)),
                aten.mul.Tensor(squashed, _sigmoid_slope(gate_o)),
            ],
            2,
        )
    )
    nothing = aten.full.default(hx.shape, 0, dtype=hx.dtype, device=hx.device)
    grad_hidden = nothing if grad_hy is None else grad_hy
    grad_cell = nothing if grad_cy is None else grad_cy
    given = None if grad_output is None else aten.unbind.int(grad_output)
    grad_gates: list[Tensor] = [hx] * steps
    for time in reversed(times):
        if given is not None:
            grad_hidden = aten.add.Tensor(grad_hidden, given[time])
        grad_cell = aten.add.Tensor(grad_cell, aten.mul.Tensor(grad_hidden, to_cell[time]))
        spread = aten.cat.default([grad_cell, grad_cell, grad_cell, grad_hidden], 1)
        grad_gates[time] = aten.mul.Tensor(spread, to_gates[time])
        grad_hidden = aten.mm.default(grad_gates[time], w_hh)
        grad_cell = aten.mul.Tensor(grad_cell, kept[time])

    batch = input.size(1)
    rows = aten.view.default(aten.stack.default(grad_gates), [steps * batch, 4 * hidden_size])
    columns = aten.permute.default(rows, [1, 0])
    grad_input = aten.view.default(aten.mm.default(rows, w_ih), input.shape)
    grad_w_ih = aten.mm.default(columns, aten.reshape.default(input, [steps * batch, input.size(2)]))
    grad_w_hh = aten.mm.default(columns, aten.view.default(hidden_before, [steps * batch, hidden_size]))
    grad_bias = aten.sum.dim_IntList(rows, [0])
    return grad_input, grad_w_ih, grad_w_hh, grad_bias, aten.clone.default(grad_bias), grad_hidden, grad_cell


def _times(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


def _rows(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """A linear map of every row of ``[T, B, *]`` in one product."""
    flat = aten.reshape.default(x, [-1, x.size(2)])
    turned = aten.permute.default(weight, [1, 0])
    product = aten.mm.default(flat, turned) if bias is None else aten.addmm.default(bias, flat, turned)
    return aten.view.default(product, [x.size(0), x.size(1), weight.size(0)])  # type: ignore[no-any-return]


def _sigmoid_slope(y: Tensor) -> Tensor:
    return aten.sub.Tensor(y, aten.mul.Tensor(y, y))  # type: ignore[no-any-return]


def _tanh_slope(y: Tensor) -> Tensor:
    return aten.rsub.Scalar(aten.mul.Tensor(y, y), 1)  # type: ignore[no-any-return]


RULES: tuple[Rule, ...] = (
    own(aten._pack_padded_sequence.default, pack_padded_sequence, effects=True),
    own(aten.mkldnn_rnn_layer.default, _in_float32(lstm_layer)),
    own(aten.mkldnn_rnn_layer_backward.default, _in_float32(lstm_layer_backward)),
)
