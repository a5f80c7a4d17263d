"""Specs of softmax and normalization: right kernels pass, broken ones are found."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import overload, run_trial, with_eager_errors
from torch import Tensor

pytestmark = pytest.mark.full

aten = torch.ops.aten

_HALVES = (torch.float16, torch.bfloat16)


def _wide(one: Any) -> Any:
    return one.float() if isinstance(one, Tensor) and one.dtype in _HALVES else one


def _softmax_by_reciprocal(one: Tensor, dim: int, wider: bool) -> Tensor:
    if wider and one.dtype not in _HALVES:
        raise TypeError("float16 and bfloat16 alone")
    scores = _wide(one)
    if not scores.numel():
        return torch.empty(one.shape, dtype=scores.dtype if wider else one.dtype)
    powers = torch.exp2((scores - scores.amax(dim, keepdim=True)) * 1.4426950408889634)
    found = powers * powers.sum(dim, keepdim=True).reciprocal()
    return found if wider else found.to(one.dtype)


def _softmax_by_logarithm(one: Tensor, dim: int, wider: bool) -> Tensor:
    if not one.numel():
        return torch.empty_like(one)
    scores = _wide(one)
    found = (scores - scores.logsumexp(dim, keepdim=True)).exp()
    return found.masked_fill(scores.amax(dim, keepdim=True) == torch.inf, torch.nan).to(one.dtype)


def _log_softmax_in_steps(one: Tensor, dim: int, wider: bool) -> Tensor:
    scores = _wide(one)
    if not scores.numel():
        return torch.empty_like(one)
    away = scores - scores.amax(dim, keepdim=True)
    return (away - away.exp().sum(dim, keepdim=True).log()).to(one.dtype)


def _by_channel(one: Tensor | None, like: Tensor) -> Any:
    return None if one is None else _wide(one).view(1, -1, *[1] * (like.dim() - 2))


def _normed(one: Tensor, dims: list[int], eps: float) -> tuple[Tensor, Tensor, Tensor]:
    wide = _wide(one)
    mean = wide.mean(dims, keepdim=True)
    rstd = ((wide - mean) ** 2).mean(dims, keepdim=True).add(eps).rsqrt()
    return (wide - mean) * rstd, mean, rstd


def _affine(found: Tensor, weight: Any, bias: Any) -> Tensor:
    found = found if weight is None else found * weight
    return found if bias is None else found + bias


def _like_eagers(found: list[Tensor], eagers: Any) -> tuple[Tensor, ...]:
    made = [torch.empty_like(eager).copy_(one.reshape(eager.shape)) for one, eager in zip(found, eagers, strict=True)]
    return tuple(made)


def _batch_norm_in_two_passes(one: Tensor, weight: Any, bias: Any, training: bool, momentum: float, eps: float) -> Any:
    eagers = aten._native_batch_norm_legit.no_stats(one, weight, bias, training, momentum, eps)
    found, mean, rstd = _normed(one, [0, *range(2, one.dim())], eps)
    return _like_eagers([_affine(found, _by_channel(weight, one), _by_channel(bias, one)), mean, rstd], eagers)


def _layer_norm_in_two_passes(one: Tensor, sizes: list[int], weight: Any, bias: Any, eps: float) -> Any:
    found, mean, rstd = _normed(one, list(range(-len(sizes), 0)), eps)
    return _like_eagers(
        [_affine(found, _wide(weight), _wide(bias)), mean, rstd], aten.native_layer_norm(one, sizes, weight, bias, eps)
    )


def _group_norm_in_two_passes(one: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float) -> Any:
    found, mean, rstd = _normed(one.reshape(n, group, -1), [2], eps)
    eagers = aten.native_group_norm(one, weight, bias, n, c, hw, group, eps)
    return _like_eagers([_affine(found.view(one.shape), _by_channel(weight, one), _by_channel(bias, one)), mean, rstd], eagers)


def _layer_norm_backward_in_steps(
    grad: Tensor, one: Tensor, sizes: list[int], mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: list[bool]
) -> Any:
    eagers = aten.native_layer_norm_backward(grad, one, sizes, mean, rstd, weight, bias, mask)
    if not one.numel():
        return eagers
    grad, one, mean, rstd = (_wide(value) for value in (grad, one, mean, rstd))
    inner, outer = list(range(-len(sizes), 0)), list(range(one.dim() - len(sizes)))
    there = (one - mean) * rstd
    scaled = grad if weight is None else grad * _wide(weight)
    first = rstd * (scaled - scaled.mean(inner, keepdim=True) - there * (scaled * there).mean(inner, keepdim=True))
    found = [first, (grad * there).sum(outer) if outer else grad * there, grad.sum(outer) if outer else grad]
    return tuple(None if e is None else torch.empty_like(e).copy_(f) for e, f in zip(eagers, found, strict=True))


def _group_norm_backward_in_float64(grad: Tensor, one: Tensor, mean: Tensor, rstd: Tensor, weight: Any, *rest: Any) -> Any:
    values = [value.double() if isinstance(value, Tensor) else None for value in (grad, one, mean, rstd, weight)]
    eagers = aten.native_group_norm_backward(grad, one, mean, rstd, weight, *rest)
    found = aten.native_group_norm_backward(*values, *rest)
    return tuple(None if e is None else torch.empty_like(e).copy_(f) for e, f in zip(eagers, found, strict=True))


RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    "softmax by powers of two and a reciprocal": ("_softmax.default", _softmax_by_reciprocal),
    "softmax by the logarithm of the sum": ("_softmax.default", with_eager_errors("aten._softmax.default", _softmax_by_logarithm)),
    "log_softmax in steps": ("_log_softmax.default", _log_softmax_in_steps),
    "batch norm in two passes": ("_native_batch_norm_legit.no_stats", _batch_norm_in_two_passes),
    "layer norm in two passes": ("native_layer_norm.default", _layer_norm_in_two_passes),
    "group norm in two passes": ("native_group_norm.default", _group_norm_in_two_passes),
    "layer norm's gradient in steps": ("native_layer_norm_backward.default", _layer_norm_backward_in_steps),
    "group norm's gradient in float64": ("native_group_norm_backward.default", _group_norm_backward_in_float64),
}


def _norm_by_squares(one: Tensor, sizes: list[int], weight: Any, bias: Any, eps: float) -> Any:
    inner = list(range(-len(sizes), 0))
    wide = _wide(one)
    mean = wide.mean(inner, keepdim=True)
    rstd = ((wide * wide).mean(inner, keepdim=True) - mean * mean).clamp(min=0).add(eps).rsqrt()
    found = _affine((wide - mean) * rstd, _wide(weight), _wide(bias))
    return _like_eagers([found, mean, rstd], aten.native_layer_norm(one, sizes, weight, bias, eps))


_BATCH = "_native_batch_norm_legit.default"


def _batch_norm(**changes: Callable[[dict[str, Any]], Any]) -> Callable[..., Any]:
    names = ("input", "weight", "bias", "running_mean", "running_var", "training", "momentum", "eps")

    def kernel(*args: Any) -> Any:
        named = dict(zip(names, args, strict=True))
        return aten._native_batch_norm_legit(*{**named, **{name: change(named) for name, change in changes.items()}}.values())

    return kernel


def _biased(*args: Any) -> Any:
    kept = args[4].clone()
    found = aten._native_batch_norm_legit(*args)
    if args[5]:
        count = args[0].numel() // args[0].shape[1]
        args[4].copy_(kept * (1 - args[6]) + (args[4] - kept * (1 - args[6])) * (count - 1) / count)
    return found


def _layer_backward(change: Callable[[list[Any]], list[Any]]) -> Callable[..., Any]:
    return lambda *args: aten.native_layer_norm_backward(*change(list(args)))


BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "softmax of what overflows": (
        "_softmax.default",
        lambda one, dim, wider: (one.exp() / one.exp().sum(dim, keepdim=True)) if one.numel() else one.clone(),
    ),
    "softmax in float16 and bfloat16": (
        "_softmax.default",
        lambda one, dim, wider: (
            (lambda e: e / e.sum(dim, keepdim=True))((one - one.amax(dim, keepdim=True)).exp()) if one.numel() else one.clone()
        ),
    ),
    "softmax of the last dimension": ("_softmax.default", lambda one, dim, wider: aten._softmax(one, -1, wider)),
    "softmax of masked rows is zero": ("_softmax.default", lambda *args: torch.nan_to_num(aten._softmax(*args), nan=0.0)),
    "softmax ends after 1024": (
        "_softmax.default",
        lambda one, dim, wider: aten._softmax(one, dim, wider) * (1.001 if one.dim() and one.shape[dim] > 1024 else 1.0),
    ),
    "softmax widens late": (
        "_softmax.default",
        lambda one, dim, wider: aten._softmax(one, dim, False).float() if wider else aten._softmax(one, dim, False),
    ),
    "log_softmax of softmax": ("_log_softmax.default", lambda one, dim, wider: aten._softmax(one, dim, wider).log()),
    "layer norm by squares": ("native_layer_norm.default", _norm_by_squares),
    "layer norm's eps is fixed": (
        "native_layer_norm.default",
        lambda one, sizes, weight, bias, eps: aten.native_layer_norm(one, sizes, weight, bias, 1e-5),
    ),
    "layer norm's bias needs a weight": (
        "native_layer_norm.default",
        lambda one, sizes, weight, bias, eps: aten.native_layer_norm(one, sizes, weight, None if weight is None else bias, eps),
    ),
    "batch norm keeps a biased variance": (_BATCH, _biased),
    "batch norm turns momentum round": (_BATCH, _batch_norm(momentum=lambda one: 1 - one["momentum"])),
    "batch norm writes no mean": (_BATCH, _batch_norm(running_mean=lambda one: one["running_mean"].clone())),
    "batch norm always trains": (_BATCH, _batch_norm(training=lambda one: True)),
    "batch norm returns contiguous": (
        _BATCH,
        lambda *args: (lambda f: (f[0].contiguous(), *f[1:]))(aten._native_batch_norm_legit(*args)),
    ),
    "batch norm without eps in eval": (
        "_native_batch_norm_legit_no_training.default",
        lambda *args: aten._native_batch_norm_legit_no_training(*args[:-1], 0.0),
    ),
    "group norm of one group": (
        "native_group_norm.default",
        lambda *args: (lambda f, g: (g[0], *f[1:]))(aten.native_group_norm(*args), aten.native_group_norm(*args[:6], 1, args[7])),
    ),
    "group norm weighs by group": (
        "native_group_norm.default",
        lambda one, weight, *rest: aten.native_group_norm(one, None if weight is None else weight.flip(0), *rest),
    ),
    "layer norm's gradient takes no weight": (
        "native_layer_norm_backward.default",
        lambda *args: (
            aten.native_layer_norm_backward(*args[:5], None, *args[6:])[0],
            *aten.native_layer_norm_backward(*args)[1:],
        ),
    ),
    "layer norm's gradient returns zeros for None": (
        "native_layer_norm_backward.default",
        lambda *args: tuple(torch.zeros(()) if one is None else one for one in aten.native_layer_norm_backward(*args)),
    ),
    "group norm's gradient without the mean": (
        "native_group_norm_backward.default",
        lambda grad, one, mean, *rest: aten.native_group_norm_backward(grad, one, torch.zeros_like(mean), *rest),
    ),
}


def _of(vector: Any, count: int) -> Any:
    """A vector as it would broadcast."""
    return vector.expand(count).contiguous() if isinstance(vector, Tensor) and vector.shape == (1,) else vector


def _layer_norm_of_one(one: Tensor, sizes: list[int], weight: Any, bias: Any, eps: float, which: str) -> Any:
    given = {"weight": weight, "bias": bias}
    given[which] = _of(given[which], sizes[0]) if len(sizes) == 1 else given[which]
    return aten.native_layer_norm(one, sizes, given["weight"], given["bias"], eps)


def _group_norm_of_one(one: Tensor, weight: Any, bias: Any, n: int, c: int, hw: int, group: int, eps: float, which: str) -> Any:
    given = {"weight": weight, "bias": bias}
    given[which] = _of(given[which], c)
    return aten.native_group_norm(one, given["weight"], given["bias"], n, c, hw, group, eps)


@pytest.mark.parametrize("which", ["weight", "bias"])
@pytest.mark.parametrize(("op", "kernel"), [("native_layer_norm", _layer_norm_of_one), ("native_group_norm", _group_norm_of_one)])
def test_kernels_that_broadcast_what_eager_refuses_are_caught(op: str, kernel: Callable[..., Any], which: str) -> None:
    (found,) = run_trial(f"aten.{op}.default", functools.partial(kernel, which=which)).found
    assert found.fault.kind == "errors"


@pytest.mark.parametrize("what", sampled(RIGHT))
def test_right_kernels_that_differ_from_eager_pass(what: str) -> None:
    op, kernel = RIGHT[what]
    name = f"aten.{op}"
    checked = kernel if op == "_softmax.default" else with_eager_errors(name, kernel)
    found = run_trial(name, checked, cases=250).found
    assert not [one for one in found if one.fault.kind != "errors"]


@pytest.mark.parametrize("what", BROKEN)
def test_broken_kernels_are_found(what: str) -> None:
    op, kernel = BROKEN[what]
    name = f"aten.{op}"
    written = any(argument.alias_info for argument in overload(name)._schema.arguments)
    checked = kernel if written or op == "_softmax.default" else with_eager_errors(name, kernel)
    assert run_trial(name, checked).found
