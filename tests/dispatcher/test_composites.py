"""`keep=`: composites that reach the backend as one call, with eager's values and gradients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import assert_same
from kept_composites import CASES, detached_copies, forward_and_backward, random_leaves, run_with_kept
from on_core import CORE, on

import eagerdecomp as ed
from eagerdecomp.ops.schema import is_composite

aten = torch.ops.aten


@pytest.mark.parametrize("name", CASES)
def test_a_kept_op_reaches_the_backend_with_eagers_values_and_gradients(name: str) -> None:
    op, fn, shapes = CASES[name]
    tensors = random_leaves(*shapes)
    want = forward_and_backward(fn, detached_copies(tensors))
    got = run_with_kept(lambda: forward_and_backward(fn, tensors), op)
    assert_same(got, want)
    some = detached_copies(tensors)
    for tensor in some[1:]:
        tensor.requires_grad_(False)
    assert_same(run_with_kept(lambda: forward_and_backward(fn, some), op), forward_and_backward(fn, detached_copies(some)))


@pytest.mark.full
@pytest.mark.parametrize("name", CASES)
def test_a_kept_op_without_gradient_is_a_single_call(name: str) -> None:
    op, fn, shapes = CASES[name]
    plain = [tensor.detach() for tensor in random_leaves(*shapes)]
    torch.manual_seed(5)
    want = fn(*plain)
    for ambient in (torch.no_grad, torch.inference_mode, torch.enable_grad):
        with ambient():
            torch.manual_seed(5)
            assert_same(run_with_kept(lambda: fn(*plain), op), want)


SMOOTH = [name for name in CASES if name not in ("max_pool2d", "margin loss", "a list of results", "pad")]


@pytest.mark.parametrize("name", SMOOTH)
def test_second_derivatives_of_a_kept_op_equal_eagers(name: str) -> None:
    op, fn, shapes = CASES[name]
    doubles = random_leaves(*shapes, dtype=torch.float64)
    small = [tensor.detach()[:2].requires_grad_() if name.startswith(("dropout", "alpha")) else tensor for tensor in doubles]

    def seeded(*tensors: torch.Tensor) -> Any:
        torch.manual_seed(3)
        return fn(*tensors)

    def second(*tensors: torch.Tensor) -> Any:
        result = seeded(*tensors)
        result = result[0] if isinstance(result, tuple) else result
        (first,) = torch.autograd.grad(result.square().sum(), tensors[:1], create_graph=True)
        return torch.autograd.grad(first.square().sum(), tensors, allow_unused=True)

    try:
        want = second(*detached_copies(small))
    except RuntimeError as error:
        with pytest.raises(RuntimeError, match=str(error).partition("'")[0][:40]):
            run_with_kept(lambda: second(*detached_copies(small)), op, times=None)
        return
    assert_same(run_with_kept(lambda: second(*detached_copies(small)), op, times=None), want)


# -- which ops ---------------------------------------------------------------------------------------------------------------


def composites(ops: Iterable[Any]) -> list[str]:
    return [str(op) for op in ops if is_composite(op)]


def test_core_aten_and_prims_keep_nothing() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    with on(CORE) as (mode, seen):
        F.avg_pool1d(x, 2).sum().backward()
    assert seen.ops[aten.avg_pool1d.default] == 0
    assert mode.kept is None
    assert ed.EagerDecompMode(ed.prims()).kept is None
    assert "aten.avg_pool1d.default" in composites(CORE)


def test_a_composite_of_core_aten_is_kept_if_named_or_if_it_has_a_kernel() -> None:
    x = torch.randn(2, 3, 8, requires_grad=True)
    run_with_kept(lambda: F.avg_pool1d(x, 2).sum().backward(), aten.avg_pool1d)
    calls: list[int] = []

    def mine(*args: Any, **kwargs: Any) -> torch.Tensor:
        calls.append(1)
        return aten.avg_pool1d(*args, **kwargs)

    with ed.EagerDecompMode(ed.Backend("mine", CORE, {"aten.avg_pool1d.default": mine})):
        F.avg_pool1d(x, 2)
    assert calls == [1]


def test_a_backends_kernel_gets_the_call_and_a_packet_keeps_all_overloads() -> None:
    calls: list[tuple[Any, ...]] = []

    def mine(x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        calls.append((x, weight, bias))
        out = x @ weight.t()
        return out if bias is None else out + bias

    tensors = random_leaves((3, 4), (5, 4), (5,))
    mode = ed.EagerDecompMode(CORE, keep={aten.linear}, kernels={"aten.linear.default": mine})
    with mode:
        got = forward_and_backward(F.linear, tensors)
    assert len(calls) == 1
    assert_same(got, forward_and_backward(F.linear, detached_copies(tensors)))
    assert "aten.linear" in mode.backend.ops
    assert mode.stats()["aten.linear.default"].direct == 1


def test_ops_are_kept_only_on_the_backends_device() -> None:
    x, weight = random_leaves((3, 4), (5, 4))
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ed.Backend("other", CORE, device_type="cuda"), keep=[aten.linear]):
        F.linear(x, weight)
    assert seen.ops[aten.linear.default] == 0
