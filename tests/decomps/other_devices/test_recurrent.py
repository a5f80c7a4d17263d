"""Layers of cuDNN and MIOpen called on CPU data: outputs, states and gradients are those of torch's own layers, in float64."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, kernel_calls, on_core
from torch import Tensor, nn

import eagerdecomp as ed

aten = torch.ops.aten
MODES = {"relu": 0, "tanh": 1, "lstm": 2, "gru": 3}


def layer(kind: str, layers: int, bidirectional: bool, bias: bool, proj: int, batch_first: bool) -> Any:
    options = {"num_layers": layers, "bidirectional": bidirectional, "bias": bias, "batch_first": batch_first}
    if kind in ("relu", "tanh"):
        return nn.RNN(4, 5, nonlinearity=kind, **options)
    return nn.LSTM(4, 5, proj_size=proj, **options) if kind == "lstm" else nn.GRU(4, 5, **options)


def called(op: Any, made: Any, kind: str, x: Tensor, hx: Tensor, cx: Tensor | None, weights: list[Tensor], sizes: list[int]) -> Any:
    per_layer = 2 + 2 * made.bias + (made.proj_size > 0)
    projection = () if op is aten.miopen_rnn else (made.proj_size,)
    buffer = () if op is aten.miopen_rnn else (None,)
    return op(
        x, weights, per_layer, *buffer, hx, cx, MODES[kind], 5, *projection, made.num_layers, made.batch_first, made.dropout, True,
        made.bidirectional, sizes, None,
    )  # fmt: skip


def check(op: Any, made: Any, kind: str, dtype: torch.dtype, sizes: list[int]) -> None:
    torch.manual_seed(0)
    made = made.double()
    count, batch = made.num_layers * (1 + made.bidirectional), sizes[0] if sizes else 3
    width = made.proj_size or 5
    shape = (sum(sizes), 4) if sizes else (3, 6, 4) if made.batch_first else (6, 3, 4)
    x, hx = torch.randn(shape).double().requires_grad_(), torch.randn(count, batch, width).double().requires_grad_()
    cx = torch.randn(count, batch, 5).double().requires_grad_() if kind == "lstm" else None
    states = (hx, cx) if cx is not None else hx
    given = nn.utils.rnn.PackedSequence(x, torch.tensor(sizes)) if sizes else x
    want, last = made(given, states)
    want = want.data if sizes else want
    ends = list(last) if cx is not None else [last]
    leaves = [x, hx, *([cx] if cx is not None else []), *made.parameters()]
    seeds = [torch.randn_like(one) for one in (want, *ends)]
    want_grads = torch.autograd.grad([want, *ends], leaves, seeds)
    mine = [one.detach().to(dtype).requires_grad_() for one in leaves]
    first, states, weights = mine[0], mine[1 : 2 + (cx is not None)], mine[2 + (cx is not None) :]

    def run() -> Any:
        out, hy, cy, *_ = called(op, made, kind, first, states[0], states[1] if cx is not None else None, weights, sizes)
        results = [out, hy, *([cy] if cx is not None else [])]
        return results, torch.autograd.grad(results, mine, [one.to(dtype) for one in seeds])

    results, grads = on_core(run)
    share = {torch.float32: 2e-5, torch.float64: 1e-11, torch.bfloat16: 6e-2}[dtype]
    for one, other in zip((*results, *grads), (want, *ends, *want_grads), strict=True):
        assert one.dtype is dtype
        torch.testing.assert_close(one.double(), other, rtol=share, atol=share * max(1.0, other.abs().max().item()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)
@pytest.mark.parametrize("kind", MODES)
def test_one_layer(kind: str, dtype: torch.dtype) -> None:
    check(aten._cudnn_rnn, layer(kind, 1, False, True, 0, False), kind, dtype, [])


@pytest.mark.parametrize("kind", MODES)
@pytest.mark.parametrize("op", [aten._cudnn_rnn, aten.miopen_rnn], ids=str)
def test_two_layers_both_ways_batch_first_without_biases(op: Any, kind: str) -> None:
    check(op, layer(kind, 2, True, False, 0, True), kind, torch.float64, [])


@pytest.mark.parametrize("kind", MODES)
def test_sequences_of_several_lengths(kind: str) -> None:
    check(aten._cudnn_rnn, layer(kind, 2, True, True, 0, False), kind, torch.float64, [3, 3, 2, 1])


def test_projected_states() -> None:
    check(aten._cudnn_rnn, layer("lstm", 2, True, True, 3, False), "lstm", torch.float64, [])


@pytest.mark.parametrize("kind", MODES)
def test_only_the_last_states_have_gradients(kind: str) -> None:
    made = layer(kind, 1, False, True, 0, False).double()
    x, states = torch.randn(4, 3, 4).double().requires_grad_(), torch.zeros(1, 3, 5).double()
    weights = list(made.parameters())
    want = torch.autograd.grad(made(x)[1][0].sum(), [x, *weights])

    def run() -> Any:
        last = called(aten._cudnn_rnn, made, kind, x, states, states if kind == "lstm" else None, weights, [])[1]
        return torch.autograd.grad(last.sum(), [x, *weights])

    for one, other in zip(on_core(run), want, strict=True):
        torch.testing.assert_close(one, other)


def kernels_of_passes(steps: int) -> list[int]:
    """The kernel calls of an LSTM's forward and backward."""
    x, state, weights = torch.randn(steps, 3, 4), torch.zeros(1, 3, 5), [one.detach() for one in nn.LSTM(4, 5).parameters()]
    call = (2, 5, 0, 1, False, 0.0, True, False, [], None)
    forward = lambda: aten._cudnn_rnn(x, weights, 4, None, state, state, *call)  # noqa: E731
    out, _, _, reserve, buffer = on_core(forward)
    grads = (out, None, None)
    backward = lambda: aten._cudnn_rnn_backward(  # noqa: E731
        x, weights, 4, buffer, state, state, out, *grads, *call, reserve, [True] * 4
    )
    return [kernel_calls(forward), kernel_calls(backward)]


