"""Shrink a failing call by its sizes, dimensions and values, where its random choices cannot be simplified."""

from __future__ import annotations

import functools
import itertools
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.spec import Call, tensors_of
from eagerdecomp.eager.observe import mapped_call, resolved
from eagerdecomp.eager.strides import in_order, memory_order
from eagerdecomp.verify.reproducer import resized

__all__ = ["smaller"]

# Limits for one failing call: number of calls of the kernel, and seconds for slow kernels.
_TRIES = 2000
_SECONDS = 3.0

# In a dimension of at most this size, each element is tried alone.
_EACH = 9


def smaller(call: Call, fails: Callable[[Call], bool]) -> Call:
    """Return a smaller and simpler call that still fails.

    Args:
        call: the failing call.
        fails: returns whether a call has the same fault.
    """
    tries = _Tries(call, fails)
    tries.takes(_apart(call))
    while any([_fewer_elements(tries), _fewer_dimensions(tries)]) and tries.left:
        pass
    _plainer(tries)
    return tries.call


def _apart(call: Call) -> Call | None:
    """Return the call with separate memory for each tensor; None if no tensors share memory."""
    tensors = tensors_of(call)
    if len({one.untyped_storage()._cdata for one in tensors}) == len(tensors):
        return None

    def own(value: Any) -> Any:
        return value.clone() if isinstance(value, Tensor) else value

    args, kwargs = mapped_call(own, call.args, call.kwargs)
    return replace(call, args=args, kwargs=kwargs)


class _Tries:
    """The smallest failing call so far, and the number of tries left."""

    def __init__(self, call: Call, fails: Callable[[Call], bool]) -> None:
        self.call = call
        self.left = _TRIES
        self._fails = fails
        self._until = time.monotonic() + _SECONDS

    def takes(self, changed: Call | None) -> bool:
        """Return whether a call fails too. It is then the smallest."""
        if time.monotonic() > self._until:
            self.left = 0
        if changed is None or not self.left:
            return False
        self.left -= 1
        if not self._fails(changed):
            return False
        self.call = changed
        return True


def _parts(size: int) -> Iterator[tuple[int, int]]:
    """Yield start and length of parts of a dimension, the shortest first; single elements only for short dimensions."""
    if size <= _EACH:
        yield from ((start, 1) for start in (0, size - 1, *range(1, size - 1)))
    half, quarter = size // 2, size // 4
    yield from ((0, half), (half, size - half), (size - 1, 1), (0, 1))
    yield from ((0, size - quarter), (quarter, size - quarter)) if quarter else ()
    yield from ((0, size - 1), (1, size - 1))


def _fewer_elements(tries: _Tries) -> bool:
    """Cut dimensions: all of one size together, a single one, or those of one size at the same position in all tensors."""
    before = tries.left
    changed = False
    for number, dim in _longest(tries.call):
        while number < len(tensors := tensors_of(tries.call)) and dim < tensors[number].dim() and tensors[number].shape[dim] > 1:
            size = tensors[number].shape[dim]
            if not any(tries.takes(cut) for start, less in _parts(size) for cut in _cuts(tries.call, number, dim, start, less)):
                break
            changed = True
    return changed and tries.left < before


def _longest(call: Call) -> list[tuple[int, int]]:
    places = [(number, dim) for number, one in enumerate(tensors_of(call)) for dim in range(one.dim())]
    return sorted(places, key=lambda place: -tensors_of(call)[place[0]].shape[place[1]])


