"""OpInfo samples on the device: a part of the scoreboard's row passes, and wrong kernels are found."""

from __future__ import annotations

from dataclasses import replace

import npu
import pytest
import torch
from torch import Tensor

import eagerdecomp as ed
from conformance.cases import Selection, full_name, opinfos
from conformance.devices import install_target
from conformance.installed import judge_batch, mode_differences
from conformance.model_judge import judge_entry_installed
from conformance.models import entries
from conformance.standards import NOT_A_REFERENCE, why_no_reference
from eagerdecomp.conformance.judge import to_cpu, to_device

ONE = Selection(samples=1, grad=True)


def test_samples_with_gradients_pass() -> None:
    infos = opinfos(
        r"^(add|sort|cumsum|index_put|tensor_split|native_layer_norm|nn\.functional\.(gelu|conv2d|ctc_loss)|fft\.rfft|_foreach_mul)$"
    )
    assert {row.name: row.status for row in judge_batch(infos, npu.backend, ONE)} == {info.name: "pass" for info in infos}
    assert len(infos) == 11


def test_a_wrong_kernel_and_a_missing_one_are_seen() -> None:
    infos, ops = opinfos(r"^nn\.functional\.silu$"), npu.backend.ops | ["aten.silu"]
    (row,) = judge_batch(infos, ed.Backend("other", ops, {"aten.silu.default": torch.sigmoid}, device_type="npu"), ONE)
    assert row.status == "wrong"
    with pytest.raises(ed.InstallError, match=r"'npu' has no kernel for 2 ops .*: aten\.silu\.default, aten\.silu\.out\."):
        judge_batch(infos, ed.Backend("other", ops, device_type="npu"), ONE)


def test_what_passes_in_one_form_alone_is_named() -> None:
    infos = opinfos(r"^(nn\.functional\.silu|to_sparse)$")
    installed, in_mode = (judge_batch(infos, npu.backend, ONE, in_mode=form) for form in (False, True))
    assert [row.status for row in installed] == [row.status for row in in_mode] == ["pass", "error"]
    assert mode_differences(installed, in_mode) == ["1 pass in the mode; 0 pass in only one of the two forms"]
    (_, line) = mode_differences(installed, [in_mode[0], in_mode[0]])
    # torch has no COO tensors on a device written in Python.
    assert line.startswith("mode pass, installed error: to_sparse (sample 0): NotImplementedError: Could not run")


def test_where_the_cpu_is_no_standard_is_asked_of_dtype_and_device() -> None:
    (kthvalue,), (chunked,) = opinfos("^kthvalue$"), opinfos(r"linear_cross_entropy\.chunked$")
    assert why_no_reference(kthvalue, "cpu", torch.int64)
    assert not why_no_reference(kthvalue, "cpu", torch.float32)
    assert why_no_reference(chunked, "npu", torch.float16)
    assert not why_no_reference(chunked, "cpu", torch.float16)


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name, (_, elsewhere, _) in NOT_A_REFERENCE.items() if elsewhere])
def test_a_call_without_standard_on_this_device_alone_differs_here(name: str) -> None:
    infos = [info for info in opinfos() if full_name(info) == name]
    for dtype in NOT_A_REFERENCE[name][0]:
        assert [row.status for row in judge_batch(infos, npu.backend, Selection(dtype=dtype))] == ["wrong"], "needs no entry"


MODELS = ("dlrm", "GRU, both ways", "transformer encoder, padded", "autocast bfloat16, attention", "tied weights")


@pytest.mark.parametrize("name", MODELS)
def test_models_are_made_run_and_trained_as_on_the_cpu(name: str) -> None:
    (entry,) = (one for one in entries() if one.name == name)
    results = judge_entry_installed(entry, install_target("npu", npu.backend.ops))
    assert {one.status for one in results} == {"pass"}, results
    assert next(one for one in results if one.column == "train").calls > 100


def test_a_wrong_kernel_makes_a_model_wrong() -> None:
    (entry,) = (one for one in entries() if one.name == "dlrm")
    wrong = ed.Backend("wrong", npu.backend.ops, {"aten.addmm.default": lambda bias, x, y: torch.mm(x, y).add(bias, alpha=1.01)})
    results = judge_entry_installed(entry, replace(install_target("npu", npu.backend.ops), backend=wrong))
    assert [one.status for one in results if one.column != "make"] == ["wrong"] * 3


def test_what_is_placed_keeps_its_strides() -> None:
    base = torch.arange(12.0)
    wide = base.view(3, 4).t()[1:]
    gapped = base[1::2].requires_grad_()
    conj = torch.ones(2, dtype=torch.complex64).mul(1j).conj()
    there = to_device([wide, gapped, conj, torch.device("cpu"), "cpu", 3], "npu")
    assert there[3:] == [torch.device("npu"), torch.device("npu"), 3]
    back = to_cpu(there[:3])
    for given, one, two in zip([wide, gapped, conj], there, back, strict=False):
        assert (one.device.type, two.device.type) == ("npu", "cpu")
        for moved in (one, two):
            assert facts(moved) == facts(given)
        assert torch.equal(two.resolve_conj(), given.resolve_conj())
    assert there[0].untyped_storage()._cdata == there[1].untyped_storage()._cdata
    assert back[0].untyped_storage()._cdata == back[1].untyped_storage()._cdata


def facts(tensor: Tensor) -> tuple[object, ...]:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.requires_grad, tensor.is_conj()
