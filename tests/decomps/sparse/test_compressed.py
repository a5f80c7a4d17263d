"""Matrices of compressed rows and columns, against eager: products, conversions and gradients, on dense kernels alone."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from on_dense_kernels import check_sparse, parts_of
from torch import Tensor

import eagerdecomp as ed

pytestmark = pytest.mark.filterwarnings("ignore")

DTYPES = (torch.float32, torch.float64, torch.complex64, torch.int64, torch.bfloat16)


def coo() -> Tensor:
    return torch.sparse_coo_tensor([[0, 1, 1], [2, 0, 1]], [3.0, 4, 5], (2, 3)).coalesce()


def csr() -> Tensor:
    return coo().to_sparse_csr()


def as_layout_of(a: Tensor, values: Tensor) -> Tensor:
    return values.to_sparse(layout=a.layout)


def dense(dtype: torch.dtype = torch.float32) -> Tensor:
    return torch.arange(12.0).view(3, 4).to(dtype)


OF_ANY: dict[str, Callable[[Tensor], Any]] = {
    "times a matrix": lambda a: a @ dense(a.dtype),
    "times a vector": lambda a: a @ dense(a.dtype)[:, 0],
    "addmm": lambda a: torch.addmm(torch.ones(2, 4, dtype=a.dtype), a, dense(a.dtype), beta=2, alpha=3),
    "sparse.mm": lambda a: torch.sparse.mm(a, dense(a.dtype)),
    "transposed, times a matrix": lambda a: a.t() @ torch.ones(2, 2, dtype=a.dtype),
    "of a wrong size": lambda a: a @ torch.ones(2, 2, dtype=a.dtype),
    "to_dense": lambda a: a.to_dense(),
    "to_sparse": lambda a: a.to_sparse(),
    "to_sparse_csr": lambda a: a.to_sparse_csr(),
    "to_sparse_csc": lambda a: a.to_sparse_csc(),
    "a matrix times it": lambda a: dense(a.dtype)[:, :2] @ a,
    "addmm of a matrix times it": lambda a: torch.addmm(torch.ones(3, dtype=a.dtype), dense(a.dtype)[:, :2], a, beta=2, alpha=3),
    "zeros_like": lambda a: torch.zeros_like(a),
    "empty_like": lambda a: torch.empty_like(a).crow_indices(),
    "addmv": lambda a: torch.addmv(torch.ones(2, dtype=a.dtype), a, dense(a.dtype)[:, 0], beta=2, alpha=3),
    "addmm of two, dense": lambda a: torch.addmm(torch.ones(2, dtype=a.dtype), a, as_layout_of(a, dense(a.dtype)), beta=2, alpha=3),
    "plus a dense": lambda a: torch.add(a, dense(a.dtype)[:2, :3], alpha=3),
    "a row": lambda a: a[1],
    "a column": lambda a: a.select(1, -1),
    "an element": lambda a: a[1, 0],
    "means": lambda a: torch.sparse.mm(a, dense(a.dtype), "mean"),
    "t": lambda a: a.t(),
    "transpose": lambda a: a.transpose(0, 1),
    "clone": lambda a: a.clone(),
    "detach": lambda a: a.detach(),
    "to another dtype": lambda a: a.to(torch.complex128),
    "times a number": lambda a: a * 2,
    "neg": lambda a: -a,
    "sum": lambda a: a.sum(),
    "sum to a row": lambda a: a.sum(0, keepdim=True),
    "sum to a column": lambda a: a.sum(-1, keepdim=True, dtype=torch.float64),
    "sum to a matrix of one": lambda a: a.sum((0, 1), keepdim=True),
    "to a dense": lambda a: torch.ones(2, 3, dtype=a.dtype) + a,
    "to a dense in place": lambda a: torch.ones(2, 3, dtype=a.dtype).add_(a),
    "to another": lambda a: torch.add(a, a.clone(), alpha=3),
    "less another": lambda a: a - a.clone(),
    "filled": lambda a: a.fill_(3),
    "filled by another": lambda a: a.copy_(a.clone() * 2),
    "ones_like": torch.ones_like,
    "full_like": lambda a: torch.full_like(a, 3),
    "times another": lambda a: a * torch.tensor([[0.0, 2, 3], [4, 5, 0]], dtype=a.dtype).to_sparse(layout=a.layout),
    "times a dense": lambda a: a * dense(a.dtype)[:2, :3],
    "a dense times it": lambda a: dense(a.dtype)[:2, :3] * a,
    "times coordinates": lambda a: a * coo(),
    "times a dense in place": lambda a: a.mul_(dense(a.dtype)[:2, :3]),
    "times another in place": lambda a: a.mul_(a.clone()),
    "a dense times it in place": lambda a: torch.ones(2, 3, dtype=a.dtype).mul_(a),
    "of diagonals": lambda a: torch.sparse.spdiags(dense(a.dtype), torch.tensor([2, -1, 0]), (4, 5), a.layout),
    "times its transpose": lambda a: (a @ a.t().to_sparse(layout=a.layout)).to_dense(),
}


@pytest.mark.parametrize("name", OF_ANY)
def test_an_op_is_eagers(name: str) -> None:
    for dtype in DTYPES:
        check_sparse(lambda: OF_ANY[name](csr().to(dtype)), times=1)  # noqa: B023 - called at once
    check_sparse(lambda: OF_ANY[name](coo().to_sparse_csc()), times=1)


@pytest.mark.parametrize("integers", [torch.int64, torch.int32])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.int8])
def test_a_sum_of_a_matrix_is_eagers_bit_for_bit(dtype: torch.dtype, integers: torch.dtype) -> None:
    """Eager adds float16 in float32: in float16, adding ones would end at 2048."""
    count = 5000
    values = torch.arange(count).remainder(7).to(dtype)
    ends, places = torch.tensor([0, count - 1, count - 1, count]), torch.arange(count).remainder(count - 1)
    matrix = torch.sparse_csr_tensor(ends.to(integers), places.to(integers), values, (3, count))
    for dims in ((0,), (1,), (0, 1)):
        with ed.EagerDecompMode(ed.core_aten()):
            found = matrix.sum(dims, keepdim=True)
        want = matrix.sum(dims, keepdim=True)
        for part in (Tensor.crow_indices, Tensor.col_indices, Tensor.values):
            assert part(found).dtype is part(want).dtype
            assert torch.equal(part(found), part(want))
    assert matrix.sum((0, 1), keepdim=True).values() > 14_000


OF_VALUES: dict[str, Callable[[Tensor], Any]] = {
    "to_dense": lambda a: a.to_dense(),
    "sin": torch.sin,
    "relu_": torch.relu_,
    "neg_": torch.neg_,
    "times a number in place": lambda a: a.mul_(2.5),
    "nan_to_num": torch.nan_to_num,
    **{name: OF_ANY[name] for name in ("clone", "neg", "sum", "times a number", "to another dtype", "zeros_like")},
}


@pytest.mark.parametrize("name", OF_VALUES)
@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_a_function_of_values_is_eagers_with_batches_blocks_and_dense_dimensions(layout: str, name: str) -> None:
    blocks = ((2, 1),) if layout.startswith("b") else ()
    values = torch.tensor([[0, 1.5, 0, -2], [0, 0, 0, 0], [3, 0, -0.25, 0], [0, 0, 0.5, 0]])
    batches, last = torch.stack([values, values * 2] * 3).view(2, 3, 4, 4), torch.stack([values, values * 2], -1)
    for dense_dim, given in ((0, values), (0, batches), (0, torch.zeros(4, 4)), (1, last)):
        sparse = getattr(given, f"to_sparse_{layout}")(*blocks, dense_dim=dense_dim)
        check_sparse(lambda: OF_VALUES[name](sparse.clone()), times=1)  # noqa: B023 - called at once


@pytest.mark.parametrize("make", [torch.zeros_like, torch.ones_like, torch.empty_like])
def test_a_tensor_like_a_compressed_one_is_made_on_another_device(make: Callable[..., Tensor]) -> None:
    given = torch.eye(4).to_sparse_bsc((2, 2))
    with ed.EagerDecompMode(ed.core_aten()):
        found = make(given, dtype=torch.float64, device="meta")
    for one, like in zip(parts_of(found)[2:], parts_of(make(given, dtype=torch.float64, device="meta"))[2:], strict=True):
        assert (one.device, one.dtype, one.shape) == (like.device, like.dtype, like.shape)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_a_copy_of_a_sparse_tensor_has_no_elements_on_the_meta_device_only(layout: torch.layout) -> None:
    given = coo().to_sparse(layout=layout)
    for device, dtype in (("meta", None), ("meta", torch.float64), ("cpu", torch.float64)):
        with ed.EagerDecompMode(ed.core_aten()):
            found = given.to(device, dtype, copy=True)
        want = given.to(device, dtype, copy=True)
        assert (found._nnz(), found.dtype, found.device) == (want._nnz(), want.dtype, want.device)


@pytest.mark.parametrize("layout", ["csr", "csc", "bsr", "bsc"])
def test_a_dense_tensor_becomes_compressed_with_batches_and_blocks(layout: str) -> None:
    values = torch.tensor([[0, 1.5, 0, -2], [0, 0, 0, 0], [3, 0, -0.25, 0], [0, 0, 0.5, 0]])
    batches = torch.stack([values, values * 2] * 3).view(2, 3, 4, 4)
    unlike = torch.stack([values, torch.eye(4)])
    also_unlike = torch.stack([values, values.index_fill(1, torch.tensor([0]), 1)])
    for given in (values, batches, torch.zeros(2, 4, 4), torch.zeros(4, 4), unlike, also_unlike, values.t(), torch.ones(4)):
        for blocks in (((2, 1),), ((2, 2),), ((4, 1),), ((3, 2),)) if layout.startswith("b") else ((),):
            options = {"layout": getattr(torch, f"sparse_{layout}"), **dict(zip(["blocksize"], blocks, strict=False))}
            check_sparse(lambda: getattr(given, f"to_sparse_{layout}")(*blocks), times=1)  # noqa: B023 - called at once
            check_sparse(lambda: given.to_sparse(**options), times=1)  # noqa: B023 - called at once


def gradients_of_a_product() -> Any:
    one, other = csr().requires_grad_(), coo().t().coalesce().to_sparse_csr().requires_grad_()
    (one @ other).to_dense().square().sum().backward()
    return one.grad.to_dense(), other.grad.to_dense()


OTHERS: dict[str, Callable[[], Any]] = {
    "product of two, with gradients": gradients_of_a_product,
    "sparse.mm of two": lambda: torch.sparse.mm(csr(), as_layout_of(csr(), dense())).to_dense(),
    # Eager's columns are in an order of MKL's.
    "addmm of two": lambda: torch.addmm(
        as_layout_of(csr(), dense()[:2].tril()), csr(), as_layout_of(csr(), dense()), beta=2, alpha=3
    ).to_dense(),
    "addmm of two, without the first": lambda: torch.addmm(
        as_layout_of(csr(), dense()[:2]), csr(), as_layout_of(csr(), dense()), beta=0
    ).to_dense(),
    "zeros": lambda: (torch.zeros(2, 3, layout=torch.sparse_csr), torch.zeros(2, 3, layout=torch.sparse_csc, dtype=torch.int32)),
    "product of two layouts": lambda: (csr() @ coo().t().coalesce().to_sparse_csc()).to_dense(),
    "made": lambda: torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), torch.ones(3), (2, 3)),
    "made without a size": lambda: torch.sparse_csr_tensor(torch.tensor([0, 1, 3]), torch.tensor([2, 0, 1]), torch.ones(3)),
    "of coordinates": lambda: coo().to_sparse_csr(),
    "of a dense": lambda: dense().to_sparse_csr(),
    "columns of a dense": lambda: dense().to_sparse_csc(),
    "by its layout": lambda: dense().to_sparse(layout=torch.sparse_csr),
    "of zeros, times a matrix": lambda: torch.zeros(2, 3).to_sparse_csr() @ dense(),
    "indices of 32 bits": lambda: (
        torch.sparse_csr_tensor(
            torch.tensor([0, 1, 3], dtype=torch.int32), torch.tensor([2, 0, 1], dtype=torch.int32), torch.ones(3), (2, 3)
        )
        @ dense()
    ),
    "sampled": lambda: torch.sparse.sampled_addmm(csr(), torch.ones(2, 3), torch.ones(3, 3), beta=0.5, alpha=2.0),
    "mask": lambda: dense()[:2, :3].sparse_mask(csr()),
    "mask of its layout": lambda: csr().sparse_mask(torch.ones(2, 3).tril().to_sparse_csr()),
    "mask without elements": lambda: dense()[:2, :3].sparse_mask(torch.zeros(2, 3).to_sparse_csr()),
    "a linear layer": lambda: torch.nn.functional.linear(dense()[:, :3], csr(), torch.ones(2)),
    "parts": lambda: (csr().crow_indices(), csr().col_indices(), csr().values(), csr()._nnz()),
}


@pytest.mark.parametrize("name", OTHERS)
def test_a_call_is_eagers(name: str) -> None:
    check_sparse(OTHERS[name])


@pytest.mark.parametrize("kernel", [None, torch.ops.aten._sparse_mm_reduce_impl.default])
def test_an_op_of_the_set_that_takes_only_sparse_tensors_runs_its_kernel(kernel: Any) -> None:
    op = torch.ops.aten._sparse_mm_reduce_impl.default
    given, other = csr(), dense()
    kernels = {} if kernel is None else {str(op): lambda *args: kernel(*args)}
    with ed.BackendRecorder() as backend, ed.EagerDecompMode(ed.Backend("mine", ed.infra() | [str(op)], kernels)):
        result, _ = op(given, other, "sum")
    assert backend.ops == {op: 1}
    assert torch.equal(result, given.to_dense() @ other)


def test_an_op_that_takes_only_sparse_tensors_is_named_if_the_set_lacks_it() -> None:
    given, right = csr(), torch.ones(2)
    with pytest.raises(ed.UnsupportedOpError, match="add the op to the op set") as caught, ed.EagerDecompMode(ed.infra()):
        torch.ops.aten._spsolve.default(given, right)
    assert caught.value.kernels_to_add == (("aten._spsolve.default",),)


@pytest.mark.parametrize("given", [torch.float32, torch.float16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("dtype", [None, torch.float16, torch.int32, torch.complex64])
def test_a_sum_and_a_product_of_a_matrix_are_eagers(given: torch.dtype, dtype: torch.dtype | None) -> None:
    """Integers of any dtype give int64, but eager's products of int8 overflow before."""
    values = torch.tensor([[0, 2, 3, 0], [7, 0, 5, 0], [6, 9, 1, 0]]).to(given)
    for index in (torch.int32, torch.int64):
        plain = values.to_sparse_csr()
        matrix = torch.sparse_csr_tensor(plain.crow_indices().to(index), plain.col_indices().to(index), plain.values(), (3, 4))
        for op in (torch.ops.aten._sparse_csr_sum.dim_dtype, torch.ops.aten._sparse_csr_prod.dim_dtype):
            for dims in ([0], [-1], [0, 1], []):
                check_sparse(lambda: op(matrix, dims, True, dtype=dtype), times=1)  # noqa: B023 - called at once
            check_sparse(lambda: op(matrix, [0], False), times=1)  # noqa: B023


@pytest.mark.parametrize("reduce", ["sum", "mean", "amax", "amin", "prod"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("index", [torch.int32, torch.int64])
def test_reduced_products_and_their_gradients_are_eagers(reduce: str, dtype: torch.dtype, index: torch.dtype) -> None:
    """Rows with ties and without elements; the gradient of an extreme goes to the first of equal products."""
    values = torch.tensor([[2.0, 0, 2, 1], [0, 0, 0, 0], [-1, 3, 0, 3]], dtype=dtype)

    def run() -> Any:
        parts = values.to_sparse_csr()
        ends, places = parts.crow_indices().to(index), parts.col_indices().to(index)
        sparse = torch.sparse_csr_tensor(ends, places, parts.values(), parts.shape).requires_grad_()
        other = torch.ones(4, 5, dtype=dtype).requires_grad_()
        found = torch.sparse.mm(sparse, other, reduce)
        return found.detach(), torch.autograd.grad(found.square().sum(), (sparse, other))

    check_sparse(run)
