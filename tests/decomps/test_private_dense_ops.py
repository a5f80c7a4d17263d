"""Private dense ops that no public function names, against eager."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, gradient, on, on_core
from torch import Tensor

aten = torch.ops.aten


def _numbers(*shape: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed)).mul(3).to(dtype)


def _bytes(*shape: int, seed: int = 0, dtype: torch.dtype = torch.int8) -> Tensor:
    bounds = torch.iinfo(dtype)
    return torch.randint(bounds.min, bounds.max + 1, shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


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
