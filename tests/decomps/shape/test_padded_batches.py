"""The transformer encoder of a padded batch, which eager runs on nested tensors, and their ops one by one."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import check, on_core
from torch import nn

LENGTHS = [[5, 5, 5], [5, 2, 1], [3, 2, 3], [5, 0, 2]]


def padding(lengths: list[int]) -> torch.Tensor:
    """``[B, 5]``, true where there is no row, as `src_key_padding_mask` wants it."""
    return torch.arange(5) >= torch.tensor(lengths)[:, None]


@pytest.mark.parametrize("lengths", LENGTHS)
@pytest.mark.parametrize("guard", [torch.no_grad, torch.inference_mode])
@pytest.mark.parametrize(("activation", "norm_first"), [("relu", False), ("gelu", False), ("relu", True)])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors", "ignore:enable_nested_tensor is True")
def test_an_encoder_in_evaluation_leaves_padding_alone(activation: str, norm_first: bool, guard: Any, lengths: list[int]) -> None:
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, activation=activation, norm_first=norm_first)
    model = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8)).eval()

    def run(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        with guard():
            return model(x, src_key_padding_mask=mask)

    check(run, torch.randn(3, 5, 8), padding(lengths))


@pytest.mark.parametrize(
    "mask",
    [~padding([5, 2, 0]), torch.tensor([[True, False, True, False, True]] * 3), torch.ones(3, 5), torch.ones(3, 4).bool()],
    ids=["aligned", "gaps", "float", "narrow"],
)
def test_whether_a_mask_is_left_aligned(mask: torch.Tensor) -> None:
    check(torch._nested_tensor_from_mask_left_aligned, torch.randn(3, 5, 2), mask)


@pytest.mark.parametrize("size", [None, (2, 5, 2), (2, 3, 2), (3, 4, 2), (2, 7, 4), (2, 2, 2), (2, 5)])
@pytest.mark.parametrize("rows", [[[True] * 3 + [False] * 2, [True] + [False] * 4]])
@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_there_and_back(rows: list[list[bool]], size: tuple[int, ...] | None) -> None:
    def run(x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        made: torch.Tensor = torch._nested_tensor_from_mask(x, mask).to_padded_tensor(7.0, size)
        return made

    check(run, torch.randn(2, 5, 2), torch.tensor(rows))


def test_a_mask_with_gaps_makes_no_rows() -> None:
    check(torch._nested_tensor_from_mask, torch.randn(1, 3, 2), torch.tensor([[True, False, True]]))


def test_another_op_says_which_ones_there_are() -> None:
    with pytest.raises(NotImplementedError, match=r"aten\.sin\.default of a ragged batch"):
        on_core(lambda: torch.sin(torch._nested_tensor_from_mask(torch.randn(1, 3, 2), torch.ones(1, 3).bool())))