def test_what_needs_no_state_is_computed_for_all_steps_at_once() -> None:
    """Forward: a part of the input, a product and ten kernels of a cell for each step; backward, those and ten more."""
    few, many = kernels_of_passes(3), kernels_of_passes(5)
    assert [(more - less) / 2 for less, more in zip(few, many, strict=True)] == [12, 22]


def test_dropout_between_layers_is_made_again_by_backward() -> None:
    """Central differences of a call whose seed is drawn again by the same generator."""
    made = layer("tanh", 2, False, True, 0, False).double()
    made.dropout = 0.5
    x, hx = torch.randn(4, 3, 4).double().requires_grad_(), torch.zeros(2, 3, 5).double()
    weights = [one.detach() for one in made.parameters()]

    def run(given: Tensor) -> Tensor:
        torch.manual_seed(7)
        with ed.EagerDecompMode(CORE):
            return called(aten._cudnn_rnn, made, "tanh", given, hx, None, weights, [])[0]  # type: ignore[no-any-return]

    with ed.EagerDecompMode(CORE):
        out = run(x)
        (grad,) = torch.autograd.grad(out.sum(), x)
    move = torch.randn_like(x) * 1e-5
    slope = (run(x.detach() + move) - run(x.detach() - move)).sum() / 2
    torch.testing.assert_close((grad * move).sum(), slope, rtol=1e-5, atol=1e-12)
    assert not torch.equal(out, called_without_dropout(made, x, hx, weights))


def called_without_dropout(made: Any, x: Tensor, hx: Tensor, weights: list[Tensor]) -> Tensor:
    made.dropout = 0.0
    with ed.EagerDecompMode(CORE):
        return called(aten._cudnn_rnn, made, "tanh", x, hx, None, weights, [])[0]  # type: ignore[no-any-return]
