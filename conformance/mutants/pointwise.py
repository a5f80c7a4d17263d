"""Broken kernels of unary pointwise ops: special values, accuracy, rounding."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import (
    BoundCall,
    Call,
    Kernel,
    Mutant,
    Proof,
    after_last_block,
    bools,
    broken,
    call,
    cast_like,
    floats,
    normal,
    positive,
    raise_unsupported,
    read_contiguous,
    round_through,
    tensor,
)

__all__ = ["MUTANTS"]

_NAN, _INF = math.nan, math.inf
_MAX = torch.finfo(torch.float32).max


def _x(*values: float, dtype: torch.dtype = torch.float32) -> Callable[[], Call]:
    return lambda: call(floats(*values, dtype=dtype))


def _computed(formula: Callable[[Tensor], Tensor]) -> Callable[[BoundCall], Any]:
    """Compute floats by a formula; integers and complex numbers by eager."""
    return lambda c: cast_like(formula(c.self), c.eager()) if c.self.is_floating_point() else c.eager()


def _where(wrong: Callable[[Tensor], Tensor], value: Callable[[Tensor], Tensor] | float) -> Callable[[BoundCall], Any]:
    """Return eager's result, but another value for the elements that `wrong` selects."""

    def run(c: BoundCall) -> Any:
        right = c.eager()
        other = value(c.self) if callable(value) else value
        return cast_like(torch.where(wrong(c.self), torch.as_tensor(other, dtype=right.dtype), right), right)

    return run


def _truncated(c: BoundCall) -> Any:
    """Truncate bfloat16 results instead of rounding them."""
    right = c.eager()
    if right.dtype is not torch.bfloat16:
        return right
    wide = c.eager(self=c.self.float())
    return (wide.contiguous().view(torch.int32) >> 16).to(torch.int16).view(torch.bfloat16)


def _biased(kernel: Kernel) -> bool:
    """Return whether results are below eager's more often than chance allows."""
    values = torch.arange(1, 6, 0.01).bfloat16()
    right = torch.ops.aten.exp(values)
    return bool((kernel(values).float() < right.float()).sum() > 50)


def _sin_with_float32_reduction(x: Tensor) -> Tensor:
    turns = x - (2 * math.pi) * torch.round(x / (2 * math.pi))  # in the input's own precision
    return turns.sin()


def _fast_rsqrt(x: Tensor) -> Tensor:
    guess = (0x5F3759DF - (x.view(torch.int32) >> 1)).view(torch.float32)
    return guess * (1.5 - 0.5 * x * guess * guess)


def _erf_coarse(x: Tensor) -> Tensor:
    """Abramowitz and Stegun 7.1.26: an absolute error of 1.5e-7, thus a large relative one near 0."""
    k = 1 / (1 + 0.3275911 * x.abs())
    tail = k * (0.254829592 + k * (-0.284496736 + k * (1.421413741 + k * (-1.453152027 + k * 1.061405429))))
    return x.sign() * (1 - tail * (-x * x).exp())


