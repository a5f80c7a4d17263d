"""Our own rules, a folder per family of ops; this module is their table."""

from __future__ import annotations

import functools
import importlib
import pkgutil
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps.derived import foreach, fsdp_copies, inplace_and_out
from eagerdecomp.eager.scalars import HELD, holding
from eagerdecomp.rules.rule import Rule, library_rules, rules_of
from eagerdecomp.rules.user_rules import index_rules

__all__ = ["LIBRARIES", "families", "our_rules", "small_ops", "sparse_rule"]

_LIBRARIES = f"{__name__}.libraries"


def _import_modules(folder: str) -> list[str]:
    """Import the modules of a folder; return their names."""
    package = importlib.import_module(folder)
    modules = sorted(info.name for info in pkgutil.iter_modules(package.__path__, f"{folder}."))
    for module in modules:
        importlib.import_module(module)
    return modules


@functools.cache
def families() -> Mapping[str, tuple[Rule, ...]]:
    """Return the rules of each folder. The first call imports all modules, about a hundred."""
    return {folder: rules for folder, rules in _rules_by_folder() if rules}


def _rules_by_folder() -> Iterator[tuple[str, tuple[Rule, ...]]]:
    for folder in pkgutil.iter_modules(__path__, f"{__name__}."):
        if folder.name != _LIBRARIES:
            modules = _import_modules(folder.name)
            yield folder.name.rpartition(".")[2], tuple(rule for module in modules for rule in rules_of(module))


#: The namespaces of ops of other libraries than torch for which there are rules (`decomps/libraries`).
LIBRARIES: frozenset[str] = frozenset(info.name for info in pkgutil.iter_modules([f"{__path__[0]}/libraries"]))


@functools.cache
def _import_library(namespace: str) -> None:
    """Import the rules for a library. This is called when one of its ops is first seen."""
    _import_modules(f"{_LIBRARIES}.{namespace}")


@functools.cache
def _by_op(source: str) -> Mapping[OpOverload, tuple[Rule, ...]]:
    """Return the rules of each op: first the linked one, then the recorded one for calls that the linked one declines."""
    rules = [rule for family in families().values() for rule in family if rule.source == source]
    linked = index_rules(rule for rule in rules if rule.linked)
    recorded = index_rules(rule for rule in rules if not rule.linked)
    return {op: tuple(table[op] for table in (linked, recorded) if op in table) for op in {**linked, **recorded}}


def _rules_of(op: OpOverload, source: str) -> Iterator[Rule]:
    return map(_holding, _by_op(source).get(op, ()))


@functools.cache
def _holding(rule: Rule) -> Rule:
    """Return a rule that gets its scalars as eager's kernel does."""
    name = str(rule.op)
    if name not in HELD:
        return rule
    return replace(rule, around=functools.partial(holding, name)) if rule.linked else replace(rule, fn=holding(name, rule.fn))


@functools.cache
def our_rules(op: OpOverload) -> tuple[Rule, ...]:
    """Return the library's rules for an op, in the order in which they are tried.

    Rules written by hand come first. A rule derived from the schema follows, for foreach, in-place and ``out=`` ops. The last ones
    are for sets of prims (source ``prims``) and for sets without some Core ATen ops (source ``small``). Rules for ops of other
    libraries are imported when such an op is first seen.
    """
    if op.namespace in LIBRARIES:
        _import_library(op.namespace)
    derived = [*foreach.rules_for(op), *inplace_and_out.rules_for(op), *fsdp_copies.rules_for(op)]
    return (*library_rules(op), *_rules_of(op, "own"), *derived, *_rules_of(op, "prims"), *_rules_of(op, "small"))


@functools.cache
def small_ops() -> frozenset[str]:
    """Return the names of the ops with a rule for sets that lack some Core ATen ops. These rules are not recorded."""
    return frozenset(map(str, _by_op("small")))


def sparse_rule(op: OpOverload) -> Rule | None:
    """Return the library's rule for calls of an op with sparse tensors; None if sparse calls use the same rules as dense ones."""
    return next(_rules_of(op, "sparse"), None)
