"""Recurrent layers as cuDNN and MIOpen have them: all layers, directions and steps of an RNN in one op, and its gradient.

A step is one of the fused cells (`rnn_cells`). Backward runs forward again for what its cells need, and goes through time (Werbos
1990): the space that the libraries reserve between both holds nothing but the seed of the dropout between layers. The sizes of
batches that shrink from step to step (packed sequences) are numbers of the call: states keep all rows, and a step moves the first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.philox import philox_uniform
from eagerdecomp.decomps.matmul.rnn_cells import gru_cell, gru_cell_backward, lstm_cell, lstm_cell_backward
from eagerdecomp.eager.promotion import in_type, wide_type, widened
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: `cudnnRNNMode_t`, and MIOpen's.
_RELU, _TANH, _LSTM, _GRU = range(4)


@dataclass(frozen=True)
class _Layers:
    """A call: what both libraries' ops take."""

    weights: Sequence[Tensor]
    per_layer: int
    mode: int
    hidden_size: int
    proj_size: int
    num_layers: int
    batch_first: bool
    dropout: float
    train: bool
    bidirectional: bool
    batch_sizes: Sequence[int]

    @property
    def directions(self) -> int:
        return 2 if self.bidirectional else 1

    @property
    def dropped(self) -> bool:
        """Whether there is dropout between layers."""
        return self.train and self.dropout > 0 and self.num_layers > 1

    def part(self, number: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Weights of input and state, biases of both, and of the projection, of a layer and direction."""
        given = list(self.weights[number * self.per_layer : (number + 1) * self.per_layer])
        projection = given.pop() if self.proj_size else None
        b_ih, b_hh = given[2:] if len(given) == 4 else (None, None)
        return given[0], given[1], b_ih, b_hh, projection

    def steps(self, input: Tensor) -> list[Tensor]:
        """The rows of each step."""
        if self.batch_sizes:
            return list(aten.split_with_sizes.default(input, list(self.batch_sizes)))
        return list(aten.unbind.int(input, 1 if self.batch_first else 0))

    def whole(self, steps: Sequence[Tensor]) -> Any:
        """Join the rows of all steps: the inverse of `steps`."""
        return aten.cat.default(steps) if self.batch_sizes else aten.stack.default(steps, 1 if self.batch_first else 0)


@dataclass
class _Step:
    """The values of a step of a layer and direction that backward needs: the inputs, and the cell's results."""

    time: int
    given: Tensor
    before: Tensor
    cell_before: Tensor | None
    whole_state: Tensor
    cell: Tensor | None
    workspace: Tensor


@dataclass
class _Tape:
    """The steps of a layer and direction, in the order in which they ran."""

    steps: list[_Step] = field(default_factory=list)


def _first(state: Tensor, rows: int) -> Any:
    return state if state.size(0) == rows else aten.slice.Tensor(state, 0, 0, rows)


def _moved(state: Tensor, new: Tensor) -> Any:
    """The state whose first rows are new."""
    rows = new.size(0)
    return new if state.size(0) == rows else aten.cat.default([new, aten.slice.Tensor(state, 0, rows, state.size(0))])


def _times_weight(x: Tensor, weight: Tensor) -> Any:
    return aten.mm.default(x, aten.permute.default(weight, [1, 0]))


def _cell(
    mode: int, gates: Tensor, hidden_gates: Tensor, before: Tensor, cell: Tensor | None, b_ih: Tensor | None, b_hh: Tensor | None
) -> tuple[Any, Any, Any]:
    """-> the state, the cell of an LSTM, and what backward needs."""
    if mode == _LSTM:
        assert cell is not None
        return lstm_cell(gates, hidden_gates, cell, b_ih, b_hh)
    if mode == _GRU:
        state, workspace = gru_cell(gates, hidden_gates, before, b_ih, b_hh)
        return state, None, workspace
    total = aten.add.Tensor(widened(gates), widened(hidden_gates))
    for bias in (b_ih, b_hh):
        if bias is not None:
            total = aten.add.Tensor(total, widened(bias))
    state = in_type((aten.relu if mode == _RELU else aten.tanh).default(total), gates.dtype)
    return state, None, state


def _cell_backward(mode: int, step: _Step, grad: Tensor, grad_cell: Tensor | None, has_bias: bool) -> tuple[Any, ...]:
    """-> the gradients of both kinds of gates, what reaches the state before by the cell itself, of the cell before, of both
    biases."""
    if mode == _LSTM:
        assert step.cell_before is not None
        assert step.cell is not None
        of_gates, of_cell, of_bias = lstm_cell_backward(grad, grad_cell, step.cell_before, step.cell, step.workspace, has_bias)
        return of_gates, of_gates, None, of_cell, of_bias, of_bias
    if mode == _GRU:
        of_input, of_hidden, direct, of_b_ih, of_b_hh = gru_cell_backward(grad, step.workspace, has_bias)
        return of_input, of_hidden, direct, None, of_b_ih, of_b_hh
    out, wide = widened(step.workspace), widened(grad)
    slope = aten.sub.Tensor(wide, aten.mul.Tensor(wide, aten.mul.Tensor(out, out)))
    if mode == _RELU:
        slope = aten.mul.Tensor(wide, in_type(aten.gt.Scalar(out, 0), out.dtype))
    of_gates = in_type(slope, grad.dtype)
    of_bias = aten.sum.dim_IntList(of_gates, [0]) if has_bias else None
    return of_gates, of_gates, None, None, of_bias, of_bias


def _run_direction(
    layers: _Layers, number: int, steps: Sequence[Tensor], state: Tensor, cell: Tensor | None
) -> tuple[list[Any], Any, Any, _Tape]:
    """-> the output of each step, the last state and cell, and the tape."""
    w_ih, w_hh, b_ih, b_hh, projection = layers.part(number)
    reverse, tape = bool(number % layers.directions), _Tape()
    outputs: list[Any] = [None] * len(steps)
    for time in reversed(range(len(steps))) if reverse else range(len(steps)):
        given, rows = steps[time], steps[time].size(0)
        before, cell_before = _first(state, rows), None if cell is None else _first(cell, rows)
        gates, hidden_gates = _times_weight(given, w_ih), _times_weight(before, w_hh)
        whole, new_cell, workspace = _cell(layers.mode, gates, hidden_gates, before, cell_before, b_ih, b_hh)
        out = whole if projection is None else _times_weight(whole, projection)
        tape.steps.append(_Step(time, given, before, cell_before, whole, new_cell, workspace))
        outputs[time], state = out, _moved(state, out)
        cell = None if cell is None else _moved(cell, new_cell)
    return outputs, state, cell, tape


def _dropout(layers: _Layers, layer: int, like: Tensor, seed: Tensor | None) -> Any:
    """The dropout factor of a layer's output; None without dropout, and after the last layer."""
    if not layers.dropped or seed is None or layer == layers.num_layers - 1:
        return None
    if layers.dropout >= 1:
        return aten.full.default(list(like.shape), 0, dtype=like.dtype, device=like.device)
    counter = aten.full.default([], layer << 40, dtype=torch.int64, device=like.device)
    kept = aten.ge.Scalar(philox_uniform(like.numel(), seed, counter), layers.dropout)
    scaled = aten.mul.Scalar(in_type(kept, wide_type(like.dtype)), 1 / (1 - layers.dropout))
    return in_type(aten.view.default(scaled, list(like.shape)), like.dtype)


def _run(
    layers: _Layers, input: Tensor, hx: Tensor, cx: Tensor | None, seed: Tensor | None
) -> tuple[list[Any], list[Any], list[Any], list[_Tape], list[Any]]:
    """-> the outputs of the last layer, last states and cells, tapes, and the factors of dropout behind each layer."""
    steps, states, cells, tapes, factors = layers.steps(input), [], [], [], []
    for layer in range(layers.num_layers):
        found = []
        for number in range(layer * layers.directions, (layer + 1) * layers.directions):
            cell = None if cx is None else aten.select.int(cx, 0, number)
            outputs, state, cell, tape = _run_direction(layers, number, steps, aten.select.int(hx, 0, number), cell)
            found.append(outputs)
            states.append(state)
            cells.append(cell)
            tapes.append(tape)
        steps = found[0] if len(found) == 1 else [aten.cat.default([*both], -1) for both in zip(*found, strict=True)]
        factor = _dropout(layers, layer, aten.cat.default(steps) if layers.dropped else steps[0], seed)
        apart = None if factor is None else _by_step(factor, steps)
        factors.append(apart)
        if apart is not None:
            steps = [aten.mul.Tensor(one, by) for one, by in zip(steps, apart, strict=True)]
    return list(steps), states, cells, tapes, factors


def _by_step(rows: Tensor, steps: Sequence[Tensor]) -> list[Tensor]:
    return list(aten.split_with_sizes.default(rows, [one.size(0) for one in steps]))


def _seed_of(reserve: Tensor) -> Any:
    """The seed that eight bytes hold."""
    places = aten.arange.start_step(0, 8, 1, device=reserve.device)
    powers = aten.pow.Scalar(256, places)
    return aten.sum.default(aten.mul.Tensor(aten._to_copy.default(reserve, dtype=torch.int64), powers))


def _forward(layers: _Layers, input: Tensor, weight_buf: Tensor | None, hx: Tensor, cx: Tensor | None) -> Any:
    reserve = aten.full.default([0], 0, dtype=torch.uint8, device=input.device)
    if layers.dropped:
        drawn = aten.randint.low(0, 256, [8], dtype=torch.int64, device=input.device)
        reserve = aten._to_copy.default(drawn, dtype=torch.uint8)
    steps, states, cells, _, _ = _run(layers, input, hx, cx, _seed_of(reserve) if layers.dropped else None)
    nothing = aten.full.default([0], 0, dtype=input.dtype, device=input.device)
    buffer = aten.cat.default([aten.reshape.default(one, [-1]) for one in layers.weights]) if weight_buf is None else weight_buf
    return layers.whole(steps), aten.stack.default(states), nothing if cx is None else aten.stack.default(cells), reserve, buffer


def _added(one: Any, other: Any) -> Any:
    return other if one is None else one if other is None else aten.add.Tensor(one, other)


def _back_through(
    layers: _Layers, number: int, tape: _Tape, grads: Sequence[Any], grad_state: Any, grad_cell: Any
) -> tuple[list[Any], Any, Any, list[Any]]:
    """-> the gradients of a direction's steps, first state, first cell and weights."""
    w_ih, w_hh, b_ih, _, projection = layers.part(number)
    of_input: list[Any] = [None] * len(tape.steps)
    sums: list[Any] = [None] * 5
    for step in reversed(tape.steps):
        rows = step.given.size(0)
        grad = _added(_first(grad_state, rows), grads[step.time])
        here = None if grad_cell is None else _first(grad_cell, rows)
        if projection is not None:
            sums[4] = _added(sums[4], aten.mm.default(aten.permute.default(grad, [1, 0]), step.whole_state))
            grad = aten.mm.default(grad, projection)
        found = _cell_backward(layers.mode, step, grad, here, b_ih is not None)
        of_gates, of_hidden, direct, of_cell, of_b_ih, of_b_hh = found
        of_input[step.time] = aten.mm.default(of_gates, w_ih)
        sums[0] = _added(sums[0], aten.mm.default(aten.permute.default(of_gates, [1, 0]), step.given))
        sums[1] = _added(sums[1], aten.mm.default(aten.permute.default(of_hidden, [1, 0]), step.before))
        sums[2], sums[3] = _added(sums[2], of_b_ih), _added(sums[3], of_b_hh)
        grad_state = _moved(grad_state, _added(aten.mm.default(of_hidden, w_hh), direct))
        grad_cell = None if grad_cell is None else _moved(grad_cell, of_cell)
    weights = sums[:2] + (sums[2:4] if b_ih is not None else []) + (sums[4:] if projection is not None else [])
    return of_input, grad_state, grad_cell, weights


def _backward(
    layers: _Layers,
    input: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    reserve: Tensor,
    output_mask: Sequence[bool],
) -> Any:
    if grad_output is None and grad_hy is None and grad_cy is None:
        return None, None, None, []
    *_, tapes, factors = _run(layers, input, hx, cx, _seed_of(reserve) if layers.dropped else None)
    count = layers.directions
    width = layers.proj_size or layers.hidden_size
    grads: list[Any] = [None] * len(tapes[0].steps) if grad_output is None else layers.steps(grad_output)
    of_weights: list[list[Any]]
    of_states, of_cells, of_weights = _ends(hx, grad_hy, len(tapes)), _ends(cx, grad_cy, len(tapes)), [[] for _ in tapes]
    for layer in reversed(range(layers.num_layers)):
        if factors[layer] is not None:
            grads = [None if one is None else aten.mul.Tensor(one, by) for one, by in zip(grads, factors[layer], strict=True)]
        together: list[Any] = [None] * len(grads)
        for direction in range(count):
            number = layer * count + direction
            mine = [
                None if one is None else aten.slice.Tensor(one, -1, direction * width, (direction + 1) * width) for one in grads
            ]
            given, of_states[number], of_cells[number], of_weights[number] = _back_through(
                layers, number, tapes[number], mine, of_states[number], of_cells[number]
            )
            together = [_added(one, other) for one, other in zip(together, given, strict=True)]
        grads = together
    return (
        layers.whole(grads) if output_mask[0] else None,
        aten.stack.default(of_states) if output_mask[1] else None,
        aten.stack.default(of_cells) if output_mask[2] and cx is not None else None,
        [one for part in of_weights for one in part] if output_mask[3] else [],
    )


def _ends(state: Tensor | None, grad: Tensor | None, count: int) -> list[Any]:
    """The gradients of the last states of all layers and directions; zeros where none is given, None where there is no state."""
    if grad is None:
        grad = None if state is None else aten.zeros_like.default(state)
    if grad is None:
        return [None] * count
    return list(aten.unbind.int(grad))


# -- the ops ----------------------------------------------------------------------------------------------------------------


@rule("aten._cudnn_rnn.default", recorded=True)
def _cudnn(
    input: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor | None,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
) -> Any:
    layers = _Layers(
        weight, weight_stride0, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    return _forward(layers, input, weight_buf, hx, cx)


@rule("aten._cudnn_rnn_backward.default", recorded=True)
def _cudnn_backward(
    input: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    output: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    mode: int,
    hidden_size: int,
    proj_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
    reserve: Tensor,
    output_mask: Sequence[bool],
) -> Any:
    layers = _Layers(
        weight, weight_stride0, mode, hidden_size, proj_size, num_layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    return _backward(layers, input, hx, cx, grad_output, grad_hy, grad_cy, reserve, output_mask)


@rule("aten.miopen_rnn.default", recorded=True)
def _miopen(
    input: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    hx: Tensor,
    cx: Tensor | None,
    mode: int,
    hidden_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
) -> Any:
    layers = _Layers(
        weight, weight_stride0, mode, hidden_size, 0, num_layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    return _forward(layers, input, None, hx, cx)


@rule("aten.miopen_rnn_backward.default", recorded=True)
def _miopen_backward(
    input: Tensor,
    weight: Sequence[Tensor],
    weight_stride0: int,
    weight_buf: Tensor,
    hx: Tensor,
    cx: Tensor | None,
    output: Tensor,
    grad_output: Tensor | None,
    grad_hy: Tensor | None,
    grad_cy: Tensor | None,
    mode: int,
    hidden_size: int,
    num_layers: int,
    batch_first: bool,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_sizes: Sequence[int],
    dropout_state: Tensor | None,
    reserve: Tensor,
    output_mask: Sequence[bool],
) -> Any:
    layers = _Layers(
        weight, weight_stride0, mode, hidden_size, 0, num_layers, batch_first, dropout, train, bidirectional, batch_sizes
    )
    return _backward(layers, input, hx, cx, grad_output, grad_hy, grad_cy, reserve, output_mask)


@rule("aten._cudnn_rnn_flatten_weight.default", recorded=True)
def _flatten_weight(weight_arr: Sequence[Tensor], *rest: Any) -> Any:
    """One buffer of all weights; they keep their own memory, which nothing here reads by the buffer."""
    return aten.cat.default([aten.reshape.default(one, [-1]) for one in weight_arr])
