"""The table of layouts names ops, its strides are those of eager's iterator, and rules that use it read little."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from eagerdecomp.eager.layouts import LAYOUTS, iterator_strides
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
