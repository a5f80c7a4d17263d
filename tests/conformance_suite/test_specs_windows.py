"""Right kernels of pools and resampling that differ from eager pass, of ops that have no equivalent in the kill matrix."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from sampled import sampled
from spec_trials import overload, run_trial, with_eager_errors
from torch import Tensor

pytestmark = pytest.mark.full

aten = torch.ops.aten


def _in_float64(op: str) -> Callable[..., Any]:
    """Eager's kernel in float64, its results brought back: a kernel that rounds once."""
    run = overload(f"aten.{op}")

    def kernel(*args: Any) -> Any:
        eager = run(*args)
        wide = run(*(one.double() if isinstance(one, Tensor) and one.is_floating_point() else one for one in args))
        return torch.empty_like(eager).copy_(wide)

    return kernel


def _max_pool_with_the_first_nan(one: Tensor, *rest: Any) -> Any:
    values, places = aten.max_pool2d_with_indices(one, *rest)
    if one.is_floating_point():
        nan = one.isnan().flatten(-2)
        first = nan.int().argmax(-1)[..., None, None].expand(places.shape)
        whole = list(rest[0]) in ([one.shape[-2], one.shape[-1]], [one.shape[-1]] if one.shape[-1] == one.shape[-2] else [])
        places = torch.where(values.isnan() & torch.tensor(whole), first, places) if places.numel() else places
    return values, places


RIGHT: dict[str, tuple[str, Callable[..., Any]]] = {
    **{
        f"{op} rounds once": (op, _in_float64(op))
        for op in (
            "avg_pool1d.default",
            "max_pool2d_with_indices_backward.default",
            "_adaptive_avg_pool2d_backward.default",
            "_adaptive_avg_pool3d.default",
            "grid_sampler_2d.default",
            "upsample_nearest2d.vec",
        )
    },
    "max_pool2d points to any nan": ("max_pool2d_with_indices.default", _max_pool_with_the_first_nan),
}


@pytest.mark.parametrize("what", sampled(RIGHT))
def test_right_kernels_that_differ_from_eager_pass(what: str) -> None:
    op, kernel = RIGHT[what]
    name = f"aten.{op}"
    assert not run_trial(name, with_eager_errors(name, kernel), cases=150).found
