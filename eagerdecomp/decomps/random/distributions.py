"""Random ops, sampled from `rand`, `randn` and `native_dropout`: in-place ops, their functional variants, factories.

Samples are drawn in the memory order of the result, as in eager. The table `eagerdecomp.eager.random_numbers` lists the calls that,
with the kernels of Core ATen, return exactly eager's numbers and leave the generator in eager's state. Others only have the same
distribution: `random_` and `randint` (32 raw bits per number, which `rand` does not expose), `exponential_` in float32 (MKL's
stream), normal numbers in permuted tensors, and most of `log_normal_`.

A ``generator=`` is supported by copying its state to the device's default generator while the kernels draw. Programs do not contain
such calls, because they have side effects.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.random_bits import coin, fine_uniform, random_bits
from eagerdecomp.decomps.random.domains import (
    REAL_OF,
    accepts_bernoulli,
    accepts_cauchy,
    accepts_exponential,
    accepts_geometric,
    accepts_integers,
    accepts_log_normal,
    accepts_normal,
    accepts_uniform,
    last_by_default,
    may_warn,
)
from eagerdecomp.eager.generators import drawing_from, takes_generator
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.eager.scalars import cast_number
from eagerdecomp.eager.strides import in_order, inverse, is_dense, memory_order
from eagerdecomp.rules.link import link_on_call
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_float
from eagerdecomp.rules.writeback import check_overlap

aten = torch.ops.aten

#: ``draw(shape, dtype, device, *parameters)``: contiguous samples, in any dtype that casts to the requested one.
_Draw = Callable[..., Tensor]


# Probabilities closer to 0 or 1 than this are compared with float64 samples, because float32 samples are multiples of 2**-24.
_SMALL = 2.0**-10

# A number within the range of every dtype in which noise is drawn.
_LARGE = 1e38

# Eager computes normal numbers in blocks of this many; a shorter tensor is computed one by one in float64.
_BLOCK = 16


def _draws_or_warns(*args: Any, **kwargs: Any) -> bool:
    return takes_generator(*args, **kwargs) or may_warn(*args, **kwargs)


# -- distributions -------------------------------------------------------------------------------------------------------------


def _wide(dtype: torch.dtype) -> torch.dtype:
    """Return the dtype to compute samples in: float16 and bfloat16 round once, at the end."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _affine(noise: Tensor, scale: float, shift: complex) -> Any:
    """Return ``noise * scale + shift``, rounded once: ATen's addition with `alpha` is a fused multiply-add, as in its samplers."""
    if not (abs(scale) <= _LARGE and abs(shift) <= _LARGE):
        real = noise.dtype.to_real()
        scale = cast_number(scale, real)
        parts = [cast_number(part, real) for part in (shift.real, shift.imag)]
        shift = complex(*parts) if isinstance(shift, complex) else parts[0]
    if shift == 0:
        return noise if scale == 1 else aten.mul.Scalar(noise, scale)
    if scale == 1:
        return aten.add.Scalar(noise, shift)
    return aten.add.Tensor(aten.full.default([], shift, dtype=noise.dtype, device=noise.device), noise, alpha=scale)


def _uniform(shape: Sequence[int], dtype: torch.dtype, device: Any, low: float = 0.0, high: float = 1.0) -> Any:
    real = REAL_OF.get(dtype)
    if real is not None:
        if dtype is torch.complex32:
            aten.full.default(
                [0], 0, dtype=dtype, device=device
            )  # warns of ComplexHalf as eager's allocation does; the views below do not
        return aten.view_as_complex.default(_affine(aten.rand.default([*shape, 2], dtype=real, device=device), high - low, low))
    if dtype not in HALF or (low == 0 and high == 1):
        return _affine(aten.rand.default(shape, dtype=dtype, device=device), high - low, low)
    noise: Tensor = aten._to_copy.default(
        _affine(aten.rand.default(shape, dtype=torch.float32, device=device), high - low, low), dtype=dtype
    )
    if low != high:
        # Rounding may give the upper end, which is not in the range.
        noise = aten.where.self(aten.ge.Scalar(noise, high), aten.full.default([], low, dtype=dtype, device=device), noise)
    return noise


def _normal(shape: Sequence[int], dtype: torch.dtype, device: Any, mean: float = 0.0, std: float = 1.0) -> Any:
    if mean == 0 and std == 1:
        return aten.randn.default(shape, dtype=dtype, device=device)
    wide = dtype
    if dtype.is_floating_point:
        # Draw in the dtype in which eager's sampler computes. If the count is no multiple of a block, draw float16 and bfloat16 in
        # their own dtype: it consumes another number of samples than float32.
        count = math.prod(shape)
        if count < _BLOCK:
            wide = wide_float()
        elif dtype in HALF and count % _BLOCK == 0:
            wide = torch.float32
    noise = aten.randn.default(shape, dtype=wide, device=device)
    if wide in HALF:
        noise = aten._to_copy.default(noise, dtype=torch.float32)
    # Eager draws real and imaginary parts with the same parameters: both have the mean.
    return _affine(noise, std, complex(mean, mean) if dtype.is_complex else mean)


