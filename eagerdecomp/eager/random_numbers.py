"""The calls of decomposed random ops that draw the same random numbers as eager.

Two calls draw the same numbers if, from the same generator state, they return the same values up to rounding and leave the same
state. This was measured on the CPU against plain eager; `tests/eager/test_random_numbers.py` measures it again. An op that is not
listed may draw other numbers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, op_called
from eagerdecomp.eager.promotion import HALF
from eagerdecomp.eager.strides import memory_order
from eagerdecomp.ops.schema import facts_of

__all__ = ["RandomCall", "SameNumbers", "draws_numbers", "same_numbers"]

#: Whether a call draws eager's numbers; takes its arguments.
_Where: TypeAlias = Callable[..., bool]

#: Whether a call of an op draws eager's numbers; takes its arguments, its keyword arguments and its result.
SameNumbers: TypeAlias = Callable[[Sequence[Any], Mapping[str, Any], Any], bool]

# Eager draws normal variates in blocks of this many, and fewer than that one by one.
_BLOCK = 16


@dataclass(frozen=True)
class RandomCall:
    """How one random op draws.

    Attributes:
        draws_by: the op whose kernel draws the numbers.
        where: returns for the op's arguments whether they are eager's numbers; None if they always are.
    """

    draws_by: OpOverload
    where: _Where | None = None


def _in_order(like: Tensor, memory_format: torch.memory_format | None = None) -> bool:
    """Return whether a result like `like` is contiguous."""
    return all(place == dim for place, dim in enumerate(memory_order(like, memory_format)))


def _normal_in_place(self: Tensor, *parameters: Any, **options: Any) -> bool:
    """Return whether eager draws as the decomposition does: both fill contiguous tensors in blocks, and small ones one by one."""
    return self.numel() * (1 + self.is_complex()) < _BLOCK or self.is_contiguous()


def _normal_like(
    self: Tensor, *parameters: Any, memory_format: torch.memory_format | None = None, dtype: Any = None, **options: Any
) -> bool:
    complex_valued = (dtype or self.dtype).is_complex
    return self.numel() * (1 + complex_valued) < _BLOCK or _in_order(self, memory_format)


def _normal_by_tensors(first: Any, second: Any = 1.0, *rest: Any, **options: Any) -> bool:
    """Return whether the numbers fill whole blocks. Eager draws a remainder after the last block again, in the tensor's dtype."""
    given = [one for one in (first, second) if isinstance(one, Tensor)]
    if not any(one.dtype in HALF for one in given):
        return True
    count = int(torch.broadcast_shapes(*(one.shape for one in given)).numel())  # type: ignore[no-untyped-call]
    return count < _BLOCK or count % _BLOCK == 0


def _few(self: Tensor, *parameters: Any, **options: Any) -> bool:
    return self.numel() < _BLOCK


def _in_float64(self: Tensor, *parameters: Any, **options: Any) -> bool:
    return self.dtype is torch.float64


_RAND, _RANDN, _RANDPERM = op_called("aten.rand.default"), op_called("aten.randn.default"), op_called("aten.randperm.default")
_MASK, _BERNOULLI = op_called("aten.native_dropout.default"), op_called("aten.bernoulli_.float")

_UNIFORM = ("uniform", "uniform_", "rand", "rand_like", "geometric", "geometric_", "cauchy", "cauchy_")
_DROPOUTS = ("dropout", "alpha_dropout", "feature_dropout", "feature_alpha_dropout")
_WITH_DROPOUT = (
    *(name for one in _DROPOUTS for name in (one, f"{one}_")),
    *("lstm", "gru", "rnn_relu", "rnn_tanh"),
    *("scaled_dot_product_attention", "_scaled_dot_product_attention_math"),
)


