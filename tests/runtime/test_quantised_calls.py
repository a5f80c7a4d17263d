"""Calls with quantised tensors that were made outside the mode: the kernel of the set, eager's composition, or no route."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome
from torch import Tensor

import eagerdecomp as ed

pytestmark = pytest.mark.filterwarnings("ignore")

X = torch.linspace(-1, 1, 96).view(2, 3, 4, 4)
TENSORS = {
    "per tensor": torch.quantize_per_tensor(X, 0.1, 0, torch.qint8),
    "per channel": torch.quantize_per_channel(X, torch.full((3,), 0.1), torch.zeros(3, dtype=torch.int64), 1, torch.qint8),
}

CALLS: dict[str, Callable[[Tensor], Any]] = {
    "add": lambda q: q + 1,
    "avg_pool2d": lambda q: F.avg_pool2d(q, 2),
    "cat": lambda q: torch.cat([q, q]),
    "copy_": lambda q: q.clone().copy_(X),
    "empty_like": torch.empty_like,
    "foreach": lambda q: torch._foreach_add([q, q], 1),
    "interpolate": lambda q: F.interpolate(q, scale_factor=2),
    "matmul": lambda q: q[0, 0] @ q[0, 0],
    "relu": F.relu,
    "transpose": lambda q: q.transpose(0, 1),
}


def text(value: Any) -> str:
    """Return the numbers of a result as text, with shape, strides and scales."""
    if isinstance(value, Tensor):
        return f"{value.stride()} {value.int_repr() if value.is_quantized else value}"
    return str([text(item) for item in value]) if isinstance(value, (list, tuple)) else str(value)


@pytest.mark.parametrize("given", TENSORS)
@pytest.mark.parametrize("ops", [ed.core_aten, ed.prims, ed.tiny], ids=lambda ops: ops.__name__)
@pytest.mark.parametrize("name", CALLS)
def test_a_call_without_a_route_raises_or_runs_natively(name: str, ops: Callable[[], ed.OpSet], given: str) -> None:
    run, q = CALLS[name], TENSORS[given]
    kind, want = outcome(lambda: run(q))
    for _ in range(2):
        with ed.EagerDecompMode(ops()):
            found = outcome(lambda: run(q))
        if found[0] == "error":
            assert isinstance(found[1], (ed.UnsupportedOpError, type(want)))
        elif name != "empty_like":
            assert text(found[1]) == text(want)
        mode = ed.EagerDecompMode(ops(), on_unsupported="fallback")
        with mode:
            native = outcome(lambda: run(q))
        assert native[0] == kind
        assert name == "empty_like" or kind == "error" or text(native[1]) == text(want)
        assert bool(mode.stats().gaps) or not isinstance(found[1], ed.UnsupportedOpError)
