"""Foreach ops on Core ATen: every overload has a rule; small tensors are joined, and each in turn where memory is shared."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from compare import assert_same
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp._torch.ops import OpOverload, op_names, packet_overloads
from eagerdecomp.decomps.derived import foreach
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.rules import stacks

aten = torch.ops.aten

EVERY_OVERLOAD = [
    op
    for name in sorted({name.partition(".")[0] for name in op_names() if name.startswith("aten::_foreach_")})
    for op in packet_overloads(name)
]
OUT = [op for op in EVERY_OVERLOAD if facts_of(op).is_out]
RULES = {op: rule for op in EVERY_OVERLOAD for rule in foreach.rules_for(op)}

#: Left to torch's own kernels.
WITHOUT_RULE = {"aten._foreach_copy.default", "aten._foreach_zero.default"}


def of_size(*shape: int) -> Tensor:
    return torch.rand(shape) * 0.8 + 0.1


def test_every_overload_has_a_rule() -> None:
    assert {str(op) for op in EVERY_OVERLOAD} - {str(op) for op in RULES} <= WITHOUT_RULE | {
        str(op) for op in OUT if "_copy.out" in str(op) or "_zero.out" in str(op)
    }


@pytest.mark.parametrize(
    "scalars",
    [torch.tensor(1.0), torch.ones(1, 2), torch.ones(3), torch.ones(4)[::2], torch.ones(2, device="meta")],
    ids=["0-dim", "2-dim", "long", "strided", "on another device"],
)
def test_packed_scalars_are_checked(scalars: Tensor) -> None:
    lists = [[of_size(2), of_size(2)] for _ in range(3)]
    check(lambda: aten._foreach_addcmul.Tensor(*lists, scalars))


def test_a_scalar_that_many_tensors_share_is_made_once() -> None:
    lists = [torch.randn(4) for _ in range(5)]
    for run in (lambda: torch._foreach_mul_(lists, 0.5), lambda: torch._foreach_div_(lists, [0.5] * 5)):
        assert kernel_calls(run) == 1 + 2 * 5


@pytest.mark.parametrize(
    "op",
    [aten._foreach_add_.List, aten._foreach_addcmul_.Scalar, aten._foreach_lerp_.Scalar, aten._foreach_addcdiv_.ScalarList],
    ids=str,
)
@pytest.mark.parametrize("at", [1, 2])
def test_an_operand_that_overlaps_is_refused_when_its_turn_comes(op: OpOverload, at: int) -> None:
    def step(memory: Tensor) -> Any:
        arguments = facts_of(op).arguments
        lists = [[of_size(2) for _ in range(3)] for argument in arguments if argument.is_list and argument.holds_tensors]
        rest: list[Any] = {"ScalarList": [[0.5] * 3], "Scalar": [0.25]}.get(op._overloadname, [])
        lists[0][1], lists[min(at, len(lists) - 1)][1] = memory[:2], memory[1:3]
        before = [tensor.clone() for tensor in lists[0]]
        with pytest.raises(RuntimeError, match="single memory location"):
            op(*lists, *rest)
        return [not torch.equal(now, then) for now, then in zip(lists[0], before, strict=True)]

    assert on_core(lambda: step(of_size(8))) == step(of_size(8)) == [True, False, False]


def test_in_place_kernels_of_the_set_are_called_as_they_are() -> None:
    kernels = [aten.add_.Tensor, aten.mul_.Tensor, aten.mul_.Scalar, aten.addcmul_.default, aten.lerp_.Scalar]
    tensors, others = [of_size(3) for _ in range(4)], [of_size(3) for _ in range(4)]
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE | kernels):
        torch._foreach_add_(tensors, others)
        torch._foreach_mul_(tensors, others)
        torch._foreach_mul_(tensors, 0.5)
        torch._foreach_addcmul_(tensors, others, others, 0.5)
        torch._foreach_lerp_(tensors, others, 0.5)
    assert seen.ops == dict.fromkeys(kernels, 4)


SHAPES = [(3, 4), (), (7,), (5, 4), (0, 4), (600,), (33,)] * 10

#: Ops over small tensors that are computed together, with the arguments behind the lists of tensors.
TOGETHER: list[tuple[OpOverload, int, list[Any]]] = [
    (aten._foreach_lerp_.Scalar, 2, [0.3]),
    (aten._foreach_lerp_.Scalar, 2, [0.7]),
    (aten._foreach_lerp_.ScalarList, 2, [[0.3] * 40 + [0.7] * 30]),
    (aten._foreach_lerp_.List, 3, []),
    (aten._foreach_addcmul_.Scalar, 3, [-0.3]),
    (aten._foreach_addcmul_.ScalarList, 3, [[0.0] * 30 + [0.3] * 20 + [-0.4] * 20]),
    (aten._foreach_addcdiv_.Scalar, 3, [2]),
    (aten._foreach_addcdiv_.ScalarList, 3, [[float("nan"), float("inf")] + [-1e-3] * 68]),
]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("op", "count", "rest"), TOGETHER, ids=[str(op) for op, *_ in TOGETHER])
def test_small_tensors_together_are_what_each_is_alone(
    op: OpOverload, count: int, rest: list[Any], dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = [[of_size(*shape).to(dtype) for shape in SHAPES] for _ in range(count)]
    for tensors in lists:
        tensors[3] = tensors[3].t().contiguous().t()  # strides of its own
    lists[0][2][0], lists[1][6][2] = float("inf"), float("nan")
    eager, together = copy.deepcopy(lists), copy.deepcopy(lists)
    op(*eager, *rest)
    on_core(lambda: op(*together, *rest))
    monkeypatch.setattr(foreach, "_WORTH", stacks.Worth(tensors=99, nbytes=0))
    on_core(lambda: op(*lists, *rest))
    assert_same(together, lists, exact=True)
    assert_same(together, eager)


def test_forty_small_tensors_are_computed_together() -> None:
    lists = [[of_size(3) for _ in range(40)] for _ in range(3)]
    # A `copy_` for each, two or three lists joined, two or three kernels, one result split.
    assert kernel_calls(lambda: torch._foreach_lerp_(*lists[:2], 0.3)) == 40 + 5
    assert kernel_calls(lambda: torch._foreach_addcmul_(*lists, 0.3)) == 40 + 7
    assert kernel_calls(lambda: torch._foreach_addcdiv_(*lists, [0.3] * 40)) == 40 + 7
    assert kernel_calls(lambda: torch._foreach_mul_(lists[0], lists[1])) == 40 * 2  # joining would take as long


def test_sets_that_cannot_join_tensors_compute_each_alone() -> None:
    lists = [[of_size(3) for _ in range(40)] for _ in range(3)]
    eager = copy.deepcopy(lists)
    torch._foreach_addcmul_(*eager, 0.3)
    with ed.EagerDecompMode(CORE - ["aten.cat"], cache=ed.ProgramCache()):
        for targets in (copy.deepcopy(lists[0]), lists[0]):
            torch._foreach_addcmul_(targets, *lists[1:], 0.3)
    assert_same(lists, eager)


def test_small_tensors_that_share_memory_are_computed_one_after_the_other() -> None:
    whole, other = of_size(20, 3), [of_size(3) for _ in range(19)]
    each = list(whole.split(1))
    check(aten._foreach_lerp_.Scalar, each[1:], each[:-1], 0.3)  # each reads what was written before
    check(aten._foreach_lerp_.Scalar, [each[0]] * 20, each, 0.3)
    check(aten._foreach_lerp_.Scalar, each, each, 0.3)  # read where it is written
    check(aten._foreach_addcmul_.Scalar, other, other, other, 0.3)
    check(aten._foreach_addcmul_.Scalar, other, [each[2][0]] * 19, other[::-1], 0.3)
    flat = list(whole[:19])
    check(aten._foreach_lerp_.Scalar, flat, list(whole.view(-1)[1:58].view(19, 3)), 0.3)


@pytest.mark.parametrize("place", range(4))
def test_tensors_on_several_devices_take_one_scalar(place: int) -> None:
    tensors = [torch.ones(2, device="meta" if at == place else "cpu") for at in range(4)]
    on_core(lambda: torch._foreach_mul_(tensors, 3.0))
    assert [one.tolist() for at, one in enumerate(tensors) if at != place] == [[3.0, 3.0]] * 3


def test_a_list_that_is_written_in_part_counts_as_written() -> None:
    leaf = torch.ones(3, requires_grad=True)
    one, other = leaf * 1, leaf * 1
    loss = (one * one).sum()
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises(RuntimeError, match="must match the size"):
        torch._foreach_mul_([one.detach(), other.detach()], [torch.full((3,), 5.0), torch.ones(5)])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()
