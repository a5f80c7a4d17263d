"""Keys: the facts of one call that a recorded program may depend on, and the function that reads them for one op.

A key has two parts. The fixed part holds what is no tensor (each scalar by type and value, distinct where Python's equality does
not: ``True == 1 == 1.0``, ``-0.0 == 0.0``, NaN), which arguments are absent, which are the same tensor, layouts, and the ambient
switches a rule may read. The other part is the op's *guards*: Python expressions over its arguments, such as ``self.dtype`` or
``self.shape[0] > 1``, one for each fact that some rule of the op was seen to read. Where that is not known it is every
fact of every tensor (`exact_guards`). conj and neg bits are in no key: calls that bring one are not recorded (see `runtime`).
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
from eagerdecomp.ops.schema import Argument, facts_of

__all__ = [
    "Guard",
    "guard",
    "guard_values",
    "exact_guards",
    "has_lazy_bits",
    "key_labels",
    "key_of",
    "key_or_none",
    "parameter_name",
    "program_arguments",
    "reading",
    "shown_fact",
    "whole_facts",
]


#: What a rule may read of a tensor; a guard's text is the template with the argument's name.
_FACTS = ("{}.shape", "{}.stride()", "{}.dtype", "{}.device")
_OFFSET = "{}.storage_offset()"


def _scalar_fact(value: Any) -> tuple[Any, ...]:
    """A scalar by type and value; by text where equal values differ (zeros by sign) or equal ones compare unequal (NaN).

    A symbolic number is asked nothing: to hash or compare one would fix its value. It stands in a list, so that it has no key.
    """
    kind = value.__class__
    if kind is float:
        return (kind, value) if value and value == value else (kind, repr(value))
    if kind is int or kind is bool:
        return (kind, value)
    return (kind, repr(value)) if kind is complex else (kind, [value])


def _tensor_fact(value: Any) -> Any:
    """All facts of one item of a list of tensors."""
    if value is None:
        return None
    return (value.shape, value.stride(), value.dtype, value.device, value.layout)


def _layout_fact(value: Any) -> Any:
    if value is None:
        return None
    return value.layout if isinstance(value, Tensor) else _scalar_fact(value)  # a wrapped number: it stands in a tensor's place


def _same_tensors(values: Sequence[Any]) -> tuple[int, ...]:
    """For each tensor the position of its first occurrence: which arguments are one object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(value), position) for position, value in enumerate(values)])


def _offsets(values: Sequence[Any] | None) -> tuple[Any, ...]:
    return tuple([value.storage_offset() if isinstance(value, Tensor) else None for value in values or ()])


# What a key's source calls. Our own names start with an underscore: a custom op may call its arguments `id`, `program` or `cold`.
NAMES: dict[str, Any] = {
    "_isinstance": isinstance,
    "_Tensor": Tensor,
    "_tuple": tuple,
    "_tensor_fact": _tensor_fact,
    "_scalar_fact": _scalar_fact,
    "_same_tensors": _same_tensors,
    "_offsets": _offsets,
    "_any_bits": lambda values: has_lazy_bits(values or ()),
}


def parameter_name(argument: Argument) -> str:
    """The name of an argument in a key's source."""
    return argument.name + "_" if keyword.iskeyword(argument.name) else argument.name


def whole_facts(op: OpOverload) -> bool:
    """Whether keys of the op hold every fact of its tensors in their fixed part: those that take lists of tensors."""
    return _has_tensor_list(op)


# -- guards ----------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Guard:
    """An expression over an op's arguments that its keys hold; None where it has no meaning for a call.

    Attributes:
        text: Python source over `parameter_name`s.
        numbers: of the arguments in it, those in whose place a number may stand.
        conditions: what must hold besides: an argument is there, and of enough dimensions.
    """

    text: str
    numbers: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()

    def source(self, *, no_numbers: bool = False) -> str:
        """The expression with its conditions; without those on numbers where it is known that there are none."""
        numbers = () if no_numbers else tuple(f"_isinstance({name}, _Tensor)" for name in self.numbers)
        conditions = " and ".join((*numbers, *self.conditions))
        return f"({self.text} if {conditions} else None)" if conditions else self.text


def reading(op: OpOverload, position: int, template: str) -> Guard:
    """The guard that reads a fact of the tensor argument at a position; `template` holds ``{}`` for its name."""
    return guard(op, (position,), template.format(parameter_name(facts_of(op).arguments[position])))


