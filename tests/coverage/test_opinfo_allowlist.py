"""torch's own device tests run for exactly the ops that are closed in a plan."""

from __future__ import annotations

import unittest
from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.coverage.opinfo_allowlist import allowlist_of, opinfos
from eagerdecomp.coverage.plan_report import Plan

#: A set on which `nonzero` has no route.
CORE = ed.core_aten() - ["aten.nonzero.default"]
MISSING = "aten.nonzero.default"

#: The others: no route (nonzero), a backward without one, no float dtype, nothing called, a variant of its own name.
SOME = [
    *("add", "nn.functional.gelu", "nonzero", "bitwise_and", "positive", "div.floor_rounding", "nn.functional.mish"),
    "matmul",
]


@pytest.fixture(scope="module")
def infos() -> list[Any]:
    found = [info for info in opinfos() if info.full_name in SOME]
    assert len(found) == len(SOME)
    return found


@pytest.fixture(scope="module")
def plan() -> Plan:
    return ed.plan(CORE)


def read(source: str) -> dict[str, Any]:
    namespace: dict[str, Any] = {}
    exec(compile(source, "allowlist", "exec"), namespace)
    return namespace


@pytest.mark.full
def test_an_opinfo_is_allowed_if_all_its_ops_are_closed(plan: Plan, infos: list[Any]) -> None:
    found = allowlist_of(plan, infos)
    assert set(found.forward) == set(SOME) - {"nonzero"}
    assert found.gradients == found.forward
    assert found.left_out == {"nonzero": (MISSING,)}
    without = allowlist_of(ed.plan(CORE - ["aten.tanh", "aten.log1p", "aten.exp", "aten.erf"]), infos)
    assert {"nn.functional.gelu", "nn.functional.mish"} <= set(without.left_out)


@pytest.mark.full
def test_if_the_backward_is_not_closed_the_forward_is_still_allowed(infos: list[Any]) -> None:
    few = ed.infra() | [f"aten.{op}" for op in ("mm", "bmm", "mv", "dot", "gelu.default", "view", "expand", "unsqueeze")]
    gelu = [info for info in infos if info.full_name == "nn.functional.gelu"]
    found = allowlist_of(ed.plan(few), gelu)
    assert found.forward == ("nn.functional.gelu",)
    assert found.gradients == ()
    assert found.left_out == {"nn.functional.gelu": ("aten.gelu_backward.default",)}


@pytest.mark.full
def test_torchs_device_tests_run_only_for_closed_ops(plan: Plan, infos: list[Any]) -> None:
    from torch.testing._internal.common_device_type import CPUTestBase, instantiate_device_type_tests, ops
    from torch.testing._internal.common_utils import TestCase

    written = read(allowlist_of(plan, infos).source())

    class TestOnTheSet(TestCase):
        @ops(infos, allowed_dtypes=(torch.float32, torch.int64))
        def test_results_equal_eager(self, device: str, dtype: torch.dtype, op: Any) -> None:
            for sample in op.sample_inputs(device, dtype):
                want = op(sample.input, *sample.args, **sample.kwargs)
                with ed.BackendRecorder() as seen, ed.EagerDecompMode(CORE):
                    got = op(sample.input, *sample.args, **sample.kwargs)
                torch.testing.assert_close(got, want)
                assert not seen.outside(CORE)

    scope = {"TestOnTheSet": TestOnTheSet}
    CPUTestBase.set_test_configs(op_allowlist=written["GRADIENTS"])
    try:
        instantiate_device_type_tests(TestOnTheSet, scope, only_for="cpu")
        suite = unittest.defaultTestLoader.loadTestsFromTestCase(scope["TestOnTheSetCPU"])
        names = {test.id().rpartition(".")[2] for test in suite}  # type: ignore[union-attr]
        result = unittest.TestResult()
        suite.run(result)
    finally:
        CPUTestBase.set_test_configs()
    assert {name.removeprefix("test_results_equal_eager_").partition("_cpu_")[0] for name in names} == {
        info.formatted_name for info in infos if info.full_name != "nonzero"
    }
    assert (result.errors, result.failures, result.skipped) == ([], [], [])
    assert result.testsRun == len(names) > len(infos)


@pytest.mark.full
def test_the_command_writes_it(infos: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("eagerdecomp.cli.commands.plan.opinfos", lambda: infos)
    (tmp_path / "ops.txt").write_text("\n".join(map(str, CORE)), encoding="utf-8")
    assert main(["plan", "--ops", str(tmp_path / "ops.txt"), "--allowlist", str(tmp_path / "closure.py")]) == 0
    written = read((tmp_path / "closure.py").read_text(encoding="utf-8"))
    assert written["FORWARD"] == set(SOME) - {"nonzero"}
    assert written["LEFT_OUT"] == {"nonzero": [MISSING]}
    assert "ops.txt" in written["__doc__"]
    assert "7 of 8 OpInfos stay on the set, 7 with their gradients" in capsys.readouterr().err
