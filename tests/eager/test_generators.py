"""Generators of devices: whose state a kernel uses, and which states a call may change."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensorMode

from eagerdecomp.eager.generators import drawing_from, states_of
from eagerdecomp.verify.replay import Draws

aten = torch.ops.aten


@pytest.fixture
def there() -> Tensor:
    with FakeTensorMode():
        return torch.empty(2, device="cuda")


def module(monkeypatch: pytest.MonkeyPatch, *generators: Any) -> None:
    """Give CUDA these default generators."""
    made, others = SimpleNamespace(default_generators=generators, current_device=lambda: 0), torch.get_device_module
    monkeypatch.setattr(torch, "get_device_module", lambda one: made if torch.device(one).type == "cuda" else others(one))


def test_a_generator_of_another_device_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    module(monkeypatch, SimpleNamespace(device=torch.device("cuda")))
    refused = pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator but found 'cpu'")
    with refused, drawing_from(torch.Generator(), "cuda"):
        pass


def test_kernels_draw_from_the_default_generator_of_their_device(there: Tensor, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is made in Python has a CPU generator."""
    of_device, given = torch.Generator(), torch.Generator().manual_seed(3)
    module(monkeypatch, of_device)
    assert [generator for generator, _ in states_of([torch.ones(2), torch.ones(2, device="meta"), there])] == [
        torch.default_generator,
        of_device,
    ]
    want = torch.rand(2, generator=torch.Generator().manual_seed(3))
    with drawing_from(given, "cuda"):
        assert torch.equal(torch.rand(2, generator=of_device), want)
    with drawing_from(given.manual_seed(3), None):
        assert torch.equal(torch.rand(2), want)


@pytest.mark.parametrize("generators", [0, 1])
def test_a_call_may_draw_from_the_default_generator_of_its_device(
    generators: int, there: Tensor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Some devices, such as MPS, have no list of default generators; without a GPU, that of CUDA is empty."""
    given = [torch.Generator() for _ in range(generators)]
    module(monkeypatch, *given)
    for one in [torch.default_generator, *given]:
        draws = Draws(aten.bernoulli.default, [there], {})
        assert not draws.moved()
        torch.rand(2, generator=one)
        assert draws.moved()
