"""Recurrent layers as in cuDNN and MIOpen: all layers, directions and steps of an RNN in one op, and its gradient.

A step is one of the fused cells (`rnn_cells`). Work that needs no state is done for all steps at once: products with the input, and
in backward the gradients of input, weights and biases. Backward runs forward again for the values that its cells need, then goes
back through time (Werbos 1990). So the reserve space that the libraries pass from forward to backward contains only the seed of the
dropout between layers.

The batch sizes of packed sequences are arguments of the call. States keep all rows, and a step updates the first rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp.decomps.math.philox import philox_uniform
from eagerdecomp.decomps.matmul.rnn_cells import gru_cell, gru_cell_backward, lstm_cell
from eagerdecomp.eager.promotion import in_type, wide_type, widened
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten

#: ``cudnnRNNMode_t``, and MIOpen's.
_RELU, _TANH, _LSTM, _GRU = range(4)


@dataclass(frozen=True)
class _Layers:
    """The arguments that the ops of both libraries share."""

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
        """Return whether there is dropout between layers."""
        return self.train and self.dropout > 0 and self.num_layers > 1

    def part(self, number: int) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        """Return the weights of input and state, their biases, and the projection, of a layer and direction."""
        given = list(self.weights[number * self.per_layer : (number + 1) * self.per_layer])
        projection = given.pop() if self.proj_size else None
        b_ih, b_hh = given[2:] if len(given) == 4 else (None, None)
        return given[0], given[1], b_ih, b_hh, projection

    def steps(self, input: Tensor) -> list[Tensor]:
        """Split the input into the rows of each step."""
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
    """Return the state with its first rows replaced by `new`."""
    rows = new.size(0)
    return new if state.size(0) == rows else aten.cat.default([new, aten.slice.Tensor(state, 0, rows, state.size(0))])


def _times_weight(x: Tensor, weight: Tensor) -> Any:
    return aten.mm.default(x, aten.permute.default(weight, [1, 0]))


def _cell(
    mode: int, gates: Tensor, hidden_gates: Tensor, before: Tensor, cell: Tensor | None, b_hh: Tensor | None
) -> tuple[Any, Any, Any]:
    """Return the state, the cell of an LSTM, and the workspace for backward.

    Only a GRU takes a bias here: other biases are already added to `gates`.
    """
    if mode == _LSTM:
        assert cell is not None
        return lstm_cell(gates, hidden_gates, cell)
    if mode == _GRU:
        state, workspace = gru_cell(gates, hidden_gates, before, None, b_hh)
        return state, None, workspace
    total = aten.add.Tensor(widened(gates), widened(hidden_gates))
    state = in_type((aten.relu if mode == _RELU else aten.tanh).default(total), before.dtype)
    return state, None, state


#: The factors of gradients: from the output to the cell, to the gates, and from the cell to the previous cell.
_Factors: TypeAlias = tuple[Any, Any, Any]


def _lstm_factors(tape: _Tape) -> list[_Factors]:
    """Return the factors of each step, computed for all steps at once, since they do not depend on gradients."""
    gates = widened(aten.cat.default([step.workspace for step in tape.steps]))
    cell, cell_before = (
        widened(aten.cat.default(cells))
        for cells in ([step.cell for step in tape.steps], [step.cell_before for step in tape.steps])
    )
    reached = aten.tanh.default(cell)
    i, f, g, o = aten.split_with_sizes.default(gates, [cell.size(1)] * 4, 1)
    to_cell = aten.sub.Tensor(o, aten.mul.Tensor(o, aten.mul.Tensor(reached, reached)))
    through_sigmoid = aten.sub.Tensor(gates, aten.mul.Tensor(gates, gates))
    slope_i, slope_f, _, slope_o = aten.split_with_sizes.default(through_sigmoid, [cell.size(1)] * 4, 1)
    to_gates = aten.cat.default(
        [
            aten.mul.Tensor(slope_i, g),
            aten.mul.Tensor(slope_f, cell_before),
            aten.sub.Tensor(i, aten.mul.Tensor(i, aten.mul.Tensor(g, g))),
            aten.mul.Tensor(slope_o, reached),
        ],
        1,
    )
    before = [step.before for step in tape.steps]
    return list(zip(_by_step(to_cell, before), _by_step(to_gates, before), _by_step(f, before), strict=True))


def _cell_backward(
    mode: int, step: _Step, factors: _Factors | None, grad: Tensor, grad_cell: Tensor | None
) -> tuple[Any, Any, Any, Any]:
    """Return the gradients of input gates, hidden gates, the previous state (through the cell only) and the previous cell."""
    if factors is not None:
        to_cell, to_gates, to_before = factors
        wide = widened(grad)
        of_cell = aten.mul.Tensor(wide, to_cell)
        if grad_cell is not None:
            of_cell = aten.add.Tensor(widened(grad_cell), of_cell)
        of_gates = aten.mul.Tensor(aten.cat.default([of_cell, of_cell, of_cell, wide], 1), to_gates)
        rounded = in_type(of_gates, grad.dtype)
        return rounded, rounded, None, in_type(aten.mul.Tensor(of_cell, to_before), grad.dtype)
    if mode == _GRU:
        of_input, of_hidden, direct, _, _ = gru_cell_backward(grad, step.workspace, False)
        return of_input, of_hidden, direct, None
    out, wide = widened(step.workspace), widened(grad)
    slope = aten.sub.Tensor(wide, aten.mul.Tensor(wide, aten.mul.Tensor(out, out)))
    if mode == _RELU:
        slope = aten.mul.Tensor(wide, in_type(aten.gt.Scalar(out, 0), out.dtype))
    of_gates = in_type(slope, grad.dtype)
    return of_gates, of_gates, None, None


def _run_direction(
    layers: _Layers, number: int, steps: Sequence[Tensor], state: Tensor, cell: Tensor | None
) -> tuple[list[Any], Any, Any, _Tape]:
    """Return the output of each step, the last state and cell, and the tape."""
    w_ih, w_hh, b_ih, b_hh, projection = layers.part(number)
    reverse, tape = bool(number % layers.directions), _Tape()
    from_input = _times_weight(aten.cat.default(steps), w_ih)
    # The reset gate of a GRU scales the hidden bias, so the cell adds that bias.
    for bias in (b_ih, None if layers.mode == _GRU else b_hh):
        if bias is not None:
            from_input = aten.add.Tensor(widened(from_input), widened(bias))
    gates = _by_step(from_input, steps)
    outputs: list[Any] = [None] * len(steps)
    for time in reversed(range(len(steps))) if reverse else range(len(steps)):
        given, rows = steps[time], steps[time].size(0)
        before, cell_before = _first(state, rows), None if cell is None else _first(cell, rows)
        hidden_bias = b_hh if layers.mode == _GRU else None
        whole, new_cell, workspace = _cell(layers.mode, gates[time], _times_weight(before, w_hh), before, cell_before, hidden_bias)
        out = whole if projection is None else _times_weight(whole, projection)
        tape.steps.append(_Step(time, given, before, cell_before, whole, new_cell, workspace))
        outputs[time], state = out, _moved(state, out)
        cell = None if cell is None else _moved(cell, new_cell)
    return outputs, state, cell, tape


def _dropout(layers: _Layers, layer: int, like: Tensor, seed: Tensor | None) -> Any:
    """Return the dropout factor of a layer's output; None without dropout, and after the last layer."""
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
    """Return the outputs of the last layer, last states and cells, tapes, and the dropout factor after each layer."""
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
    """Return the seed that is stored in eight bytes."""
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
    """Return the gradients of a direction's steps, first state, first cell and weights."""
    w_ih, w_hh, b_ih, _, projection = layers.part(number)
    of_gates: list[Any] = [None] * len(tape.steps)
    of_hidden, of_output = list(of_gates), list(of_gates)
    factors = _lstm_factors(tape) if layers.mode == _LSTM else [None] * len(tape.steps)
    for step, by in zip(reversed(tape.steps), reversed(factors), strict=True):
        rows = step.given.size(0)
        grad = _added(_first(grad_state, rows), grads[step.time])
        here = None if grad_cell is None else _first(grad_cell, rows)
        if projection is not None:
            of_output[step.time], grad = grad, aten.mm.default(grad, projection)
        at = step.time
        of_gates[at], of_hidden[at], direct, of_cell = _cell_backward(layers.mode, step, by, grad, here)
        grad_state = _moved(grad_state, _added(aten.mm.default(of_hidden[at], w_hh), direct))
        grad_cell = None if grad_cell is None else _moved(grad_cell, of_cell)
    steps = sorted(tape.steps, key=lambda step: step.time)
    rows, given = aten.cat.default(of_gates), aten.cat.default([step.given for step in steps])
    hidden_rows = aten.cat.default(of_hidden) if layers.mode == _GRU else rows
    weights = [_weight_gradient(rows, given), _weight_gradient(hidden_rows, aten.cat.default([step.before for step in steps]))]
    if b_ih is not None:
        of_bias = aten.sum.dim_IntList(rows, [0])
        other = aten.sum.dim_IntList(hidden_rows, [0]) if layers.mode == _GRU else aten.clone.default(of_bias)
        weights += [of_bias, other]
    if projection is not None:
        weights.append(_weight_gradient(aten.cat.default(of_output), aten.cat.default([step.whole_state for step in steps])))
    return _by_step(aten.mm.default(rows, w_ih), of_gates), grad_state, grad_cell, weights


