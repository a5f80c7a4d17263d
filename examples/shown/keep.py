"""Composites that are kept whole have eager's gradients, in the mode and installed.

python examples/shown/keep.py
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import torch
from showing import Checks
from torch import Tensor
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F
from torch.utils._pytree import tree_leaves

import eagerdecomp as ed

aten = torch.ops.aten
WHOLE = ("aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default", "aten.dropout.default")
CALLS: Counter[str] = Counter()


def counting(name: str, op: Any) -> Callable[..., Any]:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        CALLS[name] += 1
        return op(*args, **kwargs)

    return kernel


KERNELS = {name: counting(name, op) for name in WHOLE for op in ed.OpSet([name])}
BACKEND = ed.Backend("mine", ed.core_aten() | WHOLE, kernels=KERNELS)
FORMS = {"mode": lambda: ed.EagerDecompMode(BACKEND), "installed": lambda: ed.install(BACKEND, "cpu")}

torch.manual_seed(0)
X, WEIGHT = torch.randn(2, 3, 4), torch.randn(4, 4)


def block(x: Tensor, w: Tensor) -> Tensor:
    y = F.layer_norm(F.linear(x, w), [4])
    return F.scaled_dot_product_attention(y, y, y)


def step(function: Callable[..., Tensor] = block) -> Any:
    inputs = [X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()]
    return torch.autograd.grad(function(*inputs).square().sum(), inputs)


def twice() -> Any:
    inputs = [X.clone().requires_grad_(), WEIGHT.clone().requires_grad_()]
    first = torch.autograd.grad(block(*inputs).square().sum(), inputs, create_graph=True)
    return torch.autograd.grad(first[0].square().sum(), inputs)


WAYS: dict[str, Callable[[], Any]] = {
    "gradients": step,
    "gradients of gradients": twice,
    "forward AD": lambda: torch.func.jvp(lambda x: block(x, WEIGHT), (X,), (torch.ones_like(X),)),
    "vmap": lambda: torch.vmap(lambda x: block(x, WEIGHT))(X),
    "torch.func.grad": lambda: torch.func.grad(lambda x: block(x, WEIGHT).square().sum())(X),
    "inference mode": torch.inference_mode()(lambda: block(X, WEIGHT)),
    "aot_eager": lambda: step(torch.compile(block, backend="aot_eager")),
}


def main() -> int:
    check = Checks()
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        wanted = {way: tree_leaves(run()) for way, run in WAYS.items()}
        for form, make_context in FORMS.items():
            for way, run in WAYS.items():
                torch._dynamo.reset()
                with make_context():
                    CALLS.clear()
                    got = tree_leaves(run())
                same = len(got) == len(wanted[way]) and all(map(torch.allclose, got, wanted[way], [1e-4] * 9, [1e-5] * 9))
                check(f"{form}, {way}: eager's result, with {sum(CALLS.values())} kernel calls of composites", same)
                if way in ("gradients", "inference mode"):
                    check(f"{form}, {way}: kernel calls of each composite", [CALLS[name] for name in WHOLE], [1, 1, 1, 0])
            with make_context():
                ones = torch.ones(1000, requires_grad=True)
                out = F.dropout(ones, 0.5)
                (mask,) = torch.autograd.grad(out.sum(), ones)
                nodes = [str(node.target) for node in make_fx(block)(X, WEIGHT).graph.nodes if node.op == "call_function"]
            check(f"{form}, dropout: backward uses the mask of forward", torch.equal(mask, out.detach()))
            check(f"{form}, make_fx: nodes", nodes, list(WHOLE[:3]))
    return int(check.failed > 0)


if __name__ == "__main__":
    raise SystemExit(main())
