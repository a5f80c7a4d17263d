"""The rulebook: the planner of a backend over all the rules there are: the user's, our own, and torch's."""

from __future__ import annotations

from collections.abc import Iterable

from eagerdecomp.decomps import our_rules
from eagerdecomp.ops.backend import Backend
from eagerdecomp.planner.planner import Planner, shipped_costs
from eagerdecomp.rules.rule import Rule, index_rules
from eagerdecomp.rules.shipped import shipped_rules

__all__ = ["planner_of"]


def planner_of(backend: Backend, rules: Iterable[Rule] = ()) -> Planner:
    """What decides for each op of a backend.

    Args:
        backend: the op set and its kernels.
        rules: the user's own rules.

    Raises:
        RuleError: for two rules for one op.
    """
    return Planner(backend, index_rules(rules), our_rules, shipped_rules, shipped_costs)
