"""Comparing a call with plain eager: outcome, values, dtype, shape, strides."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


def outcome(run: Callable[[], Any]) -> tuple[str, Any]:
    """What a call came to: its value, or the type of the error it raised."""
    try:
        return ("value", run())
    except Exception as error:  # the border where an error becomes a result to compare
        return ("error", error)


def assert_same(got: Any, want: Any, *, strides: bool = True, exact: bool = False) -> None:
    """Values within the dtype's usual tolerance (NaN equal), and dtype, shape, strides (of dimensions above 1) exactly.

    With `exact` values are equal bit for bit, zeros by sign too.
    """
    if isinstance(want, Tensor):
        assert isinstance(got, Tensor)
        assert got.dtype is want.dtype
        assert got.shape == want.shape
        if strides and want.numel():
            assert significant_strides(got) == significant_strides(want)
        if want.device.type != "meta":
            tolerance = {"rtol": 0.0, "atol": 0.0} if exact else {}
            torch.testing.assert_close(got, want, equal_nan=True, check_stride=False, **tolerance)
            if exact and want.dtype.is_floating_point:
                assert torch.equal(torch.signbit(got), torch.signbit(want)), "signs of zeros differ"
    elif isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other, strides=strides, exact=exact)
    else:
        assert got == want or (got != got and want != want)
        assert type(got) is type(want)


def significant_strides(tensor: Tensor) -> tuple[int, ...]:
    return tuple(stride for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if size > 1)


def assert_same_outcome(run: Callable[[], Any], reference: Callable[[], Any], *, strides: bool = True) -> None:
    """`run` gives what `reference` gives, error for error by type."""
    kind, want = outcome(reference)
    got_kind, got = outcome(run)
    if kind == "error":
        assert got_kind == "error", f"eager raised {want!r}; got {got!r}"
        assert isinstance(got, type(want)), f"eager raised {want!r}; got {got!r}"
    else:
        assert got_kind == "value", f"eager gave a value; got {got!r}"
        assert_same(got, want, strides=strides)
