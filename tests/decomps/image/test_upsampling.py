"""Upsampling: positions that round, and pictures of bytes."""

from __future__ import annotations

import pytest
import torch
from on_core import CORE, check, on_core

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


@pytest.mark.parametrize("name", ["upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_nearest1d"])
@pytest.mark.parametrize(("size", "count"), [(1000, 1777), (777, 5000), (2000, 333)])
def test_indices_far_from_the_start_are_rounded_as_by_eager(name: str, size: int, count: int) -> None:
    """Eager rounds an index once if the CPU has fused multiply-add, as ours does. Otherwise eager rounds it twice."""
    dims, corners = MODES[name]
    x = torch.randn(1, 1, *[1] * (dims - 1), size)
    op, options = getattr(aten, name).default, ([1, count][-dims:], *([False] if corners else []))
    if torch.backends.cpu.get_cpu_capability() in ("AVX2", "AVX512"):
        check(op, x, *options, ops=WITHOUT_VEC)
    else:
        steepest = 4 * x.abs().max().item()  # of the curve between two entries, of any of the modes
        atol = 2 * torch.finfo(x.dtype).eps * size * steepest
        torch.testing.assert_close(on_core(lambda: op(x, *options), WITHOUT_VEC), op(x, *options), rtol=1e-5, atol=atol)


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize(("size", "count"), [(64, 5000), (5000, 4999), (9000, 5000)])
def test_an_infinity_affects_the_same_of_many_antialiased_windows_as_in_eager(size: int, count: int, mode: str) -> None:
    x = torch.arange(2.0 * size).view(1, 1, size, 2)
    x[0, 0, size // 3] = float("inf")
    check(torch.nn.functional.interpolate, x, (count, 2), mode=mode, antialias=True)


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
        for one in (image, image.contiguous(memory_format=torch.channels_last)):
            check(interpolate, one, scale_factor=(1.0, scale), mode=mode, ops=ops, exact=True)
        volume = image[:, :, None]
        for one in (volume, volume.contiguous(memory_format=torch.channels_last_3d)):
            check(interpolate, one, scale_factor=(1.0, 1.0, scale), mode=mode, ops=ops, exact=True)


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


@pytest.mark.parametrize("mode", ["bilinear", "bicubic"])
@pytest.mark.parametrize("size", [(64, 96), (224, 224), (3, 300)])
def test_antialiased_pictures_of_bytes(mode: str, size: tuple[int, int]) -> None:
    x = torch.randint(0, 256, (1, 3, 187, 211), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    check(torch.nn.functional.interpolate, x, size=size, mode=mode, antialias=True, exact=True)


@pytest.mark.parametrize("name", ["bilinear", "bicubic", "lanczos"])
def test_rows_of_an_antialiased_picture_of_width_1_differ(name: str) -> None:
    """Compare with eager's kernel for channels-last images: the other one repeats the first row. If torch is fixed, this fails."""
    op, x = getattr(aten, f"_upsample_{name}2d_aa").default, torch.arange(90.0).view(1, 3, 6, 5)
    want = op(x.contiguous(memory_format=torch.channels_last), [3, 1], False)
    torch.testing.assert_close(on_core(lambda: op(x, [3, 1], False)), want, rtol=1e-5, atol=1e-5)
    wrong = op(x, [3, 1], False)
    assert torch.equal(wrong, wrong[:, :, :1].expand_as(wrong))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("scale", [1e307, 1e20, 3e16])
@pytest.mark.parametrize("name", ["upsample_nearest2d", "upsample_bilinear2d", "upsample_bicubic2d", "_upsample_bicubic2d_aa"])
def test_all_positions_of_a_huge_scale_are_the_first(name: str, scale: float, dtype: torch.dtype) -> None:
    flags = () if "nearest" in name else (False,)
    check(getattr(aten, name).default, torch.rand(1, 1, 4, 5, dtype=dtype), [3, 2], *flags, None, scale, ops=WITHOUT_VEC)


def test_a_filters_window_beyond_the_input_is_zero() -> None:
    check(aten._upsample_bilinear2d_aa.default, torch.rand(1, 1, 2, 1), [3, 4], False, None, 0.3)
