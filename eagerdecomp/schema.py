"""Facts of one op, read from its schema and tags: what it mutates, what it aliases, what it draws, what it reads."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from eagerdecomp._torch import OpOverload, has_kernel, packet_overloads

__all__ = [
    "Argument",
    "OpFacts",
    "arguments_of",
    "call_of",
    "facts_of",
    "functional_twin",
    "is_composite",
    "settled_by_out",
    "writes_several",
]


@dataclass(frozen=True)
class Argument:
    """One argument of a schema. `kind` is the schema's own type text with ``Optional[...]`` and ``List[...]`` taken off."""

    name: str
    kind: str
    optional: bool
    is_list: bool
    optional_items: bool
    kwarg_only: bool
    has_default: bool
    default: Any
    mutated: bool
    aliased: bool

    @property
    def holds_tensors(self) -> bool:
        return self.kind == "Tensor"


@dataclass(frozen=True)
class OpFacts:
    """What the schema and the tags say of one op."""

    name: str
    arguments: tuple[Argument, ...]
    mutated: tuple[int, ...]
    returns_alias: bool
    returns_written: bool
    is_random: bool
    reads_data: bool
    is_out: bool
    is_inplace: bool

    @property
    def is_functional(self) -> bool:
        """Neither writes to an argument nor returns one."""
        return not self.mutated and not self.returns_alias


_DATA_TAGS = (torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape)


def _argument(arg: Any) -> Argument:
    text = str(arg.real_type)
    optional = text.startswith("Optional[")
    if optional:
        text = text[len("Optional[") : -1]
    is_list = text.startswith("List[")
    optional_items = False
    if is_list:
        text = text[len("List[") : -1]
        optional_items = text.startswith("Optional[")
        if optional_items:
            text = text[len("Optional[") : -1]
    alias = arg.alias_info
    return Argument(
        name=arg.name,
        kind=text,
        optional=optional,
        is_list=is_list,
        optional_items=optional_items,
        kwarg_only=arg.kwarg_only,
        has_default=arg.has_default_value(),
        default=arg.default_value,
        mutated=alias is not None and alias.is_write,
        aliased=alias is not None,
    )


@functools.cache
def facts_of(op: OpOverload) -> OpFacts:
    """The facts of an overload; computed once."""
    schema = op._schema
    arguments = tuple(_argument(arg) for arg in schema.arguments)
    mutated = tuple(i for i, arg in enumerate(arguments) if arg.mutated)
    returns = [ret.alias_info for ret in schema.returns]
    # An out= op writes keyword-only arguments; an in-place op writes its first. Other writers (batch norm's
    # running statistics) are neither.
    is_out = bool(mutated) and all(arguments[i].kwarg_only for i in mutated)
    is_inplace = bool(mutated) and mutated[0] == 0 and not is_out
    return OpFacts(
        name=str(op),
        arguments=arguments,
        mutated=mutated,
        returns_alias=any(alias is not None and not alias.is_write for alias in returns),
        returns_written=any(alias is not None and alias.is_write for alias in returns),
        is_random=torch.Tag.nondeterministic_seeded in op.tags,
        reads_data=any(tag in op.tags for tag in _DATA_TAGS),
        is_out=is_out,
        is_inplace=is_inplace,
    )


def arguments_of(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """All of a call's arguments in schema order, defaults filled in."""
    values = list(args)
    for argument in facts_of(op).arguments[len(values) :]:
        values.append(kwargs.get(argument.name, argument.default))
    return values


def call_of(op: OpOverload, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """The reverse of `arguments_of`: positional and keyword arguments, defaults left out as the dispatcher leaves them out."""
    positional: list[Any] = []
    named: dict[str, Any] = {}
    given = 0
    for argument, value in zip(facts_of(op).arguments, values, strict=True):
        default = argument.has_default and _is_default(value, argument.default)
        if not argument.kwarg_only:
            positional.append(value)
            given = given if default else len(positional)
        elif not default:
            named[argument.name] = value
    return positional[:given], named


def _is_default(value: Any, default: Any) -> bool:
    if value is default:
        return True
    # By text too, since `-0.0 == 0.0` and `True == 1`.
    return type(value) is type(default) and isinstance(value, (bool, int, float, str, list)) and repr(value) == repr(default)


def writes_several(op: OpOverload) -> bool:
    """Whether the op writes to more than one tensor: several arguments, or a list."""
    facts = facts_of(op)
    return len(facts.mutated) > 1 or any(facts.arguments[position].is_list for position in facts.mutated)


def is_composite(op: OpOverload) -> bool:
    """Whether torch ships the op as CompositeImplicitAutograd: a C++ composition of other ops, its gradient by theirs."""
    return has_kernel(op, "CompositeImplicitAutograd")


@functools.cache
def functional_twin(op: OpOverload) -> OpOverload | None:
    """The functional op that computes what an in-place or ``out=`` op writes: one of its namesakes, confirmed by schema.

    The twin takes the same arguments, less the written keyword-only ones; it writes none and returns a fresh value for each.
    A factory's twin also takes what ``out`` settles: see `settled_by_out`.
    """
    facts = facts_of(op)
    if not facts.mutated or torch.Tag.inplace_view in op.tags:
        return None
    wanted = [_shape_of(arg) for i, arg in enumerate(facts.arguments) if not (facts.is_out and i in facts.mutated)]
    packet = op._schema.name
    plain = packet if facts.is_out else packet.removesuffix("_")
    # The namesake with the same overload name is the likely one; the order makes the choice deterministic.
    for name in (plain, f"{plain}_functional"):
        for candidate in sorted(packet_overloads(name), key=lambda o: (o._overloadname != op._overloadname, o._overloadname)):
            found = facts_of(candidate)
            if found.mutated or found.returns_alias:
                continue
            taken = [(_shape_of(arg), facts.is_out and _settled(arg)) for arg in found.arguments]
            compared = [shape for shape, settled in taken if not settled or shape in wanted]
            if compared == wanted and _returns_fit(op, candidate, facts):
                return candidate
    return None


def settled_by_out(op: OpOverload, twin: OpOverload) -> tuple[str, ...]:
    """The arguments that the twin of an ``out=`` factory takes and the factory does not: ``dtype`` and ``device`` at most, since
    a strided ``out`` has the layout that they default to, and pinning says nothing of the values."""
    own = {arg.name for arg in facts_of(op).arguments}
    return tuple(arg.name for arg in facts_of(twin).arguments if arg.name in ("dtype", "device") and arg.name not in own)


def _settled(arg: Argument) -> bool:
    return arg.kwarg_only and arg.optional and arg.name in ("dtype", "layout", "device", "pin_memory")


def _shape_of(arg: Argument) -> tuple[Any, ...]:
    return (arg.name, arg.kind, arg.optional, arg.is_list, arg.optional_items)


def _returns_fit(op: OpOverload, twin: OpOverload, facts: OpFacts) -> bool:
    returned = len(twin._schema.returns)
    if facts.is_out:
        return returned == len(facts.mutated)
    # An in-place op returns what it wrote; one that writes lists returns nothing, its twin one list per written argument.
    fresh = len(op._schema.returns) or len(facts.mutated)
    return returned == fresh