def _bernoulli(shape: Sequence[int], dtype: torch.dtype, device: Any, p: float = 0.5) -> Tensor:
    # `native_dropout` draws eager's mask. Without it, `p` is compared with a `rand` of the dtype of `ones`, which must resolve it.
    coarse = p in (0, 1) or _SMALL <= p <= 1 - _SMALL
    if not coarse and not has_float64():
        return coin(shape, device, p)
    ones = aten.full.default(shape, 1, dtype=torch.float32 if coarse else torch.float64, device=device)
    hit: Tensor = aten.native_dropout.default(ones, 1 - p, True)[1]
    return hit


def _exponential(shape: Sequence[int], dtype: torch.dtype, device: Any, rate: float = 1.0) -> Tensor:
    wide = _wide(dtype)
    # A sample of exactly 0 would give 0, which the distribution excludes. Replace it by half of the smallest step, or in float16 by
    # a number that does not round to 0.
    least = 2.0**-24 if dtype is torch.float16 else torch.finfo(wide).eps / 4
    level = aten.clamp.default(aten.rand.default(shape, dtype=wide, device=device), least)
    drawn: Tensor = aten.mul.Scalar(aten.log1p.default(aten.neg.default(level)), -1.0 / rate)
    return drawn


def _geometric(shape: Sequence[int], dtype: torch.dtype, device: Any, p: float) -> Tensor:
    if not has_float64():
        waited = aten.log1p.default(aten.neg.default(fine_uniform(shape, device)))
        return aten.ceil.default(aten.div.Scalar(waited, math.log1p(-p)))  # type: ignore[no-any-return]
    drawn: Tensor = aten.ceil.default(
        aten.div.Scalar(aten.log.default(aten.rand.default(shape, dtype=torch.float64, device=device)), math.log1p(-p))
    )
    return drawn


def _cauchy(shape: Sequence[int], dtype: torch.dtype, device: Any, median: float = 0.0, sigma: float = 1.0) -> Any:
    if not has_float64():
        return _affine(_cauchy_by_sides(shape, device), sigma, median)
    angle = aten.mul.Scalar(aten.sub.Scalar(aten.rand.default(shape, dtype=torch.float64, device=device), 0.5), math.pi)
    return _affine(aten.tan.default(angle), sigma, median)


@link_on_call
def _cauchy_by_sides(shape: Sequence[int], device: Any) -> Any:
    """Return the magnitude as a cotangent, whose argument resolves the tail, and a random sign."""
    size = aten.reciprocal.default(aten.tan.default(aten.mul.Scalar(fine_uniform(shape, device), math.pi / 2)))
    right = aten.lt.Scalar(aten.rand.default(shape, dtype=torch.float32, device=device), 0.5)
    return aten.where.self(right, size, aten.neg.default(size))


def _log_normal(shape: Sequence[int], dtype: torch.dtype, device: Any, mean: float = 1.0, std: float = 2.0) -> Tensor:
    drawn: Tensor = aten.exp.default(_normal(shape, wide_float(), device, mean, std))
    return drawn


def _below(shape: Sequence[int], device: Any, count: int) -> Tensor:
    """Return float64 numbers from 0 up to `count`, to be rounded down; on a backend without float64, integers.

    For counts up to 2**32, the probability of each integer has a relative error of at most 2**-21.
    """
    if not has_float64():
        return _remainders(shape, device, count)  # type: ignore[no-any-return]
    drawn: Tensor = aten.mul.Scalar(aten.rand.default(shape, dtype=torch.float64, device=device), float(count))
    return drawn


@link_on_call
def _remainders(shape: Sequence[int], device: Any, count: int) -> Any:
    return aten.remainder.Scalar(random_bits(shape, device), count)


