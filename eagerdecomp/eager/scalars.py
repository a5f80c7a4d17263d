"""Convert Python scalars to the dtypes in which ATen passes them to kernels; decline scalars that these cannot represent."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from eagerdecomp.eager.promotion import floating
from eagerdecomp.eager.verdict import Declined

__all__ = ["HELD", "cast_number", "cast_operand", "held_number", "holding", "holds", "real_number"]


def real_number(value: Any, dtype: torch.dtype) -> Any:
    """Return a scalar as ATen converts it for a dtype: a complex scalar must be real for a real dtype."""
    if not isinstance(value, complex) or dtype.is_complex:
        return value
    if value.imag:
        raise Declined
    if dtype.is_floating_point:
        return value.real
    if not math.isfinite(value.real):
        raise Declined
    return int(value.real)


def holds(dtype: torch.dtype, value: Any) -> bool:
    """Return whether ATen accepts a scalar for a real dtype.

    uint8 accepts negative integers, which wrap around. Floating-point dtypes accept infinity. A symbolic scalar is accepted,
    because reading it would specialize sizes.
    """
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return True
    if isinstance(value, complex):
        if value.imag:
            return False
        value = value.real
    if dtype.is_floating_point:
        return not math.isfinite(value) or abs(value) <= torch.finfo(dtype).max
    bounds = torch.iinfo(dtype)
    least = -bounds.max if dtype is torch.uint8 and isinstance(value, int) else bounds.min
    return bool(least <= value <= bounds.max)


def held_number(value: Any, dtype: torch.dtype) -> Any:
    """Return a scalar converted to a dtype as ATen does: floats are truncated for integer dtypes, complex scalars must be real.

    A symbolic scalar of a suitable kind is returned unchanged.

    Raises:
        Declined: if the dtype cannot represent it.
    """
    if dtype is torch.bool:
        return bool(value)
    if isinstance(value, torch.SymInt) or (isinstance(value, torch.SymFloat) and (dtype.is_floating_point or dtype.is_complex)):
        return value
    if isinstance(value, complex) and value.imag and not dtype.is_complex:
        raise Declined
    value = real_number(value, dtype)
    parts = (value.real, value.imag) if isinstance(value, complex) else (value,)
    if not all(holds(dtype.to_real(), part) for part in parts):
        raise Declined
    return value if dtype.is_floating_point or dtype.is_complex else int(value)


def cast_number(value: float, dtype: torch.dtype) -> float:
    """Cast a number to a floating-point dtype as C++ does: infinite beyond its range."""
    return value if abs(value) <= torch.finfo(dtype).max or value != value else math.copysign(math.inf, value)


def cast_operand(value: Any, dtype: torch.dtype) -> Any:
    """Cast a scalar operand to the dtype of a computation as a wrapped number is cast.

    Integers wrap around, and floats beyond the range are infinite.
    """
    if dtype is torch.bool or isinstance(value, (complex, torch.SymInt, torch.SymFloat)):
        return value
    if dtype.is_floating_point or dtype.is_complex:
        return cast_number(value, dtype.to_real())
    bounds = torch.iinfo(dtype)
    return (int(value) - bounds.min) % (1 << bounds.bits) + bounds.min


class _Held(NamedTuple):
    """A scalar argument and its dtype.

    Attributes:
        name: the argument's name.
        place: its position.
        of: takes the dtype of the op's first tensor, and returns the dtype to which ATen converts the scalar; None if ATen rejects
            the tensor's dtype before that.
    """

    name: str
    place: int
    of: Callable[[torch.dtype], torch.dtype | None]


def _own(dtype: torch.dtype) -> torch.dtype:
    return dtype


def _as_limit(dtype: torch.dtype) -> torch.dtype | None:
    """Return the dtype to which `hardtanh` converts its limits: int64 for integer tensors, to check the signs of the limits."""
    return dtype if dtype.is_floating_point else None if dtype.is_complex else torch.int64


def _of_floats(dtype: torch.dtype) -> torch.dtype | None:
    return dtype if dtype.is_floating_point else None


def _wide_of_floats(dtype: torch.dtype) -> torch.dtype | None:
    return _wide(dtype) if dtype.is_floating_point else None


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype.is_floating_point and dtype.itemsize == 2 else dtype


def _long(dtype: torch.dtype) -> torch.dtype:
    return torch.int64


def _double(dtype: torch.dtype) -> torch.dtype:
    return torch.float64


_SPREAD = {f"aten.{name}.correction": (_Held("correction", 2, _double),) for name in ("std", "var", "std_mean", "var_mean")}
_SLOPES = (_Held("alpha", 1, _wide_of_floats), _Held("scale", 2, _wide_of_floats), _Held("input_scale", 3, _wide_of_floats))

#: op -> its scalar arguments that ATen converts, while rules would accept any scalar.
HELD: dict[str, tuple[_Held, ...]] = {
    **_SPREAD,
    "aten.addmm.default": (_Held("beta", 3, _wide), _Held("alpha", 4, _wide)),
    **{
        f"aten.clamp{side}.default": tuple(_Held(name, place, _of_floats) for place, name in enumerate(names, 1))
        for side, names in (("", ("min", "max")), ("_min", ("min",)), ("_max", ("max",)))
    },
    "aten.celu.default": (_Held("alpha", 1, _double),),
    "aten.elu.default": _SLOPES,
    "aten.elu_backward.default": _SLOPES,
    "aten.hardshrink.default": (_Held("lambd", 1, _of_floats),),
    "aten.hardshrink_backward.default": (_Held("lambd", 2, _of_floats),),
    "aten.hardtanh.default": (_Held("min_val", 1, _as_limit), _Held("max_val", 2, _as_limit)),
    "aten.hardtanh_backward.default": (_Held("min_val", 2, _wide_of_floats), _Held("max_val", 3, _wide_of_floats)),
    "aten.histc.default": (_Held("min", 2, _double), _Held("max", 3, _double)),
    "aten.index_add.default": (_Held("alpha", 4, _own),),
    "aten.index_fill.int_Scalar": (_Held("value", 3, _own),),
    "aten.leaky_relu.default": (_Held("negative_slope", 1, _wide_of_floats),),
    "aten.leaky_relu_backward.default": (_Held("negative_slope", 2, _wide_of_floats),),
    "aten.logit.default": (_Held("eps", 1, floating),),
    "aten.multi_margin_loss.default": (_Held("p", 2, _long), _Held("margin", 3, _of_floats)),
    "aten.multi_margin_loss_backward.default": (_Held("p", 3, _long), _Held("margin", 4, _of_floats)),
    "aten.rrelu_with_noise.default": (_Held("lower", 2, _double), _Held("upper", 3, _double)),
    "aten.rrelu_with_noise_.default": (_Held("lower", 2, _double), _Held("upper", 3, _double)),
    "aten.scatter.value": (_Held("value", 3, _own),),
    "aten.segment_reduce.default": (_Held("initial", 7, _of_floats),),
    "aten.softplus.default": (_Held("beta", 1, _wide_of_floats), _Held("threshold", 2, _wide_of_floats)),
    "aten.softplus_backward.default": (_Held("beta", 2, _wide_of_floats), _Held("threshold", 3, _wide_of_floats)),
    "aten.softshrink.default": (_Held("lambd", 1, _double),),
    "aten.softshrink_backward.default": (_Held("lambd", 2, _of_floats),),
    "aten.threshold.default": (_Held("threshold", 1, _wide), _Held("value", 2, _own)),
    "aten.threshold_backward.default": (_Held("threshold", 2, _wide),),
}

# Every floating-point dtype can represent scalars between these.
_LEAST, _MOST = -6e4, 6e4


def holding(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a rule's function to convert its scalars as eager's kernel does. Return `fn` itself if no argument is converted."""
    held = HELD.get(op)
    if held is None:
        return fn

    def run(*args: Any, **kwargs: Any) -> Any:
        dtype = args[0].dtype
        for name, place, of in held:
            value = args[place] if place < len(args) else kwargs.get(name)
            if (value.__class__ is float or value.__class__ is int) and dtype.is_floating_point and _LEAST < value < _MOST:
                continue
            wanted = of(dtype)
            if value is None or wanted is None:
                continue
            value = held_number(value, wanted)
            if place < len(args):
                args = (*args[:place], value, *args[place + 1 :])
            else:
                kwargs[name] = value
        return fn(*args, **kwargs)

    return run
