"""Improvements and regressions between two runs."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given
from made_reports import a_report, absent, reports, right, skipped, wrong

from eagerdecomp.conformance.comparing import Change, compare
from eagerdecomp.conformance.results import Report, Verdict

ADD = "aten.add.Tensor"


@pytest.mark.parametrize(
    ("was", "now", "change"),
    [
        (right(ADD), wrong(ADD), Change(ADD, "right", "wrong", ("values",), (), "worse")),
        (wrong(ADD), right(ADD), Change(ADD, "wrong", "right", (), ("values",), "better")),
        (absent(ADD), right(ADD), Change(ADD, "absent", "right", (), (), "better")),
        (absent(ADD), wrong(ADD), Change(ADD, "absent", "wrong", ("values",), (), "worse")),
        (right(ADD), absent(ADD), Change(ADD, "right", "absent", (), (), "worse")),
        (wrong(ADD), absent(ADD), Change(ADD, "wrong", "absent", (), ("values",), "neither")),
        (right(ADD), skipped(ADD), Change(ADD, "right", "not exercised", (), (), "worse")),
        (skipped(ADD), right(ADD), Change(ADD, "not exercised", "right", (), (), "better")),
        (wrong(ADD, "values", "dtype"), wrong(ADD, "dtype"), Change(ADD, "wrong", "wrong", (), ("values",), "better")),
        (wrong(ADD, "dtype"), wrong(ADD, "values"), Change(ADD, "wrong", "wrong", ("values",), ("dtype",), "worse")),
    ],
)
def test_a_change_is_for_the_better_or_the_worse(was: Verdict, now: Verdict, change: Change) -> None:
    found = compare(a_report(was, right("aten.mul.Tensor")), a_report(now, right("aten.mul.Tensor", 99)))
    assert found.changes == (change,)
    assert found.worse == (change.direction == "worse")
    assert (found.same, found.apart) == (1, ())


def test_an_op_that_a_run_does_not_know_is_absent_from_it() -> None:
    silu = right("aten.silu.default")
    assert compare(a_report(right(ADD)), a_report(right(ADD), silu)).changes[0].direction == "better"
    assert compare(a_report(right(ADD), silu), a_report(right(ADD))).worse
    assert compare(a_report(absent(ADD)), a_report(right("aten.mul.Tensor"))).changes == (
        Change("aten.mul.Tensor", "absent", "right", (), (), "better"),
    )


def test_what_a_run_was_not_asked_for_is_not_compared() -> None:
    every, some = a_report(right(ADD), wrong("aten.mul.Tensor")), replace(a_report(right(ADD)), limited=True)
    for old, new in ((every, some), (some, every)):
        found = compare(old, new)
        assert (found.changes, found.same, found.apart) == ((), 1, ("aten.mul.Tensor",))
        assert "was asked for some ops alone" in str(found)


def test_what_a_run_that_was_cut_short_did_not_result_in_is_not_compared() -> None:
    whole, cut = a_report(right(ADD)), replace(a_report(skipped(ADD)), interrupted=True)
    for old, new in ((whole, cut), (cut, whole)):
        found = compare(old, new)
        assert (found.changes, found.same, found.apart) == ((), 0, (ADD,))
        assert "run was cut short" in str(found)


def test_runs_of_another_kind_are_noted() -> None:
    old = replace(a_report(right(ADD)), profile="quick", torch="2.12.0", backend="yours", left_out=("aten.gone.default",))
    notes = compare(old, a_report(right(ADD))).notes
    assert any("profile quick, this one of profile standard" in note for note in notes)
    assert any("torch 2.12.0" in note for note in notes)
    assert any("backend 'yours'" in note for note in notes)
    assert any("aten.gone.default" in note for note in notes)
    assert compare(old, old).notes == ("the older run knows ops that this torch lacks: aten.gone.default",)


def test_it_is_reported_worst_first() -> None:
    old = a_report(right(ADD), wrong("aten.mul.Tensor"), wrong("aten.exp.default"), right("aten.cos.default"))
    new = a_report(wrong(ADD, "values", "dtype"), right("aten.mul.Tensor"), absent("aten.exp.default"), right("aten.cos.default"))
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
@given(reports())
def test_nothing_differs_from_itself(report: Report) -> None:
    found = compare(report, report)
    assert (found.changes, found.worse) == ((), False)
    assert found.same + len(found.apart) == len(report.results)


@pytest.mark.full
@given(reports(), reports())
def test_what_is_worse_one_way_is_not_the_other_way_round(old: Report, new: Report) -> None:
    there, back = compare(old, new), compare(new, old)
    assert (there.same, there.apart) == (back.same, back.apart)
    turned = {(change.op, change.was, change.now, change.broken, change.fixed) for change in there.changes}
    assert turned == {(change.op, change.now, change.was, change.fixed, change.broken) for change in back.changes}
    only_fixed = {change.op for change in there.changes_to("better")}
    assert not only_fixed & {change.op for change in back.changes_to("better")}


@pytest.mark.full
@given(reports(), reports())
def test_worse_is_a_property_newly_broken_or_a_kernel_no_longer_right(old: Report, new: Report) -> None:
    assume(not old.interrupted and not new.interrupted)
    broken, breaks = ({(failure.op, failure.property) for failure in report.failures} for report in (old, new))
    was, found = ({verdict.op for verdict in report.with_state("right")} for report in (old, new))
    assert compare(old, new).worse == bool(breaks - broken or was - found)
