"""A traced graph has the calls that reached the backend, and equals the function for other values."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp._torch.tensors import FakeTensor
from eagerdecomp.frontends.fx.capture import trace
from eagerdecomp.frontends.fx.graph_module import as_traced

aten = torch.ops.aten
CORE = ed.core_aten()
SMALL = CORE - ["aten.gelu", "aten.native_layer_norm", "aten.native_layer_norm_backward", "aten.relu"]


def test_a_graph_reads_the_parameters_themselves_and_names_them_as_the_function_does() -> None:
    model = nn.Sequential(nn.Linear(3, 2))
    scale = torch.tensor(2.0)
    of_model, of_function = trace(model, CORE)(torch.ones(4, 3)), trace(lambda x: model(x) * scale, CORE)(torch.ones(4, 3))
    assert {node.target for node in of_model.graph.nodes if node.op == "get_attr"} == {"_0_weight", "_0_bias"}
    assert {node.target for node in of_function.graph.nodes if node.op == "get_attr"} == {"model_0_weight", "model_0_bias", "scale"}
    with torch.no_grad():
        model[0].weight.mul_(3)
    x = torch.randn(4, 3)
    assert_same(of_model(x), model(x).detach())
    assert [parameter is own for parameter, own in zip(of_model.parameters(), model.parameters(), strict=True)] == [True, True]


def test_backward_inside_the_function_is_in_the_graph_and_sets_grad() -> None:
    def step(weight: Tensor, x: Tensor) -> Tensor:
        torch.tanh(x @ weight).sum().backward()
        assert weight.grad is not None
        return weight.grad

    weight, x = torch.randn(3, 2, requires_grad=True), torch.randn(4, 3)
    graph = trace(step, CORE)(weight, x)
    other, fresh = torch.randn(3, 2, requires_grad=True), torch.randn(4, 3)
    got = graph(other, fresh)
    assert other.grad is None
    assert_same(got, step(other, fresh))


def test_writes_reach_the_inputs_and_views_share_their_memory() -> None:
    def run(x: Tensor, y: Tensor) -> Any:
        row = x[1]
        row.mul_(2)
        x.t_()
        torch.add(y, 1, out=y)
        return row, x, y.view(-1)[2:]

    graph = trace(run, CORE)(torch.randn(3, 4), torch.randn(2, 2))
    x, y = torch.randn(3, 4), torch.randn(2, 2)
    theirs, ours = (x.clone(), y.clone()), (x.clone(), y.clone())
    want, got = run(*theirs), graph(*ours)
    assert_same(got, want)
    assert_same(ours, theirs)
    assert got[1].untyped_storage().data_ptr() == got[0].untyped_storage().data_ptr() == ours[0].untyped_storage().data_ptr()
    assert got[2].untyped_storage().data_ptr() == ours[1].untyped_storage().data_ptr()


def test_random_ops_use_the_same_generators_again() -> None:
    generator = torch.Generator()

    def run(x: Tensor) -> Any:
        return F.dropout(x, 0.5), torch.rand(3, generator=generator)

    ops = CORE | ["aten.rand.generator"]
    graph = trace(run, ops)(torch.ones(4, 4))
    results = []
    for way in (graph, run):
        torch.manual_seed(3)
        generator.manual_seed(4)
        with ed.EagerDecompMode(ops):
            results.append(way(torch.full((4, 4), 3.0)))
    assert_same(results[0], results[1])
    assert not torch.equal(graph(torch.ones(4, 4))[1], results[0][1])


def test_arguments_and_results_may_be_nested() -> None:
    def run(pair: Any, *rest: Tensor, scale: float, named: dict[str, Tensor]) -> Any:
        return {"sum": pair[0] + pair[1][0] + rest[0], "list": [named["b"] * scale, None, 3]}, named["a"]

    def inputs() -> Any:
        one, two, three, four, five = torch.randn(5, 2).unbind()
        return ((one.clone(), [two.clone()]), three.clone()), {"scale": 2.0, "named": {"a": four.clone(), "b": five.clone()}}

    args, kwargs = inputs()
    graph = trace(run, CORE)(*args, **kwargs)
    args, kwargs = inputs()
    got, want = graph(*args, **kwargs), run(*args, **kwargs)
    assert_same(got[0]["sum"], want[0]["sum"])
    assert_same(got[0]["list"][0], want[0]["list"][0])
    assert got[0]["list"][1:] == [None, 3]
    assert got[1] is kwargs["named"]["a"]
    with pytest.raises(ed.TraceError, match=r"scale = 2\.0, and was called with 3\.0"):
        graph(*args, **{**kwargs, "scale": 3.0})


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((torch.ones(3, 4), torch.ones(2, 3)), r"x = f32\[2, 3\], and was called with f32\[3, 4\]"),
        ((torch.ones(2, 3, dtype=torch.double), torch.ones(2, 3)), r"was called with f64"),
        ((torch.ones(3, 2).t(), torch.ones(2, 3)), r"was called with f32\[2, 3\]\[1, 2\]"),
        ((torch.ones(2, 3), 4), r"y = f32\[2, 3\], and was called with 4"),
    ],
)
def test_inputs_that_a_graph_does_not_fit_raise(given: Any, words: str) -> None:
    graph = trace(lambda x, y: x + y, CORE)(torch.ones(2, 3), torch.ones(2, 3))
    with pytest.raises(ed.TraceError, match=words):
        graph(*given)


def test_a_tensor_passed_twice_is_one_input() -> None:
    x = torch.ones(3)
    graph = trace(lambda a, b: a.add_(1) * b, CORE)(x, x)
    y = torch.full((3,), 2.0)
    assert graph(y, y).tolist() == [9, 9, 9]
    with pytest.raises(ed.TraceError, match="one tensor for both a and b"):
        graph(torch.ones(3), torch.ones(3))


def test_a_graph_checks_values_that_were_read_from_data() -> None:
    def scaled(x: Tensor) -> Tensor:
        return x * x.sum().item()

    graph = trace(scaled, CORE)(torch.ones(2))
    assert graph(torch.tensor([0.5, 1.5])).tolist() == [1, 3]
    with pytest.raises(ed.TraceError, match=r"read 2\.0 from a tensor and branched on it; now the value is 4\.0"):
        graph(torch.full((2,), 2.0))
    masked = trace(lambda x: x[x > 0].sum(), CORE)(torch.tensor([1.0, -1.0, 1.0]))
    assert masked(torch.tensor([-1.0, 2.0, 3.0])) == 5
    with pytest.raises(ed.TraceError, match=r"\[2\].*\[1\]"):
        masked(torch.tensor([-1.0, -1.0, 1.0]))
    as_traced(float("nan"), float("nan"))


def test_every_node_has_a_fake_tensor_with_its_layout_and_the_called_op() -> None:
    graph = trace(lambda x: F.gelu(x.t()).max(0), SMALL)(torch.randn(3, 4))
    nodes = {node.name: node for node in graph.graph.nodes}
    for node in graph.graph.nodes:
        if node.op != "output":
            assert "val" in node.meta, node
    assert isinstance(nodes["permute"].meta["val"], FakeTensor)
    assert nodes["permute"].meta["val"].stride() == (1, 4)
    assert nodes["erf"].meta["original_aten"] is aten.gelu.default
    text = graph.print_readable(print_output=False)
    assert 'erf: "f32[4, 3]" = torch.ops.aten.erf.default' in text
    assert '"i64[3]"' in text


def test_errors_are_those_of_the_mode_and_of_the_function() -> None:
    with pytest.raises(ed.UnsupportedOpError, match=r"aten\.mm\.default"):
        trace(torch.mm, ed.infra())(torch.ones(3, 3), torch.ones(3, 3))
    with pytest.raises(ZeroDivisionError):
        trace(lambda x: x / (1 // 0), CORE)(torch.randn(3))
    assert torch._C._len_torch_dispatch_stack() == 0


def test_a_copy_of_a_graph_checks_and_runs_like_it() -> None:
    graph = copy.deepcopy(trace(nn.Linear(3, 2), CORE)(torch.randn(4, 3)))
    assert not graph(torch.randn(4, 3)).requires_grad
    with pytest.raises(ed.TraceError):
        graph(torch.randn(5, 3))


# -- symbolic sizes ------------------------------------------------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize("name", ["input", "input_"])
def test_a_symbolic_input_may_be_named_by_its_parameter(name: str) -> None:
    graph = trace(nn.Linear(4, 2), CORE, symbolic={name: 0})(torch.ones(3, 4))
    assert graph(torch.ones(7, 4)).shape == (7, 2)

    def nested(input: list[Tensor]) -> Tensor:
        return input[0] + input[1]

    graph = trace(nested, CORE, symbolic={f"{name}_0": 0, f"{name}_1": 0})([torch.ones(3), torch.ones(3)])
    assert graph([torch.ones(5), torch.ones(5)]).tolist() == [2] * 5


def test_a_size_that_depends_on_values_cannot_be_symbolic() -> None:
    with pytest.raises(ed.TraceError, match="depends on the values of a tensor"):
        trace(lambda x: x * x.sum().item(), CORE, symbolic={"x": 0})(torch.ones(4))
    chosen = trace(lambda x: x[x > 0].sum(), CORE, symbolic={"x": 0})(torch.ones(4))
    assert chosen(torch.tensor([-1.0, 2.0, 3.0, 4.0, 5.0])) == 14
    graph = trace(lambda x: x + 1 if x.shape[0] > 3 else x - 1, CORE, symbolic={"x": 0})(torch.ones(5))
    assert graph(torch.ones(9)).tolist() == [2] * 9
    with pytest.raises(ed.TraceError, match="valid only if"):
        graph(torch.ones(3))
