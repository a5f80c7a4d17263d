"""Random ops whose parameters are tensors: `bernoulli`, `normal`, `multinomial`, `rrelu`; and `randperm`.

Eager refuses parameters outside the law's domain, so these rules read a reduction of them, as eager does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.generators import drawing_from, takes_generator
from eagerdecomp.eager.messages import no_cast, not_held, not_implemented, scalar_type_name
from eagerdecomp.eager.promotion import HALF, RARE, can_cast, wide_type
from eagerdecomp.eager.strides import inverse, memory_order
from eagerdecomp.rules.rule import Call, Rule, linked, own
from eagerdecomp.rules.writeback import check_overlap, out_writer

__all__ = ["RULES"]
from eagerdecomp.eager.checks.shapes import broadcast_shapes

aten = torch.ops.aten


def _bounds_reader(call: Call) -> Callable[[Tensor], tuple[float, float]]:
    """``bounds(x)``: the least and the greatest element; NaN for both where there is one."""
    least, greatest, item = call(aten.amin.default), call(aten.amax.default), call(aten._local_scalar_dense.default)

    def bounds(x: Tensor) -> tuple[float, float]:
        return item(least(x)), item(greatest(x))

    return bounds


# -- bernoulli ------------------------------------------------------------------------------------------------------------


def _hits(call: Call) -> Callable[..., Tensor]:
    """``hits(p, shape, order, generator)``: true with probability `p`, drawn in the given order of memory."""
    rand, less, permute = call(aten.rand.generator), call(aten.lt.Tensor), call(aten.permute.default)
    bounds = _bounds_reader(call)

    def hits(p: Tensor, shape: Sequence[int], order: Sequence[int], generator: torch.Generator | None) -> Tensor:
        if not p.dtype.is_floating_point and 0 not in shape:
            raise not_implemented("bernoulli_tensor_cpu_p_", p.dtype)
        if p.numel():
            low, high = bounds(p)
            if not (low >= 0 and high <= 1):
                raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
        wide = torch.float64 if p.dtype is torch.float64 else torch.float32
        level: Tensor = rand([shape[dim] for dim in order], generator=generator, dtype=wide, device=p.device)
        if list(order) != sorted(order):
            level = permute(level, inverse(order))
        if not level.numel():
            return level
        hit: Tensor = less(level, p)
        return hit

    return hits


def _bernoulli(call: Call) -> Callable[..., Any]:
    hits, to = _hits(call), call(aten._to_copy.default)

    def run(self: Tensor, *, generator: torch.Generator | None = None) -> Any:
        return to(hits(self, self.shape, range(self.dim()), generator), dtype=self.dtype, memory_format=torch.contiguous_format)

    return run


def _bernoulli_by(call: Call) -> Callable[..., Any]:
    hits, to = _hits(call), call(aten._to_copy.default)

    def run(self: Tensor, p: Tensor, *, generator: torch.Generator | None = None) -> Any:
        if not self.numel():
            return to(self, dtype=self.dtype)
        _check_expands(p, self)
        if self.dtype.is_complex:
            raise not_implemented("bernoulli_tensor_cpu_self_", self.dtype)
        return to(hits(p, self.shape, memory_order(self), generator), dtype=self.dtype)

    return run


def _bernoulli_in_place(call: Call) -> Callable[..., Any]:
    hits, copy_ = _hits(call), call(aten.copy_.default)

    def run(self: Tensor, p: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        check_overlap(self, (p,))
        if not self.numel():
            return self
        _check_expands(p, self)
        if self.dtype.is_complex:
            raise not_implemented("bernoulli_tensor_cpu_self_", self.dtype)
        copy_(self, hits(p, self.shape, memory_order(self), generator))
        return self

    return run


def _bernoulli_out(call: Call) -> Callable[..., Any]:
    """Into a tensor of any type, as eager does, whose `out` is drawn in place."""
    hits, to, write = _hits(call), call(aten._to_copy.default), out_writer(call)

    def run(self: Tensor, *, generator: torch.Generator | None = None, out: Tensor) -> Tensor:
        if out.dtype.is_complex and self.numel():
            raise not_implemented("bernoulli_tensor_cpu_self_", out.dtype)
        order = memory_order(out) if out.shape == self.shape else range(self.dim())
        return write(out, to(hits(self, self.shape, order, generator), dtype=out.dtype), (self,))

    return run


def _check_expands(p: Tensor, to: Tensor) -> None:
    pairs = zip(reversed(p.shape), reversed(to.shape), strict=False)
    if p.dim() > to.dim() or any(size not in (1, wanted) for size, wanted in pairs):
        raise RuntimeError(f"The expanded size of the tensor {list(to.shape)} must match the existing size {list(p.shape)}")


# -- normal ---------------------------------------------------------------------------------------------------------------


def _check_std(call: Call) -> Callable[[Tensor], None]:
    least, item = call(aten.amin.default), call(aten._local_scalar_dense.default)

    def check(std: Tensor) -> None:
        if std.dtype.is_complex:
            raise RuntimeError("normal expects standard deviation to be non-complex")
        if std.numel() and not item(least(std)) >= 0:
            raise RuntimeError("normal expects all elements of std >= 0.0")

    return check


def _noise(call: Call) -> Callable[..., Tensor]:
    """Standard normal noise in the type of `like`; half types in float32, to be rounded once."""
    randn = call(aten.randn.generator)

    def noise(like: Tensor, shape: Sequence[int], generator: torch.Generator | None) -> Tensor:
        dtype = like.dtype
        if not (dtype.is_floating_point or dtype.is_complex or 0 in shape):
            raise not_implemented("normal_kernel_cpu", dtype)
        wide = wide_type(dtype)
        drawn: Tensor = randn(list(shape), generator=generator, dtype=wide, device=like.device)
        return drawn

    return noise


def _rounded(call: Call) -> Callable[[Tensor, torch.dtype], Tensor]:
    to = call(aten._to_copy.default)
    return lambda value, dtype: value if value.dtype is dtype else to(value, dtype=dtype)


def _normal_of_tensors(call: Call) -> Callable[..., Any]:
    noise, check, rounded = _noise(call), _check_std(call), _rounded(call)
    multiply, add = call(aten.mul.Tensor), call(aten.add.Tensor)

    def run(mean: Tensor, std: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        check(std)
        if std.dtype.is_floating_point and not (mean.dtype.is_floating_point or mean.dtype.is_complex) and not mean.numel():
            wanted = f"{scalar_type_name(std.dtype)} can't be cast to the desired output type {scalar_type_name(mean.dtype)}"
            raise RuntimeError(f"result type {wanted}")
        shape = broadcast_shapes(mean.shape, std.shape)
        return rounded(add(multiply(noise(mean, shape, generator), std), mean), mean.dtype)

    return run


def _normal_of_mean(call: Call) -> Callable[..., Any]:
    noise, rounded, multiply, add = _noise(call), _rounded(call), call(aten.mul.Scalar), call(aten.add.Tensor)

    def run(mean: Tensor, std: float = 1.0, *, generator: torch.Generator | None = None) -> Tensor:
        if not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        drawn = noise(mean, mean.shape, generator)
        return rounded(add(multiply(drawn, std) if std != 1 else drawn, mean), mean.dtype)

    return run


def _normal_of_std(call: Call) -> Callable[..., Any]:
    noise, check, rounded = _noise(call), _check_std(call), _rounded(call)
    multiply, add = call(aten.mul.Tensor), call(aten.add.Scalar)

    def run(mean: float, std: Tensor, *, generator: torch.Generator | None = None) -> Tensor:
        check(std)
        drawn = multiply(noise(std, std.shape, generator), std)
        return rounded(add(drawn, mean) if mean != 0 else drawn, std.dtype)

    return run


def _normal_out(call: Call) -> Callable[..., Any]:
    """Eager draws in `out`, of its type, and adds the mean there: with a number for `std` in the shape that `mean` and `out` have
    together."""
    noise, check, rounded, write = _noise(call), _check_std(call), _rounded(call), out_writer(call)
    scale, multiply, add, shift = call(aten.mul.Scalar), call(aten.mul.Tensor), call(aten.add.Tensor), call(aten.add.Scalar)

    def run(mean: Any, std: Any = 1.0, *, generator: torch.Generator | None = None, out: Tensor) -> Tensor:
        if isinstance(std, Tensor):
            check(std)
        elif not std >= 0:
            raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
        shape = broadcast_shapes(mean.shape if isinstance(mean, Tensor) else [], (std if isinstance(std, Tensor) else out).shape)
        drawn = noise(out, shape, generator)
        if isinstance(std, Tensor):
            drawn = multiply(drawn, std)
        elif std != 1:
            drawn = scale(drawn, std)
        drawn = add(drawn, mean) if isinstance(mean, Tensor) else shift(drawn, mean) if mean != 0 else drawn
        if not can_cast(drawn.dtype, out.dtype):
            raise no_cast(drawn.dtype, out.dtype)
        return write(out, rounded(drawn, out.dtype), (mean, std))

    return run


# -- multinomial ----------------------------------------------------------------------------------------------------------


def _multinomial(call: Call) -> Callable[..., Any]:
    bounds, to = _bounds_reader(call), call(aten._to_copy.default)
    total, item = call(aten.sum.dim_IntList), call(aten._local_scalar_dense.default)
    exponential, divide = call(aten.exponential.default), call(aten.div.Tensor)
    argmax, topk, least = call(aten.argmax.default), call(aten.topk.default), call(aten.amin.default)
    rand, cumsum, unsqueeze = call(aten.rand.generator), call(aten.cumsum.default), call(aten.unsqueeze.default)
    select, below = call(aten.select.int), call(aten.le.Tensor)

    def run(self: Tensor, num_samples: int, replacement: bool = False, *, generator: torch.Generator | None = None) -> Any:
        _check_multinomial(self, num_samples, replacement)
        rows = list(self.shape[:-1])
        if self.size(0) == 0:
            return to(rand([*rows, num_samples], generator=None, device=self.device), dtype=torch.int64)
        weights = to(self, dtype=torch.float32) if self.dtype in HALF else self
        low, high = bounds(weights)
        if not (low >= 0 and high < math.inf):
            if replacement and num_samples > 1:
                # Eager names the first such entry, which is not known here: one below zero, or NaN, goes before infinity.
                negative = low < 0 or low != low
                found = "< 0" if negative else "= infinity or NaN"
                raise RuntimeError(f"invalid multinomial distribution (encountering probability entry {found})")
            raise RuntimeError("probability tensor contains either `inf`, `nan` or element < 0")
        if not item(least(total(weights, [-1]))) > 0:
            raise RuntimeError("invalid multinomial distribution (sum of probabilities <= 0)")
        if not replacement or num_samples == 1:
            # The first arrivals of independent Poisson clocks with these rates.
            ahead = divide(weights, exponential(weights, generator=generator))
            return argmax(ahead, -1, True) if num_samples == 1 else topk(ahead, num_samples, -1)[1]
        # How many of the cumulated shares lie at or below a level in [0, 1): a weight of 0 is never met.
        edges = cumsum(weights, -1)
        edges = divide(edges, unsqueeze(select(edges, -1, -1), -1))
        level = rand([*rows, num_samples], generator=generator, dtype=torch.float64, device=weights.device)
        # The last share is 1 exactly, above any level.
        return total(below(unsqueeze(edges, -2), unsqueeze(level, -1)), [-1])

    return run


def _check_multinomial(weights: Tensor, num_samples: int, replacement: bool) -> None:
    if not 1 <= weights.dim() <= 2:
        raise RuntimeError("prob_dist must be 1 or 2 dim")
    if not weights.dtype.is_floating_point:
        found = scalar_type_name(weights.dtype)
        raise RuntimeError(f"multinomial only supports floating-point dtypes for input, got: {found}")
    if num_samples <= 0:
        raise RuntimeError("cannot sample n_sample <= 0 samples")
    if not replacement and num_samples > weights.size(-1):
        raise RuntimeError("cannot sample n_sample > prob_dist.size(-1) samples without replacement")
    if weights.size(-1) > 2**24:
        raise RuntimeError("number of categories cannot exceed 2^24")
    if weights.size(-1) == 0:
        raise RuntimeError("cannot sample from a distribution without categories")


# -- the rest -------------------------------------------------------------------------------------------------------------


def _randint_like(call: Call) -> Callable[..., Any]:
    draw, item = call(aten.randint_like.generator), call(aten._local_scalar_dense.default)

    def run(self: Tensor, high: Tensor, *, generator: torch.Generator | None = None, **options: Any) -> Any:
        if high.dim() or high.device.type != "cpu":
            raise RuntimeError("high must be a scalar tensor and on CPU")
        return draw(self, int(item(high)), generator=generator, **options)

    return run


#: Of what eager asks that it holds all the numbers, in words too.
_MOST = {torch.float16: (2**11 + 1, "2049"), torch.float32: (2**24 + 1, "2^24+1"), torch.float64: (2**53 + 1, "2^53+1")}


def _randperm(n: int, *, dtype: Any = torch.int64, layout: Any = None, device: Any = None, pin_memory: bool | None = None) -> Any:
    """The order of numbers drawn, which are as good as never equal."""
    if layout not in (None, torch.strided) or pin_memory:
        return NotImplemented
    if dtype is torch.bool or dtype in RARE or (dtype is not None and dtype.is_complex):
        raise not_implemented("randperm", dtype)
    if n < 0:
        raise RuntimeError(f"Trying to create tensor with negative dimension {n}: [{n}]")
    if dtype is not None and not dtype.is_floating_point and n - 1 > torch.iinfo(dtype).max:
        raise not_held(dtype)
    if dtype in _MOST and n > _MOST[dtype][0]:
        raise RuntimeError(f"n cannot be greater than {_MOST[dtype][1]} for {scalar_type_name(dtype)} type.")
    drawn = aten.rand.default([n], dtype=torch.float64, device=device)
    order = aten.sort.default(drawn)[1]
    return order if dtype in (None, torch.int64) else aten._to_copy.default(order, dtype=dtype)


def _randperm_by(call: Call) -> Callable[..., Any]:
    randperm = call(aten.randperm.default)

    def run(n: int, *, generator: torch.Generator | None, device: Any = None, **options: Any) -> Any:
        with drawing_from(generator, device):
            return randperm(n, device=device, **options)

    return run


def _rrelu(call: Call, write: Callable[[Tensor, Tensor], Tensor]) -> Callable[..., Any]:
    """Leaky where negative, each with a slope of its own that `noise` keeps; `write` puts the result where it belongs."""
    draw, where, copy_ = call(aten.uniform.default), call(aten.where.self), call(aten.copy_.default)
    nonpositive, full, multiply = call(aten.le.Scalar), call(aten.full.default), call(aten.mul.Tensor)
    leaky = call(aten.leaky_relu.default)

    def run(
        self: Tensor,
        noise: Tensor,
        lower: float = 0.125,
        upper: float = 0.33333333333333331,
        training: bool = False,
        generator: torch.Generator | None = None,
    ) -> Tensor:
        if self.shape != noise.shape:
            raise RuntimeError(
                "noise tensor shape must match self tensor shape. Got "
                f"self.shape = {list(self.shape)}, noise.shape = {list(noise.shape)}"
            )
        if not training:
            return write(self, leaky(self, (lower + upper) / 2))
        if self.dtype is torch.float16 or not self.dtype.is_floating_point:
            raise not_implemented("rrelu_with_noise_out_cpu", self.dtype)
        if noise.dtype is not self.dtype:
            raise RuntimeError(f"expected scalar type {scalar_type_name(self.dtype)} but found {scalar_type_name(noise.dtype)}")
        leaks, one = nonpositive(self, 0), full([], 1.0, dtype=self.dtype, device=self.device)
        if lower <= upper or call(aten._local_scalar_dense.default)(call(aten.any.default)(leaks)):
            slope = where(leaks, draw(self, lower, upper, generator=generator), one)
        else:  # eager's kernel asks for the bounds where it draws alone
            slope = call(aten.expand.default)(one, self.shape)
        copy_(noise, slope)
        return write(self, multiply(self, slope))

    return run


def _rrelu_fresh(call: Call) -> Callable[..., Any]:
    clone = call(aten.clone.default)

    def write(self: Tensor, result: Tensor) -> Tensor:
        return result if result.is_contiguous() else clone(result, memory_format=torch.contiguous_format)

    return _rrelu(call, write)


def _rrelu_in_place(call: Call) -> Callable[..., Any]:
    copy_ = call(aten.copy_.default)

    def write(self: Tensor, result: Tensor) -> Tensor:
        copy_(self, result)
        return self

    return _rrelu(call, write)


RULES: tuple[Rule, ...] = (
    linked(aten.bernoulli.default, _bernoulli, effects=takes_generator),
    linked(aten.bernoulli.Tensor, _bernoulli_by, effects=takes_generator),
    linked(aten.bernoulli_.Tensor, _bernoulli_in_place, effects=takes_generator),
    linked(aten.bernoulli.out, _bernoulli_out, effects=takes_generator),
    *(
        linked(op, _normal_out, effects=takes_generator)
        for op in (aten.normal.Tensor_Tensor_out, aten.normal.Tensor_float_out, aten.normal.float_Tensor_out)
    ),
    linked(aten.normal.Tensor_Tensor, _normal_of_tensors, effects=takes_generator),
    linked(aten.normal.Tensor_float, _normal_of_mean, effects=takes_generator),
    linked(aten.normal.float_Tensor, _normal_of_std, effects=takes_generator),
    linked(aten.multinomial.default, _multinomial, effects=takes_generator),
    linked(aten.randint_like.Tensor, _randint_like, effects=takes_generator),
    linked(aten.randint_like.Tensor_generator, _randint_like, effects=takes_generator),
    own(aten.randperm.default, _randperm),
    linked(aten.randperm.generator, _randperm_by, effects=takes_generator),
    linked(aten.rrelu_with_noise.default, _rrelu_fresh, effects=lambda *args, **kwargs: len(args) > 5 or bool(kwargs)),
    linked(aten.rrelu_with_noise_.default, _rrelu_in_place, effects=lambda *args, **kwargs: len(args) > 5 or bool(kwargs)),
)
