"""Higher-order ops under the mode: their bodies are decomposed into the set, seen by a recorder outside, and eager's."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE, rows
from torch._higher_order_ops import map as mapped
from torch._higher_order_ops import scan, while_loop
from torch.nn import functional as F
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import eagerdecomp as ed

aten = torch.ops.aten

pytestmark = [pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning"), pytest.mark.usefixtures("dynamo_afresh")]


def chosen(x: torch.Tensor) -> torch.Tensor:
    return torch.cond(x.sum() > 0, F.silu, F.softplus, (x,))


def looped(x: torch.Tensor) -> Any:
    return while_loop(lambda count, _: count < 3, lambda count, y: (count + 1, F.silu(y)), (torch.tensor(0), x))


def scanned(x: torch.Tensor) -> Any:
    return scan(lambda carry, row: (carry + F.silu(row), F.softplus(carry)), torch.zeros(x.shape[1:]), x)


def attended(x: torch.Tensor) -> Any:
    q = x.reshape(1, 2, -1, 8)
    mask = create_block_mask(lambda b, h, i, j: i >= j, None, None, q.shape[2], q.shape[2], device="cpu")
    return flex_attention(q, q.sin(), q.cos(), score_mod=lambda score, b, h, i, j: F.silu(score) - (i - j).abs(), block_mask=mask)


FUNCTIONS: dict[str, Callable[[torch.Tensor], Any]] = {
    "cond": chosen,
    "cond in cond": lambda x: torch.cond(x[0, 0] < 9, chosen, F.silu, (x,)),
    "while_loop": looped,
    "scan": scanned,
    "map": lambda x: mapped(F.silu, x),
    "flex_attention": attended,
}


@pytest.mark.full
@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_a_body_results_in_is_of_the_set_and_seen_outside(name: str) -> None:
    run = FUNCTIONS[name]
    for x in (rows(32, 8), -rows(32, 8)):
        want = run(x)
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
            got = run(x)
        assert_same(got, want)
        assert not seen.outside(CORE)
        # Eager's own ops, each at least one kernel of the set: none of them was run where nobody looks.
        with ed.BackendRecorder() as native:
            run(x)
        assert native.outside(CORE)
        assert seen.ops.total() >= native.ops.total() - native.passthrough(CORE).total()


def test_an_op_without_a_route_in_a_body_raises_and_leaves_no_mode_on() -> None:
    with ed.EagerDecompMode(CORE - ["aten.sigmoid", "aten.exp"]) as mode:
        with pytest.raises(ed.UnsupportedOpError, match="silu"):
            torch.cond(torch.tensor(True), F.silu, torch.neg, (rows(3),))
        assert torch.utils._python_dispatch._get_current_dispatch_mode_stack() == [mode]


@pytest.mark.full
def test_a_trace_holds_what_a_body_called() -> None:
    graph = ed.trace(lambda x: mapped(F.silu, x), CORE)(rows(3, 4))
    called = [node.target for node in graph.graph.nodes if node.op == "call_function"]
    assert called.count(aten.sigmoid.default) == 3
    x = rows(3, 4) * 3
    torch.testing.assert_close(graph(x), F.silu(x))
    chose = ed.trace(chosen, CORE)(rows(4) + 1)
    with pytest.raises(ed.TraceError):  # the branch was chosen by data
        chose(-rows(4) - 1)


class Exported(torch.nn.Module):
    """A model whose buffers are written in training."""

    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(8, 8)
        self.norm = torch.nn.BatchNorm1d(8)

    def forward(self, x: torch.Tensor) -> dict[str, torch.Tensor]:
        x = F.silu(self.norm(self.linear(x)))
        return {"softened": F.softplus(x, 2.0), "all": x.var(0)}


@pytest.mark.full
def test_exported_programs_run_on_the_set() -> None:
    torch.manual_seed(0)
    batch = torch.export.Dim("batch", min=2)
    for train in (False, True):
        model = Exported().train(train)
        exported = torch.export.export(model, (rows(4, 8),), dynamic_shapes=({0: batch},))
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
            decomposed = exported.run_decompositions()
        assert not seen.outside(CORE)
        for program in (exported, decomposed):
            for x in (rows(4, 8), rows(6, 8)):
                state = {name: value.clone() for name, value in model.state_dict().items()}
                want = program.module()(x)
                after = {name: value.clone() for name, value in model.state_dict().items()}
                model.load_state_dict(state)
                with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
                    got = program.module()(x)
                assert_same(list(got.values()), list(want.values()))
                assert not seen.outside(CORE)
                assert_same(list(model.state_dict().values()), list(after.values()))
