"""The ops that a device can run by itself: its own kernels, and torch's compositions of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp._torch.dispatcher import close_library, names_with_kernel
from eagerdecomp._torch.ops import dispatcher_name, dotted, has_tag
from eagerdecomp.ops.device_ops import DeviceOps, device_ops
from eagerdecomp.ops.passthrough import is_passthrough_name

ALLOCATION = ("aten.empty.memory_format", "aten.empty_strided.default", "aten.copy_.default")

#: Ops that torch composes without a kernel of the device, and that only views or allocation need.
MEMORY = {dispatcher_name(op) for op in ed.infra()} | {
    name
    for name in names_with_kernel("CompositeExplicitAutograd") | names_with_kernel("CompositeExplicitAutogradNonFunctional")
    if has_tag(name, torch.Tag.inplace_view)
}


@pytest.fixture
def fallback() -> Iterator[list[str]]:
    """Register a fallback for PrivateUse1, as a device package does. The list has the ops that reached it."""
    called: list[str] = []

    def run(op: Any, *args: Any, **kwargs: Any) -> Any:
        called.append(str(op))

    library: Any = torch.library.Library("_", "IMPL")  # type: ignore[no-untyped-call]
    library.fallback(run, "PrivateUse1")
    yield called
    close_library(library)


def having(*own: str) -> DeviceOps:
    """Return a device with these kernels, beside torch's compositions."""
    return DeviceOps(frozenset(own), True, device_ops("PrivateUse1").composed)


def test_a_backend_of_a_device_has_the_ops_with_a_kernel_for_its_key() -> None:
    found = ed.Backend.of_device("cpu")
    assert (found.name, found.device_type, dict(found.kernels)) == ("cpu", "cpu", {})
    own = {name for name in names_with_kernel("CPU") if name.startswith("aten::") and not is_passthrough_name(dotted(name))}
    here = {dispatcher_name(op) for op in found.ops}
    assert own <= here
    composed = here - names_with_kernel("CPU") - {"aten::convolution", "aten::convolution_backward"}
    assert composed <= MEMORY  # such as `detach`
    assert "aten.outer.default" not in found.ops  # a composite
    assert ed.Backend.of_device("cpu", "mine", [torch.float32]).dtypes == {torch.float32}


def test_kernels_of_an_installation_are_not_the_devices() -> None:
    before = ed.Backend.of_device("cpu")
    with ed.install(ed.core_aten(), "cpu"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("aten::silu", "CPU")
        assert ed.Backend.of_device("cpu").ops == before.ops


def test_a_fallback_is_no_kernel(fallback: list[str]) -> None:
    assert device_ops("PrivateUse1").has_fallback
    found = ed.Backend.of_device("privateuseone")
    assert not {"aten.add.Tensor", "aten.mm.default"} & set(map(str, found.ops))
    fsdp = {op for op in found.ops if op.namespace == "fsdp"}  # if it was imported: torch has kernels of these ops for this key
    assert {dispatcher_name(op) for op in {*found.ops} - fsdp} < MEMORY


def test_structured_ops_run_by_the_kernel_of_their_out_form() -> None:
    device = having("aten::add.out")
    assert not device.lacks("aten::add.Tensor")
    assert not device.lacks("aten::add_.Tensor")
    assert device.lacks("aten::sub.Tensor")
    assert {"aten::add.Tensor", "aten::add_.Tensor", "aten::add.out"} <= device.all()
    assert "aten::sub.Tensor" not in device.all()


def test_without_a_fallback_ours_takes_ops_that_are_registered_later() -> None:
    with pytest.raises(ed.InstallError, match="'privateuseone' has no fallback"):
        ed.install(ALLOCATION, "privateuseone", on_missing="fallback")
    with ed.install(ALLOCATION, "privateuseone") as handle:
        assert handle.fallback == "eagerdecomp"
    assert not device_ops("PrivateUse1").has_fallback
