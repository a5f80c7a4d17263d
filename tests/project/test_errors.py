"""Errors are reports for people and values for programs, and survive pickling and copying."""

from __future__ import annotations

import copy
import pickle
import re

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp import errors
from eagerdecomp.errors import Attempt, UnsupportedOpError

FULL = UnsupportedOpError(
    "aten.silu.default",
    "aten.silu.default(f32[2, 3])",
    chain=["aten.silu.default", "aten.sigmoid.default"],
    missing=["aten.sigmoid.default"],
    tried=[Attempt("aten.silu.default", "core rule torch._refs.silu", "needs aten.sigmoid.default, which has no route")],
    kernels_to_add=[["aten.silu.default"], ["aten.sigmoid.default", "aten.mul.Tensor"]],
    op_set="OpSet(mine: 2 ops)",
    hint="a word of advice",
)

BARE = UnsupportedOpError("aten.opaque.default", "aten.opaque.default(3)")
SECOND = UnsupportedOpError(
    "aten.b.default", "aten.b.default(3)", gaps=["aten.a.default", "aten.b.default"], additions=["aten.c.default", "aten.b.default"]
)
INSTALLED = UnsupportedOpError("aten.opaque.default", "aten.opaque.default(3)", may_fall_back=False)


def test_a_mode_lists_the_gaps_of_earlier_calls_too_and_its_line_opens_them_all() -> None:
    ops = ed.infra() | ["aten.mul.Tensor"]
    x = torch.randn(3)
    calls = [torch.nn.functional.silu, torch.sigmoid, torch.cos]
    with ed.EagerDecompMode(ops):
        for call in calls:
            with pytest.raises(ed.UnsupportedOpError) as caught:
                call(x)
    error = caught.value
    assert error.gaps == ("aten.silu.default", "aten.sigmoid.default", "aten.cos.default")
    assert error.additions == ("aten.sigmoid.default", "aten.cos.default")  # silu closes by sigmoid
    (line,) = re.findall(r"line to paste, once you have the kernels: (.*)", str(error))
    with ed.EagerDecompMode(eval(line, {"ops": ops})):
        for call in calls:
            call(x)


FIELDS = ("op", "call", "chain", "missing", "tried", "kernels_to_add", "op_set", "hint", "may_fall_back", "gaps", "additions")


@pytest.mark.parametrize("error", [FULL, BARE, SECOND, INSTALLED], ids=["full", "bare", "second", "installed"])
@pytest.mark.parametrize(
    "through", [lambda e: pickle.loads(pickle.dumps(e)), copy.copy, copy.deepcopy], ids=["pickle", "copy", "deep"]
)
def test_an_error_survives_with_every_field(error: UnsupportedOpError, through) -> None:
    again = through(error)
    assert type(again) is UnsupportedOpError
    assert str(again) == str(error)
    assert [getattr(again, name) for name in FIELDS] == [getattr(error, name) for name in FIELDS]


def test_every_error_reports_cause_and_cure() -> None:
    kinds = [getattr(errors, name) for name in errors.__all__]
    for kind in kinds:
        if isinstance(kind, type) and issubclass(kind, Exception):
            assert "Cause: " in (kind.__doc__ or ""), kind
            assert "Cure: " in (kind.__doc__ or ""), kind
