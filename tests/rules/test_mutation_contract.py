"""In-place, ``out=`` and view ops inside the mode: the same object, checks, warnings and storage as eager."""

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
NO_VIEWS = ed.core_aten() - ["aten.select.int", "aten.slice.Tensor", "aten.unsqueeze", "aten.squeeze.dims", "aten.diagonal"]


def base() -> torch.Tensor:
    return torch.arange(12.0).reshape(3, 4).clone()


# Functions that write in place to new tensors and return (the written tensor, the result of the call).
IN_PLACE: dict[str, Callable[[torch.Tensor], Any]] = {
    "addcmul_": lambda x: x.addcmul_(torch.ones(3, 4), torch.full((4,), 2.0), value=3),
    "add_ scalar": lambda x: x.add_(2, alpha=3),
    "add_ broadcast": lambda x: x.add_(torch.ones(4)),
    "add_ itself": lambda x: x.add_(x),
    "mul_ integer": lambda x: x.mul_(torch.arange(4)),
    "lerp_": lambda x: x.lerp_(torch.ones(3, 4), 0.25),
    "zero_": lambda x: x.zero_(),
    "fill_": lambda x: x.fill_(True),
    "clamp_": lambda x: x.clamp_(2, 5),
    "masked_fill_": lambda x: x.masked_fill_(x > 4, -1.0),
    "index_fill_": lambda x: x.index_fill_(0, torch.tensor([0, 2]), 7.0),
    "eq_ casts a bool result": lambda x: x.eq_(3.0),
    "silu_": lambda x: torch.nn.functional.silu(x, inplace=True),
    "relu_": lambda x: x.relu_(),
    "sqrt_": lambda x: x.sqrt_(),
    "transposed self": lambda x: x.t().add_(torch.ones(4, 3)),
    "strided self": lambda x: x[:, ::2].mul_(3),
    "addmm_": lambda x: x.addmm_(torch.ones(3, 2), torch.ones(2, 4)),
    "tril_": lambda x: x.tril_(),
    "rsub into view": lambda x: x[1].sub_(1),
    "cumsum_": lambda x: x.cumsum_(0),
    "scatter_add_": lambda x: x.scatter_add_(0, torch.zeros(1, 4, dtype=torch.long), torch.ones(1, 4)),
}


@pytest.mark.parametrize("name", IN_PLACE)
def test_in_place_ops_write_what_eager_writes_and_return_the_same_object(name: str) -> None:
    write = IN_PLACE[name]
    want, got = base(), base()
    write(want)
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(ed.core_aten()):
        version = got._version
        returned = write(got)
    torch.testing.assert_close(got, want)
    assert returned is got or returned._base is got
    assert got._version == version + 1
    assert not recorder.outside(ed.core_aten())


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


OUT: dict[str, Callable[[torch.Tensor], Any]] = {
    "addcmul": lambda out: torch.addcmul(base(), base(), base(), out=out),
    "lerp": lambda out: torch.lerp(base(), base() * 2, 0.5, out=out),
    "add": lambda out: torch.add(base(), 1, alpha=2, out=out),
    "transposed": lambda out: torch.mul(base().t(), 2.0, out=out),
    "sum": lambda out: torch.sum(base(), 1, out=out),
    "mm": lambda out: torch.mm(base(), base().t(), out=out),
    "cat": lambda out: torch.cat([base(), base()], out=out),
    "arange": lambda out: torch.arange(5, out=out),
    "full": lambda out: torch.full((2, 2), 3.0, out=out),
    "eye": lambda out: torch.eye(3, out=out),
    "linspace": lambda out: torch.linspace(0, 1, 5, out=out),
}


@pytest.mark.parametrize("start", [(0,), (3, 4), (2, 5)])
@pytest.mark.parametrize("name", OUT)
def test_out_is_filled_resized_and_returned_as_eager_does(name: str, start: tuple[int, ...]) -> None:
    call = OUT[name]
    want, got = torch.full(start, 9.0), torch.full(start, 9.0)
    with warnings.catch_warnings(record=True) as eager_warnings:
        warnings.simplefilter("always")
        call(want)
    with (
        warnings.catch_warnings(record=True) as our_warnings,
        ed.BackendRecorder() as recorder,
        ed.EagerDecompMode(ed.core_aten()),
    ):
        warnings.simplefilter("always")
        returned = call(got)
    assert returned is got
    torch.testing.assert_close(got, want)
    assert significant_strides(got) == significant_strides(want)
    assert [_resized(w) for w in our_warnings] == [_resized(w) for w in eager_warnings]
    assert not recorder.outside(ed.core_aten())


def _resized(warning: warnings.WarningMessage) -> tuple[type, str]:
    return warning.category, str(warning.message).split(" (Triggered")[0]


def test_out_with_several_results_returns_the_tensors_given() -> None:
    values, indices = torch.empty(0), torch.empty(0, dtype=torch.long)
    with ed.EagerDecompMode(ed.core_aten()):
        returned = torch.max(base(), 1, out=(values, indices))
    assert returned[0] is values
    assert returned[1] is indices
    assert values.tolist() == [3, 7, 11]
    assert indices.tolist() == [3, 3, 3]


VIEWS: dict[str, Callable[[torch.Tensor], Any]] = {
    "t": lambda x: x.t(),
    "transpose": lambda x: x.transpose(0, -1),
    "select": lambda x: x[1],
    "slice": lambda x: x[1:, ::2],
    "unsqueeze": lambda x: x.unsqueeze(1),
    "squeeze": lambda x: x[:, :1].squeeze(),
    "diagonal": lambda x: x.diagonal(),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2, 1)[1],
    "chunk": lambda x: x.chunk(2, 1)[1],
    "unfold": lambda x: x.unfold(1, 2, 1),
    "expand": lambda x: x[:1].expand(3, 4),
    "movedim": lambda x: x.movedim(0, 1),
    "view_as": lambda x: x.view_as(torch.empty(4, 3)),
    "flatten": lambda x: x.flatten(),
    "narrow": lambda x: x.narrow(1, 1, 2),
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "detach": lambda x: x.detach(),
    "real": lambda x: torch.view_as_complex(x.reshape(3, 2, 2)).real,
    "ravel": lambda x: x.ravel(),
    "reshape": lambda x: x.reshape(2, 6),
    "hsplit": lambda x: x.hsplit(2)[1],
    "mT": lambda x: x.mT,
    "broadcast_to": lambda x: x[:, :1].broadcast_to(3, 4),
}


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


METADATA: dict[str, Callable[[torch.Tensor], Any]] = {
    "t_": lambda x: x.t_(),
    "transpose_": lambda x: x.transpose_(0, 1),
    "unsqueeze_": lambda x: x.unsqueeze_(0),
    "squeeze_": lambda x: x.unsqueeze_(0).squeeze_(),
    "squeeze_ dim": lambda x: x.unsqueeze_(0).squeeze_(0),
    "swapaxes_": lambda x: x.swapaxes_(0, 1),
    "as_strided_": lambda x: x.as_strided_((2, 2), (1, 2), 1),
    "resize_": lambda x: x.resize_(2, 2),
    "detach_": lambda x: x.detach_(),
}


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
