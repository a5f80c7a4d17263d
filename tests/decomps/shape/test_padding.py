"""Padding by replication and reflection, and its gradient, against eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core

import eagerdecomp as ed

aten = torch.ops.aten
KINDS = ["replication", "reflection"]
LACKING = CORE - {getattr(aten, f"{kind}_pad{dims}d") for kind in KINDS for dims in (1, 2, 3)}
FORMATS = {4: torch.channels_last, 5: torch.channels_last_3d}


def sample(dims: int, dtype: torch.dtype, layout: str) -> torch.Tensor:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(3, 4, 5)[:dims], dtype=torch.float64).mul(4).to(dtype)
    if layout == "no batch":
        return x[0]
    if layout == "channels last":
        return x.contiguous(memory_format=FORMATS[dims + 2]) if dims > 1 else x.transpose(1, 2).contiguous().transpose(1, 2)
    if layout == "channels last, no batch":
        return x[0].movedim(0, -1).contiguous().movedim(-1, 0)
    return x.transpose(1, -1).contiguous().transpose(1, -1) if layout == "permuted" else x


def gradient(x: torch.Tensor, op: Any, padding: list[int]) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = op(leaf, padding)
    weights = (torch.arange(1.0, out.numel() + 1).view(out.shape) / 8).to(out.dtype)
    return torch.autograd.grad(out, leaf, weights)[0]


@pytest.mark.full
@settings(max_examples=150, deadline=None)
@given(
    kind=st.sampled_from(KINDS),
    dims=st.integers(1, 3),
    padding=st.lists(st.integers(-2, 2), min_size=6, max_size=6),
    dtype=st.sampled_from([torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.int64]),
    layout=st.sampled_from(["contiguous", "no batch", "channels last", "channels last, no batch", "permuted"]),
)
@example(kind="reflection", dims=3, padding=[1, 2, 0, 0, 2, 1], dtype=torch.bfloat16, layout="contiguous")
@example(kind="replication", dims=2, padding=[0, 0, 0, 0, 0, 0], dtype=torch.float32, layout="channels last")
def test_padding_and_its_gradient(kind: str, dims: int, padding: list[int], dtype: torch.dtype, layout: str) -> None:
    x, op = sample(dims, dtype, layout), getattr(aten, f"{kind}_pad{dims}d")
    # Of nothing, the kernels for volumes leave the gradient as they find it in memory.
    assume(all(size + sum(padding[2 * at : 2 * at + 2]) > 0 for at, size in enumerate(reversed(x.shape[-dims:]))))
    check(op, x, padding[: 2 * dims], ops=LACKING, exact=True)
    if dtype is not torch.int64:
        check(gradient, x, op, padding[: 2 * dims], exact=dtype is not torch.complex64)


@pytest.mark.parametrize("value", [float("inf"), float("nan")])
@pytest.mark.parametrize("kind", KINDS)
def test_an_infinite_gradient_reaches_its_own_source_alone(kind: str, value: float) -> None:
    grad = torch.ones(1, 1, 6, 7)
    grad[0, 0, 0, 1] = value
    check(getattr(aten, f"{kind}_pad2d_backward"), grad, torch.zeros(1, 1, 4, 5), [1, 1, 1, 1], exact=True)


@pytest.mark.parametrize("dims", [1, 2, 3])
def test_circular_and_constant_padding(dims: int) -> None:
    x = sample(dims, torch.float32, "contiguous")
    check(F.pad, x, [1, 2, 0, 1, 1, 0][: 2 * dims], mode="circular")
    check(F.pad, x, [1, -2, 0, 1, -1, 0][: 2 * dims], value=2.5)
    check(gradient, x, lambda leaf, pads: F.pad(leaf, pads, mode="circular"), [1, 2, 0, 1, 1, 0][: 2 * dims])
    check(gradient, x, lambda leaf, pads: F.pad(leaf, pads), [1, -2, 0, 1, -1, 0][: 2 * dims])


@pytest.mark.parametrize("mode", ["replicate", "reflect"])
def test_gradients_of_first_and_second_order(mode: str) -> None:
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).view(1, 1, 3, 4).requires_grad_()
    for pads in ([1, 2, 1, 0], [-1, 2, 2, -1]):
        assert on_core(lambda: torch.autograd.gradcheck(lambda t: F.pad(t, pads, mode=mode) ** 2, (x,)))  # noqa: B023
        assert on_core(lambda: torch.autograd.gradgradcheck(lambda t: F.pad(t, pads, mode=mode) ** 3, (x,)))  # noqa: B023


def test_kernel_calls() -> None:
    x, g = torch.randn(1, 2, 4, 4), torch.randn(1, 2, 6, 6)
    assert kernel_calls(lambda: aten.replication_pad1d(x[0], [1, 1])) <= 4
    assert (
        kernel_calls(lambda: aten.replication_pad2d_backward(g, x, [1, 1, 1, 1])) <= 8
    )  # one `arange` less if sides were known equal
    assert kernel_calls(lambda: aten.reflection_pad2d_backward(g, x, [1, 1, 1, 1])) <= 16


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_volumes_without_a_batch_keep_channels_last(mode: str) -> None:
    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        out = F.pad(x.requires_grad_(), (1, 1, 1, 1, 1, 1), mode)
        return out.detach(), torch.autograd.grad(out.sum(), x)[0]

    check(run, torch.randn(2, 4, 5, 6).contiguous(memory_format=torch.channels_last))


@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize(("mode", "padding", "sizes"), [("reflect", (3, 2), (5, 4, 3, 2)), ("replicate", (-2, -2), (6, 5, 4, 3))])
def test_a_size_that_does_not_fit_is_refused_after_sizes_that_do(mode: str, padding: Any, sizes: Any, ops: ed.OpSet) -> None:
    """A kind of call that eager was asked about has any size, and torch's table entries check none."""
    cache = ed.ProgramCache()
    for size in sizes:
        x = torch.randn(1, 2, size)
        _, want = outcome(lambda: F.pad(x, padding, mode=mode))  # noqa: B023 - called at once
        _, got = outcome(lambda: on_core(lambda: F.pad(x, padding, mode=mode), ops, cache=cache))  # noqa: B023
        assert torch.equal(got, want) if size in sizes[:2] else str(got) == str(want)
