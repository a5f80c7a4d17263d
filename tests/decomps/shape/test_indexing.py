"""Masks, indices and counts on Core ATen: eager's picks, writes, counts and refusals."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, check, kernel_calls
from torch import Tensor

import eagerdecomp as ed

WITHOUT_INDEX_SELECT = {
    "core but for it": ed.core_aten() - ["aten::index_select", "aten::embedding"],
    "prims": ed.prims(),
    "tiny": ed.tiny(),
}
DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool, torch.complex64]


@pytest.mark.parametrize("dtype", DTYPES)
def test_masked_select(dtype: torch.dtype) -> None:
    x = torch.arange(12).view(3, 4).to(dtype)
    mask = torch.arange(12).view(3, 4) % 3 == 0
    check(torch.masked_select, x, mask)
    check(torch.masked_select, x.t(), mask.t())
    check(torch.masked_select, x, mask[0])
    check(torch.masked_select, x[:, :1], mask[0])
    check(torch.masked_select, x[0, 0], torch.tensor(True))
    check(torch.masked_select, x[0, 0], torch.tensor(False))
    check(torch.masked_select, x[:0], mask[:0])


def test_nonzero_static_pads_and_cuts() -> None:
    for x in (torch.tensor([[0, 1], [2, 0]]), torch.zeros(3), torch.tensor(5), torch.zeros(0, 2)):
        for size in (0, 1, 2, 5):
            check(torch.nonzero_static, x, size=size, fill_value=-7)
    check(torch.nonzero_static, torch.ones(3), size=-1)


@pytest.mark.parametrize("accumulate", [False, True])
def test_put(accumulate: bool) -> None:
    index, source = torch.tensor([[1, -1], [3, 0]]), torch.tensor([[1.0, 2.0], [3.0, 4.0]])
    for x in (torch.zeros(6), torch.zeros(2, 3).t(), torch.zeros(4, 6)[::2, ::2], torch.zeros(2, 3, 4).permute(2, 0, 1)):
        check(lambda x, i, s: x.put(i, s, accumulate), x, index, source)
        check(lambda x, i, s: x.put_(i, s, accumulate), x, index, source)
    check(lambda x, i, s: x.put(i, s, accumulate), torch.zeros(4), index.int(), source)
    check(lambda x, i, s: x.put(i, s, accumulate), torch.zeros(4), index, source.double())
    check(lambda x, i, s: x.put(i, s, accumulate), torch.zeros(4), index[0], source)
    check(lambda x, i, s: x.put(i, s, accumulate), torch.zeros(4), index + 9, source)
    check(lambda x, i, s: x.put(i, s, accumulate), torch.zeros(0), index, source)


@pytest.mark.parametrize("reduce", ["prod", "mean", "amax", "amin"])
@pytest.mark.parametrize("include_self", [False, True])
def test_index_reduce(reduce: str, include_self: bool) -> None:
    torch.manual_seed(0)

    def run(x: Tensor, dim: int, index: Tensor, source: Tensor) -> Any:
        return x.index_reduce(dim, index, source, reduce, include_self=include_self)

    index = torch.tensor([2, 0, 2, 2])
    for dtype in (torch.float32, torch.float64, torch.int64, torch.int32):
        check(run, (torch.randn(3, 5) * 9).to(dtype), 0, index, (torch.randn(4, 5) * 9).to(dtype))
        check(run, (torch.randn(5, 3) * 9).to(dtype), 1, index.int(), (torch.randn(5, 4) * 9).to(dtype))
    check(run, torch.randn(5, 3).t(), 0, index, torch.randn(5, 4).t(), strides=False)
    check(run, torch.tensor(2.0), 0, torch.tensor([0]), torch.tensor(3.0))
    check(run, torch.randn(3), 0, torch.zeros(0, dtype=torch.int64), torch.zeros(0))


@pytest.mark.parametrize("columns", [0, 1])
def test_index_reduce_to_means_of_bools(columns: int) -> None:
    index, source = torch.zeros(columns, dtype=torch.int64), torch.zeros(2, columns).bool()
    for include_self in (True, False):
        for x in (torch.ones(2, 2).bool(), torch.ones(3, 2).bool().t()):
            check(lambda x: x.index_reduce(1, index, source, "mean", include_self=include_self), x)  # noqa: B023


@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_repeat_interleave(dtype: torch.dtype) -> None:
    for repeats in ([2, 0, 0, 3], [0, 0, 1], [4], [0], [], [0, 2, 0]):
        check(torch.repeat_interleave, torch.tensor(repeats, dtype=dtype))
    counts = torch.tensor([2, 0, 3], dtype=dtype)
    check(torch.repeat_interleave, counts, output_size=5)
    check(lambda x, c: x.repeat_interleave(c, 0), torch.randn(3, 4), counts)
    check(torch.repeat_interleave, torch.tensor([1, -1], dtype=dtype))
    check(torch.repeat_interleave, counts.view(3, 1))
    check(torch.repeat_interleave, torch.tensor([1.0]))


def test_bincount() -> None:
    for dtype in (torch.int64, torch.int32, torch.uint8):
        x = torch.tensor([1, 4, 4, 0, 1, 1]).to(dtype)
        check(torch.bincount, x)
        check(torch.bincount, x, minlength=9)
        for weights in (torch.rand(6), torch.rand(6).double(), torch.rand(6).half(), torch.arange(6)):
            check(torch.bincount, x, weights)
    check(torch.bincount, torch.zeros(0, dtype=torch.int64), minlength=3)
    check(torch.bincount, torch.zeros(0, dtype=torch.int64))
    check(torch.bincount, torch.tensor([1, -1]))
    check(torch.bincount, torch.tensor([[1]]))
    check(torch.bincount, torch.tensor([1.0]))
    check(torch.bincount, torch.tensor([1]), torch.rand(2))
    check(torch.bincount, torch.tensor([1]), minlength=-1)


def test_gradients() -> None:
    def step(x: Tensor) -> Any:
        leaf, source = x.clone().requires_grad_(), torch.ones(2, 4, dtype=torch.float64, requires_grad=True)
        mixed = leaf.masked_select(leaf > 0).square().sum() + leaf.repeat_interleave(torch.tensor([1, 0, 2]), 0).sum()
        mixed = mixed + leaf.index_reduce(0, torch.tensor([0, 2]), source, "amax").square().sum()
        mixed = mixed + leaf.put(torch.tensor([0, 5]), source[0, :2]).square().sum()
        return torch.autograd.grad(mixed, [leaf, source])

    check(step, torch.randn(3, 4, dtype=torch.float64))


@pytest.mark.parametrize("permuted", [False, True])
@pytest.mark.parametrize(("shape", "dim"), [((4, 3), 0), ((4, 3), 1), ((2, 4, 3), -2), ((4,), 0)])
@pytest.mark.parametrize("dtype", DTYPES)
def test_index_add_and_index_copy(dtype: torch.dtype, shape: tuple[int, ...], dim: int, permuted: bool) -> None:
    torch.manual_seed(0)
    x = (torch.randn(shape) * 3).to(dtype)
    size = x.size(dim)
    index = torch.tensor([1, 0, 1, size - 1])
    source = (torch.randn([len(index) if at == dim % len(shape) else n for at, n in enumerate(shape)]) * 3).to(dtype)
    if permuted:
        x, source = (y.transpose(0, -1).contiguous().transpose(0, -1) for y in (x, source))
    check(torch.index_add, x, dim, index, source)
    check(torch.index_add, x, dim, index.int(), source)
    check(torch.index_copy, x, dim, torch.arange(size - 1, -1, -1), x.clone())


@pytest.mark.parametrize("alpha", [1, 3, -0.3])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_index_add_of_one_dimension_rounds_at_each_element(dtype: torch.dtype, alpha: float) -> None:
    torch.manual_seed(0)
    x, index, source = torch.randn(5).to(dtype), torch.randint(0, 5, (500,)), torch.randn(500).to(dtype)
    check(torch.index_add, x, 0, index, source, alpha=alpha, exact=True)
    check(lambda x: x.index_add_(0, index.int(), source, alpha=alpha), x, exact=True)
    check(lambda x: torch.index_add(x, 0, index, source, alpha=alpha, out=torch.empty(0, dtype=dtype)), x, exact=True)
    if alpha == 1:
        check(torch.index_add, x[:, None], 0, index, source[:, None], exact=True)


def test_index_add_of_float16_on_a_set_without_index_put() -> None:
    x, index = torch.tensor([1.0, 2.0], dtype=torch.float16), torch.tensor([1, 1])
    check(torch.index_add, x, 0, index, torch.tensor([2.0, 4.0], dtype=torch.float16), ops=CORE - {"aten.index_put.default"})


@pytest.mark.filterwarnings("ignore:ComplexHalf support")
@pytest.mark.parametrize("shape", [(4, 3), (4,), (2, 4, 3)])
def test_complex_numbers_of_float16_and_bfloat16_are_scattered_by_their_parts(shape: tuple[int, ...]) -> None:
    x = torch.randn(shape, dtype=torch.complex64).to(torch.complex32)
    index, dim = torch.tensor([2, 0]), 1 if len(shape) == 3 else 0
    source = x.narrow(dim, 1, 2).clone()
    check(torch.index_add, x, dim, index, source)
    check(torch.index_add, x, dim, index, source, alpha=2)
    check(torch.index_copy, x, dim - len(shape), index, source)
    check(torch.index_fill, x, dim, index, 1.5 - 2j)


@pytest.mark.parametrize("name", ["index_add_", "index_copy_"])
def test_an_index_below_zero_is_refused_and_nothing_written(name: str) -> None:
    x = torch.arange(12.0).view(3, 4)
    with ed.EagerDecompMode(ed.core_aten()), pytest.raises((RuntimeError, IndexError), match="index -1 is out of bounds"):
        getattr(x, name)(0, torch.tensor([-1]), torch.ones(1, 4))
    assert torch.equal(x, torch.arange(12.0).view(3, 4))


PICKS = {
    "rows": lambda x, at: torch.index_select(x, 0, at),
    "columns": lambda x, at: torch.index_select(x, -1, at),
    "rows by 32 bits": lambda x, at: torch.index_select(x, 0, at.int()),
    "of a row": lambda x, at: torch.index_select(x[0], 0, at),
    "one of a row": lambda x, at: torch.index_select(x[0], 0, at[0]),
    "of a number": lambda x, at: torch.index_select(x[0, 0], 0, at[:1]),
    "two of a number": lambda x, at: torch.index_select(x[0, 0], 0, at),
    "none": lambda x, at: torch.index_select(x, 0, at[:0]),
    "of no rows": lambda x, at: torch.index_select(x[:0], 0, at),
    "of columns as rows": lambda x, at: torch.index_select(x.t(), 0, at),
    "of a third dimension": lambda x, at: torch.index_select(x, 2, at),
    "by a matrix": lambda x, at: torch.index_select(x, 0, at[None]),
    "by floats": lambda x, at: torch.index_select(x, 0, at.float()),
    "a look-up": lambda x, at: torch.nn.functional.embedding(at, x),
}


@pytest.mark.full
@pytest.mark.parametrize("ops", WITHOUT_INDEX_SELECT, ids=list(WITHOUT_INDEX_SELECT))
@pytest.mark.parametrize("name", PICKS)
def test_index_select_gathers_and_rejects_as_eager_on_sets_without_it(name: str, ops: str) -> None:
    x = torch.arange(16.0).view(4, 4)
    for at in ([3, 0], [-1, 2], [-4, 0], [0, 4], [0, 9]):
        check(PICKS[name], x, torch.tensor(at), ops=WITHOUT_INDEX_SELECT[ops], exact=True)


@pytest.mark.full
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("bounds", [(0, 4), (-2, 2), (0.1, 0.7), (-2.3, 1.9), (0, 0), (1, 1), (2**24, 2**24 + 2)])
def test_histc_counts_values_between_its_edges(dtype: torch.dtype, bounds: tuple[float, float]) -> None:
    low, high = bounds if dtype is not torch.float16 or bounds[1] < 65504 else (0, 3)
    torch.manual_seed(0)
    spread = torch.cat([torch.randn(40) * 3, torch.arange(-4.0, 5), torch.tensor([low, high]).float()]).to(dtype)
    for bins in (1, 4, 7, 100):
        check(torch.histc, spread, bins, min=low, max=high, exact=True)
        check(torch.histc, spread[:9].expand(2, 9), bins, min=low, max=high, exact=True)
    check(torch.histc, spread[:0], 3, min=low, max=high)
    check(torch.histc, spread[3], 3, min=low, max=high)
    check(lambda x, out: torch.histc(x, 4, low, high, out=out), spread, torch.empty(4, dtype=dtype))


def test_histc_of_equal_values_and_of_no_numbers() -> None:
    check(torch.histc, torch.ones(3), 4)
    check(torch.histc, torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 0.0, 2.0]), 4, min=0, max=2, exact=True)
    check(torch.histc, torch.tensor([torch.nan, torch.inf, -torch.inf, 1.0, 0.1, 0.6]), 4, min=0.1, max=0.6, exact=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_histc_takes_any_strides(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    for x in (
        torch.rand(5, 6).t(),
        torch.rand(3, 4, 5).permute(2, 0, 1),
        torch.rand(4, 1, 3).expand(4, 2, 3),
        torch.rand(6, 6)[::2],
    ):
        check(torch.histc, x.to(dtype), 10, 0, 1, exact=True)
        check(torch.histc, x.to(dtype), 4, 0.1, 0.7, exact=True)


def test_histc_takes_few_kernels() -> None:
    x = torch.rand(6)
    assert kernel_calls(lambda: torch.histc(x, 4, min=0, max=3)) == 10
