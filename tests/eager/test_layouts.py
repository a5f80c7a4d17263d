"""Strides are those of eager's iterator and of torch's own rules, and rules that use the table of layouts read little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from on_core import on_core
from torch import Tensor

from eagerdecomp.eager.layouts import LAYOUTS, iterator_strides
from eagerdecomp.eager.observe import significant_strides
from eagerdecomp.eager.strides import inverse, is_dense, memory_order
from eagerdecomp.rules.restride import with_eager_strides

aten = torch.ops.aten


@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4), (2, 3, 4, 5)])
@pytest.mark.parametrize("seed", range(12))
def test_iterator_strides_equal_those_of_native_pointwise_ops(shape: tuple[int, ...], seed: int) -> None:
    torch.manual_seed(seed)

    def operand() -> Tensor:
        order = torch.randperm(len(shape)).tolist()
        sizes = [shape[dim] if torch.rand(()) < 0.8 else 1 for dim in order]
        return torch.randn(sizes).permute(torch.tensor(order).argsort().tolist())

    left, right = operand(), operand()
    for operands in ([left, right], [right, left], [left], [left, left], [left, 1.0], [1.0, left]):
        result = torch.exp(left) if len(operands) == 1 else torch.add(*operands)
        assert tuple(iterator_strides(result.shape, operands)) == result.stride()


@pytest.mark.parametrize("op", [aten.digamma, aten.special_i1e, aten.erfinv, aten.silu, aten.mish])
@pytest.mark.parametrize("row", [torch.rand(4, 3).t()[:1], torch.rand(4, 3).bfloat16().t()[:1]])
def test_strides_of_dimensions_of_size_one_equal_eagers(op: Callable[..., Tensor], row: Tensor) -> None:
    assert on_core(lambda: op(row)).stride() == op(row).stride()


@pytest.mark.parametrize("op", [aten.hardswish_backward.default, aten.xlogy.Tensor, aten._softmax_backward_data.default])
def test_a_rule_only_guards_that_operands_are_contiguous_and_of_one_shape(op: Callable[..., Tensor]) -> None:
    """So the programs of such calls have no other guards."""
    read: list[str] = []

    class Watched(Tensor):
        @property
        def shape(self) -> torch.Size:
            read.append("shape")
            return super().shape

        def stride(self, *args: int) -> tuple[int, ...]:  # type: ignore[override]
            read.append("stride")
            return super().stride()

    x, y = torch.rand(3, 4), torch.rand(3, 4)
    watched = [one.as_subclass(Watched) for one in (x, y)]
    entry = with_eager_strides(lambda *args: args[0], LAYOUTS[str(op)].results)
    assert entry(*watched) is watched[0]
    assert set(read) == {"shape"}


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
