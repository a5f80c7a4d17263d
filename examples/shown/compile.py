"""torch.compile on an op set: graphs contain only ops of the set, and only such ops reach the backend.

python examples/shown/compile.py
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from showing import Checks
from torch import Tensor, nn

import eagerdecomp as ed
from eagerdecomp.frontends.dynamo import DynamoBackend

CORE = ed.core_aten()
#: Op -> number of calls of its kernel.
CALLS: Counter[str] = Counter()


def counting(op: Any) -> Callable[..., Any]:
    """Return a kernel that counts its calls."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        CALLS[str(op)] += 1
        return op(*args, **kwargs)

    return kernel


class Model(nn.Module):
    """A model with optional graph breaks: a print, and a branch on a computed value."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.has_breaks = False

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.first(x))
        if self.has_breaks:
            print(end="")
            x = x * 2 if x.sum().item() > 0 else nn.functional.softplus(x)
        return self.last(nn.functional.gelu(self.norm(x), approximate="tanh"))


def step(model: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """Run a training step, and return the loss and the new parameters."""
    loss = forward(x).square().mean()
    loss.backward()
    torch.optim.AdamW(model.parameters()).step()
    return [loss.detach(), *(one.detach() for one in model.parameters())]


def differs(got: list[Tensor], want: list[Tensor]) -> bool:
    """Return whether results differ by more than rounding."""
    return max((one - other).abs().max().item() for one, other in zip(got, want, strict=True)) > 1e-5


def main() -> int:
    check = Checks()
    torch.manual_seed(0)
    model = Model()
    backend = ed.Backend("counting", CORE, {op: counting(op) for op in CORE})
    compiler = ed.dynamo_backend(backend)

    for breaks in (False, True):
        torch._dynamo.reset()
        eager, ours = copy.deepcopy(model), copy.deepcopy(model)
        eager.has_breaks = ours.has_breaks = breaks
        compiled = torch.compile(ours, backend=compiler, fullgraph=not breaks)
        what = "with graph breaks" if breaks else "one graph"
        x = torch.randn(5, 8)
        CALLS.clear()
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(backend):
            got = step(ours, compiled, x)
        check(f"{what}: results differ from eager", differs(got, step(eager, eager, x)), False)
        check(f"{what}: of {seen.ops.total()} ops at the backend, outside the set", seen.outside(CORE).total(), 0)
        check(
            f"{what}: of {CALLS['aten.sigmoid.default']} sigmoid kernel calls, not recorded at the backend",
            seen.ops[torch.ops.aten.sigmoid.default] - CALLS["aten.sigmoid.default"],
            0,
        )
        check(f"{what}: graphs, forward and backward", len(compiler.graphs()) >= 2)
        check(f"{what}: ops of the graphs that are outside the set", [op for op in graph_ops(compiler) if op not in CORE], [])

    torch._dynamo.reset()
    dynamic = ed.dynamo_backend(CORE)
    compiled = torch.compile(model, backend=dynamic, dynamic=True)
    equal = [(compiled(x) - model(x)).abs().max().item() < 1e-6 for x in (torch.randn(size, 8) for size in (3, 5, 9))]
    check("dynamic shapes: right results for three sizes", all(equal))
    check("dynamic shapes: compiled graphs", len(dynamic.graphs()), 2)
    return int(check.failed > 0)


def graph_ops(compiler: DynamoBackend) -> set[Any]:
    """Return the ops of all graphs."""
    return {
        node.target for graph in compiler.graphs() for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)
    }


if __name__ == "__main__":
    raise SystemExit(main())
