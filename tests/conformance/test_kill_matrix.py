"""The kill matrix: found and missed kernels, its table and its exit code."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from conformance import kill_matrix
from conformance.kill_matrix import Row, judged, main, rounds, table
from conformance.mutants import EQUIVALENTS, FAMILIES, MUTANTS, unlike_eager
from conformance.mutants.builder import broken

FOUND = Row("exp: broken", "aten.exp.default", "dtype", True, (), ("values",), "aten.exp(f32[2])", "off", "wrong", 3, 0.1)
MISSED = replace(FOUND, name="exp: missed", flagged=False, properties=(), state="right")
EQUIVALENT = replace(MISSED, name="exp: equivalent", kind="equivalent")
ALARM = replace(FOUND, name="exp: alarm", kind="equivalent")


def test_a_round_has_one_kernel_per_op_and_all_kernels_are_used() -> None:
    lots = rounds((*MUTANTS, *EQUIVALENTS))
    assert all(len({one.op for one in lot}) == len(lot) for lot in lots)
    assert sorted(one.name for lot in lots for one in lot) == sorted(one.name for one in (*MUTANTS, *EQUIVALENTS))


def test_found_kernels_are_counted_by_kind_and_wrong_verdicts_listed() -> None:
    assert [row.right for row in (FOUND, MISSED, EQUIVALENT, ALARM)] == [True, False, True, False]
    assert not replace(FOUND, others=("aten.mul.Tensor",)).right
    text = table([FOUND, MISSED, EQUIVALENT, ALARM])
    broken = next(line for line in text.splitlines() if line.startswith("dtype"))
    assert broken.split() == ["dtype", "2", "1", "1", "50.0%"]
    survivors, alarms = text.split("survivors:")[1].split("false alarms:")
    assert "exp: missed" in survivors
    assert "exp: broken" not in survivors
    assert "exp: alarm" in alarms
    assert "exp: equivalent" not in alarms


#: Of ops of `infra`, for which every call shows the fault.
WRONG_INFRA = [
    broken("is_pinned", "always", "values", lambda c: True, list),
    broken("sym_numel", "of the storage", "values", lambda c: c.self.untyped_storage().nbytes() // c.self.element_size(), list),
    broken("sym_is_contiguous", "of any format", "values", lambda c: c.self.is_contiguous(), list),
    broken("set_", "resized", "memory", lambda c: c.self.resize_(0), list),
    broken("set_.source_Storage", "a copy", "aliasing", lambda c: c.self.set_(c.source.clone()), list),
]


@pytest.mark.full
def test_wrong_kernels_of_infra_are_found_and_right_ones_that_are_unlike_eagers_are_not() -> None:
    rows = [row for lot in rounds([*WRONG_INFRA, *unlike_eager.EQUIVALENTS]) for row in judged(lot, "quick", 0)]
    assert [(row.name, row.message) for row in rows if not row.right] == []


@pytest.mark.nightly
def test_every_kernel_that_only_unusual_inputs_show_is_found_and_no_right_one_reported() -> None:
    kernels = [*FAMILIES["unusual"], *(one for one in EQUIVALENTS if re.search("in any order|last of equal|garbage", one.name))]
    rows = [row for lot in rounds(kernels) for row in judged(lot, "standard", 0)]
    assert [(row.name, row.message) for row in rows if not row.right] == []


def test_exit_codes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    said: list[Row] = [FOUND]
    monkeypatch.setattr(kill_matrix, "judged", lambda lot, profile, seed, progress: said)
    arguments = ["--match", "^exp: overflows at 88$", "--json", str(tmp_path / "rows.json")]
    assert main(arguments) == 0
    assert json.loads((tmp_path / "rows.json").read_text())[0]["name"] == "exp: broken"
    said[:] = [MISSED]
    assert main(arguments) == 1
    said[:] = [ALARM]
    assert main(arguments) == 1
    assert main(["--match", "no such kernel"]) == 2
    assert main(["--match", "("]) == 2

    def interrupted(*_: object) -> list[Row]:
        raise KeyboardInterrupt

    monkeypatch.setattr(kill_matrix, "judged", interrupted)
    assert main(arguments) == 130
    assert "0 of 1 kernels" in capsys.readouterr().out
