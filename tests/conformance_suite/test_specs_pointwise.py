"""Specs of pointwise ops: right kernels pass, broken ones are found."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch
from sampled import sampled
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.conformance.spec import Spec, TestedKernel
from eagerdecomp.conformance.specs import binary, conversions, unary
from eagerdecomp.conformance.trial import Effort, Trial, try_kernel
from eagerdecomp.eager.strides import is_dense
from eagerdecomp.ops.opset import resolve_ops

aten = torch.ops.aten
SPECS: Mapping[str, Spec] = {**unary.SPECS, **binary.SPECS, **conversions.SPECS}


def tried(op: str, run: Callable[..., Any] | None = None, cases: int = 400, seed: int = 0) -> Trial:
    name = op if op.count(".") else f"{op}.default"
    overload = resolve_ops([f"aten.{name}"])[0]
    effort = Effort(cases, 60, min(cases, 20), faults=1)
    return try_kernel(TestedKernel(overload, run or overload, overload), SPECS[str(overload)], effort, seed)


def reported(trial: Trial) -> list[str]:
    return [one.fault.message for one in trial.found]


def test_every_pointwise_op_of_the_set_has_a_spec() -> None:
    pointwise = {str(op) for op in ed.core_aten() if torch.Tag.pointwise in op.tags}
    assert len(pointwise) > 70
    assert not pointwise - set(SPECS)


def _where(wrong: Callable[[Tensor], Tensor], right: Callable[..., Tensor], value: Any) -> Callable[..., Tensor]:
    """Right, but for some values of float tensors."""

    def run(x: Tensor, **named: Any) -> Tensor:
        result = right(x, **named)
        return torch.where(wrong(x), value(x) if callable(value) else value, result).to(result.dtype) if _float(x) else result

    return run


def _float(x: Tensor) -> bool:
    return x.is_floating_point()


def _formula(op: Callable[[Tensor], Tensor], formula: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    return lambda x: torch.empty_like(op(x)).copy_(formula(x)) if _float(x) else op(x)


def _in_float32(formula: Callable[..., Tensor]) -> Callable[..., Tensor]:
    return lambda x, **named: formula(x if x.dtype is torch.float64 else x.float(), **named).to(x.dtype)


UNARY_BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "NaN is clamped": ("relu", _where(lambda x: x.isnan(), aten.relu, 0.0)),
    "rounded twice": ("tanh", _formula(aten.tanh, lambda x: 2 * torch.sigmoid(2 * x) - 1)),
    "1 + x rounds": ("log1p", _formula(aten.log1p, lambda x: (1 + x).log())),
    "halves away from zero": ("round", _formula(aten.round, lambda x: x.sign() * (x.abs() + 0.5).floor())),
    "0 - x": ("neg", _formula(aten.neg, lambda x: 0 - x)),
    "through int64": ("trunc", _where(lambda x: x.abs() > 2.0**63, aten.trunc, -(2.0**63))),
    "float64 in single precision": (
        "sqrt",
        lambda x: aten.sqrt(x.float()).to(x.dtype) if x.dtype is torch.float64 else aten.sqrt(x),
    ),
    "a polynomial beyond its range": ("sin", _where(lambda x: x.abs() > 2.0**21, aten.sin, 0.0)),
    "one value of a half": ("exp", _where(lambda x: (x == 1.0078125) & (x.dtype is torch.bfloat16), aten.exp, 2.75)),
    "subnormals in are 0": ("log2", _where(lambda x: (x > 0) & (x < torch.finfo(x.dtype).tiny), aten.log2, -torch.inf)),
    "only +inf": ("isinf", lambda x: x == torch.inf if _float(x) else aten.isinf(x)),
    "int8's least saturates": ("abs", lambda x: x.clamp(min=-127).abs() if x.dtype is torch.int8 else aten.abs(x)),
    "always contiguous": ("sigmoid", lambda x: aten.sigmoid(x).contiguous()),
    "in place": ("floor", lambda x: x.floor_() if _float(x) and x.is_contiguous() else aten.floor(x)),
    "reads as if contiguous": (
        "cos",
        lambda x: aten.cos(torch.as_strided(x, x.shape, torch.empty(x.shape).stride())) if 0 not in x.stride() else aten.cos(x),
    ),
    "the tail of a vector": (
        "erf",
        lambda x: (
            torch.where((torch.arange(x.numel()) < x.numel() // 16 * 16).view(x.shape) | (x.numel() < 16), aten.erf(x), 0.5)
            if x.dtype is torch.float32 and x.is_contiguous()
            else aten.erf(x)
        ),
    ),
    "the first 65536": (
        "atan",
        lambda x: (
            torch.where((torch.arange(x.numel()) < 65536).view(x.shape), aten.atan(x), 0.0)
            if x.dtype is torch.float32
            else aten.atan(x)
        ),
    ),
    "of what overflows": ("tanh", lambda x: x.sinh() / x.cosh() if x.is_complex() else aten.tanh(x)),
    "subnormals out are 0": ("reciprocal", _where(lambda x: x.abs() > 2.0**126, aten.reciprocal, 0.0)),
    "bool is kept": ("sign", lambda x: aten.sign(x).byte() if x.dtype is torch.bool else aten.sign(x)),
    "of ints are ints": ("reciprocal", lambda x: aten.reciprocal(x).to(x.dtype)),
    "no sixth dimension": ("acosh", lambda x: aten.acosh(x) if x.dim() < 6 else aten.acosh(x[..., :1]).expand(x.shape).clone()),
    "the conjugate branch": ("asin", lambda x: aten.asin(x).conj() if x.is_complex() else aten.asin(x)),
    "the mode is ignored": ("gelu", lambda x, approximate="none": aten.gelu(x)),
    "any mode is tanh": (
        "gelu",
        lambda x, approximate="none": aten.gelu(x, approximate="none" if approximate == "none" else "tanh"),
    ),
    "max(x, slope * x)": ("leaky_relu", lambda x, negative_slope=0.01: torch.maximum(x, x * negative_slope)),
    "input_scale is dropped": ("elu", lambda x, alpha=1, scale=1, input_scale=1: aten.elu(x, alpha, scale)),
    "the default bound": ("hardtanh", lambda x, min_val=-1, max_val=1: aten.hardtanh(x, min_val, 1)),
    "of signed bytes": (
        "bitwise_not",
        lambda x: aten.bitwise_not(x).clamp(max=127) if x.dtype is torch.uint8 else aten.bitwise_not(x),
    ),
}

UNARY_RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    "erfc": ("gelu", _in_float32(lambda x, approximate="none": _gelu_other(x, approximate))),
    "by sign": (
        "sigmoid",
        _formula(aten.sigmoid, _in_float32(lambda x: torch.where(x < 0, x.exp() / (1 + x.exp()), 1 / (1 + (-x).exp())))),
    ),
    "quotient": ("tan", _formula(aten.tan, _in_float32(lambda x: x.sin() / x.cos()))),
    "natural": ("log2", _formula(aten.log2, _in_float32(lambda x: x.log() * 1.4426950408889634))),
    "in float64": ("sinh", _formula(aten.sinh, lambda x: x.double().sinh())),
    "compared": ("relu", lambda x: torch.where((x > 0) | (x != x), x, torch.zeros_like(x)) if _float(x) else aten.relu(x)),
    "multiplied last": (
        "elu",
        _in_float32(lambda x, alpha=1, scale=1, input_scale=1: torch.where(x > 0, x, torch.expm1(x * input_scale) * alpha) * scale),
    ),
}


def _gelu_other(x: Tensor, approximate: str) -> Tensor:
    if approximate not in ("none", "tanh"):
        raise RuntimeError(approximate)
    if approximate == "none":
        return 0.5 * x * torch.erfc(-x * 0.7071067811865476)
    return x * torch.sigmoid(2 * 0.7978845608028654 * (x + 0.044715 * x**3))


def _common(one: Any, other: Any) -> tuple[Tensor, Tensor]:
    """Two operands in the type that eager computes with."""
    kind = torch.result_type(one, other)
    kind = torch.float32 if kind in (torch.float16, torch.bfloat16) else kind
    return tuple(x.to(kind) if isinstance(x, Tensor) else torch.tensor(x, dtype=kind) for x in (one, other))  # type: ignore[return-value]


def _unless(condition: Callable[..., bool], wrong: Callable[..., Any], right: Callable[..., Any]) -> Callable[..., Any]:
    return lambda *args, **named: (wrong if condition(*args, **named) else right)(*args, **named)


def _whole(one: Any, other: Any, **named: Any) -> bool:
    return not any(
        torch.is_floating_point(x) or torch.is_complex(x) if isinstance(x, Tensor) else type(x) is not int for x in (one, other)
    )


def _floats(one: Any, other: Any, **named: Any) -> bool:
    kind = torch.result_type(one, other)
    return kind.is_floating_point and kind is torch.float32


def _scalar_promoted(one: Any, other: Any) -> bool:
    return isinstance(other, Tensor) and other.dim() == 0 and one.dim() > 0 and one.dtype is not other.dtype


def _flattened(op: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Reads the second operand as if it were as large as the first where it has as many dimensions."""
    return lambda one, other: (
        op(one, other.reshape(-1)[:1].reshape([1] * other.dim()))
        if isinstance(other, Tensor) and other.dim() > 1 and other.shape != one.shape
        else op(one, other)
    )


