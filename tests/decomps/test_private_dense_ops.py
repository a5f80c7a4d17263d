"""Private dense ops that no public function names, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, gradient, on, on_core
from torch import Tensor

import eagerdecomp as ed

aten = torch.ops.aten

_INDEX_DTYPES = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(3).to(dtype)


def _bytes(*shape: int, seed: int = 0, dtype: torch.dtype = torch.int8) -> Tensor:
    bounds = torch.iinfo(dtype)
    return torch.randint(bounds.min, bounds.max + 1, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


class TestConvertIndicesFromCooToCsr:
    @pytest.mark.parametrize("dtype", _INDEX_DTYPES)
    @pytest.mark.parametrize("out_int32", [False, True])
    def test_counts_the_elements_before_each_row(self, dtype: torch.dtype, out_int32: bool) -> None:
        rows = torch.tensor([0, 0, 1, 3, 3, 3], dtype=dtype)
        check(aten._convert_indices_from_coo_to_csr.default, rows, 6, out_int32=out_int32, exact=True)
        check(aten._convert_indices_from_coo_to_csr.default, rows[:0], 6, out_int32=out_int32, exact=True)

    @pytest.mark.parametrize(("rows", "size"), [([], 0), ([], -1), ([4], 5), ([0] * 40, 1)])
    def test_sizes(self, rows: list[int], size: int) -> None:
        check(aten._convert_indices_from_coo_to_csr.default, torch.tensor(rows, dtype=torch.int64), size, exact=True)
        check(aten._convert_indices_from_coo_to_csr.default, torch.tensor(0), 3, exact=True)

    def test_out(self) -> None:
        rows = torch.tensor([0, 2, 2])
        for out in (torch.empty(0, dtype=torch.int64), torch.zeros(5, dtype=torch.int64)):
            check(torch._convert_indices_from_coo_to_csr, rows, 4, out=out, exact=True)
        check(lambda: torch._convert_indices_from_coo_to_csr(rows, 4, out=torch.empty(5, dtype=torch.int32)))

    def test_reads_strided_rows_in_order(self) -> None:
        """Eager reads them as if they were contiguous."""
        rows = torch.tensor([0, 9, 1, 9, 3, 9])[::2]
        assert on_core(lambda: aten._convert_indices_from_coo_to_csr.default(rows, 4)).tolist() == [0, 1, 2, 2, 3]

    def test_raises_for_rows_out_of_range(self) -> None:
        """Eager writes past its memory."""
        with pytest.raises(RuntimeError, match="out of bounds"):
            on_core(lambda: aten._convert_indices_from_coo_to_csr.default(torch.tensor([0, 7]), 4))


class TestConvertIndicesFromCsrToCoo:
    CROW, COL = torch.tensor([0, 2, 3, 3, 4]), torch.tensor([0, 1, 2, 1])

    @pytest.mark.full
    @pytest.mark.parametrize("transpose", [False, True])
    @pytest.mark.parametrize("out_int32", [False, True])
    @pytest.mark.parametrize("dtype", _INDEX_DTYPES)
    def test_names_the_row_of_each_element(self, transpose: bool, out_int32: bool, dtype: torch.dtype) -> None:
        run, options = aten._convert_indices_from_csr_to_coo.default, {"transpose": transpose, "out_int32": out_int32}
        check(run, self.CROW.to(dtype), self.COL.to(dtype), exact=True, **options)
        check(run, self.CROW.to(dtype), self.COL.float(), exact=True, **options)
        crow, col = torch.stack([self.CROW, torch.tensor([0, 1, 1, 3, 4])]), torch.stack([self.COL, self.COL])
        check(run, crow.to(dtype), col.to(dtype), exact=True, **options)
        check(run, crow.view(2, 1, 5), col.view(2, 1, 4), exact=True, **options)

    @pytest.mark.parametrize(("crow", "col"), [((3,), (0,)), ((1,), (0,)), ((0,), (0,)), ((2, 3), (2, 0)), ((0, 3), (0, 4))])
    def test_sizes_of_zero(self, crow: tuple[int, ...], col: tuple[int, ...]) -> None:
        crow_indices, col_indices = torch.zeros(crow, dtype=torch.int64), torch.zeros(col, dtype=torch.int64)
        check(aten._convert_indices_from_csr_to_coo.default, crow_indices, col_indices, exact=True)

    def test_strided_operands(self) -> None:
        crow, col = torch.stack([self.CROW, self.CROW], 1)[:, 0], torch.stack([self.COL, self.COL], 1)[:, 1]
        check(aten._convert_indices_from_csr_to_coo.default, crow, col, exact=True)

    def test_out(self) -> None:
        check(torch._convert_indices_from_csr_to_coo, self.CROW, self.COL, out=torch.empty(0, dtype=torch.int64), exact=True)
        check(torch._convert_indices_from_csr_to_coo, self.CROW, self.COL, out=torch.zeros(2, 4, dtype=torch.int64), exact=True)
        wrong = torch.empty(0, dtype=torch.int32)
        check(lambda: torch._convert_indices_from_csr_to_coo(self.CROW, self.COL, out=wrong))


class TestIntMm:
    @pytest.mark.parametrize("dtype", [torch.int8, torch.uint8])
    @pytest.mark.parametrize(("rows", "inner", "columns"), [(20, 8, 16), (1, 1, 1), (0, 8, 16), (20, 0, 16), (20, 8, 0)])
    def test_sums_in_int32(self, dtype: torch.dtype, rows: int, inner: int, columns: int) -> None:
        """Without instructions for bytes, eager adds two products in int16, with saturation: it is right about small bytes only."""
        left, right = _bytes(rows, inner, dtype=dtype), _bytes(inner, columns, seed=1)
        assert torch.equal(on_core(lambda: torch._int_mm(left, right)), (left.long() @ right.long()).int())
        right = torch.div(right, 2, rounding_mode="floor")  # 2 * 255 * 64 is less than 2 ** 15
        check(torch._int_mm, left, right, exact=True)
        check(torch._int_mm, left.t().contiguous().t(), right.t().contiguous().t(), exact=True)

    def test_wraps_around(self) -> None:
        least = torch.full((1, 140000), -128, dtype=torch.int8)
        check(torch._int_mm, least, least.t().contiguous(), exact=True)

    def test_out(self) -> None:
        left, right = _bytes(5, 3), _bytes(3, 4, seed=1)
        check(torch._int_mm, left, right, out=torch.zeros(5, 4, dtype=torch.int32), exact=True)
        check(torch._int_mm, left[:, :0], right[:0], out=torch.ones(5, 4, dtype=torch.int32), exact=True)


class TestComputeLinearCombination:
    @pytest.mark.parametrize(
        "dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int32, torch.int64, torch.bool]
    )
    def test_sums_rows_by_coefficients(self, dtype: torch.dtype) -> None:
        given, coefficients = _numbers(3, 2, 4, dtype=dtype), _numbers(5, 3, seed=1, dtype=dtype)
        check(torch._compute_linear_combination, given, coefficients)
        check(torch._compute_linear_combination, given[:, 0, 0], coefficients)
        check(torch._compute_linear_combination, given.transpose(1, 2), coefficients.t().contiguous().t())

    def test_bools_do_not_count(self) -> None:
        check(torch._compute_linear_combination, torch.ones(512, 2).bool(), torch.ones(3, 512).bool(), exact=True)

    @pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
    def test_complex_rows_have_real_coefficients(self, dtype: torch.dtype) -> None:
        given = torch.complex(_numbers(3, 4), _numbers(3, 4, seed=2)).to(dtype)
        check(torch._compute_linear_combination, given, _numbers(5, 3, dtype=dtype.to_real()))
        given[0, 0] = complex(float("inf"), 1)
        check(torch._compute_linear_combination, given, _numbers(5, 3, dtype=dtype.to_real()))

    @pytest.mark.parametrize(("outputs", "count", "rows"), [(0, 3, 3), (5, 0, 3), (5, 2, 3), (1, 1, 1)])
    def test_sizes(self, outputs: int, count: int, rows: int) -> None:
        check(torch._compute_linear_combination, _numbers(rows, 2), _numbers(outputs, 3)[:, :count])

    @pytest.mark.parametrize("dtype", [torch.float32, torch.complex64, torch.bool, torch.int64])
    def test_out_is_added_to(self, dtype: torch.dtype) -> None:
        given, coefficients = _numbers(3, 4, dtype=dtype), _numbers(5, 3, dtype=dtype.to_real())
        check(torch._compute_linear_combination, given, coefficients, out=torch.ones(5, 4, dtype=dtype))
        check(torch._compute_linear_combination, given, coefficients, out=torch.ones(4, 5, dtype=dtype).t())
        check(torch._compute_linear_combination, given[:, :0], coefficients, out=torch.ones(5, 0, dtype=dtype))

    def test_has_no_gradient(self) -> None:
        check(lambda: torch._compute_linear_combination(torch.ones(3, 2, requires_grad=True), torch.ones(2, 3)).sum().backward())


class TestTransformBiasRescaleQkv:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("heads", [1, 2, 8])
    def test_scales_the_query(self, dtype: torch.dtype, heads: int) -> None:
        qkv, bias = _numbers(2, 17, 48, dtype=dtype), _numbers(48, seed=1, dtype=dtype)
        check(aten._transform_bias_rescale_qkv.default, qkv, bias, heads, exact=dtype not in (torch.float32, torch.float64))
        check(aten._transform_bias_rescale_qkv.default, qkv.transpose(0, 1), bias.view(2, 24), heads)

    def test_results_share_a_storage(self) -> None:
        def offsets() -> list[Any]:
            found = aten._transform_bias_rescale_qkv.default(_numbers(2, 5, 12), _numbers(12), 2)
            return [(one.storage_offset(), one.stride(), torch._C._is_alias_of(one, found[0])) for one in found]

        assert on_core(offsets) == offsets()

    def test_no_places(self) -> None:
        check(aten._transform_bias_rescale_qkv.default, _numbers(2, 0, 12), _numbers(12), 2)

    def test_out(self) -> None:
        outs = {name: torch.empty(0) for name in ("out0", "out1", "out2")}
        check(aten._transform_bias_rescale_qkv.out, _numbers(2, 5, 12), _numbers(12), 2, **outs)


class TestIsSetTo:
    def test_compares_memory(self) -> None:
        whole = torch.zeros(3, 4)
        others = [whole, whole[:], whole[1:], whole.t(), whole.view(4, 3), whole.clone(), whole.view(torch.int32), torch.zeros(0)]
        want = [whole.is_set_to(one) for one in others]
        assert on_core(lambda: [whole.is_set_to(one) for one in others]) == want
        assert want == [True, True, False, False, False, False, True, False]


class TestFromFile:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
    def test_maps_the_file(self, dtype: torch.dtype, tmp_path: Any) -> None:
        path, values = tmp_path / "numbers", _numbers(6, dtype=dtype)
        values.numpy().tofile(path)
        with on(CORE):
            read = torch.from_file(str(path), size=6, dtype=dtype)
            out = aten.from_file.out(str(path), None, 6, out=torch.zeros(6, dtype=dtype))
            doubled = read * 2
        assert torch.equal(read, values)
        assert torch.equal(out, values)
        assert torch.equal(doubled, values * 2)

    def test_shared_memory_is_written(self, tmp_path: Any) -> None:
        path = tmp_path / "numbers"
        torch.zeros(4).numpy().tofile(path)
        with on(CORE):
            torch.from_file(str(path), shared=True, size=4).add_(3)
        assert torch.equal(torch.from_file(str(path), size=4), torch.full((4,), 3.0))

    def test_refuses_files_that_are_not_there(self, tmp_path: Any) -> None:
        check(lambda: torch.from_file(str(tmp_path / "none"), size=4))


class TestLazyClone:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
    @pytest.mark.parametrize(
        "view",
        [lambda x: x, lambda x: x[1:], lambda x: x.t()[1:], lambda x: x[:, :1].expand(3, 4), lambda x: x[:0], lambda x: x[1, 2]],
    )
    def test_keeps_strides_and_offset(self, dtype: torch.dtype, view: Any) -> None:
        x = view(_numbers(3, 4, dtype=dtype))
        check(torch._lazy_clone, x, exact=True)
        ours, theirs = on_core(lambda: torch._lazy_clone(x)), torch._lazy_clone(x)
        assert ours.stride() == theirs.stride()
        assert ours.storage_offset() == theirs.storage_offset()
        assert ours.untyped_storage().nbytes() == theirs.untyped_storage().nbytes()
        before = x.clone()
        torch.as_strided(ours, [ours.untyped_storage().nbytes() // ours.element_size()], [1], 0).fill_(1)
        assert torch.equal(x, before)

    def test_storages_of_several_sizes(self) -> None:
        """The size of a storage is no part of a program's key."""
        with on(CORE):
            for size in (40, 4, 9):
                assert torch._lazy_clone(torch.arange(size)[1:4]).tolist() == [1, 2, 3]

    def test_resolves_lazy_bits(self) -> None:
        z = torch.complex(_numbers(3), _numbers(3, seed=1))
        for x in (z.conj(), z.imag, torch._neg_view(_numbers(4)), z.conj()[1:]):
            ours, theirs = on_core(lambda: torch._lazy_clone(x)), torch._lazy_clone(x)  # noqa: B023 - called at once
            assert torch.equal(ours, theirs)
            assert (ours.is_conj(), ours.is_neg(), ours.stride()) == (theirs.is_conj(), theirs.is_neg(), theirs.stride())

    def test_gradient(self) -> None:
        x = _numbers(3)
        with on(CORE):
            ours = gradient(lambda one: (torch._lazy_clone(one) * 2).sum(), x)
        assert torch.equal(ours, torch.full((3,), 2.0))


