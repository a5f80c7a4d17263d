"""Linking: replace the overloads that a rule reads with a backend's kernels, once, before the first call of the rule.

A rule is a plain function that calls overloads: ``aten.mul.Tensor(self, aten.sigmoid.default(self))``. `link` returns a copy of the
function whose globals, closure and defaults hold kernels instead. Helpers that the rule calls are copied in the same way. The copy
has the same bytecode: ``aten.mul.Tensor`` is still two attribute lookups, in a module object that holds the kernels, and takes
about 10 ns more than a local variable.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import BuiltinFunctionType, CellType, CodeType, FunctionType, ModuleType, SimpleNamespace
from typing import Any, TypeAlias, TypeVar
from weakref import WeakKeyDictionary

from eagerdecomp._torch.ops import AbsentOp, OpNamespace, OpOverload, OpOverloadPacket, canonical, is_absent, op_called, path_of
from eagerdecomp.errors import RuleError
from eagerdecomp.rules.name_chains import NameChain, can_disassemble, name_chains

__all__ = [
    "RunnerOf",
    "Linkable",
    "has_kernels",
    "is_filled",
    "link",
    "link_on_call",
    "link_with_rest",
    "may_decline",
    "mentions_ops",
    "ops_on_call",
    "refers_to",
]

#: Returns the function that runs an op: a kernel or handler while a rule is linked, the op itself while calls are recorded.
RunnerOf: TypeAlias = Callable[[OpOverload], Callable[..., Any]]

_F = TypeVar("_F", bound=Callable[..., Any])
_T = TypeVar("_T")

_ON_CALL = "__link_on_call__"


def link_on_call(fn: _F) -> _F:
    """Mark a helper of rules to be linked when it is first called.

    A set without the helper's ops can then use the rule for calls that do not reach the helper.

    Use it as a decorator of a helper, or call it with an overload to make a helper that calls the overload.
    """
    run: Any = fn if isinstance(fn, FunctionType) else lambda *args, **kwargs: fn(*args, **kwargs)
    setattr(run, _ON_CALL, fn)
    return run  # type: ignore[no-any-return]


def ops_on_call(*names: str) -> Iterator[Callable[..., Any]]:
    """Yield a helper marked by `link_on_call` for each ATen op; the names have no namespace, such as ``any.dim``."""
    return (link_on_call(op_called(f"aten.{name}")) for name in names)


class Linkable:
    """A helper of rules that ``bind(call)`` builds each time a rule is linked. Called without linking, it calls overloads."""

    def __init__(self, bind: Callable[[RunnerOf], Callable[..., Any]]) -> None:
        self.bind = self.__wrapped__ = bind

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.bind(_itself)(*args, **kwargs)

    def __link__(self, call: RunnerOf) -> Callable[..., Any]:
        return self.bind(call)


def _itself(op: OpOverload) -> Callable[..., Any]:
    return op


def link(fn: _T, call: RunnerOf) -> _T:
    """Return a copy of `fn` with each overload that it reads replaced by ``call(overload)``; `fn` itself if it reads none.

    `fn` is a function or a tuple of functions. Linking finds overloads that the function, or a function that it calls, reads from a
    global name (``aten.mul.Tensor``), a closure, a default, or a tuple, list or dict in one of these. An object with a method
    ``__link__(call)`` is replaced by the return value of that method. `fn` is returned as it is if not `can_disassemble`.

    Raises:
        RuleError: if an overload cannot be replaced: the rule calls a packet, or a helper that is not a plain function.
        Exception: any exception of `call`, such as `NoRoute` for an overload without a route.
    """
    return fn if call is _itself or not can_disassemble() else _Linker(call).value(fn)


def link_with_rest(
    fn: Callable[..., Any], make_rest: Callable[[], Callable[..., Any]], call: RunnerOf
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Link `fn` now, and the function that `make_rest` returns, which calls `fn`, when it is first called. Return both."""
    linker, made = _Linker(call), None

    def run(*args: Any, **kwargs: Any) -> Any:
        nonlocal made
        if made is None:
            made = linker.value(make_rest())
        return made(*args, **kwargs)

    return linker.value(fn), run


def has_kernels(call: RunnerOf, *ops: OpOverload) -> bool:
    """Return whether a rule is linked for a set that has kernels for all these ops; False while the rule is recorded."""
    is_kernel = getattr(call, "is_kernel", None)
    return is_kernel is not None and all(map(is_kernel, ops))


