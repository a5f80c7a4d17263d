"""In-place and ``out=`` ops inside the mode bump versions as in eager."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.eager.observe import significant_strides

aten = torch.ops.aten


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).clone()


COUNTED: dict[str, Callable[[torch.Tensor], Any]] = {
    "a composite in place": lambda x: aten.arcsinh_.default(x),
    "a composite in place with a number": lambda x: aten.clip_.default(x, 0, 1),
    "a composite that leaves all as it was": lambda x: aten.dropout_.default(x, 0.0, True),
    "a composite out": lambda x: aten.fft_ihfft2.out(torch.ones(3, 4), out=x),
    "a composite that writes to a view": lambda x: aten.kron.out(torch.ones(1, 4), torch.ones(3, 1), out=x),
    "an out that torch generated": lambda x: aten.avg_pool1d.out(torch.ones(2, 3, 4), [2], out=x),
    "an out of two overloads": lambda x: aten.upsample_nearest2d.vec_out(torch.ones(1, 1, 2, 2), [3, 4], None, out=x),
    "a list in place": lambda x: aten._foreach_add_.Scalar([x], 1),
}


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", COUNTED)
def test_version_bumps_that_eager_makes_below_the_op_are_made(name: str, inference: bool) -> None:
    if "to a view" in name and not inference:
        pytest.skip("under any mode eager takes another way")
    counts = []
    for mode in (contextlib.nullcontext(), ed.EagerDecompMode(ed.core_aten())):
        written = base().to(torch.complex64) if name == "a composite out" else base()
        with warnings.catch_warnings(), mode, torch.inference_mode(inference):
            warnings.simplefilter("ignore")
            COUNTED[name](written)
        counts.append(written._version > 0)
    assert counts[0] == counts[1]


NO_VIEWS = ed.core_aten() - ["aten.select.int", "aten.slice.Tensor", "aten.unsqueeze", "aten.squeeze.dims", "aten.diagonal"]

VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "select": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "squeeze": lambda x: x[:, :1].squeeze(),
    "unbind": lambda x: x.unbind(1)[2],
    "real": lambda x: torch.view_as_complex(x.reshape(3, 2, 2)).real,
    "hsplit": lambda x: x.hsplit(2)[1],
}

METADATA: dict[str, Callable[[torch.Tensor], Any]] = {
    "t_": lambda x: x.t_(),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 2), 1),
    "resize_": lambda x: x.resize_(2, 2),
    "detach_": lambda x: x.detach_(),
}


def test_out_with_several_results_returns_the_tensors_given() -> None:
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    with ed.EagerDecompMode(ed.core_aten()):
        returned = torch.max(base(), 1, out=(values, indices))
    assert returned[0] is values
    assert returned[1] is indices
    assert values.tolist() == [3, 7, 11]
    assert indices.tolist() == [3, 3, 3]


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("op_set", [ed.core_aten(), NO_VIEWS], ids=["core", "few views"])
@pytest.mark.parametrize("name", VIEWS)
def test_views_stay_views_of_the_same_storage(name: str, op_set: ed.OpSet, inference: bool) -> None:
    view = VIEWS[name]
    with torch.inference_mode(inference):
        source = base()
        want = view(source)
        for offset in (0, 2):
            # A program recorded without a storage offset must not run for a call with one.
            padded = torch.cat([torch.zeros(offset), source.reshape(-1)])[offset:].view(3, 4)
            with ed.BackendRecorder() as recorder, ed.EagerDecompMode(op_set):
                for _ in range(3):
                    got = view(padded)
            assert got.untyped_storage().data_ptr() == padded.untyped_storage().data_ptr()
            assert significant_strides(got) == significant_strides(want)
            assert got.storage_offset() - offset == want.storage_offset()
            torch.testing.assert_close(got, want)
            assert not recorder.outside(op_set)


@pytest.mark.parametrize("name", METADATA)
def test_in_place_views_change_the_object_itself(name: str) -> None:
    change = METADATA[name]
    want, got = base(), base()
    change(want)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten()):
        returned = change(got)
    assert returned is got
    assert (got.shape, got.stride(), got.storage_offset()) == (want.shape, want.stride(), want.storage_offset())
    assert torch.equal(got, want)
    assert not recorder.outside(ed.core_aten())


def test_writes_through_a_view_reach_the_base_and_its_gradient() -> None:
    def run() -> tuple[torch.Tensor, torch.Tensor]:
        leaf = torch.arange(6.0, requires_grad=True)
        x = leaf * 2
        x[1:3].mul_(3)
        x.view(2, 3)[0].add_(1)
        (x * x).sum().backward()
        assert leaf.grad is not None
        return x.detach(), leaf.grad

    want = run()
    with ed.EagerDecompMode(NO_VIEWS):
        got = run()
    torch.testing.assert_close(got, want)
