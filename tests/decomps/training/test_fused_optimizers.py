"""Optimizers of `torch.optim`, fused and not, gradient scaling and what surrounds a step: against plain eager."""

from __future__ import annotations

import copy
from collections.abc import Sequence

import pytest
import torch
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.rules import stacks, writeback

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]


def filled(shapes: Sequence[tuple[int, ...]], dtype: torch.dtype, lists: int) -> list[list[Tensor]]:
    torch.manual_seed(0)
    return [[(torch.rand(shape) + 0.1).to(dtype) for shape in shapes] for _ in range(lists)]


def steps(count: int) -> list[Tensor]:
    return [torch.tensor(float(3 + at)) for at in range(count)]


#: Small, since eager's fused SGD takes no more than 15 elements of float16 or bfloat16 right: see `test_fused_faults.py`.
SHAPES = [(3, 4), (), (5,)]

ADAM = {"lr": 0.1, "beta1": 0.9, "beta2": 0.99, "weight_decay": 0.1, "eps": 1e-3, "amsgrad": False, "maximize": False}
SGD = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.2, "lr": 0.1}
SGD |= {"nesterov": True, "maximize": False, "is_first_step": False}


def test_long_lists_cost_few_kernels_each() -> None:
    lists, counted = filled([(3, 4)] * 8, torch.float32, 4), steps(8)
    assert kernel_calls(lambda: aten._fused_adam_(*lists, [], counted, **ADAM)) <= 8 * (14 + 1) + 3  # a read step each
    assert kernel_calls(lambda: aten._fused_adamw_(*lists, [], [counted[0]] * 8, **ADAM)) <= 8 * (14 + 1) + 4
    assert kernel_calls(lambda: aten._fused_sgd_(*lists[:3], **SGD)) <= 8 * 7 + 1


def test_a_hundred_small_parameters_cost_what_is_written_and_read_of_each() -> None:
    lists, counted = filled([(3, 4)] * 90 + [(7,)] * 10, torch.float32, 4), steps(1) * 100
    assert kernel_calls(lambda: aten._fused_adamw_(*lists, [], counted, **ADAM)) <= 100 * (3 + 1) + 50
    assert kernel_calls(lambda: aten._fused_sgd_(*lists[:3], **SGD)) <= 100 * 2 + 30


