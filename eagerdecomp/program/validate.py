"""Calls and answers held to the schemas of their ops, by tables: what stands where, how many, and made by whom.

Torch itself says no to much of this, but not to all: it takes any integer for a dtype, unlooked at.
"""

from __future__ import annotations

import functools
from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.ops.schema import Argument, facts_of, kind_of
from eagerdecomp.program.symbolic_sizes import Expression

__all__ = ["LITERALS", "Made", "answer_fault", "call_fault", "take_parameters"]

_NUMBERS = (int, float, bool)

#: What may stand in the place of a kind of the schema, besides values that were made and sizes: what torch takes there, less what
#: it takes unlooked at.
LITERALS: dict[str, tuple[type, ...]] = {
    "Tensor": (),
    "Generator": (),
    "int": (int, bool),
    "bool": (bool, int),
    "float": _NUMBERS,
    "number": (*_NUMBERS, complex),
    "str": (str,),
    "ScalarType": (torch.dtype,),
    "Device": (torch.device, str),
    "Layout": (torch.layout,),
    "MemoryFormat": (torch.memory_format,),
}

#: Ops of which torch lets the first or the second argument, tensors by the schema, be a number; in place, the second.
TAKE_NUMBERS = frozenset(
    f"aten::{name}" for name in ("add", "div", "divide", "floor_divide", "mul", "multiply", "sub", "subtract", "true_divide")
)

#: An argument's position where no positional one reaches it.
_BY_NAME = 1 << 10


@dataclass
class Made:
    """The slots that a program has made at one point of it: all, among them some that nothing may read, and those of two kinds."""

    every: set[Hashable] = field(default_factory=set)
    tensors: set[Hashable] = field(default_factory=set)
    generators: set[Hashable] = field(default_factory=set)

    def take(self, slot: Hashable) -> bool:
        """Take in a new tensor; False where the slot is not new."""
        if slot in self.every:
            return False
        self.every.add(slot)
        self.tensors.add(slot)
        return True


class _Place(NamedTuple):
    """What may stand for one argument, or for one value answered."""

    name: str
    kind: str
    literals: frozenset[type]
    optional: bool
    is_list: bool
    optional_items: bool
    #: one integer may stand for a list of them
    alone: bool


class _Signature(NamedTuple):
    positional: tuple[_Place, ...]
    named: dict[str, _Place]
    #: position and name of each argument without a default
    required: tuple[tuple[int, str], ...]
    returns: tuple[_Place, ...]


@functools.cache
def _signature(op: OpOverload) -> _Signature:
    schema = op._schema
    numbers = range(2) if schema.name in TAKE_NUMBERS else range(1, 2 if schema.name.removesuffix("_") in TAKE_NUMBERS else 1)
    places = [_place(one, "number" if index in numbers else "") for index, one in enumerate(schema.arguments)]
    both = list(zip(schema.arguments, places, strict=True))
    return _Signature(
        tuple(place for one, place in both if not one.kwarg_only),
        {one.name: place for one, place in both},
        tuple(
            (_BY_NAME if one.kwarg_only else index, one.name) for index, (one, _) in enumerate(both) if not one.has_default_value()
        ),
        tuple(_place(one) for one in schema.returns),
    )


def _place(one: Any, besides: str = "") -> _Place:
    kind, optional, is_list, optional_items = kind_of(str(one.real_type))
    alone = is_list and one.N is not None and kind == "int"
    literals = frozenset(LITERALS.get(besides or kind, ()))
    return _Place(one.name, kind, literals, optional, is_list, optional_items, alone)


