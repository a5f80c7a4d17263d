"""Normalisation against eager: every kind of statistics, types, layouts, gradients, and which half of a pair a backend holds."""

from __future__ import annotations

import itertools
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


LAYOUTS = ["row major", "channels last", "permuted", "gapped"]


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
def test_batch_norm(name: str, dtype: torch.dtype, of_parameters: torch.dtype) -> None:
    weight, bias, mean, var = channels(of_parameters)
    for x in (images(dtype=dtype), torch.randn(5, 3).to(dtype)):
        check(BATCH_NORMS[name], x, weight, bias, mean, var)
        check(BATCH_NORMS[name], x, None, None, mean, var)
        check(BATCH_NORMS[name], x, weight, None, mean, var)


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


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", BATCH_NORMS)
def test_batch_norm_of_other_layouts(name: str, layout: str) -> None:
    check(BATCH_NORMS[name], images(layout), *channels())


@pytest.mark.parametrize("name", ["native, training", "legit", "update of statistics"])
def test_batch_norm_without_running_statistics(name: str) -> None:
    run = {
        "native, training": lambda x: aten.native_batch_norm(x, None, None, None, None, True, 0.1, 1e-5),
        "legit": lambda x: aten._native_batch_norm_legit.no_stats(x, None, None, True, 0.1, 1e-5),
        "update of statistics": lambda x: aten.batch_norm_update_stats(x, None, None, 0.1),
    }[name]
    check(run, images())
    check(run, images("channels last", torch.bfloat16))


def test_empty_batches_in_evaluation() -> None:
    weight, bias, mean, var = channels()
    check(BATCH_NORMS["native, evaluation"], torch.randn(0, 3, 2), weight, bias, mean, var)


@pytest.mark.parametrize("op", [aten._native_batch_norm_legit.out, aten._batch_norm_with_update.out])
def test_batch_norm_written_to_out(op: Any) -> None:
    names = ("out", "save_mean", "save_invstd", "reserve")[: len(op._schema.returns)]
    for shapes in (((4, 3, 2, 5), (3,), (3,), (0,)), ((0,), (0,), (0,), (0,))):
        out = {
            name: torch.empty(shape, dtype=torch.uint8 if name == "reserve" else None)
            for name, shape in zip(names, shapes, strict=False)
        }
        flags = (True,) if "legit" in str(op) else ()
        check(op, images(), *channels(), *flags, 0.1, 1e-5, **out)


# -- gradients of batch norm ------------------------------------------------------------------------------------------------


def backward(x: Tensor, grad: Tensor, parameters: Any, train: bool, mask: list[bool], weighted: bool = True) -> Any:
    """The backward op on what eager itself saves: only the op is under test."""
    weight, _, mean, var = parameters
    saved = (
        x.float().mean([0, *range(2, x.dim())]).to(mean.dtype),
        (x.float().var([0, *range(2, x.dim())]) + 0.1).rsqrt().to(mean.dtype),
    )
    return x, (grad, x, weight if weighted else None, mean, var, *saved, train, 1e-5, mask)


@pytest.mark.parametrize(("dtype", "of_parameters"), TYPES)
@pytest.mark.parametrize("train", [True, False])
def test_gradient_op_of_batch_norm(train: bool, dtype: torch.dtype, of_parameters: torch.dtype) -> None:
    for x in (images(dtype=dtype), torch.randn(5, 3).to(dtype)):
        for weighted in (True, False):
            _, arguments = backward(x, torch.randn_like(x), channels(of_parameters), train, MASK, weighted)
            check(aten.native_batch_norm_backward, *arguments)
            if weighted:
                check(aten.batch_norm_backward, *arguments, torch.empty(0, dtype=torch.uint8))


@pytest.mark.parametrize("train", [True, False])
def test_every_mask_of_batch_norms_gradient(train: bool) -> None:
    for mask in itertools.product([True, False], repeat=3):
        _, arguments = backward(images(), torch.randn(4, 3, 2, 5), channels(), train, list(mask))
        check(aten.native_batch_norm_backward, *arguments)


@pytest.mark.parametrize("of_grad", LAYOUTS)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_gradient_of_batch_norm_in_other_layouts(layout: str, of_grad: str) -> None:
    _, arguments = backward(images(layout), images(of_grad) * 2, channels(), True, MASK)
    check(aten.native_batch_norm_backward, *arguments)


def test_a_large_mean_costs_no_digits() -> None:
    x = images() + 1000
    _, arguments = backward(x, torch.randn_like(x), channels(), True, MASK)
    check(aten.native_batch_norm_backward, *arguments)


# -- modules, forward and backward ------------------------------------------------------------------------------------------


