"""torch.compile on a set: what the graphs hold, and that all of a model reaches the backend as ops of the set.

python examples/shown/compile.py
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from showing import Shown
from torch import Tensor, nn

import eagerdecomp as ed

CORE = ed.core_aten()
SENT: Counter[str] = Counter()


def counting(op: Any) -> Callable[..., Any]:
    """A kernel that counts."""

    def kernel(*args: Any, **kwargs: Any) -> Any:
        SENT[str(op)] += 1
        return op(*args, **kwargs)

    return kernel


class Model(nn.Module):
    """A model that prints, and goes by what it computed: Dynamo breaks its graph."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.LayerNorm(16), nn.Linear(16, 4)
        self.breaks = False

    def forward(self, x: Tensor) -> Tensor:
        x = nn.functional.silu(self.first(x))
        if self.breaks:
            print(end="")
            x = x * 2 if x.sum().item() > 0 else nn.functional.softplus(x)
        return self.last(nn.functional.gelu(self.norm(x), approximate="tanh"))


def step(model: nn.Module, forward: Callable[[Tensor], Tensor], x: Tensor) -> list[Tensor]:
    """A training step: the loss and the parameters after it."""
    loss = forward(x).square().mean()
    loss.backward()
    torch.optim.AdamW(model.parameters()).step()
    return [loss.detach(), *(one.detach() for one in model.parameters())]


def apart(got: list[Tensor], want: list[Tensor]) -> bool:
    return max((one - other).abs().max().item() for one, other in zip(got, want, strict=True)) > 1e-5


def main() -> int:
    show = Shown()
    torch.manual_seed(0)
    model = Model()
    backend = ed.Backend("counting", CORE, {op: counting(op) for op in CORE})
    made = ed.dynamo_backend(backend)

    for breaks in (False, True):
        torch._dynamo.reset()
        eager, ours = copy.deepcopy(model), copy.deepcopy(model)
        eager.breaks = ours.breaks = breaks
        compiled = torch.compile(ours, backend=made, fullgraph=not breaks)
        what = "with graph breaks" if breaks else "one graph"
        x = torch.randn(5, 8)
        SENT.clear()
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(backend):
            got = step(ours, compiled, x)
        show(f"{what}: numbers that are not eager's", apart(got, step(eager, eager, x)), False)
        show(f"{what}: of {seen.ops.total()} ops that arrived, outside the set", seen.outside(CORE).total(), 0)
        show(
            f"{what}: of {SENT['aten.sigmoid.default']} sigmoids sent, not by a kernel",
            seen.ops[torch.ops.aten.sigmoid.default] - SENT["aten.sigmoid.default"],
            0,
        )
        show(f"{what}: graphs, forward and backward", len(made.graphs()) >= 2)
        show(f"{what}: their ops that are not of the set", [op for op in held(made) if op not in CORE], [])

    torch._dynamo.reset()
    sizes = ed.dynamo_backend(CORE)
    compiled = torch.compile(model, backend=sizes, dynamic=True)
    off = [(compiled(x) - model(x)).abs().max().item() < 1e-6 for x in (torch.randn(size, 8) for size in (3, 5, 9))]
    show("sizes that are symbols: the right numbers at three of them", all(off))
    show("graphs compiled for them", len(sizes.graphs()), 2)
    return int(show.failed > 0)


def held(made: ed.DynamoBackend) -> set[Any]:
    """The ops of all graphs."""
    return {node.target for graph in made.graphs() for node in graph.graph.nodes if isinstance(node.target, torch._ops.OpOverload)}


if __name__ == "__main__":
    raise SystemExit(main())