def guard(op: OpOverload, positions: Sequence[int], text: str, *, ranks: Sequence[tuple[int, int]] = ()) -> Guard:
    """A guard over the tensor arguments at these positions, for calls in which the first of each pair of `ranks` has more
    dimensions than the second says."""
    arguments = facts_of(op).arguments
    used = [arguments[position] for position in dict.fromkeys(positions)]
    numbers = tuple(parameter_name(argument) for argument in used if may_be_number(op, argument))
    present = [f"{parameter_name(argument)} is not None" for argument in used if argument.optional]
    deep = [f"{parameter_name(arguments[position])}.dim() > {dim}" for position, dim in dict.fromkeys(ranks)]
    return Guard(text, numbers, (*present, *deep))


@functools.cache
def exact_guards(op: OpOverload, *, offsets: bool = False) -> tuple[Guard, ...]:
    """The guards that hold every fact of every tensor that a rule may read; storage offsets where asked for."""
    found: list[Guard] = []
    for position, argument in enumerate(facts_of(op).arguments):
        if not argument.holds_tensors:
            continue
        if argument.is_list:
            found.extend([Guard(f"_offsets({parameter_name(argument)})")] if offsets else [])
            continue
        if not whole_facts(op):
            found.extend(reading(op, position, template) for template in _FACTS)
        if offsets:
            found.append(reading(op, position, _OFFSET))
    return tuple(found)


@functools.cache
def _compiled(text: str) -> CodeType:
    return compile(text, "<guard>", "eval")


# -- the fixed part ---------------------------------------------------------------------------------------------------------------


def _fact_source(op: OpOverload, argument: Argument, no_numbers: bool) -> str:
    """Python source that reads one argument's part of a key. Its value equals `_fact` of the same argument."""
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
        elif whole_facts(op):
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
        return _tensor_fact(value) if whole_facts(op) else _layout_fact(value)
    return _scalar_fact(value) if argument.kind in ("number", "float") else value


def may_be_number(op: OpOverload, argument: Argument) -> bool:
    """Only in a pointwise op of several tensors does a Python number come in a tensor's place."""
    if torch.Tag.pointwise not in op.tags or argument.kind != "Tensor" or argument.is_list:
        return False
    return sum(other.holds_tensors for other in facts_of(op).arguments) > 1


def ambient_of(op: OpOverload) -> tuple[Callable[[], Any], ...]:
    extra = sdp_facts if facts_of(op).reads_sdp_flags else None
    return ambient_facts() + (extra() if extra is not None else ())


def _tensor_values(op: OpOverload, values: Sequence[Any]) -> list[Any]:
    """Every tensor-typed argument, lists spread out, in schema order."""
    flat: list[Any] = []
    for argument, value in zip(facts_of(op).arguments, values, strict=True):
        if argument.holds_tensors:
            flat.extend(value or ()) if argument.is_list else flat.append(value)
    return flat


def key_of(
    op: OpOverload, values: Sequence[Any], guards: Sequence[Guard] | None = None, known: Mapping[Guard, Any] | None = None
) -> Any:
    """The key of a call, given all the op's arguments in schema order; by default with `exact_guards`. Values of guards that are
    known already are not read again. Unhashable where a symbolic size is among them.

    Raises:
        TypeError: for a sparse tensor, which has no strides.
    """
    arguments = facts_of(op).arguments
    tensors = _tensor_values(op, values)
    for tensor in tensors:
        if isinstance(tensor, Tensor) and tensor.layout is not torch.strided:
            raise TypeError(f"a {tensor.layout} tensor has no key")
    parts = [_fact(op, argument, value) for argument, value in zip(arguments, values, strict=True)]
    if _has_tensor_list(op):
        parts.append(_same_tensors(tensors))
    else:
        parts.extend(left is right for left, right in itertools.combinations(tensors, 2))
    parts.extend(read() for read in ambient_of(op))
    if guards is None:  # as `exact_guards`, whose text need not be compiled for this
        if not whole_facts(op):
            parts.extend(fact for tensor in tensors for fact in _facts_of_one(tensor))
        return tuple(parts)
    known = known or {}
    named = {parameter_name(argument): value for argument, value in zip(arguments, values, strict=True)}
    parts.extend(known[one] if one in known else _read(one, named) for one in guards)
    return tuple(parts)


