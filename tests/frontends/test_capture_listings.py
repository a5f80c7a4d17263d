"""A traced graph prints like AOTAutograd's graph of the function: dtypes, shapes, source lines."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch.compile import make_boxed_func
from torch import Tensor, nn
from torch._dynamo.backends.common import aot_autograd
from torch.nn import functional as F

import eagerdecomp as ed

#: All of ATen that PyTorch does not itself compose of other ops: nothing more is decomposed.
ATEN = ed.OpSet(
    name.replace("::", ".")
    for name in torch._C._dispatch_get_all_op_names()
    if name.startswith("aten::") and not torch._C._dispatch_has_kernel_for_dispatch_key(name, "CompositeImplicitAutograd")
)

Listing = list[tuple[str, str, str]]


def listed(text: str) -> Listing:
    """Return for each call in a listing the line of source above it, its result's annotation, and the op."""
    found, source = [], ""
    for line in text.splitlines():
        line = re.sub(r"\bs\d+\b", "s", line)  # symbols are numbered by where they come from
        if match := re.match(r"\s*# (File: .*|No stacktrace.*)", line):
            source = match[1]
        elif (match := re.match(r"\s*\w+(?:: (\".*\"))? = (torch\.ops\.\S+?)\(", line)) and "sym_size" not in match[2]:
            found.append((source, match[1] or "", match[2]))
    return found


def compiled(fn: Callable[..., Tensor], *args: Tensor, dynamic: bool = False, **how: Any) -> tuple[Listing, str]:
    """The listing of forward and backward by AOTAutograd, and how it begins."""
    texts: list[str] = []

    def keep(graph: torch.fx.GraphModule, inputs: Any) -> Any:
        texts.append(graph.print_readable(print_output=False, **how))
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    result = torch.compile(fn, backend=aot_autograd(fw_compiler=keep, bw_compiler=keep), dynamic=dynamic)(*args)
    result.backward(torch.ones_like(result))
    return [call for text in texts for call in listed(text)], texts[0]


class Net(nn.Module):
    def __init__(self, dtype: torch.dtype) -> None:
        super().__init__()
        self.fc = nn.Linear(32, 64, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        hidden = self.fc(x)
        hidden = F.gelu(hidden)
        return hidden.softmax(-1).float()


@pytest.mark.full
@pytest.mark.parametrize(
    "how", [{}, {"include_stride": True}, {"include_stride": True, "include_device": True}], ids=["default", "strides", "devices"]
)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("dynamic", [False, True], ids=["fixed", "symbolic"])
def test_calls_have_the_dtypes_shapes_and_lines_of_aot_autograds_listing(dtype: torch.dtype, dynamic: bool, how: Any) -> None:
    model, x, tangents = Net(dtype), torch.randn(8, 32).to(dtype), torch.randn(8, 64)

    def step(x: Tensor, tangents: Tensor) -> Any:
        result = model(x)
        return result, torch.autograd.grad(result, list(model.parameters()), tangents)

    want, head = compiled(model, x, dynamic=dynamic, **how)
    symbolic = {"x": 0, "tangents": 0} if dynamic else None
    text = ed.trace(step, ATEN, symbolic=symbolic)(x, tangents).print_readable(print_output=False, **how)
    got = listed(text)
    assert [call for call in got if "detach" not in call[2]] == [call for call in want if "detach" not in call[2]]
    assert any("hidden = F.gelu(hidden)" in source and op.endswith("gelu_backward.default") for source, _, op in got)
    # Inputs stand with theirs as well, under the function's own names.
    ours, theirs = (re.sub(r"\bs\d+\b", "s", one.splitlines()[1]) for one in (text, head))
    said = re.search(r'x: (".+?")', ours)
    assert said is not None
    assert f": {said[1]}" in theirs


def test_a_kernel_of_a_decomposition_has_the_source_line_of_the_op() -> None:
    def step(x: Tensor, y: Tensor) -> Any:
        scaled = F.silu(x)
        scaled.backward(torch.ones_like(scaled))
        return torch.add(x, y, out=torch.empty_like(x.detach())) if x.grad is None else x.grad.mul_(y)

    x = torch.randn(3, requires_grad=True)
    calls = listed(ed.trace(step, ed.core_aten())(x, torch.randn(3)).print_readable(print_output=False))
    under: dict[str, list[str]] = {}
    for source, _, op in calls:
        under.setdefault(source.rpartition("code: ")[2], []).append(op.removeprefix("torch.ops.aten."))
    assert under["scaled = F.silu(x)"][:2] == ["sigmoid.default", "mul.Tensor"]
    assert len(under["scaled = F.silu(x)"]) == 8  # the others are silu_backward's
    assert under["scaled.backward(torch.ones_like(scaled))"][0] == "full_like.default"
    assert [op for code, ops in under.items() if "x.grad.mul_(y)" in code for op in ops] == ["mul.Tensor", "copy_.default"]
