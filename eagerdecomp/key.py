"""Keys: the facts of one call that a recorded program may depend on, and the function that reads them for one op.

A key holds, per tensor: shape, strides, dtype, device, layout; which arguments are the same tensor; per scalar its type and value,
told apart where Python's equality is not (``True == 1 == 1.0``, ``-0.0 == 0.0``, NaN); and the ambient switches a rule may read.
Storage offsets are read only for ops whose programs turned out to depend on them. conj and neg bits are not in a key: calls that
bring one are not recorded (see `runtime`).
"""

from __future__ import annotations

import functools
import itertools
import keyword
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch import OpOverload, ambient_facts, sdp_facts
from eagerdecomp.schema import Argument, facts_of

__all__ = ["MakeHandler", "key_of", "key_or_none", "make_handler", "program_arguments"]

#: ``make(programs, cold) -> handler``: see `make_handler`.
MakeHandler = Callable[[dict[Any, Callable[..., Any]], Callable[..., Any]], Callable[..., Any]]

# Ops whose decomposition reads more of the process than `ambient_facts`.
_EXTRA_AMBIENT = {"aten::scaled_dot_product_attention": sdp_facts}


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
    if value is None:
        return None
    if isinstance(value, Tensor):
        if value.layout is not torch.strided:
            raise TypeError(f"a {value.layout} tensor has no key")
        return (value.shape, value.stride(), value.dtype, value.device, value.layout)
    return _scalar_fact(value)  # a wrapped number: a Python scalar in a tensor's place


def _same_tensors(values: Sequence[Any]) -> tuple[int, ...]:
    """For each tensor the position of its first occurrence: which arguments are one object."""
    first: dict[int, int] = {}
    return tuple([first.setdefault(id(value), position) for position, value in enumerate(values)])


def _offsets(values: Sequence[Any]) -> tuple[Any, ...]:
    return tuple([value.storage_offset() if isinstance(value, Tensor) else None for value in values])


def _parameter(argument: Argument) -> str:
    return argument.name + "_" if keyword.iskeyword(argument.name) else argument.name


def _fact_source(argument: Argument, may_be_number: bool) -> str:
    """Python source that reads one argument's fact. Its value equals `_fact` of the same argument."""
    name = _parameter(argument)
    if argument.is_list:
        if argument.kind == "Tensor":
            source = f"_tuple([_tensor_fact(t) for t in {name}])"
        elif argument.kind in ("number", "float"):
            source = f"_tuple([_scalar_fact(v) for v in {name}])"
        else:
            source = f"_tuple({name})"
    elif argument.kind == "Tensor":
        # The layout too: a sparse COO tensor says that its strides are zeros, as those of a 0-dim or expanded strided one are.
        source = f"({name}.shape, {name}.stride(), {name}.dtype, {name}.device, {name}.layout)"
        if may_be_number:
            source = f"_tensor_fact({name})"
    elif argument.kind in ("number", "float"):
        source = f"_scalar_fact({name})"
    elif argument.kind == "Generator":
        return f"{name} is None"
    else:
        return name
    return f"(None if {name} is None else {source})" if argument.optional else source


def _fact(argument: Argument, value: Any) -> Any:
    if argument.kind == "Generator":
        return value is None
    if value is None:
        return None
    if argument.is_list:
        one = _tensor_fact if argument.kind == "Tensor" else _scalar_fact
        return tuple([one(v) for v in value]) if argument.kind in ("Tensor", "number", "float") else tuple(value)
    if argument.kind == "Tensor":
        return _tensor_fact(value)
    return _scalar_fact(value) if argument.kind in ("number", "float") else value


def _ambient(op: OpOverload) -> tuple[Callable[[], Any], ...]:
    extra = _EXTRA_AMBIENT.get(op._schema.name)
    return ambient_facts() + (extra() if extra is not None else ())


def _tensor_values(op: OpOverload, values: Sequence[Any]) -> list[Any]:
    """Every tensor-typed argument, lists spread out, in schema order."""
    flat: list[Any] = []
    for argument, value in zip(facts_of(op).arguments, values, strict=True):
        if argument.holds_tensors:
            flat.extend(value or ()) if argument.is_list else flat.append(value)
    return flat


