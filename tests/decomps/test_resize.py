"""Gradients of every upsampling mode against eager's."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_core import check, kernel_calls, on_core

aten = torch.ops.aten

MODES = [
    *((dims, "nearest", None) for dims in (1, 2, 3)),
    *((dims, "nearest-exact", None) for dims in (1, 2, 3)),
    *(
        (dims, mode, corners)
        for dims, mode in ((1, "linear"), (2, "bilinear"), (3, "trilinear"), (2, "bicubic"))
        for corners in (False, True)
    ),
]


def gradient(x: torch.Tensor, **options: Any) -> torch.Tensor:
    leaf = x.detach().requires_grad_()
    out = F.interpolate(leaf, **options)
    weights = torch.arange(1.0, out.numel() + 1, dtype=torch.float64).view(out.shape).to(out.dtype) / out.numel()
    if out.is_contiguous(memory_format=torch.channels_last) if out.dim() == 4 else False:
        weights = weights.contiguous(memory_format=torch.channels_last)
    return torch.autograd.grad(out, leaf, weights)[0]


@pytest.mark.parametrize("target", ["larger", "smaller", "same", "factor"])
@pytest.mark.parametrize(("dims", "mode", "corners"), MODES)
def test_gradient(dims: int, mode: str, corners: bool | None, target: str) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, *(5, 4, 3)[:dims])
    sizes = {"larger": (9, 8, 7), "smaller": (2, 3, 2), "same": (5, 4, 3)}
    options: dict[str, Any] = {"mode": mode, "align_corners": corners}
    options |= {"scale_factor": 1.7} if target == "factor" else {"size": sizes[target][:dims]}
    check(gradient, x, **options)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_gradient_in_other_types(mode: str, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(1, 2, 4, 5).to(dtype), size=(7, 3), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear"])
def test_gradient_of_channels_last_images_is_channels_last(mode: str) -> None:
    torch.manual_seed(0)
    check(gradient, torch.randn(2, 3, 4, 5).contiguous(memory_format=torch.channels_last), size=(8, 6), mode=mode)


@pytest.mark.parametrize("mode", ["nearest", "bilinear", "bicubic"])
def test_second_derivative(mode: str) -> None:
    def run() -> torch.Tensor:
        torch.manual_seed(0)
        x = torch.linspace(-1, 1, 16, dtype=torch.float64).view(1, 1, 4, 4).requires_grad_()
        (first,) = torch.autograd.grad((F.interpolate(x, size=(6, 6), mode=mode) ** 3).sum(), x, create_graph=True)
        return torch.autograd.grad((first**2).sum(), x)[0]

    want = run()
    for _ in range(3):
        torch.testing.assert_close(on_core(run), want)


def _gapped_channels_last(dims: int) -> torch.Tensor:
    """Strides that look like channels last, of a tensor that is not dense."""
    strides = {2: (200, 1, 50, 6), 3: (2000, 1, 400, 50, 6)}[dims]
    values = torch.arange(720.0).view(2, 3, 4, 5, 6)
    values = values if dims == 3 else values[..., 0]
    return torch.empty_strided(values.shape, strides).copy_(values)


@pytest.mark.parametrize("dense", [True, False])
@pytest.mark.parametrize(
    ("op", "options"),
    [
        ("upsample_nearest2d", ()),
        ("_upsample_nearest_exact2d", ()),
        ("upsample_bilinear2d", (False,)),
        ("upsample_bicubic2d", (False,)),
        ("_upsample_bilinear2d_aa", (False,)),
        ("_upsample_bicubic2d_aa", (False,)),
        ("_upsample_lanczos2d_aa", (True,)),
        ("upsample_nearest3d", ()),
        ("_upsample_nearest_exact3d", ()),
        ("upsample_trilinear3d", (False,)),
    ],
)
def test_the_memory_format_of_a_gradient(op: str, options: Any, dense: bool) -> None:
    dims = 3 if op.endswith("3d") else 2
    grad = _gapped_channels_last(dims)
    grad = grad.contiguous(memory_format=torch.channels_last if dims == 2 else torch.channels_last_3d) if dense else grad
    size = (2, 3, 7, 6, 4)[: dims + 2]
    check(getattr(aten, f"{op}_backward"), grad, list(grad.shape[2:]), list(size), *options)
    check(getattr(aten, f"{op}_backward"), grad.contiguous(), list(grad.shape[2:]), list(size), *options)


ANTIALIASED = [aten._upsample_bilinear2d_aa, aten._upsample_bicubic2d_aa, aten._upsample_lanczos2d_aa]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("op", ANTIALIASED)
@pytest.mark.parametrize("corners", [False, True])
@pytest.mark.parametrize("size", [(4, 3), (1, 1), (20, 9), (8, 13), (7, 11)])
def test_antialiased(op: Any, size: tuple[int, int], corners: bool, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9, dtype=torch.float64).to(dtype)

    def gradient(x: torch.Tensor, *options: Any) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        out = op(leaf, *options)
        return torch.autograd.grad(out, leaf, (torch.arange(out.numel()).view(out.shape) % 7 - 3.0).to(out.dtype))[0]

    for y in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3), x[:0]):
        check(op, y, list(size), corners)
        check(gradient, y, list(size), corners)
    # As `interpolate` has them, whose sizes are rounded down; far past the end of the input eager reads what is not its own.
    scales = [(size[0] + 0.4) / 8, (size[1] + 0.7) / 9]
    check(op, x, list(size), False, *scales)
    check(gradient, x, list(size), False, scales[0], None)


@pytest.mark.parametrize("op", ANTIALIASED)
def test_antialiased_to_the_same_size_is_a_copy(op: Any) -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 3, 8, 9)
    for y in (x, x.contiguous(memory_format=torch.channels_last), x.transpose(2, 3), x.transpose(1, 2)):
        check(op, y, list(y.shape[2:]), False, exact=True)


@pytest.mark.parametrize("op", ANTIALIASED)
def test_antialiased_refuses_what_eager_refuses(op: Any) -> None:
    x = torch.ones(2, 3, 8, 9)
    for bad in (x[0], x[:, :0], x[:, :, :0], x.bfloat16(), x.half(), x.long()):
        check(op, bad, [4, 5], False)
    for size in ([4], [0, 2], [-1, 2]):
        check(op, x, size, False)
    back, grad = getattr(aten, f"{op._qualified_op_name.split('::')[1]}_backward"), torch.ones(2, 3, 4, 5)
    for bad in (grad[0], grad[..., :2], grad.bfloat16(), grad.half()):
        check(back, bad, [4, 5], [2, 3, 8, 9], False)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
def test_antialiased_gradients_of_first_and_second_order(mode: str) -> None:
    x = torch.linspace(-1, 1, 20, dtype=torch.float64).view(1, 1, 4, 5).requires_grad_()

    def run(x: torch.Tensor) -> torch.Tensor:
        return F.interpolate(x, size=(3, 2), mode=mode, antialias=True)

    assert on_core(lambda: torch.autograd.gradcheck(run, (x,)))
    assert on_core(lambda: torch.autograd.gradgradcheck(run, (x,)))


@pytest.mark.parametrize(("op", "calls"), list(zip(ANTIALIASED, (34, 55, 50), strict=True)))
def test_kernel_calls_of_antialiased(op: Any, calls: int) -> None:
    x = torch.randn(1, 2, 8, 9)
    assert kernel_calls(lambda: op(x, [4, 5], False)) <= calls
