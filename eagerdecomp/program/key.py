"""Keys: the cache key of a call holds all facts of the call on which a recorded program may depend.

A key has two parts. The fixed part holds:

- scalars, by type and value, so that equal but different values are distinct (``True == 1 == 1.0``, ``-0.0 == 0.0``), and NaN
  equals NaN
- which arguments are None, and which are the same tensor
- layouts (strided, sparse)
- global switches that a rule may read

The other part holds the op's *guards*: Python expressions over its arguments, such as ``self.dtype`` or ``self.shape[0] > 1``, one
for each fact that a rule of the op has read. If these are not known, the guards are all facts of all tensors (`exact_guards`). conj
and neg bits are in no key: calls with such tensors are not recorded (see `runtime`).
"""

from __future__ import annotations

import functools
import itertools
import keyword
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import CodeType
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ambient import ambient_facts, sdp_facts
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.layouts import has_default_strides
from eagerdecomp.ops.schema import Argument, facts_of

__all__ = [
    "Guard",
    "guard",
    "guard_values",
    "exact_guards",
    "has_lazy_bits",
    "key_labels",
    "kind_guards",
    "key_of",
    "key_or_none",
    "parameter_name",
    "program_arguments",
    "reading",
    "shown_fact",
    "has_all_facts_fixed",
]


#: Facts of a tensor that a rule may read, as templates for guards; ``{}`` is the name of the argument.
_FACTS = ("{}.shape", "{}.stride()", "{}.dtype", "{}.device")
_OFFSET = "{}.storage_offset()"


def _scalar_fact(value: Any) -> tuple[Any, ...]:
    """Return the type and value of a scalar; for zeros and NaN the type and text, because ``0.0 == -0.0`` and ``nan != nan``.

    To hash or compare a symbolic scalar would add a guard to its `ShapeEnv`. It is put in a list instead, which makes the key
    unhashable.
    """
    kind = value.__class__
    if kind is float:
        return (kind, value) if value and value == value else (kind, repr(value))
    if kind is int or kind is bool:
        return (kind, value)
    return (kind, repr(value)) if kind is complex else (kind, [value])


def _tensor_fact(value: Any) -> Any:
    """Return all facts of one item of a list of tensors."""
    if value is None:
        return None
    return (value.shape, value.stride(), value.dtype, value.device, value.layout)


def _layout_fact(value: Any) -> Any:
    if value is None:
        return None
    return value.layout if isinstance(value, Tensor) else _scalar_fact(value)  # a Python scalar in place of a tensor


def _same_tensors(values: Sequence[Any]) -> tuple[int, ...]:
    """Return the position of the first occurrence of each tensor, which shows which arguments are the same object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(value), position) for position, value in enumerate(values)])


def _offsets(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple([value.storage_offset() if isinstance(value, Tensor) else None for value in values or ()])


# Global names in the source of a key. They start with an underscore, because ops may have arguments named `id` or `program`.
NAMES: dict[str, Any] = {
    "_isinstance": isinstance,
    "_Tensor": Tensor,
    "_tuple": tuple,
    "_tensor_fact": _tensor_fact,
    "_scalar_fact": _scalar_fact,
    "_same_tensors": _same_tensors,
    "_offsets": _offsets,
    "_has_default_strides": has_default_strides,
    "_any_bits": lambda values: has_lazy_bits(values or ()),
}


def parameter_name(argument: Argument) -> str:
    """Return the name of an argument in the source of a key."""
    return argument.name + "_" if keyword.iskeyword(argument.name) else argument.name


def has_all_facts_fixed(op: OpOverload) -> bool:
    """Return whether the fixed part of the op's keys holds all facts of its tensors; True for ops with lists of tensors."""
    return facts_of(op).takes_tensor_lists


