"""Packed sequences, alone and under recurrent layers with gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, on_core
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("lengths", [[4, 4, 4], [4, 2, 1], [3, 3, 1], [1, 1, 1], [4, 3, 5], [4, 2, 0], [4, 2]])
def test_packing(lengths: list[int], batch_first: bool) -> None:
    x = torch.arange(24.0).view(3, 4, 2) if batch_first else torch.arange(24.0).view(4, 3, 2)
    check(aten._pack_padded_sequence.default, x, torch.tensor(lengths), batch_first)


@pytest.mark.parametrize("total", [0, 2, 5])
@pytest.mark.parametrize("batch_first", [False, True])
@pytest.mark.parametrize("sizes", [[3, 2, 1], [2, 2, 2], [3, 3, 0], [6], [3, 3, 1]])
def test_padding(sizes: list[int], batch_first: bool, total: int) -> None:
    data = torch.arange(12.0).view(6, 2)
    with torch.inference_mode():
        check(aten._pad_packed_sequence.default, data, torch.tensor(sizes, dtype=torch.int64), batch_first, -1.5, total)


@pytest.mark.parametrize("sizes", [torch.tensor([[6]]), torch.tensor([6], dtype=torch.int32), torch.tensor([6], device="meta")])
def test_batch_sizes_are_a_row_of_int64_on_the_cpu(sizes: torch.Tensor) -> None:
    with torch.inference_mode():
        check(lambda: aten._pad_packed_sequence.default(torch.arange(12.0).view(6, 2), sizes, False, 0.0, 0))


@pytest.mark.parametrize(("sizes", "words"), [([3, 1, 2], "must not grow"), ([1, 2, 3], "doesn't match"), ([], "can not be empty")])
def test_batch_sizes_that_grow_are_refused_where_eager_writes_beyond_its_memory(sizes: list[int], words: str) -> None:
    with torch.inference_mode(), ed.EagerDecompMode(CORE), pytest.raises(RuntimeError, match=words):
        aten._pad_packed_sequence.default(torch.zeros(6, 2), torch.tensor(sizes, dtype=torch.int64), False, 0.0, 0)


def test_sequences_are_padded_in_inference_mode() -> None:
    layer, x = nn.GRU(2, 3), torch.linspace(-1, 1, 24).view(4, 3, 2)

    def run() -> list[torch.Tensor]:
        with torch.inference_mode():
            packed = pack_padded_sequence(x, torch.tensor([2, 4, 1]), enforce_sorted=False)
            return list(pad_packed_sequence(layer(packed)[0], padding_value=float("nan")))

    want = run()
    for _ in range(2):
        torch.testing.assert_close(on_core(run), want, equal_nan=True)


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


LSTMS = {
    "plain": {},
    "two layers, both ways": {"num_layers": 2, "bidirectional": True},
    "batch first": {"batch_first": True},
    "without biases": {"bias": False},
    "projected": {"proj_size": 2},
    "double": {"dtype": torch.float64},
}


@pytest.mark.parametrize("ends", ["output", "last state", "last cell", "all"])
@pytest.mark.parametrize("name", LSTMS)
def test_lstm_training(name: str, ends: str) -> None:
    torch.manual_seed(0)
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


def test_an_lstm_of_float16_and_bfloat16_is_as_exact_as_eager() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(16, 32, dtype=torch.bfloat16)
    wide = nn.LSTM(16, 32, dtype=torch.float64)
    wide.load_state_dict(layer.state_dict())
    x = torch.randn(20, 4, 16, dtype=torch.bfloat16)

    def run(layer: nn.LSTM, x: torch.Tensor) -> list[torch.Tensor]:
        out, (hidden, cell) = layer(x)
        loss = out.to(wide.weight_ih_l0.dtype).square().sum()
        return [out.detach(), hidden.detach(), cell.detach(), *torch.autograd.grad(loss, list(layer.parameters()))]

    eager, true = run(layer, x), run(wide, x.double())
    for ours, theirs, truth in zip(on_core(lambda: run(layer, x)), eager, true, strict=True):
        assert ours.dtype is theirs.dtype
        unit = torch.finfo(torch.bfloat16).eps * truth.abs().max() / 2
        assert (ours - truth).abs().max() <= (theirs - truth).abs().max() + unit


KINDS = {
    "tanh": (nn.RNN, {}),
    "relu": (nn.RNN, {"nonlinearity": "relu"}),
    "gru": (nn.GRU, {}),
    "lstm": (nn.LSTM, {}),
    "projected lstm": (nn.LSTM, {"proj_size": 2}),
}


def flat(value: Any) -> list[torch.Tensor]:
    return [value] if isinstance(value, torch.Tensor) else [leaf for one in value for leaf in flat(one)]


@pytest.mark.full
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("options", [{}, {"num_layers": 2, "bidirectional": True, "bias": False}], ids=str)
@pytest.mark.parametrize("batched", [False, True])
def test_every_layer_trains_and_infers(kind: str, options: dict[str, Any], batched: bool) -> None:
    torch.manual_seed(0)
    make, named = KINDS[kind]
    layer = make(3, 4, **named, **options, dtype=torch.float64)
    x = torch.randn(*((5, 2) if batched else (5,)), 3, dtype=torch.float64)

    def train(x: torch.Tensor) -> list[torch.Tensor]:
        leaf = x.detach().requires_grad_()
        results = flat(layer(leaf))
        loss = sum(result.square().sum() for result in results)
        return [*(r.detach() for r in results), *torch.autograd.grad(loss, [leaf, *layer.parameters()])]

    def infer(x: torch.Tensor) -> list[torch.Tensor]:
        with torch.inference_mode():
            return flat(layer(x))

    check(train, x)
    check(infer, x)


@pytest.mark.parametrize("kind", ["tanh", "gru", "projected lstm"])
def test_layers_of_plain_steps_differentiate_twice(kind: str) -> None:
    torch.manual_seed(0)
    make, named = KINDS[kind]
    layer = make(2, 3, **named, dtype=torch.float64)
    x = torch.randn(3, 1, 2, dtype=torch.float64, requires_grad=True)
    assert on_core(lambda: torch.autograd.gradgradcheck(lambda x: layer(x)[0], (x,), fast_mode=True))


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_lstm_inference(context: type) -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 5, num_layers=2, bidirectional=True)
    x = torch.randn(4, 2, 3)

    def run() -> torch.Tensor:
        with context():
            return layer(x)[0]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)


def test_lstm_backward_does_not_need_our_forward() -> None:
    torch.manual_seed(0)
    layer = nn.LSTM(3, 5)
    x = torch.randn(4, 2, 3)

    def run() -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad((layer(x)[0] ** 2).sum(), list(layer.parameters()))

    want = run()
    torch.testing.assert_close(on_core(run, CORE | ["aten.mkldnn_rnn_layer.default"]), want)


def test_a_step_of_an_lstm_takes_few_kernels_and_no_program() -> None:
    torch.manual_seed(0)
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


def test_a_fused_layer_takes_states_of_three_dimensions() -> None:
    draws = torch.Generator().manual_seed(0)
    sizes = [(4, 3, 8), (24, 8), (24, 6), (24,), (24,), (1, 3, 6), (1, 3, 6)]
    tensors = [torch.rand(size, generator=draws) for size in sizes]
    args = (*tensors, False, [], 2, 6, 1, True, False, False, False)
    with torch.inference_mode():
        want = torch.ops.aten.mkldnn_rnn_layer.default(*args)[:3]
        found = on_core(lambda: torch.ops.aten.mkldnn_rnn_layer.default(*args))[:3]
    torch.testing.assert_close(found, want)
