"""Upsampling forward: every mode against eager's, on Core ATen and on a set without the two ``.vec`` forms that it holds."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from on_core import CORE, check, kernel_calls, on_core

import eagerdecomp as ed

aten = torch.ops.aten

#: op -> dimensions, and whether it takes `align_corners`.
MODES = {
    **{f"{kind}{dims}d": (dims, False) for kind in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)},
    "upsample_linear1d": (1, True),
    "upsample_bilinear2d": (2, True),
    "upsample_trilinear3d": (3, True),
    "upsample_bicubic2d": (2, True),
}
WITHOUT_VEC = CORE - ed.OpSet([aten.upsample_bilinear2d.vec, aten.upsample_nearest2d.vec])


def laid(x: torch.Tensor, layout: str) -> torch.Tensor:
    if layout == "channels last" and x.dim() > 3:
        return x.contiguous(memory_format=torch.channels_last if x.dim() == 4 else torch.channels_last_3d)
    if layout == "turned":
        return x.transpose(1, -1).contiguous().transpose(1, -1)
    return torch.cat([x, x], -1)[..., ::2] if layout == "gapped" else x


calls = st.fixed_dictionaries(
    {
        "name": st.sampled_from(sorted(MODES)),
        "sizes": st.lists(st.sampled_from([1, 2, 3, 5, 8, 13]), min_size=3, max_size=3),
        "counts": st.lists(st.sampled_from([1, 2, 4, 6, 7, 10, 16]), min_size=3, max_size=3),
        "scales": st.lists(st.sampled_from([None, None, 0.5, 1.0, 1.3, 2.0, 2.3, 0.0, -1.0]), min_size=3, max_size=3),
        "fitting": st.booleans(),
        "corners": st.booleans(),
        "dtype": st.sampled_from([torch.float32, torch.float64, torch.uint8]),
        "layout": st.sampled_from(["plain", "channels last", "turned", "gapped"]),
        "channels": st.sampled_from([1, 3, 5]),
        "batch": st.sampled_from([0, 1, 2]),
        "ops": st.sampled_from([CORE, WITHOUT_VEC]),
        "odd": st.sampled_from([None, None, float("inf"), float("nan")]),
    }
)
FIXED: dict[str, Any] = {
    "sizes": [6, 6, 6],
    "counts": [6, 12, 12],
    "scales": [1.5, 1.7, 1.7],
    "fitting": False,
    "corners": False,
    "dtype": torch.float32,
    "channels": 5,
    "batch": 1,
    "ops": WITHOUT_VEC,
    "odd": None,
}


@pytest.mark.full
@given(call=calls)
@example(call={**FIXED, "name": "upsample_nearest3d", "layout": "channels last"})  # this layout looks at no scale, the other does
@example(call={**FIXED, "name": "upsample_nearest3d", "layout": "plain"})
@example(call={**FIXED, "name": "upsample_nearest2d", "layout": "plain"})
@example(call={**FIXED, "name": "upsample_bicubic2d", "layout": "plain", "scales": [1.5, 1.5, 1.5], "counts": [6, 6, 6]})
@example(call={**FIXED, "name": "upsample_linear1d", "layout": "plain", "odd": float("inf"), "counts": [6, 6, 6]})
@example(call={**FIXED, "name": "upsample_bilinear2d", "layout": "plain", "dtype": torch.uint8, "scales": [None] * 3})
@example(call={**FIXED, "name": "upsample_bicubic2d", "layout": "plain", "dtype": torch.uint8, "scales": [None] * 3})
@settings(max_examples=60, deadline=None)
def test_forward_and_gradient(call: dict[str, Any]) -> None:
    dims, corners = MODES[call["name"]]
    sizes, counts, scales = (call[part][:dims] for part in ("sizes", "counts", "scales"))
    if call["fitting"]:
        scales = [scale if scale and scale > 0 else 1.7 for scale in scales]
        counts = [max(1, int(size * scale)) for size, scale in zip(sizes, scales, strict=True)]
    torch.manual_seed(0)
    options = [counts, *([call["corners"]] if corners else []), *scales]
    x = torch.rand(call["batch"], call["channels"], *sizes, dtype=torch.float64)
    x = (x * 256 if call["dtype"] is torch.uint8 else x - 0.5).to(call["dtype"])
    if call["odd"] and x.numel() and x.dtype.is_floating_point:
        x.view(-1)[x.numel() // 2] = call["odd"]
    check(getattr(aten, call["name"]).default, laid(x, call["layout"]), *options, ops=call["ops"])
    if x.dtype.is_floating_point:
        grad = laid(torch.randn(*x.shape[:2], *counts, dtype=x.dtype), call["layout"])
        back = getattr(aten, f"{call['name']}_backward").default
        check(back, grad, counts, list(x.shape), *options[1:], ops=call["ops"])


@pytest.mark.parametrize("name", ["upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest1d"])
@pytest.mark.parametrize(("size", "count"), [(1000, 1777), (777, 5000), (2000, 333)])
def test_indices_far_from_the_start_are_rounded_as_by_eager(name: str, size: int, count: int) -> None:
    """Eager rounds an index once if the CPU has fused multiply-add, as ours does. Otherwise eager rounds it twice."""
    torch.manual_seed(0)
    dims, corners = MODES[name]
    x = torch.randn(1, 1, *[1] * (dims - 1), size)
    op, options = getattr(aten, name).default, ([1, count][-dims:], *([False] if corners else []))
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        check(op, x, *options, ops=WITHOUT_VEC)
    else:
        steepest = 4 * x.abs().max().item()  # of the curve between two entries, of any of the modes
        atol = 2 * torch.finfo(x.dtype).eps * size * steepest
        torch.testing.assert_close(on_core(lambda: op(x, *options), WITHOUT_VEC), op(x, *options), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d"])
@pytest.mark.parametrize("corners", [False, True])
def test_bytes_are_weighted_in_integers(name: str, corners: bool) -> None:
    torch.manual_seed(0)
    x = torch.randint(0, 256, (2, 3, 60, 70)).to(torch.uint8)
    for image in (x, laid(x, "channels last")):
        check(getattr(aten, name).default, image, [97, 41], corners, ops=WITHOUT_VEC, exact=True)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("name", [name for name, (_, corners) in MODES.items() if corners])
def test_float16_and_bfloat16_are_rounded_once(name: str, dtype: torch.dtype) -> None:
    """Some of eager's kernels round every weight and every dimension; ours is never further from the truth than they are."""
    torch.manual_seed(0)
    dims = MODES[name][0]
    x = torch.randn(2, 5, *(13, 9, 5)[:dims]).to(dtype)

    def error(run: Any) -> float:
        truth = getattr(aten, name).default(x.double(), [20, 17, 7][:dims], False)
        return float((run(lambda: getattr(aten, name).default(x, [20, 17, 7][:dims], False)) - truth).abs().mean())

    assert error(on_core) <= 1.01 * error(lambda run: run())


