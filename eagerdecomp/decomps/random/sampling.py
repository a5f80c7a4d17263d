"""Random ops with tensor parameters: `bernoulli`, `normal`, `multinomial`, `rrelu`; and `randperm`.

Eager refuses parameters outside the distribution's domain, so these rules read a reduction of them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.decomps.math.random_bits import random_bits
from eagerdecomp.decomps.random.domains import accepts_bernoulli
from eagerdecomp.eager.generators import drawing_from, takes_generator
from eagerdecomp.eager.promotion import HALF, can_cast, in_type, wide_type
from eagerdecomp.eager.strides import broadcast_shapes, inverse, memory_order
from eagerdecomp.eager.verdict import Declined
from eagerdecomp.rules.link import link_on_call, ops_on_call
from eagerdecomp.rules.rule import rule
from eagerdecomp.rules.wide_dtype import has_float64, wide_float
from eagerdecomp.rules.writeback import check_overlap, write_out

aten = torch.ops.aten


def _bounds_reader(x: Tensor) -> tuple[float, float]:
    """Return the minimum and the maximum of `x`; both are NaN if any element is."""
    return aten._local_scalar_dense.default(aten.amin.default(x)), aten._local_scalar_dense.default(aten.amax.default(x))


# -- bernoulli ------------------------------------------------------------------------------------------------------------


def _hits(p: Tensor, shape: Sequence[int], order: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Return a mask that is True with probability `p`, sampled in the memory order `order`."""
    if not p.dtype.is_floating_point and 0 not in shape:
        raise Declined
    if p.numel():
        low, high = _bounds_reader(p)
        if not (low >= 0 and high <= 1):
            raise Declined
    wide = torch.float64 if p.dtype is torch.float64 else torch.float32
    level: Tensor = aten.rand.generator([shape[dim] for dim in order], generator=generator, dtype=wide, device=p.device)
    if list(order) != sorted(order):
        level = aten.permute.default(level, inverse(order))
    if not level.numel():
        return level
    hit: Tensor = aten.lt.Tensor(level, p)
    return hit


@rule("aten.bernoulli.default", effects=takes_generator)
def _bernoulli(self: Tensor, *, generator: torch.Generator | None = None) -> Any:
    return aten._to_copy.default(
        _hits(self, self.shape, range(self.dim()), generator), dtype=self.dtype, memory_format=torch.contiguous_format
    )


@rule("aten.bernoulli.Tensor", effects=takes_generator)
def _bernoulli_by(self: Tensor, p: Tensor, *, generator: torch.Generator | None = None) -> Any:
    if not self.numel():
        return aten._to_copy.default(self, dtype=self.dtype)
    if not accepts_bernoulli(self.dtype, False) or not _expands(p, self):
        return NotImplemented
    return aten._to_copy.default(_hits(p, self.shape, memory_order(self), generator), dtype=self.dtype)


@rule("aten.bernoulli_.Tensor", effects=takes_generator)
def _bernoulli_in_place(self: Tensor, p: Tensor, *, generator: torch.Generator | None = None) -> Any:
    check_overlap(self, (p,))
    if not self.numel():
        return self
    if not accepts_bernoulli(self.dtype, False) or not _expands(p, self):
        return NotImplemented
    aten.copy_.default(self, _hits(p, self.shape, memory_order(self), generator))
    return self


@rule("aten.bernoulli.out", effects=takes_generator)
def _bernoulli_out(self: Tensor, *, generator: torch.Generator | None = None, out: Tensor) -> Any:
    """Write to a tensor of any dtype, as eager does: it samples in place in `out`."""
    if not accepts_bernoulli(out.dtype, not self.numel()):
        raise Declined  # the next rule, by the schema, is linked too: after this error, eager is asked first
    order = memory_order(out) if out.shape == self.shape else range(self.dim())
    return write_out(out, aten._to_copy.default(_hits(self, self.shape, order, generator), dtype=out.dtype), (self,))


def _expands(p: Tensor, to: Tensor) -> bool:
    pairs = zip(reversed(p.shape), reversed(to.shape), strict=False)
    return p.dim() <= to.dim() and all(size in (1, wanted) for size, wanted in pairs)


# -- normal ---------------------------------------------------------------------------------------------------------------


def _check_std(std: Any) -> None:
    if isinstance(std, Tensor):
        if std.dtype.is_complex:
            raise Declined
        std = aten._local_scalar_dense.default(aten.amin.default(std)) if std.numel() else 0
    if not std >= 0:
        raise Declined