def key_labels(op: OpOverload, guards: Sequence[Guard]) -> tuple[str, ...]:
    """A description of each part of a key with these guards."""
    arguments = facts_of(op).arguments
    labels = [
        f"{parameter_name(one)}.layout" if one.holds_tensors and not whole_facts(op) else parameter_name(one) for one in arguments
    ]
    if _has_tensor_list(op):
        labels.append("which tensors are the same")
    else:
        tensors = [parameter_name(one) for one in arguments if one.holds_tensors]
        labels.extend(f"{left} is {right}" for left, right in itertools.combinations(tensors, 2))
    labels.extend(read.__name__.strip("_") for read in ambient_of(op))
    return (*labels, *(one.text for one in guards))


def guard_values(op: OpOverload, values: Sequence[Any], guards: Iterable[Guard]) -> dict[Guard, Any]:
    """Evaluate the given guards, and the full guard set, for one call. Read before a rule runs: it may resize arguments."""
    arguments = facts_of(op).arguments
    facts: list[Any] = []
    for argument, value in zip(arguments, values, strict=True):
        if argument.holds_tensors and argument.is_list:
            facts.append(_offsets(value))
        elif argument.holds_tensors:
            facts.extend(() if whole_facts(op) else _facts_of_one(value))
            facts.append(value.storage_offset() if isinstance(value, Tensor) else None)
    found = dict(zip(exact_guards(op, offsets=True), facts, strict=True))
    named = {parameter_name(argument): value for argument, value in zip(arguments, values, strict=True)}
    found.update((one, _read(one, named)) for one in guards if one not in found)
    return found


def _read(one: Guard, named: dict[str, Any]) -> Any:
    """A guard's value; None where it has none: for a number in a tensor's place, which the fixed part holds, or ``n % 0``."""
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
    """`key_of` where the call has a key; None where it holds a symbolic size, which has no hash, or a sparse tensor."""
    try:
        key = key_of(op, values, guards, known)
        hash(key)
    except TypeError:
        return None
    return key


def _has_tensor_list(op: OpOverload) -> bool:
    return any(argument.holds_tensors and argument.is_list for argument in facts_of(op).arguments)


def program_arguments(op: OpOverload, values: Sequence[Any]) -> tuple[Any, ...]:
    """The arguments a program takes: the op's tensors and generators; everything else is part of its key."""
    arguments = facts_of(op).arguments
    return tuple(v for a, v in zip(arguments, values, strict=True) if a.holds_tensors or a.kind == "Generator")


def key_source(op: OpOverload, guards: Sequence[Guard], *, no_numbers: bool) -> str:
    """Python source of the inside of a key, in the order of `key_of`."""
    facts = facts_of(op)
    tensors = [argument for argument in facts.arguments if argument.holds_tensors]
    parts = [_fact_source(op, argument, no_numbers) for argument in facts.arguments]
    if _has_tensor_list(op):
        spread = ", ".join(f"*({parameter_name(a)} or ())" if a.is_list else parameter_name(a) for a in tensors)
        parts.append(f"_same_tensors([{spread}])")
    else:
        parts.extend(f"{parameter_name(left)} is {parameter_name(right)}" for left, right in itertools.combinations(tensors, 2))
    parts.extend(f"_ambient{number}()" for number, _ in enumerate(ambient_of(op)))
    parts.extend(one.source(no_numbers=no_numbers) for one in guards)
    return "".join(f"{part}, " for part in parts)


def has_lazy_bits(values: Iterable[Any]) -> bool:
    """Whether a tensor among the arguments, or in a list of them, has a conj, neg or zero-tensor bit."""
    for value in values:
        if isinstance(value, Tensor):
            if value.is_conj() or value.is_neg() or value._is_zerotensor():
                return True
        elif isinstance(value, (list, tuple)) and has_lazy_bits(value):
            return True
    return False


def shown_fact(fact: Any) -> str:
    """A fact of a key for people: a scalar without its type, and one that is kept by its text as that."""
    if isinstance(fact, tuple) and len(fact) == 2 and isinstance(fact[0], type):
        return fact[1] if isinstance(fact[1], str) else repr(fact[1])
    return repr(fact)
