"""A kernel whose results do not fit its op is named at one of its first calls; later calls are not checked."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from compare import assert_same
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten
X = torch.tensor([[1.0, -2.0, 3.0], [0.5, 0.0, -1.0]])


def nothing(*args: Any, **kwargs: Any) -> None:
    """A kernel that forgets to return."""


FAULTS: dict[str, tuple[str, Callable[..., Any], Callable[[], Any], str]] = {
    "nothing": ("aten.mul.Tensor", nothing, lambda: X * X, "returned None where its op returns a tensor"),
    "a new tensor for out=": (
        "aten.mul.out",
        lambda x, y, *, out: aten.mul(x, y),
        lambda: torch.mul(X, X, out=torch.empty(2, 3)),
        "returned another tensor than the one that its op writes and returns",
    ),
    "a list": ("aten.exp.default", lambda x: x.tolist(), lambda: X.exp(), "returned a list where its op returns a tensor"),
    "one of two": (
        "aten.max.dim",
        lambda x, dim, keepdim=False: x.amax(dim),
        lambda: X.max(1),
        "returned a Tensor where its op returns 2",
    ),
    "in a linked rule": (
        "aten.sigmoid.default",
        lambda x: x.sigmoid()[0],
        lambda: torch.nn.functional.silu(X),
        r"returned torch.float32 \[3\] where its op returns torch.float32 \[2, 3\]",
    ),
}


@pytest.mark.parametrize("what", FAULTS)
def test_the_kernel_is_named(what: str) -> None:
    op, kernel, call, words = FAULTS[what]
    backend = ed.Backend("mine", ed.core_aten() | [op], kernels={op: kernel})
    with ed.EagerDecompMode(backend), pytest.raises(ed.KernelError, match=words) as caught:
        call()
    assert caught.value.op == op
    assert re.search(rf"test_results_of_kernels\.\S*:{kernel.__code__.co_firstlineno}$", caught.value.kernel)
    assert f"--ops {op}" in str(caught.value)


def test_right_kernels_are_called_once_per_call_and_later_calls_are_not_checked() -> None:
    calls: list[Tensor] = []

    def sigmoid(x: Tensor) -> Tensor:
        calls.append(x)
        return aten.sigmoid.default(x) if len(calls) < 6 else nothing()  # type: ignore[return-value]

    expected = aten.silu.default(X), aten.sigmoid.default(X)
    with ed.EagerDecompMode(ed.Backend("mine", ed.core_aten(), kernels={"aten.sigmoid.default": sigmoid})):
        found = torch.nn.functional.silu(X), X.sigmoid()
        assert len(calls) == 2
        for _ in range(3):
            X.sigmoid()
        assert len(calls) == 5
        assert X.sigmoid() is None
    assert_same(found[0], expected[0])
    assert_same(found[1], expected[1])
