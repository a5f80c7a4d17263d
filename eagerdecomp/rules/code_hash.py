"""A hash of the code of a rule, by which data that was recorded of it is known to be of the rule as it is now."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import linecache
from collections.abc import Iterable, Iterator, Mapping
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any

import torch

from eagerdecomp._torch.ops import OpNamespace, OpOverload, OpOverloadPacket
from eagerdecomp.rules.link import is_filled
from eagerdecomp.rules.rule import Rule

__all__ = ["code_hash"]

_PACKAGE = __name__.partition(".")[0]
#: Where rules and their helpers are written. What other packages do for rules (recording, linking) does not choose what they call.
_FOLDERS = tuple(f"{_PACKAGE}.{folder}" for folder in ("decomps", "eager", "rules.compute", "rules.writeback"))


def code_hash(rule: Rule) -> str:
    """Return a hash of a rule's source text and of all that it is computed from: its options, the functions and constants that it
    reads from global names, its closure and its defaults, and what those read.

    It is the same on every Python release. Functions of torch count by their names alone: data is recorded for each torch release.
    The hash has 12 hexadecimal digits. It costs about 20 us a rule, since helpers are hashed once.
    """
    options = f"{rule.linked} {rule.keeps_lazy_bits} {rule.whole}"
    return _digest(options, (_hashed(part, {}) for part in (rule.fn, rule.around, rule.compute)))


#: The hashes of functions and classes, by their ids, with what they are of: nothing else may get the id.
_known: dict[int, tuple[str, Any]] = {}


def _hashed(value: Any, under_way: dict[int, bool]) -> str:
    """The hash of a value and of all that it leads to. Within a circle, the value that it began with counts by its name.

    Args:
        under_way: the values that led here, by id, and whether they are in a circle: the hash of such a value depends on where the
            circle was entered, so it is not kept.
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
    # The order of a set is not the same in each process, nor is that of a dict, or of a tuple of dtypes, that is made of one.
    unordered = isinstance(value, (set, frozenset, Mapping)) or all(isinstance(one, torch.dtype) for one in leads_to)
    found = _digest(text, sorted(parts) if unordered else parts)
    if not under_way.pop(id(value)) and isinstance(value, (FunctionType, type)):
        _known[id(value)] = found, value
    return found


def _digest(text: str, parts: Iterable[str]) -> str:
    return hashlib.blake2b("\n".join([text, *parts]).encode(), digest_size=6).hexdigest()


def _described(value: Any) -> tuple[str, list[Any]]:
    """The text of a value, and the values that it leads to."""
    if isinstance(value, FunctionType):
        return _described_function(value) if _is_ours(value.__module__) else (_name(value), [])
    if isinstance(value, type):
        methods = [one for one in vars(value).values() if isinstance(one, FunctionType)] if _is_ours(value.__module__) else []
        return _name(value), methods
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
    # Of numbers, strings and dtypes the text is the value. Others are named by their types: their texts may hold addresses.
    plain = value is None or isinstance(value, (str, bytes, int, float, complex, torch.dtype, torch.layout, torch.memory_format))
    return (repr(value) if plain else _name(type(value))), []


def _described_function(fn: FunctionType) -> tuple[str, list[Any]]:
    cells = [cell.cell_contents for cell in fn.__closure__ or () if is_filled(cell)]
    defaults = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    return _text(fn.__code__), [*cells, *defaults, *(value for value in _globals(fn))]


def _globals(fn: FunctionType) -> Iterator[Any]:
    """The values of the global names that a function reads, and of the attributes that it may read of a module of ours."""
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
    # pytest compiles the assertions of a package that holds a plugin of it in its own way, with names that begin with "@".
    own = (name for name in code.co_names if not name.startswith("@"))
    return tuple(sorted({*own, *(name for names in inner for name in names)}))


@functools.cache
def _text(code: CodeType) -> str:
    """The source of a function without decorators, comments and docstring: its lines, to the next that is indented as it."""
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
            if begun:  # behind the decorators: what they made of it is another function, or an option of its rule
                text.append(bare)
    return "\n".join(text)


def _indent(line: str) -> int:
    return len(line) - len(line.lstrip())


def _is_ours(module: str | None) -> bool:
    return module is not None and module.startswith(_FOLDERS)


def _name(value: Any) -> str:
    return str(getattr(value, "__qualname__", type(value).__name__))
