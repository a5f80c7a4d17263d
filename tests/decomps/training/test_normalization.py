"""Normalisation on sets without its kernels or with half of a pair, of a large mean, and what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import CORE, check, kernel_calls, on_core
from torch import Tensor, nn

aten = torch.ops.aten

FLOATS = [torch.float32, torch.float64, torch.bfloat16, torch.float16]
#: The type of the input and that of the parameters.
TYPES = [*((dtype, dtype) for dtype in FLOATS), (torch.bfloat16, torch.float32), (torch.float16, torch.float32)]
MASK = [True, True, True]


def images(layout: str = "row major", dtype: torch.dtype = torch.float32) -> Tensor:
    torch.manual_seed(0)
    x = torch.randn(4, 3, 2, 5).to(dtype)
    match layout:
        case "channels last":
            return x.contiguous(memory_format=torch.channels_last)
        case "permuted":
            return x.permute(0, 2, 1, 3).contiguous().permute(0, 2, 1, 3)
        case "gapped":
            return torch.randn(4, 3, 2, 10).to(dtype)[..., ::2]
    return x


def channels(dtype: torch.dtype = torch.float32) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Weight, bias, running mean and running variance."""
    torch.manual_seed(1)
    return tuple((torch.rand(3) + 0.5).to(dtype) for _ in range(4))  # type: ignore[return-value]


BATCH_NORMS: dict[str, Callable[..., Any]] = {
    "native, training": lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 0.1, 1e-5),
    "native, evaluation": lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, False, 0.1, 1e-5),
    "legit": lambda x, w, b, m, v: aten._native_batch_norm_legit(x, w, b, m, v, True, 0.1, 1e-5),
    "functional": lambda x, w, b, m, v: aten._native_batch_norm_legit_functional(x, w, b, m, v, True, 0.1, 1e-5),
    "functional, evaluation": lambda x, w, b, m, v: aten._native_batch_norm_legit_functional(x, w, b, m, v, False, 0.1, 1e-5),
    "no training": lambda x, w, b, m, v: aten._native_batch_norm_legit_no_training(x, w, b, m, v, 0.1, 1e-5),
    "with update": lambda x, w, b, m, v: aten._batch_norm_with_update(x, w, b, m, v, 0.1, 1e-5),
    "with functional update": lambda x, w, b, m, v: aten._batch_norm_with_update_functional(x, w, b, m, v, 0.1, 1e-5),
    "no update": lambda x, w, b, m, v: aten._batch_norm_no_update(x, w, b, m, v, 0.1, 1e-5),
    "by index": lambda x, w, b, m, v: aten._batch_norm_impl_index(x, w, b, m, v, True, 0.1, 1e-5, True),
    "whole momentum": lambda x, w, b, m, v: aten.native_batch_norm(x, w, b, m, v, True, 1.0, 1e-5),
    "update of statistics": lambda x, w, b, m, v: aten.batch_norm_update_stats(x, m, v, 0.3),
}


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "of_parameters"), TYPES)
@pytest.mark.parametrize("name", BATCH_NORMS)
def test_batch_norm_on_sets_without_its_kernels(name: str, dtype: torch.dtype, of_parameters: torch.dtype) -> None:
    without = CORE - [op for op in CORE if "batch_norm" in str(op)]
    weight, bias, mean, var = channels(of_parameters)
    drawn = images(dtype=dtype)  # of float16 and bfloat16 eager's own rounding shows
    for x in (torch.zeros_like(drawn) if dtype.itemsize < 4 else drawn, torch.zeros(1, 3, dtype=dtype)):
        check(BATCH_NORMS[name], x, weight, bias, mean, var, ops=without)
        check(BATCH_NORMS[name], x, None, None, mean, var, ops=without)


# -- gradients of batch norm ------------------------------------------------------------------------------------------------


def backward(x: Tensor, grad: Tensor, parameters: Any, train: bool, mask: list[bool], weighted: bool = True) -> Any:
    """The backward op on what eager itself saves: only the op is under test."""
    weight, _, mean, var = parameters
    saved = (
        x.float().mean([0, *range(2, x.dim())]).to(mean.dtype),
        (x.float().var([0, *range(2, x.dim())]) + 0.1).rsqrt().to(mean.dtype),
    )
    return x, (grad, x, weight if weighted else None, mean, var, *saved, train, 1e-5, mask)


def test_a_large_mean_costs_no_digits() -> None:
    x = images() + 1000
    _, arguments = backward(x, torch.randn_like(x), channels(), True, MASK)
    check(aten.native_batch_norm_backward, *arguments)


# -- modules, forward and backward ------------------------------------------------------------------------------------------


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm2d(3),
    "batch, untracked": lambda: nn.BatchNorm2d(3, track_running_stats=False),
    "instance, tracked": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "group": lambda: nn.GroupNorm(3, 3),
    "layer": lambda: nn.LayerNorm(5),
    "weight": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 2)),
}

