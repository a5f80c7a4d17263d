"""Specs of indexing, slicing, reductions and sorting: right kernels pass, broken ones are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults

from eagerdecomp.conformance.specs import advanced_indexing as parts
from eagerdecomp.conformance.specs import indexing, reductions
from eagerdecomp.ops.opset import core_aten, resolve_ops

aten = torch.ops.aten
SPECS = {**indexing.SPECS, **parts.SPECS, **reductions.SPECS}
HALVES = (torch.float16, torch.bfloat16)

pytestmark = pytest.mark.filterwarnings("ignore")


def test_every_op_of_the_families_is_there() -> None:
    kinds = (
        "embedding",
        "gather",
        "index",
        "masked_scatter",
        "nonzero",
        "scatter",
        "select_scatter",
        "slice_scatter",
        "_embedding_bag",
    )
    kinds += ("sort", "topk", "amax", "amin", "any", "argmax", "argmin", "cumsum", "max", "min", "mean", "prod", "sum", "var")
    ours = {str(op) for op in core_aten() if str(op).split(".")[1].removesuffix("_dense_backward") in kinds}
    ours |= {f"aten.{name}" for name in ("index_put.default", "index_select.default", "scatter_add.default", "scatter_reduce.two")}
    assert set(SPECS) == ours


# -- right in another way ----------------------------------------------------------------------------------------------------


def sum_turned(x, dims=None, keepdim=False, *, dtype=None):
    given = dims if dims else list(range(x.dim()))
    made = x.flip(given) if x.dim() else x
    if dtype is None and x.dtype in HALVES:
        return aten.sum.dim_IntList(made.float(), dims, keepdim).to(x.dtype)
    return aten.sum.dim_IntList(made, dims, keepdim, dtype=dtype)


def sum_one_by_one(x, dims=None, keepdim=False, *, dtype=None):
    """In float32, one after the other."""
    if dtype is not None or x.dtype is not torch.float32 or x.dim() != 1:
        return aten.sum.dim_IntList(x, dims, keepdim, dtype=dtype)
    total = x.detach().numpy().cumsum(dtype="float32")[-1:] if len(x) else [0.0]
    return torch.tensor(total[0]).reshape([1] if keepdim else [])


def mean_by_reciprocal(x, dims, keepdim=False, *, dtype=None):
    if (dtype or x.dtype).is_complex or not x.numel():
        return aten.mean.dim(x, dims, keepdim, dtype=dtype)
    given = dims if dims else list(range(x.dim()))
    count = math.prod(x.shape[dim] for dim in given) if x.dim() else 1
    wide = dtype or x.dtype
    wide = torch.float32 if wide in HALVES else wide
    total = aten.sum.dim_IntList(x.to(dtype or x.dtype), dims, keepdim, dtype=wide)
    return (total * (torch.tensor(1.0, dtype=wide) / count)).to(dtype or x.dtype)


def prod_turned(x, dim, keepdim=False, *, dtype=None):
    made = x.flip([dim]) if x.dim() else x
    if dtype is None and x.dtype in HALVES:
        return aten.prod.dim_int(made.float(), dim, keepdim).to(x.dtype)
    return aten.prod.dim_int(made, dim, keepdim, dtype=dtype)


def cumsum_in_float32(x, dim, *, dtype=None):
    if dtype is not None or x.dtype is not torch.float32 or x.dim() == 0:
        return aten.cumsum(x, dim, dtype=dtype)
    return torch.from_numpy(x.detach().contiguous().numpy().cumsum(axis=dim, dtype="float32"))


def var_in_two_passes(x, dims=None, *, correction=None, keepdim=False):
    if x.dtype is not torch.float32 or not x.numel():
        return aten.var.correction(x, dims, correction=correction, keepdim=keepdim)
    given = dims if dims else list(range(x.dim()))
    count = math.prod(x.shape[dim] for dim in given) if x.dim() else 1
    away = x - (x.mean(given, keepdim=True) if x.dim() else x)
    correction = 1 if correction is None else correction
    return aten.sum.dim_IntList(away * away, dims, keepdim) / max(count - correction, 0.0)


def sort_turned(x, dim=-1, descending=False):
    if x.dim() == 0:
        return aten.sort(x, dim, descending)
    values, indices = aten.sort(x.flip([dim]), dim, descending)
    return values, x.shape[dim] - 1 - indices


def topk_by_sort(x, k, dim=-1, largest=True, sorted=True):
    if x.dim() == 0:
        return aten.topk(x, k, dim, largest, sorted)
    values, indices = sort_turned(x, dim, largest)
    values, indices = values.narrow(dim, 0, k), indices.narrow(dim, 0, k)
    return (values.clone(), indices.clone()) if sorted else (values.flip([dim]), indices.flip([dim]))


def amax_with_other_zeros(x, dims=(), keepdim=False):
    result = aten.amax(x, dims, keepdim)
    return torch.where(result == 0, torch.zeros_like(result), result)


def turned_about(x, *operands):
    """Lay the result out by columns, if the operands leave that open."""
    return x if x.dim() < 2 or all(one.is_contiguous() for one in operands) else x.mT.contiguous().mT


def scatter_add_turned(x, dim, index, src):
    if x.dim() == 0:
        return aten.scatter_add(x, dim, index, src)
    src = src[tuple(slice(size) for size in index.shape)]
    wide = torch.float32 if x.dtype in HALVES else x.dtype
    return aten.scatter_add(x.to(wide), dim, index.flip([dim]), src.flip([dim]).to(wide)).to(x.dtype)


def index_put_turned(x, indices, values, accumulate=False):
    if not accumulate:
        found = aten.index_put(x, indices, values)
        return found if x.is_contiguous() or x.dim() != 2 else found.t().contiguous().t()
    wide = torch.float64 if x.dtype in (*HALVES, torch.float32) else x.dtype
    return aten.index_put(x.to(wide), indices, values.to(wide), True).to(x.dtype)


def embedding_backward_wide(grad, indices, weights, padding, scale):
    if grad.dtype not in (*HALVES, torch.float32):
        return aten.embedding_dense_backward(grad, indices, weights, padding, scale)
    return aten.embedding_dense_backward(grad.double(), indices, weights, padding, scale).to(grad.dtype)


def bag_by_rows(weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding=-1):
    result, _, sizes, places = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding)
    indices, offsets = indices.flatten(), offsets.long()
    ends = offsets if last else torch.cat([offsets, torch.tensor([len(indices)])])
    bags = torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff()) if len(ends) > 1 else torch.empty(0, dtype=torch.long)
    return result.clone(), bags.to(sizes.dtype), sizes, places


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.sum.dim_IntList", sum_turned),
    ("aten.sum.dim_IntList", sum_one_by_one),
    ("aten.mean.dim", mean_by_reciprocal),
    ("aten.prod.dim_int", prod_turned),
    ("aten.cumsum.default", cumsum_in_float32),
    ("aten.var.correction", var_in_two_passes),
    ("aten.sort.default", sort_turned),
    ("aten.topk.default", topk_by_sort),
    ("aten.amax.default", amax_with_other_zeros),
    ("aten.scatter_add.default", scatter_add_turned),
    ("aten.index_put.default", index_put_turned),
    ("aten.embedding_dense_backward.default", embedding_backward_wide),
    ("aten._embedding_bag.default", bag_by_rows),
    ("aten.nonzero.default", lambda x: aten.nonzero(x).contiguous()),
    ("aten.index.Tensor", lambda x, indices: aten.index.Tensor(x, indices).contiguous()),
    ("aten.gather.default", lambda x, dim, index, sparse_grad=False: turned_about(aten.gather(x, dim, index), x, index)),
    ("aten.index_select.default", lambda x, dim, index: turned_about(aten.index_select(x, dim, index.long()), x, index)),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "run"), sampled(RIGHT, ids=lambda case: f"{case[0]}-{case[1].__name__}"))
def test_right_kernels_that_differ_from_eager_pass(name: str, run: Callable[..., Any]) -> None:
    (op,) = resolve_ops([name])

    def refusing(*args: Any, **kwargs: Any) -> Any:
        op(*args, **kwargs)
        return run(*args, **kwargs)

    assert first_faults(name, refusing, 120) == []


# -- broken ------------------------------------------------------------------------------------------------------------------


def sum_in_halves(x, dims=None, keepdim=False, *, dtype=None):
    """In the 16-bit float type itself."""
    if x.dtype not in HALVES or dtype is not None or (x.dim() != 1 and dims) or not x.numel():
        return aten.sum.dim_IntList(x, dims, keepdim, dtype=dtype)
    parts = x.flatten()
    while len(parts) > 1:
        parts = torch.cat([parts, parts.new_zeros(len(parts) % 2)]).reshape(-1, 2)
        parts = parts[:, 0] + parts[:, 1]
    return parts[0].reshape([1] * x.dim() if keepdim else []).clone()


def sum_without_the_tail(x, dims=None, keepdim=False, *, dtype=None):
    if x.dim() and x.shape[-1] > 128 and x.shape[-1] % 4:
        x = x[..., : x.shape[-1] // 4 * 4]
    return aten.sum.dim_IntList(x, dims, keepdim, dtype=dtype)


def sum_cast_at_the_end(x, dims=None, keepdim=False, *, dtype=None):
    made = aten.sum.dim_IntList(x, dims, keepdim)
    return made if dtype is None else made.to(dtype)


def sum_kept_in_int32(x, dims=None, keepdim=False, *, dtype=None):
    if x.dtype is torch.int32 and dtype is None:
        return aten.sum.dim_IntList(x, dims, keepdim, dtype=torch.int32).long()
    return aten.sum.dim_IntList(x, dims, keepdim, dtype=dtype)


def mean_by_half_sum(x, dims, keepdim=False, *, dtype=None):
    if x.dtype is not torch.float16 or dtype is not None:
        return aten.mean.dim(x, dims, keepdim, dtype=dtype)
    total = aten.sum.dim_IntList(x, dims, keepdim)
    return total / (x.numel() / max(total.numel(), 1)) if total.numel() else total


def var_in_one_pass(x, dims=None, *, correction=None, keepdim=False):
    if x.dtype is not torch.float32 or not x.numel() or not dims or not x.dim():
        return aten.var.correction(x, dims, correction=correction, keepdim=keepdim)
    count = math.prod(x.shape[dim] for dim in dims)
    away = (x * x).mean(dims, keepdim) - x.mean(dims, keepdim) ** 2
    less = 1 if correction is None else correction
    return away * (count / (count - less)) if count > less else aten.var.correction(x, dims, correction=less, keepdim=keepdim)


def var_with_whole_corrections(x, dims=None, *, correction=None, keepdim=False):
    return aten.var.correction(x, dims, correction=1 if correction is None else int(correction), keepdim=keepdim)


def argmax_last_of_ties(x, dim=None, keepdim=False):
    if dim is None or not x.dim() or not x.shape[dim] or x.shape[dim] < 33:
        return aten.argmax(x, dim, keepdim)
    return x.shape[dim] - 1 - aten.argmax(x.flip([dim]), dim, keepdim)


def max_without_nan(x, dim, keepdim=False):
    if not x.is_floating_point():
        return aten.max.dim(x, dim, keepdim)
    values, indices = aten.max.dim(x.nan_to_num(nan=-math.inf, posinf=math.inf, neginf=-math.inf), dim, keepdim)
    return values, indices


def any_as_integers(x, dim, keepdim=False):
    return aten.any.dim(x if x.dtype is torch.uint8 or x.is_complex() else x.nan_to_num().to(torch.int64), dim, keepdim)


def any_of_no_dims(x, dims=None, keepdim=False):
    return aten.any.dims(x, dims or None, keepdim)


def cumsum_in_blocks(x, dim, *, dtype=None):
    if not x.dim() or x.shape[dim] < 1025:
        return aten.cumsum(x, dim, dtype=dtype)
    return torch.cat([aten.cumsum(one, dim, dtype=dtype) for one in x.split(1024, dim)], dim)


def sort_by_value_bits(x, dim=-1, descending=False):
    """Negative floats in the order of their magnitude, as their bits have it."""
    if x.dtype is not torch.float32:
        return aten.sort(x, dim, descending)
    indices = aten.sort(x.contiguous().view(torch.int32), dim, descending)[1]
    return x.gather(dim, indices), indices


def sort_of_another_column(x, dim=-1, descending=False):
    values, indices = aten.sort(x, dim, descending)
    return values, indices[..., :1].expand(indices.shape).clone() if x.dim() > 1 and dim == 0 else indices


def topk_smallest_first(x, k, dim=-1, largest=True, sorted=True):
    values, indices = aten.topk(x, k, dim, largest, True)
    return (values.flip([dim]), indices.flip([dim])) if x.dim() and not largest else (values, indices)


def topk_same_index(x, k, dim=-1, largest=True, sorted=True):
    """Among ties the same one again and again."""
    values, indices = aten.topk(x, k, dim, largest, sorted)
    if not x.dim() or not k:
        return values, indices
    same = (values == values.roll(1, dim)) & (torch.arange(k) > 0).reshape(
        [-1 if one == dim % x.dim() else 1 for one in range(x.dim())]
    )
    return values, torch.where(same, indices.roll(1, dim), indices)


def gather_by_bytes(x, dim, index, *, sparse_grad=False):
    """Indices as one byte."""
    return aten.gather(
        x, dim, index % 256 if x.dim() and index.numel() and int(index.min()) >= 0 else index, sparse_grad=sparse_grad
    )


def index_without_broadcasting(x, indices):
    given = [one for one in indices if one is not None and one.dtype not in (torch.bool, torch.uint8)]
    if len(given) > 1 and len({one.shape for one in given}) > 1:
        most = max(given, key=lambda one: one.numel())
        indices = [one if one is None or one.shape == most.shape else torch.zeros_like(most) for one in indices]
    return aten.index.Tensor(x, indices)


def index_apart_in_place(x, indices):
    """The dimensions of indices that are apart stay where the first was."""
    made = aten.index.Tensor(x, indices)
    places = [place for place, one in enumerate(indices) if one is not None]
    if len(places) > 1 and places[-1] - places[0] >= len(places) and places[0] > 0 and made.dim() > 1:
        made = made.movedim(0, 1)
    return made


def index_byte_as_number(x, indices):
    return aten.index.Tensor(
        x,
        [
            one.long() if one is not None and one.dtype is torch.uint8 and one.dim() == 1 and x.shape[0] > 1 else one
            for one in indices
        ],
    )


def index_put_last_wins(x, indices, values, accumulate=False):
    return aten.index_put(x, indices, values) if accumulate and x.dim() == 1 else aten.index_put(x, indices, values, accumulate)


def index_put_no_wrap(x, indices, values, accumulate=False):
    given = (
        [
            one if one is None or one.dtype in (torch.bool, torch.uint8) or not one.numel() else one.abs() % x.shape[place]
            for place, one in enumerate(indices)
        ]
        if len(indices) == 1 and x.numel()
        else indices
    )
    return aten.index_put(x, given, values, accumulate)


def masked_scatter_by_rows(x, mask, source):
    return aten.masked_scatter(x, mask, source.mT.contiguous() if source.dim() > 1 and not source.is_contiguous() else source)


def scatter_value_through_float(x, dim, index, value):
    if x.dtype is torch.int64:
        return aten.scatter.value(x, dim, index, int(torch.tensor(value, dtype=torch.float32).clamp(max=2.0**62)))
    return aten.scatter.value(x, dim, index, value)


def scatter_whole_src(x, dim, index, src):
    """The source read as if it had the index's sizes."""
    flat = src.contiguous().flatten()[: index.numel()]
    return aten.scatter.src(x, dim, index, flat.reshape(index.shape))


