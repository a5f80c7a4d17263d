"""Factories by the default type of the moment, and what reaches prims."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from on_core import CORE, on
from torch.autograd import forward_ad
from torch.testing._internal.common_utils import set_default_dtype

import eagerdecomp as ed


def test_a_bool_reaches_prims_fill_as_one() -> None:
    filled: list[Any] = []

    def fill(x: torch.Tensor, value: Any) -> torch.Tensor:
        filled.append(value)
        return torch.ops.prims.fill.default(x, value)  # type: ignore[no-any-return]

    with ed.EagerDecompMode(ed.Backend("mine", ed.prims(), {"prims.fill.default": fill})):
        torch.ones(2, dtype=torch.bool)
    assert [value is True for value in filled] == [True]


def test_the_default_type_is_asked_at_every_call() -> None:
    with on(CORE):
        assert torch.zeros(2).dtype is torch.float32
        with set_default_dtype(torch.float64):
            assert torch.zeros(2).dtype is torch.ones(2).dtype is torch.float64


@pytest.mark.parametrize(
    "tangent",
    [torch.ones(3, 2), torch.ones(2, 5).t(), torch.ones(3, 0), torch.ones(0, 3)],
    ids=("own", "transposed", "empty", "no rows"),
)
def test_zeros_for_a_tangent_have_the_strides_and_the_storage_size_of_eager(tangent: torch.Tensor) -> None:
    zeros_like_feature = torch.ops.aten._new_zeros_with_same_feature_meta.default
    primals = (torch.ones(()), torch.ones(2), torch.ones(6)[1:3], torch.ones(4, 3).t(), torch.ones(5).resize_(4), torch.ones(0, 3))
    for primal in primals:
        for dims in range(3):
            want = zeros_like_feature(tangent, primal, self_num_batch_dims=dims)
            with on(CORE):
                got = zeros_like_feature(tangent, primal, self_num_batch_dims=dims)
            torch.testing.assert_close(got, want, check_stride=True)
            assert (got.storage_offset(), len(got.untyped_storage())) == (want.storage_offset(), len(want.untyped_storage()))


def test_an_in_place_write_of_a_dual_tensor_to_a_view_reaches_the_base() -> None:
    with on(CORE), forward_ad.dual_level():
        base, dual = torch.zeros(2), forward_ad.make_dual(torch.ones(()), torch.tensor(3.0))
        base[0] = dual
        assert forward_ad.unpack_dual(base).tangent.tolist() == [3.0, 0.0]
