"""The shape to which shapes broadcast."""

from __future__ import annotations

from collections.abc import Sequence

from eagerdecomp.eager.verdict import Declined

__all__ = ["broadcast_shapes"]


def broadcast_shapes(*shapes: Sequence[int]) -> list[int]:
    """Return the shape to which all of these broadcast.

    Raises:
        Declined: if they do not.
    """
    found: list[int] = []
    for shape in shapes:
        rank = max(len(found), len(shape))
        left, right = ([1] * (rank - len(one)) + list(one) for one in (found, shape))
        for dim in reversed(range(rank)):
            a, b = left[dim], right[dim]
            if a != b and 1 not in (a, b):
                raise Declined
        found = [b if a == 1 else a for a, b in zip(left, right, strict=True)]
    return found
