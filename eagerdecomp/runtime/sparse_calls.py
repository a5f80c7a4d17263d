"""Separate sparse calls from dense ones, for ops that eager supports on sparse tensors.

A kernel of the set takes dense tensors. So the handlers of these ops check the layout at each call: even if no rule makes sparse
tensors, the user's program may have made one before it entered the mode.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import has_computed_kernel
from eagerdecomp._torch.ops import OpOverload, builtin, dispatcher_name, has_kernel
from eagerdecomp.dispatcher.device_kernels import SCALAR_TYPES, accepting_scalars
from eagerdecomp.ops.schema import facts_of, tensors_in
from eagerdecomp.program.key import may_be_number
from eagerdecomp.rules.rule import NoRoute
from eagerdecomp.runtime.entry import Handler, OnError

__all__ = ["SPARSE_LAYOUTS", "any_sparse", "by_layout", "raise_if_no_sparse_kernel", "sparse_handler", "takes_sparse"]

_COMPRESSED = frozenset({torch.sparse_csr, torch.sparse_csc, torch.sparse_bsr, torch.sparse_bsc})
SPARSE_LAYOUTS = _COMPRESSED | {torch.sparse_coo}

_KEYS = ("SparseCPU", "SparseCsrCPU")

#: Factories: their argument `layout` decides whether the result is sparse.
_FACTORIES = frozenset({"aten.empty.memory_format", "aten.zeros.default"})

#: The test of a list of tensors: a loop tests its items.
_EACH = "each"

#: The parts of a linked rule's handler: the rule, the rules after it, and the error handler.
_Parts: TypeAlias = tuple[Handler, Handler, OnError]


def any_sparse(values: Iterable[Any]) -> bool:
    """Return whether a tensor among the values, or in a list of them, is sparse."""
    for value in values:
        if isinstance(value, Tensor):
            if value.layout in SPARSE_LAYOUTS:
                return True
        elif isinstance(value, (list, tuple)) and any_sparse(value):
            return True
    return False


def takes_sparse(op: OpOverload) -> bool:
    """Return whether eager has kernels of the op both for sparse and for dense tensors."""
    if op.namespace != "aten" or not any(has_kernel(op, key) for key in _KEYS):
        return False
    return has_computed_kernel(dispatcher_name(op), "CPU")


def by_layout(op: OpOverload, run: Handler, sparse: Handler, places: tuple[int, ...] = (), make: Handler | None = None) -> Handler:
    """Return a handler that runs `sparse` for calls with a sparse tensor, and `run` for others.

    For an op without tensors, return `run`. Call the handler as the dispatcher does: pass arguments by position, unless they are
    keyword-only.

    Args:
        op: the overload.
        run: the handler for dense tensors.
        sparse: the handler for sparse tensors.
        places: positions of tensor arguments at which `make` converts scalars to tensors. A caller that learns them later calls
            the result's attribute `with_scalars(places, make)`, which returns such a handler without another Python frame.
        make: converts a scalar to a tensor.
    """
    if str(op) not in _FACTORIES and not any(one.holds_tensors for one in facts_of(op).arguments):
        return run
    handler = _by_layout(op, run, sparse, places, make)
    handler.with_scalars = functools.partial(by_layout, op, run, sparse)  # type: ignore[attr-defined]
    return handler


def _by_layout(op: OpOverload, run: Handler, sparse: Handler, places: tuple[int, ...], make: Handler | None) -> Handler:
    if str(op) in _FACTORIES:

        def factory(*args: Any, **kwargs: Any) -> Any:
            return sparse(*args, **kwargs) if kwargs.get("layout") in SPARSE_LAYOUTS else run(*args, **kwargs)

        return factory

    def any_layout(*args: Any, **kwargs: Any) -> Any:
        if any_sparse(args) or any_sparse(kwargs.values()):
            return sparse(*args, **kwargs)
        return run(*args, **kwargs)

    any_argument = any_layout if make is None else accepting_scalars(any_layout, places, make)
    tests = _tests(op, places)
    if tests is None:
        return any_argument
    parts: _Parts | None = getattr(run, "parts", None)
    arguments = facts_of(op).arguments
    by_position = sum(not one.kwarg_only for one in arguments)
    make_checked = _make_checked(tests, len(tests) < by_position, by_position < len(arguments), parts is not None)
    return make_checked(parts or (run,), any_argument)


def _tests(op: OpOverload, places: tuple[int, ...]) -> tuple[str, ...] | None:
    """Return, for each positional argument up to the last tensor, a Python expression that is true if it is dense.

    The expression is "" for arguments that are no tensors, and `_EACH` for a list of tensors without None. Return None for an op
    with tensors that the caller may pass by name or leave out.
    """
    arguments = facts_of(op).arguments
    tensors = [number for number, one in enumerate(arguments) if one.holds_tensors]
    if not tensors or any(arguments[number].kwarg_only or arguments[number].has_default for number in tensors):
        return None
    tests = [""] * (tensors[-1] + 1)
    for number in tensors:
        argument, name = arguments[number], f"_{number}"
        if argument.is_list and not argument.optional and not argument.optional_items:
            tests[number] = _EACH
            continue
        dense = f"{name}.layout is _strided" if not argument.is_list else f"not _any_sparse({name})"
        if number and number not in places and may_be_number(op, argument):
            dense = f"({name}.__class__ in _numbers or {dense})"
        tests[number] = f"({name} is None or {dense})" if argument.optional else dense
    return tuple(tests)


@functools.cache
def _make_checked(
    tests: tuple[str, ...], more: bool, named: bool, is_rule: bool
) -> Callable[[_Parts | tuple[Handler], Handler], Handler]:
    """Compile ``make(parts, any_argument) -> checked``, the hot path of `by_layout`: one frame, with loops only over lists.

    ``checked`` calls ``any_argument`` if a test is false or an argument is a scalar; else it calls the handler in ``parts``.

    Args:
        tests: see `_tests`.
        more: whether the op has more positional arguments.
        named: whether the op has keyword-only arguments.
        is_rule: whether ``parts`` are `_Parts`. Then the frame replaces the one that `handlers.linked_rule` puts around a rule.
    """
    names = [f"_{number}" for number in range(len(tests))]
    by_position = ", ".join([*names, *["*_args"] * more])
    given = by_position + ", **_kwargs" * named
    call = f"_run({given}) if _kwargs else _run({by_position})" if named else f"_run({given})"
    body = [f"return {call}"]
    if is_rule:
        body = [
            "try:",
            f"    _result = {call}",
            f"    return _result if _result is not NotImplemented else _next_rules({given})",
            "except Exception as _error:",
            f"    return _on_error(_error, ({by_position},), {'_kwargs' if named else '{}'})",
        ]
    lists = [f"*{name}" for name, test in zip(names, tests, strict=True) if test == _EACH]
    items = f"({', '.join(lists)})" if len(lists) > 1 else "".join(lists).removeprefix("*")
    loop = [f"for _item in {items}:", "    if _item.layout is not _strided:", "        _dense = False", "        break"]
    checks = [
        "try:",
        f"    _dense = {' and '.join(test for test in tests if test and test != _EACH) or True}",
        *(f"    {line}" for line in loop if lists),
        "except AttributeError:",
        "    _dense = False",
        "if not _dense:",
        f"    return _any_argument({given})",
    ]
    parts = "_run, _next_rules, _on_error" if is_rule else "_run,"
    lines = ["def make(_parts, _any_argument):", f"    {parts} = _parts", f"    def checked({given}):"]
    source = "\n".join([*lines, *(f"        {line}" for line in (*checks, *body)), "    return checked\n"])
    namespace: dict[str, Any] = {
        "__name__": __name__,
        "_strided": torch.strided,
        "_numbers": SCALAR_TYPES,
        "_any_sparse": any_sparse,
    }
    exec(compile(source, "<handler of any layout>", "exec"), namespace)
    return namespace["make"]  # type: ignore[no-any-return]


def _has_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Return whether eager has a kernel, or a composition, that may take the sparse tensors of a call."""
    layouts = {one.layout for one in tensors_in([*args, *kwargs.values()])}
    keys = ["SparseCPU"] * (torch.sparse_coo in layouts) + ["SparseCsrCPU"] * bool(layouts & _COMPRESSED)
    return not keys or any(has_kernel(op, key) for key in (*keys, "CompositeExplicitAutograd", "CompositeImplicitAutograd"))


def raise_if_no_sparse_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise eager's error if it has no kernel for the sparse tensors of a call; else do nothing."""
    if op.namespace == "aten" and not _has_sparse_kernel(op, args, kwargs):
        builtin(op)(*args, **kwargs)


def sparse_handler(op: OpOverload, rule: Handler | None) -> Handler:
    """Return the handler of an op's sparse calls: run the op's sparse rule, or raise if it has none."""

    def handler(*args: Any, **kwargs: Any) -> Any:
        if rule is not None:
            found = rule(*args, **kwargs)
            if found is not NotImplemented:
                return found
        raise_if_no_sparse_kernel(op, args, kwargs)
        raise NoRoute(op)

    return handler
