"""Sparse gradients: look-ups, optimizers, and the gradients of ops on sparse tensors, against eager on dense kernels alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from on_dense_kernels import check_sparse
from torch import Tensor

pytestmark = pytest.mark.filterwarnings("ignore")

FLOATS = (torch.float32, torch.float64, torch.bfloat16)
INDICES = torch.tensor([[1, 0, 1, 1], [2, 1, 0, 2]])


def weight(dtype: torch.dtype = torch.float32) -> Tensor:
    return (torch.arange(15.0).view(5, 3) / 7 - 1).to(dtype).requires_grad_()


def looked_up(dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    table = weight(dtype)
    found = F.embedding(torch.tensor([[1, 1, 4], [0, 1, 2]]), table, sparse=True, **options)
    (found * torch.arange(18.0).view(2, 3, 3).to(dtype)).sum().backward()
    return table.grad


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("options", [{}, {"padding_idx": 1}, {"max_norm": 1.0}, {"scale_grad_by_freq": True}], ids=str)
def test_the_gradient_of_a_look_up_is_a_row_for_each_index(options: dict[str, Any], dtype: torch.dtype) -> None:
    check_sparse(lambda: looked_up(dtype, **options))


def bagged(mode: str, *, weighted: bool = False, dtype: torch.dtype = torch.float32, **options: Any) -> Any:
    table, each = weight(dtype), (torch.arange(6.0) + 1).to(dtype).requires_grad_()
    given = {"mode": mode, "sparse": True, "per_sample_weights": each if weighted else None, **options}
    found = F.embedding_bag(torch.tensor([1, 1, 4, 0, 1, 2]), table, torch.tensor([0, 2, 2]), **given)
    (found * torch.arange(9.0).view(3, 3).to(dtype)).sum().backward()
    return [table.grad, *([each.grad] if weighted else [])]


@pytest.mark.parametrize("dtype", FLOATS, ids=str)
@pytest.mark.parametrize("mode", ["sum", "mean", "max"])
def test_the_gradient_of_bags(mode: str, dtype: torch.dtype) -> None:
    check_sparse(lambda: bagged(mode, dtype=dtype))
    check_sparse(lambda: bagged(mode, dtype=dtype, padding_idx=1))


def test_the_gradient_of_weighted_bags() -> None:
    check_sparse(lambda: bagged("sum", weighted=True))


OPTIMIZERS: dict[str, Callable[[Iterator[Any]], torch.optim.Optimizer]] = {
    "SGD": lambda given: torch.optim.SGD(given, 0.1),
    "SGD with momentum": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9),
    "SGD with Nesterov's": lambda given: torch.optim.SGD(given, 0.1, momentum=0.9, nesterov=True),
    "SparseAdam": lambda given: torch.optim.SparseAdam(list(given)),
    "SparseAdam that maximizes": lambda given: torch.optim.SparseAdam(list(given), maximize=True),
    "Adagrad": lambda given: torch.optim.Adagrad(given),
    "Adam, which takes none": lambda given: torch.optim.Adam(given),
    "weight decay, which takes none": lambda given: torch.optim.SGD(given, 0.1, weight_decay=0.1),
}


def trained(name: str, dtype: torch.dtype, *, accumulated: int = 1, clipped: bool = False) -> Any:
    torch.manual_seed(0)
    layer = torch.nn.Embedding(6, 3, sparse=True, dtype=dtype)
    optimizer, losses = OPTIMIZERS[name](layer.parameters()), []
    for step in range(3):
        optimizer.zero_grad(set_to_none=step != 1)
        for _ in range(accumulated):
            loss = layer(torch.tensor([[1, 2, 1], [0, 4, step]])).pow(2).sum()
            loss.backward()
        if clipped:  # as `clip_grad_norm_`, which takes no sparse gradient
            gradient = layer.weight.grad.coalesce()
            layer.weight.grad = gradient * (1 / (gradient._values().norm() + 1e-6)).clamp(max=1.0)
        optimizer.step()
        losses.append(loss.detach())
    return [losses, layer.weight.detach(), layer.weight.grad.coalesce()]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_is_eagers(name: str, dtype: torch.dtype) -> None:
    check_sparse(lambda: trained(name, dtype), times=1)


# -- gradients of ops on sparse tensors -----------------------------------------------------------------------------------


def once() -> Tensor:
    return torch.sparse_coo_tensor(INDICES, torch.tensor([3.0, 4, 5, 6]), (2, 3)).coalesce()


def uncoalesced() -> Tensor:
    return torch.sparse_coo_tensor(torch.cat([INDICES, INDICES[:, :2]], 1), torch.arange(6.0), (2, 3))


def hybrid() -> Tensor:
    return torch.sparse_coo_tensor(INDICES[:1], torch.arange(8.0).view(4, 2), (2, 2)).coalesce()


def dense() -> Tensor:
    return torch.arange(1.0, 7).view(2, 3)


def made_of(values: Tensor) -> Tensor:
    return torch.sparse_coo_tensor(INDICES, values, (2, 3))


DIFFERENTIATED: dict[str, tuple[Callable[..., Tensor], Callable[[], tuple[Tensor, ...]]]] = {
    "values": (lambda v: made_of(v).coalesce().values(), lambda: (torch.arange(4.0),)),
    "made, and multiplied": (lambda v, b: torch.sparse.mm(made_of(v), b), lambda: (torch.arange(4.0), dense().t().contiguous())),
    "sparse.mm": (torch.sparse.mm, lambda: (once(), dense().t().contiguous())),
    "matmul": (lambda a, b: a @ b, lambda: (once(), dense().t().contiguous())),
    "by a vector": (lambda a, b: a @ b, lambda: (once(), dense()[0].clone())),
    "sparse by sparse": (lambda a, b: torch.sparse.mm(a, b).to_dense(), lambda: (once(), once().t().coalesce())),
    "addmm": (torch.sparse.addmm, lambda: (torch.ones(2, 2), once(), dense().t().contiguous())),
    "bmm": (torch.bmm, lambda: (once().unsqueeze(0).coalesce(), dense().t()[None].contiguous())),
    "sum": (torch.sparse.sum, lambda: (once(),)),
    "sum of rows": (lambda a: torch.sparse.sum(a, 0).to_dense(), lambda: (once(),)),
    "sum of a dense dimension": (lambda a: torch.sparse.sum(a, 1).to_dense(), lambda: (hybrid(),)),
    "sum of the sparse dimension": (lambda a: torch.sparse.sum(a, 0), lambda: (hybrid(),)),
    "sum of columns with equal indices": (lambda a: torch.sparse.sum(a, 1).to_dense(), lambda: (uncoalesced(),)),
    "to_dense": (lambda a: a.to_dense(), lambda: (once(),)),
    "to_sparse": (lambda a: a.to_sparse().to_dense(), lambda: (dense(),)),
    "to_sparse of rows": (lambda a: a.to_sparse(1).to_dense(), lambda: (dense(),)),
    "times a dense": (lambda a, b: (a * b).to_dense(), lambda: (once(), dense())),
    "times a sparse": (lambda a, b: (a * b).to_dense(), lambda: (once(), once())),
    "times a number": (lambda a: (a * 2).to_dense(), lambda: (once(),)),
    "sums": (lambda a, b: (a + b).to_dense(), lambda: (once(), once())),
    "to a dense": (lambda a, b: b + a, lambda: (once(), dense())),
    "softmax": (lambda a: torch.sparse.softmax(a, 1).to_dense(), lambda: (once(),)),
    "log_softmax": (lambda a: torch.sparse.log_softmax(a, 1).to_dense(), lambda: (once(),)),
    "softmax of a dense dimension": (lambda a: torch.sparse.softmax(a, 1).to_dense(), lambda: (hybrid(),)),
    "mask": (lambda a: a.sparse_mask(once()).to_dense(), lambda: (dense(),)),
    "transposed": (lambda a: a.t().to_dense(), lambda: (once(),)),
    "joined": (lambda a: torch.cat([a, a]).to_dense(), lambda: (once(),)),
    "roots": (lambda a: a.sqrt().to_dense(), lambda: (once(),)),
    "gathered": (lambda a: torch.gather(a, 1, torch.tensor([[0, 1], [2, 2]]), sparse_grad=True), lambda: (dense(),)),
    "selected, which has no gradient": (lambda a: a[1].to_dense(), lambda: (once(),)),
}


@pytest.mark.parametrize("name", DIFFERENTIATED)
def test_an_op_is_differentiated_as_by_eager(name: str) -> None:
    run, make = DIFFERENTIATED[name]

    def both() -> Any:
        leaves = [one.requires_grad_() for one in make()]
        result = run(*leaves)
        (result * torch.arange(1.0, result.numel() + 1).view(result.shape)).sum().backward()
        return [result.detach(), [one.grad for one in leaves]]

    check_sparse(both, times=1)
