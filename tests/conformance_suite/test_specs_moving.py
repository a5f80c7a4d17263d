"""Right kernels of moves, and broken ones of `infra`, of ops that the kill matrix has none of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import first_faults

pytestmark = pytest.mark.full

aten = torch.ops.aten


# -- right in another way ----------------------------------------------------------------------------------------------------


def arange_in_float32(start, end, step=1, **options):
    made = aten.arange(start, end, step, **options)
    if made.dtype is torch.float32:
        count = made.numel()
        return torch.arange(count, dtype=torch.float32) * step + start
    return made


def pad_into_full(x, pad, value=0):
    return aten.constant_pad_nd(x.contiguous(), pad, value).contiguous()


def flip_by_index(x, dims):
    for dim in dims if len({dim % max(1, x.dim()) for dim in dims}) == len(dims) else [99]:
        x = x.flip(dim)
    return x.clone(memory_format=torch.contiguous_format)


RIGHT: list[tuple[str, Callable[..., Any]]] = [
    ("aten.arange.start_step", arange_in_float32),
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


def set_copied(x, storage):
    return x.set_(storage.clone())


BROKEN: list[tuple[str, Callable[..., Any]]] = [
    ("aten.is_pinned.default", lambda x: True),
    ("aten.sym_numel.default", lambda x: x.untyped_storage().nbytes() // x.element_size()),
    ("aten.sym_is_contiguous.default", lambda x, form=torch.contiguous_format: x.is_contiguous()),
    ("aten.set_.default", lambda x: x.resize_(0)),
    ("aten.set_.source_Storage", set_copied),
]


@pytest.mark.parametrize(("name", "run"), BROKEN)
def test_a_broken_kernel_is_found(name: str, run: Callable[..., Any]) -> None:
    assert first_faults(name, run)
