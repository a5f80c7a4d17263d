"""The encoder's fused path in evaluation, which `nn.TransformerEncoderLayer` and `nn.MultiheadAttention` take without gradients."""

from __future__ import annotations

import pytest
import torch
from on_core import check, kernel_calls, on_core

aten = torch.ops.aten


@pytest.mark.parametrize("mask_type", [0, 1, 2, None, 3])
@pytest.mark.parametrize("shape", [(), (5,), (4, 5), (3, 4, 5), (2, 3, 4, 5), (2, 2, 3, 4, 5)], ids=str)
def test_masked_softmax_with_a_mask_of_the_inputs_shape_ignores_the_type(shape: tuple[int, ...], mask_type: int | None) -> None:
    mask = torch.rand(shape, generator=torch.Generator().manual_seed(0)) > 0.6
    for dim in (None, *{0, -1, len(shape) // 2}):
        check(aten._masked_softmax.default, torch.randn(shape), mask, dim, mask_type)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("dim", [None, 0, 1, 2, 3, -1, -3])
@pytest.mark.parametrize(("mask_type", "shape"), [(0, (5, 5)), (1, (2, 5)), (2, (2, 3, 5, 5))])
def test_masked_softmax_along_any_dimension(mask_type: int, shape: tuple[int, ...], dim: int | None, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    mask = torch.rand(shape, generator=generator) > 0.5
    x = torch.randn(2, 3, 5, 5, generator=generator).to(dtype)
    check(aten._masked_softmax.default, x, mask, dim, mask_type)
    check(aten._masked_softmax.default, x, mask.mT.contiguous().mT, dim, mask_type)
    # Eager's kernel writes the results of such inputs as if they were contiguous: its values are those of other elements.
    for strided in (x.to(memory_format=torch.channels_last), x.transpose(2, 3).contiguous().transpose(2, 3)):
        got = on_core(lambda: aten._masked_softmax(strided, mask, dim, mask_type))  # noqa: B023 - called at once
        assert got.stride() == aten._masked_softmax(strided, mask, dim, mask_type).stride()
        torch.testing.assert_close(got, aten._masked_softmax(x, mask, dim, mask_type), equal_nan=True, check_stride=False)


def test_self_attention_multiplies_its_input_once() -> None:
    x = torch.randn(3, 5, 8)
    given = (x, x, x, 8, 2, torch.randn(24, 8), torch.randn(24), torch.randn(8, 8), torch.randn(8), None, False)
    assert kernel_calls(lambda: aten._native_multi_head_attention.default(*given)) <= 20
