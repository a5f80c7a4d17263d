"""The least and the largest window of pooling, without a list of them all; inputs without elements."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st
from on_core import check

from eagerdecomp.decomps.image.pooling import _spans
from eagerdecomp.decomps.math.pool_windows import adaptive_extents, window_count

SIZES = st.integers(1, 40)


@given(SIZES, SIZES)
def test_adaptive_windows(size: int, count: int) -> None:
    every = [-(-(at + 1) * size // count) - at * size // count for at in range(count)]
    assert adaptive_extents(size, count) == (min(every), max(every))


@given(SIZES, st.integers(1, 7), st.integers(1, 7), st.integers(0, 3), st.booleans(), st.booleans())
def test_padded_windows(size: int, kernel: int, stride: int, padding: int, ceil_mode: bool, with_padding: bool) -> None:
    assume(2 * padding <= kernel <= size + 2 * padding)
    count = window_count(size, (kernel, stride, padding, 1), ceil_mode)
    starts = range(-padding, count * stride - padding, stride)
    if with_padding:
        every = [min(start + kernel, size + padding) - start for start in starts]
    else:
        every = [min(start + kernel, size) - max(start, 0) for start in starts]
    some = _spans((kernel, stride, padding, size, count), with_padding)
    assert (min(some), max(some)) == (min(every), max(every))


def _fractional(x: torch.Tensor) -> Any:
    dims = x.dim() - 2
    pool = torch.ops.aten.fractional_max_pool2d if dims == 2 else torch.ops.aten.fractional_max_pool3d
    return pool(x, [2] * dims, [2] * dims, torch.rand(*x.shape[:2], dims))


def _adaptive(x: torch.Tensor) -> Any:
    return torch.ops.aten.adaptive_max_pool3d(x, [2, 2, 2])


@pytest.mark.parametrize(("pool", "dims"), [(_fractional, 2), (_fractional, 3), (_adaptive, 3)])
def test_only_the_batch_may_be_empty(pool: Any, dims: int) -> None:
    """A program that was recorded for an empty batch does not run for empty channels, which eager refuses."""

    def both(batch: torch.Tensor, channels: torch.Tensor) -> Any:
        pool(batch)
        return pool(channels)

    size = [4] * dims
    check(pool, torch.ones(0, 3, *size))
    check(both, torch.ones(0, 3, *size), torch.ones(2, 0, *size))
