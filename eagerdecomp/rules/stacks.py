"""Many small tensors computed by one kernel: joined along their first dimension, and written from the pieces of the result.

Only tensors whose memory is apart are joined, so that the order of writes does not show. Each tensor is still written by a `copy_`
of its own: no kernel of Core ATen writes several tensors, and the memory of a result cannot take the place of a tensor's. A NumPy
array of the tensor would see that, and read freed memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.strides import is_dense
from eagerdecomp.rules.link import Linkable, ops_on_call
from eagerdecomp.rules.rule import has_kernels

__all__ = ["Stack", "Worth", "can_stack", "joined_value", "stack", "stack_positions", "store"]

aten = torch.ops.aten

#: The most bytes of a stack: larger results come as fresh pages of the system, which cost more than the calls that are saved.
_STACK = 1 << 16


@dataclass(frozen=True)
class Worth:
    """When a stack takes less time than its tensors one by one."""

    tensors: int  # at least so many
    nbytes: int  # of so many bytes at most: of larger ones the elements cost more than the calls

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Whether there are enough small tensors, before anything else is asked of them."""
        return len(tensors) >= self.tensors and sum(tensor.nbytes <= self.nbytes for tensor in tensors) >= self.tensors


_cat, _split = ops_on_call("cat.default", "split_with_sizes.default")


@dataclass(frozen=True, eq=False)
class Stack:
    """Tensors of the same trailing sizes, joined along their first dimension, so that one kernel computes all."""

    tensors: Sequence[Tensor]
    joined: Tensor


#: ``can_stack()``: whether the set has the kernels that join and split. Where either takes several, stacks save nothing; and a
#: backend's hook fuses what it is given.
can_stack = Linkable(
    lambda call: functools.partial(has_kernels, call, aten.cat.default, aten.split_with_sizes.default),
)


def joined_value(target: Any) -> Any:
    """The tensor that a kernel reads: a stack's joined one, any other value itself."""
    return target.joined if target.__class__ is Stack else target


def store(target: Any, value: Tensor) -> None:
    """Write to a tensor, or to each tensor of a stack its part."""
    if target.__class__ is not Stack:
        aten.copy_.default(target, value)
        return
    pieces = _split(value, [tensor.shape[0] for tensor in target.tensors])
    for tensor, piece in zip(target.tensors, pieces, strict=True):
        aten.copy_.default(tensor, piece)


def stack(tensors: Sequence[Tensor], positions: Sequence[int]) -> Stack | None:
    """Join the tensors at these positions; None for an empty list."""
    if not tensors:
        return None
    chosen = tensors if len(positions) == len(tensors) else [tensors[at] for at in positions]
    return Stack(chosen, _cat(chosen))


def stack_positions(
    worth: Worth, lists: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[Any]]
) -> tuple[list[list[int]], list[int]]:
    """Return the positions of tensors that are computed together, and of those that are not. Together are small ones of the same
    trailing sizes that have their numbers in common, and all of whose tensors are contiguous.

    The tensors at one position have one dtype. Nothing is joined unless the memory of all tensors is apart; but at one position
    several lists may hold the same tensor, which is read before it is written.
    """
    targets, count = lists[0], len(lists[0])
    nothing: tuple[list[list[int]], list[int]] = [], list(range(count))
    sizes = [tensor.nbytes for tensor in targets]
    every = [tensor for tensors in lists for tensor in tensors]
    shapes = [tensor.shape for tensor in every]
    if shapes != shapes[:count] * len(lists) or not _are_plain(every):
        return nothing
    strided = {at % count for at, tensor in enumerate(every) if not tensor.is_contiguous()}
    if strided and not all(map(is_dense, every)):
        return nothing
    if not _are_apart(map(Tensor.data_ptr, every), sizes * len(lists), count):
        return nothing
    stacks = [part for alike in _kinds(targets, shapes, numbers, strided) for part in _parts(worth, alike, sizes)]
    if len(stacks) == 1 and len(stacks[0]) == count:
        return stacks, []
    together = {at for positions in stacks for at in positions}
    return stacks, [at for at in range(count) if at not in together]


_PLAIN_TENSORS = frozenset({Tensor, torch.nn.Parameter})


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Whether all are plain tensors in memory of the process, whose addresses say what they share."""
    return _PLAIN_TENSORS.issuperset(map(type, tensors)) and all(tensor.is_cpu for tensor in tensors)


def _are_apart(addresses: Iterable[int], sizes: Sequence[int], count: int) -> bool:
    """Whether tensors of different positions share no memory, of lists of `count` tensors one behind the other."""
    end, last, seen = 1, 0, -1  # a tensor without memory begins at 0
    for begin, at in sorted(zip(addresses, range(len(sizes)), strict=True)):
        size = sizes[at]
        if size:
            if begin < end and not (begin == last and at % count == seen):
                return False
            end, last, seen = begin + size, begin, at % count
    return True


def _kinds(
    targets: Sequence[Tensor], shapes: Sequence[torch.Size], numbers: Sequence[Sequence[Any]], strided: set[int]
) -> Iterable[list[int]]:
    """The positions of contiguous tensors that have dtype, trailing sizes and numbers in common."""
    kinds: dict[Any, list[int]] = {}
    keys = [
        [tensor.dtype for tensor in targets],
        shapes[: len(targets)],
        *(list(map(_identity, column)) for column in numbers),
    ]
    if all(key.count(key[0]) == len(key) for key in keys) and not strided:
        return [list(range(len(targets)))] if shapes[0] else []
    trailing = {shape: shape[1:] for shape in keys[1]}
    for at, (dtype, shape, *ids) in enumerate(zip(*keys, strict=True)):
        if shape and at not in strided:
            kinds.setdefault((dtype, trailing[shape], *ids), []).append(at)
    return kinds.values()


def _identity(number: Any) -> Any:
    """Return what two numbers have in common that serve as one: a float's value if no other float equals it, else the object."""
    return number if number.__class__ is float and number and number == number else id(number)


def _parts(worth: Worth, alike: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Positions of small tensors in parts that are worth a stack and not too large for one."""
    part: list[int] = []
    total = 0
    for at in alike:
        if 0 < sizes[at] <= worth.nbytes:
            part.append(at)
            total += sizes[at]
            if total >= _STACK:
                if len(part) >= worth.tensors:
                    yield part
                part, total = [], 0
    if len(part) >= worth.tensors:
        yield part
