"""`_foreach_` ops compute small tensors by one kernel: which tensors are concatenated, and what is written."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from eagerdecomp.rules.stacks import Worth, stack_positions

WORTH = Worth(tensors=3, nbytes=64)


def positions(*lists: list[Tensor], numbers: tuple[list[Any], ...] = ()) -> list[list[int]]:
    stacks, alone = stack_positions(WORTH, lists, numbers)
    assert sorted([*(at for one in stacks for at in one), *alone]) == list(range(len(lists[0])))
    return stacks


def test_tensors_of_the_same_trailing_sizes_are_concatenated() -> None:
    shapes = [(3,), (2, 3), (4,), (), (1, 3), (17,), (0,), (5, 3), (2,), (2, 2)]
    assert positions([torch.ones(shape) for shape in shapes]) == [[0, 2, 8], [1, 4, 7]]
    assert positions([torch.ones(3)] * 2) == []


def test_tensors_of_different_dtypes_strides_or_scalars_are_not_concatenated() -> None:
    alike = [torch.ones(2, 3) for _ in range(6)]
    assert positions(alike) == [list(range(6))]
    assert positions([one.double() if at % 2 else one for at, one in enumerate(alike)]) == [[0, 2, 4], [1, 3, 5]]
    assert positions([*alike[:5], torch.ones(3, 2).t()]) == [[0, 1, 2, 3, 4]]
    assert positions(alike, numbers=([0.5, float("1.5")] * 3,)) == [[0, 2, 4], [1, 3, 5]]
    assert positions(alike, numbers=([0.0, -0.0] * 3,)) != [list(range(6))]


def test_tensors_that_share_memory_are_not_concatenated() -> None:
    memory, others = torch.ones(12), [torch.ones(3) for _ in range(4)]
    assert positions(list(memory.split(3)), others) == [[0, 1, 2, 3]]
    assert positions([memory[at : at + 3] for at in (0, 3, 6, 8)], others) == []
    assert positions(others, others) == [[0, 1, 2, 3]]
    assert positions(others, others[::-1]) == []
    assert positions(others, [memory[0:3], memory[1:4], *others[2:]]) == []
    assert positions([memory.as_strided((3,), (2,), at) for at in (0, 1, 6, 7)], others) == []


class Named(Tensor):
    pass


def test_only_plain_tensors_are_concatenated() -> None:
    assert positions([torch.ones(3, device="meta") for _ in range(4)]) == []
    assert positions([torch.ones(3).as_subclass(Named) for _ in range(4)]) == []