class TestNnpackConvolution:
    """Where the processor is not one of NNPACK's, eager refuses all calls; the oracle of values is `conv2d`."""

    @pytest.mark.parametrize(("padding", "stride"), [([1, 1], [1, 1]), ([0], [2, 1]), ([2, 0], [3])])
    def test_convolves(self, padding: list[int], stride: list[int]) -> None:
        images, weight, bias = _numbers(2, 3, 8, 7), _numbers(4, 3, 3, 2, seed=1), _numbers(4, seed=2)
        for one in (images, images.contiguous(memory_format=torch.channels_last)):
            ours = on_core(lambda: aten._nnpack_spatial_convolution.default(one, weight, bias, padding, stride))  # noqa: B023
            want = torch.conv2d(images, weight, bias, stride, padding)
            torch.testing.assert_close(ours, want)
            assert ours.is_contiguous()

    def test_gradient(self) -> None:
        images, weight = _numbers(1, 2, 5, 5), _numbers(3, 2, 3, 3, seed=1)
        with on(CORE):
            ours = gradient(lambda one: aten._nnpack_spatial_convolution.default(images, one, None, [1, 1]).sum(), weight)
        torch.testing.assert_close(ours, gradient(lambda one: torch.conv2d(images, one, padding=1).sum(), weight))