def _integers(shape: Sequence[int], dtype: torch.dtype, device: Any, low: int | None = None, high: int | None = None) -> Any:
    """Return integers from `low` up to `high`, exclusive; by default all non-negative integers of the dtype."""
    unbounded = low is None and high is None
    first = low or 0
    last = high - 1 if high is not None else last_by_default(dtype)
    count = last - first + 1
    if count <= 2**32:
        drawn = _below(shape, device, count)
        if first == 0 and not dtype.is_floating_point and dtype is not torch.bool:
            return drawn  # the cast to integers rounds down
        if -(2**52) < first < 2**52 and has_float64():
            drawn = aten.floor.default(drawn)
            return aten.add.Scalar(drawn, float(first)) if first else drawn
        return aten.add.Scalar(aten._to_copy.default(drawn, dtype=torch.int64), first)
    # One draw does not resolve this range: draw 32 low bits and the high bits, in wrapping 64-bit arithmetic.
    upper = -(-count // 2**32)
    drawn = aten.mul.Scalar(aten._to_copy.default(_below(shape, device, upper), dtype=torch.int64), 2**32)
    drawn = aten.add.Tensor(drawn, aten._to_copy.default(_below(shape, device, 2**32), dtype=torch.int64))
    if count % 2**32 and count < 2**63:
        drawn = aten.remainder.Scalar(drawn, count)
    if first and not unbounded:
        drawn = aten.add.Scalar(drawn, first)
    # If the count does not fit in int64, the few draws beyond it (2**-31 of all) become the nearest bound.
    return aten.clamp.default(drawn, first, last) if count % 2**32 and count >= 2**63 else drawn


# -- from distributions to rules ------------------------------------------------------------------------------------------------


def _in_memory_order(draw: _Draw, like: Tensor, order: Sequence[int], dtype: torch.dtype, device: Any, *parameters: Any) -> Tensor:
    """Draw samples in memory order, and return them in the shape of `like`."""
    if all(position == dim for position, dim in enumerate(order)):
        return draw(list(like.shape), dtype, device, *parameters)
    drawn: Tensor = aten.permute.default(draw([like.shape[dim] for dim in order], dtype, device, *parameters), inverse(order))
    return drawn


def _bernoulli_(self: Tensor, p: float = 0.5, *, generator: torch.Generator | None = None) -> Any:
    """Draw eager's mask in the tensor's own dtype if that resolves `p`."""
    dtype = self.dtype
    if (
        generator is None
        and _SMALL <= p <= 1 - _SMALL
        and (dtype is torch.float32 or dtype is torch.float64)
        and self.is_contiguous()
        and self.numel()
    ):
        aten.copy_.default(self, aten.native_dropout.default(self, 1 - p, True)[1])
        return self
    return _bernoulli_in_place(self, p, generator=generator)


def _normal_(self: Tensor, mean: float = 0.0, std: float = 1.0, *, generator: torch.Generator | None = None) -> Any:
    """Draw directly for contiguous float32 and float64 tensors, the common case."""
    dtype = self.dtype
    if generator is None and (dtype is torch.float32 or dtype is torch.float64) and self.is_contiguous():
        if mean == 0 and std == 1:
            aten.copy_.default(self, aten.randn.default(list(self.shape), dtype=dtype, device=self.device))
            return self
        if std >= 0 and self.numel() >= _BLOCK:
            aten.copy_.default(self, _affine(aten.randn.default(list(self.shape), dtype=dtype, device=self.device), std, mean))
            return self
    return _normal_in_place(self, mean, std, generator=generator)


_Accepts = Callable[..., bool]
_Reorder = Callable[..., tuple[Any, ...]]


def _as_given(*parameters: Any) -> tuple[Any, ...]:
    return parameters


def _up_to(high: int) -> tuple[Any, ...]:
    return (0, high)


def _in_place(distribution: _Draw, accepts: _Accepts, reorder: _Reorder = _as_given) -> Callable[..., Any]:
    def draw_in_place(self: Tensor, *parameters: Any, generator: torch.Generator | None = None) -> Any:
        if reorder is not _as_given:
            parameters = reorder(*parameters)
        dtype, count = self.dtype, self.numel()
        if not accepts(dtype, not count, *parameters):
            return NotImplemented
        if generator is None and count and self.is_contiguous():
            aten.copy_.default(self, distribution(list(self.shape), dtype, self.device, *parameters))
            return self
        check_overlap(self, ())
        if count:
            with drawing_from(generator, self.device):
                drawn = _in_memory_order(distribution, self, memory_order(self), dtype, self.device, *parameters)
            aten.copy_.default(self, drawn)
        return self

    return draw_in_place


def _like(distribution: _Draw, accepts: _Accepts, reorder: _Reorder = _as_given, *, contiguous: bool = False) -> Callable[..., Any]:
    """Make the rule that returns samples in the shape of the first argument, with the options of ``*_like``."""

    def draw_like(
        self: Tensor,
        *parameters: Any,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = None,
        device: Any = None,
        memory_format: torch.memory_format | None = None,
        layout: Any = None,
        pin_memory: bool | None = None,
    ) -> Any:
        dtype, device = dtype or self.dtype, self.device if device is None else device
        parameters = reorder(*parameters)
        if not accepts(dtype, not self.numel(), *parameters):
            return NotImplemented
        if not self.numel():
            return aten.full.default(list(self.shape), 0, dtype=dtype, device=device)
        order = list(range(self.dim())) if contiguous else memory_order(self, memory_format)
        with drawing_from(generator, device):
            drawn = _in_memory_order(distribution, self, order, dtype, device, *parameters)
        drawn = drawn if drawn.dtype is dtype else aten._to_copy.default(drawn, dtype=dtype)
        if not contiguous and memory_format in (None, torch.preserve_format):
            want = self.stride() if is_dense(self) else in_order(self.shape, order)
            if drawn.stride() != tuple(want):
                return aten.as_strided.default(drawn, list(drawn.shape), list(want))  # other strides of dimensions of size 1
        return drawn

    return draw_like


def _sized(
    distribution: _Draw, accepts: _Accepts, reorder: _Reorder = _as_given, default: torch.dtype | None = None
) -> Callable[..., Any]:
    """Make the rule of a factory: the distribution's parameters, then the size, then the options of a factory."""

    def draw_sized(
        *given: Any,
        generator: torch.Generator | None = None,
        dtype: torch.dtype | None = default,
        device: Any = None,
        layout: Any = None,
        pin_memory: bool | None = None,
    ) -> Any:
        *first, size = given
        parameters = reorder(*first)
        dtype = dtype or torch.get_default_dtype()
        if not accepts(dtype, 0 in size, *parameters):
            return NotImplemented
        with drawing_from(generator, device):
            drawn = (
                distribution(size, dtype, device, *parameters)
                if 0 not in size
                else aten.full.default(list(size), 0, dtype=dtype, device=device)
            )
        return drawn if drawn.dtype is dtype else aten._to_copy.default(drawn, dtype=dtype)

    return draw_sized


_bernoulli_in_place = _in_place(_bernoulli, accepts_bernoulli)
_normal_in_place = _in_place(_normal, accepts_normal)

_DISTRIBUTIONS: tuple[tuple[str, _Draw, _Accepts], ...] = (
    ("uniform", _uniform, accepts_uniform),
    ("normal", _normal, accepts_normal),
    ("exponential", _exponential, accepts_exponential),
    ("geometric", _geometric, accepts_geometric),
    ("cauchy", _cauchy, accepts_cauchy),
    ("log_normal", _log_normal, accepts_log_normal),
)


for name, distribution, accepts in _DISTRIBUTIONS:
    rule(f"aten.{name}_.default", effects=takes_generator)(_normal_ if name == "normal" else _in_place(distribution, accepts))
    variant = "normal_functional" if name == "normal" else name
    rule(f"aten.{variant}.default", effects=takes_generator)(_like(distribution, accepts))
rule("aten.bernoulli_.float", effects=takes_generator)(_bernoulli_)
rule("aten.bernoulli.p", effects=takes_generator)(_like(_bernoulli, accepts_bernoulli, contiguous=True))
for overload, reorder in (("default", _as_given), ("from", _as_given), ("to", _up_to)):
    rule(f"aten.random_.{overload}", effects=_draws_or_warns)(_in_place(_integers, accepts_integers, reorder))
    rule(f"aten.random.{overload}", effects=_draws_or_warns)(_like(_integers, accepts_integers, reorder))
rule("aten.rand.generator", effects=takes_generator)(_sized(_uniform, accepts_uniform))
rule("aten.randn.generator", effects=takes_generator)(_sized(_normal, accepts_normal))
rule("aten.normal.float_float", effects=takes_generator)(_sized(_normal, accepts_normal))
for op in ("aten.randint.default", "aten.randint.generator"):
    rule(op, effects=_draws_or_warns)(_sized(_integers, accepts_integers, _up_to, torch.int64))
for op in ("aten.randint.low", "aten.randint.low_generator"):
    rule(op, effects=_draws_or_warns)(_sized(_integers, accepts_integers, default=torch.int64))
for op in ("aten.rand_like.default", "aten.rand_like.generator"):
    rule(op, effects=takes_generator)(_like(_uniform, accepts_uniform))
for op in ("aten.randn_like.default", "aten.randn_like.generator"):
    rule(op, effects=takes_generator)(_like(_normal, accepts_normal))
for op in ("aten.randint_like.default", "aten.randint_like.generator"):
    rule(op, effects=_draws_or_warns)(_like(_integers, accepts_integers, _up_to))
for op in ("aten.randint_like.low_dtype", "aten.randint_like.low_generator_dtype"):
    rule(op, effects=_draws_or_warns)(_like(_integers, accepts_integers))
