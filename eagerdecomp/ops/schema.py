"""Facts about one op (mutation, aliasing, randomness, data dependence), from its schema, its tags and `ops/facts.py`."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload, has_kernel, is_dispatched, overload, packet_overloads
from eagerdecomp.ops.facts import UNSTATED, UnstatedFacts

__all__ = [
    "Argument",
    "OpFacts",
    "arguments_of",
    "call_of",
    "facts_of",
    "functional_variant",
    "is_composite",
    "kind_of",
    "out_variant",
    "reads_data",
    "settled_by_out",
    "tensors_in",
    "writes_several",
]


class Argument(NamedTuple):
    """One argument of a schema. `kind` is the type as text, without ``Optional[...]`` and ``List[...]``."""

    name: str
    kind: str
    optional: bool
    is_list: bool
    optional_items: bool
    kwarg_only: bool
    has_default: bool
    default: Any
    mutated: bool

    @property
    def holds_tensors(self) -> bool:
        return self.kind == "Tensor"


_DATA_TAGS = frozenset({torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape})


class OpFacts(UnstatedFacts):
    """Facts about one op: those that its schema and tags state, and `UnstatedFacts`.

    `arguments` are read from the schema when they are first used, because this takes longest and most ops do not need them.

    Attributes:
        mutated: the positions of the arguments that the op writes.
        is_out: whether it writes keyword-only arguments, and no others.
        is_inplace: whether it writes its first argument. Other ops that write, such as batch norm with statistics, are neither.
    """

    __setattr__ = object.__setattr__  # the base class is frozen; this class sets its attributes in `__init__`

    def __init__(self, op: OpOverload) -> None:
        self._op = op
        schema = op._schema
        name = op.name()  # type: ignore[no-untyped-call]
        unstated = UNSTATED.get(name) or UNSTATED.get(name.partition(".")[0])
        if unstated is not None:
            vars(self).update(vars(unstated))
        self.mutated: tuple[int, ...] = ()
        self.is_out = self.is_inplace = False
        if schema.is_mutable:
            self.mutated = tuple([i for i, argument in enumerate(self.arguments) if argument.mutated])
            self.is_out = bool(self.mutated) and all(self.arguments[i].kwarg_only for i in self.mutated)
            self.is_inplace = bool(self.mutated) and self.mutated[0] == 0 and not self.is_out
        tags = op.tags
        self.is_random = torch.Tag.nondeterministic_seeded in tags
        self.reads_data = not _DATA_TAGS.isdisjoint(tags)

    @functools.cached_property
    def name(self) -> str:
        """The overload's full name: ``"aten.add.Tensor"``."""
        return str(self._op)

    @functools.cached_property
    def arguments(self) -> tuple[Argument, ...]:
        """The arguments in schema order."""
        return tuple([_argument(argument) for argument in self._op._schema.arguments])

    @functools.cached_property
    def takes_tensors(self) -> bool:
        """Whether an argument is a tensor or a list of tensors."""
        return any(one.holds_tensors for one in self.arguments)

    @functools.cached_property
    def takes_tensor_lists(self) -> bool:
        """Whether an argument is a list of tensors."""
        return any(one.holds_tensors and one.is_list for one in self.arguments)

    @functools.cached_property
    def takes_named_tensors(self) -> bool:
        """Whether a tensor, or a list of tensors, is a keyword-only argument."""
        return any(one.holds_tensors and one.kwarg_only for one in self.arguments)

    @functools.cached_property
    def is_elementwise(self) -> bool:
        """Whether each element of the single result depends only on scalars and on the elements of tensors at its position."""
        returns, arguments = self._op._schema.returns, self.arguments
        return (
            (self.elementwise or torch.Tag.pointwise in self._op.tags)
            and self.is_functional
            and not (self.is_random or self.reads_data)
            and [str(one.type) for one in returns] == ["Tensor"]
            and arguments[0].kind == "Tensor"
            and not arguments[0].optional
            and not any(one.is_list or one.name == "memory_format" or (one.kwarg_only and one.holds_tensors) for one in arguments)
        )

    @functools.cached_property
    def returns_alias(self) -> bool:
        """Whether a result may be a view of an argument."""
        return any(alias is not None and not alias.is_write for alias in self._aliases_of_returns)

    @functools.cached_property
    def returns_written(self) -> bool:
        """Whether a result is an argument that the op wrote."""
        return any(alias is not None and alias.is_write for alias in self._aliases_of_returns)

    @property
    def _aliases_of_returns(self) -> list[Any]:
        return [returned.alias_info for returned in self._op._schema.returns]

    @functools.cached_property
    def changes_metadata(self) -> bool:
        """Whether the op changes the sizes, strides or storage of its first argument."""
        return torch.Tag.inplace_view in self._op.tags

    @property
    def is_functional(self) -> bool:
        """Whether the op neither writes to an argument nor returns one."""
        return not self.mutated and not self.returns_alias


def _argument(arg: Any) -> Argument:
    alias = arg.alias_info
    has_default = arg.has_default_value()
    return Argument(
        arg.name,
        *kind_of(str(arg.real_type)),
        arg.kwarg_only,
        has_default,
        arg.default_value if has_default else None,
        alias is not None and alias.is_write,
    )