def call_fault(
    op: OpOverload,
    args: Sequence[Any],
    kwargs: Sequence[tuple[Any, Any]],
    results: Sequence[Hashable | None],
    packed: bool,
    made: Made,
) -> str:
    """Why a call is none that the op's schema knows, of values that were made before it; or "", and what it makes is made."""
    positional, named, required, returns = _signature(op)
    count = len(args)
    if count > len(positional):
        return f"{op} takes no {count} positional arguments"
    for place, value in zip(positional, args, strict=False):
        if not _fits(place, value, made):
            return f"{str(value)[:80]!r} is no {place.name} of {op}"
    names = set()
    for name, value in kwargs:
        if type(name) is not str or name not in named:
            return f"{op} takes no {str(name)[:80]!r}"
        if not _fits(named[name], value, made):
            return f"{str(value)[:80]!r} is no {name} of {op}"
        names.add(name)
    if len(names) < len(kwargs) or (names and any(place.name in names for place in positional[:count])):
        return f"an argument of {op} is given twice"
    for position, name in required:
        if position >= count and name not in names:
            return f"{op} is given no {name}"
    if not _are_results(returns, results, packed, made):
        return f"{list(results)} are not the results of {op}, as tensors that are new"
    return ""


def _are_results(returns: tuple[_Place, ...], results: Sequence[Hashable | None], packed: bool, made: Made) -> bool:
    if len(returns) == 1:
        is_list = returns[0].is_list
        kinds = [returns[0].kind] * len(results)
        right = packed is is_list and (is_list or len(results) == 1)
    else:  # the value of an op that returns nothing is None
        kinds = ["" if one.is_list else one.kind for one in returns] or [""]
        right = packed is bool(returns) and len(results) == len(kinds)
    return right and all(slot is None or (kind == "Tensor" and made.take(slot)) for kind, slot in zip(kinds, results, strict=True))


def take_parameters(op: OpOverload, parameters: Sequence[Any], made: Made) -> bool:
    """Take in the tensors and generators that an op is given; False where these are not what it is given.

    A slot alone where there may be a list stands for None: nothing may read it.
    """
    taken = [argument for argument in facts_of(op).arguments if argument.kind in ("Tensor", "Generator")]
    if len(taken) != len(parameters) or not all(map(_take, taken, parameters, [made] * len(taken))):
        return False
    return made.tensors.isdisjoint(made.generators)


def _take(argument: Argument, parameter: Any, made: Made) -> bool:
    if type(parameter) is list and not argument.is_list:
        return False
    kind = made.tensors if argument.kind == "Tensor" else made.generators
    if type(parameter) is list:
        kind.update(parameter)
        made.every.update(parameter)
    else:
        made.every.add(parameter)
        if not argument.is_list:
            kind.add(parameter)
    return True


def answer_fault(op: OpOverload, result: Any, made: Made) -> str:
    """Why a value is none that the op returns, of values that were made; or ""."""
    returns = _signature(op).returns
    if len(returns) == 1:
        right = _is_answer(returns[0], result, made)
    elif returns:
        right = type(result) in (tuple, list) and len(result) == len(returns)
        right = right and all(_is_answer(place, value, made) for place, value in zip(returns, result, strict=True))
    else:
        right = result is None
    return "" if right else f"{str(result)[:80]!r} is not what {op} answers"


def _is_answer(place: _Place, value: Any, made: Made) -> bool:
    if value is None and place.kind == "Tensor" and not place.is_list:  # undefined, as gradients are that nobody asked for
        return True
    return _fits(place, value, made)


def _fits(place: _Place, value: Any, made: Made) -> bool:
    if value is None:
        return place.optional
    if not place.is_list:
        return _is_one(place, value, made)
    if type(value) in (tuple, list):
        return all(_is_one(place, item, made) if item is not None else place.optional_items for item in value)
    return place.alone and _is_one(place, value, made)


def _is_one(place: _Place, value: Any, made: Made) -> bool:
    kind = type(value)
    if kind in place.literals:
        if kind is int:
            return bool(-(1 << 63) <= value < 1 << (64 if place.kind == "number" else 63))
        return kind is not str or place.kind != "Device" or _is_device(value)
    if kind is Expression:
        return _is_size(place, value) and all(leaf in made.tensors for leaf in value.leaves())
    if kind in (tuple, list):
        return False
    if place.kind == "Tensor":
        return value in made.tensors
    return place.kind == "Generator" and value in made.generators


def _is_size(place: _Place, size: Expression) -> bool:
    return size.is_integer if place.kind == "int" else float in place.literals


@functools.lru_cache(64)
def _is_device(text: str) -> bool:
    try:
        torch.device(text)
    except RuntimeError:
        return False
    return True
