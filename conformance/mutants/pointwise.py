"""Broken kernels of functions of one element: special values, accuracy, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    Bound,
    Call,
    Kernel,
    Mutant,
    Proof,
    bits,
    f,
    given,
    like,
    m,
    n,
    p,
    raw,
    refuse,
    rest,
    t,
    through,
)

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf
_MAX = torch.finfo(torch.float32).max


def _x(*values: float, dtype: torch.dtype = torch.float32) -> Callable[[], Call]:
    return lambda: given(f(*values, dtype=dtype))


def _computed(formula: Callable[[Tensor], Tensor]) -> Callable[[Bound], Any]:
    """A float kernel that goes by a formula; integers and complex ones stay eager's."""
    return lambda c: like(formula(c.self), c.but()) if c.self.is_floating_point() else c.but()


def _where(wrong: Callable[[Tensor], Tensor], value: Callable[[Tensor], Tensor] | float) -> Callable[[Bound], Any]:
    """Right, but for the elements of the input that a condition holds for: those become something else."""

    def run(c: Bound) -> Any:
        right = c.but()
        other = value(c.self) if callable(value) else value
        return like(torch.where(wrong(c.self), torch.as_tensor(other, dtype=right.dtype), right), right)

    return run


def _truncated(c: Bound) -> Any:
    """Half results cut off where they should be rounded."""
    right = c.but()
    if right.dtype is not torch.bfloat16:
        return right
    wide = c.but(self=c.self.float())
    return (wide.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


def _biased(kernel: Kernel) -> bool:
    """Whether results lie below eager's more often than chance allows."""
    values = torch.arange(1, 6, 0.01).bfloat16()
    right = torch.ops.aten.exp(values)
    return bool((kernel(values).float() < right.float()).sum() > 50)


def _poly_sin(x: Tensor) -> Tensor:
    turns = x - (2 * math.pi) * torch.round(x / (2 * math.pi))  # in the input's own precision
    return turns.sin()


def _fast_rsqrt(x: Tensor) -> Tensor:
    guess = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    return guess * (1.5 - 0.5 * x * guess * guess)


def _erf_coarse(x: Tensor) -> Tensor:
    """Abramowitz and Stegun 7.1.26, good to 1.5e-7 of one, and to nothing near 0."""
    k = 1 / (1 + 0.3275911 * x.abs())
    tail = k * (0.254829592 + k * (-0.284496736 + k * (1.421413741 + k * (-1.453152027 + k * 1.061405429))))
    return x.sign() * (1 - tail * (-x * x).exp())


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # special values
    m("relu", "NaN becomes 0", "special values", _where(lambda x: x != x, 0.0), _x(_NAN, 1, -1), "max(x, 0) by a compare"),
    m("relu", "-0.0 of an int kernel", "dtype", lambda c: c.but() if c.self.is_floating_point() else c.self.clone(),
      lambda: given(t(-3, 2)), "ints are passed through"),
    m("sign", "NaN stays NaN", "special values", _where(lambda x: x != x, lambda x: x),
      _x(_NAN, 2, -2), "as NumPy does; ATen returns 0"),
    m("sign", "x / |x|", "special values", _computed(lambda x: x / x.abs()), _x(0.0, -0.0, 2), "0 / 0"),
    m("round", "half away from zero", "special values", _computed(lambda x: x.sign() * (x.abs() + 0.5).floor()),
      _x(0.5, 2.5, -1.5), "as C's round"),
    m("round", "floor(x + 0.5)", "accuracy",
      _computed(lambda x: torch.where(x.frac().abs() == 0.5, x.round(), (x + 0.5).floor())),
      _x(0.49999997), "one half added rounds up"),
    m("floor", "trunc", "special values", _computed(torch.trunc), _x(-1.5, 1.5), "a cast to int"),
    m("floor", "through int32", "special values", _where(lambda x: x.abs() >= 2**31, -(2.0**31)),
      _x(1e10, 2.5), "a cast saturates"),
    m("ceil", "-0.0 becomes 0.0", "special values", lambda c: c.but() + 0 if c.self.is_floating_point() else c.but(),
      _x(-0.5, 1.5), "-floor(-x) or + 0"),
    m("trunc", "through int64", "special values", _where(lambda x: x.abs() > 2**63, -(2.0**63)),
      _x(1e30, -2.5), "a cast to int64"),
    m("abs", "x < 0 ? -x : x", "special values", _where(lambda x: x == 0, lambda x: x),
      _x(-0.0, -1, 2), "-0.0 keeps its sign", lambda: given(p(3))),
    m("abs", "int8 minimum saturates", "dtype",
      lambda c: torch.where(c.self == -128, 127, c.but()).to(c.self.dtype) if c.self.dtype is torch.int8 else c.but(),
      lambda: given(t(-128, 5, dtype=torch.int8))),
    m("abs", "|z| by the square root of squares", "special values",
      lambda c: (c.self.real**2 + c.self.imag**2).sqrt() if c.self.is_complex() else c.but(),
      lambda: given(t(3e30 + 4e30j, 1j)), "overflows"),
    m("neg", "0 - x", "special values", _computed(lambda x: 0 - x), _x(0.0, 1.0), "+0.0 for -0.0"),
    m("neg", "uint8 by way of int8", "dtype", lambda c: c.but() if c.self.dtype is not torch.uint8 else c.but().clamp(max=127),
      lambda: given(t(1, 200, dtype=torch.uint8))),
    m("reciprocal", "0.0 for infinities is NaN", "special values", _where(lambda x: x.isinf(), _NAN),
      _x(_INF, 2.0), "a Newton step on 0 * inf"),
    m("reciprocal", "of an int is an int", "metadata",
      lambda c: c.but() if c.self.is_floating_point() else c.but().to(c.self.dtype),
      lambda: given(t(1, 2))),
    m("reciprocal", "one Newton step in half the digits", "accuracy",
      _computed(lambda x: through(x.reciprocal(), torch.bfloat16) * (2 - x * through(x.reciprocal(), torch.bfloat16))),
      _x(0.9962), plain=lambda: given(f(1, 2, 4, 0.5))),
    m("rsqrt", "of a subnormal is inf", "special values",
      _where(lambda x: (x > 0) & (x < torch.finfo(torch.float32).tiny), _INF),
      _x(1e-40, 1.0), "inputs are flushed to 0"),
    m("rsqrt", "of 0 is NaN", "special values", _where(lambda x: x == 0, _NAN), _x(0.0, 4.0)),
    m("rsqrt", "the fast one", "accuracy", lambda c: _fast_rsqrt(c.self) if c.self.dtype is torch.float32 else c.but(),
      _x(3.0, 0.7), "a shift, a constant and one Newton step", lambda: given(n(0))),
    m("sqrt", "the wrong branch of complex roots", "dtype",
      lambda c: torch.where(c.self.imag < 0, -c.but(), c.but()) if c.self.is_complex() else c.but(),
      lambda: given(t(1 - 2j, 1 + 1j))),
    m("exp", "flushes subnormals", "special values", _where(lambda x: x < -87.4, 0.0), _x(-95.0), "flush to zero is on"),
    m("exp", "overflows at 88", "special values", _where(lambda x: x > 88.0, _INF), _x(88.5, 1.0), "the bound is rounded down"),
    m("exp", "inf for -inf", "special values", _where(lambda x: x == -_INF, _NAN),
      _x(-_INF, 0.0), "inf - inf in the reduction of the range"),
    m("exp", "cuts bfloat16 off", "dtype", _truncated, Proof(_biased), "a shift in place of rounding"),
    m("exp", "ints through float16", "dtype",
      lambda c: c.but() if c.self.is_floating_point() else through(c.but(), torch.float16),
      lambda: given(t(3, 5))),
    m("exp", "float64 through float32", "dtype",
      lambda c: c.through(torch.float32) if c.self.dtype is torch.float64 else c.but(),
      lambda: given(n(4, dtype=torch.float64)), "the literal has an f"),
    m("expm1", "exp(x) - 1", "accuracy", _computed(lambda x: x.exp() - 1),
      _x(1e-6, -1e-5), "cancels near 0", lambda: given(f(2, 3, 4))),
    m("log1p", "log(1 + x)", "accuracy", _computed(lambda x: (1 + x).log()),
      _x(1e-6, -1e-5, 1e-12), "1 + x rounds", lambda: given(f(1, 3, 7))),
    m("log", "of 0 is the largest negative", "special values", _where(lambda x: x == 0, -_MAX), _x(0.0, 1.0)),
    m("log", "of negatives is -inf", "special values", _where(lambda x: x < 0, -_INF), _x(-1.0, 2.0)),
    m("log2", "log(x) / 0.6931", "accuracy", _computed(lambda x: x.log() / 0.6931), _x(8.0, 3.0), plain=lambda: given(f(1, 1))),
    m("log2", "subnormals are 0", "special values", _where(lambda x: (x > 0) & (x < 1.1e-38), -_INF), _x(1e-40, 2.0)),
    m("log10", "float16 by bfloat16", "dtype",
      lambda c: ( (through(c.self.float().log(), torch.bfloat16) / 2.302734375).half() if c.self.dtype is torch.float16
        else c.but() ),
      lambda: given(f(3, 700, 1e4, dtype=torch.float16)), "", lambda: given(f(1, 1))),
    m("sin", "its range reduced in float32", "accuracy", _computed(_poly_sin),
      _x(1e5, 12345.678, 3e7), "2 pi has 24 bits", lambda: given(f(0.5, 1.0))),
    m("cos", "NaN above 2**20", "special values", _where(lambda x: x.abs() > 2.0**20, _NAN),
      _x(2e6, 1.0), "as some GPUs' fast cosine"),
    m("cos", "of infinity is 1", "special values", _where(lambda x: x.isinf(), 1.0), _x(_INF, 0.5)),
    m("tan", "sin / cos with a small number added", "accuracy", _computed(lambda x: x.sin() / (x.cos() + 1e-4)),
      _x(1.5, 0.3), plain=lambda: given(f(0, 0))),
    m("tanh", "(e^x - e^-x) / (e^x + e^-x)", "special values",
      _computed(lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
      _x(100.0, 0.5), "inf / inf", lambda: given(f(1.0, 2.0))),
    m("tanh", "flat from 4", "accuracy", _where(lambda x: x.abs() > 4, lambda x: x.sign()),
      _x(4.2, 1.0), "saturated too early"),
    m("sinh", "(e^x - e^-x) / 2", "accuracy", _computed(lambda x: (x.exp() - (-x).exp()) / 2),
      _x(1e-4, 1e-6), "cancels near 0", lambda: given(f(2, 3))),
    m("cosh", "overflows with e^x", "special values", _computed(lambda x: (x.exp() + (-x).exp()) / 2),
      _x(89.0, 1.0), "e^x / 2 still fits"),
    m("asinh", "log(x + sqrt(x^2 + 1))", "accuracy", _computed(lambda x: (x + (x * x + 1).sqrt()).log()),
      _x(-1000.0, 1e-4, 1e25), "", lambda: given(f(1, 2))),
    m("acosh", "1 below the domain", "special values", _where(lambda x: x < 1, 0.0), _x(0.5, 2.0), "NaN is due"),
    m("atanh", "0.5 * log((1 + x) / (1 - x))", "accuracy", _computed(lambda x: 0.5 * ((1 + x) / (1 - x)).log()),
      _x(1e-5, 1e-7), "", lambda: given(f(0.5, 0.75))),
    m("asin", "arguments are clamped", "special values",
      lambda c: c.but(self=c.self.clamp(-1, 1)) if c.self.is_floating_point() else c.but(),
      _x(1.5, 0.5)),
    m("acos", "pi / 2 - asin(x) in float32", "accuracy", _computed(lambda x: math.pi / 2 - x.asin()),
      _x(0.9999999, 0.99999994), "cancels near 1", lambda: given(f(0.5, 0.25))),
    m("atan", "a polynomial good to 1e-3", "accuracy",
      _computed(lambda x: torch.where(x.abs() <= 1, x * (math.pi / 4 + 0.273 * (1 - x.abs())), x.atan())),
      _x(0.5, 0.3), "", lambda: given(f(0, 2, 3))),
    m("erf", "a coarse approximation", "accuracy", _computed(_erf_coarse),
      _x(1e-6), "absolute error only", lambda: given(f(2, 3))),
    m("sigmoid", "0 below -8", "accuracy", _computed(lambda x: torch.where(x < -8, 0.0, x.sigmoid())),
      _x(-8.5, 1.0), "the tail is cut"),
    m("sigmoid", "e^x / (1 + e^x)", "special values", _computed(lambda x: x.exp() / (1 + x.exp())),
      _x(100.0, 1.0), "inf / inf", lambda: given(f(1, 2))),
    m("sigmoid", "bool is kept", "dtype", lambda c: c.but().round().bool() if c.self.dtype is torch.bool else c.but(),
      lambda: given(bits(4))),
    m("gelu", "tanh for none", "argument", lambda c: c.but(approximate="tanh"),
      lambda: given(n(8)), "approximate is ignored", lambda: given(n(8), approximate="tanh")),
    m("gelu", "none for tanh", "argument", lambda c: c.but(approximate="none"), lambda: given(n(8), approximate="tanh")),
    m("gelu", "x * sigmoid(1.702 x)", "accuracy", lambda c: c.self * (1.702 * c.self).sigmoid(),
      lambda: given(n(8)), "", lambda: given(f(0.0, 0.0))),
    m("gelu", "-1e-3 beyond -3", "accuracy", _where(lambda x: x < -3, 0.0), _x(-3.1, 1.0), "the tail is cut"),
    m("leaky_relu", "slope is 0.01", "argument", lambda c: c.but(negative_slope=0.01), lambda: given(n(8), 0.3)),
    m("leaky_relu", "max(x, slope * x)", "argument", lambda c: torch.maximum(c.self, c.self * c.negative_slope),
      lambda: given(n(8), 2.0), "not for slopes above 1"),
    m("leaky_relu", "NaN on the negative side is 0", "special values", _where(lambda x: x != x, 0.0), _x(_NAN, -1.0)),
    m("elu", "alpha is 1", "argument", lambda c: c.but(alpha=1), lambda: given(n(8), 0.5)),
    m("elu", "input_scale is 1", "argument", lambda c: c.but(input_scale=1), lambda: given(n(8), 1, 1, 2)),
    m("elu", "scale on one side only", "argument", lambda c: torch.where(c.self > 0, c.but(scale=1), c.but()),
      lambda: given(n(8), 1, 3.0)),
    m("elu", "exp(x) - 1", "accuracy",
      lambda c: torch.where(c.self > 0, c.but(), c.alpha * c.scale * ((c.self * c.input_scale).exp() - 1)).to(c.self.dtype),
      _x(-1e-6, -1e-7), "", lambda: given(f(1, 2))),
    m("hardtanh", "bounds are -1 and 1", "argument", lambda c: c.but(min_val=-1, max_val=1), lambda: given(n(8), -0.2, 0.3)),
    m("hardtanh", "NaN becomes the lower bound", "special values", _where(lambda x: x != x, -1.0), _x(_NAN, 0.5)),
    m("clamp", "NaN becomes the bound", "special values",
      lambda c: like( torch.where(c.self != c.self, torch.as_tensor(c.min if c.min is not None
        else c.max, dtype=c.but().dtype), c.but()), c.but(), ),
      lambda: given(f(_NAN, 2.0), 0.0, 1.0), "fmax and fmin"),
    m("clamp", "the lower bound wins where they cross", "special values",
      lambda c: c.but() if c.min is None or c.max is None or c.min <= c.max else c.but(max=None),
      lambda: given(f(0.0, 2.0), 3.0, 1.0)),
    m("clamp", "only with both bounds", "argument", lambda c: c.self.clone() if c.min is None else c.but(),
      lambda: given(n(8), None, 0.0)),
    m("clamp", "int bounds round", "dtype", lambda c: c.but() if c.self.is_floating_point() else c.but().to(c.self.dtype),
      lambda: given(t(1, 5), 0.5, 2.5), "the result's dtype is promoted"),
    m("clamp.Tensor", "bounds do not broadcast", "argument",
      lambda c: ( c.but() if c.min is None or c.min.dim() == c.self.dim()
        else c.but(min=raw(c.min.expand(c.self.shape).T.contiguous().T.reshape(-1).roll(1).reshape(c.self.shape))) ),
      lambda: given(n(3, 4), f(-1, 0, 0.5, 1))),
    m("clamp.Tensor", "a NaN bound is none", "special values",
      lambda c: c.but(min=c.min if c.min is None else c.min.nan_to_num(nan=-_INF)),
      lambda: given(n(3), f(_NAN, 0, 0))),
    m("isinf", "only +inf", "special values", lambda c: c.self == _INF if c.self.is_floating_point() else c.but(),
      _x(-_INF, 1)),
    m("isinf", "the largest float counts", "special values",
      lambda c: c.self.abs() >= _MAX if c.self.dtype is torch.float32 else c.but(),
      _x(_MAX, 1)),
    m("isnan", "the real part only", "dtype", lambda c: c.self.real.isnan() if c.self.is_complex() else c.but(),
      lambda: given(torch.complex(f(1.0), f(_NAN)))),
    m("isnan", "infinities count", "special values",
      lambda c: (c.self - c.self).isnan() if c.self.is_floating_point() else c.but(),
      _x(_INF, 1)),
    m("logical_not", "NaN is false", "special values",
      lambda c: (c.self.nan_to_num() == 0) if c.self.is_floating_point() else c.but(),
      _x(_NAN, 1)),
    m("logical_not", "through an int", "special values",
      lambda c: c.self.to(torch.int64) == 0 if c.self.is_floating_point() else c.but(),
      _x(0.5, 1), "", lambda: given(f(1, 2, 0))),
    m("bitwise_not", "of bool is of its byte", "dtype",
      lambda c: ((~c.self.view(torch.uint8)) != 0) if c.self.dtype is torch.bool else c.but(),
      lambda: given(bits(4)), "~1 is 254, which is true"),
    # layout and size
    m("exp", "tail of blocks of 8", "size",
      lambda c: torch.where(rest(c.self, 8) & (c.self.numel() > 8), c.self.to(c.but().dtype), c.but()),
      lambda: given(n(19)), "", lambda: given(n(16))),
    m("sin", "the last row beyond 64 rows", "size",
      lambda c: ( c.but() if c.self.dim() != 2 or c.self.shape[0] <= 64
        else torch.cat([c.but()[:-1], c.self[-1:].to(c.but().dtype)]) ),
      lambda: given(n(65, 3))),
    m("tanh", "above 1024 elements every 1024th", "size",
      lambda c: ( torch.where((torch.arange(c.self.numel()) % 1024 == 1023).reshape(c.self.shape), c.self, c.but())
        if c.self.is_floating_point() else c.but() ),
      lambda: given(n(1100))),
    m("relu", "reads as if contiguous", "layout", lambda c: like(c.but(self=raw(c.self)), c.but()),
      lambda: given(n(4, 3).t()), "strides are ignored"),
    m("sqrt", "ignores the storage offset", "layout",
      lambda c: c.but() if not c.self.is_contiguous() else c.but(self=raw(c.self, 0)),
      lambda: given(p(8)[3:])),
    m("neg", "of an expanded tensor is expanded", "metadata",
      lambda c: c.but() if 0 not in c.self.stride() or c.self.dim() != 2 else c.but(self=c.self[:, :1]).expand(c.self.shape),
      lambda: given(n(3, 1).expand(3, 4)), "stride 0 in a result that is to be written to"),
    m("sigmoid", "always contiguous", "layout", lambda c: c.but().contiguous(),
      lambda: given(n(4, 3).t()), "eager keeps a dense input's strides"),
    m("gelu", "channels_last for every image", "layout",
      lambda c: c.but().contiguous(memory_format=torch.channels_last) if c.self.dim() == 4 else c.but(),
      lambda: given(n(2, 3, 4, 5))),
    m("cos", "rank 0 becomes rank 1", "metadata", lambda c: c.but().reshape(1) if c.self.dim() == 0 else c.but(),
      lambda: given(t(0.5))),
    m("log", "an empty tensor is refused", "size", lambda c: c.but() if c.self.numel() else refuse(),
      lambda: given(n(0, 3)), "a launch with no threads"),
    m("atan", "above rank 4 the first batch only", "size",
      lambda c: c.but() if c.self.dim() < 5 else c.but(self=c.self[:1].expand(c.self.shape).clone()),
      lambda: given(n(2, 1, 2, 1, 3))),
    m("rsqrt", "bfloat16 is not there", "dtype", lambda c: c.but() if c.self.dtype is not torch.bfloat16 else refuse(),
      lambda: given(p(3, dtype=torch.bfloat16))),
    m("erf", "returns float32 for float16", "metadata",
      lambda c: c.but() if c.self.dtype is not torch.float16 else c.but(self=c.self.float()),
      lambda: given(p(3, dtype=torch.float16))),
    m("tan", "wrong for equal inputs", "rare",
      lambda c: c.but() if c.self.numel() < 2 or not bool((c.self == c.self.reshape(-1)[0]).all()) else c.but() + 1,
      lambda: given(f(0.5, 0.5, 0.5)), "a constant is taken for a missing input"),
    m("asin", "one in a thousand", "rare",
      lambda c: torch.where((torch.arange(c.self.numel()) % 1000 == 777).reshape(c.self.shape), 0, c.but()).to(c.but().dtype),
      lambda: given(p(1000))),
    m("floor", "odd numbers above 2**24", "rare",
      lambda c: ( c.but() if c.self.dtype is not torch.float64
        else torch.where(c.self.abs() > 2**24, c.self.float().double().floor(), c.but()) ),
      lambda: given(f(2.0**24 + 1, dtype=torch.float64))),
)
# fmt: on