@pytest.mark.parametrize("dtype", FLOATS)
def test_small_parameters_are_stepped_together(dtype: torch.dtype) -> None:
    """Joined where they have shape, strides and numbers in common: in any order, with others between them."""
    *lists, maxima = filled([(3, 4), (2, 4), (0, 4), (1, 4), (), (1, 4), (3, 4), (2, 4), (2,), (3,), (1,), (4,)], dtype, 5)
    for tensors in (*lists, maxima):
        tensors[6] = tensors[6].t().contiguous().t()  # strides of its own
    flags = {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
    for counted in (steps(1) * 12, steps(12), [*steps(1) * 6, *(one + 1 for one in steps(1) * 6)]):
        check(aten._fused_adamw_, *lists, [], counted, **ADAM)
    check(aten._fused_adam_, *lists, maxima, steps(1) * 12, **ADAM | {"amsgrad": True}, **flags)
    check(aten._fused_adam_, *lists, maxima, steps(1) * 12, **ADAM | {"amsgrad": True}, **flags | {"found_inf": torch.tensor(1.0)})
    check(aten._fused_adagrad_, *lists[:3], steps(1) * 12, lr=0.1, lr_decay=0.1, weight_decay=0.1, eps=1e-3, maximize=False)
    check(aten._fused_sgd_, *lists[:3], **SGD, **flags)


def test_large_stacks_are_made_of_few(monkeypatch: pytest.MonkeyPatch) -> None:
    lists = filled([(3, 4)] * 11, torch.float32, 4)
    for size in (40, 200, 250):
        monkeypatch.setattr(stacks, "_STACK", size)
        check(aten._fused_adamw_, *lists, [], steps(1) * 11, **ADAM)


def test_parameters_that_share_memory_are_stepped_one_after_the_other() -> None:
    (whole, grads, buffers) = (torch.rand(9, 3) for _ in range(3))
    apart = [list(one.split(1)) for one in (whole, grads, buffers)]
    check(aten._fused_sgd_, *apart, **SGD)
    overlapping = [whole[at : at + 2] for at in range(8)]
    check(aten._fused_sgd_, overlapping, *([torch.rand(2, 3) for _ in range(8)] for _ in range(2)), **SGD)
    check(aten._fused_sgd_, apart[0], [one[:1] for one in overlapping[1:] * 2][:9], apart[2], **SGD)
    again = [torch.rand(2, 3)] * 5
    check(aten._fused_sgd_, again, *([torch.rand(2, 3) for _ in range(5)] for _ in range(2)), **SGD)


def test_a_set_that_cannot_join_steps_each_parameter() -> None:
    lists = filled([(3, 4)] * 6, torch.float32, 4)
    needed = ["add.Tensor", "add.Scalar", "mul.Tensor", "mul.Scalar", "div.Tensor", "sqrt.default", "copy_.default", "full.default"]
    ops = ed.OpSet(f"aten.{name}" for name in [*needed, "_local_scalar_dense.default"])
    check(aten._fused_adamw_, *lists, [], steps(1) * 6, **ADAM, ops=ops)


def steps_as_parameters(count: int) -> list[Tensor]:
    """No plain tensors: the mode does not read them, as it would not on another device."""
    return [torch.nn.Parameter(step, requires_grad=False) for step in steps(count)]


@pytest.mark.parametrize("count", [1, 2, 3])
@pytest.mark.parametrize("dtype", FLOATS)
def test_steps_that_are_not_read(dtype: torch.dtype, count: int) -> None:
    *lists, sums = filled(SHAPES[:count], dtype, 5)
    unread = steps_as_parameters(count)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
        aten._fused_adamw_(*copy.deepcopy(lists), [], unread, **ADAM)
    assert not seen.ops[aten._local_scalar_dense.default]
    check(aten._fused_adamw_, *lists, [], unread, **ADAM)
    check(aten._fused_adam_.tensor_lr, *lists, [], unread, **ADAM | {"lr": torch.nn.Parameter(torch.tensor(0.1))})
    check(aten._fused_adagrad_, *lists[:2], sums, unread, lr=0.1, lr_decay=0.1, weight_decay=0.1, eps=1e-3, maximize=False)


@pytest.mark.parametrize("at", [0.0, 1.0, 2.5, 1e7])
def test_a_step_of_any_number(at: float) -> None:
    lists = filled(SHAPES, torch.float32, 4)
    for counted in ([torch.tensor(at)] * 3, [torch.tensor(at), torch.tensor(1.0), torch.tensor(4.0, dtype=torch.float64)]):
        check(aten._fused_adamw_, *lists, [], counted, **ADAM)
        check(aten._fused_adamw_, *lists, [], counted, **ADAM | {"beta1": 0.0, "lr": 0.0})
        check(aten._fused_adagrad_, *lists[:3], counted, lr=0.1, lr_decay=1.0, weight_decay=0.1, eps=1e-3, maximize=False)


@pytest.mark.full
def test_large_parameters_are_stepped_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writeback, "_BLOCK", 2)
    monkeypatch.setattr(writeback, "_LARGE", 12)
    for dtype in FLOATS:
        *lists, maxima = filled([(5, 3), (), (2, 3), (1, 14)], dtype, 5)
        flags = {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
        check(aten._fused_adamw_, *lists, [], steps(4), **ADAM)
        check(aten._fused_adam_, *lists, maxima, steps(4), **ADAM | {"amsgrad": True}, **flags)
        check(aten._fused_sgd_, *lists[:3], **SGD, **flags)
        check(aten._fused_adagrad_, *lists[:3], steps(4), lr=0.1, lr_decay=0.1, weight_decay=0.1, eps=1e-3, maximize=False)
    together = torch.rand(2, 5, 3)
    check(aten._fused_sgd_, [together[0]], [together[1]], [torch.rand(5, 3)], **SGD)


IN_PLACE = CORE | ["aten.mul_.Scalar", "aten.add_.Tensor"]


def test_a_set_with_kernels_in_place_copies_nothing() -> None:
    lists, counted = filled([(3, 4)] * 4, torch.float32, 4), steps(4)
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(IN_PLACE):
        aten._fused_adamw_(*lists, [], counted, **ADAM)
    assert not seen.ops[aten.copy_.default]
    assert seen.ops.total() == 4 * (11 + 1)
    for dtype in FLOATS:
        *lists, maxima = filled(SHAPES, dtype, 5)
        flags = {"grad_scale": torch.tensor(2.0), "found_inf": torch.tensor(0.0)}
        check(aten._fused_adamw_, *lists, [], steps(3), **ADAM, ops=IN_PLACE)
        check(aten._fused_adam_, *lists, maxima, steps(3), **ADAM | {"amsgrad": True}, **flags, ops=IN_PLACE)
        check(aten._fused_sgd_, *lists[:3], **SGD, ops=IN_PLACE)
        check(aten._fused_adamw_.tensor_lr, *lists, [], steps(3), **ADAM | {"lr": torch.tensor(0.1)}, ops=IN_PLACE)


def test_a_new_learning_rate_makes_no_new_program() -> None:
    lists, cache = filled(SHAPES, torch.float32, 4), ed.ProgramCache()
    for rate in (0.1, 0.05, 0.02):
        named = ADAM | {"lr": rate}
        on_core(lambda: aten._fused_adam_(*lists, [], steps(3), **named), cache=cache)  # noqa: B023 - called at once
    assert not cache.info().programs


def test_steps_on_another_device_are_not_read() -> None:
    *lists, unread = ([torch.ones(shape, device="meta")] for shape in ((2,), (2,), (2,), (2,), ()))
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
        aten._fused_adamw_(*lists, [], unread, **ADAM)
    assert not seen.ops[aten._local_scalar_dense.default]
