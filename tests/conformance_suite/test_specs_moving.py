"""Specs of factory ops, cat, padding, queries and scatter: right kernels pass, broken ones are found."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults

from eagerdecomp.conformance.specs import factories, infra, joining

pytestmark = pytest.mark.full

aten = torch.ops.aten
SPECS = {**factories.SPECS, **joining.SPECS, **infra.SPECS}


# -- right in another way ----------------------------------------------------------------------------------------------------


def arange_in_float32(start, end, step=1, **options):
    made = aten.arange(start, end, step, **options)
    if made.dtype is torch.float32:
        count = made.numel()
        return torch.arange(count, dtype=torch.float32) * step + start
    return made


def cat_by_copies(tensors, dim=0):
    made = torch.empty_like(aten.cat(tensors, dim))
    start = 0
    for one in tensors:
        if one.shape != (0,) or made.dim() == 1:
            made.narrow(dim, start, one.shape[dim]).copy_(one)
            start += one.shape[dim]
    return made


def pad_into_full(x, pad, value=0):
    return aten.constant_pad_nd(x.contiguous(), pad, value).contiguous()


def flip_by_index(x, dims):
    for dim in dims if len({dim % max(1, x.dim()) for dim in dims}) == len(dims) else [99]:
        x = x.flip(dim)
    return x.clone(memory_format=torch.contiguous_format)


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.arange.start_step", arange_in_float32),
    ("aten.cat.default", cat_by_copies),
    ("aten.constant_pad_nd.default", pad_into_full),
    ("aten.flip.default", flip_by_index),
    ("aten.lift_fresh.default", lambda x: aten.alias(x)),
    ("aten.empty.memory_format", lambda size, **options: aten.empty(size, **options).fill_(7)),
    ("aten.repeat.default", lambda x, times: aten.repeat(x.contiguous(), times)),
    ("aten.reflection_pad2d.default", lambda x, pad: aten.reflection_pad2d(x, pad).contiguous()),
]


@pytest.mark.parametrize(("name", "run"), sampled(RIGHT))
def test_a_right_kernel_that_differs_from_eager_passes(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run, 300) == []


# -- broken ------------------------------------------------------------------------------------------------------------------


def arange_by_sums(start, end, step=1, **options):
    made = aten.arange(start, end, step, **options)
    if made.dtype is torch.float32 and made.numel() > 1:
        for place in range(1, made.numel()):
            made[place] = made[place - 1] + step
    return made


def arange_with_its_end(start, end, step=1, **options):
    made = aten.arange(start, end, step, **options)
    over = (end - start) / step % 1
    return torch.cat([made, made[-1:] + step]) if 0 < over < 0.5 and made.dtype is torch.float32 else made


def arange_by_floats(start, end, step=1, **options):
    made = aten.arange(start, end, step, **options)
    return made.float().to(made.dtype) if made.dtype is torch.int64 else made


def arange_rounded_down(start, end, step=1, **options):
    count = max(0, int((end - start) / step)) if step and (end - start) * step >= 0 else -1
    made = aten.arange(start, end, step, **options)
    return made[:count].clone()


def full_as_float(size, value, **options):
    options["dtype"] = options.get("dtype") or (torch.float32 if not isinstance(value, complex) else torch.complex64)
    return aten.full(size, value, **options)


def full_through_float32(size, value, **options):
    return aten.full(size, torch.tensor(value, dtype=torch.float32).item() if isinstance(value, float) else value, **options)


def full_like_without_its_format(x, value, memory_format=None, **options):
    return aten.full_like(x, value, memory_format=None, **options)


def full_like_in_rows(x, value, memory_format=None, **options):
    return aten.full_like(x, value, memory_format=memory_format or torch.contiguous_format, **options)


def full_like_of_its_dtype(x, value, dtype=None, **options):
    return aten.full_like(x, value, **options)


class Pool:
    """Memory handed out more than once."""

    def __init__(self) -> None:
        self.held: dict[Any, torch.Tensor] = {}

    def empty(self, size, **options):
        key = (tuple(size), options.get("dtype"), options.get("memory_format"))
        return self.held.setdefault(key, aten.empty(size, **options)).detach()


def strided_too_short(size, stride, **options):
    made = aten.empty_strided(size, stride, **options)
    short = aten.empty(max(0, made.numel()), dtype=made.dtype)
    behind = 1 + sum((one - 1) * step for one, step in zip(size, stride, strict=True)) if made.numel() else 0
    return made if behind <= short.numel() else short.set_(short.untyped_storage()[: short.numel() * short.element_size()])


def cat_of_the_first_dtype(tensors, dim=0):
    return aten.cat([one.to(tensors[0].dtype) for one in tensors], dim)


def cat_refusing_nothing(tensors, dim=0):
    kept = [one for one in tensors if one.numel()]
    return aten.cat(kept or list(tensors), dim)


def cat_of_one(tensors, dim=0):
    return tensors[0] if len(tensors) == 1 else aten.cat(tensors, dim)


def cat_in_order_of_memory(tensors, dim=0):
    if all(one.dim() == 2 and not one.is_contiguous() and one.t().is_contiguous() for one in tensors):
        return aten.cat([one.as_strided(one.shape, (one.shape[1], 1)) for one in tensors], dim)
    return aten.cat(tensors, dim)


def pad_without_cropping(x, pad, value=0):
    return aten.constant_pad_nd(x, [max(0, one) for one in pad], value)


def pad_from_the_front(x, pad, value=0):
    pairs = [pad[number : number + 2] for number in range(0, len(pad), 2)]
    whole = [[0, 0]] * (x.dim() - len(pairs)) + pairs if len(pad) % 2 == 0 else [pad]
    return aten.constant_pad_nd(x, [one for pair in reversed(whole[-len(pairs) :] if pairs else []) for one in pair], value)


def pad_with_zero(x, pad, value=0):
    return aten.constant_pad_nd(x, pad, 0 if value != value else value)


def pad_of_nothing(x, pad, value=0):
    return x if not any(pad) and len(pad) % 2 == 0 and len(pad) <= 2 * x.dim() else aten.constant_pad_nd(x, pad, value)


def flip_the_first(x, dims):
    return aten.flip(x, dims[:1]) if len(dims) > 2 else aten.flip(x, dims)


def repeat_each(x, times):
    made = aten.repeat(x, times)
    new = len(times) - x.dim()
    if x.dim() and times[-1] > 1 and x.shape[-1] > 1 and new == 0:
        return x.repeat([*times[:-1], 1]).repeat_interleave(times[-1], dim=-1)
    return made


def symmetric_pad(x, pad):
    made = aten.reflection_pad1d(x, pad)
    if 0 < pad[0] <= x.shape[-1]:
        made[..., : pad[0]] = x[..., : pad[0]].flip(-1)
    return made


def reflected_the_other_way(x, pad):
    return aten.reflection_pad2d(x, [*pad[2:], *pad[:2]] if x.shape[-1] == x.shape[-2] else pad)


def reflected_without_batch(x, pad):
    return aten.reflection_pad3d(x if x.dim() == 5 else x[None], pad)


def replicated_with_zeros(x, pad):
    return torch.nn.functional.pad(x, pad) if max(pad) > 2 else aten.replication_pad2d(x, pad)


def replicated_once(x, pad):
    made = aten.replication_pad3d(x, pad)
    if pad[4] > 1:
        made[..., 0, :, :] = 0
    return made


def dense_truncated(x):
    value = x.item()
    return float(torch.tensor(value, dtype=torch.float32)) if isinstance(value, float) else value


def int_of_bool(x):
    value = x.item()
    return int(value) if isinstance(value, bool) else value


def resized_again(x, size, **options):
    return x.set_(aten.empty(size, dtype=x.dtype, **options))


def resized_from_zero(x, size, **options):
    if x.numel() == math.prod(size):
        return aten.resize_(x, size, **options)
    aten.resize_(x, size, **options)
    return x.zero_()


def set_from_the_start(x, source):
    return x.set_(source.untyped_storage(), 0, source.shape, source.stride())


def set_to_a_copy(x, source):
    return x.set_(source.clone(memory_format=torch.preserve_format))


def set_without_strides(x, storage, offset, size, stride=()):
    return aten.set_.source_Storage_storage_offset(x, storage, offset, size, [])


def set_copied(x, storage):
    return x.set_(storage.clone())


BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("aten.arange.start_step", arange_by_sums),
    ("aten.arange.start_step", arange_with_its_end),
    ("aten.arange.start_step", arange_by_floats),
    ("aten.arange.start_step", arange_rounded_down),
    ("aten.full.default", full_as_float),
    ("aten.full.default", full_through_float32),
    ("aten.full.default", lambda size, value, **options: aten.full([1], value, **options).expand(size)),
    ("aten.full_like.default", full_like_without_its_format),
    ("aten.full_like.default", full_like_in_rows),
    ("aten.full_like.default", full_like_of_its_dtype),
    ("aten.scalar_tensor.default", lambda value, **options: torch.tensor(value, **options)),
    ("aten.scalar_tensor.default", lambda value, **options: aten.scalar_tensor(value, **options)[None]),
    ("aten.empty.memory_format", Pool().empty),
    ("aten.empty.memory_format", lambda size, memory_format=None, **options: aten.empty(size, **options)),
    ("aten.empty_strided.default", lambda size, stride, **options: aten.empty(size, **options)),
    ("aten.empty_strided.default", strided_too_short),
    ("aten.cat.default", cat_of_the_first_dtype),
    ("aten.cat.default", cat_refusing_nothing),
    ("aten.cat.default", cat_of_one),
    ("aten.cat.default", cat_in_order_of_memory),
    ("aten.cat.default", lambda tensors, dim=0: aten.cat(tensors, abs(dim))),
    ("aten.cat.default", lambda tensors, dim=0: aten.cat(tensors[:16], dim)),
    ("aten.cat.default", lambda tensors, dim=0: aten.cat(tensors, dim).contiguous()),
    ("aten.constant_pad_nd.default", pad_without_cropping),
    ("aten.constant_pad_nd.default", pad_from_the_front),
    ("aten.constant_pad_nd.default", pad_with_zero),
    ("aten.constant_pad_nd.default", pad_of_nothing),
    ("aten.flip.default", flip_the_first),
    ("aten.flip.default", lambda x, dims: aten.flip(x, dims) if dims else x),
    ("aten.flip.default", lambda x, dims: aten.flip(x, [dim for dim in dims if dim >= 0])),
    ("aten.repeat.default", repeat_each),
    ("aten.repeat.default", lambda x, times: aten.repeat(x, [max(1, one) for one in times])),
    ("aten.repeat.default", lambda x, times: aten.expand(x, [*times[: len(times) - x.dim()], *x.shape]).clone()),
    ("aten.reflection_pad1d.default", symmetric_pad),
    ("aten.reflection_pad1d.default", lambda x, pad: aten.reflection_pad1d(x, pad[::-1])),
    ("aten.reflection_pad2d.default", reflected_the_other_way),
    ("aten.reflection_pad3d.default", reflected_without_batch),
    ("aten.replication_pad2d.default", replicated_with_zeros),
    ("aten.replication_pad2d.default", lambda x, pad: aten.replication_pad2d(x, [max(0, one) for one in pad])),
    ("aten.replication_pad3d.default", replicated_once),
    ("aten.is_pinned.default", lambda x: True),
    ("aten.is_same_size.default", lambda one, other: one.numel() == other.numel()),
    ("aten.is_same_size.default", lambda one, other: all(a == b for a, b in zip(one.shape, other.shape, strict=False))),
    ("aten.is_same_size.default", lambda one, other: torch.tensor(one.shape == other.shape)),
    ("aten.lift_fresh.default", lambda x: x.clone()),
    ("aten._local_scalar_dense.default", dense_truncated),
    ("aten._local_scalar_dense.default", int_of_bool),
    ("aten._local_scalar_dense.default", lambda x: torch.empty(0, dtype=x.dtype).set_(x.untyped_storage())[0].item()),
    ("aten.sym_size.int", lambda x, dim: x.shape[abs(dim)]),
    ("aten.sym_stride.int", lambda x, dim: x.contiguous().stride(dim)),
    ("aten.sym_numel.default", lambda x: x.untyped_storage().nbytes() // x.element_size()),
    ("aten.sym_storage_offset.default", lambda x: 0),
    ("aten.sym_storage_offset.default", lambda x: x.storage_offset() * x.element_size()),
    ("aten.sym_is_contiguous.default", lambda x, form=torch.contiguous_format: x.is_contiguous()),
    ("aten.resize_.default", resized_again),
    ("aten.resize_.default", resized_from_zero),
    ("aten.resize_.default", lambda x, size, memory_format=None: aten.resize_(x, size)),
    ("aten.set_.default", lambda x: x.resize_(0)),
    ("aten.set_.source_Tensor", set_from_the_start),
    ("aten.set_.source_Tensor", set_to_a_copy),
    ("aten.set_.source_Storage", set_copied),
    ("aten.set_.source_Storage_storage_offset", set_without_strides),
]


@pytest.mark.parametrize(("name", "run"), BROKEN)
def test_a_broken_kernel_is_found(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run)
