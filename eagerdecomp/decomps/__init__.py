"""Our own rules, a family per file; this module is the table of families, in the order a reader meets them."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from dataclasses import replace

from eagerdecomp._torch import OpOverload
from eagerdecomp.decomps import (
    attention,
    ctc,
    distances,
    distribution_gradients,
    distributions,
    elementwise,
    embedding,
    encoder,
    foreach,
    indexing,
    mutation,
    optimizers,
    padding,
    pooling,
    ragged,
    random,
    recurrent,
    reductions,
    repairs,
    resize,
    sampling,
    sorting,
    views,
)
from eagerdecomp.refusals import refusing
from eagerdecomp.rules import Rule, index_rules

__all__ = ["FAMILIES", "our_rules"]

FAMILIES: tuple[tuple[str, tuple[Rule, ...]], ...] = (
    ("attention", attention.RULES),
    ("distances", distances.RULES),
    ("encoder", encoder.RULES),
    ("ragged", ragged.RULES),
    ("elementwise", elementwise.RULES),
    ("reductions", reductions.RULES),
    ("sorting", sorting.RULES),
    ("indexing", indexing.RULES),
    ("views", views.RULES),
    ("recurrent", recurrent.RULES),
    ("pooling", pooling.RULES),
    ("padding", padding.RULES),
    ("resize", resize.RULES),
    ("random", random.RULES),
    ("sampling", sampling.RULES),
    ("distributions", distributions.RULES),
    ("distribution_gradients", distribution_gradients.RULES),
    ("foreach", foreach.RULES),
    ("optimizers", optimizers.RULES),
    ("ctc", ctc.RULES),
    ("embedding", embedding.RULES),
    ("repairs", repairs.RULES),
)


@functools.cache
def _by_op() -> Mapping[OpOverload, Rule]:
    return index_rules(_refusing(rule) for _, rules in FAMILIES for rule in rules)


def _refusing(rule: Rule) -> Rule:
    return rule if rule.linked else replace(rule, fn=refusing(str(rule.op), rule.fn))


def our_rules(op: OpOverload) -> Iterator[Rule]:
    """The library's rules for an op: one written by hand, and one that the schema gives (in-place and ``out=`` ops)."""
    rule = _by_op().get(op)
    if rule is not None:
        yield rule
    yield from mutation.rules_for(op)