def _weight_gradient(of_result: Tensor, given: Tensor) -> Any:
    return aten.mm.default(aten.permute.default(of_result, [1, 0]), given)


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
    """Return the gradients of the last states of all layers and directions.

    They are zeros if `grad` is None, and None if there is no state.
    """
    if grad is None:
        grad = None if state is None else aten.zeros_like.default(state)
    if grad is None:
        return [None] * count
    return list(aten.unbind.int(grad))


# -- the ops ----------------------------------------------------------------------------------------------------------------


def _layers(call: Any) -> _Layers:
    return _Layers(
        call.weight,
        call.weight_stride0,
        call.mode,
        call.hidden_size,
        getattr(call, "proj_size", 0),
        call.num_layers,
        call.batch_first,
        call.dropout,
        call.train,
        call.bidirectional,
        call.batch_sizes,
    )


@rule("aten._cudnn_rnn.default", "aten.miopen_rnn.default", by_schema=True)
def _rnn(call: Any) -> Any:
    return _forward(_layers(call), call.input, getattr(call, "weight_buf", None), call.hx, call.cx)


@rule("aten._cudnn_rnn_backward.default", "aten.miopen_rnn_backward.default", by_schema=True)
def _rnn_backward(call: Any) -> Any:
    grads = call.grad_output, call.grad_hy, call.grad_cy
    return _backward(_layers(call), call.input, call.hx, call.cx, *grads, call.reserve, call.output_mask)


@rule("aten._cudnn_rnn_flatten_weight.default", recorded=True)
def _flatten_weight(weight_arr: Sequence[Tensor], *rest: Any) -> Any:
    """Concatenate all weights into one buffer.

    The weights keep their own memory; no rule here reads them through the buffer.
    """
    return aten.cat.default([aten.reshape.default(one, [-1]) for one in weight_arr])