BINARY_BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "alpha is dropped": ("add.Tensor", lambda one, other, alpha=1: aten.add(one, other)),
    "alpha scales self": (
        "sub.Tensor",
        lambda one, other, alpha=1: aten.sub(one, other) if alpha == 1 else aten.sub(one * alpha, other),
    ),
    "an alpha of 0 stops NaN": ("add.Scalar", lambda one, other, alpha=1: one + 0 if alpha == 0 else aten.add(one, other, alpha)),
    "fractions of integers": (
        "add.Scalar",
        lambda one, other, alpha=1: one + int(other.real) if _whole(one, 1) and alpha == 1 else aten.add(one, other, alpha),
    ),
    "numbers are tensors": (
        "mul.Tensor",
        lambda one, other: aten.mul(one, other if isinstance(other, Tensor) else torch.tensor([other])),
    ),
    "scalars promote": (
        "mul.Tensor",
        lambda one, other: aten.mul(one, other.view(1)) if _scalar_promoted(one, other) else aten.mul(one, other),
    ),
    "int64 in double precision": (
        "mul.Tensor",
        _unless(
            _whole,
            lambda one, other: (one.double() * (other.double() if isinstance(other, Tensor) else other)).to(
                torch.result_type(one, other)
            ),
            aten.mul,
        ),
    ),
    "ones are not repeated": ("maximum", _flattened(aten.maximum)),
    "NaN is ignored": (
        "minimum",
        lambda one, other: torch.fmin(one, other) if one.is_floating_point() else aten.minimum(one, other),
    ),
    "NaN only of the first": (
        "maximum",
        lambda one, other: torch.where(other.isnan(), one, aten.maximum(one, other)).to(torch.result_type(one, other)),
    ),
    "of integers truncates": (
        "div.Tensor",
        _unless(_whole, lambda one, other: aten.div.Tensor_mode(one, other, rounding_mode="trunc"), aten.div),
    ),
    "floor of the quotient": (
        "div.Tensor_mode",
        lambda one, other, rounding_mode: (
            aten.div(one, other).floor()
            if rounding_mode == "floor" and _floats(one, other)
            else aten.div.Tensor_mode(one, other, rounding_mode=rounding_mode)
        ),
    ),
    "trunc for floor": (
        "div.Scalar_mode",
        lambda one, other, rounding_mode: aten.div.Scalar_mode(one, other, rounding_mode=rounding_mode and "trunc"),
    ),
    "the sign of the dividend": ("remainder.Tensor", aten.fmod),
    "the sign of the divisor": ("fmod.Scalar", aten.remainder),
    "a - b * floor(a / b)": (
        "remainder.Scalar",
        _unless(_floats, lambda one, other: one - other * (one / other).floor(), aten.remainder),
    ),
    "no division by zero": (
        "fmod.Tensor",
        lambda one, other: (
            aten.fmod(one, torch.where(other == 0, 1, other).to(other.dtype)) if _whole(one, other) else aten.fmod(one, other)
        ),
    ),
    "exp2 of log2": ("pow.Tensor_Tensor", _unless(_floats, lambda one, other: torch.exp2(other * one.log2()), aten.pow)),
    "the square for every whole exponent": (
        "pow.Tensor_Scalar",
        lambda one, other: aten.pow(one, 2) if other in (2, 3) else aten.pow(one, other),
    ),
    "through a float": ("pow.Scalar", _unless(_whole, lambda one, other: aten.pow(float(one), other).to(other.dtype), aten.pow)),
    "one half only": ("atan2", _unless(_floats, lambda one, other: (one / other).atan(), aten.atan2)),
    "out keeps its size": (
        "atan2.out",
        lambda one, other, out: out.copy_(aten.atan2(one, other)) if out.numel() else aten.atan2.out(one, other, out=out),
    ),
    "bits are compared": (
        "eq.Tensor",
        lambda one, other: (
            one.view(torch.int32) == other.view(torch.int32)
            if one.dtype is other.dtype is torch.float32 and one.shape == other.shape
            else aten.eq(one, other)
        ),
    ),
    "int64 in single precision": (
        "lt.Scalar",
        lambda one, other: one.float() < other if one.dtype is torch.int64 else aten.lt(one, other),
    ),
    "not greater": ("le.Tensor", lambda one, other: ~aten.gt(one, other)),
    "int64 by difference": ("gt.Tensor", _unless(_whole, lambda one, other: (one - other) > 0, aten.gt)),
    "the imaginary part is dropped": (
        "ne.Tensor",
        lambda one, other: aten.ne(one.real if one.is_complex() else one, other.real if other.is_complex() else other),
    ),
    "of bits": ("logical_and", _unless(_whole, lambda one, other: (one & other) != 0, aten.logical_and)),
    "fractions are false": (
        "logical_or",
        lambda one, other: aten.logical_or(one.long() if one.dtype is torch.float32 else one, other),
    ),
    "True is 255": ("bitwise_xor.Scalar", lambda one, other: aten.bitwise_xor(one, 255 if other is True else other)),
    "only the low byte": (
        "bitwise_and.Tensor",
        lambda one, other: (
            aten.bitwise_and(one, other & 255)
            if one.dtype is torch.int64 and other.dtype is torch.int64
            else aten.bitwise_and(one, other)
        ),
    ),
    "the lower bound wins": (
        "clamp",
        lambda x, min=None, max=None: (
            torch.where(x < min, min, aten.clamp(x, min, max)).to(aten.clamp(x, min, max).dtype)
            if min is not None
            else aten.clamp(x, min, max)
        ),
    ),
    "NaN becomes a bound": ("clamp", lambda x, min=None, max=None: aten.clamp(x.nan_to_num() if _float(x) else x, min, max)),
    "a NaN bound is none": (
        "clamp.Tensor",
        lambda x, min=None, max=None: aten.clamp(
            x, min, max if max is None else torch.where(max.isnan(), torch.inf, max).to(max.dtype)
        ),
    ),
    "the first one's type": ("where.self", lambda condition, one, other: aten.where(condition, one, other.to(one.dtype))),
    "by arithmetic": (
        "where.self",
        lambda condition, one, other: (
            condition * one + ~condition * other
            if condition.dtype is torch.bool and one.dtype is other.dtype is torch.float32
            else aten.where(condition, one, other)
        ),
    ),
    "a condition of any type": ("where.self", lambda condition, one, other: aten.where(condition != 0, one, other)),
}


