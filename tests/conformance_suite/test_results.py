"""Reports as values: kept as JSON, counted, and read again with another torch."""

from __future__ import annotations

import pytest
from conformance_reports import absent_verdict, example_report, overload, report_strategy, right_verdict, wrong_verdict
from hypothesis import given

from eagerdecomp.conformance.results import Consequence, Report, State, Verdict


@pytest.mark.full
@given(report_strategy())
def test_a_report_is_kept_as_json(report: Report) -> None:
    assert Report.from_json(report.to_json()) == report


def test_ops_that_this_torch_lacks_are_left_out_and_named() -> None:
    text = example_report(consequences=(Consequence(overload("aten.silu.default"), "", overload("aten.amax.default")),)).to_json()
    read = Report.from_json(
        text.replace("aten.amax.default", "aten.amaximum.default").replace("aten.cos.default", "other.cos.default")
    )
    assert read.left_out == ("aten.amaximum.default", "other.cos.default", "aten.silu.default")
    assert [str(verdict.op) for verdict in read.results] == [
        "aten.add.Tensor",
        "aten.mul.Tensor",
        "aten.exp.default",
        "aten.erf.default",
        "aten.rand.default",
    ]
    assert read.consequences == ()
    assert Report.from_json(read.to_json()).left_out == ()


def test_what_was_found_is_counted_and_looked_up() -> None:
    report = example_report()
    assert report.counts == {"wrong": 2, "right": 2, "not exercised": 1, "absent": 2}
    assert [(str(failure.op), failure.property) for failure in report.failures] == [
        ("aten.add.Tensor", "values"),
        ("aten.add.Tensor", "strides"),
        ("aten.amax.default", "values"),
    ]
    assert report.verdict("aten.exp.default") == report.verdict(overload("aten.exp.default")) == right_verdict("aten.exp.default")
    assert report.with_state("absent") == (absent_verdict("aten.erf.default"), absent_verdict("aten.cos.default"))
    with pytest.raises(KeyError, match=r"no verdict on aten\.sin"):
        report.verdict("aten.sin.default")
    assert str(report) == "conformance of mine (standard, seed 3): 2 wrong, 2 right, 1 not exercised, 2 absent"


@pytest.mark.parametrize(
    ("state", "cases", "failing"), [("right", 0, False), ("right", 3, True), ("wrong", 3, False), ("absent", 0, True)]
)
def test_a_verdict_is_what_was_found(state: State, cases: int, failing: bool) -> None:
    """Never right without a case that was run."""
    failures = wrong_verdict("aten.add.Tensor").failures if failing else ()
    with pytest.raises(ValueError, match=f"cannot be {state} with {cases} cases"):
        Verdict(overload("aten.add.Tensor"), state, cases=cases, failures=failures)
