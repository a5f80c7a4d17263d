"""Kernels equal eager, in the interpreter; only Triton computes; each compiles for a GPU."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import on_triton
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.conformance import run_conformance

#: What torch itself may run: views, allocation, reads of data, and tensors of numbers, which the library makes.
HOST = {str(op) for op in on_triton.backend.ops} - set(on_triton.KERNELS) | {
    f"aten.{name}"
    for name in (
        "item.default",
        "movedim.int",
        "narrow.default",
        "promote_types.default",
        "scalar_tensor.default",
        "t.default",
        "unbind.int",
    )
}

X = torch.randn(3, 4, 5, generator=torch.Generator().manual_seed(0))
BYTES = torch.arange(0, 240, 20, dtype=torch.uint8).view(3, 4)
PLACES = torch.tensor([2, -1, 0])

CALLS: dict[str, Callable[[], Tensor | tuple[Tensor, ...]]] = {
    "broadcast and strides": lambda: X.transpose(0, 2) * X[0].t().unsqueeze(2) - 2.5,
    "mixed dtypes": lambda: X.to(torch.bfloat16) + torch.arange(5) / 3,
    "a number of float64": lambda: X.double() + 0.1,
    "channels last": lambda: F.silu(X.unsqueeze(1).contiguous(memory_format=torch.channels_last)),
    "seven dimensions": lambda: X.view(3, 1, 2, 2, 1, 5, 1).permute(5, 3, 2, 0, 1, 6, 4).exp(),
    "reductions": lambda: (X.sum(1), X.mean(), X.amax((0, 2)), (X > 1).any(1), X.var(0), X.argmax(2)),
    "reductions of narrow integers": lambda: (
        BYTES.max(),
        *BYTES.max(1),
        *BYTES.char().aminmax(),
        BYTES.argmax(0),
        BYTES.bool().amax(0),
    ),
    "sums of narrow integers": lambda: (
        BYTES.sum(0, dtype=torch.int8),
        torch.tensor([1, -1]).sum(dtype=torch.bool),
        BYTES.cumsum(1, dtype=torch.uint8),
    ),
    "no dimensions": lambda: (BYTES.t().any([]), X[0].t().any([])),
    "nothing": lambda: (X[:0].long().softmax(1), X[:0].long().log_softmax(1), X[0, :, :0].bool() @ X[0, :0].bool(), BYTES + 1),
    "half sums": lambda: X.half().sum(2),
    "softmax": lambda: (X.softmax(1), X.log_softmax(-1)),
    "norm": lambda: F.layer_norm(X, [5]),
    "running sum": lambda: X.cumsum(1),
    "sorting": lambda: (*X.sort(1, descending=True), *X.flatten().topk(7)),
    "products": lambda: (
        X[0] @ X[1].t(),
        X @ X.transpose(1, 2),
        *(one @ one.t() for one in (BYTES, BYTES.char(), BYTES.short(), BYTES.long())),
    ),
    "indices": lambda: (X[:, PLACES], X[PLACES, :, PLACES], X[X > 0], X[PLACES, ..., None]),
    "gather": lambda: X.gather(1, torch.tensor([[[0, 1, 2, 3, 1]]])),
    "scatter": lambda: torch.zeros(3, 4, 5).scatter(1, torch.tensor([[[0, 1, 2, 3, 1]]]), X),
    "adding": lambda: (X.index_put((PLACES,), X[:, :1], accumulate=True), X.half().index_add(1, PLACES % 3, X[:, :3].half())),
    "writes to views": lambda: X.clone()[:, ::2].mul_(2),
    "joining": lambda: torch.cat([X, X.double()], 1),
    "factories": lambda: (torch.arange(0, 3, 0.3), torch.full((3, 2), -7), torch.eye(3)),
    "convolution": lambda: F.conv2d(X.unsqueeze(0), torch.ones(2, 3, 2, 2), stride=2, padding=1),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_call_equals_eager_and_only_triton_computes(name: str) -> None:
    want = CALLS[name]()
    before = on_triton.launches()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(on_triton.backend):
        got = CALLS[name]()
    assert on_triton.launches() > before
    assert {str(op) for op in seen.ops} - HOST == set()
    torch.testing.assert_close(got, want)
    torch.testing.assert_close([one.stride() for one in _each(got)], [one.stride() for one in _each(want)])


def _each(found: Tensor | tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (found,) if isinstance(found, Tensor) else found


def test_random_numbers_repeat_under_a_seed() -> None:
    with ed.EagerDecompMode(on_triton.backend):
        draws = []
        for _ in range(2):
            torch.manual_seed(3)
            draws.append((torch.rand(2000), torch.randn(2000)))
    assert all(torch.equal(*pair) for pair in zip(*draws, strict=True))
    uniform, normal = draws[0]
    assert 0 <= uniform.min() < 0.01
    assert 0.99 < uniform.max() < 1
    assert abs(normal.mean()) < 0.1
    assert abs(normal.std() - 1) < 0.1


def test_an_index_out_of_range_raises() -> None:
    with ed.EagerDecompMode(on_triton.backend), pytest.raises(Exception, match=r"out of (range|bounds)"):
        X[torch.tensor([3])]


@pytest.mark.parametrize("op", ["aten.add.Tensor", "aten.gather"])
def test_the_conformance_suite_passes(op: str) -> None:
    report = run_conformance(on_triton.backend, ops=[op], profile="quick", isolate=False)
    assert [(one.state, one.failures) for one in report.results if one.state != "right"] == []


def test_the_kernels_compile_for_a_gpu() -> None:
    """Triton compiles without a GPU. In a process of its own: here kernels are interpreted."""
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    script = Path(__file__).parent / "compile_for_gpu.py"
    done = subprocess.run([sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert "compiled" in done.stdout