@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d", "upsample_trilinear3d", "upsample_bicubic2d"])
def test_composite_forms(name: str) -> None:
    dims, corners = MODES[name]
    options = [False] if corners else []
    vec = getattr(aten, name).vec
    x = torch.rand(2, 3, *(4, 5, 3)[:dims])

    def run(x: torch.Tensor, *rest: Any) -> torch.Tensor:
        with torch.inference_mode():
            return vec(x, *rest).clone()

    for ops in (CORE, WITHOUT_VEC):
        check(run, x, [7, 3, 5][:dims], *options, None, ops=ops)
        check(run, x, None, *options, [1.7, 2.0, 0.5][:dims], ops=ops)
        check(run, x, None, *options, None, ops=ops)


@pytest.mark.full
@pytest.mark.parametrize("mode", ["linear", "trilinear", "bicubic"])
def test_first_and_second_derivatives(mode: str) -> None:
    dims = {"linear": 1, "bicubic": 2, "trilinear": 3}[mode]
    x = torch.linspace(-1, 1, 2 * 3**dims, dtype=torch.float64).view(1, 2, *[3] * dims).requires_grad_()

    def run(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.interpolate(x, size=[4] * dims, mode=mode)

    assert on_core(lambda: torch.autograd.gradcheck(run, (x,)))
    assert on_core(lambda: torch.autograd.gradgradcheck(run, (x,)))


@pytest.mark.parametrize("half", ["forward", "backward"])
def test_training_where_the_set_holds_one_of_the_pair(half: str) -> None:
    held = aten.upsample_bicubic2d.default if half == "forward" else aten.upsample_bicubic2d_backward.default

    def run(x: torch.Tensor) -> torch.Tensor:
        leaf = x.detach().requires_grad_()
        (torch.nn.functional.interpolate(leaf, size=(7, 5), mode="bicubic") ** 2).sum().backward()
        return leaf.grad  # type: ignore[return-value]

    check(run, torch.rand(2, 3, 4, 5), ops=CORE | ed.OpSet([held]))


@pytest.mark.parametrize(
    ("name", "forward", "backward"),
    [
        *(("upsample_nearest1d", 5, 11), ("upsample_nearest2d", 1, 20), ("upsample_nearest3d", 15, 29)),
        *(("upsample_linear1d", 14, 19), ("upsample_bilinear2d", 1, 28), ("upsample_trilinear3d", 29, 37)),
        ("upsample_bicubic2d", 33, 38),
    ],
)
def test_kernel_calls(name: str, forward: int, backward: int) -> None:
    dims, corners = MODES[name]
    x, counts, options = torch.rand(2, 3, *(5, 4, 3)[:dims]), [7, 6, 5][:dims], [False] if corners else []
    grad = torch.rand(2, 3, *counts)
    back = getattr(aten, f"{name}_backward").default
    assert kernel_calls(lambda: getattr(aten, name).default(x, counts, *options)) <= forward
    assert kernel_calls(lambda: back(grad, counts, list(x.shape), *options)) <= backward


def test_the_two_sides_of_a_square_share_their_taps() -> None:
    grad = torch.rand(2, 3, 8, 8)
    back = aten.upsample_bilinear2d_backward.default
    check(back, grad, [8, 8], [2, 3, 4, 4], False)
    check(back, grad, [8, 8], [2, 3, 4, 4], False, 2.0, 1.5)
    assert kernel_calls(lambda: back(grad, [8, 8], [2, 3, 4, 4], False)) <= 23


#: Fractional scales with which positions in float64 come near to integers: eager rounds them to float32 before ``floorf``.
NEAR_INTEGERS = [3.1, 2.3, 1.7, 0.7, 0.3, 1.1]


@pytest.mark.parametrize("ops", [CORE, WITHOUT_VEC, ed.tiny()])
@pytest.mark.parametrize("scale", NEAR_INTEGERS)
@pytest.mark.parametrize("mode", ["nearest", "nearest-exact"])
def test_nearest_elements_of_float64_with_fractional_scales(mode: str, scale: float, ops: ed.OpSet) -> None:
    interpolate = torch.nn.functional.interpolate
    line = torch.arange(70.0).double()[None, None]
    check(interpolate, line, scale_factor=scale, mode=mode, ops=ops, exact=True)
    check(interpolate, line, scale_factor=scale, mode=mode, recompute_scale_factor=True, ops=ops, exact=True)
    # Up to 128 rows and columns, and for more than 3 channels in channels last, eager computes positions in float32.
    for width, channels in ((17, 1), (70, 1), (70, 4)):
        image = torch.arange(2.0 * channels * width).double().view(1, channels, 2, width)
        for one in (image, laid(image, "channels last")):
            check(interpolate, one, scale_factor=(1.0, scale), mode=mode, ops=ops, exact=True)
        volume = image[:, :, None]
        for one in (volume, laid(volume, "channels last")):
            check(interpolate, one, scale_factor=(1.0, 1.0, scale), mode=mode, ops=ops, exact=True)


def test_nearest_on_prims_in_float64() -> None:
    interpolate = torch.nn.functional.interpolate
    check(interpolate, torch.arange(11.0).double()[None, None], scale_factor=3.1, ops=ed.prims(), exact=True)
    image = torch.arange(17.0).double()[None, None, None]
    check(interpolate, image, scale_factor=(1.0, 2.3), mode="nearest-exact", ops=ed.prims(), exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_large_image_of_twice_the_size_is_resized_by_its_scale(dtype: torch.dtype) -> None:
    """Eager's kernel for small images ignores the scale if the size is doubled."""
    image = torch.arange(70.0).to(dtype)[None, None, None]
    for scale in (2.01, 2.0):
        check(torch.nn.functional.interpolate, image, scale_factor=(1.0, scale), ops=WITHOUT_VEC, exact=True)


@pytest.mark.parametrize("scale", [2**0.5, 0.5**0.5])
@pytest.mark.parametrize("name", ["upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"])
def test_positions_of_float64_just_before_an_element_are_at_it(name: str, scale: float) -> None:
    """Eager rounds positions to float32 to find the element before them. So far from the start, some move by 1e-3."""
    dims, _ = MODES[name]
    count = [*[1] * (dims - 1), int(20000 * scale)]
    shape, scales = [1, 1, *[1] * (dims - 1), 20000], [*[1.0] * (dims - 1), scale]
    torch.manual_seed(0)
    x, grad = torch.randn(shape, dtype=torch.float64), torch.randn([1, 1, *count], dtype=torch.float64)
    for corners in (False, True):
        check(getattr(aten, name).default, x, count, corners, *scales, ops=WITHOUT_VEC)
        check(getattr(aten, f"{name}_backward").default, grad, count, shape, corners, *scales, ops=WITHOUT_VEC)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d"])
@pytest.mark.parametrize("at", [5, 6])
def test_positions_beyond_the_last_element_have_the_weight_of_it(name: str, at: int) -> None:
    """A scale that does not fit the sizes leads there. Infinities show elements of weight 0."""
    x = torch.ones(1, 1, 7, 7)
    x[..., at, at] = float("inf")
    for scales in ((0.3, 1.0), (0.3, 0.3)):
        check(getattr(aten, name).default, x, [7, 9], False, *scales, ops=WITHOUT_VEC)


@pytest.mark.parametrize("name", ["upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bilinear2d_aa", "_upsample_bicubic2d_aa"])
def test_bytes_are_weighted_in_integers_on_tiny(name: str) -> None:
    """There powers are exponentials, and float64 has no logarithm to base 2."""
    torch.manual_seed(0)
    x = torch.randint(0, 256, (1, 3, 9, 14)).to(torch.uint8)
    for size in ([18, 28], [5, 31]):
        check(getattr(aten, name).default, x, size, False, ops=ed.tiny(), exact=True)
