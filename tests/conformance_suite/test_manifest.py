"""The manifest of absences: it is read and written, and new and missing absences are reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from conformance_reports import absent_verdict, example_report, right_verdict

import eagerdecomp as ed
from eagerdecomp.conformance.manifest import check_manifest, parse_manifest, stale_because, write_manifest
from eagerdecomp.ops.backend import Backend

LACKING = Backend("mine", ed.core_aten() - ["aten.erf.default", "aten.cos.default"] | ["aten.silu.default"])
REPORT = example_report(absent_verdict("aten.erf.default"), absent_verdict("aten.cos.default"), right_verdict("aten.silu.default"))


def test_a_manifest_holds_one_op_a_line_and_a_reason() -> None:
    text = "# what comes next\n\naten.erf.default # no formula # yet\n  aten.cos.default\r\n"
    assert parse_manifest(text) == {"aten.erf.default": "no formula # yet", "aten.cos.default": ""}


def test_new_and_missing_absences_are_reported() -> None:
    both = {"aten.erf.default": "", "aten.cos.default": ""}
    assert check_manifest(REPORT, both, LACKING) == REPORT
    fewer = check_manifest(REPORT, ["aten.erf.default"], LACKING)
    assert (fewer.stale, fewer.undeclared, fewer.ok) == ((), ("aten.cos.default",), False)
    stale = ["aten.add.Tensor", "aten.silu.default", "aten.gelu", "aten.nosuch.default", "no name"]
    more = check_manifest(REPORT, [*both, *stale], LACKING)
    assert (more.stale, more.undeclared, more.ok) == (tuple(sorted(stale)), (), False)


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("aten.add.Tensor", "the backend has this kernel"),
        ("aten.silu.default", "it is not of Core ATen, so no backend lacks it"),
        ("aten.gelu", "an entry is one overload: aten.gelu.default, aten.gelu.out"),
        ("aten.nosuch.default", "no operator is called that"),
        ("no name", "no operator is called that"),
        ("", "no operator is called that"),
    ],
)
def test_it_is_reported_why_an_entry_is_stale(name: str, why: str) -> None:
    assert stale_because(name) == why


def test_reasons_given_before_are_kept() -> None:
    text = write_manifest(REPORT, {"aten.cos.default": "no  table\nyet", "aten.add.Tensor": "gone"})
    assert text.splitlines()[1:] == ["aten.cos.default  # no table yet", "aten.erf.default  # not written yet"]


def test_a_run_of_some_ops_keeps_the_entries_of_the_others() -> None:
    some = replace(example_report(right_verdict("aten.cos.default"), absent_verdict("aten.erf.default")), limited=True)
    text = write_manifest(some, {"aten.cos.default": "no table", "aten.sin.default": "neither"})
    assert parse_manifest(text) == {"aten.erf.default": "not written yet", "aten.sin.default": "neither"}
