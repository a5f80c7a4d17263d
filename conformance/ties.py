"""Ties: of equal values an op may answer the place of any, each once; which one eager's kernel answers is chance."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from conformance.judge import Arguments, Observed, only_values

__all__ = ["PICKING", "of_equals"]

#: OpInfos of ops that answer values and their places -> which argument the dimension is.
PICKING: dict[str, int] = {"sort": 1, "topk": 2}


def of_equals(name: str, differing: Sequence[str], arguments: Arguments, got: Observed) -> bool:
    """Whether what differs are places alone, of elements that are what eager picked."""
    positional, named = arguments
    if name not in PICKING or named.get("stable") or not only_values(differing):
        return False
    mine = ["result 1", *(f"input {number} afterwards" for number in got.shares[1])]
    if any(one.partition(":")[0] not in mine for one in differing):
        return False
    values, places = got.leaves
    at = PICKING[name]
    dim = positional[at] if len(positional) > at else named.get("dim", -1)
    return _each_once(places, dim) and bool((positional[0].gather(dim, places) == values).all())


def _each_once(places: Tensor, dim: int) -> bool:
    return bool((places.sort(dim)[0].diff(dim=dim) != 0).all())
