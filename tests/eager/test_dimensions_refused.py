"""A dimension out of range raises eager's error for every shape of the tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten

INDEX = torch.tensor([0])

CALLS: dict[str, Callable[[Tensor, int], Any]] = {
    "mode": lambda x, dim: aten.mode(x, dim),
    "hash_tensor": lambda x, dim: aten.hash_tensor(x, [dim]),
    "index_reduce": lambda x, dim: aten.index_reduce(x, dim, INDEX, x, "amin"),
    "scatter.reduce": lambda x, dim: aten.scatter(x, dim, INDEX, x, reduce="add"),
    "scatter.value_reduce": lambda x, dim: aten.scatter(x, dim, INDEX, 2.0, reduce="add"),
}


@pytest.mark.parametrize("ops", [ed.core_aten(), ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize("name", CALLS)
@pytest.mark.parametrize("shape", [(), (2, 3), (0, 3)], ids=str)
@pytest.mark.parametrize("dim", [3, -4])
def test_a_dimension_out_of_range_raises_index_error(name: str, ops: ed.OpSet, shape: tuple[int, ...], dim: int) -> None:
    call = CALLS[name]
    with pytest.raises(IndexError) as eager:
        call(torch.ones(shape), dim)
    with pytest.raises(IndexError) as ours, ed.EagerDecompMode(ops):
        call(torch.ones(shape), dim)
    assert str(ours.value) == str(eager.value)
