"""Packed values survive the way through JSON unchanged."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
import torch
from proxy.wire import from_bytes, pack, to_bytes, unpack


def crossed(value: Any) -> Any:
    return unpack(
        json.loads(json.dumps(pack(value, lambda tensor: {"sum": tensor.sum().item()}))), lambda reported: reported, "cpu"
    )


@pytest.mark.parametrize(
    "value",
    [
        None,
        True,
        3,
        2**62,
        -0.0,
        float("inf"),
        1 + 2j,
        "mean",
        [1, [2.5, None]],
        torch.bfloat16,
        torch.strided,
        torch.channels_last,
        torch.device("cpu"),
    ],
)
def test_a_value_crosses(value: Any) -> None:
    assert crossed(value) == value
    assert type(crossed(value)) is type(value)


def test_what_is_no_number_and_a_signed_zero_cross() -> None:
    assert math.isnan(crossed(float("nan")))
    assert math.copysign(1, crossed(-0.0)) == -1


def test_tensors_cross_as_they_are_described() -> None:
    assert crossed([torch.ones(3), torch.ones(2)]) == [{"sum": 3.0}, {"sum": 2.0}]


@pytest.mark.parametrize("value", [torch.Generator(), object(), {"a": 1}, lambda: None])
def test_nothing_else_crosses(value: Any) -> None:
    with pytest.raises(TypeError, match=type(value).__name__):
        crossed(value)


def test_a_name_of_something_else_is_refused() -> None:
    with pytest.raises(TypeError, match="no dtype"):
        unpack({"dtype": "load"}, lambda reported: reported, "cpu")


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.int8, torch.bool, torch.complex64])
@pytest.mark.parametrize("make", [lambda x: x, lambda x: x.t(), lambda x: x[1:, ::2], lambda x: x[0, 0], lambda x: x[:0]])
def test_bytes_are_the_elements_by_rising_indices(dtype: torch.dtype, make: Any) -> None:
    value = make(torch.arange(12).reshape(3, 4).to(dtype))
    assert torch.equal(from_bytes(to_bytes(value), dtype, value.shape), value)
