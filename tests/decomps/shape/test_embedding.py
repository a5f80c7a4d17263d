"""Embeddings, bags of them, their gradients and row norms against eager."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

aten = torch.ops.aten

NAMES = ["sum", "mean", "max"]
#: Core ATen without the ops that hold a whole embedding, so that ours are used.
WITHOUT = CORE - ["aten._embedding_bag", "aten.embedding", "aten.embedding_dense_backward"]

INDICES = torch.tensor([1, 2, 4, 5, 4, 4, 1])
OFFSETS = torch.tensor([0, 2, 2, 4])


def table(dtype: torch.dtype = torch.float64, rows: int = 6, width: int = 3) -> Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.randn(rows, width, generator=generator, dtype=torch.float64).to(dtype)


def bag_and_gradients(weight: Tensor, indices: Tensor, offsets: Tensor | None, per_sample: Tensor | None, **options: Any) -> Any:
    leaves = [weight.detach().requires_grad_()]
    if per_sample is not None:
        leaves.append(per_sample.detach().requires_grad_())
    named = {"per_sample_weights": leaves[1]} if per_sample is not None else {}
    output = F.embedding_bag(indices, leaves[0], offsets, **named, **options)
    weights = torch.arange(1.0, output.numel() + 1, dtype=torch.float64).view(output.shape).to(output.dtype) / 8
    return output.detach(), *torch.autograd.grad(output, leaves, weights)


@pytest.mark.full
@pytest.mark.parametrize("ops", [CORE, WITHOUT], ids=["core", "without"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("padding_idx", [None, 4, -2])
@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize("mode", [*NAMES, "weighted"])
def test_bags(mode: str, include_last_offset: bool, padding_idx: int | None, dtype: torch.dtype, ops: Any) -> None:
    per_sample = table(dtype, 7, 1)[:, 0].clone() if mode == "weighted" else None
    offsets = torch.tensor([0, 2, 2, 7]) if include_last_offset else OFFSETS
    options: dict[str, Any] = {"include_last_offset": include_last_offset, "padding_idx": padding_idx}
    check(bag_and_gradients, table(dtype), INDICES, offsets, per_sample, mode=mode.replace("weighted", "sum"), ops=ops, **options)


@pytest.mark.full
@settings(max_examples=40, deadline=None)
@given(
    indices=st.lists(st.integers(0, 4), max_size=12),
    cuts=st.lists(st.integers(0, 12), max_size=5),
    mode=st.sampled_from(NAMES),
    by_frequency=st.booleans(),
    padding_idx=st.none() | st.integers(0, 4),
    dtypes=st.tuples(*[st.sampled_from([torch.int32, torch.int64])] * 2),
    without=st.booleans(),
)
def test_any_bags(
    indices: list[int],
    cuts: list[int],
    mode: str,
    by_frequency: bool,
    padding_idx: int | None,
    dtypes: tuple[torch.dtype, torch.dtype],
    without: bool,
) -> None:
    offsets = torch.tensor([0, *sorted(min(cut, len(indices)) for cut in cuts)], dtype=dtypes[1])
    options: dict[str, Any] = {"mode": mode, "padding_idx": padding_idx, "scale_grad_by_freq": by_frequency and mode != "max"}
    given_indices = torch.tensor(indices, dtype=dtypes[0])
    check(bag_and_gradients, table(rows=5), given_indices, offsets, None, ops=WITHOUT if without else CORE, **options)


@pytest.mark.parametrize("mode", NAMES)
def test_bags_of_one_size(mode: str) -> None:
    check(bag_and_gradients, table(), INDICES[:6].view(2, 3), None, None, mode=mode)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("op", [aten._embedding_bag.default, aten._embedding_bag_forward_only.default], ids=str)
@pytest.mark.parametrize("padding_idx", [-1, 4])
@pytest.mark.parametrize("include_last_offset", [False, True])
@pytest.mark.parametrize("mode", [0, 1, 2])
def test_the_four_results(mode: int, include_last_offset: bool, padding_idx: int, op: Any, dtype: torch.dtype) -> None:
    """Which of them are empty, and how long, differs between modes, dtypes and strides; backward kernels read them."""
    offsets = torch.tensor([0, 2, 2, 7])
    for weight in (table(dtype), table(dtype).t().contiguous().t()):
        for whole in (torch.int64, torch.int32):
            given_tensors = (weight, INDICES.to(whole), offsets.to(whole))
            for ops in (CORE, WITHOUT):
                check(op, *given_tensors, False, mode, False, None, include_last_offset, padding_idx, ops=ops)


@pytest.mark.parametrize("layout", ["transposed", "gapped"])
@pytest.mark.parametrize("mode", NAMES)
def test_layouts(mode: str, layout: str) -> None:
    weight = table().t().contiguous().t() if layout == "transposed" else torch.cat([table(), table()], 1)[:, ::2]
    check(bag_and_gradients, weight, INDICES, OFFSETS, None, mode=mode)
    check(bag_and_gradients, weight, INDICES, OFFSETS, None, mode=mode, ops=WITHOUT)


def test_weights_of_samples_with_gaps() -> None:
    check(bag_and_gradients, table(), INDICES, OFFSETS, table(rows=7)[:, 1], mode="sum")


@pytest.mark.parametrize("native", ["_embedding_bag", "_embedding_bag_backward"])
@pytest.mark.parametrize("mode", NAMES)
def test_a_backend_with_one_of_the_two_trains_right(mode: str, native: str) -> None:
    for dtype in (torch.float32, torch.float64):
        check(bag_and_gradients, table(dtype), INDICES, OFFSETS, None, mode=mode, ops=WITHOUT | {f"aten.{native}"})


@pytest.mark.parametrize("mode", [*NAMES, "weighted"])
def test_gradients_against_differences(mode: str) -> None:
    leaves = [table().requires_grad_()]
    if mode == "weighted":
        leaves.append(table(rows=7)[:, 0].clone().requires_grad_())

    def bag(weight: Tensor, *per_sample: Tensor) -> Tensor:
        named = {"per_sample_weights": per_sample[0]} if per_sample else {}
        return F.embedding_bag(INDICES, weight, OFFSETS, mode=mode.replace("weighted", "sum"), **named)

    assert on_core(lambda: torch.autograd.gradcheck(bag, leaves))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("indices", [torch.tensor(2), INDICES, INDICES[:6].view(3, 2).t(), INDICES[:0], INDICES.int()])
def test_look_ups(indices: Tensor, dtype: torch.dtype) -> None:
    def look_up(weight: Tensor) -> tuple[Tensor, Tensor]:
        leaf = weight.detach().requires_grad_()
        output = F.embedding(indices, leaf, padding_idx=2, scale_grad_by_freq=True)
        return output.detach(), torch.autograd.grad(output.sum(), leaf)[0]

    check(look_up, table(dtype), ops=WITHOUT)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("norm_type", [1.0, 2.0, 3.5, float("inf")])
def test_rows_are_scaled_to_at_most_a_norm(norm_type: float, dtype: torch.dtype) -> None:
    def renorm(weight: Tensor, indices: Tensor) -> tuple[Tensor, Tensor]:
        return F.embedding(indices, weight, max_norm=1.5, norm_type=norm_type), weight

    for weight in (table(dtype), table(dtype).t().contiguous().t()):
        for indices in (INDICES, INDICES[:6].view(2, 3).int(), torch.tensor(3), INDICES[:0]):
            check(renorm, weight, indices)


@pytest.mark.parametrize("mode", NAMES)
def test_bags_below_a_norm(mode: str) -> None:
    check(lambda w: (F.embedding_bag(INDICES, w, OFFSETS, mode=mode, max_norm=1.0), w), table())


def test_what_it_costs() -> None:
    def backward(mode: int) -> int:
        saved = aten._embedding_bag(weight, INDICES, OFFSETS, False, mode)[1:]
        fixed = (6, False, mode, False, None)
        return kernel_calls(lambda: aten._embedding_bag_backward(grad, INDICES, OFFSETS, *saved, *fixed))

    grad = torch.ones(4, 3)
    weight = table(torch.float32)
    assert kernel_calls(lambda: aten._embedding_bag_forward_only(weight, INDICES, OFFSETS)) == 1
    assert [backward(mode) for mode in (0, 1, 2)] == [8, 5, 6]


def test_a_recommender_trains_as_in_eager() -> None:
    torch.manual_seed(0)
    tables = torch.nn.ModuleList(torch.nn.EmbeddingBag(7, 4, mode=mode) for mode in NAMES)
    dense, top = torch.nn.Linear(3, 4), torch.nn.Linear(4 + 6, 1)
    model = torch.nn.ModuleList([tables, dense, top])
    batches = [
        (torch.randn(4, 3), torch.randint(7, (9 + step,)), torch.tensor([0, 3, 3, 5 + step]), torch.rand(4, 1).round())
        for step in range(3)
    ]

    def train() -> list[Tensor]:
        bags, bottom, head = copy.deepcopy(model)
        parameters = [*bags.parameters(), *bottom.parameters(), *head.parameters()]
        optimizer = torch.optim.Adam(parameters, lr=1e-2)
        losses = []
        for numbers, indices, offsets, clicks in batches:
            features = torch.stack([F.relu(bottom(numbers)), *(bag(indices, offsets) for bag in bags)], 1)
            pairs = torch.bmm(features, features.transpose(1, 2))
            above = torch.triu_indices(4, 4, 1)
            scores = head(torch.cat([features[:, 0], pairs[:, above[0], above[1]]], 1))
            loss = F.binary_cross_entropy_with_logits(scores, clicks)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        return [*losses, *(parameter.detach() for parameter in parameters)]

    for got, want in zip(on_core(train), train(), strict=True):
        torch.testing.assert_close(got, want, rtol=1e-4, atol=1e-5)
