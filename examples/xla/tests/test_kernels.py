"""Kernels against eager: torch's own samples of each, and the conformance suite on some."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import xla
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils._pytree import tree_map
from xla.kernels import FAMILIES

import eagerdecomp as ed
from eagerdecomp.conformance import run_conformance
from eagerdecomp.frontends.installation import Installation


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[Installation]:
    with ed.install(xla.backend) as handle:
        yield handle


def test_every_op_of_the_set_has_a_kernel() -> None:
    lacking = [op for op in xla.backend.ops if op not in xla.backend.kernels and not op._schema.name.startswith("aten::sym_")]
    composed = [op for op in lacking if not torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "CompositeExplicitAutograd")]
    assert [str(op) for op in composed if str(op) not in ("aten._conj.default", "aten._neg_view.default")] == []
    assert sum(map(len, FAMILIES.values())) == 159


#: A few samples of each family: those that found most faults while the kernels were written.
NAMES = [
    *("add", "div", "pow", "clamp", "where", "nn.functional.gelu", "sum", "var", "sort", "topk", "cumsum", "argmax", "cat"),
    *("gather", "index_put", "scatter_reduce", "masked_select", "nn.functional.embedding", "addmm", "nn.functional.conv2d"),
    *("nn.functional.conv_transpose2d", "fft.rfft", "nn.functional.max_pool2d", "nn.functional.avg_pool2d", "nn.functional.pad"),
    *("nn.functional.layer_norm", "nn.functional.group_norm", "nn.functional.batch_norm", "nn.functional.grid_sample"),
]


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_what_eager_makes_of_them(name: str) -> None:
    info = next(one for one in op_db if one.name == name)
    for sample in list(info.sample_inputs("cpu", torch.float32))[:3]:
        want = info.op(sample.input, *sample.args, **sample.kwargs)
        got = info.op(there(sample.input), *there(list(sample.args)), **there(sample.kwargs))
        torch.testing.assert_close(home(got), want, equal_nan=True)


def there(value: Any) -> Any:
    return tree_map(lambda one: one.detach().to("jax") if isinstance(one, torch.Tensor) else one, value)


def home(value: Any) -> Any:
    return tree_map(lambda one: one.detach().cpu() if isinstance(one, torch.Tensor) else one, value)


@pytest.mark.parametrize("source", [-2.0, torch.arange(6.0).view(3, 1, 2)], ids=["number", "tensor"])
def test_one_element_of_each_row_is_put(source: Any) -> None:
    """Where the index has one element along its dimension, a scatter is a selection."""
    x, index = torch.randn(3, 4, 2), torch.tensor([0, 3, 2, 1, 3, 3]).view(3, 1, 2)
    want = x.scatter(1, index, source)
    assert torch.equal(there(x).scatter(1, there(index), there(source)).cpu(), want)
    with pytest.raises(RuntimeError, match="out of range"):
        there(x).scatter(1, there(index) + 1, there(source)).cpu()


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("last", ["input", "weight", "both", "neither"])
def test_a_convolution_has_the_memory_format_of_eager(last: str, transposed: bool) -> None:
    x, weight = torch.randn(2, 4, 6, 6), torch.randn(4, 2, 3, 3)
    x = x.to(memory_format=torch.channels_last) if last in ("input", "both") else x
    weight = weight.to(memory_format=torch.channels_last) if last in ("weight", "both") else weight
    convolve = torch.nn.functional.conv_transpose2d if transposed else torch.nn.functional.conv2d
    want, got = convolve(x, weight, groups=2), convolve(there(x), there(weight), groups=2)
    assert got.stride() == want.stride()
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize(
    ("call", "dtype"),
    [
        *[
            (call, dtype)
            for call in (
                lambda x: x.softmax(0),
                lambda x: x.log_softmax(0),
                torch.nn.functional.gelu,
                lambda x: torch.nn.functional.layer_norm(x, (2,)),
                lambda x: torch.nn.functional.group_norm(x[None], 1),
                lambda x: torch.nn.functional.batch_norm(x, None, None, training=True),
            )
            for dtype in (torch.int64, torch.bool, torch.complex64)
        ],
        *[(call, torch.complex64) for call in (torch.relu, torch.floor, torch.sign, lambda x: x < x, lambda x: torch.atan2(x, x))],
    ],
)
def test_dtypes_that_eager_refuses_are_refused(call: Any, dtype: torch.dtype) -> None:
    x = torch.tensor([[0, 3], [1, 2]]).to(dtype)
    for device in ("cpu", "jax"):
        with pytest.raises(RuntimeError):  # NotImplementedError, but of torch's Meta kernel for bools
            call(x.to(device))


@pytest.mark.parametrize("shape", [(1, 2, 4), (3,), (5, 2, 4), (3, 4)], ids=str)
def test_addmm_refuses_what_does_not_broadcast_to_the_product(shape: tuple[int, ...]) -> None:
    for device in ("cpu", "jax"):
        with pytest.raises((RuntimeError, ValueError)):
            torch.addmm(torch.ones(shape, device=device), torch.ones(2, 3, device=device), torch.ones(3, 4, device=device)).cpu()


@pytest.mark.parametrize("reduce", [torch.amax, torch.amin, torch.max, lambda x: torch.aminmax(x).max], ids=str)
def test_an_extreme_of_many_numbers_is_nan_if_one_is(reduce: Any) -> None:
    x = torch.arange(5000.0)
    x[3000], x[10] = math.nan, math.inf
    assert reduce(x.to("jax")).cpu().isnan()


PARTS = (0.0, -0.0, 1.0, -2.5, math.inf, -math.inf, math.nan)
GRID = torch.tensor([complex(real, imag) for real in PARTS for imag in PARTS])
FINITE = GRID[torch.isfinite(GRID)]


def parts(x: torch.Tensor) -> torch.Tensor:
    """Return the parts of complex numbers, without the sign of NaN."""
    return torch.view_as_real(x.cpu()).nan_to_num(nan=math.nan, posinf=math.inf, neginf=-math.inf)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("divisor", ["numbers", 0.0, -0.0, math.inf, complex(-0.0, math.nan)])
def test_complex_quotients_of_special_numbers_are_eagers(divisor: Any, dtype: torch.dtype) -> None:
    x, y = GRID.to(dtype)[:, None], GRID.to(dtype) if divisor == "numbers" else divisor
    want, got = parts(x / y), parts(there(x) / there(y))
    torch.testing.assert_close(got, want, equal_nan=True)
    same = want.isnan() | (want.signbit() == got.signbit())
    assert bool((same | (want.abs() < 1e-6)).all())  # eager's vectors round what cancels to zero in single numbers


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128])
@pytest.mark.parametrize("name", ["sqrt", "rsqrt", "asin", "acos", "asinh", "acosh", "reciprocal", "log", "log2", "log10", "sinh"])
def test_the_sign_of_zero_says_on_which_side_of_a_branch_cut_a_number_is(name: str, dtype: torch.dtype) -> None:
    x = FINITE.to(dtype)
    torch.testing.assert_close(parts(getattr(there(x), name)()), parts(getattr(x, name)()), equal_nan=True)


@pytest.mark.parametrize("exponent", [*FINITE[::3].tolist(), 0, 1, 2, 3, 0.5, -0.5, -1, -2, "numbers"])
def test_complex_powers_of_zero_and_others_are_eagers(exponent: Any) -> None:
    x = FINITE[:, None]
    y = FINITE if exponent == "numbers" else exponent
    torch.testing.assert_close(parts(there(x) ** there(y)), parts(x**y), equal_nan=True)
    if exponent != "numbers":
        torch.testing.assert_close(parts(y ** there(x)), parts(y**x), equal_nan=True)


@pytest.mark.parametrize("name", ["sinh", "cosh", "log10"])
def test_small_parts_of_complex_numbers_are_not_rounded_away(name: str) -> None:
    x = torch.tensor(
        [1e-3, -1.3e-3 + 7e-4j, 1e-6j - 30, 1e-3 + 3j, 0.04196921151046692 - 0.7726792307171368j], dtype=torch.complex128
    )
    for dtype, precision in ((torch.complex64, 5e-7), (torch.complex128, 1e-15)):
        got = parts(getattr(there(x.to(dtype)), name)())
        torch.testing.assert_close(got, parts(getattr(x.to(dtype), name)()), rtol=precision, atol=0)


@pytest.mark.parametrize("base", [2, 1, 2.5])
def test_powers_of_a_number_are_contiguous_as_eagers(base: float) -> None:
    x = torch.ones(2, 3).t()
    assert (base**x).is_contiguous()
    assert (base ** there(x)).is_contiguous()


def test_products_of_the_smallest_numbers_are_not_flushed_on_the_way() -> None:
    x = torch.tensor([-torch.finfo(torch.float32).tiny])
    want = torch.ops.aten.elu(x, 0.5, 3.0)
    assert want
    assert torch.equal(torch.ops.aten.elu(there(x), 0.5, 3.0).cpu(), want)


@pytest.mark.parametrize("bits", [torch.int16, torch.int32, torch.int64], ids=["bfloat16", "float32", "float64"])
def test_subnormal_numbers_are_zero_as_bools_and_have_a_root(bits: torch.dtype) -> None:
    dtype = {torch.int16: torch.bfloat16, torch.int32: torch.float32, torch.int64: torch.float64}[bits]
    x = torch.tensor([1, 5, 100], dtype=bits).view(dtype)
    on_device = there(x)
    for found in (on_device.bool(), on_device.logical_or(on_device), on_device.any(), ~on_device.logical_not()):
        assert not found.any().cpu()
    if dtype is not torch.bfloat16:  # eager converts it to float32 first
        torch.testing.assert_close(on_device.sqrt().cpu(), x.sqrt(), rtol=1e-6, atol=0)
        torch.testing.assert_close((on_device**0.5).cpu(), x.sqrt(), rtol=1e-6, atol=0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int32])
@pytest.mark.parametrize("ends", [(-(2**62), 5 - 2**62, 1), (2**62, 2**62 - 2000, -1), (0, 300, 7)])
def test_ranges_have_the_lengths_of_eagers(ends: tuple[int, int, int], dtype: torch.dtype) -> None:
    want, got = torch.arange(*ends, dtype=dtype), torch.arange(*ends, dtype=dtype, device="jax")
    torch.testing.assert_close(got.cpu(), want)


@pytest.mark.parametrize("train", [None, True, False])
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0])
def test_dropout_of_an_expanded_tensor_is_dense(p: float, train: bool | None) -> None:
    x = torch.ones(3, 1).expand(3, 2)
    want, got = torch.native_dropout(x, p, train), torch.native_dropout(there(x), p, train)
    assert [one.stride() for one in got] == [one.stride() for one in want]
    with pytest.raises(RuntimeError, match="can't be cast"):
        torch.native_dropout(there(torch.ones(2, dtype=torch.int64)), p, True)


def test_a_condition_may_be_bytes() -> None:
    condition, x = torch.tensor([[2, 0], [1, 3]], dtype=torch.uint8), torch.randn(2, 2)
    with pytest.warns(UserWarning, match="uint8"):
        want = torch.where(condition, x, 0.5)
    assert torch.equal(torch.where(there(condition), there(x), 0.5).cpu(), want)


@pytest.mark.parametrize(
    ("dtype", "most"), [(torch.uint8, 256), (torch.int8, 128), (torch.float16, 2049), (torch.bfloat16, math.inf)], ids=str
)
def test_a_permutation_may_have_as_many_numbers_as_the_dtype(dtype: torch.dtype, most: float) -> None:
    count = int(min(most, 70000))
    for device in ("cpu", "jax"):
        found = torch.randperm(count, dtype=dtype, device=device)
        assert torch.equal(found.cpu().double().sort().values, torch.arange(count).to(dtype).double().sort().values)
        if math.isfinite(most):
            with pytest.raises(RuntimeError):
                torch.randperm(count + 1, dtype=dtype, device=device)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("mode", [None, "trunc", "floor"])
def test_a_divisor_whose_reciprocal_is_subnormal_divides(mode: str | None, dtype: torch.dtype) -> None:
    most = torch.finfo(dtype).max
    x = torch.tensor([[most], [most / 8], [-most], [1.0], [0.0], [math.inf], [math.nan]], dtype=dtype)
    for y in (torch.tensor([[most]], dtype=dtype), -most / 2, most / 8, torch.tensor(math.inf), 0.0, torch.tensor([3.0, most / 4])):
        want, got = torch.div(x, y, rounding_mode=mode), torch.div(there(x), there(y), rounding_mode=mode)
        torch.testing.assert_close(got.cpu(), want, equal_nan=True)
    row = torch.tensor([[most, 1.0, most / 2]], dtype=dtype)
    torch.testing.assert_close((there(x[:2]) / there(row)).cpu(), x[:2] / row)


def test_the_conformance_suite_passes() -> None:
    """XLA flushes subnormal numbers, so eager does too here. `python -m xla.conformance` asks every kernel."""
    torch.set_flush_denormal(True)
    try:
        report = run_conformance(xla.checked, ops=["aten.sigmoid", "aten.native_layer_norm"], profile="quick", isolate=False)
    finally:
        torch.set_flush_denormal(False)
    assert [str(one.op) for one in report.results if one.state != "right"] == []
