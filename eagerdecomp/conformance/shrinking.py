"""Shrinking: a call that shows a fault made smaller by its sizes, where its choices cannot be."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from eagerdecomp.conformance.spec import Call, tensors_of
from eagerdecomp.verify.reproducer import resized

__all__ = ["smaller"]

# A call with no more elements than this is small enough.
_SMALL = 2

_TRIES = 80


def smaller(call: Call, fails: Callable[[Call], bool]) -> Call:
    """The call with fewer elements, one that fails too: each size, wherever it stands, is halved as long as a half is found.

    Args:
        fails: whether a call shows the same fault.
    """
    tries, given_up = _TRIES, set[int]()
    while sum(one.numel() for one in tensors_of(call)) > _SMALL and tries > 0:
        size = max({size for one in tensors_of(call) for size in one.shape if size > 1} - given_up, default=1)
        if size == 1:
            break
        half = size // 2
        for start, less in ((0, half), (half, size - half), (size - 1, 1), (0, size - 1)):
            changed = resized(call.args, call.kwargs, size, start, less)
            tries -= 1
            if changed is not None and fails(replace(call, args=changed[0], kwargs=changed[1])):
                call = replace(call, args=changed[0], kwargs=changed[1])
                break
        else:
            given_up.add(size)
    return call
