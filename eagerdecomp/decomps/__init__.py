"""Our own rules, a family per file; this module is the table of families, in the order a reader meets them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping

from eagerdecomp._torch import OpOverload
from eagerdecomp.decomps import attention, foreach, mutation
from eagerdecomp.rules import Rule, index_rules

__all__ = ["FAMILIES", "own_rules", "schema_rules"]

FAMILIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("attention", attention.RULES),
    ("foreach", foreach.RULES),
)


@functools.cache
def _by_op() -> Mapping[OpOverload, Rule]:
    return index_rules(rule for _, rules in FAMILIES for rule in rules)


def own_rules(op: OpOverload) -> Iterator[Rule]:
    """The library's own rule for an op, if it has one."""
    rule = _by_op().get(op)
    if rule is not None:
        yield rule


def schema_rules(op: OpOverload) -> Iterator[Rule]:
    """The rule that an op's schema gives: in-place and ``out=`` ops by their functional twin."""
    yield from mutation.rules_for(op)
