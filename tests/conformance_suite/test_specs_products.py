"""Specs of matrix products and convolutions: right kernels pass, broken ones are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from sampled import sampled
from spec_trials import run_trial, with_eager_errors
from torch import Tensor

from eagerdecomp.conformance.specs.products import _only_padding

aten = torch.ops.aten

_HALVES = (torch.float16, torch.bfloat16)


def _wide(one: Tensor) -> Tensor:
    return one.float() if one.dtype in _HALVES else one


def _mm_by_columns(one: Tensor, other: Tensor) -> Tensor:
    return aten.mm(other.t(), one.t()).t()


def _mm_in_blocks(one: Tensor, other: Tensor) -> Tensor:
    left, right = _wide(one), _wide(other)
    found = aten.mm(left[:, :0], right[:0])
    for start in range(0, one.shape[1], 64):
        found = found + aten.mm(left[:, start : start + 64], right[start : start + 64])
    return found.to(one.dtype)


def _addmm_in_steps(bias: Tensor, one: Tensor, other: Tensor, *, beta: Any = 1, alpha: Any = 1) -> Tensor:
    found = _mm_in_blocks(_wide(one), _wide(other)) * alpha
    return (found if beta == 0 else found + _wide(bias) * beta).to(one.dtype)


def _conv_in_float64(given: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    if not given.is_floating_point():
        return aten.convolution(given, weight, bias, *rest)
    found = aten.convolution(given.double(), weight.double(), None if bias is None else bias.double(), *rest)
    return found.to(given.dtype)


def _conv_backward_in_float64(grad: Tensor, given: Tensor, weight: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    found = aten.convolution_backward(grad.double(), given.double(), weight.double(), *rest)
    return tuple(one.to(given.dtype) if asked else None for one, asked in zip(found, rest[-1], strict=True))


def _cdist_of_differences(one: Tensor, other: Tensor, p: float, mode: int | None) -> Tensor:
    away = (one.unsqueeze(-2) - other.unsqueeze(-3)).abs()
    return torch.linalg.vector_norm(away, p, -1) if away.shape[-1] else away.sum(-1)


def _pdist_of_pairs(one: Tensor, p: float = 2.0) -> Tensor:
    first, second = torch.triu_indices(len(one), len(one), 1)
    away = (one[first] - one[second]).abs()
    return torch.linalg.vector_norm(away, p, -1) if away.shape[-1] else away.sum(-1)


RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    "mm sums by blocks": ("mm", _mm_in_blocks),
    "addmm in steps": ("addmm", _addmm_in_steps),
    "convolution in float64": ("convolution", _conv_in_float64),
    "convolution_backward in float64": ("convolution_backward", _conv_backward_in_float64),
    "cdist never by matrices": ("_cdist_forward", _cdist_of_differences),
    "pdist by pairs": ("_pdist_forward", _pdist_of_pairs),
}


def _tf32(one: Tensor) -> Tensor:
    return ((one.contiguous().view(torch.int32) + 0x1000) & ~0x1FFF).view(torch.float32) if one.dtype is torch.float32 else one


def _mm_summed_in_halves(one: Tensor, other: Tensor) -> Tensor:
    found = aten.mm(one[:, :0], other[:0])
    for start in range(0, one.shape[1], 16):
        found = found + aten.mm(one[:, start : start + 16], other[start : start + 16])
    return found


def _mm_of_a_block(one: Tensor, other: Tensor) -> Tensor:
    found = aten.mm(one, other)
    found[192:, 192:] = 0
    return found


def _as_if_contiguous(one: Tensor) -> Tensor:
    count = one.untyped_storage().nbytes() // one.element_size()
    fits = 0 < one.numel() <= count - one.storage_offset()
    return one.as_strided(one.shape, torch.empty(one.shape, device="meta").stride()) if fits else one


def _conv(**changes: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    names = ("input", "weight", "bias", "stride", "padding", "dilation", "transposed", "output_padding", "groups")

    def kernel(*args: Any) -> Any:
        named = dict(zip(names, args, strict=True))
        return aten.convolution(*{**named, **{name: change(named) for name, change in changes.items()}}.values())

    return kernel


def _conv_backward_with_zeros(*args: Any) -> tuple[Tensor, ...]:
    return tuple(torch.zeros(()) if one is None else one for one in aten.convolution_backward(*args))


def _conv_backward_by_sample(grad: Tensor, given: Tensor, *rest: Any) -> tuple[Tensor | None, ...]:
    first, weight, bias = aten.convolution_backward(grad, given, *rest)
    if weight is not None and len(given):
        parts = [aten.convolution_backward(grad[n : n + 1], given[n : n + 1], *rest)[1] for n in range(len(given))]
        weight = sum(parts[1:], parts[0])
    return first, weight, bias


def _conv_bias_after_rounding(given: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
    found = aten.convolution(given, weight, None, *rest)
    return found if bias is None else found + bias.view(-1, *[1] * (given.dim() - 2))


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "mm returns columns": ("mm", _mm_by_columns),
    "mm rounds to tf32": ("mm", lambda one, other: aten.mm(_tf32(one), _tf32(other))),
    "mm sums in halves": ("mm", _mm_summed_in_halves),
    "mm drops a tail": ("mm", lambda one, other: aten.mm(one[:, :1024], other[:1024])),
    "mm does not conjugate": ("mm", lambda one, other: aten.mm(torch._conj(one) if one.is_conj() else one, other)),
    "mm reads as if contiguous": ("mm", lambda one, other: aten.mm(one, _as_if_contiguous(other))),
    "mm hides nan": ("mm", lambda one, other: torch.nan_to_num(aten.mm(one, other))),
    "mm of integers by floats": (
        "mm",
        lambda one, other: aten.mm(one, other) if one.is_complex() else aten.mm(one.double(), other.double()).to(one.dtype),
    ),
    "mm turns a tensor by itself": ("mm", lambda one, other: aten.mm(one, other.t() if one is other else other)),
    "mm in blocks of 192": ("mm", _mm_of_a_block),
    "addmm turns a tensor by itself": ("addmm", lambda s, a, b, **k: aten.addmm(s, a, b.t() if a is b else b, **k)),
    "bmm turns a tensor by itself": ("bmm", lambda one, other: aten.bmm(one, other.mT if one is other else other)),
    "bmm uses the first matrix": ("bmm", lambda one, other: aten.bmm(one, other[:1].expand(other.shape))),
    "addmm scales what beta 0 drops": ("addmm", lambda s, a, b, beta=1, alpha=1: aten.addmm(s * beta, a, b, alpha=alpha)),
    "addmm takes beta 0 for 1": ("addmm", lambda s, a, b, beta=1, alpha=1: aten.addmm(s, a, b, beta=beta or 1, alpha=alpha)),
    "addmm without alpha": ("addmm", lambda s, a, b, beta=1, alpha=1: aten.addmm(s, a, b, beta=beta)),
    "addmm turns a column": (
        "addmm",
        lambda s, a, b, **k: aten.addmm(s.t() if s.dim() == 2 and s.shape[1] == 1 and len(s) == b.shape[1] else s, a, b, **k),
    ),
    "convolution swaps strides": ("convolution", _conv(stride=lambda one: one["stride"][::-1])),
    "convolution swaps dilation": ("convolution", _conv(dilation=lambda one: one["dilation"][::-1])),
    "convolution turns the kernel": ("convolution", _conv(weight=lambda one: one["weight"].flip(-1))),
    "convolution without output padding": ("convolution", _conv(output_padding=lambda one: [0])),
    "convolution without transposed bias": ("convolution", _conv(bias=lambda one: None if one["transposed"] else one["bias"])),
    "convolution mixes groups": (
        "convolution",
        _conv(weight=lambda one: one["weight"].roll(1, 0) if one["groups"] > 2 else one["weight"]),
    ),
    "convolution rounds to tf32": ("convolution", _conv(input=lambda one: _tf32(one["input"]))),
    "convolution reads as if contiguous": ("convolution", _conv(input=lambda one: _as_if_contiguous(one["input"]))),
    "convolution returns contiguous": ("convolution", lambda *args: aten.convolution(*args).contiguous()),
    "convolution adds bias to what is rounded": ("convolution", _conv_bias_after_rounding),
    "convolution_backward returns zeros for None": ("convolution_backward", _conv_backward_with_zeros),
    "convolution_backward rounds each sample": ("convolution_backward", _conv_backward_by_sample),
    "cdist always by matrices": ("_cdist_forward", lambda one, other, p, mode: aten._cdist_forward(one, other, p, 1)),
    "cdist of many by matrices": (
        "_cdist_forward",
        lambda one, other, p, mode: aten._cdist_forward(one, other, p, None if one.shape[-2] > 25 else mode),
    ),
    "cdist of the largest by a power": (
        "_cdist_forward",
        lambda one, other, p, mode: aten._cdist_forward(one, other, 50.0 if p == math.inf else p, mode),
    ),
    "cdist in float32": (
        "_cdist_forward",
        lambda one, other, p, mode: aten._cdist_forward(one.float(), other.float(), p, mode).to(one.dtype),
    ),
    "pdist without p": ("_pdist_forward", lambda one, p=2.0: aten._pdist_forward(one)),
    "pdist counts no zeros": ("_pdist_forward", lambda one, p=2.0: aten._pdist_forward(one, p or 1.0)),
    "pdist from the last pair": ("_pdist_forward", lambda one, p=2.0: aten._pdist_forward(one, p).flip(0)),
}


@pytest.mark.full
@pytest.mark.parametrize("what", sampled(RIGHT))
def test_right_kernels_that_differ_from_eager_pass(what: str) -> None:
    op, kernel = RIGHT[what]
    name = f"aten.{op}.default"
    assert not run_trial(name, with_eager_errors(name, kernel), cases=120).found


@pytest.mark.full
def test_a_convolution_that_broadcasts_its_bias_is_caught() -> None:
    def kernel(given: Tensor, weight: Tensor, bias: Tensor | None, *rest: Any) -> Tensor:
        channels = weight.shape[1] * rest[5] if rest[3] else weight.shape[0]
        wide = bias.expand(channels) if bias is not None and bias.shape == (1,) else bias
        return aten.convolution(given, weight, wide, *rest)

    (found,) = run_trial("aten.convolution.default", kernel).found
    assert found.fault.kind == "errors"


@pytest.mark.full
@pytest.mark.parametrize("what", BROKEN)
def test_broken_kernels_are_found(what: str) -> None:
    op, kernel = BROKEN[what]
    name = f"aten.{op}.default"
    assert run_trial(name, with_eager_errors(name, kernel)).found


@given(st.data())
def test_where_a_kernel_meets_only_padding(data: st.DataObject) -> None:
    """Its gradient there is zero where all else is one."""
    rank, whole = data.draw(st.integers(1, 2)), st.integers(1, 3)
    transposed = data.draw(st.booleans())
    sizes, kernel, stride, dilation = (data.draw(st.lists(whole, min_size=rank, max_size=rank)) for _ in range(4))
    padding = data.draw(st.lists(st.integers(0, 2), min_size=rank, max_size=rank))
    results = [
        (s - 1) * t - 2 * p + d * (k - 1) + 1 if transposed else (s + 2 * p - d * (k - 1) - 1) // t + 1
        for s, k, t, d, p in zip(sizes, kernel, stride, dilation, padding, strict=True)
    ]
    assume(min(results) > 0)
    x, weight, shape = torch.ones(1, 1, *sizes), torch.ones(1, 1, *kernel), [1, 1, *results]
    rest = [stride, padding, dilation, transposed, [0] * rank, 1]
    gradient = torch.ops.aten.convolution_backward(torch.ones(shape), x, weight, None, *rest, [False, True, False])[1]
    assert _only_padding(x, weight, shape, rest) == bool((gradient == 0).any())
