"""Improvements and regressions between two runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conformance_reports import absent_verdict, example_report, report_strategy, right_verdict, skipped_verdict, wrong_verdict
from hypothesis import given

from eagerdecomp.conformance.comparing import VerdictChange, compare
from eagerdecomp.conformance.results import Report, Verdict

ADD = "aten.add.Tensor"


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        (right_verdict(ADD), wrong_verdict(ADD), VerdictChange(ADD, "right", "wrong", ("values",), (), "worse")),
        (wrong_verdict(ADD), right_verdict(ADD), VerdictChange(ADD, "wrong", "right", (), ("values",), "better")),
        (absent_verdict(ADD), right_verdict(ADD), VerdictChange(ADD, "absent", "right", (), (), "better")),
        (wrong_verdict(ADD), absent_verdict(ADD), VerdictChange(ADD, "wrong", "absent", (), ("values",), "neither")),
        (right_verdict(ADD), skipped_verdict(ADD), VerdictChange(ADD, "right", "not exercised", (), (), "worse")),
        (
            wrong_verdict(ADD, "dtype"),
            wrong_verdict(ADD, "values"),
            VerdictChange(ADD, "wrong", "wrong", ("values",), ("dtype",), "worse"),
        ),
    ],
)
def test_a_change_is_for_the_better_or_the_worse(was: Verdict, now: Verdict, change: VerdictChange) -> None:
    found = compare(
        example_report(was, right_verdict("aten.mul.Tensor")), example_report(now, right_verdict("aten.mul.Tensor", 99))
    )
    assert found.changes == (change,)
    assert found.worse == (change.direction == "worse")
    assert (found.same, found.apart) == (1, ())


def test_an_op_that_a_run_does_not_know_is_absent_from_it() -> None:
    silu = right_verdict("aten.silu.default")
    assert compare(example_report(right_verdict(ADD)), example_report(right_verdict(ADD), silu)).changes[0].direction == "better"
    assert compare(example_report(right_verdict(ADD), silu), example_report(right_verdict(ADD))).worse
    assert compare(example_report(absent_verdict(ADD)), example_report(right_verdict("aten.mul.Tensor"))).changes == (
        VerdictChange("aten.mul.Tensor", "absent", "right", (), (), "better"),
    )


def test_what_a_run_was_not_asked_for_is_not_compared() -> None:
    every, some = (
        example_report(right_verdict(ADD), wrong_verdict("aten.mul.Tensor")),
        replace(example_report(right_verdict(ADD)), limited=True),
    )
    for old, new in ((every, some), (some, every)):
        found = compare(old, new)
        assert (found.changes, found.same, found.apart) == ((), 1, ("aten.mul.Tensor",))
        assert "was asked for some ops alone" in str(found)


def test_what_a_run_that_was_cut_short_did_not_result_in_is_not_compared() -> None:
    whole, cut = example_report(right_verdict(ADD)), replace(example_report(skipped_verdict(ADD)), interrupted=True)
    for old, new in ((whole, cut), (cut, whole)):
        found = compare(old, new)
        assert (found.changes, found.same, found.apart) == ((), 0, (ADD,))
        assert "run was cut short" in str(found)


def test_it_is_reported_worst_first() -> None:
    old = example_report(
        right_verdict(ADD), wrong_verdict("aten.mul.Tensor"), wrong_verdict("aten.exp.default"), right_verdict("aten.cos.default")
    )
    new = example_report(
        wrong_verdict(ADD, "values", "dtype"),
        right_verdict("aten.mul.Tensor"),
        absent_verdict("aten.exp.default"),
        right_verdict("aten.cos.default"),
    )
    assert str(compare(old, new)).splitlines() == [
        "worse than before: 1",
        "  aten.add.Tensor: right -> wrong (breaks dtype, values)",
        "better than before: 1",
        "  aten.mul.Tensor: wrong -> right",
        "neither better nor worse: 1",
        "  aten.exp.default: wrong -> absent",
        "as before: 1",
    ]


@pytest.mark.full
@given(report_strategy())
def test_nothing_differs_from_itself(report: Report) -> None:
    found = compare(report, report)
    assert (found.changes, found.worse) == ((), False)
    assert found.same + len(found.apart) == len(report.results)
