"""In-place and ``out=`` ops: the functional twin, then a write-back with ATen's checks. Derived from the schema, for every such op."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from eagerdecomp._torch import OpOverload
from eagerdecomp.rules import Call, Rule, linked
from eagerdecomp.schema import facts_of, functional_twin
from eagerdecomp.writeback import inplace_writer, out_writer

__all__ = ["rules_for"]


def rules_for(op: OpOverload) -> Iterator[Rule]:
    """The derived rule of an in-place or ``out=`` op; nothing for others, and for writers of lists (see `foreach`)."""
    facts = facts_of(op)
    twin = functional_twin(op)
    if twin is None:
        return
    if facts.is_out:
        yield linked(op, _out_linker(op, twin), source="schema")
    elif facts.is_inplace and len(facts.mutated) == 1 and not facts.arguments[0].is_list:
        yield linked(op, _inplace_linker(twin), source="schema")


def _inplace_linker(twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    def inplace(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), inplace_writer(call)

        def run(self: Any, *args: Any, **kwargs: Any) -> Any:
            return write(self, functional(self, *args, **kwargs), args)

        return run

    return inplace


def _out_linker(op: OpOverload, twin: OpOverload) -> Callable[[Call], Callable[..., Any]]:
    facts = facts_of(op)
    names = tuple(facts.arguments[position].name for position in facts.mutated)

    def out(call: Call) -> Callable[..., Any]:
        functional, write = call(twin), out_writer(call)

        def run_one(*args: Any, **kwargs: Any) -> Any:
            target = kwargs.pop(names[0])
            return write(target, functional(*args, **kwargs), args)

        def run_many(*args: Any, **kwargs: Any) -> Any:
            targets = [kwargs.pop(name) for name in names]
            results = functional(*args, **kwargs)
            return tuple(write(target, result, args) for target, result in zip(targets, results, strict=True))

        return run_one if len(names) == 1 else run_many

    return out
