"""Assert that results and errors equal those of plain eager. The comparison is `eagerdecomp.eager.compare`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.eager.compare import leaf_difference
from eagerdecomp.eager.observe import all_strides
from eagerdecomp.eager.tolerance import Tolerance, tolerance_of_assert_close


def outcome(run: Callable[[], Any]) -> tuple[str, Any]:
    """Run a call; return ``("value", its result)`` or ``("error", the exception)``."""
    try:
        return ("value", run())
    except Exception as error:  # any error is a result to compare
        return ("error", error)


def assert_same(got: Any, want: Any, *, strides: bool = True, exact: bool = False) -> None:
    """Assert that two results are equal: values within the dtype's tolerance (NaN equals NaN), dtype, shape and strides exactly.

    Strides of dimensions of size 1 count too, because a later op may read a memory format from them. With `exact`, values must be
    equal bit for bit, including the signs of zeros.
    """
    if isinstance(want, (list, tuple)):
        assert len(got) == len(want)
        for one, other in zip(got, want, strict=True):
            assert_same(one, other, strides=strides, exact=exact)
        return
    tolerance = _none if exact else tolerance_of_assert_close
    difference = leaf_difference("got", want, got, strides="any", tolerance=tolerance)
    assert difference is None, str(difference)
    if isinstance(want, Tensor):
        assert not strides or all_strides(got) == all_strides(want)  # those of meta tensors too
        if exact and want.dtype.is_floating_point and want.device.type != "meta":
            assert torch.equal(torch.signbit(got), torch.signbit(want)), "signs of zeros differ"


def _none(dtype: torch.dtype) -> Tolerance | None:
    return Tolerance(0.0, 0.0, 0.0) if tolerance_of_assert_close(dtype) else None
