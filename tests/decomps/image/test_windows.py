"""The least and the largest window of pooling, without a list of them all."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

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
