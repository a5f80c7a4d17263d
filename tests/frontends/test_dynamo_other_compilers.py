"""Functions compiled by other torch.compile backends, called in the mode and after it."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE, rows
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.profile import RecordingMode

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning", "ignore::FutureWarning", "ignore::DeprecationWarning"),
    pytest.mark.usefixtures("dynamo_afresh"),
]


class Counting:
    """A backend of torch.compile that counts the graphs it is given and how often they run."""

    def __init__(self) -> None:
        self.graphs: list[str] = []
        self.runs = 0

    def __call__(self, model: torch.fx.GraphModule, inputs: Any) -> Callable[..., Any]:
        self.graphs.append(model.code)

        def run(*args: Any) -> Any:
            self.runs += 1
            return model(*args)

        return run


def modes() -> dict[str, Callable[[], AbstractContextManager[Any]]]:
    return {
        "mode": lambda: ed.EagerDecompMode(CORE),
        "keep": lambda: ed.EagerDecompMode(CORE, keep=["aten.linear", "aten.layer_norm", "aten.dropout"]),
        "preflight": lambda: ed.EagerDecompMode(CORE, preflight=True),
        "recording": lambda: RecordingMode(CORE),
        "install": lambda: ed.install(CORE - ["aten.gelu"], "cpu"),
        "nothing": nullcontext,
    }


def broken(x: Tensor, w: Tensor) -> Tensor:
    x = F.gelu(F.linear(x, w))
    torch._dynamo.graph_break()
    x = F.layer_norm(F.silu(F.linear(x, w)), [4])
    print(end="")
    y = F.dropout(x, 0.0).square().sum()
    y.backward()
    return y.detach()


@pytest.mark.full
@pytest.mark.parametrize("way", modes())
def test_dynamo_skips_our_frames_and_continues_afterwards(way: str) -> None:
    def passes(around: Callable[[], AbstractContextManager[Any]]) -> tuple[Counting, list[int], list[Tensor]]:
        torch._dynamo.reset()
        counter, runs, results = Counting(), [], []
        fn = torch.compile(broken, backend=counter)
        for context in (around, around, nullcontext):
            with context():
                for _ in range(2):
                    x, w = rows(3, 4).requires_grad_(), rows(4, 4).requires_grad_()
                    results += [fn(x, w), x.grad, w.grad]
            runs.append(counter.runs)
        return counter, runs, results

    plain, plain_runs, want = passes(nullcontext)
    ours, runs, got = passes(modes()[way])
    assert_same(got, want)
    assert ours.graphs == plain.graphs
    assert runs == plain_runs


@pytest.mark.full
@pytest.mark.parametrize("compiler", ["eager", "aot_eager", "inductor"])
def test_functions_of_other_compilers_run_compiled_in_the_mode_and_after_it(compiler: str) -> None:
    from eagerdecomp.backends.inductor import cpp_compiler

    if compiler == "inductor" and cpp_compiler() is None:
        pytest.skip("no C++ compiler")
    from torch._dynamo.utils import counters

    fn = torch.compile(lambda x: F.silu(x).square() - F.softplus(x), backend=compiler)
    counters.clear()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE) as mode:
        for _ in range(2):
            torch.testing.assert_close(fn(rows(4)), F.silu(rows(4)).square() - F.softplus(rows(4)))
    assert counters["stats"]["unique_graphs"] == 1
    before = mode.stats().ops["aten.silu.default"].calls
    assert before == (2 if compiler == "inductor" else 4)  # those outside the compiled function, and in it where its ops are called
    if compiler != "inductor":
        assert not seen.outside(CORE)
    fn(rows(4))
    assert counters["stats"]["unique_graphs"] == 1
    assert counters["frames"]["total"] == counters["frames"]["ok"]


@pytest.mark.full
def test_a_compiled_function_that_enters_the_mode_breaks_its_graph() -> None:
    def inside(x: Tensor) -> Tensor:
        x = x * 2
        with ed.EagerDecompMode(CORE, keep=["aten.linear"]):
            x = F.silu(x)
        return x + 1

    assert_same(torch.compile(inside, backend=ed.dynamo_backend(CORE))(rows(3)), F.silu(rows(3) * 2) + 1)
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported):
        torch.compile(inside, backend="eager", fullgraph=True)(rows(3))
    assert not torch.utils._python_dispatch._get_current_dispatch_mode_stack()