# -- guards ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """An expression over an op's arguments whose value is part of its keys; None if it cannot be evaluated for a call.

    Attributes:
        text: Python source over `parameter_name`s.
        numbers: arguments in the expression that may be a Python scalar instead of a tensor.
        conditions: conditions for evaluation: an argument is not None, or has enough dimensions.
    """

    text: str
    numbers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    def source(self, *, no_numbers: bool = False) -> str:
        """Return the expression with its conditions; with `no_numbers`, without the checks for Python scalars."""
        numbers = () if no_numbers else tuple(f"_isinstance({name}, _Tensor)" for name in self.numbers)
        conditions = " and ".join((*numbers, *self.conditions))
        return f"({self.text} if {conditions} else None)" if conditions else self.text


def reading(op: OpOverload, position: int, template: str) -> Guard:
    """Return the guard for a fact of the tensor argument at a position; `template` has ``{}`` for its name."""
    return guard(op, (position,), template.format(parameter_name(facts_of(op).arguments[position])))


def guard(op: OpOverload, positions: Sequence[int], text: str, *, ranks: Sequence[tuple[int, int]] = ()) -> Guard:
    """Return a guard over the tensor arguments at these positions.

    Args:
        op: the overload.
        positions: positions of the arguments that the expression reads.
        text: the expression.
        ranks: pairs of a position and a dimension that this argument must have for the guard to be evaluated.
    """
    arguments = facts_of(op).arguments
    used = [arguments[position] for position in dict.fromkeys(positions)]
    numbers = tuple(parameter_name(argument) for argument in used if may_be_number(op, argument))
    present = [f"{parameter_name(argument)} is not None" for argument in used if argument.optional]
    deep = [f"{parameter_name(arguments[position])}.dim() > {dim}" for position, dim in dict.fromkeys(ranks)]
    return Guard(text, numbers, (*present, *deep))


@functools.cache
def exact_guards(op: OpOverload, *, offsets: bool = False) -> tuple[Guard, ...]:
    """Return guards for all facts of all tensors, with storage offsets if `offsets`."""
    found: list[Guard] = []
    for position, argument in enumerate(facts_of(op).arguments):
        if not argument.holds_tensors:
            continue
        if argument.is_list:
            found.extend([Guard(f"_offsets({parameter_name(argument)})")] if offsets else [])
            continue
        if not has_all_facts_fixed(op):
            found.extend(reading(op, position, template) for template in _FACTS)
        if offsets:
            found.append(reading(op, position, _OFFSET))
    return tuple(found)


@functools.cache
def kind_guards(op: OpOverload) -> tuple[Guard, ...]:
    """Return guards for the facts of tensors that every program depends on: eager was asked about calls of this kind only."""
    if has_all_facts_fixed(op):
        return ()
    places = [place for place, argument in enumerate(facts_of(op).arguments) if argument.holds_tensors and not argument.is_list]
    return tuple(reading(op, place, fact) for place in places for fact in ("{}.dtype", "{}.dim()", "{}.numel() == 0"))


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<guard>", "eval")


# -- the fixed part ---------------------------------------------------------------------------------------------------------------


def _fact_source(op: OpOverload, argument: Argument, no_numbers: bool) -> str:
    """Return Python source of one argument's part of a key. Its value equals `_fact` of the same argument."""
    name = parameter_name(argument)
    if argument.is_list:
        if argument.kind == "Tensor":
            source = f"_tuple([_tensor_fact(t) for t in {name}])"
        elif argument.kind in ("number", "float"):
            source = f"_tuple([_scalar_fact(v) for v in {name}])"
        else:
            source = f"_tuple({name})"
    elif argument.kind == "Tensor":
        source = f"{name}.layout"
        if may_be_number(op, argument) and not no_numbers:
            source = f"({source} if _isinstance({name}, _Tensor) else _scalar_fact({name}))"
        elif has_all_facts_fixed(op):
            source = f"_tensor_fact({name})"
    elif argument.kind in ("number", "float"):
        source = f"_scalar_fact({name})"
    elif argument.kind == "Generator":
        return f"{name} is None"
    else:
        return name
    return f"(None if {name} is None else {source})" if argument.optional else source


def _fact(op: OpOverload, argument: Argument, value: Any) -> Any:
    if argument.kind == "Generator":
        return value is None
    if value is None:
        return None
    if argument.is_list:
        one = _tensor_fact if argument.kind == "Tensor" else _scalar_fact
        return tuple([one(v) for v in value]) if argument.kind in ("Tensor", "number", "float") else tuple(value)
    if argument.kind == "Tensor":
        return _tensor_fact(value) if has_all_facts_fixed(op) else _layout_fact(value)
    return _scalar_fact(value) if argument.kind in ("number", "float") else value


def may_be_number(op: OpOverload, argument: Argument) -> bool:
    """Return whether an argument may be a Python scalar instead of a tensor: only in pointwise ops with several tensors."""
    if torch.Tag.pointwise not in op.tags or argument.kind != "Tensor" or argument.is_list:
        return False
    return sum(other.holds_tensors for other in facts_of(op).arguments) > 1


def ambient_of(op: OpOverload) -> tuple[Callable[[], Any], ...]:
    """Return functions that read the global switches in the op's keys, such as the default dtype."""
    extra = sdp_facts if facts_of(op).reads_sdp_flags else None
    return ambient_facts() + (extra() if extra is not None else ())


def _tensor_values(op: OpOverload, values: Sequence[Any]) -> list[Any]:
    """Return all tensor arguments in schema order, with lists flattened."""
    flat: list[Any] = []
    for argument, value in zip(facts_of(op).arguments, values, strict=True):
        if argument.holds_tensors:
            flat.extend(value or ()) if argument.is_list else flat.append(value)
    return flat


def key_of(
    op: OpOverload, values: Sequence[Any], guards: Sequence[Guard] | None = None, known: Mapping[Guard, Any] | None = None
) -> Any:
    """Return the key of a call. It is unhashable if the call has a symbolic size.

    Args:
        op: the overload.
        values: all arguments in schema order.
        guards: the guards; by default `exact_guards`.
        known: values of guards that need not be evaluated again.

    Raises:
        TypeError: for a sparse tensor, which has no strides.
    """
    arguments = facts_of(op).arguments
    tensors = _tensor_values(op, values)
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.layout is not torch.strided:
            raise TypeError(f"a {tensor.layout} tensor has no key")
    parts = [_fact(op, argument, value) for argument, value in zip(arguments, values, strict=True)]
    if facts_of(op).takes_tensor_lists:
        parts.append(_same_tensors(tensors))
    else:
        parts.extend(left is right for left, right in itertools.combinations(tensors, 2))
    parts.extend(read() for read in ambient_of(op))
    if guards is None:  # same as `exact_guards`, without compiling their text
        if not has_all_facts_fixed(op):
            parts.extend(fact for tensor in tensors for fact in _facts_of_one(tensor))
        return tuple(parts)
    known = known or {}
    named = {parameter_name(argument): value for argument, value in zip(arguments, values, strict=True)}
    parts.extend(known[one] if one in known else _read(one, named) for one in guards)
    return tuple(parts)


