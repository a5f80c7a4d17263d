"""Packed sequences, alone and under recurrent layers with gradients."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

aten = torch.ops.aten


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 2, 1], [3, 3, 1], [1, 1, 1], [4, 3, 5], [4, 2, 0], [4, 2]])
def test_packing(lengths: list[int], batch_first: bool) -> None:
    x = torch.arange(24.0).view(3, 4, 2) if batch_first else torch.arange(24.0).view(4, 3, 2)
    check(aten._pack_padded_sequence.default, x, torch.tensor(lengths), batch_first)


@pytest.mark.parametrize("kind", [nn.RNN, nn.GRU])
def test_a_bidirectional_layer_over_packed_sequences(kind: type[nn.RNNBase]) -> None:
    torch.manual_seed(0)
    layer = kind(2, 3, num_layers=2, bidirectional=True, batch_first=True)
    x = torch.randn(3, 4, 2)

    def run() -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        packed = pack_padded_sequence(leaf, torch.tensor([2, 4, 1]), batch_first=True, enforce_sorted=False)
        out, lengths = pad_packed_sequence(layer(packed)[0], batch_first=True)
        (out * out).sum().backward()
        return [out.detach(), lengths, leaf.grad]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)
