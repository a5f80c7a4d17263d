"""The runner of PyTorch's own test files: small files in their style, and wrong backends."""

from __future__ import annotations

import json
import textwrap
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance import pytorch_tests
from conformance.pytorch_files import cases_of
from conformance.pytorch_reasons import REASONS
from conformance.pytorch_tests import Leaked, in_mode, main, outcome_of

HEADER = """
import os, signal, time, unittest
import torch
from torch.testing._internal.common_utils import TestCase, run_tests, parametrize, instantiate_parametrized_tests
from torch.testing._internal.common_device_type import instantiate_device_type_tests, dtypes, onlyPRIVATEUSE1
from torch.utils._python_dispatch import _get_current_dispatch_mode

def in_mode():
    return type(_get_current_dispatch_mode()).__name__ == "EagerDecompMode"
"""

#: A backend with a wrong `atan`. It is imported by name, as a user's backend is.
WRONG = ed.Backend("wrong", ed.core_aten(), kernels={"aten.atan.default": lambda x: torch.ops.aten.atan.default(x) + 1})


def run(folder: Path, text: str, *options: str, name: str = "test_it.py") -> tuple[int, dict[str, Any]]:
    """Write a test file, run it, and return the exit code and the status of each test."""
    (folder / name).write_text(HEADER + textwrap.dedent(text))
    report = folder / "report.json"
    code = main(["--tests", str(folder), "--json", str(report), *options, name])
    found = json.loads(report.read_text())
    return code, {**{row["test"]: row["status"] for row in found["rows"]}, **found["imports"]}