#: What a backend may hold beside Core ATen, or not hold of it.
HELD: dict[str, Any] = {
    "core": CORE,
    "batch norm's backward": CORE | [aten.native_batch_norm_backward.default],
    "batch norm's forward": CORE | [aten.native_batch_norm.default],
    "no batch norm but its backward": CORE
    - [
        aten._native_batch_norm_legit.default,
        aten._native_batch_norm_legit.no_stats,
        aten._native_batch_norm_legit_no_training.default,
    ]
    | [aten.native_batch_norm_backward.default],
    "no backward": CORE - [aten.native_layer_norm_backward.default, aten.native_group_norm_backward.default],
    "no forward": CORE - [aten.native_layer_norm.default, aten.native_group_norm.default],
    "weight norm's forward": CORE | [aten._weight_norm_interface.default],
    "weight norm's backward": CORE | [aten._weight_norm_interface_backward.default],
}


def trained(name: str, x: Tensor, training: bool) -> list[Any]:
    torch.manual_seed(0)
    module = MODULES[name]().to(x.dtype).train(training)
    leaf = x.detach().requires_grad_()
    for _ in range(2):
        out = module(leaf)
    weights = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).to(out.dtype).view(out.shape)
    leaves = [leaf, *module.parameters()]
    return [out.detach(), *torch.autograd.grad(out, leaves, weights), *module.buffers()]


@pytest.mark.full
@pytest.mark.parametrize("held", HELD)
@pytest.mark.parametrize("name", ["batch", "batch, untracked", "instance, tracked", "group", "layer", "weight"])
def test_a_backend_may_have_one_of_two_kernels(name: str, held: str) -> None:
    check(lambda x: trained(name, x, True), images(), ops=HELD[held])
    check(lambda x: trained(name, x, False), images(), ops=HELD[held])
    half = images(dtype=torch.bfloat16)
    # Where the kernel is not held its parts round elsewhere: by as much as the input's own dtype does.
    got, want = on_core(lambda: trained(name, half, True), HELD[held]), trained(name, half, True)
    torch.testing.assert_close(got, want, rtol=0.05, atol=0.02)


def test_batch_norm_costs_few_kernels() -> None:
    x, (weight, bias, mean, var) = images(), channels()
    _, arguments = backward(x, torch.randn_like(x), (weight, bias, mean, var), True, MASK)
    assert kernel_calls(lambda: F.batch_norm(x, mean, var, weight, bias, True)) == 2
    assert kernel_calls(lambda: F.batch_norm(x, mean, var, weight, bias, False)) == 2
    assert kernel_calls(lambda: aten.native_batch_norm_backward(*arguments)) == 15


WITHOUT_NORMS = CORE - ["aten.native_layer_norm", "aten.native_group_norm"]


@pytest.mark.parametrize("affine", [True, False])
@pytest.mark.parametrize("shape", [(2, 4, 0), (0, 4, 3), (2, 4, 0, 3), (2, 0, 3)])
def test_group_norm_of_nothing_has_eagers_gradients_on_sets_without_its_kernels(shape: tuple[int, ...], affine: bool) -> None:
    few = WITHOUT_NORMS - ["aten.native_group_norm_backward"]

    def trained() -> list[Tensor]:
        leaves = [torch.ones(shape, requires_grad=True), *(torch.ones(shape[1], requires_grad=True) for _ in range(2 * affine))]
        return [*torch.autograd.grad(F.group_norm(leaves[0], 2, *leaves[1:]).sum(), leaves)]

    check(trained, ops=few)


@pytest.mark.parametrize(
    "types", [(torch.float32,) * 2, (torch.bfloat16,) * 2, (torch.bfloat16, torch.float32), (torch.float64,) * 2]
)
@pytest.mark.parametrize("affine", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("form", [torch.contiguous_format, torch.channels_last])
def test_layer_and_group_norm_without_their_kernels(form: Any, affine: tuple[bool, bool], types: tuple[torch.dtype, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 4, 3, 5).to(types[0]).contiguous(memory_format=form)
    weight, bias = (torch.randn(5).to(types[1]) if wanted else None for wanted in affine)
    check(aten.native_layer_norm.default, x, [5], weight, bias, 1e-5, ops=WITHOUT_NORMS)
    weight, bias = (torch.randn(4).to(types[1]) if wanted else None for wanted in affine)
    check(aten.native_group_norm.default, x, weight, bias, 2, 4, 15, 2, 1e-5, ops=WITHOUT_NORMS)


def test_a_row_of_one_number_has_no_deviation() -> None:
    x = torch.tensor([[0.1], [3.3], [100.7]])
    check(F.layer_norm, x, (1,), ops=WITHOUT_NORMS)
