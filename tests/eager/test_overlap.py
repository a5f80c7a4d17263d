"""Writes to a tensor that overlaps an argument raise an error for the same ops as in eager."""

from __future__ import annotations

import functools
from collections.abc import Callable

import pytest
import torch
from on_core import CORE, check, on_core

import eagerdecomp as ed
from eagerdecomp.eager import out_quirks

aten = torch.ops.aten


def test_a_gather_into_its_index_equals_eager() -> None:
    check(lambda values, index: torch.gather(values, 0, index, out=index), torch.tensor([5, 6, 7]), torch.tensor([2, 0, 1]))


def _fill_row(x: torch.Tensor) -> None:
    x[0] = x[0][0]


def _fill_all(x: torch.Tensor) -> None:
    x.fill_(x[0, 1])


def _fill_view(x: torch.Tensor) -> None:
    x.t()[1:].fill_(x[1, 2])


@pytest.mark.parametrize("fill", [_fill_row, _fill_all, _fill_view])
def test_a_fill_by_an_element_of_the_written_tensor_works(fill: Callable[[torch.Tensor], None]) -> None:
    want = torch.arange(12.0).view(3, 4)
    fill(want)
    for ops in (CORE, ed.prims()):
        got = torch.arange(12.0).view(3, 4)
        on_core(functools.partial(fill, got), ops)
        assert torch.equal(got, want)


def _by_mask(x: torch.Tensor) -> None:
    x[x > 3] = x[0, 0]


def _by_mask_of_columns(x: torch.Tensor) -> None:
    x[:, x[0] > 1] = x[0, 0]


@pytest.mark.full
@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
@pytest.mark.parametrize("write", [_by_mask, _by_mask_of_columns])
def test_masked_fill_by_an_element_of_the_written_tensor_works(write: Callable[[torch.Tensor], None], ops: ed.OpSet) -> None:
    check(write, torch.arange(12.0).view(3, 4), ops=ops, exact=True)


def test_every_name_of_the_table_is_an_op() -> None:
    for name, quirks in out_quirks._TABLE.items():
        assert hasattr(functools.reduce(getattr, name.split("."), aten), "_schema" if "." in name else "overloads"), name
        packet = getattr(aten, name.partition(".")[0])
        arguments = {argument.name for each in packet.overloads() for argument in getattr(packet, each)._schema.arguments}
        for entry in (*quirks.no_overlap, *quirks.no_partial_overlap):
            assert set(entry.split("/")) <= arguments, (name, entry)