def key_labels(op: OpOverload, guards: Sequence[Guard]) -> tuple[str, ...]:
    """Return a description of each part of a key with these guards."""
    arguments = facts_of(op).arguments
    labels = [
        f"{parameter_name(one)}.layout" if one.holds_tensors and not has_all_facts_fixed(op) else parameter_name(one)
        for one in arguments
    ]
    if facts_of(op).takes_tensor_lists:
        labels.append("which tensors are the same")
    else:
        tensors = [parameter_name(one) for one in arguments if one.holds_tensors]
        labels.extend(f"{left} is {right}" for left, right in itertools.combinations(tensors, 2))
    labels.extend(read.__name__.strip("_") for read in ambient_of(op))
    return (*labels, *(one.text for one in guards))


def guard_values(op: OpOverload, values: Sequence[Any], guards: Iterable[Guard]) -> dict[Guard, Any]:
    """Evaluate the given guards and `exact_guards` for a call. Do this before a rule runs, because it may resize arguments."""
    arguments = facts_of(op).arguments
    facts: list[Any] = []
    for argument, value in zip(arguments, values, strict=True):
        if argument.holds_tensors and argument.is_list:
            facts.append(_offsets(value))
        elif argument.holds_tensors:
            facts.extend(() if has_all_facts_fixed(op) else _facts_of_one(value))
            facts.append(value.storage_offset() if isinstance(value, Tensor) else None)
    found = dict(zip(exact_guards(op, offsets=True), facts, strict=True))
    named = {parameter_name(argument): value for argument, value in zip(arguments, values, strict=True)}
    found.update((one, _read(one, named)) for one in guards if one not in found)
    return found


def _read(one: Guard, named: dict[str, Any]) -> Any:
    """Return the value of a guard; None if it cannot be evaluated (a Python scalar in place of a tensor, or ``n % 0``)."""
    try:
        return eval(_compiled(one.source()), NAMES, named)
    except (AttributeError, ZeroDivisionError):
        return None


def _facts_of_one(value: Any) -> tuple[Any, ...]:
    if not isinstance(value, Tensor):
        return (None,) * len(_FACTS)
    return (value.shape, value.stride(), value.dtype, value.device)


def key_or_none(
    op: OpOverload, values: Sequence[Any], guards: Sequence[Guard] | None = None, known: Mapping[Guard, Any] | None = None
) -> Any:
    """Return `key_of` the call; None if the call has a symbolic size, which cannot be hashed, or a sparse tensor."""
    try:
        key = key_of(op, values, guards, known)
        hash(key)
    except TypeError:
        return None
    return key


def program_arguments(op: OpOverload, values: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments that a program takes: tensors and generators. All others are part of the key."""
    arguments = facts_of(op).arguments
    return tuple(v for a, v in zip(arguments, values, strict=True) if a.holds_tensors or a.kind == "Generator")


def key_source(op: OpOverload, guards: Sequence[Guard], *, no_numbers: bool) -> str:
    """Return Python source of the items of a key, in the order of `key_of`."""
    facts = facts_of(op)
    tensors = [argument for argument in facts.arguments if argument.holds_tensors]
    parts = [_fact_source(op, argument, no_numbers) for argument in facts.arguments]
    if facts.takes_tensor_lists:
        spread = ", ".join(f"*({parameter_name(a)} or ())" if a.is_list else parameter_name(a) for a in tensors)
        parts.append(f"_same_tensors([{spread}])")
    else:
        parts.extend(f"{parameter_name(left)} is {parameter_name(right)}" for left, right in itertools.combinations(tensors, 2))
    parts.extend(f"_ambient{number}()" for number, _ in enumerate(ambient_of(op)))
    parts.extend(one.source(no_numbers=no_numbers) for one in guards)
    return "".join(f"{part}, " for part in parts)


def has_lazy_bits(values: Iterable[Any]) -> bool:
    """Return whether a tensor among the arguments, or in a list of them, has a conj, neg or zero-tensor bit."""
    for value in values:
        if isinstance(value, Tensor):
            if value.is_conj() or value.is_neg() or value._is_zerotensor():
                return True
        elif isinstance(value, (list, tuple)) and has_lazy_bits(value):
            return True
    return False


def shown_fact(fact: Any) -> str:
    """Return a fact of a key as text for display; scalars are shown without their type."""
    if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[0], type):
        return fact[1] if isinstance(fact[1], str) else repr(fact[1])
    return repr(fact)