def mentions_ops(fn: Callable[..., Any]) -> bool:
    """Return whether a function reads overloads that `link` would replace."""
    return not can_disassemble() or _refers_to_overload(fn, {})


def may_decline(fn: Callable[..., Any]) -> bool:
    """Return whether a function or a `Linkable`, or a plain function that it calls, reads ``NotImplemented``."""
    seen: set[FunctionType] = set()
    ahead: list[Any] = [fn]
    while ahead:
        one = ahead.pop()
        if isinstance(one, Linkable):
            one = one.bind
        if not isinstance(one, FunctionType) or one in seen:
            continue
        known = _declining.get(one)
        if known is None:
            names = _all_names(one.__code__)
            if "NotImplemented" not in names:
                seen.add(one)
                ahead += _functions_held(one, names)
                continue
        if known is not False:
            _declining[fn if isinstance(fn, FunctionType) else one] = True
            return True
    _declining.update(dict.fromkeys(seen, False))  # all that they call are among them
    return False


def refers_to(fn: Callable[..., Any], helper: Linkable) -> bool:
    """Return whether a function refers to a helper: directly, by functions that it calls, or by tables of functions."""
    seen: dict[int, Any] = {}
    ahead: list[Any] = [fn]
    while ahead:
        one = ahead.pop()
        if one is helper:
            return True
        if id(one) in seen:
            continue
        seen[id(one)] = one
        if isinstance(one, FunctionType):
            ahead += [*(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
            ahead += [cell.cell_contents for cell in one.__closure__ or () if is_filled(cell)]
            if not _is_standard(one):
                ahead += [one.__globals__[name] for name in _all_names(one.__code__) if name in one.__globals__]
        elif isinstance(one, Linkable):
            ahead.append(one.bind)
        elif isinstance(one, functools.partial):
            ahead += [one.func, *one.args, *one.keywords.values()]
        elif isinstance(one, dict):
            ahead += one.values()
        elif isinstance(one, (tuple, list)):
            ahead += one
        elif callable(one) and isinstance(getattr(one, "__wrapped__", None), FunctionType):  # such as `functools.cache`
            ahead.append(one.__wrapped__)
    return False


def _functions_held(fn: FunctionType, names: Sequence[str]) -> list[Any]:
    """Return the functions that a function reads from globals, its closure and its defaults; `names` are those of its code."""
    held = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    held += [cell.cell_contents for cell in fn.__closure__ or () if is_filled(cell)]
    named = fn.__globals__
    held += [named[name] for name in names if name in named]
    return [one for one in held if one.__class__ is FunctionType or isinstance(one, Linkable)]


def _all_names(code: CodeType) -> Sequence[str]:
    """Return the names of globals and attributes that code reads, including inner functions: more than `name_chains`, sooner."""
    inner = [name for constant in code.co_consts if isinstance(constant, CodeType) for name in _all_names(constant)]
    return (*code.co_names, *inner) if inner else code.co_names


#: Function -> whether `may_decline`, once the search has finished.
_declining: WeakKeyDictionary[FunctionType, bool] = WeakKeyDictionary()


class _Linker:
    """Links one rule. Each function, namespace and module is copied once, so that helpers that call each other call the copies."""

    def __init__(self, call: RunnerOf, kernels: dict[int, Any] | None = None) -> None:
        self._call = call
        self._kernels = {} if kernels is None else kernels  # `call` may link rules of its own each time
        self._linked: dict[int, Any] = {}
        self._alive: list[Any] = []  # keeps the objects of these ids alive

    def value(self, value: Any) -> Any:
        if isinstance(value, (OpOverload, AbsentOp)):
            value = canonical(value) if isinstance(value, OpOverload) else value
            kernel = self._kernels.get(id(value))
            if kernel is None:
                kernel = self._kernels[id(value)] = self._call(value)
                self._alive.append(value)
            return kernel
        if not _refers_to_overload(value, {}):
            return value
        found = self._linked.get(id(value))
        if found is not None:
            return found
        self._alive.append(value)
        if hasattr(type(value), "__link__"):
            made = value.__link__(self._call)
        elif isinstance(value, FunctionType):
            return self._on_call(value) if hasattr(value, _ON_CALL) else self._function(value)
        elif isinstance(value, dict):
            made = {key: self.value(one) for key, one in value.items()}
        elif isinstance(value, (tuple, list)):
            made = type(value)(self.value(one) for one in value)
        else:
            named = f"{getattr(value, '__qualname__', value)}, of type {type(value).__name__},"
            raise RuleError(
                f"{named} calls overloads and is not a plain function, so a rule that uses it cannot be linked. Make it a "
                "function, "
                "or mark the rule @rule(..., recorded=True)"
            )
        self._linked[id(value)] = made
        return made

    def _on_call(self, fn: FunctionType) -> Callable[..., Any]:
        made: Callable[..., Any] | None = None

        @functools.wraps(fn)
        def run(*args: Any, **kwargs: Any) -> Any:
            nonlocal made
            if made is None:
                # Use a separate linker. If an overload has no route, the partly linked helpers are dropped with this linker.
                linker, helper = _Linker(self._call, self._kernels), getattr(fn, _ON_CALL)
                made = linker._function(fn) if helper is fn else linker.value(helper)
            return made(*args, **kwargs)

        self._linked[id(fn)] = run
        return run

    def _function(self, fn: FunctionType) -> FunctionType:
        names = _trees.get(fn.__code__)
        if names is None:
            names = _trees[fn.__code__] = _names(fn)
        named: dict[str, Any] = dict(fn.__globals__) if names else fn.__globals__
        cells = tuple(CellType() for _ in fn.__closure__ or ())
        made = FunctionType(fn.__code__, named, fn.__name__, None, cells or None)
        made.__qualname__, made.__module__, made.__doc__ = fn.__qualname__, fn.__module__, fn.__doc__
        self._linked[id(fn)] = made  # before its helpers, which may call it
        # Link the closure first. It holds the op from which a derived rule is derived; errors should name that op first.
        for mine, theirs in zip(cells, fn.__closure__ or (), strict=True):
            if is_filled(theirs):
                mine.cell_contents = self.value(theirs.cell_contents)
        for name, tree in names.items():
            named[name] = self._named(fn.__globals__[name], tree, name)
        made.__defaults__ = None if fn.__defaults__ is None else tuple(map(self.value, fn.__defaults__))
        made.__kwdefaults__ = {k: self.value(v) for k, v in fn.__kwdefaults__.items()} if fn.__kwdefaults__ else {}
        return made

    def _named(self, value: Any, tree: _Tree, path: str) -> Any:
        """Return the linked value of a global name; `tree` holds the attributes that the rule reads of it."""
        if not isinstance(value, (OpNamespace, OpOverloadPacket, ModuleType)):
            if tree and is_absent(value):  # a packet
                return SimpleNamespace(
                    **{name: self._named(AbsentOp(f"{value}.{name}"), below, path) for name, below in tree.items()}
                )
            if tree and isinstance(value, OpOverload):
                raise RuleError(
                    f"a rule reads {path}.{next(iter(tree))}. In a linked rule the backend's kernel replaces the op, and it may "
                    "lack this attribute. Mark the rule @rule(..., recorded=True)"
                )
            return self.value(value)
        if isinstance(value, OpOverloadPacket) and not tree:
            raise RuleError(f"a rule calls {path}, which has several overloads. Call one of them, such as {path}.default")
        if isinstance(value, OpNamespace) and not tree:
            raise RuleError(
                f"a rule uses {path} itself, as in getattr({path}, name), so its ops cannot be linked. Write each overload, such "
                f"as {path}.exp.default, or mark the rule @rule(..., recorded=True)"
            )
        if isinstance(value, ModuleType) and not isinstance(value, OpNamespace) and not _module_refers_to_overload(value, tree, {}):
            return value
        # Exactly `ModuleType`: attribute lookup is faster than for other objects.
        made = ModuleType(path)
        if isinstance(value, ModuleType) and not isinstance(value, OpNamespace):
            made.__dict__.update(value.__dict__)
        for name, below in tree.items():
            if isinstance(value, (OpNamespace, OpOverloadPacket)) and not hasattr(value, name):
                one: Any = AbsentOp(f"{path_of(value)}.{name}")  # a packet or an overload that this torch lacks
            else:
                one = getattr(value, name)
            setattr(made, name, self._named(one, below, f"{path}.{name}"))
        return made


#: Attribute that code reads of a name -> the attributes that it reads of that attribute.
_Tree: TypeAlias = dict[str, "_Tree"]

_trees: dict[CodeType, _Tree] = {}


def _names(fn: FunctionType) -> _Tree:
    """Return the global names through which a function reads overloads, with the attributes that it reads of them."""
    tree: _Tree = {}
    for chain in name_chains(fn.__code__):
        if chain[0] in fn.__globals__ and _chain_refers_to_overload(fn.__globals__[chain[0]], chain[1:], {}):
            node = tree
            for name in chain:
                node = node.setdefault(name, {})
    return tree


def _refers_to_overload(value: Any, under_way: dict[int, Any]) -> bool:
    """Return whether a value is an overload, or refers to an overload that linking must replace.

    Args:
        value: the value.
        under_way: id -> value, for all values that this search has visited. If the search finds no overload, none of them refers
            to one.
    """
    kind = value.__class__
    if kind in _PLAIN:
        return False
    if isinstance(value, (OpOverload, AbsentOp)) or hasattr(kind, "__link__"):
        return True
    if id(value) in under_way:
        return False
    if isinstance(value, (FunctionType, type)):
        known = _known.get(value)
        if known is not None:
            return known
        first = not under_way
        under_way[id(value)] = value
        found = _class_refers_to_overload(value, under_way) if isinstance(value, type) else _reads_overloads(value, under_way)
        if found:
            _known[value] = True
        elif first:
            for one in under_way.values():
                if isinstance(one, (FunctionType, type)):
                    _known[one] = False
        return found
    under_way[id(value)] = value
    if isinstance(value, (tuple, list)):
        return any(_refers_to_overload(one, under_way) for one in value)
    if isinstance(value, dict):
        return any(_refers_to_overload(one, under_way) for one in value.values())
    if isinstance(value, functools.partial):
        return any(_refers_to_overload(one, under_way) for one in (value.func, *value.args, *value.keywords.values()))
    wrapped = getattr(value, "__wrapped__", None) if callable(value) else None
    return wrapped is not None and _refers_to_overload(wrapped, under_way)


#: Types whose values refer to no overload.
_PLAIN = frozenset({BuiltinFunctionType, str, bytes, bool, int, float, complex, type(None)})

#: Function or class -> whether it refers to overloads, once the search has finished.
_known: WeakKeyDictionary[FunctionType | type, bool] = WeakKeyDictionary()


def _is_standard(fn: FunctionType) -> bool:
    """Return whether a function's code is of Python's standard library or `torch.overrides`, so that it reads no overloads."""
    module = fn.__globals__.get("__name__", "")
    return module == "torch.overrides" or module.partition(".")[0] in sys.stdlib_module_names


def _reads_overloads(fn: FunctionType, under_way: dict[int, Any]) -> bool:
    held = [*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values()]
    held += [cell.cell_contents for cell in fn.__closure__ or () if is_filled(cell)]
    if any(_refers_to_overload(one, under_way) for one in held):
        return True
    named = fn.__globals__
    return not _is_standard(fn) and any(
        _chain_refers_to_overload(named[chain[0]], chain[1:], under_way) for chain in name_chains(fn.__code__) if chain[0] in named
    )


def _chain_refers_to_overload(value: Any, names: NameChain, under_way: dict[int, Any]) -> bool:
    if isinstance(value, (OpNamespace, OpOverloadPacket)):
        return True
    if isinstance(value, ModuleType):
        if not names or (value.__name__ == "torch" and names[0] != "ops"):
            return False
        return hasattr(value, names[0]) and _chain_refers_to_overload(getattr(value, names[0]), names[1:], under_way)
    return _refers_to_overload(value, under_way)


def _module_refers_to_overload(value: ModuleType, tree: Mapping[str, Any], under_way: dict[int, Any]) -> bool:
    return any(_chain_refers_to_overload(value, chain, under_way) for chain in _paths(tree))


def _paths(tree: Mapping[str, Any]) -> Iterator[NameChain]:
    for name, below in tree.items():
        yield from ((name, *rest) for rest in _paths(below)) if below else ((name,),)


def _class_refers_to_overload(value: type, under_way: dict[int, Any]) -> bool:
    """Return whether methods of a class call overloads; False for classes of other packages."""
    if value.__module__.partition(".")[0] != __name__.partition(".")[0]:
        return False
    return any(_refers_to_overload(one, under_way) for one in vars(value).values() if isinstance(one, FunctionType))


def is_filled(cell: CellType) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
