"""The mode on the device: printing, errors in backward, moving modules, and other devices."""

from __future__ import annotations

import subprocess
import sys
import threading
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import npu
import pytest
import torch
from torch import Tensor
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

import eagerdecomp as ed
from eagerdecomp.device import backward_errors

aten = torch.ops.aten
FEW = ed.Backend("without erf", npu.backend.ops - ["aten.erf"], device_type="npu")


@pytest.fixture
def x() -> Tensor:
    return torch.linspace(-2, 3, 12).reshape(3, 4)


# -- printing ------------------------------------------------------------------------------------------------------------

PRINTED: dict[str, Callable[[Tensor], Tensor]] = {
    "floats": lambda x: x,
    "integers": lambda x: x.long(),
    "a view": lambda x: x.t(),
    "conjugated": lambda x: torch.view_as_complex(x.view(3, 2, 2)).conj(),
    "a number": lambda x: x[0, 0],
    "many": lambda x: x.repeat(100, 10),
    "none": lambda x: x[:0],
}


@pytest.mark.parametrize("what", list(PRINTED))
@pytest.mark.parametrize("form", ["mode", "installed", "alone"])
def test_a_tensor_prints_as_on_the_cpu_with_its_device(form: str, what: str, x: Tensor) -> None:
    here = PRINTED[what](x)
    there = here.npu()
    ways: dict[str, Callable[[], Any]] = {
        "mode": lambda: ed.EagerDecompMode(npu.backend),
        "installed": lambda: ed.install(npu.backend, "npu"),
        "alone": torch.no_grad,
    }
    with ways[form]():
        printed = repr(there)
    assert "device='npu:0'" in printed
    assert "".join(printed.split()).replace(",device='npu:0'", "") == "".join(repr(here).split())


# -- integers that only the CPU rejects -------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.int32, torch.int64, torch.int8])
@pytest.mark.parametrize(("bins", "least", "greatest"), [(4, 0, 3), (5, 1, 9), (3, 0, 0), (2, 4, 4), (7, -3, 2)])
def test_integers_are_counted_where_the_cpu_would_refuse_them(dtype: torch.dtype, bins: int, least: int, greatest: int) -> None:
    here = torch.tensor([0, 3, 3, 1, 2, 9, 1, 0, 4], dtype=dtype)
    with pytest.raises(NotImplementedError, match="histogram_cpu"):
        torch.histc(here, bins, least, greatest)
    with ed.install(npu.backend, "npu"):
        counted = torch.histc(here.npu(), bins, least, greatest)
    assert counted.dtype is dtype
    assert counted.tolist() == torch.histc(here.double(), bins, least, greatest).tolist()


# -- other dtypes that only the CPU rejects -----------------------------------------------------------------------------------


def images(x: Tensor) -> Tensor:
    return x.reshape(1, 2, 6, 5)


#: A call, and the dtypes that eager takes on CUDA and not on the CPU.
MORE_DTYPES: dict[str, tuple[Callable[[Tensor], Tensor], list[torch.dtype]]] = {
    "antialiased, smaller": (lambda x: aten._upsample_bilinear2d_aa(images(x), [3, 2], False), [torch.float16, torch.bfloat16]),
    "antialiased, larger": (lambda x: aten._upsample_bicubic2d_aa(images(x), [7, 9], True), [torch.float16, torch.bfloat16]),
    "antialiased, backward": (
        lambda x: aten._upsample_lanczos2d_aa_backward(images(x), [6, 5], [1, 2, 9, 7], False),
        [torch.float16, torch.bfloat16],
    ),
    "nansum": (torch.nansum, [torch.complex64, torch.complex128]),
    "nansum of a dimension": (lambda x: x.reshape(6, 10).nansum(1, keepdim=True), [torch.complex64]),
    "rrelu": (lambda x: F.rrelu(x, 0.5, 0.5, training=True), [torch.float16]),
}


@pytest.mark.parametrize(("name", "dtype"), [(name, dtype) for name, (_, dtypes) in MORE_DTYPES.items() for dtype in dtypes])
def test_dtypes_that_only_the_cpu_rejects_are_computed(name: str, dtype: torch.dtype) -> None:
    call, _ = MORE_DTYPES[name]
    here = torch.linspace(-2, 3, 60).to(dtype)
    if dtype.is_complex:
        here = here * (1 + 2j)
        here[::7] = float("nan")
        want = call(torch.where(here.isnan(), 0, here).real) * (1 + 2j)
    else:
        want = call(here.float()).to(dtype)
    with pytest.raises((NotImplementedError, RuntimeError), match=r"not implemented for|on CPU does not support"):
        call(here)
    with ed.install(npu.backend, "npu"):
        found = call(here.npu())
    assert found.dtype is dtype
    torch.testing.assert_close(found.cpu(), want)


# -- writes that only the CPU makes by a mask ---------------------------------------------------------------------------------


def test_a_value_that_overlaps_its_target_is_refused_off_the_cpu() -> None:
    """Eager fills by the mask if the value is one number on the CPU, and then reads the value before it writes."""
    mask = torch.tensor([True, False, True, True])
    here, there = torch.arange(4.0), torch.arange(4.0).npu()
    with ed.install(ed.core_aten(), "cpu"), ed.install(npu.backend, "npu"):
        here.index_put_((mask,), here[:1])
        with pytest.raises(ed.UnsupportedOpError, match="index_put_"):
            there.index_put_((mask.npu(),), there[:1])
        there.index_put_((mask.npu(),), torch.tensor(7.0))
    assert here.tolist() == [0.0, 1.0, 0.0, 0.0]
    assert there.tolist() == [7.0, 1.0, 7.0, 7.0]


