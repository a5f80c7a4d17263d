"""Symbolic sizes in a traced graph: it has the calls of a plain trace, and equals eager for other sizes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload

aten = torch.ops.aten
CORE = ed.core_aten()
SMALL = CORE - ["aten.gelu", "aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.relu"]


def called(graph: torch.fx.GraphModule) -> Counter[OpOverload]:
    """The kernels of a graph, counted; the sizes of a symbolic one are no kernels."""
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


#: A net, its inputs, how many classes it distinguishes, and the sizes that are symbols: those of the trace, and others.
STEPS: dict[str, tuple[Callable[[], nn.Module], Callable[..., Tensor], int, list[tuple[int, ...]]]] = {
    "conv net": (conv_net, floats(0, 3, 12, 12), 3, [(4,), (2,), (7,)]),
    "language model, a batch of texts of any length": (
        LanguageModel,
        lambda *sizes: torch.randint(0, 11, sizes),
        11,
        [(3, 6), (2, 9), (5, 4)],
    ),
}


@pytest.mark.full
@pytest.mark.parametrize("name", STEPS)
@pytest.mark.parametrize("ops", [CORE, SMALL], ids=["core", "small"])
def test_a_traced_training_step_has_the_calls_of_a_run_and_is_right_for_other_sizes(name: str, ops: ed.OpSet) -> None:
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
        return x, torch.randint(0, classes, x.shape[: 1 if name == "conv net" else 2])

    first, *others = sizes
    dims = tuple(range(len(first)))
    before = {key: value.clone() for key, value in model.state_dict().items()}
    given = batch(first)
    symbolic = ed.trace(step, ops, symbolic={"x": dims, "y": dims})(*given)
    assert_same(list(model.state_dict().values()), list(before.values()))  # it ran on fake tensors alone
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops, cache=ed.ProgramCache()):
        step(*given)
    kernels = {op: calls for op, calls in seen.ops.items() if op.namespace != "profiler"}  # the optimizer's range is no kernel
    assert called(symbolic) == called(ed.trace(step, ops)(*given)) == kernels
    assert not seen.outside(ops)
    for size in others:
        given = batch(size)
        model.load_state_dict(before)
        want = plain(step(*given))
        written = [value.clone() for value in model.state_dict().values()]
        model.load_state_dict(before)
        assert_same(symbolic(*given), want)
        assert_same(list(model.state_dict().values()), written)


def randoms(shape: Sequence[int], classes: int) -> Tensor:
    return torch.randint(0, classes, tuple(shape)) if classes else torch.randn(*shape)


#: A loss, and of each of its inputs the shape for a size, how many classes it holds (0: floats), and which dimensions are symbols.
LOSSES: dict[str, tuple[Callable[..., Tensor], list[tuple[Callable[[int], Sequence[int]], int, Sequence[int]]]]] = {
    "tokens, of texts of any length": (
        lambda x, t: F.cross_entropy(x.flatten(0, -2), t),
        [(lambda n: (n, n + 3, 8), 0, [0, 1]), (lambda n: (n * (n + 3),), 8, [0])],
    ),
    "shifted tokens": (
        lambda x, t: F.cross_entropy(x[:, :-1].reshape(-1, 8), t[:, 1:].reshape(-1), ignore_index=0),
        [(lambda n: (n, 6, 8), 0, [0]), (lambda n: (n, 6), 8, [0])],
    ),
    "sums of two sizes": (
        lambda x, y, z: torch.cat([x, y]) * z,
        [(lambda n: (n, 4), 0, [0]), (lambda n: (n + 1, 4), 0, [0]), (lambda n: (2 * n + 1, 4), 0, [0])],
    ),
    "pairs": (
        lambda x, y: F.cross_entropy(x @ y.t() / x.shape[1] ** 0.5, torch.arange(x.shape[0])),
        [(lambda n: (n, 4), 0, [0]), (lambda n: (n, 4), 0, [0])],
    ),
    "a root of the size": (lambda x: x.square().sum(0) / x.shape[0] ** 0.5, [(lambda n: (n, 4), 0, [0])]),
    "the larger size": (lambda x: x / torch.sym_max(x.shape[0] - 3, 1), [(lambda n: (n, 4), 0, [0])]),
    "halves": (lambda x: torch.stack([half.exp() for half in x.chunk(2)]), [(lambda n: (2 * n, 4), 0, [0])]),
    "windows": (lambda x: F.avg_pool2d(F.max_pool2d(x, 2), 2), [(lambda n: (2, 3, 4 * n, 4 * n), 0, [2, 3])]),
}


@pytest.mark.full
@pytest.mark.parametrize("name", LOSSES)
def test_a_traced_loss_and_gradient_are_right_for_all_sizes(name: str) -> None:
    loss, given = LOSSES[name]
    torch.manual_seed(0)
    names = [f"given{number}" for number in range(len(given))]

    def step(**inputs: Tensor) -> list[Tensor]:
        leaves = {key: value.detach().requires_grad_(value.is_floating_point()) for key, value in inputs.items()}
        result = loss(*leaves.values())
        wanted = [value for value in leaves.values() if value.requires_grad]
        return [result, *torch.autograd.grad(result.square().sum(), wanted)]

    def inputs(size: int) -> dict[str, Tensor]:
        return {key: randoms(shape(size), classes) for key, (shape, classes, _) in zip(names, given, strict=True)}

    symbolic = {key: dims for key, (_, _, dims) in zip(names, given, strict=True)}
    graph = ed.trace(step, CORE, symbolic=symbolic)(**inputs(4))
    for size in (4, 2, 3, 7):
        values = inputs(size)
        assert_same(graph(**values), plain(step(**values)))


def test_inconsistent_sizes_are_reported_with_the_inputs_names() -> None:
    graph = ed.trace(lambda x, t: F.cross_entropy(x.flatten(0, -2), t), CORE, symbolic={"x": 0, "t": 0})(
        torch.randn(2, 3, 4), torch.randint(0, 4, (6,))
    )
    with pytest.raises(ed.TraceError, match=r"valid only if 3\*x\.shape\[0\] == t\.shape\[0\]"):
        graph(torch.randn(2, 3, 4), torch.randint(0, 4, (7,)))


def test_an_expression_of_sizes_that_python_cannot_compute_raises() -> None:
    def step(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        return torch.autograd.grad(leaf.std(), leaf)

    graph = ed.trace(step, CORE, symbolic={"x": 0})(torch.randn(4))
    with pytest.raises(ed.TraceError, match="divides by zero for these"):
        graph(torch.randn(1))


def test_a_size_of_1_cannot_be_symbolic_while_tracing_but_may_be_used_in_a_run() -> None:
    with pytest.raises(ed.TraceError, match="because its size here is 1"):
        ed.trace(torch.exp, CORE, symbolic={"arg0": 0})(torch.ones(1, 3))
    x = torch.randn(1, 3)
    assert_same(ed.trace(torch.exp, CORE, symbolic={"arg0": 0})(torch.ones(4, 3))(x), x.exp())


def test_the_error_says_if_pytorch_needs_concrete_sizes() -> None:
    lstm = nn.LSTM(8, 5)
    reported = r"PyTorch accepts no symbolic sizes here \(Cannot call .* symbolic sizes/strides\)"
    with pytest.raises(ed.TraceError, match=reported):
        ed.trace(lambda x: lstm(x)[0], CORE, symbolic={"x": 1})(torch.randn(4, 3, 8))
