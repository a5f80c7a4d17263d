"""Accept ties: among equal values an op may return the indices in any order, each once."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from eagerdecomp.conformance.judge import Arguments, ObservedCall, only_values
from eagerdecomp.eager.compare import Difference
from eagerdecomp.eager.tolerance import same_values

__all__ = ["INDEX_RESULTS", "is_tie"]

#: OpInfos of ops that return indices of values -> the index of this result, and of the `dim` argument.
INDEX_RESULTS: dict[str, tuple[int, int]] = {"argsort": (0, 1), "sort": (1, 1), "topk": (1, 2)}


def is_tie(name: str, differing: Sequence[Difference], arguments: Arguments, expected: ObservedCall, got: ObservedCall) -> bool:
    """Return whether only indices differ, each is there once, and their elements equal those that eager picked."""
    positional, named = arguments
    if name not in INDEX_RESULTS or named.get("stable") or not only_values(differing):
        return False
    result, at = INDEX_RESULTS[name]
    mine = [f"result {result}", *(f"input {number} afterwards" for number, _ in got.shares[result])]
    if any(one.what not in mine for one in differing):
        return False
    dim = positional[at] if len(positional) > at else named.get("dim", -1)
    want, have = (positional[0].detach().gather(dim, one.leaves[result]) for one in (expected, got))
    return _each_once(got.leaves[result], dim) and bool(same_values(want, have).all())


def _each_once(places: Tensor, dim: int) -> bool:
    return bool((places.sort(dim)[0].diff(dim=dim) != 0).all())
