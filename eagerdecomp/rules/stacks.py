"""Compute many small tensors with one kernel: concatenate them along the first dimension, and split the result.

Only tensors that share no memory are concatenated, so that the order of writes does not matter. Each tensor is still written by its
own `copy_`, because no Core ATen kernel writes several tensors. Replacing the storage of a tensor instead is not possible: a NumPy
array that shares the storage would read freed memory.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import PLAIN_TENSORS
from eagerdecomp.eager.strides import is_dense
from eagerdecomp.rules.link import Linkable, has_kernels, link_on_call, ops_on_call
from eagerdecomp.rules.writeback import columns_in_blocks, cut_row

__all__ = ["Stack", "Worth", "can_stack", "joined_value", "rows_of", "stack", "stack_positions", "store"]

aten = torch.ops.aten

#: Maximum bytes of a stack. For larger results the system allocates new pages, which cost more than the saved calls.
_STACK = 1 << 16


@dataclass(frozen=True)
class Worth:
    """The limits within which one stack is faster than one call per tensor."""

    tensors: int  # minimum number of tensors
    nbytes: int  # maximum bytes of one tensor: for larger tensors the elements cost more than the calls
    share: float = 0.0  # minimum share of such tensors in the list

    def holds(self, tensors: Sequence[Tensor]) -> bool:
        """Return whether there are enough small tensors; the first and cheapest check."""
        if len(tensors) < self.tensors:
            return False
        return sum(tensor.nbytes <= self.nbytes for tensor in tensors) >= max(self.tensors, self.share * len(tensors))


_cat, _split = ops_on_call("cat.default", "split_with_sizes.default")


@dataclass(frozen=True, eq=False)
class Stack:
    """Tensors with the same trailing sizes, concatenated along the first dimension, so that one kernel computes all."""

    tensors: Sequence[Tensor]
    joined: Tensor


#: ``can_stack()``: whether the set has kernels for `cat` and `split_with_sizes`. If these are decomposed, stacks save nothing.
#: False also while calls are recorded for a backend's compile hook, which fuses them itself.
can_stack = Linkable(
    lambda call: functools.partial(has_kernels, call, aten.cat.default, aten.split_with_sizes.default),
)


def joined_value(target: Any) -> Any:
    """Return the concatenated tensor of a stack; any other value itself."""
    return target.joined if target.__class__ is Stack else target


def store(target: Any, value: Tensor) -> None:
    """Write a value to a tensor, or split it and write each part to its tensor of a stack."""
    if target.__class__ is not Stack:
        aten.copy_.default(target, value)
        return
    pieces = _split(value, [tensor.shape[0] for tensor in target.tensors])
    for tensor, piece in zip(target.tensors, pieces, strict=True):
        aten.copy_.default(tensor, piece)


def stack(tensors: Sequence[Tensor], positions: Sequence[int]) -> Stack | None:
    """Concatenate the tensors at these positions; None for an empty list."""
    if not tensors:
        return None
    chosen = tensors if len(positions) == len(tensors) else [tensors[at] for at in positions]
    return Stack(chosen, _cat(chosen))


@link_on_call
def rows_of(worth: Worth, lists: Sequence[Sequence[Tensor]], *numbers: Sequence[Any], join: bool = True) -> Iterator[Sequence[Any]]:
    """Yield the arguments of an update, the tensors it writes first: a row per tensor, block of a large one, or stack.

    Args:
        worth: when small tensors are joined.
        lists: lists of tensors, the targets first. A list without tensors is None in each row.
        numbers: lists of a number per target.
        join: whether stacks may be made.
    """
    if join and worth.holds(lists[0]) and can_stack():
        stacks, alone = stack_positions(worth, [tensors for tensors in lists if tensors], numbers)
        for positions in stacks:
            yield [*[stack(tensors, positions) for tensors in lists], *[column[positions[0]] for column in numbers]]
        if stacks:
            lists = [[tensors[at] for at in alone] if tensors else tensors for tensors in lists]
            numbers = tuple([column[at] for at in alone] for column in numbers)
    if lists[0]:
        columns = [given or [None] * len(lists[0]) for given in (*lists, *numbers)]
        yield from zip(*columns_in_blocks(cut_row, columns), strict=True)


def stack_positions(
    worth: Worth, lists: Sequence[Sequence[Tensor]], numbers: Sequence[Sequence[Any]]
) -> tuple[list[list[int]], list[int]]:
    """Return the positions of tensors for each stack, and the positions of the other tensors.

    A stack holds small contiguous tensors with the same trailing sizes and the same `numbers`. The tensors at one position of all
    lists have one dtype. There are no stacks if any two tensors share memory, except that several lists may hold the same tensor
    at the same position, because it is read before it is written.
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


def _are_plain(tensors: Sequence[Tensor]) -> bool:
    """Return whether all are plain CPU tensors, so that their addresses show which memory they share."""
    return PLAIN_TENSORS.issuperset(map(type, tensors)) and all(tensor.is_cpu for tensor in tensors)


def _are_apart(addresses: Iterable[int], sizes: Sequence[int], count: int) -> bool:
    """Return whether tensors at different positions share no memory. The arguments are lists of `count` tensors, concatenated."""
    end, last, seen = 1, 0, -1  # the address of a tensor without memory is 0
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
    """Group the positions of contiguous tensors by dtype, trailing sizes and numbers."""
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
    """Return a key that is equal for scalars that can share a kernel call: a float's value (not for zeros and NaN), else the id."""
    return number if number.__class__ is float and number and number == number else id(number)


def _parts(worth: Worth, alike: Sequence[int], sizes: Sequence[int]) -> Iterator[list[int]]:
    """Split positions of small tensors into parts that are large enough, but not too large, for a stack."""
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