def reduce_mean_truncated(x, dim, index, src, reduce, *, include_self=True):
    if reduce != "mean" or x.is_floating_point() or x.is_complex():
        return aten.scatter_reduce.two(x, dim, index, src, reduce, include_self=include_self)
    total = aten.scatter_reduce.two(x, dim, index, src, "sum", include_self=include_self)
    ones = torch.ones_like(src)
    counts = aten.scatter_reduce.two(torch.ones_like(x), dim, index, ones, "sum", include_self=include_self)
    return torch.div(total, counts.clamp(min=1), rounding_mode="trunc").to(x.dtype)


def reduce_from_zero(x, dim, index, src, reduce, *, include_self=True):
    made = aten.scatter_reduce.two(x, dim, index, src, reduce, include_self=include_self)
    return made.clamp(min=0) if reduce == "amax" and not include_self and x.is_floating_point() else made


def slice_scatter_step_from_zero(x, src, dim=0, start=None, end=None, step=1):
    if start is not None and step > 1 and 0 < start < x.shape[dim]:
        start = start // step * step
        made = x.clone()
        part = made.narrow(dim, start, x.shape[dim] - start)[(slice(None),) * (dim % x.dim()) + (slice(None, None, step),)]
        count = min(part.shape[dim], src.shape[dim])
        part.narrow(dim, 0, count).copy_(src.narrow(dim, 0, count))
        return made
    return aten.slice_scatter(x, src, dim, start, end, step)


