"""Sizes that stay symbols in a traced graph: the calls are those of a plain trace, and other sizes give eager's values."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp._torch import OpOverload

aten = torch.ops.aten
CORE = ed.core_aten()


def called(graph: torch.fx.GraphModule) -> Counter[OpOverload]:
    found = Counter(node.target for node in graph.graph.nodes if isinstance(node.target, OpOverload))
    del found[aten.sym_size.int]
    return found


def plain(values: Any) -> Any:
    return [value.detach() for value in values]


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv, self.out = nn.Linear(8, 24), nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (2, 4)).transpose(1, 2) for part in self.qkv(x).chunk(3, -1))
        return x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))


class LanguageModel(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.token, self.place = nn.Embedding(11, 8), nn.Embedding(20, 8)
        self.block, self.norm, self.head = Attention(), nn.LayerNorm(8), nn.Linear(8, 11)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.norm(self.block(self.token(tokens) + self.place(torch.arange(tokens.shape[1])))))


def conv_net() -> nn.Module:
    return nn.Sequential(
        *(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 4, 3, stride=2), nn.BatchNorm2d(4), nn.SiLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3)),
    )


def floats(*shape: int) -> Callable[..., Tensor]:
    """Random inputs of a shape whose first dimensions may be others."""
    return lambda *sizes: torch.randn(*sizes, *shape[len(sizes) :])


#: A net, its inputs, how many classes it tells apart, and the sizes that are symbols: those of the trace, and others.
STEPS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], int, list[tuple[int, ...]]]] = {
    "mlp": (
        lambda: nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)),
        floats(0, 8),
        4,
        [(5,), (2,), (9,)],
    ),
    "conv net": (conv_net, floats(0, 3, 12, 12), 3, [(4,), (2,), (7,)]),
    "transformer block": (
        lambda: nn.Sequential(nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), nn.Linear(8, 3)),
        floats(0, 6, 8),
        3,
        [(3,), (2,), (5,)],
    ),
    "language model, a batch of texts of any length": (
        LanguageModel,
        lambda *sizes: torch.randint(0, 11, sizes),
        11,
        [(3, 6), (2, 9), (5, 4)],
    ),
}


@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_holds_for_other_sizes(name: str) -> None:
    make, inputs, classes, sizes = STEPS[name]
    torch.manual_seed(0)
    model = make()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def step(x: Tensor, y: Tensor) -> list[Tensor]:
        loss = F.cross_entropy(model(x).flatten(0, -2), y.flatten(), label_smoothing=0.1)
        gradients = torch.autograd.grad(loss, list(model.parameters()))
        with torch.no_grad():
            for parameter, gradient in zip(model.parameters(), gradients, strict=True):
                parameter.grad = gradient
            optimizer.step()
        return [loss, *gradients]

    def batch(size: tuple[int, ...]) -> tuple[Tensor, Tensor]:
        x = inputs(*size)
        return x, torch.randint(0, classes, x.shape[: 1 if name in ("mlp", "conv net") else 2])

    first, *others = sizes
    dims = tuple(range(len(first)))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    given = batch(first)
    symbolic = ed.trace(step, CORE, symbolic={"x": dims, "y": dims})(*given)
    assert_same(list(model.state_dict().values()), list(before.values()))  # it ran on fake tensors alone
    assert called(symbolic) == called(ed.trace(step, CORE)(*given))
    for size in others:
        given = batch(size)
        model.load_state_dict(before)
        want = plain(step(*given))
        written = [value.clone() for value in model.state_dict().values()]
        model.load_state_dict(before)
        assert_same(symbolic(*given), want)
        assert_same(list(model.state_dict().values()), written)


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: F.pad(x, (1, 1)).exp(),
        lambda x: torch.cat([x, x[:1]]).square(),
        lambda x: x[: x.shape[0] // 2] * 2,
        lambda x: x[:, 0].outer(x[:, 1]),
        lambda x: x - x.mean(0),
        lambda x: (x @ x.t()).masked_fill(torch.ones(x.shape[0], x.shape[0]).tril() == 0, -1.0),
        lambda x: x.sum() / x.shape[0],
        lambda x: x.view(-1, 2, 4).transpose(1, 2).reshape(x.shape[0], -1),
        lambda x: x * torch.arange(x.shape[0])[:, None],
    ],
    ids=["pad", "cat", "half", "outer", "mean", "mask", "mean by hand", "merge", "arange"],
)
def test_what_is_computed_of_an_open_size_is_computed_anew(fn: Callable[[Tensor], Tensor]) -> None:
    weight = torch.randn(8)

    def run(x: Tensor) -> list[Tensor]:
        scaled = (x * weight).requires_grad_()
        answer = fn(scaled)
        return [answer, *torch.autograd.grad(answer.sum(), scaled)]

    graph = ed.trace(run, CORE, symbolic={"x": 0})(torch.randn(6, 8))
    for batch in (4, 8, 11):  # one of them the size of another dimension
        x = torch.randn(batch, 8)
        assert_same(graph(x), plain(run(x)))


def test_a_size_of_one_is_no_symbol_where_it_is_traced_and_fits_where_it_is_run() -> None:
    with pytest.raises(ed.TraceError, match="sizes of 0 and 1 never are, trace it with another"):
        ed.trace(torch.exp, CORE, symbolic={"arg0": 0})(torch.ones(1, 3))
    x = torch.randn(1, 3)
    assert_same(ed.trace(torch.exp, CORE, symbolic={"arg0": 0})(torch.ones(4, 3))(x), x.exp())


def test_what_pytorch_itself_runs_on_plain_sizes_only_is_said_so() -> None:
    lstm = nn.LSTM(8, 5)
    with pytest.raises(ed.TraceError, match=r"PyTorch itself takes no symbolic sizes here: Cannot call .* symbolic sizes/strides$"):
        ed.trace(lambda x: lstm(x)[0], CORE, symbolic={"x": 1})(torch.randn(4, 3, 8))


@pytest.mark.parametrize("fn", [lambda x: x + 1 if x.sum() > 0 else x, lambda x: x * x.max().item()], ids=["branch", "number"])
def test_what_goes_on_by_values_has_no_symbolic_trace(fn: Callable[[Tensor], Tensor]) -> None:
    with pytest.raises(ed.TraceError, match=r"the values of a tensor, which no symbolic trace can hold$"):
        ed.trace(fn, CORE, symbolic={"x": 0})(torch.ones(4))
    assert torch._C._len_torch_dispatch_stack() == 0
