"""Ops on tensors in coordinates, against eager: indices, values, flags and errors, on dense kernels alone."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from on_dense_kernels import check_sparse, on_dense_kernels
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = (
    *(torch.float32, torch.float64, torch.bfloat16, torch.float16),
    *(torch.complex64, torch.complex128, torch.int64, torch.int32, torch.bool),
)

INDICES = torch.tensor([[1, 0, 1, 1], [2, 1, 0, 2]])


def twice(dtype: torch.dtype = torch.float32) -> Tensor:
    """A matrix in which one index occurs twice."""
    return torch.sparse_coo_tensor(INDICES, torch.tensor([3.0, 4, 5, 6]).to(dtype), (2, 3))


def once(dtype: torch.dtype = torch.float32) -> Tensor:
    return twice(dtype).coalesce()


def hybrid() -> Tensor:
    """One sparse dimension, one dense."""
    return torch.sparse_coo_tensor(INDICES[:1], torch.arange(8.0).view(4, 2), (2, 2))


def nothing(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.sparse_coo_tensor(size=(2, 3), dtype=dtype)


def scalar() -> Tensor:
    return torch.sparse_coo_tensor(torch.empty(0, 2, dtype=torch.int64), torch.tensor([1.0, 2.0]), ())


def dense(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(1.0, 7).view(2, 3).to(dtype)


#: What is done with a tensor of 2 by 3, of any dtype.
OF_ANY: dict[str, Callable[[Tensor], Any]] = {
    "coalesce": lambda s: s.coalesce(),
    "parts": lambda s: (s._indices(), s._values(), s._nnz(), s.sparse_dim(), s.dense_dim(), s.is_coalesced()),
    "to_dense": lambda s: s.to_dense(),
    "clone": lambda s: s.clone(),
    "detach": lambda s: s.detach(),
    "deepcopy": lambda s: copy.deepcopy(s),
    "to another dtype": lambda s: s.to(torch.complex128),
    "zero_": lambda s: s.clone().zero_(),
    "zeros_like": lambda s: torch.zeros_like(s),
    "empty_like": lambda s: torch.empty_like(s),
    "copy_": lambda s: nothing(s.dtype).copy_(s),
    "t": lambda s: s.t(),
    "transpose": lambda s: s.transpose(1, 0),
    "permute": lambda s: s.permute(-1, 0),
    "unsqueeze in front": lambda s: s.unsqueeze(0),
    "unsqueeze behind": lambda s: s.unsqueeze(-1),
    "select": lambda s: s[1],
    "select a column": lambda s: s.select(1, -1),
    "narrow_copy": lambda s: s.narrow_copy(1, 1, 2),
    "index_select": lambda s: s.index_select(0, torch.tensor([1, 1, 0])),
    "index_select columns": lambda s: s.index_select(1, torch.tensor([2, 0])),
    "index_select nothing": lambda s: s.index_select(1, torch.tensor([], dtype=torch.int64)),
    "cat": lambda s: torch.cat([s, s, s]),
    "cat columns": lambda s: torch.cat([s, nothing(s.dtype), s], 1),
    "plus itself": lambda s: s + s,
    "plus nothing": lambda s: s + nothing(s.dtype),
    "nothing plus": lambda s: nothing(s.dtype) + s,
    "minus itself": lambda s: s - s,
    "times alpha": lambda s: torch.add(s, s, alpha=3),
    "plus a wider": lambda s: s + s.to(torch.complex128),
    "to a dense": lambda s: dense(s.dtype) + s,
    "to a dense with alpha": lambda s: torch.add(dense(s.dtype), s, alpha=2),
    "to a dense in place": lambda s: dense(s.dtype).add_(s),
    "from a dense": lambda s: dense(s.dtype) - s,
    "in place": lambda s: s.clone().add_(s),
    "times a number": lambda s: s * 2,
    "times a float": lambda s: s * 2.5,
    "times a tensor of none": lambda s: s * torch.tensor(2),
    "times in place": lambda s: s.clone().mul_(2),
    "times a dense": lambda s: s * dense(s.dtype),
    "dense times": lambda s: dense(s.dtype) * s,
    "times a row": lambda s: s * dense(s.dtype)[0],
    "times a column": lambda s: s * dense(s.dtype)[:, :1],
    "times a coalesced": lambda s: s * once(s.dtype),
    "divided": lambda s: s / 2,
    "divided down": lambda s: torch.div(s, 2, rounding_mode="floor"),
    "divided in place": lambda s: s.clone().div_(2),
    "divided down in place": lambda s: (s.clone().div_(2, rounding_mode="floor"), s.clone().div_(-2, rounding_mode="trunc")),
    "floor-divided in place": lambda s: s.clone().floor_divide_(torch.tensor(2)),
    "by a matrix": lambda s: torch.mm(s, dense(s.dtype).t()),
    "sparse.mm": lambda s: torch.sparse.mm(s, dense(s.dtype).t()),
    "by a sparse one": lambda s: torch.sparse.mm(s, s.t()),
    "by a vector": lambda s: s @ dense(s.dtype)[0],
    "a matrix by": lambda s: dense(s.dtype) @ s.t(),
    "addmm": lambda s: torch.addmm(torch.ones(2, 2, dtype=s.dtype), s, dense(s.dtype).t(), beta=2, alpha=3),
    "sparse.addmm": lambda s: torch.sparse.addmm(torch.ones(2, 2, dtype=s.dtype), s, dense(s.dtype).t()),
    "bmm": lambda s: torch.bmm(s.unsqueeze(0), dense(s.dtype).t()[None]),
    "hspmm": lambda s: torch.hspmm(s, dense(s.dtype).t()),
    "smm": lambda s: torch.smm(s, dense(s.dtype).t()),
    "sspaddmm": lambda s: torch.sspaddmm(s.t()[:2].t() if s.dim() == 1 else s, s @ s.t() if s.dim() == 1 else s, dense(s.dtype)),
    "sparse.sum": lambda s: torch.sparse.sum(s),
    "sparse.sum of rows": lambda s: torch.sparse.sum(s, 0),
    "sparse.sum of all": lambda s: torch.sparse.sum(s, (0, 1)),
    "sparse.sum as another": lambda s: torch.sparse.sum(s, 1, dtype=torch.complex128),
    "sum": lambda s: s.sum(),
    "sum of rows": lambda s: s.sum(0, keepdim=True),
    "any": lambda s: s.any(),
    "norm": lambda s: s.norm(),
    "norm of ones": lambda s: s.norm(1),
    "sparse_mask": lambda s: dense(s.dtype).sparse_mask(s),
    "sparse_mask of sparse": lambda s: s.sparse_mask(torch.sparse_coo_tensor([[0, 1], [0, 2]], [1.0, 1], (2, 3)).coalesce()),
    "softmax": lambda s: torch.sparse.softmax(s, 1),
    "log_softmax": lambda s: torch.sparse.log_softmax(s, 0),
    "softmax in float64": lambda s: torch.sparse.softmax(s, 1, dtype=torch.float64),
    "neg": lambda s: -s,
    "neg_": lambda s: s.clone().neg_(),
    "sqrt": lambda s: s.sqrt(),
    "sqrt_": lambda s: s.clone().sqrt_(),
    "abs": lambda s: s.abs(),
    "sign": lambda s: s.sign(),
    "isnan": lambda s: s.isnan(),
    "relu": lambda s: s.relu(),
    "pow": lambda s: s.pow(2),
    "pow to zero": lambda s: s.pow(0),
    "add out": lambda s: torch.add(s, s, out=nothing(s.dtype)),
    "mul out": lambda s: torch.mul(s, 2, out=nothing(s.dtype)),
    "mm out": lambda s: torch.mm(s, dense(s.dtype).t(), out=torch.empty(0, dtype=s.dtype)),
}


@pytest.mark.parametrize("name", OF_ANY)
def test_an_op_is_eagers_whatever_holds_how_often(name: str) -> None:
    for made in (twice, once, nothing):
        check_sparse(lambda: OF_ANY[name](made()))  # noqa: B023 - called at once


@pytest.mark.full
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", OF_ANY)
def test_an_op_is_eagers_in_each_dtype(name: str, dtype: torch.dtype) -> None:
    for made in (twice, once):
        check_sparse(lambda: OF_ANY[name](made(dtype)))  # noqa: B023 - called at once


OTHERS: dict[str, Callable[[], Any]] = {
    "made": lambda: torch.sparse_coo_tensor(INDICES, torch.ones(4), (2, 3)),
    "made without a size": lambda: torch.sparse_coo_tensor(INDICES, torch.ones(4)),
    "made too small": lambda: torch.sparse_coo_tensor(INDICES, torch.ones(4), (1, 1), check_invariants=True),
    "made of nothing": lambda: torch.zeros(2, 3, layout=torch.sparse_coo),
    "to_sparse": lambda: torch.tensor([[0, 1.0], [float("nan"), 0]]).to_sparse(),
    "to_sparse rows": lambda: torch.tensor([[0, 1.0], [0, 0]]).to_sparse(1),
    "to_sparse with dense_dim": lambda: torch.arange(24.0).view(2, 3, 4).to_sparse(dense_dim=1),
    "to_sparse zeros": lambda: torch.zeros(2, 3).to_sparse(),
    "to_sparse no elements": lambda: torch.zeros(0, 3).to_sparse(),
    "to_sparse bools": lambda: torch.tensor([True, False]).to_sparse(),
    "to_sparse of none": lambda: torch.tensor(3.0).to_sparse(),
    "to_sparse of none, zero": lambda: torch.tensor(0.0).to_sparse(),
    "to_sparse too deep": lambda: dense().to_sparse(5),
    "to_sparse of sparse": lambda: twice().to_sparse(),
    "to_sparse of sparse, another": lambda: twice().to_sparse(1),
    "to_dense of hybrid": lambda: hybrid().to_dense(),
    "to_dense of none": lambda: scalar().to_dense(),
    "to_dense as another": lambda: twice().to_dense(torch.float64),
    "coalesce hybrid": lambda: hybrid().coalesce(),
    "coalesce of none": lambda: scalar().coalesce(),
    "hybrid plus": lambda: hybrid() + hybrid(),
    "hybrid to a dense": lambda: torch.ones(2, 2) + hybrid(),
    "hybrid times a dense": lambda: hybrid() * torch.tensor([[1.0, 2], [3, 4]]),
    "hybrid times a row": lambda: hybrid() * torch.tensor([1.0, 2]),
    "hybrid sum": lambda: torch.sparse.sum(hybrid(), 1),
    "hybrid sum of rows": lambda: torch.sparse.sum(hybrid(), 0),
    "hybrid softmax": lambda: torch.sparse.softmax(hybrid(), 1),
    "hybrid softmax of rows": lambda: torch.sparse.softmax(hybrid(), 0),
    "hybrid select": lambda: hybrid().select(1, 1),
    "hybrid select to dense": lambda: hybrid().select(0, 1),
    "hybrid cat": lambda: torch.cat([hybrid(), hybrid()], 1),
    "hybrid index_select": lambda: hybrid().index_select(1, torch.tensor([1])),
    "hybrid transpose": lambda: hybrid().transpose(0, 1),
    "hybrid unsqueeze": lambda: hybrid().unsqueeze(2),
    "hybrid mask": lambda: torch.ones(2, 2).sparse_mask(hybrid()),
    "zeros into another": lambda: torch.zeros(2, 3, 4, out=once(torch.float64)),
    "moved and narrowed": lambda: [
        (
            one.t(),
            one.transpose(1, 1),
            one.permute(1, 0),
            one.permute(0, 1),
            one.permute(-2, -1),
            one.narrow_copy(0, 0, 1),
            one.narrow_copy(1, 0, 2),
        )
        for one in (once(), twice(), once().narrow_copy(0, 0, 1), torch.sparse_coo_tensor([[1], [2]], [3.0], (2, 3)))
    ],
    "hybrid narrow": lambda: hybrid().narrow_copy(1, 0, 1),
    "hybrid gathered": lambda: hybrid().index_select(0, torch.tensor([1, 0, 1])),
    "broadcast": lambda: torch._sparse_broadcast_to(once(), (2, 2, 3)),
    "times more dimensions": lambda: once() * torch.ones(2, 2, 3),
    "spdiags": lambda: torch.sparse.spdiags(dense(), torch.tensor([-1, 1]), (2, 4)),
    "spdiags of an offset twice": lambda: torch.sparse.spdiags(dense(), torch.tensor([1, 1]), (2, 4)),
    "copied from a smaller one": lambda: once().copy_(once().narrow_copy(0, 0, 1)),
    "copied from one of fewer dimensions": lambda: once().copy_(hybrid()),
    "no elements, a clone": lambda: torch.sparse_coo_tensor((2, 3))._coalesced_(False).clone(),
    "narrowed along a dimension that it lacks": lambda: once().narrow_copy(10, 0, 1),
    "at the indices of one": lambda: [
        torch.ops.aten._sparse_mask_projection(one, mask, again)
        for mask in (twice(), once())
        for one in (twice(), once())
        for again in (False, True)
    ],
    "of other sizes": lambda: once() + hybrid(),
    "plus a dense": lambda: once() + dense(),
    "plus a number": lambda: once() + 1,
    "number minus": lambda: 1 - once(),
    "divided by a matrix": lambda: once() / dense(),
    "into integers": lambda: dense().long().add_(twice()),
    "times itself": lambda: once() * once(),
    "mm of wrong sizes": lambda: torch.mm(once(), dense()),
    "mm of two dtypes": lambda: torch.mm(once(), dense(torch.float64).t()),
    "index_select too far": lambda: once().index_select(0, torch.tensor([5])),
    "norm of a dimension": lambda: once().norm(2, 0),
    "mask of another size": lambda: torch.ones(3, 2).sparse_mask(once()),
    "view": lambda: once().view(3, 2),
    "exp": lambda: once().exp(),
    "silu": lambda: torch.nn.functional.silu(once()),
    "max": lambda: once().max(),
    "addcmul": lambda: torch.addcmul(once(), once(), once()),
    "vector_norm": lambda: torch.linalg.vector_norm(once()),
    "copied into a dense": lambda: torch.ones(2, 3).copy_(once()),
    "real": lambda: (once() * 1j).real,
    "conj": lambda: (once() * 1j).conj(),
    "values of uncoalesced": lambda: twice().values(),
    "values and indices": lambda: (once().values(), once().indices()),
    "resized": lambda: twice().sparse_resize_((3, 3), 2, 0),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_is_eagers(name: str) -> None:
    check_sparse(OTHERS[name])


def test_sums_of_what_is_not_coalesced_are_eagers_once_coalesced() -> None:
    """Eager's CPU kernel orders their elements by a merge of its own; ours are end to end, as CUDA's."""
    other = torch.sparse_coo_tensor([[0, 0, 1], [2, 1, 0]], [1.0, 2, 3], (2, 3))
    check_sparse(lambda: (twice() + other).coalesce())
    assert on_dense_kernels(lambda: twice() + other)._nnz() == 7


def test_what_is_written_in_place_stays_the_same_object() -> None:
    s = twice()
    assert on_dense_kernels(lambda: s.mul_(2)) is s
    assert on_dense_kernels(lambda: s.add_(s)) is s
    assert s.to_dense().tolist() == (twice() * 4).to_dense().tolist()


def test_a_sparse_tensor_made_before_the_mode_takes_the_route_too() -> None:
    weights = [once(), dense().t()]
    got = on_dense_kernels(lambda: torch.mm(*weights))
    assert got.tolist() == torch.mm(*weights).tolist()


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda: torch.sparse_coo_tensor(INDICES, torch.ones(4), (2, 3)), id="made"),
        pytest.param(lambda: torch.sparse_coo_tensor(INDICES, torch.ones(4)), id="made without a size"),
        pytest.param(lambda: dense().to_sparse(), id="to_sparse"),
        pytest.param(lambda: dense().to_sparse_csr() @ torch.ones(3, 2), id="csr"),
        pytest.param(lambda: torch.sparse.mm(twice(), dense().t()), id="sparse.mm"),
        pytest.param(lambda: torch.sparse.sum(twice()), id="sum"),
    ],
)
def test_in_inference_mode_where_composites_are_not_decomposed(run: Callable[[], Any]) -> None:
    with torch.inference_mode():
        check_sparse(run, times=3)


def matrices(draw: st.DrawFn) -> tuple[Tensor, Tensor]:
    """A sparse matrix with duplicates, and a dense one that it multiplies."""
    height, width, count = draw(st.integers(1, 4)), draw(st.integers(1, 4)), draw(st.integers(0, 8))
    rows = draw(st.lists(st.integers(0, height - 1), min_size=count, max_size=count))
    columns = draw(st.lists(st.integers(0, width - 1), min_size=count, max_size=count))
    values = draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count))
    dtype = draw(st.sampled_from([torch.float32, torch.float64, torch.complex64, torch.int64]))
    made = torch.sparse_coo_tensor(torch.tensor([rows, columns]).view(2, -1), torch.tensor(values).to(dtype), (height, width))
    return made, torch.arange(width * 3).view(width, 3).to(dtype)


@pytest.mark.parametrize(
    "run",
    [
        pytest.param(lambda s, d: s.coalesce(), id="coalesce"),
        pytest.param(lambda s, d: s.to_dense(), id="to_dense"),
        pytest.param(lambda s, d: s.to_dense().to_sparse(), id="to_sparse"),
        pytest.param(lambda s, d: torch.mm(s, d), id="mm"),
        pytest.param(lambda s, d: s.index_select(1, torch.arange(s.shape[1]).flip(0)), id="index_select"),
        pytest.param(lambda s, d: s.coalesce() + s.coalesce() * 2, id="add"),
        pytest.param(lambda s, d: s.coalesce() * s.coalesce().abs().coalesce(), id="mul"),
        pytest.param(lambda s, d: torch.sparse.sum(s, 0), id="sum"),
        pytest.param(lambda s, d: s.to_dense().sparse_mask(s.coalesce()), id="mask"),
        pytest.param(lambda s, d: torch.cat([s, s.coalesce()], 1), id="cat"),
    ],
)
def test_any_matrix_is_treated_as_by_eager(run: Callable[[Tensor, Tensor], Any]) -> None:
    @settings(max_examples=12, deadline=None, database=None)
    @given(st.composite(matrices)())
    def holds(made: tuple[Tensor, Tensor]) -> None:
        check_sparse(lambda: run(*made), times=1)

    holds()
