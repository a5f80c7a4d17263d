"""`verify=` compares calls on the device with the CPU, in the mode and installed."""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import npu
import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.verify.reproducer import _random_tensor, _Writer

aten = torch.ops.aten
ALL = ed.Verify(every=1)
RECORD = ed.Verify(every=1, on_difference="record")

FORMS: dict[str, Callable[..., Any]] = {
    "mode": lambda backend, verify: ed.EagerDecompMode(backend, verify=verify),
    "installed": lambda backend, verify: ed.install(backend, "npu", verify=verify),
}


def trained() -> list[Tensor]:
    """Run two steps of a small net on the device, with views, writes, float16, bfloat16 and random ops; return the results."""
    torch.manual_seed(0)
    parts = [nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(36, 16), nn.SiLU()]
    net = nn.Sequential(*parts, nn.Dropout(0.1), nn.LayerNorm(16), nn.Linear(16, 5)).to("npu")
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(2):
        optimizer.zero_grad()
        x, target = torch.randn(3, 2, 8, 8).to("npu"), torch.tensor([1, 0, 4]).to("npu")
        F.cross_entropy(net(x), target).backward()
        optimizer.step()
    half = torch.randn(4, 4, device="npu", dtype=torch.bfloat16)
    half.t()[1:].add_(1).mul_(half[0])
    places = half.masked_fill_(half > 0, 2.0).nonzero()
    out = torch.empty(0, device="npu")
    torch.cumsum(half.float(), 0, out=out)
    return [*(one.detach().cpu() for one in (*net.parameters(), half, places, out)), torch.get_rng_state()]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("backend", [npu.backend, npu.whole], ids=["set", "whole"])
def test_nothing_differs_on_the_device_and_nothing_is_changed(form: str, backend: ed.Backend) -> None:
    with FORMS[form](backend, None):
        want = trained()
    with FORMS[form](backend, ALL) as way:
        have = trained()
    assert not way.verified
    assert way.verified.calls > 100
    assert all(torch.equal(one, other) for one, other in zip(want, have, strict=True))


def broken(name: str, kernel: Callable[..., Any]) -> ed.Backend:
    return ed.Backend("npu, broken", npu.backend.ops | [name], {name: kernel}, device_type="npu")


def off(x: Tensor) -> Tensor:
    return aten.mul.Tensor(aten.reciprocal.default(aten.add.Tensor(aten.exp.default(aten.neg.default(x)), 1)), 1.001)


def on_the_cpu(x: Tensor) -> Tensor:
    return torch.sigmoid(x.cpu())


def strided_otherwise(x: Tensor) -> Tensor:
    return aten.exp.default(x).t().clone(memory_format=torch.contiguous_format).t()


def test_a_kernel_with_a_result_on_another_device_is_named_by_an_error() -> None:
    x = torch.randn(3, 4).npu()
    named = r"aten\.sigmoid\.default: its kernel .*on_the_cpu.* returned a tensor on cpu"
    with pytest.raises(ed.KernelError, match=named), ed.EagerDecompMode(broken("aten.sigmoid.default", on_the_cpu), verify=RECORD):
        torch.sigmoid(x)


@pytest.mark.parametrize(
    ("name", "kernel", "kind"),
    [
        ("aten.sigmoid.default", off, "values"),
        ("aten.exp.default", strided_otherwise, "strides"),
    ],
)
def test_a_wrong_kernel_of_the_device_is_named(name: str, kernel: Callable[..., Any], kind: str) -> None:
    x = torch.randn(3, 4).npu()
    with ed.EagerDecompMode(broken(name, kernel), verify=RECORD) as mode:
        getattr(aten, name.split(".")[1]).default(x)
    (blame,) = mode.verified.found
    assert (blame.difference.kind, blame.culprit.op, blame.culprit.kind) == (kind, name, "kernel")
    assert kernel.__name__ in blame.culprit.name


def test_a_wrong_rule_is_named_where_the_kernels_that_the_device_has_by_itself_are_right() -> None:
    @ed.register_decomposition("aten.hardswish.default")
    def wrong(x: Tensor) -> Tensor:
        return x * (x + 3).clamp(0, 5) / 6

    with ed.install(npu.backend, "npu", rules=[wrong], verify=RECORD) as handle:
        F.hardswish(torch.linspace(-4, 4, 9).npu())
    (blame,) = handle.verified.found
    assert blame.op == "aten.hardswish.default"
    assert blame.culprit.kind == "program"
    assert handle.verified.checked["aten.mul.Tensor"] == 1


def test_tensors_of_the_cpu_are_none_of_the_devices() -> None:
    with ed.EagerDecompMode(npu.backend, verify=ALL) as mode:
        F.silu(torch.randn(3))
    assert mode.verified.calls == 0
    assert not mode.verified.skipped


def test_a_script_that_reproduces_a_call_makes_its_tensors_on_the_device() -> None:
    given = [torch.ones(2, 3).t(), torch.ones(5), torch.ones(1000), torch.ones(0, 2), torch.randn(4, 4)[1:, 1:]]
    with ed.install(npu.backend, "npu"):
        for here in given:
            there, writer = here.to("npu"), _Writer({})
            name, scope = writer.text(there), {"torch": torch}
            if data := writer.data():
                scope["saved"] = torch.load(io.BytesIO(data))
            exec("\n".join(writer.lines), scope)
            made: Any = scope[name]
            assert made.is_npu
            assert torch.equal(made.cpu(), here)
            if here.numel():
                random, text = _random_tensor(there, 1)
                assert random.is_npu
                assert eval(text, {"torch": torch}).is_npu
