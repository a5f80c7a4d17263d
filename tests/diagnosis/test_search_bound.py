"""The searches for the kernels that would give a call a route: all those of one call share a bound, so that an error comes soon."""

from __future__ import annotations

import pytest
import torch
from torch.nn.functional import silu

import eagerdecomp as ed
from eagerdecomp.diagnosis import no_route
from eagerdecomp.planner.planner import Planner

x = torch.ones(3)


@pytest.mark.parametrize("bound", [40, 1000])
def test_the_searches_of_one_call_share_a_bound(bound: int, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    decide = Planner.decide_for_fakes
    monkeypatch.setattr(Planner, "decide_for_fakes", lambda planner, op: (asked.append(op), decide(planner, op))[1])
    monkeypatch.setattr(no_route, "_MAX_OPS_OF_ALL_SEARCHES", bound)
    with pytest.raises(ed.UnsupportedOpError) as caught, ed.EagerDecompMode(ed.infra(), cache=ed.ProgramCache()):
        torch.i0(x)
    assert 0 < len(asked) <= bound
    assert (("prims.bessel_i0.default",) in caught.value.kernels_to_add) is (bound == 1000)


def test_a_kernel_that_is_found_with_a_bound_gives_a_route() -> None:
    with pytest.raises(ed.UnsupportedOpError) as caught, ed.EagerDecompMode(ed.infra() | ["aten.mul.Tensor"]):
        silu(x)
    for kernels in caught.value.kernels_to_add:
        with ed.EagerDecompMode(ed.infra() | ["aten.mul.Tensor", *kernels]):
            result = silu(x)
        torch.testing.assert_close(result, x.sigmoid())


def test_no_kernel_is_searched_for_a_tensor_that_every_kernel_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    image = torch.randn(1, 2, 8, 8)
    monkeypatch.setattr(Planner, "decide_for_fakes", lambda planner, op: pytest.fail("a search was begun"))
    with pytest.raises(ed.UnsupportedOpError) as caught, ed.EagerDecompMode(ed.Backend("x", ed.tiny(), dtypes={torch.int64})):
        torch.nn.functional.max_pool2d(image, 3)
    assert caught.value.kernels_to_add == ()
    assert "accept a refused call" in str(caught.value)


@pytest.mark.filterwarnings("ignore")
def test_the_error_of_a_view_of_compressed_rows_names_the_op() -> None:
    rows, dense = torch.eye(3).to_sparse_csr(), torch.ones(3, 2)
    with pytest.raises(ed.UnsupportedOpError, match=r"\naten\.mm\.default is not in"), ed.EagerDecompMode(ed.infra()):
        rows.t() @ dense
