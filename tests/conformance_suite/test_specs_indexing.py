"""Right kernels of indexing and reductions that differ from eager pass, of ops that have no equivalent in the kill matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults

from eagerdecomp.ops.opset import resolve_ops

aten = torch.ops.aten
HALVES = (torch.float16, torch.bfloat16)

pytestmark = pytest.mark.filterwarnings("ignore")


# -- right in another way ----------------------------------------------------------------------------------------------------


def amax_with_other_zeros(x, dims=(), keepdim=False):
    result = aten.amax(x, dims, keepdim)
    return torch.where(result == 0, torch.zeros_like(result), result)


def index_put_turned(x, indices, values, accumulate=False):
    if not accumulate:
        found = aten.index_put(x, indices, values)
        return found if x.is_contiguous() or x.dim() != 2 else found.t().contiguous().t()
    wide = torch.float64 if x.dtype in (*HALVES, torch.float32) else x.dtype
    return aten.index_put(x.to(wide), indices, values.to(wide), True).to(x.dtype)


def bag_by_rows(weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding=-1):
    result, _, sizes, places = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding)
    indices, offsets = indices.flatten(), offsets.long()
    ends = offsets if last else torch.cat([offsets, torch.tensor([len(indices)])])
    bags = torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff()) if len(ends) > 1 else torch.empty(0, dtype=torch.long)
    return result.clone(), bags.to(sizes.dtype), sizes, places


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.amax.default", amax_with_other_zeros),
    ("aten.index_put.default", index_put_turned),
    ("aten._embedding_bag.default", bag_by_rows),
    ("aten.nonzero.default", lambda x: aten.nonzero(x).contiguous()),
    ("aten.index.Tensor", lambda x, indices: aten.index.Tensor(x, indices).contiguous()),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "run"), sampled(RIGHT, ids=lambda case: f"{case[0]}-{case[1].__name__}"))
def test_right_kernels_that_differ_from_eager_pass(name: str, run: Callable[..., Any]) -> None:
    (op,) = resolve_ops([name])

    def refusing(*args: Any, **kwargs: Any) -> Any:
        op(*args, **kwargs)
        return run(*args, **kwargs)

    assert first_faults(name, refusing, 120) == []


# -- broken ------------------------------------------------------------------------------------------------------------------