def _remainder(one: Any, other: Any) -> Tensor:
    a, b = _common(one, other)
    if not a.is_floating_point():
        return aten.remainder(one, other)
    rest = a.fmod(b)
    result = torch.where((rest != 0) & ((rest < 0) != (b < 0)), rest + b, rest)
    return torch.empty_like(aten.remainder(one, other)).copy_(result)


def _by_reciprocal(one: Tensor, other: Any) -> Tensor:
    right = aten.div(one, other)
    if right.is_complex() or (isinstance(other, Tensor) and other.dim()):
        return right
    kind = torch.float64 if right.dtype is torch.float64 else torch.float32
    a, b = (x.to(kind) if isinstance(x, Tensor) else torch.tensor(x, dtype=kind) for x in (one, other))
    return torch.empty_like(right).copy_(a * b.reciprocal())


def _fused(one: Any, other: Any, alpha: Any = 1) -> Tensor:
    """One rounding in place of two."""
    right = aten.add(one, other, alpha=alpha)
    if right.dtype is not torch.float32:
        return right
    a, b = (x.double() if isinstance(x, Tensor) else torch.tensor(x, dtype=torch.float32).double() for x in (one, other))
    return torch.empty_like(right).copy_((a.float().double() + alpha * b.float().double()).float())


def _clamped(x: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> Tensor:
    right = aten.clamp(x, min, max)
    found = x.to(right.dtype)
    found = (
        found
        if min is None
        else torch.where(found < min.to(right.dtype), min.to(right.dtype), found + 0 * min.to(right.dtype).nan_to_num(0, 0, 0))
    )
    return (
        right
        if min is not None and _float(min) and bool(min.isnan().any())
        else torch.empty_like(right).copy_(found if max is None else torch.minimum(found, max.to(right.dtype)))
    )


def _gappy(x: Tensor) -> bool:
    return not (is_dense(x) or x.is_contiguous())


BINARY_RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    "remainder by fmod": ("remainder.Tensor", _remainder),
    "reciprocal of a scalar": ("div.Tensor", _by_reciprocal),
    "reciprocal of a number": ("div.Scalar", _by_reciprocal),
    "fused": ("add.Tensor", _fused),
    "compared and chosen": ("maximum", lambda one, other: torch.where((one > other) | one.isnan(), one, other)),
    "two steps": ("clamp.Tensor", _clamped),
    "contiguous without reason": (
        "le.Tensor",
        lambda one, other: aten.le(one, other).contiguous() if 0 < other.dim() < one.dim() else aten.le(one, other),
    ),
}


