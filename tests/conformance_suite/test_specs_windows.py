"""Specs of pooling, resampling and Fourier transforms: right kernels pass, broken ones are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import overload, run_trial, with_eager_errors
from torch import Tensor

pytestmark = pytest.mark.full

aten = torch.ops.aten


def _in_float64(op: str) -> Callable[..., Any]:
    """Eager's kernel in float64, its results brought back: a kernel that rounds once."""
    run = overload(f"aten.{op}")

    def kernel(*args: Any) -> Any:
        eager = run(*args)
        wide = run(*(one.double() if isinstance(one, Tensor) and one.is_floating_point() else one for one in args))
        return torch.empty_like(eager).copy_(wide)

    return kernel


def _max_pool_with_the_first_nan(one: Tensor, *rest: Any) -> Any:
    values, places = aten.max_pool2d_with_indices(one, *rest)
    if one.is_floating_point():
        nan = one.isnan().flatten(-2)
        first = nan.int().argmax(-1)[..., None, None].expand(places.shape)
        whole = list(rest[0]) in ([one.shape[-2], one.shape[-1]], [one.shape[-1]] if one.shape[-1] == one.shape[-2] else [])
        places = torch.where(values.isnan() & torch.tensor(whole), first, places) if places.numel() else places
    return values, places


def _r2c_by_a_matrix(one: Tensor, dims: list[int], norm: int, onesided: bool) -> Tensor:
    found = one.to(torch.complex128)
    for dim in dims:
        size = one.shape[dim]
        turns = torch.outer(torch.arange(size), torch.arange(size)) % size
        turn = torch.exp(-2j * torch.pi * turns.double() / size)
        found = torch.tensordot(found, turn, ([dim], [0])).movedim(-1, dim)
        found = found / (1.0, size**0.5, size)[norm]
    found = found.narrow(dims[-1], 0, one.shape[dims[-1]] // 2 + 1) if onesided else found
    return found.to(torch.complex64 if one.dtype is torch.float32 else torch.complex128)


RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    **{
        f"{op} rounds once": (op, _in_float64(op))
        for op in (
            "avg_pool1d.default",
            "avg_pool2d_backward.default",
            "max_pool2d_with_indices_backward.default",
            "_adaptive_avg_pool2d.default",
            "_adaptive_avg_pool2d_backward.default",
            "_adaptive_avg_pool3d.default",
            "grid_sampler_2d.default",
            "upsample_bilinear2d.vec",
            "upsample_nearest2d.vec",
        )
    },
    "max_pool2d points to any nan": ("max_pool2d_with_indices.default", _max_pool_with_the_first_nan),
    "r2c by a matrix": ("_fft_r2c.default", _r2c_by_a_matrix),
}


def _but(op: str, place: int, change: Callable[[list[Any]], Any]) -> tuple[str, Callable[..., Any]]:
    """A kernel that takes one argument for another value; as it is where that argument is left out."""
    run = overload(f"aten.{op}")

    def kernel(*args: Any) -> Any:
        given = list(args)
        if place < len(given):
            given[place] = change(list(args))
        return run(*given)

    return op, kernel


def _last_of_ties(one: Tensor, *rest: Any) -> Any:
    values, places = aten.max_pool2d_with_indices(one, *rest)
    if bool(one.isfinite().all()):
        order = torch.arange(one.shape[-1] * one.shape[-2]).view(one.shape[-2:])
        places = aten.max_pool2d_with_indices(one.double() * 1e6 + order, *rest)[1]
    return values, places


def _max_without_nan(one: Tensor, *rest: Any) -> Any:
    values, places = aten.max_pool2d_with_indices(one, *rest)
    return (torch.nan_to_num(values, nan=0.0) if values.is_floating_point() else values), places


