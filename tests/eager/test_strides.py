"""The stride rules equal torch's own on sliced, expanded and permuted tensors."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from eagerdecomp.eager.observe import significant_strides
from eagerdecomp.eager.strides import inverse, is_dense, memory_order


@st.composite
def tensors(draw: st.DrawFn) -> torch.Tensor:
    sizes = draw(st.lists(st.integers(1, 4), max_size=5))
    tensor = torch.zeros(sizes).permute(draw(st.permutations(range(len(sizes)))))
    for dim in range(tensor.dim()):
        cut = draw(st.sampled_from(["", "", "narrow", "expand", "step"]))
        if cut == "narrow":
            tensor = tensor.narrow(dim, 0, max(1, tensor.size(dim) - 1))
        elif cut == "expand" and tensor.size(dim) == 1:
            tensor = tensor.expand([3 if at == dim else size for at, size in enumerate(tensor.shape)])
        elif cut == "step":
            tensor = tensor[(slice(None),) * dim + (slice(None, None, 2),)]
    return tensor


@given(tensors())
def test_memory_order_equals_that_of_empty_like(tensor: torch.Tensor) -> None:
    order = memory_order(tensor)
    strided = torch.empty([tensor.shape[dim] for dim in order]).permute(inverse(order))
    assert strided.shape == tensor.shape
    assert significant_strides(strided) == significant_strides(torch.empty_like(tensor))


@given(tensors())
def test_is_dense_equals_torchs_result(tensor: torch.Tensor) -> None:
    assert is_dense(tensor) == torch.ops.aten.is_non_overlapping_and_dense.default(tensor)