@functools.cache
def kind_of(text: str) -> tuple[str, bool, bool, bool]:
    """Return an argument's `kind`, `optional`, `is_list` and `optional_items` from the text of its type."""
    kind, optional = _inside(text, "Optional[")
    kind, is_list = _inside(kind, "List[")
    kind, optional_items = _inside(kind, "Optional[") if is_list else (kind, False)
    return kind, optional, is_list, optional_items


def _inside(text: str, opening: str) -> tuple[str, bool]:
    return (text[len(opening) : -1], True) if text.startswith(opening) else (text, False)


@functools.cache
def facts_of(op: OpOverload) -> OpFacts:
    """Return the facts of an overload; they are cached."""
    return OpFacts(op)


def reads_data(op: OpOverload, args: Sequence[Any]) -> bool:
    """Return whether the result of a call, or its shape, depends on data. `index` does so only for masks."""
    facts = facts_of(op)
    if not (facts.reads_data and facts.reads_masks):
        return facts.reads_data
    return any(index is not None and index.dtype in (torch.bool, torch.uint8) for index in args[1])


def arguments_of(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return all arguments of a call in schema order, including defaults."""
    values = list(args)
    for argument in facts_of(op).arguments[len(values) :]:
        values.append(kwargs.get(argument.name, argument.default))
    return values


def call_of(op: OpOverload, values: Sequence[Any]) -> tuple[list[Any], dict[str, Any]]:
    """Return positional and keyword arguments without defaults, as the dispatcher passes them: the reverse of `arguments_of`."""
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
    # Compare the text too, because `-0.0 == 0.0` and `True == 1`.
    return type(value) is type(default) and isinstance(value, (bool, int, float, str, list)) and repr(value) == repr(default)


def writes_several(op: OpOverload) -> bool:
    """Return whether the op writes several arguments, or a list of tensors."""
    facts = facts_of(op)
    return len(facts.mutated) > 1 or any(facts.arguments[position].is_list for position in facts.mutated)


def is_composite(op: OpOverload) -> bool:
    """Return whether torch registers the op as CompositeImplicitAutograd: a C++ composition, differentiated op by op."""
    return has_kernel(op, "CompositeImplicitAutograd")


@functools.cache
def functional_variant(op: OpOverload) -> OpOverload | None:
    """Return the functional op that computes the result of an in-place or ``out=`` op, or None.

    It has the same name, and the same arguments without the written keyword-only ones; it writes nothing and returns a new tensor
    for each written argument. The variant of a factory also takes arguments that ``out`` determines: see `settled_by_out`.
    """
    facts = facts_of(op)
    if not facts.mutated or facts.changes_metadata:
        return None
    wanted = [_shape_of(arg) for i, arg in enumerate(facts.arguments) if not (facts.is_out and i in facts.mutated)]
    packet = op._schema.name
    operator = re.sub(r"::__i(\w+)__$", r"::__\1__", packet)
    plain = packet if facts.is_out else operator if operator != packet else packet.removesuffix("_")
    for name in (plain, f"{plain}_functional"):
        for candidate in _namesakes(op, name):
            found = facts_of(candidate)
            if found.mutated or found.returns_alias:
                continue
            taken = [(_shape_of(arg), facts.is_out and _settled(arg)) for arg in found.arguments]
            compared = [shape for shape, settled in taken if not settled or shape in wanted]
            if compared == wanted and _returns_fit(op, candidate, facts):
                return candidate
    return None


def out_variant(op: OpOverload) -> OpOverload | None:
    """Return the ``out=`` op that computes the result of a functional or in-place op, or None."""
    plain = functional_variant(op) if facts_of(op).mutated else op
    if plain is None:
        return None
    named = packet_overloads(plain._schema.name)
    return next((other for other in named if facts_of(other).is_out and functional_variant(other) is plain), None)


def _namesakes(op: OpOverload, packet: str) -> Iterator[OpOverload]:
    """Yield the overloads of a packet in a fixed order, the most likely variant (with the op's own overload name) first."""
    first = overload(f"{packet}.{op._overloadname}")
    if first is not None and is_dispatched(first):
        yield first
    yield from sorted((o for o in packet_overloads(packet) if o is not first), key=lambda o: o._overloadname)


def settled_by_out(op: OpOverload, variant: OpOverload) -> tuple[str, ...]:
    """Return the arguments that only the functional variant of an ``out=`` factory has: at most ``dtype`` and ``device``.

    A strided ``out`` has the default layout, and pinning does not change values.
    """
    own = {arg.name for arg in facts_of(op).arguments}
    return tuple(arg.name for arg in facts_of(variant).arguments if arg.name in ("dtype", "device") and arg.name not in own)


def _settled(arg: Argument) -> bool:
    return arg.kwarg_only and arg.optional and arg.name in ("dtype", "layout", "device", "pin_memory")


def _shape_of(arg: Argument) -> tuple[Any, ...]:
    return (arg.name, arg.kind, arg.optional, arg.is_list, arg.optional_items)


def _returns_fit(op: OpOverload, variant: OpOverload, facts: OpFacts) -> bool:
    returned = len(variant._schema.returns)
    if facts.is_out:
        return returned == len(facts.mutated)
    # An in-place op returns its written argument. An op that writes lists returns nothing; its variant returns a list for each.
    fresh = len(op._schema.returns) or len(facts.mutated)
    return returned == fresh


def tensors_in(value: Any) -> Iterator[Tensor]:
    """Yield every tensor in a nested argument or result, in order."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
