"""The table of facts that are not in schemas: its rows name ops of torch, each once per fact, and `facts_of` returns them."""

from __future__ import annotations

from collections import Counter

import torch

from eagerdecomp._torch.ops import op_names
from eagerdecomp.ops.facts import ROWS, UNSTATED, UnstatedFacts
from eagerdecomp.ops.schema import facts_of

aten = torch.ops.aten


def test_every_name_is_an_op_of_this_torch() -> None:
    known = {part for name in op_names() for part in (name, name.partition(".")[0])}
    assert [name for name in UNSTATED if name not in known] == []


def test_no_op_has_a_fact_twice() -> None:
    stated = Counter((name, fact) for facts, names in ROWS for name in names.split() for fact in facts)
    assert [pair for pair, count in stated.items() if count > 1] == []


def test_every_row_differs_from_the_defaults() -> None:
    assert [facts for facts, _ in ROWS for fact, value in facts.items() if value == getattr(UnstatedFacts, fact)] == []


def test_the_facts_of_an_op_are_those_of_its_packet() -> None:
    assert facts_of(aten.empty.memory_format).allocates
    assert facts_of(aten.empty.memory_format).reads_metadata
    assert facts_of(aten.sort.stable).finds_ties
    assert not facts_of(aten.add.Tensor).allocates
