"""Identities: what tells the op set, kernels and rules of one process from those of another, as text.

A function is known by its name, its compiled source, and all that it reads besides: defaults, closure, and those globals that its
code names, functions among them by the same. What is torch's, Python's or the library's own is known by its name, since whoever
compares identities holds the versions of those to be equal. Anything else (a tensor, an object with state) has no identity, nor has
what reads it.
"""

from __future__ import annotations

import functools
import hashlib
import sys
import sysconfig
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import BuiltinFunctionType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, NamedTuple

import torch

from eagerdecomp._torch.ops import OpOverload, OpOverloadPacket
from eagerdecomp.ops.opset import OpSet
from eagerdecomp.rules.rule import Rule, place_of

__all__ = ["NoIdentity", "Owner", "identity_of", "owner_identity"]

#: Types whose text says all of a value.
_PLAIN = (type(None), bool, int, float, complex, str, bytes, type(Ellipsis), range, torch.dtype, torch.device, torch.layout)
_PLAIN_TYPES = frozenset({*_PLAIN, torch.memory_format, OpOverload, OpOverloadPacket, torch.Size})


@functools.cache
def _installed() -> tuple[Path, ...]:
    """Where packages are installed."""
    return tuple(Path(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


class NoIdentity(Exception):
    """Something that cannot be told from others of another process; its text names it."""


class Owner(NamedTuple):
    """What programs depend on besides the call: the op set, the kernels, the backend's hook, the user's rules."""

    ops: OpSet
    kernels: frozenset[tuple[OpOverload, Callable[..., Any]]]
    compile: Callable[..., Any] | None
    rules: frozenset[Rule]


def owner_identity(owner: Owner) -> dict[str, Any]:
    """An owner as JSON: the names of its ops, and the identities of predicates, kernels, hook and rules.

    Raises:
        NoIdentity: where one of them has none.
    """
    predicates = {str(op): when for op in owner.ops if (when := owner.ops.predicate(op)) is not None}
    return {
        "ops": [str(op) for op in owner.ops],
        "predicates": {name: _named("the predicate of", name, when) for name, when in predicates.items()},
        "kernels": {str(op): _named("the kernel of", str(op), kernel) for op, kernel in sorted(owner.kernels, key=_first_text)},
        "compile": _named("the compile hook", "", owner.compile) if owner.compile is not None else None,
        "rules": sorted(_named("the rule of", str(rule.op), rule) for rule in owner.rules),
    }


def _first_text(pair: tuple[Any, Any]) -> str:
    return str(pair[0])


def _named(what: str, op: str, value: Any) -> str:
    try:
        return identity_of(value)
    except NoIdentity as unknown:
        raise NoIdentity(f"{what} {op}".strip() + f" reads {unknown}, which may be another in another process") from None


def identity_of(value: Any) -> str:
    """A short text that is the same in two processes only where the value is.

    Raises:
        NoIdentity: where there is no such text.
    """
    try:
        text = _Told().of(value)
    except RecursionError:
        raise NoIdentity("what leads back to itself") from None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


class _Told:
    """One value told, with all that it leads to; what leads back to itself is told once."""

    def __init__(self) -> None:
        self._met: dict[int, tuple[int, Any]] = {}  # what was met is kept, so that no address is used twice

    def of(self, value: Any) -> str:
        kind = type(value)
        if kind in _PLAIN_TYPES:
            return f"{kind.__name__} {value!r}"
        if kind in (tuple, list):
            return f"{kind.__name__}({', '.join(map(self.of, value))})"
        if kind in (set, frozenset):
            return f"{kind.__name__}({', '.join(sorted(map(self.of, value)))})"
        if kind is dict:
            return f"dict({', '.join(f'{self.of(key)}: {self.of(one)}' for key, one in value.items())})"
        if id(value) in self._met:
            return f"met {self._met[id(value)][0]}"
        self._met[id(value)] = (len(self._met), value)
        return self._once(value)

    def _once(self, value: Any) -> str:
        installed = _installed_as(value)
        if installed is not None:
            return f"installed({installed})"
        if isinstance(value, Rule):
            return f"rule({value.op}, {value.linked}, {value.whole}, {self.of(value.effects)}, {self.of(value.fn)})"
        if isinstance(value, functools.partial):
            return f"partial({self.of(value.func)}, {self.of(value.args)}, {self.of(value.keywords)})"
        if isinstance(value, FunctionType):
            return self._function(value)
        if isinstance(value, MethodType):
            return f"method({self.of(value.__func__)}, {self.of(value.__self__)})"
        if isinstance(value, ModuleType):
            return self._module(value)
        if isinstance(value, type):
            module = sys.modules.get(value.__module__)
            return f"class({value.__qualname__}, {self.of(module)})"
        if isinstance(getattr(value, "__wrapped__", None), FunctionType) and hasattr(value, "cache_info"):
            return f"cached({self.of(value.__wrapped__)})"
        if isinstance(value, BuiltinFunctionType) and isinstance(value.__self__, (ModuleType, type, type(None))):
            return f"builtin({value.__module__}, {value.__qualname__})"
        if _is_versioned(type(value).__module__) and not hasattr(value, "__dict__") and callable(value):
            return f"builtin({type(value).__module__}, {getattr(value, '__qualname__', None) or _unknown(value)})"
        if type(value).__module__ == "typing":
            return repr(value)
        return _unknown(value)

    def _function(self, fn: FunctionType) -> str:
        if _is_versioned(fn.__module__) and fn.__closure__ is None and not fn.__kwdefaults__ and "<" not in fn.__qualname__:
            return f"function({fn.__module__}, {fn.__qualname__})"
        parts = [
            f"{fn.__module__}.{fn.__qualname__}",
            self._code(fn.__code__),
            self.of(fn.__defaults__),
            self.of(fn.__kwdefaults__),
        ]
        for name, cell in zip(fn.__code__.co_freevars, fn.__closure__ or (), strict=True):
            try:
                parts.append(f"{name} = {self.of(cell.cell_contents)}")
            except ValueError:  # an empty cell
                parts.append(f"{name} is empty")
        names = dict.fromkeys(name for code in _codes(fn.__code__) for name in code.co_names)
        parts.extend(f"{name} = {self.of(fn.__globals__[name])}" for name in names if name in fn.__globals__)
        return f"function({'; '.join(parts)})"

    def _code(self, code: CodeType) -> str:
        constants = [self._code(one) if isinstance(one, CodeType) else self.of(one) for one in code.co_consts]
        shape = (code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount, code.co_flags)
        names = (code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars)
        return f"code({code.co_code.hex()}, {constants}, {shape}, {names}, {code.co_exceptiontable.hex()})"

    def _module(self, module: ModuleType) -> str:
        files = dict(_sources(module))
        return f"module({module.__name__}, {sorted(files.items())})"


def _codes(code: CodeType) -> Iterator[CodeType]:
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from _codes(one)


def _unknown(value: Any) -> str:
    raise NoIdentity(place_of(value) if callable(value) else f"a {type(value).__name__}")


def _is_versioned(name: str | None) -> bool:
    """Whether a module is torch's, Python's or ours."""
    top = (name or "").partition(".")[0]
    return top in ("torch", "eagerdecomp") or (top in sys.stdlib_module_names and top != "__main__")


def _version(name: str) -> str | None:
    """The version of the installed package that a module is of; None for a package that lies where it is worked on."""
    top = sys.modules.get(name.partition(".")[0])
    version, file = getattr(top, "__version__", None), getattr(top, "__file__", None)
    if not isinstance(version, str) or not file or not any(place in Path(file).parents for place in _installed()):
        return None
    return version


def _installed_as(value: Any) -> str | None:
    """What something is known by that an installed package holds under its name; None for anything else."""
    module, name = getattr(value, "__module__", None), getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
    if not isinstance(module, str) or not isinstance(name, str) or getattr(sys.modules.get(module), name, None) is not value:
        return None
    version = _version(module)
    return None if version is None else f"{module}.{name} of {version}"


def _sources(module: ModuleType) -> Iterator[tuple[str, str]]:
    """The module and those it uses, each with its version or a digest of its file.

    Raises:
        NoIdentity: for one that has neither.
    """
    open_, met = [module], {module.__name__}
    while open_:
        one = open_.pop()
        if _is_versioned(one.__name__):
            continue
        version = _version(one.__name__)
        if version is not None:
            yield one.__name__, version
            continue
        file = getattr(one, "__file__", None)
        if not file:
            raise NoIdentity(f"the module {one.__name__}, which has no file,")
        yield one.__name__, hashlib.sha256(Path(file).read_bytes()).hexdigest()
        for used in _used_by(vars(one)):
            if used.__name__ not in met:
                met.add(used.__name__)
                open_.append(used)


def _used_by(names: Mapping[str, Any]) -> Iterator[ModuleType]:
    for value in list(names.values()):
        found = value if isinstance(value, ModuleType) else sys.modules.get(str(getattr(value, "__module__", None)))
        if isinstance(found, ModuleType):
            yield found
