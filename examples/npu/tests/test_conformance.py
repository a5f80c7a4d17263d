"""Torch's own samples on the device: the scoreboard's row for it, some of it, and that it catches what it should."""

from __future__ import annotations

import npu
import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from conformance.cases import Selection, opinfos
from conformance.installed import judge_lot
from conformance.placing import home, placed

ONE = Selection(samples=1, grad=True)


def test_samples_with_gradients_pass() -> None:
    infos = opinfos(
        r"^(add|sort|cumsum|index_put|tensor_split|native_layer_norm|nn\.functional\.(gelu|conv2d|ctc_loss)|fft\.rfft|_foreach_mul)$"
    )
    assert {row.name: row.status for row in judge_lot(infos, npu.backend, ONE)} == {info.name: "pass" for info in infos}
    assert len(infos) == 11


@pytest.mark.parametrize(("kernel", "status"), [(torch.sigmoid, "wrong"), (None, "error")])
def test_a_wrong_kernel_and_a_missing_one_are_seen(kernel: object, status: str) -> None:
    backend = ed.Backend(
        "other", npu.backend.ops | ["aten.silu"], {"aten.silu.default": kernel} if kernel else {}, device_type="npu"
    )
    (row,) = judge_lot(opinfos(r"^nn\.functional\.silu$"), backend, ONE)
    assert row.status == status


def test_what_is_placed_lies_as_it_lay() -> None:
    base = torch.arange(12.0)
    wide = base.view(3, 4).t()[1:]
    gapped = base[1::2].requires_grad_()
    conj = torch.ones(2, dtype=torch.complex64).mul(1j).conj()
    there = placed([wide, gapped, conj, torch.device("cpu"), "cpu", 3], "npu")
    assert there[3:] == [torch.device("npu"), torch.device("npu"), 3]
    back = home(there[:3])
    for given, one, two in zip([wide, gapped, conj], there, back, strict=False):
        assert (one.device.type, two.device.type) == ("npu", "cpu")
        for moved in (one, two):
            assert facts(moved) == facts(given)
        assert torch.equal(two.resolve_conj(), given.resolve_conj())
    assert there[0].untyped_storage()._cdata == there[1].untyped_storage()._cdata
    assert back[0].untyped_storage()._cdata == back[1].untyped_storage()._cdata


def facts(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.requires_grad, tensor.is_conj()
