"""Padding by sizes that fit, and then by one that does not."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome
from on_core import CORE, on_core

import eagerdecomp as ed


@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize(("mode", "padding", "sizes"), [("reflect", (3, 2), (5, 4, 3, 2)), ("replicate", (-2, -2), (6, 5, 4, 3))])
def test_a_size_that_does_not_fit_is_refused_after_sizes_that_do(mode: str, padding: Any, sizes: Any, ops: ed.OpSet) -> None:
    """A kind of call that eager was asked about has any size, and torch's table entries check none."""
    cache = ed.ProgramCache()
    for size in sizes:
        x = torch.randn(1, 2, size)
        _, want = outcome(lambda: F.pad(x, padding, mode=mode))  # noqa: B023 - called at once
        _, got = outcome(lambda: on_core(lambda: F.pad(x, padding, mode=mode), ops, cache=cache))  # noqa: B023
        assert torch.equal(got, want) if size in sizes[:2] else str(got) == str(want)


@pytest.mark.parametrize("mode", ["reflect", "replicate"])
def test_an_empty_batch_is_padded_without_an_index_which_may_be_huge(mode: str) -> None:
    shape = (0, 3, 4)
    with ed.BackendRecorder() as backend, ed.EagerDecompMode(CORE):
        found = F.pad(torch.ones(shape), (3, 2), mode=mode)
    want = F.pad(torch.ones(shape), (3, 2), mode=mode)
    assert (found.shape, found.stride()) == (want.shape, want.stride())
    assert not {"aten.arange.start_step", "aten.index.Tensor"} & {*map(str, backend.ops)}
