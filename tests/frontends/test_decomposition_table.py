"""The rules as a decomposition table: graphs of PyTorch's own tools stay on the op set and keep eager's values."""

from __future__ import annotations

import warnings
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE
from torch import Tensor, nn
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils._pytree import tree_flatten, tree_leaves, tree_unflatten

import eagerdecomp as ed

aten = torch.ops.aten
TABLE = ed.decompositions(CORE)


class Calls(nn.Module):
    def __init__(self, run: Callable[..., Any], *modules: nn.Module) -> None:
        super().__init__()
        self.run, self.inner = run, nn.ModuleList(modules)

    def forward(self, *args: Any) -> Any:
        return self.run(*self.inner, *args)


def x(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))


SPD = x(4, 4) @ x(4, 4).mT + 4 * torch.eye(4)
CASES: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "perceptron": (Calls(lambda a, b, v: b(F.silu(a(v))), nn.Linear(4, 8), nn.Linear(8, 2)), (x(3, 4),)),
    "transformer": (nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval(), (x(2, 5, 8),)),
    "lstm": (nn.LSTM(4, 5), (x(3, 2, 4),)),
    "cross entropy": (Calls(F.cross_entropy), (x(4, 5), torch.tensor([0, 3, 4, 1]))),
    "cholesky": (Calls(torch.linalg.cholesky), (SPD,)),
}


def outside(graph: GraphModule, ops: ed.OpSet = CORE) -> Counter[str]:
    called = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return Counter(str(op) for op in called if isinstance(op, torch._ops.OpOverload) and op not in ops)


