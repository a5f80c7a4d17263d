"""Assertions about data hold, or raise, as eager's do."""

from __future__ import annotations

import pytest
import torch

import eagerdecomp as ed


def test_each_call_looks_at_its_own_data() -> None:
    mode = ed.EagerDecompMode(ed.core_aten())
    with mode:
        for _ in range(3):
            torch._assert_async(torch.tensor(True))
        with pytest.raises(RuntimeError, match="got zero"):
            torch._assert_async(torch.tensor(False))
    assert mode.stats()["aten._assert_async.default"].bypassed == 4


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
