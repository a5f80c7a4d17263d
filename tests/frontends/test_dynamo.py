"""torch.compile on a backend's set: graphs, gradients and graph breaks."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE, rows
from torch import Tensor, nn
from torch._ops import OpOverload
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.frontends.graph_lowering import AT_RUN_TIME, lower
from eagerdecomp.planner.planner import planner_of

aten = torch.ops.aten

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.usefixtures("dynamo_afresh"),
]


def called(graph: torch.fx.GraphModule) -> list[OpOverload]:
    return [node.target for node in graph.graph.nodes if isinstance(node.target, OpOverload)]


def left(graph: torch.fx.GraphModule) -> list[str]:
    """The ops that a graph leaves to run time."""
    return [str(node.target) for node in graph.graph.nodes if AT_RUN_TIME in node.meta]


def counting() -> tuple[ed.Backend, Counter[str]]:
    """A backend whose kernels count, and the counts."""
    counts: Counter[str] = Counter()

    def kernel(op: OpOverload) -> Callable[..., Any]:
        def run(*args: Any, **kwargs: Any) -> Any:
            counts[str(op)] += 1
            return op(*args, **kwargs)

        return run

    return ed.Backend("counting", CORE, {op: kernel(op) for op in CORE}), counts


# -- models ---------------------------------------------------------------------------------------------------------------------


class Broken(nn.Module):
    """A model that Dynamo cannot take whole: it prints, reads numbers, goes by data, and leaves torch."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(8, 8), nn.Linear(8, 4)
        self.seen: list[float] = []

    def forward(self, x: Tensor) -> Tensor:
        x = F.gelu(self.first(x), approximate="tanh")
        self.seen.append(x.sum().item())
        x = F.silu(x)
        torch._dynamo.graph_break()
        x = F.hardswish(x)  # with the break on both sides, this is a graph of its own
        if x.mean() > 0:
            x = F.softplus(x)
        x = x * float(x.detach().numpy().max())
        return self.last(F.elu(x))