MODULES: dict[str, Callable[[], nn.Module]] = {
    "batch": lambda: nn.BatchNorm2d(3),
    "batch, cumulative": lambda: nn.BatchNorm2d(3, momentum=None),
    "batch, plain": lambda: nn.BatchNorm2d(3, affine=False),
    "batch, untracked": lambda: nn.BatchNorm2d(3, track_running_stats=False),
    "instance": lambda: nn.InstanceNorm2d(3, affine=True),
    "instance, tracked": lambda: nn.InstanceNorm2d(3, affine=True, track_running_stats=True),
    "group": lambda: nn.GroupNorm(3, 3),
    "layer": lambda: nn.LayerNorm(5),
    "root mean square": lambda: nn.RMSNorm(5),
    "root mean square, plain": lambda: nn.RMSNorm([2, 5], elementwise_affine=False),
    "local response": lambda: nn.LocalResponseNorm(3),
    "weight": lambda: nn.utils.parametrizations.weight_norm(nn.Conv2d(3, 4, 2)),
    "weight, last dimension": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 4), dim=1),
    "weight, whole": lambda: nn.utils.parametrizations.weight_norm(nn.Linear(5, 4), dim=None),
    "spectral": lambda: nn.utils.parametrizations.spectral_norm(nn.Linear(5, 4)),
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
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", MODULES)
def test_modules(name: str, training: bool) -> None:
    for dtype in (torch.float32, torch.bfloat16):
        if name != "spectral" or dtype is torch.float32:
            check(lambda x: trained(name, x, training), images(dtype=dtype))
    check(lambda x: trained(name, x, training), images("channels last"))


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


@pytest.mark.full
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["batch", "batch, plain", "group", "layer", "root mean square", "weight"])
def test_first_and_second_derivatives(name: str, training: bool) -> None:
    torch.manual_seed(0)
    module = MODULES[name]().double().train(training)
    x = images(dtype=torch.float64)[:2].requires_grad_()
    assert on_core(lambda: torch.autograd.gradcheck(module, x))
    assert on_core(lambda: torch.autograd.gradgradcheck(module, x))


# -- root mean square, weight norm, clipping to a norm ----------------------------------------------------------------------


@pytest.mark.full
@pytest.mark.parametrize(("dtype", "of_parameters"), TYPES)
def test_root_mean_square_in_inference_mode(dtype: torch.dtype, of_parameters: torch.dtype) -> None:
    def run(x: Tensor, shape: list[int], weight: Tensor | None, eps: float | None) -> Any:
        with torch.inference_mode():
            return F.rms_norm(x, shape, weight, eps), aten._fused_rms_norm(x, shape, weight, eps)

    torch.manual_seed(0)
    x = torch.randn(2, 3, 4).to(dtype)
    for shape, eps in itertools.product(([4], [3, 4]), (None, 1e-3)):
        check(run, x, shape, torch.rand(shape).to(of_parameters), eps)
        check(run, x, shape, None, eps)
    check(run, x, [3], None, None)
    check(run, x.transpose(0, 2), [3, 2], None, None)
    check(run, x[:0], [4], None, None)


@pytest.mark.parametrize("dim", [0, 1, 2])
@pytest.mark.parametrize("dtype", FLOATS)
def test_weight_norm_and_its_gradient(dtype: torch.dtype, dim: int) -> None:
    torch.manual_seed(0)
    v, grad = torch.randn(2, 3, 4).to(dtype), torch.randn(2, 3, 4).to(dtype)
    shape = [size if at == dim else 1 for at, size in enumerate(v.shape)]
    norms = v.float().square().sum([at for at in range(3) if at != dim], True).sqrt()
    g = torch.rand(shape).to(dtype)
    check(aten._weight_norm_interface, v, g, dim)
    check(aten._weight_norm, v, g, dim)
    check(aten._weight_norm_interface_backward, grad, v, g, norms if dtype in FLOATS[2:] else norms.to(dtype), dim)
    check(aten._weight_norm_interface, v, g.double() if dtype is torch.float32 else g.float(), dim)


@pytest.mark.parametrize("order", [1.0, 2.0, 3.0, float("inf")])
def test_renorm(order: float) -> None:
    for dtype in FLOATS:
        check(lambda x: torch.renorm(x, order, 1, 0.5), images(dtype=dtype))
    check(lambda x: torch.renorm(x, order, 0, 0.5), images("channels last"))


@pytest.mark.parametrize("order", [0.5, 1.0, 2.0, 3.0, 0.0, float("inf"), -float("inf")])
def test_gradients_of_norms(order: float) -> None:
    def run(x: Tensor) -> Any:
        leaf = x.detach().requires_grad_()
        out = torch.linalg.vector_norm(leaf, order, dim=1)
        return out.detach(), torch.autograd.grad(out.sum(), leaf)[0]

    for dtype in FLOATS:
        check(run, images(dtype=dtype))
    check(run, torch.zeros(2, 3))
    check(lambda x: F.normalize(x, order), images())


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
