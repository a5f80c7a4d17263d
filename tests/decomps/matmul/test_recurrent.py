"""Batch sizes of packed sequences; LSTMs whose results are used in part, and what a step costs."""

from __future__ import annotations

import pytest
import torch
from on_core import CORE, check, on_core
from torch import nn

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.mark.parametrize("sizes", [torch.tensor([[6]]), torch.tensor([6], dtype=torch.int32), torch.tensor([6], device="meta")])
def test_batch_sizes_are_a_row_of_int64_on_the_cpu(sizes: torch.Tensor) -> None:
    with torch.inference_mode():
        check(lambda: aten._pad_packed_sequence.default(torch.arange(12.0).view(6, 2), sizes, False, 0.0, 0))


@pytest.mark.parametrize(("sizes", "words"), [([3, 1, 2], "must not grow"), ([1, 2, 3], "doesn't match"), ([], "can not be empty")])
def test_batch_sizes_that_grow_are_refused_where_eager_writes_beyond_its_memory(sizes: list[int], words: str) -> None:
    with torch.inference_mode(), ed.EagerDecompMode(CORE), pytest.raises(RuntimeError, match=words):
        aten._pad_packed_sequence.default(torch.zeros(6, 2), torch.tensor(sizes, dtype=torch.int64), False, 0.0, 0)


LSTMS = {
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "projected": {"proj_size": 2},
}


@pytest.mark.parametrize("ends", ["output", "last state", "last cell", "all"])
@pytest.mark.parametrize("name", LSTMS)
def test_lstm_training(name: str, ends: str) -> None:
    layer = nn.LSTM(3, 5, **LSTMS[name])
    x = torch.randn(4, 2, 3, dtype=next(layer.parameters()).dtype)

    def run() -> list[torch.Tensor]:
        leaf = x.clone().requires_grad_()
        out, (hidden, cell) = layer(leaf)
        parts = {"output": [out], "last state": [hidden], "last cell": [cell], "all": [out, hidden, cell]}[ends]
        loss = sum((part * part).sum() for part in parts)
        # A last state alone leaves some weights of the last layer's other direction without a gradient.
        gradients = torch.autograd.grad(loss, [leaf, *layer.parameters()], allow_unused=True)
        return [out.detach(), hidden.detach(), cell.detach(), *(g for g in gradients if g is not None)]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)


def test_lstm_backward_does_not_need_our_forward() -> None:
    layer = nn.LSTM(3, 5)
    x = torch.randn(4, 2, 3)

    def run() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((layer(x)[0] ** 2).sum(), list(layer.parameters()))

    want = run()
    torch.testing.assert_close(on_core(run, CORE | ["aten.mkldnn_rnn_layer.default"]), want)


def test_a_step_of_an_lstm_takes_few_kernels_and_no_program() -> None:
    layer, cache = nn.LSTM(3, 5), ed.ProgramCache()

    def forward(steps: int) -> torch.Tensor:
        return layer(torch.ones(steps, 2, 3))[0]

    def calls(steps: int) -> tuple[int, int]:
        layer.zero_grad()
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE, cache=cache):
            out = forward(steps).sum()
            forwards = seen.ops.total()
            out.backward()
        return forwards, seen.ops.total() - forwards

    (short, short_back), (long, long_back) = calls(4), calls(14)
    assert (long - short, long_back - short_back) == (10 * 10, 10 * 8)
    assert short_back <= 8 * 4 + 60
    with ed.EagerDecompMode(CORE, cache=cache) as mode:
        forward(23).sum().backward()
    rnn = ("aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default")
    assert all(mode.stats()[op].misses == 0 for op in rnn)