class TestGridSamplerFallback:
    RUN, BACKWARD = aten._grid_sampler_2d_cpu_fallback.default, aten._grid_sampler_2d_cpu_fallback_backward.default
    INPUT, GRID, GRAD = _numbers(2, 3, 5, 6), _numbers(2, 4, 3, 2, seed=1) / 2, _numbers(2, 3, 4, 3, seed=2)

    @pytest.mark.parametrize("mode", [0, 1, 2])
    @pytest.mark.parametrize("padding", [0, 1, 2])
    @pytest.mark.parametrize("align_corners", [False, True])
    def test_samples(self, mode: int, padding: int, align_corners: bool) -> None:
        check(self.RUN, self.INPUT, self.GRID, mode, padding, align_corners)
        check(self.BACKWARD, self.GRAD, self.INPUT, self.GRID, mode, padding, align_corners)

    @pytest.mark.parametrize("padding", [0, 1, 2])
    def test_places_that_are_not_finite(self, padding: int) -> None:
        grid = self.GRID.clone()
        grid[0, 0, 0, 0], grid[0, 1, 0, 1], grid[1, 0, 0, 0] = float("inf"), float("-inf"), 1e9
        if padding == 1:
            grid[1, 1, 1, 0] = float("nan")
        check(self.RUN, self.INPUT, grid, 0, padding, False)

    def test_layouts(self) -> None:
        images = self.INPUT.contiguous(memory_format=torch.channels_last)
        grid = self.GRID.transpose(1, 2).contiguous().transpose(1, 2)
        check(self.RUN, images, grid, 0, 0, False)
        check(self.BACKWARD, self.GRAD, images, grid, 0, 0, False)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
    def test_sizes_of_zero(self, dtype: torch.dtype) -> None:
        images, grid, grad = self.INPUT.to(dtype), self.GRID.to(dtype), self.GRAD.to(dtype)
        for one, two, three in (
            (images[:0], grid[:0], grad[:0]),
            (images[:, :0], grid, grad[:, :0]),
            (images, grid[:, :0], grad[:, :, :0]),
        ):
            check(self.RUN, one, two, 0, 0, False)
            check(self.BACKWARD, three, one, two, 0, 0, False)

    def test_out(self) -> None:
        check(aten._grid_sampler_2d_cpu_fallback.out, self.INPUT, self.GRID, 0, 0, False, out=torch.empty(0))

    def test_gradient(self) -> None:
        def run(one: Tensor) -> Tensor:
            return (self.RUN(one, self.GRID, 2, 1, False) * self.GRAD).sum()

        with on(CORE):
            ours = gradient(run, self.INPUT)
        torch.testing.assert_close(ours, gradient(run, self.INPUT))


