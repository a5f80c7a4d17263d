"""A smoke test of each frontend: losses and weights of two training steps of a small model equal eager's."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.conformance import run_conformance
from eagerdecomp.profile import RecordingMode

CORE = ed.core_aten()


class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(7, 6)
        self.norm = nn.LayerNorm(6)
        self.hidden = nn.Linear(6, 8)
        self.out = nn.Linear(8, 4)

    def forward(self, words: Tensor) -> Tensor:
        x = F.gelu(self.hidden(self.norm(self.embedding(words))), approximate="tanh")
        return self.out(F.silu(x).mean(1))


def trained(way_in: Callable[[], AbstractContextManager[Any]]) -> tuple[list[Any], ed.BackendRecorder]:
    """Losses of two steps and the weights after them, from fixed data; and what reached the backend."""
    torch.manual_seed(0)
    model, words, classes = Model(), torch.randint(7, (5, 3)), torch.randint(4, (5,))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    losses = []
    with ed.BackendRecorder() as seen, way_in():
        for _ in range(2):
            optimizer.zero_grad()
            loss = F.cross_entropy(model(words), classes)
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
    return [losses, [parameter.detach() for parameter in model.parameters()]], seen


@contextmanager
def installed() -> Iterator[None]:
    with ed.install(CORE, "cpu"):
        yield


WAYS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "mode": lambda: ed.EagerDecompMode(CORE),
    "small set": lambda: ed.EagerDecompMode(ed.tiny() | ed.infra()),
    "verified": lambda: ed.EagerDecompMode(CORE, verify=ed.Verify(every=3)),
    "recorded": lambda: RecordingMode(CORE),
    "installed": installed,
}


@pytest.mark.parametrize("way", WAYS)
def test_a_model_trains_as_in_eager(way: str) -> None:
    want, _ = trained(contextlib.nullcontext)
    have, seen = trained(WAYS[way])
    assert_same(have, want)
    if way not in ("verified", "installed"):  # what verifies calls eager too; what is installed lies below the recorder
        allowed = ed.tiny() | ed.infra() if way == "small set" else CORE
        assert not seen.outside(allowed)
        assert seen.ops.total() > 100


def test_a_traced_step_runs_again_on_the_set() -> None:
    model, words, classes = Model(), torch.randint(7, (5, 3)), torch.randint(4, (5,))

    def step(words: Tensor, classes: Tensor) -> tuple[Tensor, ...]:
        loss = F.cross_entropy(model(words), classes)
        return (loss.detach(), *torch.autograd.grad(loss, list(model.parameters())))

    graph = ed.trace(step, CORE)(words, classes)
    assert {node.target for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)} <= set(CORE)
    other = torch.randint(7, (5, 3))
    assert_same(list(graph(other, classes)), list(step(other, classes)))


@pytest.mark.full  # it holds thousands of ops
def test_the_decomposition_table_has_what_core_aten_lacks() -> None:
    table = ed.decompositions(CORE)
    x = torch.randn(3, 4)
    assert not set(table) & set(CORE)
    assert_same(table[torch.ops.aten.silu.default](x), F.silu(x))


def test_plans_explanations_and_blame() -> None:
    plan = ed.plan(CORE, ops=["aten.silu.default", "aten.add.Tensor"])
    assert plan.counts == {"supported": 1, "closed": 1}
    assert "aten.sigmoid.default" in str(ed.explain("aten.silu.default", torch.randn(3)))
    wrong = ed.Backend("wrong", CORE, {"aten.sigmoid.default": lambda x: torch.sigmoid(x) * 1.5})
    x = torch.randn(3)
    report = ed.blame(lambda: F.silu(x), wrong)
    assert "aten.sigmoid.default" in str(report)


def test_the_conformance_suite_names_a_wrong_kernel() -> None:
    wrong = ed.Backend("wrong", CORE, {"aten.neg.default": lambda x: x * -1.5})
    report = run_conformance(wrong, ops=["aten.neg.default"], profile="quick", isolate=False)
    assert {str(one.op) for one in report.failures} == {"aten.neg.default"}


def test_the_command_line_runs_a_script(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import torch\nprint(torch.nn.functional.silu(torch.zeros(3)).tolist())\n", encoding="utf-8")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        assert main(["run", "--ops", "core", str(script)]) == 0
    assert "[0.0, 0.0, 0.0]" in said.getvalue()