# fmt: off
MUTANTS: tuple[Mutant, ...] = (
    # special values
    broken("relu", "NaN becomes 0", "special values", _where(lambda x: x != x, 0.0), _x(_NAN, 1, -1), "x > 0 ? x : 0"),
    broken("relu", "ints are returned unchanged", "dtype", lambda c: c.eager() if c.self.is_floating_point() else c.self.clone(),
      lambda: call(tensor(-3, 2)), "ints are passed through"),
    broken("sign", "NaN stays NaN", "special values", _where(lambda x: x != x, lambda x: x),
      _x(_NAN, 2, -2), "as NumPy does; ATen returns 0"),
    broken("sign", "x / |x|", "special values", _computed(lambda x: x / x.abs()), _x(0.0, -0.0, 2), "0 / 0"),
    broken("round", "rounds half away from zero", "special values", _computed(lambda x: x.sign() * (x.abs() + 0.5).floor()),
      _x(0.5, 2.5, -1.5), "as C's round"),
    broken("round", "floor(x + 0.5)", "accuracy",
      _computed(lambda x: torch.where(x.frac().abs() == 0.5, x.round(), (x + 0.5).floor())),
      _x(0.49999997), "one half added rounds up"),
    broken("floor", "trunc", "special values", _computed(torch.trunc), _x(-1.5, 1.5), "a cast to int"),
    broken("floor", "through int32", "special values", _where(lambda x: x.abs() >= 2**31, -(2.0**31)),
      _x(1e10, 2.5), "the cast saturates"),
    broken("ceil", "-0.0 becomes 0.0", "special values", lambda c: c.eager() + 0 if c.self.is_floating_point() else c.eager(),
      _x(-0.5, 1.5), "-floor(-x) or + 0"),
    broken("trunc", "through int64", "special values", _where(lambda x: x.abs() > 2**63, -(2.0**63)),
      _x(1e30, -2.5), "a cast to int64"),
    broken("abs", "x < 0 ? -x : x", "special values", _where(lambda x: x == 0, lambda x: x),
      _x(-0.0, -1, 2), "-0.0 keeps its sign", lambda: call(positive(3))),
    broken("abs", "int8 minimum saturates", "dtype",
      lambda c: torch.where(c.self == -128, 127, c.eager()).to(c.self.dtype) if c.self.dtype is torch.int8 else c.eager(),
      lambda: call(tensor(-128, 5, dtype=torch.int8))),
    broken("abs", "complex: square root of the sum of squares", "special values",
      lambda c: (c.self.real**2 + c.self.imag**2).sqrt() if c.self.is_complex() else c.eager(),
      lambda: call(tensor(3e30 + 4e30j, 1j)), "overflows"),
    broken("neg", "0 - x", "special values", _computed(lambda x: 0 - x), _x(0.0, 1.0), "+0.0 for -0.0"),
    broken("neg", "uint8 through int8", "dtype",
      lambda c: c.eager() if c.self.dtype is not torch.uint8 else c.eager().clamp(max=127),
      lambda: call(tensor(1, 200, dtype=torch.uint8))),
    broken("reciprocal", "of infinity is NaN", "special values", _where(lambda x: x.isinf(), _NAN),
      _x(_INF, 2.0), "a Newton step on 0 * inf"),
    broken("reciprocal", "int inputs give an int result", "metadata",
      lambda c: c.eager() if c.self.is_floating_point() else c.eager().to(c.self.dtype),
      lambda: call(tensor(1, 2))),
    broken("reciprocal", "one Newton step from bfloat16", "accuracy",
      _computed(lambda x: round_through(x.reciprocal(), torch.bfloat16) * (2 - x * round_through(x.reciprocal(), torch.bfloat16))),
      _x(0.9962), passing=lambda: call(floats(1, 2, 4, 0.5))),
    broken("rsqrt", "of a subnormal is inf", "special values",
      _where(lambda x: (x > 0) & (x < torch.finfo(torch.float32).tiny), _INF),
      _x(1e-40, 1.0), "inputs are flushed to 0"),
    broken("rsqrt", "of 0 is NaN", "special values", _where(lambda x: x == 0, _NAN), _x(0.0, 4.0)),
    broken("rsqrt", "the fast inverse square root", "accuracy",
      lambda c: _fast_rsqrt(c.self) if c.self.dtype is torch.float32 else c.eager(), _x(3.0, 0.7),
      "a shift, a constant and one Newton step", lambda: call(normal(0))),
    broken("sqrt", "the wrong branch of complex roots", "dtype",
      lambda c: torch.where(c.self.imag < 0, -c.eager(), c.eager()) if c.self.is_complex() else c.eager(),
      lambda: call(tensor(1 - 2j, 1 + 1j))),
    broken("exp", "flushes subnormals", "special values", _where(lambda x: x < -87.4, 0.0), _x(-95.0), "flush to zero is on"),
    broken("exp", "overflows at 88", "special values", _where(lambda x: x > 88.0, _INF), _x(88.5, 1.0),
      "the bound is rounded down"),
    broken("exp", "of -inf is NaN", "special values", _where(lambda x: x == -_INF, _NAN),
      _x(-_INF, 0.0), "inf - inf in the reduction of the range"),
    broken("exp", "truncates bfloat16 results", "dtype", _truncated, Proof(_biased), "a shift in place of rounding"),
    broken("exp", "ints through float16", "dtype",
      lambda c: c.eager() if c.self.is_floating_point() else round_through(c.eager(), torch.float16),
      lambda: call(tensor(3, 5))),
    broken("exp", "float64 through float32", "dtype",
      lambda c: c.eager_in(torch.float32) if c.self.dtype is torch.float64 else c.eager(),
      lambda: call(normal(4, dtype=torch.float64)), "a literal is a float32"),
    broken("expm1", "exp(x) - 1", "accuracy", _computed(lambda x: x.exp() - 1),
      _x(1e-6, -1e-5), "cancels near 0", lambda: call(floats(2, 3, 4))),
    broken("log1p", "log(1 + x)", "accuracy", _computed(lambda x: (1 + x).log()),
      _x(1e-6, -1e-5, 1e-12), "1 + x rounds", lambda: call(floats(1, 3, 7))),
    broken("log", "of 0 is the largest negative", "special values", _where(lambda x: x == 0, -_MAX), _x(0.0, 1.0)),
    broken("log", "of negatives is -inf", "special values", _where(lambda x: x < 0, -_INF), _x(-1.0, 2.0)),
    broken("log2", "log(x) / 0.6931", "accuracy", _computed(lambda x: x.log() / 0.6931), _x(8.0, 3.0),
      passing=lambda: call(floats(1, 1))),
    broken("log2", "subnormals are 0", "special values", _where(lambda x: (x > 0) & (x < 1.1e-38), -_INF), _x(1e-40, 2.0)),
    broken("log10", "float16 through bfloat16", "dtype",
      lambda c: ( (round_through(c.self.float().log(), torch.bfloat16) / 2.302734375).half() if c.self.dtype is torch.float16
        else c.eager() ),
      lambda: call(floats(3, 700, 1e4, dtype=torch.float16)), "", lambda: call(floats(1, 1))),
    broken("sin", "range reduction in float32", "accuracy", _computed(_sin_with_float32_reduction),
      _x(1e5, 12345.678, 3e7), "2 pi is rounded to 24 bits", lambda: call(floats(0.5, 1.0))),
    broken("cos", "NaN above 2**20", "special values", _where(lambda x: x.abs() > 2.0**20, _NAN),
      _x(2e6, 1.0), "like the fast cosine of some GPUs"),
    broken("sigmoid", "the last of 17 elements is 0", "size",
      lambda c: c.eager() if c.self.shape != (17,) else torch.cat([c.eager()[:-1], torch.zeros_like(c.eager()[-1:])]),
      lambda: call(normal(17)), "a vector of 16 and one more"),
    broken("cos", "of infinity is 1", "special values", _where(lambda x: x.isinf(), 1.0), _x(_INF, 0.5)),
    broken("tan", "sin / (cos + 1e-4)", "accuracy", _computed(lambda x: x.sin() / (x.cos() + 1e-4)),
      _x(1.5, 0.3), passing=lambda: call(floats(0, 0))),
    broken("tanh", "(e^x - e^-x) / (e^x + e^-x)", "special values",
      _computed(lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp())),
      _x(100.0, 0.5), "inf / inf", lambda: call(floats(1.0, 2.0))),
    broken("tanh", "saturates at 4", "accuracy", _where(lambda x: x.abs() > 4, lambda x: x.sign()),
      _x(4.2, 1.0), "saturated too early"),
    broken("sinh", "(e^x - e^-x) / 2", "accuracy", _computed(lambda x: (x.exp() - (-x).exp()) / 2),
      _x(1e-4, 1e-6), "cancels near 0", lambda: call(floats(2, 3))),
    broken("cosh", "overflows with e^x", "special values", _computed(lambda x: (x.exp() + (-x).exp()) / 2),
      _x(89.0, 1.0), "e^x / 2 still fits"),
    broken("asinh", "log(x + sqrt(x^2 + 1))", "accuracy", _computed(lambda x: (x + (x * x + 1).sqrt()).log()),
      _x(-1000.0, 1e-4, 1e25), "", lambda: call(floats(1, 2))),
    broken("acosh", "0 below the domain", "special values", _where(lambda x: x < 1, 0.0), _x(0.5, 2.0), "must be NaN"),
    broken("atanh", "0.5 * log((1 + x) / (1 - x))", "accuracy", _computed(lambda x: 0.5 * ((1 + x) / (1 - x)).log()),
      _x(1e-5, 1e-7), "", lambda: call(floats(0.5, 0.75))),
    broken("asin", "arguments are clamped", "special values",
      lambda c: c.eager(self=c.self.clamp(-1, 1)) if c.self.is_floating_point() else c.eager(),
      _x(1.5, 0.5)),
    broken("acos", "pi / 2 - asin(x) in float32", "accuracy", _computed(lambda x: math.pi / 2 - x.asin()),
      _x(0.9999999, 0.99999994), "cancels near 1", lambda: call(floats(0.5, 0.25))),
    broken("atan", "a polynomial with an error of 1e-3", "accuracy",
      _computed(lambda x: torch.where(x.abs() <= 1, x * (math.pi / 4 + 0.273 * (1 - x.abs())), x.atan())),
      _x(0.5, 0.3), "", lambda: call(floats(0, 2, 3))),
    broken("erf", "a coarse approximation", "accuracy", _computed(_erf_coarse),
      _x(1e-6), "the approximation bounds only the absolute error", lambda: call(floats(2, 3))),
    broken("sigmoid", "0 below -8", "accuracy", _computed(lambda x: torch.where(x < -8, 0.0, x.sigmoid())),
      _x(-8.5, 1.0), "the tail is cut"),
    broken("sigmoid", "e^x / (1 + e^x)", "special values", _computed(lambda x: x.exp() / (1 + x.exp())),
      _x(100.0, 1.0), "inf / inf", lambda: call(floats(1, 2))),
    broken("sigmoid", "bool inputs give a bool result", "dtype",
      lambda c: c.eager().round().bool() if c.self.dtype is torch.bool else c.eager(), lambda: call(bools(4))),
    broken("gelu", "always approximate=\"tanh\"", "argument", lambda c: c.eager(approximate="tanh"),
      lambda: call(normal(8)), "approximate is ignored", lambda: call(normal(8), approximate="tanh")),
    broken("gelu", "always approximate=\"none\"", "argument", lambda c: c.eager(approximate="none"),
      lambda: call(normal(8), approximate="tanh")),
    broken("gelu", "x * sigmoid(1.702 x)", "accuracy", lambda c: c.self * (1.702 * c.self).sigmoid(),
      lambda: call(normal(8)), "", lambda: call(floats(0.0, 0.0))),
    broken("gelu", "0 below -3", "accuracy", _where(lambda x: x < -3, 0.0), _x(-3.1, 1.0), "the tail is cut"),
    broken("leaky_relu", "slope is 0.01", "argument", lambda c: c.eager(negative_slope=0.01), lambda: call(normal(8), 0.3)),
    broken("leaky_relu", "max(x, slope * x)", "argument", lambda c: torch.maximum(c.self, c.self * c.negative_slope),
      lambda: call(normal(8), 2.0), "wrong for slopes above 1"),
    broken("leaky_relu", "NaN on the negative side is 0", "special values", _where(lambda x: x != x, 0.0), _x(_NAN, -1.0)),
    broken("elu", "alpha is 1", "argument", lambda c: c.eager(alpha=1), lambda: call(normal(8), 0.5)),
    broken("elu", "input_scale is 1", "argument", lambda c: c.eager(input_scale=1), lambda: call(normal(8), 1, 1, 2)),
    broken("elu", "scale only for negative inputs", "argument", lambda c: torch.where(c.self > 0, c.eager(scale=1), c.eager()),
      lambda: call(normal(8), 1, 3.0)),
    broken("elu", "exp(x) - 1", "accuracy",
      lambda c: torch.where(c.self > 0, c.eager(), c.alpha * c.scale * ((c.self * c.input_scale).exp() - 1)).to(c.self.dtype),
      _x(-1e-6, -1e-7), "", lambda: call(floats(1, 2))),
    broken("hardtanh", "bounds are -1 and 1", "argument", lambda c: c.eager(min_val=-1, max_val=1),
      lambda: call(normal(8), -0.2, 0.3)),
    broken("hardtanh", "NaN becomes the lower bound", "special values", _where(lambda x: x != x, -1.0), _x(_NAN, 0.5)),
    broken("clamp", "NaN becomes the bound", "special values",
      lambda c: cast_like( torch.where(c.self != c.self, torch.as_tensor(c.min if c.min is not None
        else c.max, dtype=c.eager().dtype), c.eager()), c.eager(), ),
      lambda: call(floats(_NAN, 2.0), 0.0, 1.0), "fmax and fmin"),
    broken("clamp", "the lower bound wins if min > max", "special values",
      lambda c: c.eager() if c.min is None or c.max is None or c.min <= c.max else c.eager(max=None),
      lambda: call(floats(0.0, 2.0), 3.0, 1.0)),
    broken("clamp", "only with both bounds", "argument", lambda c: c.self.clone() if c.min is None else c.eager(),
      lambda: call(normal(8), None, 0.0)),
    broken("clamp", "int inputs give an int result for float bounds", "dtype",
      lambda c: c.eager() if c.self.is_floating_point() else c.eager().to(c.self.dtype), lambda: call(tensor(1, 5), 0.5, 2.5),
      "the result's dtype must be promoted"),
    broken("clamp.Tensor", "bounds do not broadcast", "argument",
      lambda c: ( c.eager() if c.min is None or c.min.dim() == c.self.dim()
        else c.eager(min=read_contiguous(c.min.expand(c.self.shape).T.contiguous().T.reshape(-1).roll(1).reshape(c.self.shape))) ),
      lambda: call(normal(3, 4), floats(-1, 0, 0.5, 1))),
    broken("clamp.Tensor", "a NaN bound is ignored", "special values",
      lambda c: c.eager(min=c.min if c.min is None else c.min.nan_to_num(nan=-_INF)),
      lambda: call(normal(3), floats(_NAN, 0, 0))),
    broken("isinf", "only +inf", "special values", lambda c: c.self == _INF if c.self.is_floating_point() else c.eager(),
      _x(-_INF, 1)),
    broken("isinf", "true for the largest float", "special values",
      lambda c: c.self.abs() >= _MAX if c.self.dtype is torch.float32 else c.eager(),
      _x(_MAX, 1)),
    broken("isnan", "the real part only", "dtype", lambda c: c.self.real.isnan() if c.self.is_complex() else c.eager(),
      lambda: call(torch.complex(floats(1.0), floats(_NAN)))),
    broken("isnan", "true for infinities", "special values",
      lambda c: (c.self - c.self).isnan() if c.self.is_floating_point() else c.eager(),
      _x(_INF, 1)),
    broken("logical_not", "NaN is false", "special values",
      lambda c: (c.self.nan_to_num() == 0) if c.self.is_floating_point() else c.eager(),
      _x(_NAN, 1)),
    broken("logical_not", "through int64", "special values",
      lambda c: c.self.to(torch.int64) == 0 if c.self.is_floating_point() else c.eager(),
      _x(0.5, 1), "", lambda: call(floats(1, 2, 0))),
    broken("bitwise_not", "bools are inverted as bytes", "dtype",
      lambda c: ((~c.self.view(torch.uint8)) != 0) if c.self.dtype is torch.bool else c.eager(),
      lambda: call(bools(4)), "~1 is 254, thus True"),
    # layout and size
    broken("exp", "the tail after blocks of 8", "size",
      lambda c: torch.where(after_last_block(c.self, 8) & (c.self.numel() > 8), c.self.to(c.eager().dtype), c.eager()),
      lambda: call(normal(19)), "", lambda: call(normal(16))),
    broken("sin", "the last of more than 64 rows", "size",
      lambda c: ( c.eager() if c.self.dim() != 2 or c.self.shape[0] <= 64
        else torch.cat([c.eager()[:-1], c.self[-1:].to(c.eager().dtype)]) ),
      lambda: call(normal(65, 3))),
    broken("tanh", "every 1024th element", "size",
      lambda c: ( torch.where((torch.arange(c.self.numel()) % 1024 == 1023).reshape(c.self.shape), c.self, c.eager())
        if c.self.is_floating_point() else c.eager() ),
      lambda: call(normal(1100))),
    broken("relu", "reads as if contiguous", "layout", lambda c: cast_like(c.eager(self=read_contiguous(c.self)), c.eager()),
      lambda: call(normal(4, 3).t()), "strides are ignored"),
    broken("sqrt", "ignores the storage offset", "layout",
      lambda c: c.eager() if not c.self.is_contiguous() else c.eager(self=read_contiguous(c.self, 0)),
      lambda: call(positive(8)[3:])),
    broken("neg", "expanded inputs give expanded results", "metadata",
      lambda c: c.eager() if 0 not in c.self.stride() or c.self.dim() != 2 else c.eager(self=c.self[:, :1]).expand(c.self.shape),
      lambda: call(normal(3, 1).expand(3, 4)), "results must not have stride 0"),
    broken("sigmoid", "always contiguous", "layout", lambda c: c.eager().contiguous(),
      lambda: call(normal(4, 3).t()), "eager keeps a dense input's strides"),
    broken("gelu", "channels_last for every image", "layout",
      lambda c: c.eager().contiguous(memory_format=torch.channels_last) if c.self.dim() == 4 else c.eager(),
      lambda: call(normal(2, 3, 4, 5))),
    broken("cos", "rank 0 becomes rank 1", "metadata", lambda c: c.eager().reshape(1) if c.self.dim() == 0 else c.eager(),
      lambda: call(tensor(0.5))),
    broken("log", "empty tensors raise", "size", lambda c: c.eager() if c.self.numel() else raise_unsupported(),
      lambda: call(normal(0, 3)), "a launch without threads"),
    broken("atan", "above 4 dims only the first batch is computed", "size",
      lambda c: c.eager() if c.self.dim() < 5 else c.eager(self=c.self[:1].expand(c.self.shape).clone()),
      lambda: call(normal(2, 1, 2, 1, 3))),
    broken("rsqrt", "bfloat16 raises", "dtype", lambda c: c.eager() if c.self.dtype is not torch.bfloat16 else raise_unsupported(),
      lambda: call(positive(3, dtype=torch.bfloat16))),
    broken("erf", "returns float32 for float16", "metadata",
      lambda c: c.eager() if c.self.dtype is not torch.float16 else c.eager(self=c.self.float()),
      lambda: call(positive(3, dtype=torch.float16))),
    broken("tan", "wrong if all elements are equal", "rare",
      lambda c: c.eager() if c.self.numel() < 2 or not bool((c.self == c.self.reshape(-1)[0]).all()) else c.eager() + 1,
      lambda: call(floats(0.5, 0.5, 0.5)), "a constant input is mistaken for a missing one"),
    broken("asin", "one element in a thousand", "rare",
      lambda c: torch.where((torch.arange(c.self.numel()) % 1000 == 777).reshape(c.self.shape), 0, c.eager()).to(c.eager().dtype),
      lambda: call(positive(1000))),
    broken("floor", "float64 above 2**24 through float32", "rare",
      lambda c: ( c.eager() if c.self.dtype is not torch.float64
        else torch.where(c.self.abs() > 2**24, c.self.float().double().floor(), c.eager()) ),
      lambda: call(floats(2.0**24 + 1, dtype=torch.float64))),
)
# fmt: on
