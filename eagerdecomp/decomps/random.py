"""Random ops by their laws, drawn from `rand` and `randn`: the in-place laws, their functional twins, and the ``rand*`` makers.

Each law draws in the order in which its result lies in memory, as eager does, so that the ops whose eager kernel is a scaled `rand`
or `randn` (`uniform_`, `normal_`, their kin) follow eager's own stream; the others follow the law. A ``generator=`` is honoured by
lending its state to the device's default generator while the kernels draw: such calls have effects and are part of no program.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload
from eagerdecomp.generators import drawing_from, takes_generator
from eagerdecomp.rules import Call, Rule, linked
from eagerdecomp.strides import inverse, memory_order
from eagerdecomp.writeback import check_overlap, not_implemented, scalar_type_name

__all__ = ["RULES"]

aten = torch.ops.aten

#: ``draw(shape, dtype, device, *parameters)``: a contiguous tensor of the law, in any dtype that casts to the asked one.
_Draw = Callable[..., Tensor]
_Law = Callable[[Call], _Draw]

_HALF = (torch.bfloat16, torch.float16)
_REAL_OF = {torch.complex32: torch.float16, torch.complex64: torch.float32, torch.complex128: torch.float64}
_CPP_NAMES = {
    torch.float32: "float",
    torch.float64: "double",
    torch.float16: "c10::Half",
    torch.bfloat16: "c10::BFloat16",
    torch.uint8: "unsigned char",
    torch.int8: "signed char",
    torch.int16: "short",
    torch.int32: "int",
    torch.int64: "long int",
    torch.bool: "bool",
}
#: Up to here a floating type holds every integer.
_WHOLE_UP_TO = {torch.float32: 2**24, torch.float64: 2**53, torch.float16: 2**11, torch.bfloat16: 2**8}

# Probabilities nearer to 0 or 1 than this are compared with a double: a float32 draw has steps of 2**-24.
_SMALL = 2.0**-10


def _drawn(op: OpOverload, link: Callable[[Call], Callable[..., Any]]) -> Rule:
    return linked(op, link, effects=takes_generator)


# -- checks: eager's, with its messages -----------------------------------------------------------------------------------


def _check_uniform(dtype: torch.dtype, empty: bool, low: float = 0.0, high: float = 1.0) -> None:
    real = _REAL_OF.get(dtype, dtype)
    if not real.is_floating_point:
        raise not_implemented("check_uniform_bounds", dtype)
    largest = torch.finfo(real).max
    for name, bound in (("from", low), ("to", high)):
        if not -largest <= bound <= largest:
            raise RuntimeError(f"{name} is out of bounds for {_CPP_NAMES[real]}")
    if not low <= high:
        raise RuntimeError(f"uniform_ expects to return a [from, to) range, but found from={low:g} > to={high:g}")
    if not high - low <= largest:
        raise RuntimeError(
            f"uniform_ expects to-from <= std::numeric_limits<{scalar_type_name(real)}>::max(), but found to={high:g} and "
            f"from={low:g} which result in to-from to exceed the limit"
        )


def _check_normal(dtype: torch.dtype, empty: bool, mean: float = 0.0, std: float = 1.0) -> None:
    if not std >= 0:
        raise RuntimeError(f"normal expects std >= 0.0, but found std {std:g}")
    if not empty and not (dtype.is_floating_point or dtype.is_complex):
        raise not_implemented("normal_kernel_cpu", dtype)


def _check_bernoulli(dtype: torch.dtype, empty: bool, p: float = 0.5) -> None:
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
    if not empty and dtype.is_complex:
        raise not_implemented("bernoulli_scalar_cpu_", dtype)


def _check_exponential(dtype: torch.dtype, empty: bool, rate: float = 1.0) -> None:
    if not rate > 0:
        raise RuntimeError(f"exponential_ expects lambda > 0.0, but found lambda={rate:g}")
    if not empty and not dtype.is_floating_point:
        raise RuntimeError(
            "Exponential distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + scalar_type_name(dtype)
        )


def _check_geometric(dtype: torch.dtype, empty: bool, p: float) -> None:
    if not 0 < p < 1:
        raise RuntimeError(f"geometric_ expects p to be in (0, 1), but got p={p:g}")
    if not empty and (dtype.is_complex or dtype is torch.bool):
        raise not_implemented("geometric_cpu", dtype)


def _check_cauchy(dtype: torch.dtype, empty: bool, median: float = 0.0, sigma: float = 1.0) -> None:
    if not sigma > 0:
        raise RuntimeError(f"cauchy_ expects sigma > 0.0, but found sigma={sigma:g}")
    if not dtype.is_floating_point:
        raise RuntimeError(
            "Cauchy distribution is a continuous probability distribution. dtype must be a floating point but you specified "
            + _CPP_NAMES.get(dtype, scalar_type_name(dtype))
        )


def _check_log_normal(dtype: torch.dtype, empty: bool, mean: float = 1.0, std: float = 2.0) -> None:
    if not std > 0:
        raise RuntimeError(f"log_normal_ expects std > 0.0, but found std={std:g}")
    if not empty and not dtype.is_floating_point:
        raise not_implemented("log_normal_cpu", dtype)


def _range_of(dtype: torch.dtype) -> tuple[int, int]:
    """The integers that a type can hold at all, lowest and highest."""
    if dtype is torch.bool:
        return 0, 1
    if dtype.is_floating_point:
        largest = int(torch.finfo(dtype).max)
        return -largest, largest
    bounds = torch.iinfo(dtype)
    return bounds.min, bounds.max


def _check_random(dtype: torch.dtype, empty: bool, low: int | None = None, high: int | None = None) -> None:
    if low is None and high is None:
        if not empty and (dtype.is_complex or dtype in (torch.uint16, torch.uint32, torch.uint64)):
            raise not_implemented("random_kernel_cpu", dtype)
        return
    if dtype.is_complex:
        raise RuntimeError("check_random_bounds handles only integral, floating-point and boolean types")
    first, last = low or 0, (high - 1 if high is not None else _last_by_default(dtype))
    if first > last:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={first} >= to={last + 1}")
    lowest, highest = _range_of(dtype)
    for name, bound in (("from", first), ("to - 1", last)):
        if not lowest <= bound <= highest:
            raise RuntimeError(f"{name} is out of bounds for {_CPP_NAMES.get(dtype, scalar_type_name(dtype))}")


def _last_by_default(dtype: torch.dtype) -> int:
    return _WHOLE_UP_TO[dtype] if dtype.is_floating_point else _range_of(dtype)[1]


# -- laws -----------------------------------------------------------------------------------------------------------------


def _wide(dtype: torch.dtype) -> torch.dtype:
    """The type a law is computed in: half types round once, at the end."""
    return torch.float64 if dtype is torch.float64 else torch.float32


def _uniform(call: Call) -> _Draw:
    rand, multiply, add, to = call(aten.rand.default), call(aten.mul.Scalar), call(aten.add.Scalar), call(aten._to_copy.default)
    as_complex = call(aten.view_as_complex.default)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, low: float = 0.0, high: float = 1.0) -> Tensor:
        real = _REAL_OF.get(dtype)
        noise: Tensor = rand(shape if real is None else [*shape, 2], dtype=real or dtype, device=device)
        if low != 0 or high != 1:
            if noise.dtype in _HALF and real is None:
                noise = to(noise, dtype=torch.float32)
            noise = multiply(noise, high - low)
            if low != 0:
                noise = add(noise, low)
        return noise if real is None else as_complex(noise)

    return draw


def _normal(call: Call) -> _Draw:
    randn, multiply, add, to = call(aten.randn.default), call(aten.mul.Scalar), call(aten.add.Scalar), call(aten._to_copy.default)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, mean: float = 0.0, std: float = 1.0) -> Tensor:
        noise: Tensor = randn(shape, dtype=dtype, device=device)
        if noise.dtype in _HALF and (mean != 0 or std != 1):
            noise = to(noise, dtype=torch.float32)
        if std != 1:
            noise = multiply(noise, std)
        return add(noise, mean) if mean != 0 else noise

    return draw


def _bernoulli(call: Call) -> _Draw:
    rand, less = call(aten.rand.default), call(aten.lt.Scalar)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, p: float = 0.5) -> Tensor:
        coarse = p in (0, 1) or _SMALL <= p <= 1 - _SMALL
        hit: Tensor = less(rand(shape, dtype=torch.float32 if coarse else torch.float64, device=device), p)
        return hit

    return draw


def _exponential(call: Call) -> _Draw:
    rand, clamp, negate = call(aten.rand.default), call(aten.clamp.default), call(aten.neg.default)
    log1p, multiply = call(aten.log1p.default), call(aten.mul.Scalar)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, rate: float = 1.0) -> Tensor:
        wide = _wide(dtype)
        # A draw of exactly 0 would give 0, outside the law's support: half of the smallest step stands for it.
        level = clamp(rand(shape, dtype=wide, device=device), torch.finfo(wide).eps / 4)
        drawn: Tensor = multiply(log1p(negate(level)), -1.0 / rate)
        return drawn

    return draw


def _geometric(call: Call) -> _Draw:
    rand, negate, log1p = call(aten.rand.default), call(aten.neg.default), call(aten.log1p.default)
    divide, ceil, clamp = call(aten.div.Scalar), call(aten.ceil.default), call(aten.clamp.default)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, p: float) -> Tensor:
        wide = torch.float32 if p >= _SMALL and dtype is not torch.float64 else torch.float64
        logs = log1p(negate(rand(shape, dtype=wide, device=device)))
        drawn: Tensor = clamp(ceil(divide(logs, math.log1p(-p))), 1)
        return drawn

    return draw


def _cauchy(call: Call) -> _Draw:
    rand, shift, scale = call(aten.rand.default), call(aten.sub.Scalar), call(aten.mul.Scalar)
    tangent, add = call(aten.tan.default), call(aten.add.Scalar)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, median: float = 0.0, sigma: float = 1.0) -> Tensor:
        angle = scale(shift(rand(shape, dtype=_wide(dtype), device=device), 0.5), math.pi)
        drawn: Tensor = add(scale(tangent(angle), sigma), median)
        return drawn

    return draw


def _log_normal(call: Call) -> _Draw:
    normal, exp = _normal(call), call(aten.exp.default)

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, mean: float = 1.0, std: float = 2.0) -> Tensor:
        drawn: Tensor = exp(normal(shape, _wide(dtype), device, mean, std))
        return drawn

    return draw


def _integers(call: Call) -> _Draw:
    """Integers from `low` up to `high`, without it; by default all that the type can count."""
    rand, multiply, floor = call(aten.rand.default), call(aten.mul.Scalar), call(aten.floor.default)
    to, add, plus = call(aten._to_copy.default), call(aten.add.Scalar), call(aten.add.Tensor)
    remainder, clamp = call(aten.remainder.Scalar), call(aten.clamp.default)

    def below(shape: Sequence[int], device: Any, count: int) -> Tensor:
        """From 0 up to `count`, to be rounded down. Up to 2**32 no integer's chance is off by more than a part in 2**21."""
        drawn: Tensor = multiply(rand(shape, dtype=torch.float64, device=device), float(count))
        return drawn

    def draw(shape: Sequence[int], dtype: torch.dtype, device: Any, low: int | None = None, high: int | None = None) -> Any:
        unbounded = low is None and high is None
        first = low or 0
        last = high - 1 if high is not None else _last_by_default(dtype)
        count = last - first + 1
        if count <= 2**32:
            drawn = below(shape, device, count)
            if first == 0 and not dtype.is_floating_point and dtype is not torch.bool:
                return drawn  # the cast to integers rounds down
            if -(2**52) < first < 2**52:
                drawn = floor(drawn)
                return add(drawn, float(first)) if first else drawn
            return add(to(drawn, dtype=torch.int64), first)
        # More than one draw resolves: 32 low bits below the high ones, in wrapping 64-bit arithmetic.
        upper = -(-count // 2**32)
        drawn = multiply(to(below(shape, device, upper), dtype=torch.int64), 2**32)
        drawn = plus(drawn, to(below(shape, device, 2**32), dtype=torch.int64))
        if count % 2**32 and count < 2**63:
            drawn = remainder(drawn, count)
        if first and not unbounded:
            drawn = add(drawn, first)
        # Where the count itself does not fit, the few draws beyond it (2**-31 of all) go to the nearest bound.
        return clamp(drawn, first, last) if count % 2**32 and count >= 2**63 else drawn

    return draw


# -- from laws to rules ---------------------------------------------------------------------------------------------------


def _laid_out(call: Call, draw: _Draw) -> Callable[..., Tensor]:
    """``run(like, order, dtype, *parameters)``: drawn in memory order, answered in the shape of `like`."""
    permute = call(aten.permute.default)

    def run(like: Tensor, order: Sequence[int], dtype: torch.dtype, device: Any, *parameters: Any) -> Tensor:
        if all(position == dim for position, dim in enumerate(order)):
            return draw(list(like.shape), dtype, device, *parameters)
        drawn: Tensor = permute(draw([like.shape[dim] for dim in order], dtype, device, *parameters), inverse(order))
        return drawn

    return run


_Check = Callable[..., None]
_Reorder = Callable[..., tuple[Any, ...]]


def _as_given(*parameters: Any) -> tuple[Any, ...]:
    return parameters


def _up_to(high: int) -> tuple[Any, ...]:
    return (0, high)


def _in_place(law: _Law, check: _Check, reorder: _Reorder = _as_given) -> Callable[[Call], Callable[..., Any]]:
    def link(call: Call) -> Callable[..., Any]:
        copy_, draw = call(aten.copy_.default), _laid_out(call, law(call))

        def run(self: Tensor, *parameters: Any, generator: torch.Generator | None = None) -> Tensor:
            parameters = reorder(*parameters)
            check(self.dtype, not self.numel(), *parameters)
            check_overlap(self, ())
            if self.numel():
                with drawing_from(generator, self.device):
                    drawn = draw(self, memory_order(self), self.dtype, self.device, *parameters)
                copy_(self, drawn)
            return self

        return run

    return link


def _like(
    law: _Law, check: _Check, reorder: _Reorder = _as_given, *, contiguous: bool = False
) -> Callable[[Call], Callable[..., Any]]:
    """A new tensor of the law in the shape of the first argument; the options are those of ``*_like``."""

    def link(call: Call) -> Callable[..., Any]:
        to, full, draw = call(aten._to_copy.default), call(aten.full.default), _laid_out(call, law(call))

        def run(
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
            check(dtype, not self.numel(), *parameters)
            if not self.numel():
                return full(list(self.shape), 0, dtype=dtype, device=device)
            order = list(range(self.dim())) if contiguous else memory_order(self, memory_format)
            with drawing_from(generator, device):
                drawn = draw(self, order, dtype, device, *parameters)
            return drawn if drawn.dtype is dtype else to(drawn, dtype=dtype)

        return run

    return link


def _sized(law: _Law, check: _Check, reorder: _Reorder = _as_given) -> Callable[[Call], Callable[..., Any]]:
    """A new tensor of the law: the parameters, then the size, then the options of a maker of tensors."""

    def link(call: Call) -> Callable[..., Any]:
        to, draw = call(aten._to_copy.default), law(call)

        def run(
            *given: Any,
            generator: torch.Generator | None = None,
            dtype: torch.dtype | None = None,
            device: Any = None,
            layout: Any = None,
            pin_memory: bool | None = None,
        ) -> Tensor:
            *first, size = given
            parameters = reorder(*first)
            # Of the makers only randint has integer parameters, and its own default type.
            dtype = dtype or (torch.int64 if law is _integers else torch.get_default_dtype())
            check(dtype, 0 in size, *parameters)
            with drawing_from(generator, device):
                drawn = draw(size, dtype, device, *parameters)
            return drawn if drawn.dtype is dtype else to(drawn, dtype=dtype)

        return run

    return link


_LAWS: tuple[tuple[str, _Law, _Check], ...] = (
    ("uniform", _uniform, _check_uniform),
    ("normal", _normal, _check_normal),
    ("exponential", _exponential, _check_exponential),
    ("geometric", _geometric, _check_geometric),
    ("cauchy", _cauchy, _check_cauchy),
    ("log_normal", _log_normal, _check_log_normal),
)


def _rules() -> Iterator[Rule]:
    for name, law, check in _LAWS:
        yield _drawn(getattr(aten, f"{name}_").default, _in_place(law, check))
        twin = aten.normal_functional if name == "normal" else getattr(aten, name)
        yield _drawn(twin.default, _like(law, check))
    yield _drawn(aten.bernoulli_.float, _in_place(_bernoulli, _check_bernoulli))
    yield _drawn(aten.bernoulli.p, _like(_bernoulli, _check_bernoulli, contiguous=True))
    for overload, reorder in (("default", _as_given), ("from", _as_given), ("to", _up_to)):
        yield _drawn(getattr(aten.random_, overload), _in_place(_integers, _check_random, reorder))
        yield _drawn(getattr(aten.random, overload), _like(_integers, _check_random, reorder))
    yield _drawn(aten.rand.generator, _sized(_uniform, _check_uniform))
    yield _drawn(aten.randn.generator, _sized(_normal, _check_normal))
    yield _drawn(aten.normal.float_float, _sized(_normal, _check_normal))
    for op in (aten.randint.default, aten.randint.generator):
        yield _drawn(op, _sized(_integers, _check_random, _up_to))
    for op in (aten.randint.low, aten.randint.low_generator):
        yield _drawn(op, _sized(_integers, _check_random))
    for op in (aten.rand_like.default, aten.rand_like.generator):
        yield _drawn(op, _like(_uniform, _check_uniform))
    for op in (aten.randn_like.default, aten.randn_like.generator):
        yield _drawn(op, _like(_normal, _check_normal))
    for op in (aten.randint_like.default, aten.randint_like.generator):
        yield _drawn(op, _like(_integers, _check_random, _up_to))
    for op in (aten.randint_like.low_dtype, aten.randint_like.low_generator_dtype):
        yield _drawn(op, _like(_integers, _check_random))


RULES: tuple[Rule, ...] = tuple(_rules())