class Writing(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("total", torch.zeros(4))
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        self.total.add_(x.detach().sum(0))
        y = x * self.scale
        y[:, 1:].mul_(2).relu_()
        return y, x.t()


MODELS: dict[str, tuple[Callable[[], nn.Module], Callable[[], Tensor]]] = {
    "broken": (Broken, lambda: torch.randn(4, 8)),
    "writing": (Writing, lambda: torch.randn(3, 4)),
}


def tensors(value: Any) -> list[Tensor]:
    return [leaf for leaf in torch.utils._pytree.tree_leaves(value) if isinstance(leaf, Tensor)]


def trained(model: nn.Module, forward: Callable[..., Any], data: list[Tensor]) -> list[Tensor]:
    """Run some steps; return their results and the state after them."""
    torch.manual_seed(5)
    optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
    results: list[Tensor] = []
    for x in data:
        optimizer.zero_grad()
        result = forward(x)
        sum(one.float().square().mean() for one in tensors(result) if one.requires_grad).backward()
        optimizer.step()
        results += [one.detach().clone() for one in tensors(result)]
    model.eval()
    with torch.no_grad():
        results += tensors(forward(data[0]))
    return results + [one.detach() for one in (*model.parameters(), *model.buffers())] + [torch.rand(3)]


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_models_train_as_in_eager_with_only_ops_of_the_set(name: str) -> None:
    make, draw = MODELS[name]
    torch.manual_seed(3)
    model, data = make(), [draw() for _ in range(2)]
    model(data[0])  # lazy layers
    compiled = copy.deepcopy(model)
    want = trained(model, model, data)
    backend, counts = counting()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(backend):
        got = trained(compiled, torch.compile(compiled, backend=ed.dynamo_backend(backend)), data)
    assert not seen.outside(CORE)
    assert_same(got, want, strides=False)
    # Each op that arrived was sent by a kernel: called once, whichever path led there.
    # AOTAutograd's own look at a first run aside, which detaches what it is given.
    ours = [op for op in seen.ops if op in CORE and op is not aten.detach.default]
    assert {op: seen.ops[op] for op in ours} == {op: counts[str(op)] for op in ours}


@pytest.mark.full
@pytest.mark.parametrize("how", ["dynamic=True", "marked", "automatic"])
def test_symbolic_sizes_stay_symbolic(how: str) -> None:
    made = ed.dynamo_backend(CORE)

    def fn(x: Tensor) -> Tensor:
        y = F.silu(x).repeat(2, 1)
        return F.pad(F.softplus(y).cumsum(0).roll(1, 0), (1, 2)).tril() + F.interpolate(x[None, None], scale_factor=2.0).sum()

    compiled = torch.compile(fn, backend=made, dynamic=True if how == "dynamic=True" else None)
    for size in (5, 7, 9, 12):
        x = rows(size, 6).requires_grad_()
        if how == "marked":
            torch._dynamo.mark_dynamic(x, 0)
        leaf = x.detach().requires_grad_()
        with ed.BackendRecorder() as seen:
            got = compiled(x)
            got.square().sum().backward()
        want = fn(leaf)
        want.square().sum().backward()
        assert_same([got.detach(), x.grad], [want.detach(), leaf.grad])
        assert {str(op) for op in seen.outside(CORE)} <= {"aten.ones_like.default", "aten.sum.default"}
    assert len(made.graphs()) <= (2 if how != "automatic" else 4)


@pytest.mark.full
def test_ops_that_read_data_or_have_no_route_run_at_run_time() -> None:
    made = ed.dynamo_backend(CORE)

    def fn(x: Tensor) -> Tensor:
        return torch.linalg.matrix_exp(x) + F.silu(x)

    for x in (rows(4, 4), rows(4, 4) / 9):
        assert_same(torch.compile(fn, backend=made)(x), fn(x))
    few = CORE - ["aten.exp", "aten.sigmoid"]
    with pytest.raises(ed.UnsupportedOpError, match=r"aten\.silu\.default"):
        torch.compile(F.silu, backend=ed.dynamo_backend(few))(rows(3))
    torch._dynamo.reset()
    lenient = ed.dynamo_backend(few, on_unsupported="fallback")
    assert_same(torch.compile(F.silu, backend=lenient)(rows(3)), F.silu(rows(3)))
    assert lenient.stats()["aten.silu.default"].fell_back == 1


@pytest.mark.full
def test_predicates_are_evaluated_at_each_call() -> None:
    asked: list[int] = []

    def few(x: Tensor) -> bool:
        asked.append(x.shape[0])
        return x.shape[0] < 4

    ops = (CORE | ["aten.silu.default"]).with_predicate("aten.silu.default", few)
    fn = torch.compile(lambda x: F.silu(x * 2), backend=ed.dynamo_backend(ops), dynamic=True)
    with ed.BackendRecorder() as seen:
        got = [fn(rows(size)) for size in (3, 6)]
    assert_same(got, [F.silu(rows(size) * 2) for size in (3, 6)])
    assert asked == [3, 6]
    assert (seen.ops[aten.silu.default], seen.ops[aten.sigmoid.default]) == (1, 1)


def test_an_op_that_a_rule_calls_whole_is_decomposed_in_a_graph() -> None:
    @ed.register_decomposition("aten.mse_loss.default")
    def by_nll(x: Tensor, target: Tensor, reduction: int = 1) -> Any:
        return aten.nll_loss_forward.default(x, aten.argmax.default(target, 1), None, 1, -100)[0]

    compiled = torch.compile(F.mse_loss, backend=ed.dynamo_backend(CORE, rules=[by_nll]))
    x = torch.ones(2, 3)
    with ed.BackendRecorder() as seen:
        compiled(x, x)
    assert seen.outside(CORE) == Counter()


@pytest.mark.full
def test_kept_composites_are_single_nodes_with_eagers_gradients() -> None:
    calls: list[torch.Size] = []

    def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
        calls.append(x.shape)
        return aten.linear.default(x, weight, bias)

    backend = ed.Backend("linear", CORE | ["aten.linear.default"], {"aten.linear.default": linear})
    made = ed.dynamo_backend(backend, keep=["aten.layer_norm"])
    given = [rows(3, 4), rows(5, 4), rows(5)]

    def fn(x: Tensor, w: Tensor, b: Tensor) -> Tensor:
        return F.layer_norm(F.silu(F.linear(x, w, b)), [5])

    def step(run: Callable[..., Tensor]) -> list[Tensor]:
        leaves = [one.clone().requires_grad_() for one in given]
        out = run(*leaves)
        return [out.detach(), *torch.autograd.grad(out.square().sum(), leaves)]

    assert_same(step(torch.compile(fn, backend=made)), step(fn))
    forward, backward = made.graphs()
    assert called(forward).count(aten.linear.default) == called(forward).count(aten.layer_norm.default) == 1
    assert not [op for op in called(backward) if op not in CORE]
    assert calls == [torch.Size([3, 4])]
    assert not torch._C._dispatch_has_kernel_for_dispatch_key("aten::layer_norm", "AutogradCPU")


@pytest.mark.full
@pytest.mark.parametrize("ops", [CORE - ["aten.copy", "aten.fill"], ed.tiny(), ed.prims()], ids=["core", "tiny", "prims"])
def test_writes_are_decomposed_when_a_graph_is_compiled(ops: ed.OpSet) -> None:
    def fn(x: Tensor) -> Tensor:
        y = x * 2
        y[:, 0] = 0
        y[1].fill_(x[0, 0])
        y[2, 1:].zero_().add_(torch.ones_like(x[0, 1:]))
        y[0].copy_(x[1])
        return y

    made, x = ed.dynamo_backend(ops), rows(3, 4)
    with ed.BackendRecorder() as seen:
        got = torch.compile(fn, backend=made)(x)
    assert not seen.outside(ops)
    assert_same(got, fn(x))
    (graph,) = made.graphs()
    assert not left(graph)


@pytest.mark.full
def test_higher_order_ops_in_a_graph_are_lowered() -> None:
    made = ed.dynamo_backend(CORE)

    def fn(x: Tensor) -> Tensor:
        return torch.cond(x.sum() > 0, lambda y: F.silu(y), lambda y: F.softplus(y), (x,)) * 2

    compiled = torch.compile(fn, backend=made, fullgraph=True)
    for x in (rows(4) + 1, rows(4) - 1):
        ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
            got = compiled(ours)
            got.sum().backward()
        want = fn(theirs)
        want.sum().backward()
        assert_same([got.detach(), ours.grad], [want.detach(), theirs.grad])
        assert not seen.outside(CORE)
    bodies = [child for graph in made.graphs() for child in graph.children() if isinstance(child, torch.fx.GraphModule)]
    assert bodies
    assert not [op for body in bodies for op in called(body) if op not in CORE]


def test_whole_graphs_go_to_the_compile_hook() -> None:
    """Forward and backward, each as one graph; weights that the gradient reads stay the parameters, and are not copied."""
    seen: list[torch.fx.GraphModule] = []

    def hook(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        seen.append(graph)
        return graph

    backend = ed.Backend("whole", ed.core_aten(), compile=hook)
    layer = torch.nn.Linear(3, 2)
    compiled = torch.compile(lambda x: F.silu(layer(x)), backend=ed.dynamo_backend(backend, whole_graphs=True))
    x = torch.randn(4, 3, requires_grad=True)
    want = F.silu(layer(x))
    torch.testing.assert_close(compiled(x), want)
    got = torch.autograd.grad(compiled(x).sum(), [x, layer.weight])
    torch.testing.assert_close(got, torch.autograd.grad(want.sum(), [x, layer.weight]))
    assert len(seen) == 2
    for graph in seen:
        (output,) = graph.graph.find_nodes(op="output")
        assert all(node.op == "call_function" for node in output.args[0])


def test_a_whole_graph_writes_once() -> None:
    """Code that runs beside the hook's function, for views of inputs, repeats no write."""
    norm = torch.nn.BatchNorm1d(3)
    wanted = copy.deepcopy(norm)
    backend = ed.Backend("whole", ed.core_aten(), compile=lambda graph, inputs: graph)
    compiled = torch.compile(norm, backend=ed.dynamo_backend(backend, whole_graphs=True))
    x = torch.randn(4, 3)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), wanted(x))
    torch.testing.assert_close(norm.state_dict(), wanted.state_dict())


def test_a_graph_that_the_hook_declines_runs_by_kernels() -> None:
    backend = ed.Backend("none", ed.core_aten(), compile=lambda graph, inputs: None)
    compiled = torch.compile(F.silu, backend=ed.dynamo_backend(backend, whole_graphs=True))
    torch.testing.assert_close(compiled(torch.ones(3)), F.silu(torch.ones(3)))


@pytest.mark.parametrize(("device_type", "lowered"), [("meta", True), ("cpu", False), (None, True)])
def test_a_graph_keeps_the_calls_on_other_devices(device_type: str | None, lowered: bool) -> None:
    backend = ed.Backend("one device", ed.core_aten(), device_type=device_type)
    graph = make_fx(lambda x: aten.silu(x), tracing_mode="fake")(torch.ones(3, device="meta"))
    targets = [node.target for node in lower(graph, planner_of(backend)).graph.nodes]
    assert (aten.silu.default not in targets) == lowered