def embedding_of_no_padding(weight, indices, padding=-1, scale=False, sparse=False):
    made = aten.embedding(weight, indices, padding, scale, sparse)
    return torch.where((indices == padding).unsqueeze(-1), torch.zeros((), dtype=made.dtype), made) if padding > 0 else made


def embedding_backward_scaled_at_the_end(grad, indices, weights, padding, scale):
    return aten.embedding_dense_backward(grad, indices, weights, padding, False)


def bag_mean_with_padding(weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding=-1):
    result = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding)
    if mode != 1 or padding < 0:
        return result
    plain = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, -1)
    factor = result[2] / plain[2].clamp(min=1)
    return result[0] * factor.unsqueeze(-1).to(result[0].dtype), *result[1:]


def bag_wrong_bags(weight, indices, offsets, scale=False, mode=0, sparse=False, per_sample=None, last=False, padding=-1):
    result, bags, *rest = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding)
    return result, torch.zeros_like(bags), *rest


def scatter_add_from_the_end(x, dim, index, src):
    return aten.scatter_add(x, dim, torch.where(index < 0, index + (x.shape[dim] if x.dim() else 1), index), src)


def select_scatter_from_the_front(x, src, dim=0, index=0):
    """Refuse indices below -1, but only the first."""
    return aten.select_scatter(x, src, dim, 0 if -x.shape[dim] <= index < -1 else index)


