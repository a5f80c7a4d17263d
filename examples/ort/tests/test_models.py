"""Models of `run.py` in inference have eager's results: kernel by kernel, as one session, and with `torch.compile`."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import ort
import pytest
import torch
from torch import nn

import eagerdecomp as ed

SPEC = importlib.util.spec_from_file_location("ort_run", Path(__file__).parent.parent / "run.py")
assert SPEC is not None
assert SPEC.loader is not None
run = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(run)
NETS = run.nets()


@pytest.mark.parametrize("name", NETS)
def test_kernel_by_kernel(name: str) -> None:
    net, args = NETS[name]
    with torch.no_grad():
        want = net(*args)
        with ed.EagerDecompMode(ort.backend):
            net(*args)  # the first call of a kind asks torch's Meta kernel
        with ed.BackendRecorder() as seen, ed.EagerDecompMode(ort.backend):
            got = net(*args)
    assert run.relative_difference(got, want) < 2e-6
    assert not set(seen.ops) & set(ort.backend.kernels), "torch's kernels ran in place of ours"


@pytest.mark.parametrize("name", [name for name, (net, _) in NETS.items() if not isinstance(net, run.Generate)])
def test_as_one_session(name: str) -> None:
    net, args = NETS[name]
    with torch.no_grad():
        session = ort.exported(net, *args)
        with ed.BackendRecorder() as seen:
            got = session(*args)
        assert run.relative_difference(got, net(*args)) < 2e-6
    assert not any(op in ort.backend.kernels for op in seen.ops)


@pytest.mark.filterwarnings("ignore")
def test_a_compiled_net_follows_its_weights() -> None:
    net = nn.Sequential(nn.Linear(8, 16), nn.SiLU(), nn.LayerNorm(16), nn.Linear(16, 4))
    compiled = torch.compile(net, backend=ed.dynamo_backend(ort.whole, whole_graphs=True), fullgraph=True)
    x = torch.randn(5, 8)
    with torch.no_grad():
        for _ in range(2):
            torch.testing.assert_close(compiled(x), net(x))
            net[0].weight.mul_(2)


def test_a_net_that_lacks_kernels_says_so() -> None:
    class Sorted(nn.Module):
        def forward(self, x: torch.Tensor) -> Any:
            return x.sort()

    with pytest.raises(NotImplementedError, match="sort"):
        ort.exported(Sorted(), torch.ones(3))