@pytest.mark.full
def test_each_test_gets_the_status_that_its_runs_give(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, statuses = run(
        tmp_path,
        """
        class TestIt(TestCase):
            def test_right(self, device):
                self.assertEqual(torch.nn.functional.silu(torch.zeros(2, device=device)), torch.zeros(2))
            @dtypes(torch.float32, torch.float64)
            def test_wrong(self, device, dtype):
                x = torch.zeros(2, dtype=dtype, device=device)
                self.assertEqual(torch.atan(x), x)
            def test_fails_natively(self, device):
                self.fail("always")
            def test_skipped(self, device):
                self.skipTest("always")
            def test_any_mode(self, device):
                self.assertIsNone(_get_current_dispatch_mode())
            @unittest.expectedFailure
            def test_expected_failure(self, device):
                self.fail("expected")
        instantiate_device_type_tests(TestIt, globals())
        """,
        "--backend",
        f"{__name__}:WRONG",
    )
    assert code == 1
    assert statuses == {
        "TestIt.test_right_*": "mode",
        "TestIt.test_wrong_*_float32": "differs",
        "TestIt.test_wrong_*_float64": "differs",
        "TestIt.test_fails_natively_*": "not counted",
        "TestIt.test_skipped_*": "not counted",
        "TestIt.test_any_mode_*": "any mode",
        "TestIt.test_expected_failure_*": "not counted",
    }
    printed = capsys.readouterr().out
    assert printed.splitlines()[1].split() == ["test_it.py", "4", "1", "1", "0", "0", "2", "0"]
    assert "2 x AssertionError: Tensor-likes are not close!" in printed


@pytest.mark.full
def test_a_process_that_ends_or_hangs_is_a_result_and_the_other_tests_run(tmp_path: Path) -> None:
    _, statuses = run(
        tmp_path,
        """
        class TestIt(TestCase):
            def test_a_ends_natively(self):
                os.kill(os.getpid(), signal.SIGKILL)
            def test_b_ends_in_the_mode(self):
                if in_mode():
                    os._exit(3)
            def test_c_blocks_in_the_mode(self):
                while in_mode():
                    time.sleep(0.1)
            def test_d(self):
                self.assertTrue(True)
        """,
        "--limit",
        "3",
    )
    assert statuses == {
        "TestIt.test_a_ends_natively": "not counted",
        "TestIt.test_b_ends_in_the_mode": "lost",
        "TestIt.test_c_blocks_in_the_mode": "lost",
        "TestIt.test_d": "mode",
    }


@pytest.mark.full
def test_a_failure_that_other_tests_cause_is_distinguished(tmp_path: Path) -> None:
    _, statuses = run(
        tmp_path,
        """
        SEEN = []
        class TestIt(TestCase):
            def test_a(self):
                if in_mode():
                    SEEN.append("a")
            def test_after_another(self):
                self.assertEqual(SEEN, [])
            def test_in_the_mode_after_another(self):
                self.assertEqual(in_mode() and SEEN, False if not in_mode() else [])
            def test_after_itself(self):
                SEEN.append("b")
                self.assertNotEqual(SEEN[-2:], ["b", "b"])
        """,
    )
    assert statuses == {
        "TestIt.test_a": "mode",
        "TestIt.test_after_another": "not counted",
        "TestIt.test_in_the_mode_after_another": "alone",
        "TestIt.test_after_itself": "mode",
    }


def test_an_op_outside_the_set_that_reaches_the_backend_is_a_leak() -> None:
    case = cases_of(SimpleNamespace(One=_Silu))[0]  # type: ignore[arg-type]
    assert outcome_of(case, lambda: in_mode(ed.EagerDecompMode(ed.core_aten()), ed.core_aten())).kind == "pass"
    narrower = ed.core_aten() - ["aten.sigmoid"]
    found = outcome_of(case, lambda: in_mode(ed.EagerDecompMode(ed.core_aten()), narrower))
    assert (found.kind, found.message) == ("leak", "aten.sigmoid.default")
    with pytest.raises(Leaked), in_mode(ed.EagerDecompMode(ed.core_aten()), narrower):
        torch.nn.functional.silu(torch.ones(2))


def test_a_random_call_for_the_host_is_no_leak() -> None:
    mode, generator = ed.EagerDecompMode(ed.core_aten()), torch.Generator()
    for _ in range(2):  # the second time too, when the mode has counted such a call before
        with in_mode(mode, ed.core_aten()):
            torch.randint(0, 9, (2,), generator=generator)
    narrower = ed.core_aten() - ["aten.sigmoid"]

    def draw_and_leak() -> None:
        with in_mode(mode, narrower):
            torch.randint(0, 9, (2,), generator=generator)
            torch.nn.functional.silu(torch.ones(2))

    with pytest.raises(Leaked, match=r"^aten.sigmoid.default$"):
        draw_and_leak()


class _Silu(torch.testing._internal.common_utils.TestCase):
    __test__ = False

    def test_silu(self) -> None:
        assert torch.nn.functional.silu(torch.zeros(2)).sum() == 0


def test_a_copy_of_another_device_runs_on_the_cpu(tmp_path: Path) -> None:
    code, statuses = run(
        tmp_path,
        """
        import torch_toy
        import torch_toy.testing
        from torch_toy.testing.common_utils import SupportedDevices
        MANY = torch_toy.toy.device_count() >= 2

        class TestIt(TestCase):
            @onlyPRIVATEUSE1
            @SupportedDevices(["A"])
            def test_on_the_device(self, device):
                self.assertEqual(device, "cpu")
                self.assertEqual(torch.ones(2, device="toy:0").toy().device.type, "toy")
                self.assertFalse(torch.toy.is_available())
            @unittest.skipIf(not MANY, "needs two")
            def test_on_many(self, device):
                self.fail("there is one")
        instantiate_device_type_tests(TestIt, globals(), only_for="privateuse1")
        """,
        "--names",
        "toy",
    )
    assert code == 0
    assert statuses == {"TestIt.test_on_the_device_*": "mode", "TestIt.test_on_many_*": "not counted"}


@pytest.mark.full
def test_a_run_is_continued_and_what_differs_is_run_again_on_request(tmp_path: Path) -> None:
    journal = str(tmp_path / "rows.jsonl")
    text = """
    class TestIt(TestCase):
        def test_it(self):
            self.assertEqual(in_mode(), False)
        def test_other(self):
            pass
    """
    assert run(tmp_path, text, "--resume", journal)[1] == {"TestIt.test_it": "differs", "TestIt.test_other": "mode"}
    fixed = text.replace("in_mode()", "False")
    assert run(tmp_path, fixed, "--resume", journal)[1]["TestIt.test_it"] == "differs"
    assert run(tmp_path, fixed, "--resume", journal, "--report")[1]["TestIt.test_it"] == "differs"
    assert run(tmp_path, fixed, "--resume", journal, "--again") == (0, {"TestIt.test_it": "mode", "TestIt.test_other": "mode"})


@pytest.mark.full
def test_a_difference_with_a_reason_is_known(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reasons = tmp_path / "reasons.json"
    reasons.write_text(
        json.dumps([{"tests": r"test_it\.py::TestIt\.test_it$", "message": "Booleans mismatch", "why": "for a reason"}])
    )
    text = """
    class TestIt(TestCase):
        def test_it(self):
            self.assertEqual(in_mode(), False)
    """
    assert run(tmp_path, text, "--reasons", str(reasons)) == (0, {"TestIt.test_it": "known"})
    assert "1  for a reason" in capsys.readouterr().out


def test_the_page_has_each_reason_of_the_table() -> None:
    page = (Path(pytorch_tests.__file__).parent.parent / "docs" / "howto" / "pytorch_tests.md").read_text(encoding="utf-8")
    assert [one.why for one in REASONS if f"| {one.why} |" not in page] == []
