"""Ops of cuDNN, MIOpen, Metal and CUDA alone, called on CPU data: they compute what the op of ATen that they stand for computes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_core import on_core
from torch import Tensor
from torch.nn import functional as F

aten = torch.ops.aten

dtypes = pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16], ids=str)


def made(*shapes: tuple[int, ...], dtype: torch.dtype) -> list[Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype) for shape in shapes]


def close(found: Any, want: Any) -> None:
    if want is None:
        assert found is None
    elif isinstance(want, Tensor):
        size = max(1.0, want.abs().max().item())
        share = {torch.bfloat16: 3e-2, torch.float32: 1e-5, torch.float64: 1e-12}.get(found.dtype, 0)
        torch.testing.assert_close(found, want.to(found.dtype), rtol=share, atol=share * size)
    else:
        for one, other in zip(found, want, strict=True):
            close(one, other)


def convolved(x: Tensor, w: Tensor, b: Tensor | None, z: Any) -> Tensor:
    return F.conv2d(x, w, b, (1, 2), (1, 0))


def transposed(x: Tensor, w: Tensor, b: Any, z: Any) -> Tensor:
    return F.conv_transpose2d(x, w, None, (1, 2), (1, 0), (0, 1))


CONVOLUTIONS: dict[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
    "cudnn": (
        lambda x, w, b, z: aten.cudnn_convolution(x, w, [1, 0], [1, 2], [1, 1], 1, False, False, True),
        lambda x, w, b, z: F.conv2d(x, w, None, (1, 2), (1, 0)),
    ),
    "miopen": (lambda x, w, b, z: aten.miopen_convolution(x, w, b, [1, 0], [1, 2], [1, 1], 1, False, False), convolved),
    "metal": (lambda x, w, b, z: aten._mps_convolution(x, w, b, [1, 0], [1, 2], [1, 1], 1), convolved),
    "overrideable": (
        lambda x, w, b, z: aten.convolution_overrideable(x, w, b, [1, 2], [1, 0], [1, 1], False, [0, 0], 1),
        convolved,
    ),
    "cudnn_transpose": (
        lambda x, w, b, z: aten.cudnn_convolution_transpose(x, w, [1, 0], [0, 1], [1, 2], [1, 1], 1, False, False, True),
        transposed,
    ),
    "miopen_transpose": (
        lambda x, w, b, z: aten.miopen_convolution_transpose(x, w, b, [1, 0], [0, 1], [1, 2], [1, 1], 1, False, False),
        lambda x, w, b, z: F.conv_transpose2d(x, w, b, (1, 2), (1, 0), (0, 1)),
    ),
    "metal_transpose": (lambda x, w, b, z: aten._mps_convolution_transpose(x, w, [1, 0], [0, 1], [1, 2], [1, 1], 1), transposed),
    "relu": (
        lambda x, w, b, z: aten.cudnn_convolution_relu(x, w, b, [1, 1], [1, 1], [1, 1], 1),
        lambda x, w, b, z: F.conv2d(x, w, b, padding=1).relu(),
    ),
    "add_relu": (
        lambda x, w, b, z: aten.cudnn_convolution_add_relu(x, w, z, -1.5, b, [1, 1], [1, 1], [1, 1], 1),
        lambda x, w, b, z: (F.conv2d(x, w, b, padding=1) - 1.5 * z).relu(),
    ),
}


@dtypes
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_convolutions(name: str, dtype: torch.dtype) -> None:
    run, reference = CONVOLUTIONS[name]
    inputs = made((2, 4, 6, 6), (4, 4, 3, 3), (4,), (2, 4, 6, 6), dtype=dtype)
    found = on_core(lambda: run(*inputs))
    assert found.dtype is dtype
    close(found, reference(*(x.double() for x in inputs)))


@dtypes
@pytest.mark.parametrize("name", ["cudnn", "miopen", "overrideable", "cudnn_transpose", "miopen_transpose"])
def test_gradients_of_convolutions(name: str, dtype: torch.dtype) -> None:
    run, reference = CONVOLUTIONS[name]
    inputs = [x.requires_grad_() for x in made((2, 4, 6, 6), (4, 4, 3, 3), dtype=dtype)]
    wide = [x.detach().double().requires_grad_() for x in inputs]
    want = torch.autograd.grad(reference(*wide, None, None).square().sum(), wide)
    grads = on_core(lambda: _gradients(run, inputs))
    close(grads, want)


def _gradients(run: Callable[..., Any], inputs: list[Tensor]) -> Any:
    out = run(*inputs, None, None)
    return torch.autograd.grad(out, inputs, 2 * out.detach())


@dtypes
def test_gradients_of_metals_convolutions(dtype: torch.dtype) -> None:
    x, w = (x.requires_grad_() for x in made((2, 4, 6, 6), (4, 4, 3, 3), dtype=torch.float64))
    for transposed, run in ((False, F.conv2d), (True, F.conv_transpose2d)):
        out = run(x, w, stride=(1, 2))
        grad = torch.ones_like(out)
        want = torch.autograd.grad(out, (x, w), grad)
        given = [one.detach().to(dtype) for one in (x, grad, w)]
        if transposed:
            op, extra = aten.mps_convolution_transpose_backward, ([0, 0], [0, 0], [1, 2], [1, 1], 1, [True, True])
            found = on_core(lambda op=op, given=given, extra=extra: op(*given, *extra))
        else:
            op, extra = aten.mps_convolution_backward, ([0, 0], [1, 2], [1, 1], 1, [True, True, False])
            found = on_core(lambda op=op, given=given, extra=extra: op(*given, *extra))[:2]
        close(found, want)


@dtypes
def test_parts_of_synchronized_batch_norm_are_batch_norm(dtype: torch.dtype) -> None:
    """Statistics of two parts, gathered, normalize as those of the whole do; so do gradients, summed over the parts."""
    x, weight, bias, grad = made((6, 3, 4), (3,), (3,), (6, 3, 4), dtype=torch.float64)
    running = [torch.zeros(3, dtype=torch.float64), torch.ones(3, dtype=torch.float64)]
    leaves = [one.clone().requires_grad_() for one in (x, weight, bias)]
    want_running = [one.clone() for one in running]
    want = F.batch_norm(leaves[0], *want_running, *leaves[1:], True, 0.1, 1e-5)
    want_grads = torch.autograd.grad(want, leaves, grad)
    parts, grads = ([one.to(dtype) for one in t.split([2, 4])] for t in (x, grad))
    weight, bias = weight.to(dtype), bias.to(dtype)

    def run() -> Any:
        stats = [aten.batch_norm_stats(part, 1e-5) for part in parts]
        means, invstds = (torch.stack([one[at] for one in stats]) for at in (0, 1))
        counts = torch.tensor([8.0, 16.0], dtype=means.dtype)
        mine = [one.to(means.dtype) for one in running]
        mean, invstd = aten.batch_norm_gather_stats_with_counts(parts[0], means, invstds, *mine, 0.1, 1e-5, counts)
        outs = [aten.batch_norm_elemt(part, weight, bias, mean, invstd, 1e-5) for part in parts]
        sums = [
            aten.batch_norm_backward_reduce(g, part, mean, invstd, weight, True, True, True)
            for g, part in zip(grads, parts, strict=True)
        ]
        total, with_input = (sum(one[at] for one in sums) for at in (0, 1))
        back = [
            aten.batch_norm_backward_elemt(
                g, part, mean, invstd, weight, total, with_input, torch.tensor([8, 16], dtype=torch.int32)
            )
            for g, part in zip(grads, parts, strict=True)
        ]
        return torch.cat(outs), torch.cat(back), sum(one[2] for one in sums), sum(one[3] for one in sums), mine

    out, grad_input, grad_weight, grad_bias, found_running = on_core(run)
    assert out.dtype is dtype
    close((out, grad_input, grad_weight, grad_bias), (want, *want_grads))
    loose = {"rtol": 2e-2, "atol": 2e-2} if dtype is torch.bfloat16 else {}
    for one, other in zip(found_running, want_running, strict=True):
        torch.testing.assert_close(one.double(), other, check_dtype=False, **({"rtol": 1e-5, "atol": 1e-5} | loose))


def test_grids() -> None:
    theta, x, grad = made((2, 2, 3), (2, 3, 4, 5), (2, 3, 3, 4), dtype=torch.float32)
    grid = F.affine_grid(theta, [2, 3, 3, 4], align_corners=True)
    close(on_core(lambda: aten.cudnn_affine_grid_generator(theta, 2, 3, 3, 4)), grid)
    want = aten.grid_sampler_2d(x, grid, 0, 0, True)
    close(on_core(lambda: aten.cudnn_grid_sampler(x, grid)), want)
    want = aten.grid_sampler_2d_backward(grad, x, grid, 0, 0, True, [True, True])
    close(on_core(lambda: aten.cudnn_grid_sampler_backward(x, grid, grad)), want)


@pytest.mark.parametrize("op", ["_cudnn_ctc_loss", "miopen_ctc_loss"])
@pytest.mark.parametrize("lengths", [list, torch.tensor])
def test_losses_of_connectionist_classification(op: str, lengths: Callable[[list[int]], Any]) -> None:
    log_probs = made((6, 2, 5), dtype=torch.float64)[0].log_softmax(-1).requires_grad_()
    targets, given, wanted = torch.tensor([1, 2, 3, 1], dtype=torch.int32), [6, 5], [3, 1]
    want = F.ctc_loss(log_probs, targets, given, wanted, reduction="none", zero_infinity=True)
    (want_grad,) = torch.autograd.grad(want.sum(), log_probs)
    call = getattr(aten, op)
    found = on_core(lambda: call(log_probs.detach(), targets, lengths(given), lengths(wanted), 0, False, True))
    close(found, (want.detach(), want_grad))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_products_kept_in_float32(dtype: torch.dtype) -> None:
    a, b, added = made((2, 3, 4), (2, 4, 5), (2, 3, 5), dtype=dtype)
    want = a.float() @ b.float()
    torch.testing.assert_close(on_core(lambda: aten.bmm.dtype(a, b, torch.float32)), want)
    torch.testing.assert_close(on_core(lambda: aten.mm.dtype(a[0], b[0], torch.float32)), want[0])
    found = on_core(lambda: aten.baddbmm.dtype(added.float(), a, b, torch.float32, beta=0.5, alpha=-2))
    torch.testing.assert_close(found, 0.5 * added.float() - 2 * want)
    found = on_core(lambda: aten.addmm.dtype(added[0].float(), a[0], b[0], torch.float32, beta=0))
    torch.testing.assert_close(found, want[0])
    with pytest.raises(RuntimeError, match="no route"):
        on_core(lambda: aten.mm.dtype(a[0].float(), b[0].float(), torch.float64))


@dtypes
@pytest.mark.parametrize(
    "shapes", [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((2, 3), (3,)), ((3,), (3, 4)), ((5, 2, 3), (3,)), ((3,), (5, 3, 4))], ids=str
)
def test_gradients_of_products(shapes: tuple[tuple[int, ...], tuple[int, ...]], dtype: torch.dtype) -> None:
    a, b = (x.requires_grad_() for x in made(*shapes, dtype=torch.float64))
    out = a @ b
    grad = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
    want = torch.autograd.grad(out, (a, b), grad)
    given = [x.detach().to(dtype) for x in (grad, a, b)]
    close(on_core(lambda: aten.matmul_backward(*given, [True, True])), want)
    found = on_core(lambda: aten.matmul_backward(*given, [False, True]))
    assert found[0] is None


@dtypes
def test_gradients_of_linear_layers(dtype: torch.dtype) -> None:
    x, w, bias = (x.requires_grad_() for x in made((2, 5, 3), (4, 3), (4,), dtype=torch.float64))
    out = F.linear(x, w, bias)
    grad = torch.linspace(-1, 1, out.numel(), dtype=torch.float64).view(out.shape)
    want = torch.autograd.grad(out, (x, w, bias), grad)
    given = [one.detach().to(dtype) for one in (x, grad, w)]
    close(on_core(lambda: aten.linear_backward(*given, [True, True, True])), want)


def test_gradients_of_pooling() -> None:
    x = made((2, 3, 7, 6), dtype=torch.float64)[0].requires_grad_()
    out = F.max_pool2d(x, 3, 2, 1)
    (want,) = torch.autograd.grad(out, x, torch.ones_like(out))
    grad, given = torch.ones_like(out).detach(), x.detach()
    close(on_core(lambda: aten.max_pool2d_backward(grad, given, [3, 3], [2, 2], [1, 1])), want)