def _conversion(wrong: Callable[[Tensor, torch.dtype], Tensor | None]) -> Callable[..., Tensor]:
    """A conversion that is right where `wrong` has no result."""

    def run(x: Tensor, *, dtype: torch.dtype | None = None, **named: Any) -> Tensor:
        found = wrong(x, dtype or x.dtype)
        right = aten._to_copy(x, dtype=dtype, **named)
        return right if found is None else torch.empty_like(right).copy_(found)

    return run


def _cut_off(x: Tensor) -> Tensor:
    return (x.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


def _unconjugated(x: Tensor) -> Tensor:
    return torch._conj(x) if x.is_conj() else x


def _as_one_block(target: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    """Writes from the first element to the last, whatever lies between."""
    whole = target.as_strided((1 + sum((size - 1) * step for size, step in zip(target.shape, target.stride(), strict=True)),), (1,))
    values = source.expand(target.shape).reshape(-1)[:1] if target.numel() else None
    aten.copy_(target, source)
    if values is not None and len(whole) == target.numel() + 1:
        whole[target.numel() // 2] = values.to(target.dtype)
    return target


COPIES_BROKEN: dict[str, tuple[str, Callable[..., Any]]] = {
    "rounds": (
        "_to_copy",
        _conversion(lambda x, to: x.round() if _float(x) and not to.is_floating_point and to is not torch.bool else None),
    ),
    "int64 by float32": (
        "_to_copy",
        _conversion(lambda x, to: x.float().to(to) if x.dtype is torch.int64 and to is torch.float64 else None),
    ),
    "int32 by float16": (
        "_to_copy",
        _conversion(lambda x, to: x.half() if x.dtype is torch.int32 and to is torch.float32 else None),
    ),
    "NaN is False": ("_to_copy", _conversion(lambda x, to: x.nan_to_num() != 0 if _float(x) and to is torch.bool else None)),
    "below one is False": (
        "_to_copy",
        _conversion(lambda x, to: x.long() != 0 if x.dtype is torch.float64 and to is torch.bool else None),
    ),
    "bits are cut off": (
        "_to_copy",
        _conversion(lambda x, to: _cut_off(x) if x.dtype is torch.float32 and to is torch.bfloat16 else None),
    ),
    "bytes saturate": (
        "_to_copy",
        _conversion(lambda x, to: x.clamp(0, 255) if x.dtype is torch.int32 and to is torch.uint8 else None),
    ),
    "the same dtype is the same tensor": (
        "_to_copy",
        lambda x, dtype=None, **named: x if dtype in (None, x.dtype) else aten._to_copy(x, dtype=dtype, **named),
    ),
    "no format beside a dtype": (
        "_to_copy",
        lambda x, dtype=None, memory_format=None, **named: aten._to_copy(
            x, dtype=dtype, memory_format=memory_format if dtype is None else None, **named
        ),
    ),
    "subnormals are flushed": (
        "_to_copy",
        _conversion(
            lambda x, to: torch.where(x.abs() < 6.2e-5, 0.0, x) if x.dtype is torch.float32 and to is torch.float16 else None
        ),
    ),
    "always contiguous ": ("clone", lambda x, memory_format=None: aten.clone(x, memory_format=torch.contiguous_format)),
    "the format is dropped": ("clone", lambda x, memory_format=None: aten.clone(x)),
    "the conjugate bit is not read": (
        "clone",
        lambda x, memory_format=None: aten.clone(_unconjugated(x), memory_format=memory_format),
    ),
    "the source's dtype": ("copy", lambda x, source, non_blocking=False: aten.copy(x, source).to(source.dtype)),
    "the source's shape": ("copy", lambda x, source, non_blocking=False: source.to(x.dtype, copy=True)),
    "the target's conjugate bit": ("copy_", lambda x, source, non_blocking=False: (aten.copy_(_unconjugated(x), source), x)[1]),
    "another tensor": ("copy_", lambda x, source, non_blocking=False: aten.copy_(x, source).view(x.shape)),
    "over the guards": ("copy_", _as_one_block),
    "asynchronous does nothing": ("copy_", lambda x, source, non_blocking=False: x if non_blocking else aten.copy_(x, source)),
    "through float32": (
        "fill.Scalar",
        lambda x, value: (
            aten.fill(x, float(torch.tensor(float(value), dtype=torch.float32)))
            if type(value) is float and not _whole(x, 1)
            else aten.fill(x, value)
        ),
    ),
    "rounded": (
        "fill.Scalar",
        lambda x, value: aten.fill(x, round(value)) if type(value) is float and _whole(x, 1) else aten.fill(x, value),
    ),
    "in place ": ("fill.Scalar", lambda x, value: x.fill_(value) if 0 not in x.stride() else aten.fill(x, value)),
    "row by row": ("fill.Scalar", lambda x, value: aten.fill(x, value).contiguous()),
    "large ones wrap": (
        "fill.Scalar",
        lambda x, value: aten.fill(x, value % 128) if x.dtype is torch.int8 and value > 127 else aten.fill(x, value),
    ),
}

BROKEN = {**UNARY_BROKEN, **BINARY_BROKEN, **COPIES_BROKEN}
RIGHT = {**UNARY_RIGHT, **BINARY_RIGHT}


@pytest.mark.full
@pytest.mark.parametrize("fault", BROKEN)
def test_a_kernel_with_one_fault_is_found(fault: str) -> None:
    assert reported(tried(*BROKEN[fault]))


@pytest.mark.full
@pytest.mark.parametrize("way", sampled(RIGHT))
def test_a_right_kernel_that_differs_from_eager_passes(way: str) -> None:
    assert not reported(tried(*RIGHT[way], cases=250, seed=3))
