"""The numpy backend: each kernel is its op, as eager computes it, and no arithmetic of torch's runs where it stands in."""

from __future__ import annotations

import copy
import functools
import math
import subprocess
import sys
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from compare import outcome
from sampled import part_of
from torch import Tensor, nn

import eagerdecomp as ed
from conformance.cases import Selection, cases, differentiable, full_name, opinfos
from eagerdecomp.backends.numpy import BACKEND, FAMILIES, PASSTHROUGH
from eagerdecomp.backends.numpy.arrays import memory
from eagerdecomp.conformance import run_conformance
from eagerdecomp.conformance.judge import differences, excused, observe
from eagerdecomp.conformance.refusals import accepted_calls
from eagerdecomp.conformance.suite import kernel_of, spec_of
from eagerdecomp.ops.opset import resolve_ops

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten

#: All that may reach torch beside what passes on any backend (profiler ranges and the like): nothing of it computes.
SILENT = {
    "aten.as_strided.default",
    "aten.detach.default",
    "aten.empty.memory_format",
    "aten.empty_strided.default",
    "aten.lift_fresh.default",
}

#: One part in so many of the OpInfos runs each time.
PARTS = 96

#: One part in so many of the kernels is tried by the conformance suite each time.
SUITE_PARTS = 12

CPU_DTYPES = (
    *(torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.float16, torch.bfloat16),
    *(torch.float32, torch.float64, torch.complex64, torch.complex128),
)

# -- the kernels --------------------------------------------------------------------------------------------------


def wrong_by_the_suite(kernels: Sequence[Any]) -> list[str]:
    """Return what the conformance suite finds wrong in kernels."""
    report = run_conformance(BACKEND, ops=kernels, profile="quick", isolate=False)
    assert report.counts["right"] + report.counts["wrong"] == len(kernels)
    return [f"{one.op} {one.property}: {one.message}: {one.example}" for one in report.failures]


@pytest.mark.full
def test_the_suite_finds_nothing_wrong_in_a_part_of_the_kernels() -> None:
    assert wrong_by_the_suite(part_of(sorted(BACKEND.kernels, key=str), SUITE_PARTS)) == []


@pytest.mark.nightly
@pytest.mark.parametrize("family", FAMILIES)
def test_the_suite_finds_nothing_wrong(family: str) -> None:
    assert wrong_by_the_suite([f"aten.{name}" if "." in name else f"aten.{name}.default" for name in FAMILIES[family]]) == []


@pytest.mark.full
@pytest.mark.parametrize("name", ["addmm.default", "atan2.out", "convolution.default", "copy.default", "native_group_norm.default"])
def test_a_kernel_refuses_what_eager_refuses(name: str) -> None:
    (op,) = resolve_ops([f"aten.{name}"])
    spec = spec_of(op)
    assert spec is not None
    assert accepted_calls(kernel_of(BACKEND, op), spec, 300, 0) == []


# -- and what is made of them -------------------------------------------------------------------------------------


def wrong(infos: Sequence[Any]) -> tuple[list[str], int]:
    """Run samples of OpInfos on the backend, gradients too; return the failures and the number of passes."""
    found, right = [], 0
    for info in infos:
        selection = Selection(samples=2, grad=True)
        mode, backward = ed.EagerDecompMode(BACKEND, cache=ed.ProgramCache()), differentiable(info, selection)
        for case in cases(info, selection, 0):
            kind, expected = outcome(lambda: observe(case.function, case.arguments, backward=backward))  # noqa: B023 - at once
            if kind == "error":
                continue
            kind, got = outcome(lambda: observe(case.function, case.arguments, [mode], backward=backward))  # noqa: B023 - at once
            if kind == "error":
                refused = isinstance(got, ed.UnsupportedOpError) or "numpy backend has no torch." in str(got)  # float8, complex32
                found += [] if refused else [f"{full_name(info)}: {got!r}"]
                continue
            differing = differences(expected, got)
            if differing and excused(differing, case.function, case.arguments, expected, got, backward):
                differing = []
            found += [f"{full_name(info)}: {'; '.join(map(str, differing))}"] if differing else []
            right += not differing
    return found, right


@pytest.mark.full
def test_a_part_of_the_op_database_is_right_on_it() -> None:
    found, right = wrong(part_of(opinfos(), PARTS))
    assert found == []
    assert right > 0


@pytest.mark.nightly
def test_the_op_database_is_right_on_it() -> None:
    found, right = wrong(opinfos())
    assert found == []
    assert right > 1200


# -- it trains, and torch computes nothing ------------------------------------------------------------------------


class Convolutional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.norm = nn.Conv2d(2, 6, 3, padding=1, bias=False), nn.BatchNorm2d(6)
        self.second, self.groups = nn.Conv2d(6, 8, 3, stride=2, groups=2), nn.GroupNorm(2, 8)
        self.up = nn.ConvTranspose2d(8, 3, 2, stride=2)
        self.out = nn.Linear(3, 4)

    def forward(self, x: Tensor) -> Tensor:
        x = F.max_pool2d(F.relu(self.norm(self.first(x))), 2)
        x = self.up(F.silu(self.groups(self.second(x))))
        return self.out(F.adaptive_avg_pool2d(x, 1).flatten(1))


