"""A hash of the code of a rule. Recorded data stores it, so that data of an older version of the rule is detected."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import linecache
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from eagerdecomp._torch.ops import OpNamespace, OpOverload, OpOverloadPacket
from eagerdecomp.rules.link import is_filled
from eagerdecomp.rules.rule import Rule

__all__ = ["code_hash"]

_PACKAGE = __name__.partition(".")[0]
#: Packages with rules and their helpers. Code elsewhere (recording, linking) does not affect which ops a rule calls.
_FOLDERS = tuple(f"{_PACKAGE}.{folder}" for folder in ("decomps", "eager", "rules.compute", "rules.writeback"))


def code_hash(rule: Rule) -> str:
    """Return a hash of a rule's source text and of everything that the text depends on.

    These are the rule's options, its closure, its defaults, and the functions and constants that it reads from global names; and
    recursively the same of those functions. The hash is the same on every Python release. For functions of torch only the name
    counts, because data is recorded for each torch release. The hash has 12 hexadecimal digits. It takes about 20 us per rule,
    because each helper is hashed once.
    """
    options = f"{rule.linked} {rule.keeps_lazy_bits} {rule.whole}"
    layout = () if rule.layout is None else (rule.layout,)
    return _digest(options, (_hashed(part, {}) for part in (rule.fn, rule.around, rule.compute, *layout)))


#: Id of a function or class -> its hash, and the object itself, so that no other object gets the id.
_known: dict[int, tuple[str, Any]] = {}


def _hashed(value: Any, under_way: dict[int, bool]) -> str:
    """Return the hash of a value and of all values that it refers to. In a reference cycle, the first value counts by its name.

    Args:
        value: the value.
        under_way: the ids of values whose hash is being computed -> whether they are in a cycle. The hash of such a value depends
            on where the cycle was entered, so it is not cached.
    """
    known = _known.get(id(value))
    if known is not None:
        return known[0]
    if id(value) in under_way:
        for one in reversed(under_way):
            under_way[one] = True
            if one == id(value):
                break
        return _name(value)
    text, leads_to = _described(value)
    if not leads_to:
        return text
    under_way[id(value)] = False
    parts = [_hashed(one, under_way) for one in leads_to]
    # Sets have a different order in each process, and so do dicts and tuples of dtypes that are made from sets.
    unordered = isinstance(value, (set, frozenset, Mapping)) or all(isinstance(one, torch.dtype) for one in leads_to)
    found = _digest(text, sorted(parts) if unordered else parts)
    if not under_way.pop(id(value)) and isinstance(value, (FunctionType, type)):
        _known[id(value)] = found, value
    return found


def _digest(text: str, parts: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join([text, *parts]).encode(), digest_size=6).hexdigest()


def _described(value: Any) -> tuple[str, list[Any]]:
    """Return the text of a value, and the values that it refers to."""
    if isinstance(value, FunctionType):
        return _described_function(value) if _is_ours(value.__module__) else (_name(value), [])
    if isinstance(value, type):
        return _name(value), _methods(value) if _is_ours(value.__module__) else []
    if isinstance(value, (BuiltinFunctionType, OpOverload, OpOverloadPacket, OpNamespace)):
        return str(getattr(value, "__qualname__", value)), []
    if isinstance(value, ModuleType):
        return value.__name__, []
    if isinstance(value, (tuple, list, set, frozenset)):
        return type(value).__name__, list(value)
    if isinstance(value, Mapping):
        return "mapping", list(value.items())
    if isinstance(value, functools.partial):
        return "partial", [value.func, *value.args, *value.keywords.items()]
    if isinstance(value, MethodType):
        return "method", [value.__func__, value.__self__]
    if isinstance(getattr(value, "__wrapped__", None), FunctionType):
        return _name(type(value)), [value.__wrapped__]
    if dataclasses.is_dataclass(value):
        return _name(type(value)), [type(value), *(getattr(value, field.name) for field in dataclasses.fields(value))]
    if _is_ours(type(value).__module__):
        return _name(type(value)), [type(value), *getattr(value, "__dict__", {}).values()]
    # Use `repr` only for numbers, strings, dtypes and the like. Other objects may have addresses in their `repr`: use their types.
    plain = value is None or isinstance(value, (str, bytes, int, float, complex, torch.dtype, torch.layout, torch.memory_format))
    return (repr(value) if plain else _name(type(value))), []


def _methods(cls: type) -> list[Any]:
    """Return the methods that are written in a class; those that dataclasses generate differ between releases of Python."""
    path = sys.modules[cls.__module__].__file__
    return [one for one in vars(cls).values() if isinstance(one, FunctionType) and one.__code__.co_filename == path]


def _described_function(fn: FunctionType) -> tuple[str, list[Any]]:
    cells = [cell.cell_contents for cell in fn.__closure__ or () if is_filled(cell)]
    defaults = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    return _text(fn.__code__), [*cells, *defaults, *(value for value in _globals(fn))]


def _globals(fn: FunctionType) -> Iterator[Any]:
    """Yield the values of global names that a function reads, and attributes that it may read of modules of this package."""
    names = _names(fn.__code__)
    for name in names:
        value = fn.__globals__.get(name)
        if isinstance(value, ModuleType) and _is_ours(value.__name__):
            yield from (getattr(value, one) for one in names if hasattr(value, one))
        elif value is not None:
            yield value


@functools.cache
def _names(code: CodeType) -> tuple[str, ...]:
    inner = (_names(one) for one in code.co_consts if isinstance(one, CodeType))
    # pytest rewrites assertions in packages with a pytest plugin, and adds names that begin with "@".
    own = (name for name in code.co_names if not name.startswith("@"))
    return tuple(sorted({*own, *(name for names in inner for name in names)}))


@functools.cache
def _text(code: CodeType) -> str:
    """Return the source of a function without decorators, comment lines and docstring."""
    lines = linecache.getlines(code.co_filename)[code.co_firstlineno - 1 :]
    indent = _indent(lines[0]) if lines else 0
    text: list[str] = []
    begun, quote = False, ""
    for line in lines:
        bare = line.strip()
        if quote:  # within the docstring
            quote = "" if bare.endswith(quote) else quote
        elif text and text[-1].endswith(":") and bare.startswith(('"""', 'r"""')):
            quote = "" if bare.count('"""') == 2 else '"""'
        elif bare and not bare.startswith("#"):
            if begun and _indent(line) <= indent and not bare.startswith(")"):
                break
            begun = begun or code.co_name == "<lambda>" or bare.startswith(("def ", "async def "))
            if begun:  # skip decorators: their effect is in another function, or an option of the rule
                text.append(bare)
    return "\n".join(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_ours(module: str | None) -> bool:
    return module is not None and module.startswith(_FOLDERS)


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__name__))
