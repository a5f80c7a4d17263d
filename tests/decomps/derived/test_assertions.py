"""Assertions about data hold, or raise, as eager's do."""

from __future__ import annotations

import pytest
import torch
from on_core import check, on_core

import eagerdecomp as ed

aten = torch.ops.aten


@pytest.mark.parametrize("value", [True, 1, -2.5, 1j, float("nan")], ids=str)
def test_what_holds_returns_nothing(value: complex) -> None:
    check(torch._assert_async, torch.tensor(value))
    check(torch._assert_async, torch.tensor([[value]]), "it holds")


def test_each_call_looks_at_its_own_data() -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    with mode:
        for _ in range(3):
            torch._assert_async(torch.tensor(True))
        with pytest.raises(RuntimeError, match="got zero"):
            torch._assert_async(torch.tensor(False))
    assert mode.stats()["aten._assert_async.default"].bypassed == 4


def test_a_token_goes_on() -> None:
    token = torch.ones(2)
    result = on_core(lambda: aten._functional_assert_async.msg(torch.tensor(True), "words", token))
    assert torch.equal(result, token)
    assert result is not token
    made = on_core(lambda: aten._make_dep_token())
    assert (made.shape, made.dtype) == ((), torch.float32)


@pytest.mark.full
def test_indices_of_classes_are_looked_at_where_one_hot_is_compiled() -> None:
    compiled = torch.compile(lambda index: torch.nn.functional.one_hot(index, 4), backend=ed.dynamo_backend(ed.core_aten()))
    index = torch.tensor([1, 2])
    with ed.EagerDecompMode(ed.core_aten()):
        result = compiled(index)
        with pytest.raises(RuntimeError, match="smaller than num_classes"):
            compiled(torch.tensor([1, 4]))
    assert torch.equal(result, torch.nn.functional.one_hot(index, 4))
    torch._dynamo.reset()
