"""The page of a report in a browser: what it shows, finds, sorts and copies, and that nothing a kernel says is taken for HTML."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from browser import needs_browser, visit
from conformance_reports import (
    HOSTILE_TEXT,
    absent_verdict,
    example_report,
    hostile_report,
    overload,
    right_verdict,
    skipped_verdict,
    wrong_verdict,
)

import eagerdecomp as ed
from eagerdecomp.conformance.comparing import compare
from eagerdecomp.conformance.reports.page import report_page
from eagerdecomp.conformance.reports.words import one_line, printable
from eagerdecomp.conformance.results import Consequence, NextKernel, Report, Verdict

MANY = [str(overload) for overload in ed.core_aten() if str(overload).startswith(("aten.a", "aten.b", "aten.c"))]
FAMILIES = {name: "first" if name.startswith("aten.a") else "second" for name in MANY if not name.startswith("aten.c")}
WRONG = ["aten.add.Tensor", "aten.amax.default", "aten.bmm.default", "aten.cos.default"]


def many() -> Report:
    """Every state, and more kernels than a table shows at first."""
    verdicts = [
        wrong_verdict(name, "values", "memory")
        if name in WRONG
        else absent_verdict(name)
        if number % 7 == 1
        else skipped_verdict(name)
        if number % 7 == 2
        else right_verdict(name, 10 + number)
        for number, name in enumerate(MANY)
    ]
    following = tuple(
        Consequence(overload(name), "f32[2]", overload("aten.add.Tensor")) for name in ("aten.mish.default", "aten.silu.default")
    )
    missing = [verdict.op for verdict in verdicts if verdict.state == "absent"]
    return example_report(*verdicts, consequences=following, next_kernels=tuple(NextKernel(one, 9, 3) for one in missing))


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("report") / "report.html"
    old = example_report(*(right_verdict(str(verdict.op)) for verdict in many().results))
    path.write_text(report_page(many(), families=FAMILIES, comparison=compare(old, many())), encoding="utf-8")
    return path


def test_it_says_what_of_the_manifest_does_not_hold_and_that_a_run_was_cut_short() -> None:
    report = replace(example_report(), stale=("aten.add.Tensor",), undeclared=("aten.cos.default",), interrupted=True)
    text = report_page(report)
    assert "The manifest of absences does not hold." in text
    assert "<code>aten.add.Tensor</code>: the backend has this kernel" in text
    assert "Absent, and not declared:</p><ul><li><code>aten.cos.default</code></li></ul>" in text
    assert "The run was cut short" in text


@needs_browser
def test_it_runs_without_complaint_and_without_a_request(page: Path) -> None:
    seen = visit(page, "return performance.getEntriesByType('resource').map(one=>one.name)")
    assert seen.console == ()
    assert seen.result == []


@needs_browser
def test_no_word_of_a_kernel_is_taken_for_html(tmp_path: Path) -> None:
    report = hostile_report()
    path = tmp_path / "nasty.html"
    path.write_text(
        report_page(report, families={"aten.add.Tensor": HOSTILE_TEXT}, comparison=compare(example_report(), report)),
        encoding="utf-8",
    )
    ask = """return {title:document.title,scripts:document.querySelectorAll('script').length,
        stray:document.querySelectorAll('main a:not([href^="#"]),main em,main script').length,
        script:document.querySelector('pre.script').textContent,call:document.querySelector('pre.words').textContent}"""
    seen = visit(path, ask)
    assert seen.console == ()
    assert seen.result == {
        "title": f"Conformance of {one_line(HOSTILE_TEXT)}",
        "scripts": 2,  # the page's own, and the question
        "stray": 0,
        "script": "\n" + printable(HOSTILE_TEXT),
        "call": printable(HOSTILE_TEXT),
    }


@needs_browser
def test_an_address_opens_its_kernel_and_every_address_leads_somewhere(page: Path) -> None:
    ask = """const links=[...document.querySelectorAll('a')].map(one=>
        !!document.getElementById(decodeURIComponent(one.hash.slice(1))));
        return {open:[...document.querySelectorAll('details.kernel[open]')].map(one=>one.id),links}"""
    found = visit(page, ask, fragment="wrong-aten.bmm.default").result
    assert found["open"] == ["wrong-aten.bmm.default"]
    assert len(found["links"]) >= len(WRONG)
    assert all(found["links"])
    assert visit(page, ask).result["open"] == []


@needs_browser
def test_the_button_copies_the_script(page: Path) -> None:
    ask = """let copied='';const clipboard={writeText:text=>{copied=text;return Promise.resolve()}};
        Object.defineProperty(navigator,'clipboard',{value:clipboard});
        const part=document.getElementById('wrong-aten.add.Tensor');part.open=true;
        part.querySelector('button').click();return copied"""
    assert visit(page, ask).result == "import torch\n\n# aten.add.Tensor breaks values\nraise SystemExit(1)"


@needs_browser
@pytest.mark.parametrize(
    ("typed", "fits"),
    [
        ("wrong", lambda verdict: verdict.state == "wrong"),
        ("ADD", lambda verdict: "add" in str(verdict.op)),
        ("absent first", lambda verdict: verdict.state == "absent" and FAMILIES.get(str(verdict.op)) == "first"),
        ("no such kernel", lambda verdict: False),
    ],
    ids=["state", "name", "two words", "none"],
)
def test_the_box_leaves_the_kernels_that_hold_every_word(page: Path, typed: str, fits: Callable[[Verdict], bool]) -> None:
    ask = f"""const box=document.querySelector('#kernels input');box.value={typed!r};box.dispatchEvent(new Event('input'));
        return [...document.querySelectorAll('#kernels tbody tr')].filter(one=>one.checkVisibility()).map(one=>one.id)"""
    wanted = sorted(f"row-{verdict.op}" for verdict in many().results if fits(verdict))
    assert sorted(visit(page, ask).result) == wanted
