"""Kernels that are wrong after the last full vector of a dimension, or for indices separated by a slice, are found."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
from spec_trials import first_faults, overload
from torch import Tensor

pytestmark = pytest.mark.full

Kernel = Callable[..., Any]


def whole(size: int, width: int) -> int:
    """The elements of a dimension that whole vectors hold; all where nothing is left over or one vector is not full."""
    return size - size % width if size > width else size


def of_vectors(x: Tensor, dims: Any, width: int, value: Any) -> Tensor:
    """A tensor whose elements behind the last whole vector of these dimensions are no part of a reduction."""
    if not x.dim():
        return x
    for dim in [dims] if isinstance(dims, int) else dims or range(x.dim()):
        first = whole(x.shape[dim], width)
        if first < x.shape[dim]:
            x = x.clone()
            x.narrow(dim, first, x.shape[dim] - first).fill_(value(x) if callable(value) else value)
    return x


def least(x: Tensor) -> Any:
    return -math.inf if x.is_floating_point() else False if x.dtype is torch.bool else torch.iinfo(x.dtype).min


def reducing(value: Any) -> Callable[[Any, int], Kernel]:
    """Leaves what is behind the last whole vector out of what it reduces."""

    def make(op: Any, width: int) -> Kernel:
        def run(x: Tensor, *args: Any, **kwargs: Any) -> Any:
            op(x, *args, **kwargs)  # refuses what eager refuses
            return op(of_vectors(x, args[0] if args else None, width, value), *args, **kwargs)

        return run

    return make


def leaving(op: Any, width: int) -> Kernel:
    """Leaves what is behind the last whole vector of a result's last dimension as it was."""

    def run(*args: Any, **kwargs: Any) -> Any:
        result = op(*args, **kwargs)
        first = result[0] if isinstance(result, (tuple, list)) else result
        if isinstance(first, Tensor) and first.dim():
            first[..., whole(first.shape[-1], width) :] = 0
        return result

    return run


def weight_gradient(op: Any, width: int) -> Kernel:
    """The gradient of a weight, summed over whole vectors of rows alone."""

    def run(grad: Tensor, x: Tensor, sizes: Sequence[int], mean: Tensor, rstd: Tensor, weight: Any, bias: Any, mask: Any) -> Any:
        found = op(grad, x, sizes, mean, rstd, weight, bias, mask)
        columns = math.prod(sizes)
        rows = x.numel() // max(columns, 1)
        if whole(rows, width) < rows and found[1] is not None:
            some = slice(0, whole(rows, width))
            normal = (x.reshape(rows, columns).double() - mean.reshape(rows, 1).double()) * rstd.reshape(rows, 1).double()
            found[1].copy_((grad.reshape(rows, columns).double() * normal)[some].sum(0).reshape(list(sizes)))
        return found

    return run


FAULTS: dict[str, Callable[[Any, int], Kernel]] = {
    **dict.fromkeys(("aten.sum.dim_IntList", "aten.mean.dim", "aten.var.correction"), reducing(0)),
    **dict.fromkeys(("aten.any.default", "aten.any.dim", "aten.any.dims"), reducing(False)),
    **dict.fromkeys(("aten.amax.default", "aten.max.dim"), reducing(least)),
    "aten.prod.dim_int": reducing(1),
    "aten.native_layer_norm_backward.default": weight_gradient,
    **dict.fromkeys(
        (
            *("aten.native_layer_norm.default", "aten.native_group_norm.default", "aten._native_batch_norm_legit.no_stats"),
            *(
                "aten.native_group_norm_backward.default",
                "aten._softmax.default",
                "aten._log_softmax.default",
                "aten.cumsum.default",
            ),
            *("aten.mm.default", "aten.bmm.default", "aten.addmm.default", "aten.convolution.default", "aten.avg_pool2d.default"),
            *("aten.convolution_backward.default", "aten.max_pool2d_with_indices.default", "aten._adaptive_avg_pool2d.default"),
            *("aten.embedding.default", "aten.embedding_dense_backward.default", "aten.index.Tensor", "aten.index_put.default"),
            *("aten.gather.default", "aten.scatter.src", "aten.topk.default", "aten.sort.default", "aten._cdist_forward.default"),
            *("aten.relu.default", "aten.add.Tensor", "aten.where.self", "aten.cat.default", "aten.upsample_nearest2d.vec"),
        ),
        leaving,
    ),
}


@pytest.mark.parametrize("width", [pytest.param(8, marks=pytest.mark.nightly), pytest.param(32, marks=pytest.mark.nightly), 64])
@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_tail_is_found(name: str, width: int) -> None:
    assert first_faults(name, FAULTS[name](overload(name), width), 1500)


def dims_of(named: Sequence[Tensor | None]) -> list[int]:
    """The dimensions that indices and masks stand for."""
    found, dim = list[int](), 0
    for one in named:
        wide = one.dim() if one is not None and one.dtype in (torch.bool, torch.uint8) else 1
        found += [dim + at for at in range(wide)] if one is not None else []
        dim += wide
    return found


def is_apart(dims: Sequence[int]) -> bool:
    return len(dims) > 1 and dims[-1] - dims[0] >= len(dims)


APART: dict[str, Callable[[Tensor, Sequence[Tensor | None], list[int]], bool]] = {
    "two": lambda x, named, dims: len(dims) == 2,
    "by two dimensions": lambda x, named, dims: len(dims) == 2 and dims[1] - dims[0] == 3,
    "three": lambda x, named, dims: len(dims) == 3,
    "three, each from the next": lambda x, named, dims: len(dims) == 3 and dims[0] + 1 < dims[1] < dims[2] - 1,
    "not at the front": lambda x, named, dims: dims[0] > 0,
    "in the midst": lambda x, named, dims: dims[0] > 0 and dims[-1] + 1 < x.dim(),
    "of other shapes": lambda x, named, dims: len({one.shape for one in named if one is not None}) > 1,
    "a mask among them": lambda x, named, dims: any(one is not None and one.dtype is torch.bool for one in named),
}


@pytest.mark.parametrize("what", APART)
@pytest.mark.parametrize("name", ["aten.index.Tensor", "aten.index_put.default"])
def test_separated_indices_are_tested(name: str, what: str) -> None:
    op = overload(name)

    def run(x: Tensor, named: Sequence[Tensor | None], *rest: Any) -> Tensor:
        found: Tensor = op(x, named, *rest)
        dims = dims_of(named)
        if found.numel() and is_apart(dims) and APART[what](x, named, dims):
            found.view(-1)[-1:] = found.view(-1)[:1].logical_not()
        return found

    assert first_faults(name, run, 400)
