"""`verify=`: wrong kernels, rules and fused functions are found and named, even if wrong only late or once."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from on_core import CORE
from torch import Tensor
from torch.nn import functional as F
from verify_modes import WrongBetween, inexact_sigmoid, run_silu, verifying_mode

import eagerdecomp as ed

aten = torch.ops.aten


def wrong_of_one_shape(x: Tensor, dim: Any, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    return aten.sum.dim_IntList(x, [0] if x.shape == (5, 5) else dim, keepdim, dtype=dtype)


def wrong_in_bfloat16(x: Tensor) -> Tensor:
    made = torch.exp(x)
    return made * 1.05 if x.dtype is torch.bfloat16 else made


def fails(x: Tensor) -> Tensor:
    raise RuntimeError("no memory left")


def sums() -> None:
    for shape in ((4, 5), (5, 5)):
        torch.ones(shape).cumsum(0).sum(1)


def half() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        torch.linspace(-1, 1, 9, dtype=dtype).exp()


WRONG: dict[str, tuple[str, Callable[..., Any], Callable[[], Any], str, str]] = {
    "values": ("aten.sigmoid.default", inexact_sigmoid, run_silu, "aten.sigmoid.default", "values"),
    "one shape": ("aten.sum.dim_IntList", wrong_of_one_shape, sums, "aten.sum.dim_IntList", "values"),
    "one dtype": ("aten.exp.default", wrong_in_bfloat16, half, "aten.exp.default", "values"),
    "error": ("aten.sigmoid.default", fails, run_silu, "aten.sigmoid.default", "error"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_kernel_is_named_at_its_first_wrong_call(name: str) -> None:
    op, kernel, program, culprit, kind = WRONG[name]
    backend = ed.Backend("wrong", ed.core_aten() | [op], {op: kernel})
    with pytest.raises(ed.DifferenceError) as caught, ed.EagerDecompMode(backend, verify="cpu") as mode:
        program()
    blame = caught.value.blame
    assert (blame.culprit.kind, blame.culprit.op, blame.difference.kind) == ("kernel", culprit, kind)
    assert kernel.__name__ in blame.culprit.name
    assert Path(program.__code__.co_filename).name in blame.where[0]
    assert mode.verified.found == (blame,)
    assert mode.verified.differences == 1
    if name == "error":
        assert "no memory left" in str(caught.value.__cause__)


def test_a_kernel_of_a_decomposed_op_is_reported_with_the_ops_call() -> None:
    with pytest.raises(ed.DifferenceError) as caught, verifying_mode({"aten.sigmoid.default": inexact_sigmoid}, "cpu"):
        run_silu()
    assert caught.value.blame.culprit.chain == ("aten.silu.default(f32[3, 4])",)
    assert "reached by aten.silu.default(f32[3, 4])" in str(caught.value)
    again = pickle.loads(pickle.dumps(caught.value))
    assert str(again) == str(caught.value)


@ed.register_decomposition("aten.hardswish.default")
def wrong_rule(x: Tensor) -> Tensor:
    return x * (x + 3).clamp(0, 5) / 6


def test_a_wrong_rule_is_named_if_its_kernels_are_right() -> None:
    with pytest.raises(ed.DifferenceError) as caught, ed.EagerDecompMode(CORE, rules=[wrong_rule], verify="cpu"):
        F.hardswish(torch.linspace(-4, 4, 9))
    culprit = caught.value.blame.culprit
    assert (culprit.kind, culprit.op) == ("rule", "aten.hardswish.default")
    assert "wrong_rule" in culprit.name


def test_a_wrong_fused_function_is_to_blame() -> None:
    def hook(graph: Any, inputs: Any) -> Any:
        return lambda *given: [one + 1 for one in graph(*given)]

    backend = ed.Backend("fusing", ed.core_aten() - ["aten.gelu"], compile=hook)

    def often() -> None:
        for _ in range(60):
            F.gelu(torch.randn(8, 8))

    with pytest.raises(ed.DifferenceError) as caught, ed.EagerDecompMode(backend, verify=ed.Verify(every=10)):
        often()
    assert caught.value.blame.culprit.kind == "program"
    assert "hook" in caught.value.blame.culprit.name


@pytest.mark.parametrize("every", [1, 7, 50])
def test_a_kernel_that_becomes_wrong_is_found_within_one_interval(every: int) -> None:
    kernel, x = WrongBetween(50, 10**6), torch.ones(3)
    with pytest.raises(ed.DifferenceError) as caught, verifying_mode({"aten.exp.default": kernel}, ed.Verify(every=every)):
        [torch.exp(x) for _ in range(49 + every)]
    assert caught.value.blame.culprit.op == "aten.exp.default"


@pytest.mark.parametrize(("every", "found"), [(1, True), (50, True), (7, False)])
def test_a_kernel_that_is_wrong_once_is_named_although_its_call_cannot_be_repeated(every: int, found: bool) -> None:
    kernel = WrongBetween(50, 50)
    mode = verifying_mode({"aten.exp.default": kernel}, ed.Verify(every=every, on_difference="record"))
    with mode:
        for _ in range(80):
            torch.exp(torch.ones(3))
    assert bool(mode.verified) is found
    if found:
        (blame,) = mode.verified.found
        assert (blame.culprit.kind, blame.culprit.op) == ("unsteady", "aten.exp.default")
        assert "WrongBetween" in blame.culprit.name