def _cuts(call: Call, number: int, dim: int, start: int, less: int) -> Iterator[Call | None]:
    tensors = tensors_of(call)
    size = tensors[number].shape[dim]
    together = resized(call.args, call.kwargs, size, start, less)
    yield None if together is None else replace(call, args=together[0], kwargs=together[1])
    places_in = _may_hold_places(tensors)
    from_end = dim - tensors[number].dim()
    alike = {
        (other, one.dim() + from_end) for other, one in enumerate(tensors) if one.dim() >= -from_end and one.shape[from_end] == size
    }
    for places in ({(number, dim)}, alike) if len(alike) > 1 else (alike,):
        for dense in (True, False):
            changed = _changed(call, functools.partial(_narrowed, places, start, less, dense))
            yield changed if changed is None or not places_in else _changed(changed, functools.partial(_within, less))


def _may_hold_places(tensors: Sequence[Tensor]) -> bool:
    """Return whether an integer tensor may contain indices into another tensor."""
    return len(tensors) > 1 and any(not (one.is_floating_point() or one.is_complex() or one.dtype is torch.bool) for one in tensors)


def _within(size: int, number: int, one: Tensor) -> Tensor:
    """Return integers reduced to valid indices of a dimension, so that eager's kernels do not read out of bounds."""
    return one if one.is_floating_point() or one.is_complex() or one.dtype is torch.bool else one.clamp(0, size - 1)


def _narrowed(places: set[tuple[int, int]], start: int, less: int, dense: bool, number: int, one: Tensor) -> Tensor:
    made = one
    for other, dim in places:
        if other == number:
            made = made.narrow(dim, start, less)
    if made is one or not dense:
        return made
    made = resolved(made)
    strides = in_order(made.shape, memory_order(one))
    return torch.empty_strided(list(made.shape), strides, dtype=made.dtype, device=made.device).copy_(made)


def _fewer_dimensions(tries: _Tries) -> bool:
    """Remove dimensions of size 1, from all tensors or from one."""
    changed = False
    for dim in range(-6, 0):
        tensors = tensors_of(tries.call)
        places = [number for number, one in enumerate(tensors) if one.dim() >= max(-dim, 2) and one.shape[dim] == 1]
        if _may_hold_places(tensors) or not places:
            continue
        for some in (places, *([place] for place in places[: len(places) if len(places) > 1 else 0])):
            changed |= tries.takes(_changed(tries.call, functools.partial(_squeezed, some, dim)))
    return changed


def _squeezed(some: Sequence[int], dim: int, number: int, one: Tensor) -> Tensor:
    return one.squeeze(dim) if number in some and one.dim() >= -dim and one.shape[dim] == 1 else one


def _plainer(tries: _Tries) -> None:
    """Replace values by zeros, ones or integers, and make tensors contiguous. Integer tensors stay, because they may be indices."""
    for number in range(len(tensors_of(tries.call))):
        for plain in (torch.zeros_like, torch.ones_like, _rounded):
            if tries.takes(_changed(tries.call, functools.partial(_of_plain_values, number, plain))):
                break
        tries.takes(_changed(tries.call, functools.partial(_contiguous, number)))


def _rounded(one: Tensor) -> Tensor:
    return torch.where(one.isfinite() & (one.abs() < 100), one.round(), one) if not one.is_complex() else one


def _of_plain_values(at: int, plain: Callable[[Tensor], Tensor], number: int, one: Tensor) -> Tensor:
    return plain(one) if number == at and (one.is_floating_point() or one.is_complex()) else one


def _contiguous(at: int, number: int, one: Tensor) -> Tensor:
    return one.contiguous() if number == at else one


def _changed(call: Call, change: Callable[[int, Tensor], Tensor]) -> Call | None:
    """Return the call with each tensor changed; None if nothing changes, or if tensors share memory, which new ones would not."""
    tensors = tensors_of(call)
    if len({one.untyped_storage()._cdata for one in tensors}) < len({id(one) for one in tensors}):
        return None
    numbers, changes = itertools.count(), list[bool]()

    def of(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        made = change(next(numbers), value)
        changes.append(made is not value)
        return made

    args, kwargs = mapped_call(of, call.args, call.kwargs)
    return replace(call, args=args, kwargs=kwargs) if any(changes) else None
