"""Reports as text, Markdown and JUnit: their contents, and that nothing a kernel says becomes markup."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from xml.etree import ElementTree

import pytest
from conformance_reports import (
    HOSTILE_TEXT,
    absent_verdict,
    example_report,
    hostile_report,
    overload,
    report_strategy,
    right_verdict,
    skipped_verdict,
    wrong_verdict,
)
from hypothesis import given

import eagerdecomp as ed
from eagerdecomp.conformance.comparing import compare
from eagerdecomp.conformance.reports.junit import report_junit
from eagerdecomp.conformance.reports.markdown import report_markdown
from eagerdecomp.conformance.reports.page import report_page
from eagerdecomp.conformance.reports.text import report_text
from eagerdecomp.conformance.reports.words import one_line, write_scripts
from eagerdecomp.conformance.results import Consequence, NextKernel, Report

FOLLOWING = tuple(
    Consequence(overload(name), "f32[3]", overload("aten.add.Tensor"))
    for name in ("aten.mish.default", "aten.silu.default", "aten.silu.default")
)
NEXT = (NextKernel(overload("aten.erf.default"), 10, 10), NextKernel(overload("aten.cos.default"), 9, 8))
WHOLE = example_report(consequences=FOLLOWING, next_kernels=NEXT)
HOSTILE = [hostile_report(text) for text in (HOSTILE_TEXT, "x" * 500, "word " * 500, "line\n" * 99)]


def fails_for(*dtypes: str) -> Report:
    names = ("aten.add.Tensor", "aten.mul.Tensor", "aten.exp.default", "aten.sin.default", "aten.mm.default")
    verdicts = [replace(wrong_verdict(name), failing_dtypes=tuple(text.split())) for name, text in zip(names, dtypes, strict=False)]
    return example_report(*verdicts)


HALVES = ("torch.bfloat16 torch.float16", "torch.bfloat16 torch.float16", "torch.bfloat16 torch.float16", "torch.float64")


def test_the_first_line_says_to_declare_the_dtypes_that_most_wrong_kernels_fail_for() -> None:
    made = fails_for(*HALVES)
    for text in (report_text(made, width=60), report_markdown(made).split("\n\n")[1]):
        first = " ".join(text.split("\n\n")[0].split())
        assert first.startswith("most of the 4 wrong kernels fail for each call with torch.float16, torch.bfloat16.")
        assert "declare it: Backend(dtypes=" in first
        assert "torch.float64" in first
        assert first.count("torch.bfloat16") == 1


# -- text ------------------------------------------------------------------------------------------------------------


def test_text_reports_each_wrong_kernel_with_what_shows_it_and_what_follows() -> None:
    text = report_text(WHOLE, scripts={("aten.add.Tensor", "values"): "made/aten.add.Tensor.values.py"})
    (block,) = [block for block in text.split("\n\n") if block.startswith("wrong: aten.add.Tensor")]
    assert block.splitlines() == [
        "wrong: aten.add.Tensor  (values, strides)",
        "  values: element 3 is off by 2.0",
        "    call        aten.add.Tensor(f32[3], f32[3])",
        "                    self = [0.0, 1.0, nan]",
        "    expected    [1.0, 2.0, nan]",
        "    got         [1.0, 2.0, 0.0]",
        "    reproducer  made/aten.add.Tensor.values.py",
        "  strides: element 3 is off by 2.0",
        "    call        aten.add.Tensor(f32[3], f32[3])",
        "                    self = [0.0, 1.0, nan]",
        "    expected    [1.0, 2.0, nan]",
        "    got         [1.0, 2.0, 0.0]",
        "  2 decomposed ops wrong by it: aten.mish.default, aten.silu.default",
    ]


def test_text_counts_first_and_ends_with_the_verdict() -> None:
    lines = report_text(WHOLE).splitlines()
    assert lines[0].startswith("conformance of mine: standard, seed 3, torch ")
    assert [line.split()[:-1][0] for line in lines[1:5]] == ["wrong", "right", "not", "absent"]
    assert [int(re.findall(r" (\d+) ", line)[0]) for line in lines[1:5]] == [2, 2, 1, 2]
    assert lines[5] == "  200 calls of decomposed ops compared, 2 ops wrong by a kernel's fault"
    assert lines[-1] == "not conformant: 2 wrong"


def test_text_says_why_kernels_were_not_exercised_and_what_of_the_manifest_does_not_hold() -> None:
    report = example_report(
        skipped_verdict("aten.rand.default", "no calls are drawn for it"),
        skipped_verdict("aten.bernoulli.p", "no calls are drawn for it"),
    )
    report = replace(report, stale=("aten.add.Tensor",), undeclared=("aten.cos.default",), interrupted=True)
    text = report_text(report)
    assert "  no calls are drawn for it: 2 (aten.rand.default, aten.bernoulli.p)" in text
    assert "  aten.add.Tensor: the backend has this kernel" in text
    assert "undeclared: 1 absent that the manifest does not declare\n  aten.cos.default" in text
    assert text.splitlines()[-1] == "not conformant: 1 stale absence, 1 undeclared absence, cut short"


_MANY = [str(op) for op in ed.core_aten() if str(op).endswith(".default")][:37]


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("report", [WHOLE, *HOSTILE], ids=range(5))
def test_text_fits_its_width_and_prints(report: Report, width: int) -> None:
    text = report_text(report, width=width, absent=True, comparison=compare(WHOLE, report))
    assert max(len(line) for line in text.splitlines() if not line.startswith("wrong:")) <= width
    assert text.isprintable() or {char for char in text if not char.isprintable()} == {"\n"}
    text.encode("utf-8")
    (block,) = [block for block in text.split("\n\n") if block.startswith("wrong: aten.add.Tensor")]
    assert len(block.splitlines()) <= 50


@pytest.mark.full
@given(report_strategy())
def test_every_form_can_report_any_report(report: Report) -> None:
    for reported in (report_text, report_markdown, report_junit, report_page):
        text = reported(report)
        text.encode("utf-8")
        assert all(str(verdict.op) in text for verdict in report.with_state("wrong"))


# -- scripts ---------------------------------------------------------------------------------------------------------


@pytest.mark.full
def test_reproducers_are_written_each_to_a_file_that_runs(tmp_path: Path) -> None:
    report = example_report(wrong_verdict("aten.add.Tensor", "values", "out of bounds/.."), wrong_verdict("aten.amax.default"))
    written = write_scripts(report, tmp_path / "scripts")
    assert sorted(written) == [
        ("aten.add.Tensor", "out of bounds/.."),
        ("aten.add.Tensor", "values"),
        ("aten.amax.default", "values"),
    ]
    assert sorted(map(str, (tmp_path / "scripts").iterdir())) == sorted(written.values())
    path = written["aten.amax.default", "values"]
    assert Path(path).read_text(encoding="utf-8") == report.verdict("aten.amax.default").failures[0].reproducer
    assert subprocess.run([sys.executable, path], check=False).returncode == 1
    assert write_scripts(example_report(right_verdict("aten.add.Tensor")), tmp_path / "none") == {}
    assert not (tmp_path / "none").exists()


# -- JUnit -----------------------------------------------------------------------------------------------------------


def cases(report: Report) -> dict[str, ElementTree.Element]:
    root = ElementTree.fromstring(report_junit(report))
    return {case.get("name", ""): case for case in root.iter("testcase")}


def kinds(case: ElementTree.Element) -> list[str]:
    return [child.tag for child in case]


def test_junit_says_what_is_wrong_and_why_a_kernel_was_skipped() -> None:
    found = cases(WHOLE)
    failure = found["aten.add.Tensor"][0]
    assert failure.attrib == {"message": "values: element 3 is off by 2.0", "type": "values, strides"}
    for reported in (
        "call: aten.add.Tensor(f32[3], f32[3])",
        "expected: [1.0, 2.0, nan]",
        "got: [1.0, 2.0, 0.0]",
        "raise SystemExit(1)",
    ):
        assert (failure.text or "").count(reported) == 2
    assert "aten.mish.default: f32[3]" in (failure.text or "")
    assert found["aten.rand.default"][0].get("message") == "not run: nothing is known of it: interrupted before it was reached"
    assert found["aten.erf.default"][0].get("message") == "the backend has no such kernel"


def test_junit_fails_for_what_is_wrong_beside_kernels() -> None:
    report = replace(
        example_report(right_verdict("aten.add.Tensor")),
        stale=("aten.add.Tensor",),
        undeclared=("aten.cos.default",),
        interrupted=True,
    )
    found = {name: kinds(case) for name, case in cases(report).items()}
    assert found == {
        "aten.add.Tensor": [],
        "stale absences": ["failure"],
        "undeclared absences": ["failure"],
        "the whole run": ["error"],
    }


@pytest.mark.full
@given(report_strategy())
def test_junit_is_well_formed_counts_itself_and_is_green_where_the_report_is(report: Report) -> None:
    root = ElementTree.fromstring(report_junit(report))
    (suite,) = root
    assert (root.tag, suite.tag) == ("testsuites", "testsuite")
    children = [kinds(case) for case in suite.iter("testcase")]
    assert all(len(found) <= 1 for found in children)
    for element in (root, suite):
        counted = {name: int(element.get(name, "")) for name in ("tests", "failures", "errors")}
        failed, ended = children.count(["failure"]), children.count(["error"])
        assert counted == {"tests": len(children), "failures": failed, "errors": ended}
        float(element.get("time", ""))
    assert report.ok == (0 == int(root.get("failures", "")) == int(root.get("errors", "")) < report.counts["right"])
    assert int(suite.get("skipped", "")) == children.count(["skipped"])
    assert children.count([]) == len(report.with_state("right"))


# -- Markdown --------------------------------------------------------------------------------------------------------


class Tags(HTMLParser):
    """The tags of a page, in order, and its text."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_endtag(self, tag: str) -> None:
        self.tags.append(f"/{tag}")

    def handle_data(self, data: str) -> None:
        self.text += data