class TestAddRelu:
    @pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int32, torch.int64, torch.float32, torch.float64])
    @pytest.mark.parametrize("alpha", [1, 2, -1.5, True])
    def test_adds_and_clamps(self, dtype: torch.dtype, alpha: Any) -> None:
        x, y = _numbers(3, 4, dtype=dtype), _numbers(4, seed=1, dtype=dtype)
        check(aten._add_relu.Tensor, x, y, alpha=alpha)
        check(aten._add_relu_.Tensor, x, y, alpha=alpha)
        check(aten._add_relu.Tensor, x.t(), x.t(), alpha=alpha)
        check(aten._add_relu.Tensor, x[:0], y, alpha=alpha)
        check(aten._add_relu.Scalar, x, 2, alpha)
        check(aten._add_relu_.Scalar, x, 2, alpha)
        check(aten._add_relu.Scalar, x.t(), 2.5, alpha)

    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (torch.tensor([100, -100], dtype=torch.int8), torch.tensor([100, -100], dtype=torch.int8)),
            (torch.tensor([1, 2], dtype=torch.int8), torch.tensor([500.0, -3.0])),
            (torch.tensor([100], dtype=torch.int8), torch.tensor([200], dtype=torch.uint8)),
            (torch.tensor([1.0]), torch.tensor([1e300], dtype=torch.float64)),
            (torch.tensor([2**31 - 1], dtype=torch.int32), torch.tensor([5.0])),
            (torch.tensor([1.0]), torch.tensor([1]).to(torch.uint16)),
            (torch.tensor(1.0), torch.tensor(2.0, dtype=torch.float64)),
            (torch.tensor([float("inf"), -float("inf"), -0.0]), torch.tensor(0.0)),
            (torch.tensor(2**40), torch.tensor([1.0])),
        ],
    )
    def test_range_is_that_of_the_first(self, x: Tensor, y: Tensor) -> None:
        check(aten._add_relu.Tensor, x, y)

    def test_numbers(self) -> None:
        check(aten._add_relu.Scalar, torch.tensor([1], dtype=torch.int8), 300)
        check(aten._add_relu.Scalar, torch.tensor([1], dtype=torch.int8), True)
        check(aten._add_relu.Scalar, torch.tensor([1.0]), 1e300)

    def test_out(self) -> None:
        x, y = _numbers(3, 4), _numbers(4, seed=1)
        for out in (torch.empty(0), torch.zeros(4, 3).t()):
            check(aten._add_relu.out, x, y, out=out)
        check(aten._add_relu.Scalar_out, x, 1.5, out=torch.empty(0))
        wide = torch.zeros(3, 4).double()  # which eager leaves as it was
        on_core(lambda: aten._add_relu.out(x, y, out=wide))
        torch.testing.assert_close(wide, aten._add_relu.Tensor(x, y).double())
        check(lambda: aten._add_relu.out(x, y, out=torch.zeros(3, 4, dtype=torch.int32)))
        check(lambda: aten._add_relu.out(x, y, out=torch.zeros(1).expand(3, 4)))
        check(lambda: aten._add_relu.Scalar_out(x, 1.5, out=torch.zeros(3, 4).double()))