def _scattered_not_added(grad: Tensor, one: Tensor, *rest: Any) -> Tensor:
    found = aten.max_pool2d_with_indices_backward(grad, one, *rest)
    flat = torch.zeros_like(one, memory_format=torch.contiguous_format).flatten(-2)
    flat.scatter_(-1, rest[-1].flatten(-2), grad.flatten(-2))
    return torch.empty_like(found).copy_(flat.view(one.shape))


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "avg_pool1d counts no padding": _but("avg_pool1d.default", 5, lambda one: False),
    "avg_pool2d counts padding": _but("avg_pool2d.default", 5, lambda one: True),
    "avg_pool2d without divisor_override": _but("avg_pool2d.default", 6, lambda one: None),
    "avg_pool2d strides one where none is given": _but("avg_pool2d.default", 2, lambda one: one[2] or [1]),
    "avg_pool2d swaps padding": _but("avg_pool2d.default", 3, lambda one: one[3][::-1]),
    "avg_pool2d returns contiguous": ("avg_pool2d.default", lambda *args: aten.avg_pool2d(*args).contiguous()),
    "avg_pool3d without divisor_override": _but("avg_pool3d.default", 6, lambda one: None),
    "avg_pool2d_backward counts padding": _but("avg_pool2d_backward.default", 6, lambda one: True),
    "max_pool2d: the last of ties": ("max_pool2d_with_indices.default", _last_of_ties),
    "max_pool2d hides nan": ("max_pool2d_with_indices.default", _max_without_nan),
    "max_pool2d without ceil_mode": _but("max_pool2d_with_indices.default", 5, lambda one: False),
    "max_pool2d without dilation": _but("max_pool2d_with_indices.default", 4, lambda one: [1]),
    "max_pool2d pads with zeros": (
        "max_pool2d_with_indices.default",
        lambda one, *rest: (lambda f: (f[0].clamp(min=0) if len(rest) > 2 and any(rest[2]) else f[0], f[1]))(
            aten.max_pool2d_with_indices(one, *rest)
        ),
    ),
    "max_pool3d counts indices in the slice": (
        "max_pool3d_with_indices.default",
        lambda one, *rest: (lambda f: (f[0], f[1] % (one.shape[-1] * one.shape[-2])))(aten.max_pool3d_with_indices(one, *rest)),
    ),
    "max_pool2d_backward does not add": ("max_pool2d_with_indices_backward.default", _scattered_not_added),
    "adaptive pool of windows of one size": (
        "_adaptive_avg_pool2d.default",
        lambda one, found: (
            aten.avg_pool2d(one, [max(1, size // out) for size, out in zip(one.shape[-2:], found, strict=True)])
            if all(
                (size % out < out and size // out * out == size) or size > 2 * out
                for size, out in zip(one.shape[-2:], found, strict=True)
            )
            and [size // max(1, size // out) for size, out in zip(one.shape[-2:], found, strict=True)] == list(found)
            else aten._adaptive_avg_pool2d(one, found)
        ),
    ),
    "adaptive pool swaps the sizes": (
        "_adaptive_avg_pool2d.default",
        lambda one, found: aten._adaptive_avg_pool2d(one, found[::-1]),
    ),
    "adaptive pool in float16 and bfloat16": (
        "adaptive_avg_pool1d.default",
        lambda one, found: aten.adaptive_avg_pool1d(one.bfloat16().to(one.dtype) if one.shape[-1] > 16 else one, found),
    ),
    "col2im without dilation": _but("col2im.default", 3, lambda one: one[3][::-1]),
    "col2im swaps strides": _but("col2im.default", 5, lambda one: one[5][::-1]),
    "grid_sampler without padding modes": _but("grid_sampler_2d.default", 3, lambda one: 0),
    "grid_sampler reflects as the border": _but("grid_sampler_2d.default", 3, lambda one: min(one[3], 1)),
    "grid_sampler always nears": _but("grid_sampler_2d.default", 2, lambda one: one[2] % 2),
    "grid_sampler ignores corners": _but("grid_sampler_2d.default", 4, lambda one: True),
    "grid_sampler swaps places": _but("grid_sampler_2d.default", 1, lambda one: one[1].flip(-1)),
    "nearest takes the middle": (
        "upsample_nearest2d.vec",
        lambda one, size, factors: torch.empty_like(aten.upsample_nearest2d(one, size, factors)).copy_(
            aten._upsample_nearest_exact2d(one, size, factors)
        ),
    ),
    "nearest finds factors again": (
        "upsample_nearest2d.vec",
        lambda one, size, factors: aten.upsample_nearest2d(
            one, size or [int(a * b) for a, b in zip(one.shape[2:], factors, strict=True)], None
        ),
    ),
    "bilinear ignores corners": _but("upsample_bilinear2d.vec", 2, lambda one: False),
    "bilinear finds factors again": (
        "upsample_bilinear2d.vec",
        lambda one, size, corners, factors: aten.upsample_bilinear2d(
            one, size or [int(a * b) for a, b in zip(one.shape[2:], factors, strict=True)], corners, None
        ),
    ),
    "r2c always scales alike": _but("_fft_r2c.default", 2, lambda one: min(one[2], 1)),
    "r2c turns the other way": ("_fft_r2c.default", lambda *args: aten._fft_r2c(*args).conj().resolve_conj()),
    "r2c halves the first dimension": _but("_fft_r2c.default", 1, lambda one: one[1][::-1]),
    "r2c in float32": (
        "_fft_r2c.default",
        lambda one, *rest: aten._fft_r2c(one.float(), *rest).to(
            torch.complex64 if one.dtype is torch.float32 else torch.complex128
        ),
    ),
    "c2r of even lengths": (
        "_fft_c2r.default",
        lambda one, dims, norm, size: aten._fft_c2r(one, dims, norm, size) * (1.0 if size % 2 == 0 else (size + 1) / size),
    ),
    "c2r never scales": _but("_fft_c2r.default", 2, lambda one: 0),
}


@pytest.mark.parametrize("what", sampled(RIGHT))
def test_right_kernels_that_differ_from_eager_pass(what: str) -> None:
    op, kernel = RIGHT[what]
    name = f"aten.{op}"
    assert not run_trial(name, with_eager_errors(name, kernel), cases=150).found


@pytest.mark.parametrize("what", BROKEN)
def test_broken_kernels_are_found(what: str) -> None:
    op, kernel = BROKEN[what]
    name = f"aten.{op}"
    assert run_trial(name, with_eager_errors(name, kernel)).found