@pytest.mark.full
@pytest.mark.parametrize("optimizer", [torch.optim.SGD, functools.partial(torch.optim.AdamW, eps=1e-2)])
def test_a_small_net_trains_to_eager_s_weights(optimizer: Any) -> None:
    torch.manual_seed(1)
    net = Convolutional()
    batches = [(torch.randn(6, 2, 10, 10), torch.randint(0, 4, (6,))) for _ in range(4)]

    def train(trained: nn.Module) -> tuple[list[float], list[Tensor]]:
        stepping = optimizer(trained.parameters(), lr=0.05, foreach=True)
        losses = []
        for images, classes in batches:
            stepping.zero_grad()
            loss = F.cross_entropy(trained(images), classes)
            loss.backward()
            stepping.step()
            losses.append(loss.item())
        return losses, [one.detach() for one in (*trained.parameters(), *trained.buffers())]

    wanted, theirs = train(copy.deepcopy(net))
    seen = ed.BackendRecorder()
    with seen, ed.EagerDecompMode(BACKEND):
        losses, weights = train(net)
    assert losses == pytest.approx(wanted, abs=1e-4)
    for one, other in zip(weights, theirs, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=2e-3)
    assert set(map(str, seen.ops)) - SILENT - set(map(str, seen.passthrough(BACKEND.ops))) == set()


# -- memory -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", sorted(CPU_DTYPES, key=str))
def test_an_array_is_the_tensor_s_memory(dtype: torch.dtype) -> None:
    tensor = torch.zeros(3, 4, dtype=dtype).t()[1:]
    before = tensor.clone()
    memory(tensor)[0, 2] = 1
    assert not torch.equal(tensor, before)
    assert memory(tensor).shape == (3, 3)


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.zeros(3, device="meta"),
        lambda: torch.zeros(3, 3).to_sparse(),
        lambda: torch.zeros(2, dtype=torch.complex32),
        lambda: torch.zeros(2, dtype=torch.float8_e4m3fn),
    ],
)
def test_tensors_without_a_numpy_view_raise(make: Callable[[], Tensor]) -> None:
    with pytest.raises(NotImplementedError, match="numpy backend has no torch"):
        memory(make())


# -- random numbers -----------------------------------------------------------------------------------------------


def drawn(run: Callable[[], Tensor], seed: int = 5) -> tuple[Tensor, Tensor]:
    torch.manual_seed(seed)
    return run(), torch.get_rng_state()


@pytest.mark.parametrize("count", [1, 3, 16, 17, 623, 624, 2000])
def test_random_numbers_and_the_generators_state_equal_eager(count: int) -> None:
    def draws() -> Tensor:
        return torch.cat([torch.rand(count), torch.randn(count), torch.randperm(count).float(), torch.randn(3), torch.rand(2)])

    want, state = drawn(draws)
    with ed.EagerDecompMode(BACKEND):
        got, ours = drawn(draws)
    torch.testing.assert_close(got, want, rtol=1e-5, atol=2e-6)
    assert torch.equal(ours, state)


def test_dropout_depends_on_seed_state_and_probability() -> None:
    dropout = BACKEND.kernels[aten.native_dropout.default]
    x = torch.ones(40_000)
    (first, state), (again, _), (other, _) = (drawn(lambda: dropout(x, 0.3, True)[0], seed) for seed in (1, 1, 2))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert first.unique().tolist() == pytest.approx([0.0, 1 / 0.7])
    kept = (first != 0).double().mean().item()
    assert abs(kept - 0.7) < 5 * math.sqrt(0.21 / len(x))
    torch.set_rng_state(state)
    second = dropout(x, 0.3, True)[1]
    torch.set_rng_state(state)
    assert torch.equal(dropout(x, 0.3, True)[1], second)
    assert not torch.equal(second, first != 0)


# -- the set ------------------------------------------------------------------------------------------------------


def test_every_op_of_the_set_has_a_kernel_or_is_passthrough() -> None:
    assert set(BACKEND.kernels) | set(PASSTHROUGH) == set(BACKEND.ops)
    assert set(BACKEND.kernels) & set(PASSTHROUGH) == set()
    assert set(PASSTHROUGH) <= set(ed.infra() | ["aten.as_strided"])
    assert set(BACKEND.ops) <= set(ed.core_aten())
    assert len(BACKEND.kernels) == sum(map(len, FAMILIES.values())) == 180


@pytest.mark.full
def test_the_module_says_what_to_install_where_numpy_is_missing() -> None:
    code = "import sys; sys.modules['numpy'] = None\nimport eagerdecomp\nimport eagerdecomp.backends.numpy"
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "ImportError: eagerdecomp.backends.numpy computes with NumPy: pip install 'eagerdecomp[numpy]'" in done.stderr


def test_copies_to_and_from_other_devices_are_torchs() -> None:
    to, into = BACKEND.kernels[aten._to_copy.default], BACKEND.kernels[aten.copy_.default]
    here, there = torch.ones(2), torch.ones(2, device="meta")
    assert to(here, device=torch.device("meta")).device.type == "meta"
    assert to(there, dtype=torch.float64).device.type == "meta"
    assert into(there, here) is there
    with pytest.raises(NotImplementedError, match="Cannot copy out of meta tensor"):
        into(here, there)
    with pytest.raises(NotImplementedError, match="makes no tensor on meta"):
        BACKEND.kernels[aten.full.default]([2], 1, device=torch.device("meta"))
