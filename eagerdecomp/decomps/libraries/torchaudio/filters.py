"""The recursion of torchaudio's `lfilter`, in blocks of samples."""

from __future__ import annotations

import torch
from torch import Tensor

from eagerdecomp.eager.messages import not_true
from eagerdecomp.rules.rule import library_rule

aten = torch.ops.aten

# The number of samples computed by one product. It is small, so that powers of an unstable filter's poles do not overflow.
_BLOCK = 32


@library_rule("torchaudio._lfilter_core_loop.default")
def lfilter_core_loop(input_signal_windows: Tensor, a_coeff_flipped: Tensor, padded_output_waveform: Tensor) -> Tensor:
    """Run ``y[t] = x[t] - sum_k a[k] * y[t - k]`` (Oppenheim and Schafer, "Discrete-Time Signal Processing", 6.3).

    This is a recursive filter. A block's output is linear in its samples and in the outputs before it. So one matrix per channel
    maps both to the output. The recursion on unit vectors gives the matrix.
    """
    x, a, padded = input_signal_windows, a_coeff_flipped, padded_output_waveform
    _check(x, a, padded)
    (n, channels, samples), order = x.shape, a.shape[1]
    if not n * channels * samples:
        return padded
    # The loop also subtracts, like an earlier output, what the padded waveform holds at the sample's own position.
    own = aten.slice.Tensor(padded, 2, order - 1, order - 1 + samples)
    gain = aten.view.default(aten.slice.Tensor(a, 1, order - 1, order), [1, channels, 1])
    signal = aten.transpose.int(aten.sub.Tensor(x, aten.mul.Tensor(own, gain)), 0, 1)
    before = aten.transpose.int(aten.slice.Tensor(padded, 2, 0, order - 1), 0, 1)
    matrix = _block_matrix(aten.slice.Tensor(a, 1, 0, order - 1), min(_BLOCK, samples))
    parts = []
    for first in range(0, samples, _BLOCK):
        size = min(_BLOCK, samples - first)
        given = aten.cat.default([before, aten.slice.Tensor(signal, 2, first, first + size)], 2)
        block = (
            matrix if size == matrix.shape[2] else aten.slice.Tensor(aten.slice.Tensor(matrix, 1, 0, order - 1 + size), 2, 0, size)
        )
        made = aten.bmm.default(given, block)
        parts.append(made)
        if order > 1:
            known = aten.cat.default([before, made], 2)
            before = aten.slice.Tensor(known, 2, known.shape[2] - order + 1, known.shape[2])
    output = aten.transpose.int(parts[0] if len(parts) == 1 else aten.cat.default(parts, 2), 0, 1)
    aten.copy_.default(own, output)
    return padded


def _block_matrix(a: Tensor, size: int) -> Tensor:
    """Return the matrix from ``order - 1`` outputs and `size` samples to `size` outputs, [channels, order - 1 + size, size]."""
    channels, earlier = a.shape
    unit = aten.eye.default(earlier + size, dtype=a.dtype, device=a.device)
    columns = [
        aten.expand.default(aten.view.default(aten.select.int(unit, 0, at), [1, -1, 1]), [channels, -1, 1]) for at in range(earlier)
    ]
    coefficients = aten.unsqueeze.default(a, 2)
    for at in range(size):
        sample = aten.view.default(aten.select.int(unit, 0, earlier + at), [1, -1, 1])
        if earlier:
            window = aten.cat.default(columns[at:], 2)
            columns.append(aten.sub.Tensor(sample, aten.bmm.default(window, coefficients)))
        else:
            columns.append(aten.expand.default(sample, [channels, -1, 1]))
    return aten.cat.default(columns[earlier:], 2)  # type: ignore[no-any-return]


def _check(x: Tensor, a: Tensor, padded: Tensor) -> None:
    named = {"input_signal_windows": x, "a_coeff_flipped": a, "padded_output_waveform": padded}
    if not all(one.is_contiguous() for one in named.values()):
        raise not_true(" && ".join(f"{name}.is_contiguous()" for name in named))
    if not all(one.dtype in (torch.float32, torch.float64) for one in named.values()):
        raise not_true("the scalar type of all arguments is Float or Double")
    for dim in range(2):
        if x.shape[dim] != padded.shape[dim]:
            raise not_true(f"input_signal_windows.size({dim}) == padded_output_waveform.size({dim})")
    if x.shape[2] + a.shape[1] - 1 != padded.shape[2]:
        raise not_true("input_signal_windows.size(2) + a_coeff_flipped.size(1) - 1 == padded_output_waveform.size(2)")
