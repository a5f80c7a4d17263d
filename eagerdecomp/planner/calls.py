"""Calls: by which calls each rule was seen to call what it calls, and what each op's gradient calls; harvested, shipped as data.

`footprints` says what the planner needs, in little; this is the long form, which only a plan reads. ``tools/harvest_calls.py``
writes ``calls.json``: torch's operator database in float32, the first calls of each op in a few other dtypes, and their gradients.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eagerdecomp.ops.shipped_data import shipped_data
from eagerdecomp.planner.rule_calls import Footprint

__all__ = ["SeenCall", "SeenOp", "load_calls"]


@dataclass(frozen=True)
class SeenCall:
    """One kind of call: an example, and what each rule that took it called."""

    example: str
    by_source: Mapping[str, Footprint]


@dataclass(frozen=True)
class SeenOp:
    """What was seen of one op.

    Attributes:
        eager: eager calls it for the operator database; others are met within rules.
        calls: kinds of call, the most frequent first.
        gradient: an example and what its backward called, for each kind; None where autograd has no gradient for it.
    """

    eager: bool
    calls: tuple[SeenCall, ...]
    gradient: tuple[tuple[str, Footprint | None], ...]


@functools.cache
def load_calls() -> Mapping[str, SeenOp]:
    """What was seen of each op, by name; nothing where it was harvested from another torch release."""
    text = shipped_data("calls.json")
    return {} if text is None else {op: _seen(told) for op, told in json.loads(text)["ops"].items()}


def _seen(told: Mapping[str, Any]) -> SeenOp:
    footprints = told["footprints"]
    calls = tuple(
        SeenCall(example, {source: footprints[number] for source, number in by_source.items()})
        for example, by_source in told["calls"]
    )
    return SeenOp(told["eager"], calls, tuple((example, footprint) for example, footprint in told["gradient"]))