def test_small_sets() -> None:
    """The rules use ops that other rules reduce further."""
    left, right, x, y = _bytes(5, 3), _bytes(3, 4), _numbers(2, 5, 12), _numbers(12)
    rows, crow, col = torch.tensor([0, 0, 2]), torch.tensor([0, 2, 3]), torch.tensor([1, 2, 0])
    run = {
        "int_mm": lambda: torch._int_mm(left, right),
        "csr": lambda: aten._convert_indices_from_coo_to_csr.default(rows, 4),
        "coo": lambda: aten._convert_indices_from_csr_to_coo.default(crow, col),
        "add_relu": lambda: aten._add_relu.Tensor(x, y),
        "qkv": lambda: aten._transform_bias_rescale_qkv.default(x, y, 2)[0],
        "combination": lambda: torch._compute_linear_combination(x, x[0, :3, :2]),
        "lazy_clone": lambda: torch._lazy_clone(x[1]),
    }
    for one in run.values():
        torch.testing.assert_close(on_core(one, ed.prims()), one())


class TestRange:
    @pytest.mark.parametrize("dtype", [None, *_INDEX_DTYPES, torch.float32, torch.float64, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize(
        ("start", "end", "step"), [(0, 4, 1), (3, 3, 1), (1, 12, 5), (100, 40, -7), (0.7, 4.9, 1.3), (False, 2, 1)]
    )
    def test_counts_with_its_end(self, dtype: torch.dtype | None, start: float, end: float, step: float) -> None:
        check(torch.range, start, end, step, dtype=dtype, exact=True)

    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    def test_fractions_are_rounded_once(self, dtype: torch.dtype) -> None:
        check(torch.range, 0, 1, 0.1, dtype=dtype, exact=True)
        check(torch.range, 0, 1000, 0.1, exact=True)

    def test_out(self) -> None:
        for out in (
            torch.empty(0),
            torch.empty(5, 1),
            torch.empty(10)[::2],
            torch.empty(5, dtype=torch.int64),
            torch.empty(0).half(),
        ):
            check(torch.range, 0, 4, out=out, exact=True)


class TestKaiserWindow:
    @pytest.mark.full
    @pytest.mark.parametrize("dtype", [None, torch.float64, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize("length", [0, 1, 2, 5, 50])
    @pytest.mark.parametrize("beta", [12.0, 0.0, -3.0])
    def test_windows(self, dtype: torch.dtype | None, length: int, beta: float) -> None:
        for periodic in (True, False):
            check(torch.kaiser_window, length, periodic, beta, dtype=dtype)
        check(torch.kaiser_window, length, dtype=dtype)

    def test_storage_of_a_periodic_one_holds_one_more(self) -> None:
        assert on_core(lambda: torch.kaiser_window(5).untyped_storage().nbytes()) == 24

    def test_beta_out_of_range(self) -> None:
        check(torch.kaiser_window, 6, True, 200.0)
        check(torch.kaiser_window, 6, True, float("nan"))

    def test_out(self) -> None:
        check(aten.kaiser_window.out, 5, out=torch.empty(0))
        check(aten.kaiser_window.beta_out, 5, False, 3.0, out=torch.empty(0, dtype=torch.float64))


class TestWeightInt8packMm:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
    @pytest.mark.parametrize(("rows", "columns"), [(2, 16), (1, 1), (0, 16), (2, 0), (3, 15)])
    def test_scales_columns(self, dtype: torch.dtype, rows: int, columns: int) -> None:
        x, weight, scales = _numbers(rows, 32, dtype=dtype), _bytes(columns, 32), _numbers(columns, seed=1, dtype=dtype)
        if dtype is torch.float32:  # whose sums eager rounds in another order: nothing may cancel
            x, weight = x.abs(), weight.bitwise_and(63)
        check(aten._weight_int8pack_mm.default, x, weight, scales)


class TestOlderAminmax:
    @pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.bool])
    def test_is_aminmax(self, dtype: torch.dtype) -> None:
        x = _numbers(3, 4, dtype=dtype)
        check(torch._aminmax, x)
        for dim, keepdim in ((0, False), (1, True), (-1, False)):
            check(torch._aminmax, x, dim, keepdim)
        check(torch._aminmax, x[:0], 1)
        check(torch._aminmax, x[0, 0], 0)
        check(aten._aminmax.out, x, out0=torch.empty(0, dtype=dtype), out1=torch.empty(0, dtype=dtype))


def test_reshape_alias_copy() -> None:
    x = _numbers(3, 4)
    for one in (x, x.t(), x[1:]):
        check(aten._reshape_alias_copy.default, one, [2, 4], [4, 1], exact=True)
        check(aten._reshape_alias_copy.default, one, [2, 2], [1, 4], exact=True)
    check(aten._reshape_alias_copy.out, x, [4, 3], [1, 4], out=torch.empty(0), exact=True)


@pytest.mark.parametrize("training", [False, True])
def test_rrelu_with_noise_out(training: bool) -> None:
    x, noise = _numbers(3, 4), torch.zeros(3, 4)
    with on(CORE):
        out = torch.empty(0)
        assert aten.rrelu_with_noise.out(x, noise, 0.1, 0.4, training, out=out) is out
    if not training:
        assert torch.equal(out, aten.rrelu_with_noise.default(x, torch.zeros(3, 4), 0.1, 0.4, False))
        return
    torch.testing.assert_close(out, x * noise)
    assert ((noise == 1) == (x > 0)).all()
    assert ((noise >= 0.1) & (noise <= 1)).all()


@pytest.mark.full
@pytest.mark.parametrize("options", [{"tol": 0.1}, {"tol": torch.tensor(0.1)}, {"atol": 0.1, "rtol": 0.0}, {}])
def test_matrix_rank_out_in_inference_mode(options: dict[str, Any]) -> None:
    """Eager composes it of ops in C++ that leave `out` unwritten under any mode, unless it arrives whole."""
    x, out = _numbers(3, 4), torch.full((), 77)
    with torch.inference_mode(), on(CORE):
        assert torch.linalg.matrix_rank(x, out=out, **options) is out
    assert out.item() == 3


@pytest.mark.filterwarnings("default")
def test_aminmax_by_its_older_name_warns() -> None:
    for _ in range(3):
        with pytest.warns(UserWarning, match="_aminmax is deprecated as of PyTorch 1.11"):
            assert on_core(lambda: torch._aminmax(torch.arange(3.0))) == (torch.tensor(0.0), torch.tensor(2.0))
