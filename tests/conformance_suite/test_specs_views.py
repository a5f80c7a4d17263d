"""Specs of views: eager's kernels pass, broken ones are found."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from spec_trials import first_faults

from eagerdecomp.conformance.specs import views
from eagerdecomp.ops.opset import core_aten

aten = torch.ops.aten


def as_strided_from_the_start(x, size, stride, offset=None):
    return aten.as_strided(x, size, stride, offset or 0)


def as_strided_from_the_tensor(x, size, stride, offset=None):
    return aten.as_strided(x, size, stride, x.storage_offset() + (offset or 0))


def slice_without_clamping(x, dim=0, start=None, end=None, step=1):
    size = x.shape[dim]
    start = 0 if start is None else start + size if start < 0 else start
    end = size if end is None else end + size if end < 0 else end
    return aten.slice(x, dim, max(start, 0), min(end, size) if end < 2**40 else 0, step)


def slice_copied_by_steps(x, dim=0, start=None, end=None, step=1):
    made = aten.slice(x, dim, start, end, step)
    return made.clone(memory_format=torch.preserve_format) if step > 1 else made


def split_without_empty_parts(x, sizes, dim=0):
    return [part for part in aten.split_with_sizes(x, sizes, dim) if part.shape[dim] or not x.numel()]


def expand_written_out(x, size, *, implicit=False):
    made = aten.expand(x, size)
    return made.contiguous() if made.numel() > 64 else made


def squeeze_dims_in_order(x, dims):
    for dim in dims:
        x = aten.squeeze(x, dim)
    return aten.alias(x)


BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("aten.alias.default", lambda x: x.clone()),
    ("aten.alias.default", lambda x: x),
    ("aten.detach.default", lambda x: aten.alias(x) if x.is_contiguous() else x.contiguous()),
    ("aten.as_strided.default", as_strided_from_the_start),
    ("aten.as_strided.default", as_strided_from_the_tensor),
    ("aten.diagonal.default", lambda x, offset=0, one=0, two=1: aten.diagonal(x, abs(offset), one, two)),
    ("aten.diagonal.default", lambda x, offset=0, one=0, two=1: aten.diagonal(x, offset, *sorted([one % x.dim(), two % x.dim()]))),
    ("aten.diagonal.default", lambda x, offset=0, one=0, two=1: aten.diagonal(x, offset, one, two).clone()),
    ("aten.expand.default", expand_written_out),
    ("aten.expand.default", lambda x, size, implicit=False: aten.expand(x, [max(one, 1) for one in size])),
    ("aten.permute.default", lambda x, dims: aten.permute(x, [abs(dim) for dim in dims])),
    ("aten.permute.default", lambda x, dims: aten.permute(x, dims).contiguous()),
    ("aten.permute.default", lambda x, dims: aten.permute(x, sorted(range(len(dims)), key=lambda one: dims[one] % len(dims)))),
    ("aten.select.int", lambda x, dim, index: aten.select(x, dim, index % x.shape[dim])),
    ("aten.select.int", lambda x, dim, index: aten.index_select(x, dim, torch.tensor([index % x.shape[dim]])).squeeze(dim)),
    ("aten.slice.Tensor", slice_without_clamping),
    ("aten.slice.Tensor", slice_copied_by_steps),
    ("aten.slice.Tensor", lambda x, dim=0, start=None, end=None, step=1: aten.slice(x, dim, start, end, 1)),
    ("aten.split_with_sizes.default", split_without_empty_parts),
    ("aten.split_with_sizes.default", lambda x, sizes, dim=0: [one.clone() for one in aten.split_with_sizes(x, sizes, dim)]),
    ("aten.split_with_sizes.default", lambda x, sizes, dim=0: aten.split(x, sizes[0] or 1, dim)),
    ("aten.squeeze.dim", lambda x, dim: aten.squeeze(x)),
    ("aten.squeeze.dim", lambda x, dim: aten.squeeze(x, dim if dim >= 0 else dim + x.dim() - 1)),
    ("aten.squeeze.dims", squeeze_dims_in_order),
    ("aten.unsqueeze.default", lambda x, dim: aten.unsqueeze(x, dim if dim >= 0 else dim + x.dim())),
    ("aten.view.default", lambda x, size: aten.reshape(x, size)),
    ("aten.view.default", lambda x, size: aten.as_strided(x, *_contiguous(x, size))),
    ("aten.view.dtype", lambda x, dtype: aten.view.dtype(x, dtype) if dtype.itemsize == x.dtype.itemsize else x.to(dtype)),
    ("aten.view.dtype", lambda x, dtype: aten.view.dtype(x.contiguous(), dtype)),
    ("aten.view_as_complex.default", lambda x: torch.complex(x[..., 0], x[..., 1])),
    ("aten.view_as_real.default", lambda x: aten.view_as_real(x.resolve_conj())),
    ("aten._reshape_alias.default", lambda x, size, stride: aten.as_strided(x, size, stride, 0)),
    ("aten._reshape_alias.default", lambda x, size, stride: aten.view(x.contiguous(), size)),
    ("aten._conj.default", lambda x: aten.conj_physical(x)),
    ("aten._neg_view.default", lambda x: aten.neg(x)),
]


def _contiguous(x, size):
    meta = torch.empty(x.shape, device="meta").view(size)
    return meta.shape, meta.stride(), x.storage_offset()


@pytest.mark.parametrize(("name", "run"), BROKEN)
def test_a_broken_kernel_is_found(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run)


def test_every_view_of_core_is_here() -> None:
    views_of_core = {str(op) for op in core_aten() if op.is_view}
    assert views_of_core - set(views.SPECS) <= {"aten.lift_fresh.default"}