def same(got: Any, want: Any) -> None:
    for one, other in zip(tree_leaves(got), tree_leaves(want), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_an_exported_program_stays_on_the_set(name: str) -> None:
    module, args = CASES[name]
    exported = torch.export.export(module, args).run_decompositions(TABLE)
    assert outside(exported.graph_module) == Counter()
    same(exported.module()(*args), module(*args))


def traced_silu(rule: ed.Rule) -> GraphModule:
    table = ed.decompositions(CORE, ["aten.silu.default"], rules=[rule])
    return make_fx(lambda v: F.silu(v), decomposition_table=table)(x(3))


def test_a_rule_of_the_user_comes_first() -> None:
    @ed.register_decomposition("aten.silu.default")
    def silu(v: Tensor) -> Any:
        return aten.div.Tensor(v, aten.add.Scalar(aten.exp.default(aten.neg.default(v)), 1))

    traced = traced_silu(silu)
    assert aten.div.Tensor in [node.target for node in traced.graph.nodes]


def test_ops_of_the_set_and_mutating_ops_have_no_decomposition() -> None:
    assert not TABLE.keys() & set(CORE)
    assert aten.add_.Tensor not in TABLE
    assert aten.add.out not in TABLE


def test_writes_to_tensors_that_the_rule_created_become_functional() -> None:
    @ed.register_decomposition("aten.silu.default")
    def writes(v: Tensor) -> Any:
        made = aten.sigmoid.default(v)
        aten.mul_.Tensor(made, v)
        return aten.mul_.Scalar(made, 1.0)

    traced = traced_silu(writes)
    assert outside(traced) == Counter()
    assert not any(str(node.target).partition(".")[2].partition(".")[0].endswith("_") for node in traced.graph.nodes)
    same(traced(x(3)), F.silu(x(3)))


def test_a_rule_that_writes_to_a_tensor_with_views_is_not_used() -> None:
    @ed.register_decomposition("aten.silu.default")
    def writes(v: Tensor) -> Any:
        made = aten.sigmoid.default(v)
        view = aten.view.default(made, [-1])
        aten.mul_.Tensor(made, v)
        return aten.view.default(view, list(v.shape))

    traced = traced_silu(writes)
    same(traced(x(3)), F.silu(x(3)))


@pytest.mark.parametrize("mode", ["real", "fake"])
def test_rules_that_read_data_are_skipped(mode: str) -> None:
    traced = make_fx(lambda v: torch.bernoulli(v.abs() * 0), decomposition_table=TABLE, tracing_mode=mode)(x(3))
    assert outside(traced) == Counter()
    assert traced(x(3)).tolist() == [0.0] * 3


def test_a_call_that_only_rules_that_read_data_decompose_stays_and_a_warning_says_why() -> None:
    with pytest.warns(UserWarning, match=r"(?s)aten.histc.default stays in the graph, outside the op set.* reads"):
        traced = make_fx(lambda v: v.histc(4), decomposition_table=TABLE)(x(8))
    assert outside(traced) == Counter({"aten.histc.default": 1})
    same(traced(x(8)), x(8).histc(4))


def test_a_check_that_reads_data_stays_in_the_graph() -> None:
    traced = make_fx(torch.linalg.inv, decomposition_table=TABLE)(SPD)
    assert outside(traced) == Counter({"aten._linalg_check_errors.default": 1})
    same(traced(SPD), torch.linalg.inv(SPD))


@pytest.mark.full
@pytest.mark.parametrize("name", ["core_aten", "tiny"])
def test_each_function_of_torch_nn_stays_on_the_set_or_a_warning_names_it(name: str) -> None:
    import torch.nn.modules.linear_cross_entropy  # registers ops
    from torch.testing._internal.common_methods_invocations import op_db

    ops = getattr(ed, name)()
    table, stayed = ed.decompositions(ops), {}
    not_exported = {"nn.functional.ctc_loss", "nn.functional.gaussian_nll_loss"}  # they read data
    for info in op_db:
        if (
            info.name in not_exported
            or not info.name.startswith("nn.functional.")
            or torch.float32 not in info.supported_dtypes("cpu")
        ):
            continue
        sample = next(iter(info.sample_inputs("cpu", torch.float32)))
        leaves, spec = tree_flatten(((sample.input, *sample.args), sample.kwargs))
        places = [place for place, leaf in enumerate(leaves) if isinstance(leaf, Tensor)]

        def run(
            *tensors: Tensor, op: Any = info.op, leaves: list[Any] = leaves, spec: Any = spec, places: list[int] = places
        ) -> Any:
            given = dict(zip(places, tensors, strict=True))
            args, kwargs = tree_unflatten([given.get(place, leaf) for place, leaf in enumerate(leaves)], spec)
            return op(*args, **kwargs)

        exported = torch.export.export(Calls(run), tuple(leaves[place] for place in places))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            graph = exported.run_decompositions(table).graph_module
        found = outside(graph, ops)
        assert all(any(str(one.message).startswith(f"{op} stays") for one in caught) for op in found), (info.name, found)
        stayed.update(dict.fromkeys(found, info.name))
    assert set(stayed.values()) == {"nn.functional.linear_cross_entropy"}  # its ops write to views of new tensors


def test_a_rule_that_reaches_its_own_op_is_skipped() -> None:
    @ed.register_decomposition("aten.silu.default")
    def by_mish(v: Tensor) -> Any:
        return aten.mish.default(v)

    @ed.register_decomposition("aten.mish.default")
    def by_silu(v: Tensor) -> Any:
        return aten.silu.default(v)

    table = ed.decompositions(["aten.neg"], rules=[by_mish, by_silu])
    traced = make_fx(lambda v: F.silu(v), decomposition_table=table)(x(3))
    assert [node.target for node in traced.graph.nodes if node.op == "call_function"] == [aten.silu.default]


#: Models in which C++ code makes views without calling an op, and their arguments.
WITH_VIEWS: dict[str, tuple[nn.Module, tuple[Any, ...]]] = {
    "matmul": (Calls(lambda v: v @ v.mT), (x(2, 3, 4, 5),)),
    "attention": (nn.MultiheadAttention(4, 2).eval(), (x(3, 2, 4),) * 3),
    "view of a dtype": (Calls(lambda v: v.view(torch.int32) + 1), (x(2, 3),)),
}


@pytest.mark.parametrize("ops", [CORE, ed.tiny()], ids=["core", "tiny"])
@pytest.mark.parametrize("name", WITH_VIEWS)
def test_a_set_without_views_leaves_them_in_the_graph(name: str, ops: ed.OpSet) -> None:
    module, args = WITH_VIEWS[name]
    exported = torch.export.export(module, args).run_decompositions(ed.decompositions(ops - ["aten.view"]))
    torch.testing.assert_close(exported.module()(*args), module(*args))
    outside = {str(node.target) for node in exported.graph.nodes if node.op == "call_function" and node.target not in ops}
    assert outside <= {"aten._unsafe_view.default", "aten.im2col.default"}