# -- errors in backward --------------------------------------------------------------------------------------------------


def backward(x: Tensor) -> None:
    F.gelu(x).sum().backward()


def gradient(x: Tensor) -> None:
    torch.autograd.grad(F.gelu(x).sum(), x)


def checkpointed(x: Tensor) -> None:
    checkpoint(F.gelu, x, use_reentrant=True).sum().backward()


def twice(x: Tensor) -> None:
    (first,) = torch.autograd.grad(x.square().sum(), x, create_graph=True)
    (F.gelu(x) * first).sum().backward()


@pytest.mark.parametrize("step", [backward, gradient, checkpointed, twice])
@pytest.mark.parametrize("form", ["mode", "installed"])
def test_an_op_without_a_route_in_backward_arrives_as_its_error(form: str, step: Callable[[Tensor], None], x: Tensor) -> None:
    given = x.npu().requires_grad_()
    for _ in range(2):
        way = ed.EagerDecompMode(FEW) if form == "mode" else ed.install(FEW, "npu")
        with way, pytest.raises(ed.UnsupportedOpError, match="erf") as caught:
            step(given)
        assert caught.value.kernels_to_add
    with ed.EagerDecompMode(npu.backend):
        given.grad = None
        step(given)


def test_other_errors_arrive_too_and_none_is_kept(x: Tensor) -> None:
    def refuse(gradient: Tensor) -> Tensor:
        raise KeyError("mine")

    given = x.npu().requires_grad_()
    with ed.EagerDecompMode(npu.backend):
        out = given * 2
        out.register_hook(refuse)
        with pytest.raises(KeyError, match="mine"):
            out.sum().backward()
    with pytest.raises(RuntimeError, match="does not require grad"):
        x.sum().backward()
    assert backward_errors._stored == []


def test_an_error_of_another_thread_arrives_there(x: Tensor) -> None:
    seen: list[BaseException] = []

    def run() -> None:
        try:
            with ed.EagerDecompMode(FEW):
                backward(x.npu().requires_grad_())
        except ed.UnsupportedOpError as error:
            seen.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    assert len(seen) == 1


def test_a_process_that_saw_one_ends_as_it_says() -> None:
    script = (
        "import torch, npu, eagerdecomp as ed\n"
        "few = ed.Backend('few', npu.backend.ops - ['aten.erf'], device_type='npu')\n"
        "x = torch.ones(3).npu().requires_grad_()\n"
        "with ed.EagerDecompMode(few):\n"
        "    torch.nn.functional.gelu(x).sum().backward()\n"
    )
    ended = subprocess.run(
        [sys.executable, "-c", script], cwd=Path(__file__).parents[1], capture_output=True, text=True, timeout=300, check=False
    )
    assert ended.returncode == 1, ended.stderr
    assert "UnsupportedOpError: aten.gelu" in ended.stderr


# -- modules that move ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("watched", [False, True])
def test_tied_weights_stay_tied_where_a_module_moves(watched: bool) -> None:
    """Also if torch cannot swap the contents of a parameter, because there is a weak reference to it."""
    tied = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    tied[1].weight = weight = tied[0].weight
    watching = weakref.ref(weight) if watched else None
    optimizer = torch.optim.SGD(tied.parameters(), lr=0.1)
    tied.npu()
    assert tied[0].weight.is_npu
    assert tied[0].weight is tied[1].weight
    assert (tied[0].weight is weight) == (watching is None)
    assert (optimizer.param_groups[0]["params"][0] is tied[0].weight) == (watching is None)


# -- devices side by side ------------------------------------------------------------------------------------------------


def test_numbers_on_the_cpu_mix_in_and_others_are_refused_as_beside_any_device(x: Tensor) -> None:
    want = (x * torch.tensor(2.0) + 1).clamp(max=torch.tensor(3.0))
    for way in (lambda: ed.EagerDecompMode(npu.backend), lambda: ed.install(npu.backend, "npu")):
        with way():
            there = x.npu()
            assert torch.equal(((there * torch.tensor(2.0)) + 1).clamp(max=torch.tensor(3.0)).cpu(), want)
            torch.testing.assert_close(F.silu(there * torch.tensor(2.0, dtype=torch.float64)).cpu(), F.silu(x * 2))
            assert (torch.tensor(2.0) * there).is_npu
            with pytest.raises(RuntimeError, match="npu"):
                there + x


def test_copies_cross_devices_both_ways_with_their_gradients(x: Tensor) -> None:
    for way in (lambda: ed.EagerDecompMode(npu.backend), lambda: ed.install(npu.backend, "npu")):
        here = x.clone().requires_grad_()
        with way():
            (F.gelu(here.npu()).cpu() * 2).sum().backward()
            there = torch.zeros(4, 3, device="npu")
            there.t().copy_(x)
            back = torch.zeros(3, 4).copy_(there.t())
        want = x.clone().requires_grad_()
        (F.gelu(want) * 2).sum().backward()
        torch.testing.assert_close(here.grad, want.grad)
        assert torch.equal(back, x)