@pytest.fixture(scope="module")
def rendered() -> Callable[[str], Tags]:
    markdown_it = pytest.importorskip("markdown_it")
    renderer = markdown_it.MarkdownIt("gfm-like", {"linkify": False})
    return lambda text: Tags(renderer.render(text))


def test_markdown_has_a_table_of_counts_and_folds_each_wrong_kernel() -> None:
    text = report_markdown(WHOLE)
    assert "| **wrong** | 2 | broke a property |\n| right | 2 | exercised, nothing found |" in text
    summaries = re.findall("<summary><code>(.*?)</code>: <b>(.*?)</b>", text)
    assert summaries == [("aten.add.Tensor", "values, strides"), ("aten.amax.default", "values")]
    assert text.count("<details>") == text.count("</details>")
    assert "```python\nimport torch" in text
    assert "Decomposed ops that it makes wrong: 2 (<code>aten.mish.default</code>, <code>aten.silu.default</code>)" in text
    assert "| <code>aten.cos.default</code> | 9 | 8 |" in text


def test_markdown_takes_no_word_of_a_kernel_for_markup(rendered: Callable[[str], Tags]) -> None:
    plain = rendered(report_markdown(hostile_report("some words"), comparison=compare(WHOLE, hostile_report("some words"))))
    found = rendered(report_markdown(hostile_report(), comparison=compare(WHOLE, hostile_report())))
    assert found.tags == plain.tags
    assert "a" not in found.tags
    assert one_line(HOSTILE_TEXT) in found.text


def test_markdown_fits_a_comment() -> None:
    long = [wrong_verdict(name, message="word " * 900, example="value " * 900) for name in _MANY]
    text = report_markdown(example_report(*long, *map(absent_verdict, ["aten.sin.default"]), next_kernels=NEXT))
    assert len(text) < 65_536
    assert "wrong too, and left out here for want of space: " in text
    assert text.count("<details>") == text.count("</details>") > 3
    assert "for want of room" not in report_markdown(example_report(*(wrong_verdict(name) for name in _MANY)))
