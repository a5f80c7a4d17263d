"""DDP, FSDP2, DTensors, pipelines, ZeRO and checkpoints over gloo: plain eager's numbers in the mode and where a set is installed,
and nothing but the set and collectives on the backend, in every process."""

from __future__ import annotations

from typing import Any

import pytest
from groups import run_group
from scenarios import FOUR, SCENARIOS

from eagerdecomp.ops.passthrough import COLLECTIVE_NAMESPACES

pytestmark = pytest.mark.full

Found = list[dict[str, dict[str, Any]]]

#: Gloo divides by the number of ranks itself, in C++ and a thread of its own, where a sum is to be an average.
GLOO_AVERAGES = ["aten.div_.Tensor", "", "in another thread"]

#: How far from plain eager's numbers, in terms of the largest of their kind: Adam's first steps enlarge what rounding leaves.
NEAR = 5e-5
#: One bit more or less of a bfloat16.
NEAR_BFLOAT16 = 1.6e-2

TWO = sorted(SCENARIOS.keys() - FOUR)
#: Of four processes CI sees what needs four, and stages in the middle of a pipeline.
FEW = [*sorted(FOUR), "pipeline_1f1b"]


@pytest.fixture(scope="module")
def two(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_group(2, TWO, tmp_path_factory.mktemp("two"))


@pytest.fixture(scope="module")
def four(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_group(4, FEW, tmp_path_factory.mktemp("four"))


@pytest.fixture(scope="module")
def all_of_four(tmp_path_factory: pytest.TempPathFactory) -> Found:
    return run_group(4, sorted(set(SCENARIOS) - set(FEW)), tmp_path_factory.mktemp("all_of_four"))


def check(found: Found, name: str) -> None:
    for rank, by_name in enumerate(found):
        one = by_name.get(name, {})
        errors = [f"{which}: {other['error']}" for which, other in by_name.items() if "error" in other]
        assert "installed" in one, f"rank {rank} did not get to {name}: " + "\n".join(errors)
        near = NEAR_BFLOAT16 if "bf16" in name else NEAR
        assert one["numbers"] > 20
        assert one["mode"] < near, f"rank {rank}, in the mode"
        assert one["installed"] < near, f"rank {rank}, installed"
        assert one["outside"] == [], f"rank {rank}: these reached the backend"
        assert one["fell_back"] == 0
        assert [op for op in one["escaped"] if op != GLOO_AVERAGES] == [], f"rank {rank}: these ran without passing the mode"
        assert {op.partition(".")[0] for op in one["passthrough"]} <= COLLECTIVE_NAMESPACES | {"profiler"}
        assert one["decomposed"] > 10
        assert one["installed_decomposed"] > 10
    assert any(op.startswith(("c10d.", "_c10d_functional.")) for by_name in found for op in by_name[name]["passthrough"])


@pytest.mark.full
@pytest.mark.parametrize("name", TWO)
def test_two_processes_get_eagers_numbers_on_the_set(name: str, two: Found) -> None:
    check(two, name)


@pytest.mark.full
@pytest.mark.parametrize("name", FEW)
def test_four_processes_get_eagers_numbers_on_the_set(name: str, four: Found) -> None:
    check(four, name)


@pytest.mark.nightly
@pytest.mark.parametrize("name", sorted(set(SCENARIOS) - set(FEW)))
def test_four_processes_do_all_that_two_do(name: str, all_of_four: Found) -> None:
    check(all_of_four, name)


@pytest.mark.full
def test_losses_are_those_of_batches_that_differ_by_rank(two: Found) -> None:
    losses = [by_name["ddp"]["losses"] for by_name in two]
    assert [len(one) for one in losses] == [3, 3]
    assert losses[0] != losses[1]


def test_ddp_and_fsdp_result_in_the_same_losses(two: Found) -> None:
    for by_name in two:
        assert by_name["fsdp_kept_gathered"]["losses"] == pytest.approx(by_name["ddp"]["losses"], rel=1e-5)
