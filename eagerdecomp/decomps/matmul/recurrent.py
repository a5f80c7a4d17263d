"""Recurrent layers: packed sequences and oneDNN's fused LSTM layer, forward and backward.

The lengths and batch sizes of packed sequences are CPU tensors by contract (torch refuses others). Reading them needs no kernel
call, but a call that reads them cannot be replayed for other lengths.

The LSTM layer is a loop over time, since each step needs the previous state: 10 kernel calls per step forward, 8 backward. Work
that needs no state (products with the input, activations in backward, gradients of the weights) is done for all steps at once.
Both rules are linked, not recorded: lengths differ from batch to batch, and a program would contain every step. Formulas:
Hochreiter and Schmidhuber 1997, gates in torch's order i, f, g, o.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.layouts import as_contiguous
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.rules.rule import rule

aten = torch.ops.aten


@rule("aten._pack_padded_sequence.default", recorded=True, effects=True)
def pack_padded_sequence(input: Tensor, lengths: Tensor, batch_first: bool) -> tuple[Tensor, Tensor]:
    """Pack ``[T, B, *]`` (or ``[B, T, *]``) with ``B`` lengths, longest first: return the concatenated steps and batch sizes."""
    steps = aten.transpose.int(input, 0, 1) if batch_first else input
    sizes: list[int] = lengths.tolist()
    if sizes[-1] <= 0 or any(shorter > longer for longer, shorter in itertools.pairwise(sizes)):
        return NotImplemented  # type: ignore[no-any-return]
    pieces: list[Tensor] = []
    batch_sizes: list[int] = []
    # Shortest first: the steps between two successive lengths share a batch size.
    for length, ends in itertools.groupby(reversed(list(enumerate(sizes))), key=lambda entry: entry[1]):
        batch = max(position for position, _ in ends) + 1
        start = len(batch_sizes)
        chunk = aten.slice.Tensor(aten.slice.Tensor(steps, 0, start, length), 1, 0, batch)
        pieces.append(aten.reshape.default(chunk, [-1, *steps.shape[2:]]))
        batch_sizes.extend([batch] * (length - start))
    return aten.cat.default(pieces), torch.tensor(batch_sizes, dtype=torch.int64)


@rule("aten._pad_packed_sequence.default", recorded=True, effects=True)
def pad_packed_sequence(
    data: Tensor, batch_sizes: Tensor, batch_first: bool, padding_value: Any, total_length: int
) -> tuple[Tensor, Tensor]:
    """Unpack concatenated steps with their batch sizes: return padded ``[T, B, *]`` (or ``[B, T, *]``) and the ``B`` lengths.

    The op is a composite, so it reaches a mode whole only in inference mode. torch's composition writes into its result.
    """
    sizes: list[int] = batch_sizes.tolist()
    grows = any(before < after for before, after in itertools.pairwise(sizes))
    if not batch_sizes.is_cpu or grows or sizes[-1] < 0 or 0 < total_length < len(sizes):
        return NotImplemented  # type: ignore[no-any-return]
    most, rest, done = sizes[0], list(data.shape[1:]), 0
    pieces: list[Tensor] = []
    for batch, run in itertools.groupby(sizes):
        steps = len(list(run))
        piece = aten.reshape.default(aten.slice.Tensor(data, 0, done, done + steps * batch), [steps, batch, *rest])
        if batch < most:
            missing = [0, 0] * len(rest) + [0, most - batch]
            piece = aten.constant_pad_nd.default(piece, missing, padding_value)
        pieces.append(piece)
        done += steps * batch
    if total_length > len(sizes):
        shape = [total_length - len(sizes), most, *rest]
        pieces.append(aten.full.default(shape, padding_value, dtype=data.dtype, device=data.device))
    padded = aten.cat.default(pieces)
    ends = [length for length, (size, after) in enumerate(itertools.pairwise([*sizes, 0]), 1) for _ in range(size - after)]
    lengths = ends[::-1]
    return aten.transpose.int(padded, 0, 1) if batch_first else padded, torch.tensor(lengths, dtype=torch.int64)


# The `mode` of an LSTM, the only kind of layer that the fused op supports on the CPU.
_LSTM = 2


def _cast(given: Any, source: torch.dtype, target: torch.dtype) -> Any:
    is_source = isinstance(given, Tensor) and given.dtype is source
    return aten._to_copy.default(given, dtype=target) if is_source else given


def _in_float32(layer: Callable[..., Any]) -> Callable[..., Any]:
    """Widen float16 and bfloat16 before the layer and round after it, as the fused kernels do.

    Rounding at every step would accumulate errors over time.
    """

    def run(input: Tensor, *rest: Any) -> Any:
        narrow = input.dtype
        if narrow not in HALF:
            return layer(input, *rest)
        results = layer(*(_cast(given, narrow, torch.float32) for given in (input, *rest)))
        return tuple(_cast(result, torch.float32, narrow) for result in results)

    return run


def _flattened(x: Tensor) -> Any:
    """View ``[T, B, F]`` as ``[T * B, F]``."""
    x = as_contiguous(x)
    return aten.view.default(x, [-1, x.shape[2]])


def _projected(rows: Tensor, weight: Tensor, b_ih: Tensor, b_hh: Tensor, has_biases: bool) -> Any:
    """Apply a linear map to every row and add both biases."""
    turned = aten.permute.default(weight, [1, 0])
    return aten.addmm.default(aten.add.Tensor(b_ih, b_hh), rows, turned) if has_biases else aten.mm.default(rows, turned)


def _lstm_layer(
    input: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, hx: Tensor, cx: Tensor, *options: Any
) -> Any:
    """Map ``[T, B, I]`` and states ``[B, H]`` or ``[1, B, H]`` to output ``[T, B, H]``, last states, and a workspace.

    The backward rule does not read the workspace.
    """
    reverse, batch_sizes, mode, hidden_size, _, has_biases, *_ = options
    if mode != _LSTM or batch_sizes:
        return NotImplemented
    steps, batch = input.shape[0], input.shape[1]
    from_input = aten.split_with_sizes.default(_projected(_flattened(input), w_ih, b_ih, b_hh, has_biases), [batch] * steps)
    recurrent, widths = aten.permute.default(w_hh, [1, 0]), [hidden_size] * 4
    hidden, cell = _of_rank(hx, 2), _of_rank(cx, 2)
    outputs: list[Tensor] = [hx] * steps
    for time in _times(steps, reverse):
        gates = aten.addmm.default(from_input[time], hidden, recurrent)
        # The candidate's sigmoid is not used: one call for all four gates is cheaper than one per gate.
        gate_i, gate_f, _, gate_o = aten.split_with_sizes.default(aten.sigmoid.default(gates), widths, 1)
        candidate = aten.tanh.default(aten.slice.Tensor(gates, 1, 2 * hidden_size, 3 * hidden_size))
        cell = aten.add.Tensor(aten.mul.Tensor(gate_f, cell), aten.mul.Tensor(gate_i, candidate))
        hidden = outputs[time] = aten.mul.Tensor(gate_o, aten.tanh.default(cell))
    workspace = aten.empty.memory_format([0], dtype=torch.uint8, device=input.device)
    output = aten.view.default(aten.cat.default(outputs), [steps, batch, hidden_size])
    return output, _of_rank(hidden, hx.dim()), _of_rank(cell, cx.dim()), workspace


def _of_rank(state: Tensor, rank: int) -> Any:
    """Return a state as ``[B, H]`` or ``[1, B, H]``."""
    if state.dim() == rank:
        return state
    return aten.squeeze.dims(state, [0]) if rank == 2 else aten.unsqueeze.default(state, 0)


def _cells(first: Tensor, forget_gates: Sequence[Tensor], added: Sequence[Tensor], times: Sequence[int]) -> tuple[Tensor, Tensor]:
    """Return the cell after each step, and the cell before it, as rows ``[T * B, H]``: ``cell = forget gate * cell + added``."""
    after: list[Tensor] = [first] * len(times)
    before: list[Tensor] = [first] * len(times)
    cell = first
    for time in times:
        before[time] = cell
        cell = after[time] = aten.add.Tensor(aten.mul.Tensor(forget_gates[time], cell), added[time])
    return aten.cat.default(after), aten.cat.default(before)


def _lstm_layer_backward(
    input: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Tensor, b_hh: Tensor, hx: Tensor, cx: Tensor, *rest: Any
) -> Any:
    """Return the gradients of input, both weights, both biases and both states.

    The gates are recomputed from input and output, so forward may have run in a kernel or in `_lstm_layer`.
    """
    output, _, _, grad_output, grad_hy, grad_cy, reverse, mode, hidden_size, _, has_biases, _, _, batch_sizes, *_ = rest
    if mode != _LSTM or batch_sizes:
        return NotImplemented
    steps, batch = input.shape[0], input.shape[1]
    times, in_steps = _times(steps, reverse), [batch] * steps
    rows, hidden_before = _flattened(input), hx
    if steps > 1:
        others = (
            aten.slice.Tensor(_flattened(output), 0, batch, None)
            if reverse
            else aten.slice.Tensor(_flattened(output), 0, 0, (steps - 1) * batch)
        )
        hidden_before = aten.cat.default([others, hx] if reverse else [hx, others])
    gates = aten.addmm.default(_projected(rows, w_ih, b_ih, b_hh, has_biases), hidden_before, aten.permute.default(w_hh, [1, 0]))
    gate_g = aten.tanh.default(aten.slice.Tensor(gates, 1, 2 * hidden_size, 3 * hidden_size))
    squeezed = aten.sigmoid.default(gates)
    del gates
    gate_i, gate_f, _, gate_o = aten.split_with_sizes.default(squeezed, [hidden_size] * 4, 1)
    kept = aten.split_with_sizes.default(gate_f, in_steps)
    fresh = aten.mul.Tensor(gate_i, gate_g)
    cell, cell_before = _cells(cx, kept, aten.split_with_sizes.default(fresh, in_steps), times)
    squashed = aten.tanh.default(cell)
    # The factors from the gradients of cell and output to the gradient of each gate. The derivative of tanh is 1 - tanh^2.
    to_cell = aten.split_with_sizes.default(
        aten.sub.Tensor(gate_o, aten.mul.Tensor(gate_o, aten.mul.Tensor(squashed, squashed))), in_steps
    )
    slopes = aten.mul.Tensor(
        aten.sub.Tensor(squeezed, aten.mul.Tensor(squeezed, squeezed)), aten.cat.default([gate_g, cell_before, gate_i, squashed], 1)
    )
    to_i_and_f, _, to_o = aten.split_with_sizes.default(slopes, [2 * hidden_size, hidden_size, hidden_size], 1)
    to_gates = aten.split_with_sizes.default(
        aten.cat.default([to_i_and_f, aten.sub.Tensor(gate_i, aten.mul.Tensor(fresh, gate_g)), to_o], 1), in_steps
    )
    del cell, cell_before, squashed, fresh, slopes, to_i_and_f, to_o, squeezed, gate_i, gate_f, gate_g, gate_o, _

    backwards = times[::-1]
    given = None if grad_output is None else aten.split_with_sizes.default(_flattened(grad_output), in_steps)
    grad_hidden, grad_cell = grad_hy, grad_cy
    if given is not None:
        last = given[backwards[0]]
        grad_hidden = last if grad_hidden is None else aten.add.Tensor(grad_hidden, last)
    elif grad_hidden is None:
        grad_hidden = aten.full.default(hx.shape, 0, dtype=hx.dtype, device=hx.device)
    grad_gates: list[Tensor] = [hx] * steps
    for place, time in enumerate(backwards):
        here = aten.mul.Tensor(grad_hidden, to_cell[time])
        grad_cell = here if grad_cell is None else aten.add.Tensor(grad_cell, here)
        onward = grad_gates[time] = aten.mul.Tensor(
            aten.cat.default([grad_cell, grad_cell, grad_cell, grad_hidden], 1), to_gates[time]
        )
        following = None if given is None or place == steps - 1 else given[backwards[place + 1]]
        grad_hidden = aten.mm.default(onward, w_hh) if following is None else aten.addmm.default(following, onward, w_hh)
        grad_cell = aten.mul.Tensor(grad_cell, kept[time])

    by_row = aten.cat.default(grad_gates)
    del grad_gates, to_gates, to_cell, kept
    by_gate = aten.permute.default(by_row, [1, 0])
    grad_bias = aten.sum.dim_IntList(by_row, [0])
    return (
        aten.view.default(aten.mm.default(by_row, w_ih), input.shape),
        aten.mm.default(by_gate, rows),
        aten.mm.default(by_gate, hidden_before),
        grad_bias,
        aten.clone.default(grad_bias),
        grad_hidden,
        grad_cell,
    )


def _times(steps: int, reverse: bool) -> range:
    return range(steps - 1, -1, -1) if reverse else range(steps)


rule("aten.mkldnn_rnn_layer.default")(_in_float32(_lstm_layer))
rule("aten.mkldnn_rnn_layer_backward.default")(_in_float32(_lstm_layer_backward))