def key_of(op: OpOverload, values: Sequence[Any], *, offsets: bool = False) -> Any:
    """The key of a call, given all the op's arguments in schema order. Unhashable where a symbolic size is among them.

    Raises:
        TypeError: for a sparse tensor, which has no strides.
    """
    facts = facts_of(op)
    tensors = _tensor_values(op, values)
    parts = [_fact(argument, value) for argument, value in zip(facts.arguments, values, strict=True)]
    if _has_tensor_list(op):
        parts.append(_same_tensors(tensors))
    else:
        parts.extend(left is right for left, right in itertools.combinations(tensors, 2))
    if offsets:
        parts.append(_offsets(tensors))
    parts.extend(read() for read in _ambient(op))
    return tuple(parts)


def key_or_none(op: OpOverload, values: Sequence[Any], *, offsets: bool = False) -> Any:
    """`key_of` where the call has a key; None where it holds a symbolic size, which has no hash, or a sparse tensor."""
    try:
        key = key_of(op, values, offsets=offsets)
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


@functools.cache
def make_handler(op: OpOverload, *, offsets: bool = False) -> MakeHandler:
    """Compile, once per op, the hot path of a recorded op: ``make(programs, cold) -> handler``.

    ``handler`` has the op's own signature. It reads the key, finds the program in `programs`, and calls it: one key, one lookup,
    one call. Where there is no program, or no key (a symbolic size), it calls ``cold`` with all arguments in schema order.
    """
    facts = facts_of(op)
    tensors = [argument for argument in facts.arguments if argument.holds_tensors]
    # Our own names start with an underscore: a custom op may call its arguments `id`, `program` or `cold`.
    namespace: dict[str, Any] = {
        "_tuple": tuple,
        "_tensor_fact": _tensor_fact,
        "_scalar_fact": _scalar_fact,
        "_same_tensors": _same_tensors,
        "_offsets": _offsets,
    }
    # Only in a pointwise op does a Python number come in a tensor's place.
    numbers = torch.Tag.pointwise in op.tags and len(tensors) > 1
    parts = [_fact_source(argument, numbers and argument.kind == "Tensor") for argument in facts.arguments]
    spread = ", ".join(f"*({_parameter(a)} or ())" if a.is_list else _parameter(a) for a in tensors)
    if _has_tensor_list(op):
        parts.append(f"_same_tensors([{spread}])")
    else:
        parts.extend(f"{_parameter(left)} is {_parameter(right)}" for left, right in itertools.combinations(tensors, 2))
    if offsets:
        parts.append(f"_offsets([{spread}])")
    for number, read in enumerate(_ambient(op)):
        namespace[f"_ambient{number}"] = read
        parts.append(f"_ambient{number}()")
    everything = ", ".join(_parameter(argument) for argument in facts.arguments)
    taken = ", ".join(_parameter(a) for a in facts.arguments if a.holds_tensors or a.kind == "Generator")
    source = (
        f"def make(_programs, _cold):\n"
        f"    def handler({_signature(facts.arguments, namespace)}):\n"
        f"        try:\n"
        f"            _program = _programs[{', '.join(parts)},]\n"
        f"        except (KeyError, TypeError, AttributeError, RuntimeError):\n"
        f"            _program = None\n"  # not from here: an error of the rule would carry this one as its context
        f"        return _cold({everything}) if _program is None else _program({taken})\n"
        f"    return handler\n"
    )
    exec(compile(source, f"<key of {op}>", "exec"), namespace)
    make: MakeHandler = namespace["make"]
    renamed = {a.name: _parameter(a) for a in facts.arguments if a.kwarg_only and keyword.iskeyword(a.name)}
    return _renaming(make, renamed) if renamed else make


def _renaming(make: MakeHandler, renamed: dict[str, str]) -> MakeHandler:
    """For an op with a keyword-only argument that Python cannot spell (``from``): such arguments come by ``**`` alone."""

    def make_renamed(programs: dict[Any, Callable[..., Any]], cold: Callable[..., Any]) -> Callable[..., Any]:
        handler = make(programs, cold)

        def handler_renamed(*args: Any, **kwargs: Any) -> Any:
            return handler(*args, **{renamed.get(name, name): value for name, value in kwargs.items()})

        return handler_renamed

    return make_renamed


def _signature(arguments: Sequence[Argument], namespace: dict[str, Any]) -> str:
    parts: list[str] = []
    starred = False
    defaulted = False
    for number, argument in enumerate(arguments):
        if argument.kwarg_only and not starred:
            parts.append("*")
            starred = True
        # A required argument after a defaulted one is legal in a schema and not in Python; torch always passes it.
        defaulted = defaulted or argument.has_default
        if argument.has_default or (defaulted and not argument.kwarg_only):
            namespace[f"_default{number}"] = argument.default
            parts.append(f"{_parameter(argument)}=_default{number}")
        else:
            parts.append(_parameter(argument))
    return ", ".join(parts)