def _noise(like: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
    """Return standard normal noise in the dtype of `like`; for float16 and bfloat16 in float32, to be rounded once."""
    dtype = like.dtype
    if not (dtype.is_floating_point or dtype.is_complex or 0 in shape):
        raise Declined
    wide = wide_type(dtype)
    drawn: Tensor = aten.randn.generator(list(shape), generator=generator, dtype=wide, device=like.device)
    return drawn


@rule("aten.normal.Tensor_Tensor", effects=takes_generator)
def _normal_of_tensors(mean: Tensor, std: Tensor, *, generator: torch.Generator | None = None) -> Any:
    _check_std(std)
    if std.dtype.is_floating_point and not (mean.dtype.is_floating_point or mean.dtype.is_complex) and not mean.numel():
        return NotImplemented
    shape = broadcast_shapes(mean.shape, std.shape)
    return in_type(aten.add.Tensor(aten.mul.Tensor(_noise(mean, shape, generator), std), mean), mean.dtype)


@rule("aten.normal.Tensor_float", effects=takes_generator)
def _normal_of_mean(mean: Tensor, std: float = 1.0, *, generator: torch.Generator | None = None) -> Any:
    if not std >= 0:
        return NotImplemented
    drawn = _noise(mean, mean.shape, generator)
    return in_type(aten.add.Tensor(aten.mul.Scalar(drawn, std) if std != 1 else drawn, mean), mean.dtype)


@rule("aten.normal.float_Tensor", effects=takes_generator)
def _normal_of_std(mean: float, std: Tensor, *, generator: torch.Generator | None = None) -> Any:
    _check_std(std)
    if not std.numel():  # of any dtype that represents the mean
        return aten.full.default(list(std.shape), mean, dtype=std.dtype, device=std.device)
    drawn = aten.mul.Tensor(_noise(std, std.shape, generator), std)
    return in_type(aten.add.Scalar(drawn, mean) if mean != 0 else drawn, std.dtype)


@rule("aten.normal.Tensor_Tensor_out", "aten.normal.Tensor_float_out", "aten.normal.float_Tensor_out", effects=takes_generator)
def _normal_out(mean: Any, std: Any = 1.0, *, generator: torch.Generator | None = None, out: Tensor) -> Any:
    """Sample in the dtype of `out` and add the mean, as eager does.

    With a scalar `std`, the shape is that to which `mean` and `out` broadcast.
    """
    _check_std(std)
    shape = broadcast_shapes(mean.shape if isinstance(mean, Tensor) else [], (std if isinstance(std, Tensor) else out).shape)
    drawn = _noise(out, shape, generator)
    if isinstance(std, Tensor):
        drawn = aten.mul.Tensor(drawn, std)
    elif std != 1:
        drawn = aten.mul.Scalar(drawn, std)
    drawn = aten.add.Tensor(drawn, mean) if isinstance(mean, Tensor) else aten.add.Scalar(drawn, mean) if mean != 0 else drawn
    if not can_cast(drawn.dtype, out.dtype):
        raise Declined
    return write_out(out, in_type(drawn, out.dtype), (mean, std))


# -- multinomial ----------------------------------------------------------------------------------------------------------

#: Number of classes up to which each sample is compared with all of them: two kernel calls. A search makes six for each bit.
_COMPARED = 64

(_searchsorted,) = ops_on_call("searchsorted.Tensor")


@rule("aten.multinomial.default", effects=takes_generator)
def _multinomial(self: Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None) -> Any:
    classes = self.size(-1)
    if self.dim() not in (1, 2) or not self.dtype.is_floating_point or not 0 < classes <= 2**24:
        return NotImplemented
    if num_samples <= 0 or (num_samples > classes and not replacement):
        return NotImplemented
    rows = list(self.shape[:-1])
    if self.size(0) == 0:
        return aten._to_copy.default(
            aten.rand.generator([*rows, num_samples], generator=None, device=self.device), dtype=torch.int64
        )
    weights = aten._to_copy.default(self, dtype=torch.float32) if self.dtype in HALF else self
    low, high = _bounds_reader(weights)
    if not (low >= 0 and high < math.inf):
        return NotImplemented
    if not aten._local_scalar_dense.default(aten.amin.default(aten.sum.dim_IntList(weights, [-1]))) > 0:
        return NotImplemented
    if not replacement or num_samples == 1:
        # The samples are the first arrivals of independent Poisson processes with these rates.
        ahead = aten.div.Tensor(weights, aten.exponential.default(weights, generator=generator))
        return aten.argmax.default(ahead, -1, True) if num_samples == 1 else aten.topk.default(ahead, num_samples, -1)[1]
    # Count the cumulative probabilities at or below a level in [0, 1): an entry of weight 0 is never chosen.
    edges = aten.cumsum.default(weights, -1)
    edges = aten.div.Tensor(edges, aten.unsqueeze.default(aten.select.int(edges, -1, -1), -1))
    level = aten.rand.generator([*rows, num_samples], generator=generator, dtype=wide_float(), device=weights.device)
    # The last cumulative probability is exactly 1, above any level.
    if classes > _COMPARED:
        return _searchsorted(edges, level, right=True)
    return aten.sum.dim_IntList(aten.le.Tensor(aten.unsqueeze.default(edges, -2), aten.unsqueeze.default(level, -1)), [-1])


# -- the rest -------------------------------------------------------------------------------------------------------------


@rule("aten.randint_like.Tensor", "aten.randint_like.Tensor_generator", effects=takes_generator)
def _randint_like(self: Tensor, high: Tensor, *, generator: torch.Generator | None = None, **options: Any) -> Any:
    if high.dim() or not high.is_cpu:
        return NotImplemented
    return aten.randint_like.generator(self, int(aten._local_scalar_dense.default(high)), generator=generator, **options)


@rule("aten.randperm.default", recorded=True)
def _randperm(n: int, *, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: bool | None = None) -> Any:
    """Return the sort order of random numbers, which are almost surely distinct."""
    if layout not in (None, torch.strided) or pin_memory:
        return NotImplemented
    drawn = aten.rand.default([n], dtype=torch.float64, device=device) if has_float64() else random_bits([n], device)
    order = aten.sort.default(drawn)[1]
    return order if dtype in (None, torch.int64) else aten._to_copy.default(order, dtype=dtype)


@rule("aten.randperm.generator", effects=takes_generator)
def _randperm_by(n: int, *, generator: torch.Generator | None, device: Any = None, **options: Any) -> Any:
    with drawing_from(generator, device):
        return aten.randperm.default(n, device=device, **options)


@link_on_call
def _expanded(one: Tensor, shape: Sequence[int]) -> Any:
    return aten.expand.default(one, shape)


@link_on_call
def _any(bools: Tensor) -> Any:
    return aten._local_scalar_dense.default(aten.any.default(bools))


def _rrelu(
    self: Tensor,
    noise: Tensor,
    lower: float = 0.125,
    upper: float = 0.33333333333333331,
    training: bool = False,
    generator: torch.Generator | None = None,
) -> Any:
    """Apply leaky ReLU with a random slope per negative element. Return the result, and the slopes to save in `noise`."""
    if self.shape != noise.shape:
        raise Declined
    if not training:
        return aten.leaky_relu.default(self, (lower + upper) / 2), None
    if (self.dtype is torch.float16 and self.is_cpu) or not self.dtype.is_floating_point or noise.dtype is not self.dtype:
        raise Declined
    leaks, one = aten.le.Scalar(self, 0), aten.full.default([], 1.0, dtype=self.dtype, device=self.device)
    if lower <= upper or _any(leaks):
        slope = aten.where.self(leaks, aten.uniform.default(self, lower, upper, generator=generator), one)
    else:  # eager's kernel asks for the bounds where it draws alone
        slope = _expanded(one, self.shape)
    return aten.mul.Tensor(self, slope), slope


def _takes_generator_of_rrelu(*args: Any, **kwargs: Any) -> bool:
    return len(args) > 5 or bool(kwargs)


@rule("aten.rrelu_with_noise.default", effects=_takes_generator_of_rrelu)
def _rrelu_with_noise(self: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> Any:
    result, slope = _rrelu(self, noise, *args, **kwargs)
    if slope is not None:
        aten.copy_.default(noise, slope)
    return result


@rule("aten.rrelu_with_noise_.default", effects=_takes_generator_of_rrelu)
def _rrelu_with_noise_(self: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> Any:
    result, slope = _rrelu(self, noise, *args, **kwargs)
    if slope is not None:
        aten.copy_.default(noise, slope)
    return aten.copy_.default(self, result)


@rule("aten.rrelu_with_noise_functional.default", effects=_takes_generator_of_rrelu)
def _rrelu_with_noise_functional(self: Tensor, noise: Tensor, *args: Any, **kwargs: Any) -> Any:
    result, slope = _rrelu(self, noise, *args, **kwargs)
    return result, aten.clone.default(noise) if slope is None else aten.copy.default(noise, slope)