def _facts() -> Iterator[tuple[str, RandomCall]]:
    yield from ((name, RandomCall(_RAND)) for name in _UNIFORM)
    yield from ((name, RandomCall(_RAND)) for name in ("bernoulli", "bernoulli_"))
    yield from ((name, RandomCall(_MASK)) for name in ("bernoulli.p", "bernoulli_.float"))
    yield from ((name, RandomCall(_BERNOULLI)) for name in _WITH_DROPOUT)
    yield "randn", RandomCall(_RANDN)
    yield "randperm", RandomCall(_RANDPERM)
    yield "normal_", RandomCall(_RANDN, _normal_in_place)
    yield from ((name, RandomCall(_RANDN, _normal_like)) for name in ("normal_functional", "randn_like"))
    yield "normal", RandomCall(_RANDN, _normal_by_tensors)
    yield from ((name, RandomCall(_RANDN)) for name in ("normal.float_float", "normal.float_float_out"))
    yield from ((name, RandomCall(_RANDN, _few)) for name in ("log_normal", "log_normal_"))
    yield from ((name, RandomCall(_RAND, _in_float64)) for name in ("exponential", "exponential_"))
    # float32 weights differ. With replacement, rounding of the cumulative sum may select another index. Without, the numbers are
    # drawn by `exponential_`.
    yield "multinomial", RandomCall(_RAND, _in_float64)


# Arguments with which a call draws nothing if they are False -> whether it also draws nothing if they are 0.
_IDLE = {"train": False, "training": False, "dropout": True, "dropout_p": True}

#: Packet, or overload if overloads differ -> how it draws.
FACTS: Mapping[str, RandomCall] = dict(_facts())


def fact_of(op: OpOverload) -> RandomCall | None:
    """Return the fact about a random op, or None if its numbers are not known to be eager's."""
    namespace, _, packet = op._schema.name.partition("::")
    if namespace != "aten":
        return None
    return FACTS.get(f"{packet}.{op._overloadname}") or FACTS.get(packet)


def same_numbers(op: OpOverload, in_set: Callable[[OpOverload], bool], by_user: Callable[[OpOverload], bool]) -> SameNumbers | None:
    """Return a function that decides for each call of a decomposed random op whether it draws eager's numbers; None if all do.

    Args:
        op: the random op.
        in_set: whether a kernel of the set ran the calls of an op.
        by_user: whether a user's rule decomposes an op.
    """
    known = fact_of(op) if _draws_by_the_set(op, in_set, by_user) else None
    if known is not None and known.where is None and not facts_of(op).is_out:
        return None
    where = known.where if known is not None else None
    facts = facts_of(op)
    idle = _idle_arguments(op)

    def same(args: Sequence[Any], kwargs: Mapping[str, Any], result: Any) -> bool:
        if _is_idle(idle, args, kwargs):
            return True
        if not any(map(Tensor.numel, _tensors(result))):
            return True
        if known is None:
            return False
        if facts.is_out:
            # Eager draws in the memory order of `out`.
            kwargs = dict(kwargs)
            if not kwargs.pop("out").is_contiguous():
                return False
        return where is None or where(*args, **kwargs)

    return same


def draws_numbers(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether a call may draw random numbers: its op is random, and no argument such as ``p=0`` turns this off."""
    return facts_of(op).is_random and not _is_idle(_idle_arguments(op), args, kwargs)


@functools.cache
def _idle_arguments(op: OpOverload) -> tuple[tuple[int, str, Any, bool], ...]:
    """Return the arguments of an op with which it may draw nothing: position, name, default, and whether 0 turns drawing off."""
    arguments = enumerate(facts_of(op).arguments)
    return tuple((place, one.name, one.default, _IDLE[one.name]) for place, one in arguments if one.name in _IDLE)


def _is_idle(idle: Sequence[tuple[int, str, Any, bool]], args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    for place, name, default, where_zero in idle:
        value = args[place] if place < len(args) else kwargs.get(name, default)
        if value is False or (where_zero and value == 0):
            return True
    return False


def _draws_by_the_set(op: OpOverload, in_set: Callable[[OpOverload], bool], by_user: Callable[[OpOverload], bool]) -> bool:
    """Return whether library rules decompose an op until a kernel of the set draws its numbers."""
    known = fact_of(op)
    if known is None or by_user(op):
        return False
    if in_set(known.draws_by):
        return True
    return known.draws_by is not op and _draws_by_the_set(known.draws_by, in_set, by_user)


def _tensors(result: Any) -> Iterator[Tensor]:
    if isinstance(result, Tensor):
        yield result
    elif isinstance(result, (list, tuple)):
        for one in result:
            yield from _tensors(one)