def embedding_of_short_rows(weight, indices, padding=-1, scale=False, sparse=False):
    return aten.embedding(weight, indices.clamp(max=2**15 - 1) if len(weight) > 2**15 else indices, padding, scale, sparse)


def gather_of_four_dimensions(x, dim, index, *, sparse_grad=False):
    made = aten.gather(x, dim, index, sparse_grad=sparse_grad)
    return made if x.dim() < 5 else torch.zeros_like(made)


def nonzero_by_columns(x):
    return aten.nonzero(x.t()).flip([1]) if x.dim() == 2 else aten.nonzero(x)


def nonzero_without_nan(x):
    return aten.nonzero(x.nan_to_num(nan=0.0) if x.is_floating_point() else x)


BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("aten.sum.dim_IntList", sum_in_halves),
    ("aten.sum.dim_IntList", sum_without_the_tail),
    ("aten.sum.dim_IntList", sum_cast_at_the_end),
    ("aten.sum.dim_IntList", sum_kept_in_int32),
    ("aten.mean.dim", mean_by_half_sum),
    ("aten.var.correction", var_in_one_pass),
    ("aten.var.correction", var_with_whole_corrections),
    ("aten.argmax.default", argmax_last_of_ties),
    ("aten.max.dim", max_without_nan),
    ("aten.any.dim", any_as_integers),
    ("aten.any.dims", any_of_no_dims),
    ("aten.cumsum.default", cumsum_in_blocks),
    ("aten.sort.default", sort_by_value_bits),
    ("aten.sort.default", sort_of_another_column),
    ("aten.topk.default", topk_smallest_first),
    ("aten.topk.default", topk_same_index),
    ("aten.gather.default", gather_by_bytes),
    ("aten.index.Tensor", index_without_broadcasting),
    ("aten.index.Tensor", index_apart_in_place),
    ("aten.index.Tensor", index_byte_as_number),
    ("aten.index_put.default", index_put_last_wins),
    ("aten.index_put.default", index_put_no_wrap),
    ("aten.masked_scatter.default", masked_scatter_by_rows),
    ("aten.scatter.value", scatter_value_through_float),
    ("aten.scatter.src", scatter_whole_src),
    ("aten.scatter_reduce.two", reduce_mean_truncated),
    ("aten.scatter_reduce.two", reduce_from_zero),
    ("aten.slice_scatter.default", slice_scatter_step_from_zero),
    ("aten.embedding.default", embedding_of_no_padding),
    ("aten.embedding_dense_backward.default", embedding_backward_scaled_at_the_end),
    ("aten._embedding_bag.default", bag_mean_with_padding),
    ("aten._embedding_bag.default", bag_wrong_bags),
    ("aten.scatter_add.default", scatter_add_from_the_end),
    ("aten.select_scatter.default", select_scatter_from_the_front),
    ("aten.embedding.default", embedding_of_short_rows),
    ("aten.gather.default", gather_of_four_dimensions),
    ("aten.nonzero.default", nonzero_by_columns),
    ("aten.nonzero.default", nonzero_without_nan),
    (
        "aten.amin.default",
        lambda x, dims=(), keepdim=False: -aten.amax(-x, dims, keepdim) if x.dtype is torch.int8 else aten.amin(x, dims, keepdim),
    ),
    (
        "aten.prod.default",
        lambda x, dtype=None: aten.prod(x, dtype=dtype or x.dtype) if x.dtype is torch.int32 else aten.prod(x, dtype=dtype),
    ),
    (
        "aten.select_scatter.default",
        lambda x, src, dim, index: aten.select_scatter(x, src.abs() if index == -2 else src, dim, index),
    ),
]


@pytest.mark.full
@pytest.mark.parametrize(("name", "run"), BROKEN, ids=[f"{name}-{run.__name__}" for name, run in BROKEN])
def test_broken_kernels_are_found(name: str, run: Callable[..., Any]) -> None:
    (fault,) = first_faults(name, run)
    assert not fault.startswith("raises"), "the kernel is broken otherwise than it should be"
