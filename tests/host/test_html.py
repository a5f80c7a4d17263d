"""Parts of pages: numbers with units, and tables that sort, find and show more."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import needs_browser, outside_resources, visit

import eagerdecomp
from eagerdecomp.host.html import environment

PACKAGE = Path(eagerdecomp.__file__).parent
NASTY = '</script><img src=x onerror="window.broken=1">\'&<b>'


ROWS = [("b10", 3, 0.5), ("a", 12, 0.25), ("b9", 7, 0.125), *((f"z{number}", 0, 0.01 / (number + 1)) for number in range(10))]


TEMPLATE = """\
{% extends "report.html.jinja" %}
{% from "tables.html.jinja" import count, number, table %}
{% block ops %}
{% call(row) table(title, {"op": "", "calls": "n", "time": "n"}, rows, "time", shown=5) %}
<tr id="row-{{ row[0] }}"><th scope="row">{{ row[0] }}</th>{{ count("calls", row[1]) }}
{{ number("time", row[2] ~ " s", row[2], row[2]) }}
{% endcall %}
{% endblock %}
"""


def page_of(tmp_path: Path) -> Path:
    values = {"title": f"Title {NASTY}", "rows": ROWS, "sections": {"ops": f"Ops {NASTY}"}, "tiles": [("ops", NASTY, NASTY)]}
    text = environment("eagerdecomp.host").from_string(TEMPLATE).render(values, verdicts=[("bad", NASTY)], facts={"script": NASTY})
    path = tmp_path / "page.html"
    path.write_text(text, encoding="utf-8")
    return path


#: What a reader sees of the table: first cells of the rows that are shown, and how each column is said to be sorted.
SEEN = """const shown=()=>[...document.querySelectorAll('tbody tr')].filter(row=>row.checkVisibility());
const seen=()=>({rows:shown().map(row=>row.cells[0].textContent),
sorted:[...document.querySelectorAll('thead th')].map(head=>head.getAttribute('aria-sort')),
count:document.querySelector('[role=status]').textContent});
const press=place=>document.querySelectorAll('thead button')[place].click();"""


def test_every_template_is_in_the_wheel() -> None:
    settings = (PACKAGE.parent / "pyproject.toml").read_text(encoding="utf-8")
    globs = re.findall('"([^"]+[.]jinja)"', settings)
    assert {path for glob in globs for path in PACKAGE.glob(glob)} == set(PACKAGE.rglob("*.jinja"))


def test_a_page_loads_nothing_and_its_text_is_escaped(tmp_path: Path) -> None:
    text = page_of(tmp_path).read_text(encoding="utf-8")
    assert outside_resources(text) == []
    assert "<img" not in text
    assert text.count("<script>") == 1


@pytest.mark.full
@needs_browser
def test_a_table_shows_its_first_rows_and_all_when_asked(tmp_path: Path) -> None:
    seen = visit(
        page_of(tmp_path),
        SEEN + "const before=seen(),more=document.querySelector('.tools button');more.click();return [before,seen(),more.hidden]",
    )
    before, after, gone = seen.result
    assert before == {"rows": ["b10", "a", "b9", "z0", "z1"], "sorted": ["none", "none", "descending"], "count": "5 of 13 rows"}
    assert after["rows"] == [name for name, _, _ in ROWS]
    assert after["count"] == "13 of 13 rows"
    assert gone
    assert seen.console == ()


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize(
    ("pressed", "first", "sorted_by"),
    [
        ([1], ["a", "b9", "b10"], ["none", "descending", "none"]),
        ([2], ["z9", "z8", "z7"], ["none", "none", "ascending"]),
        ([0], ["a", "b9", "b10", "z0"], ["ascending", "none", "none"]),
    ],
)
def test_headings_sort_the_table(tmp_path: Path, pressed: list[int], first: list[str], sorted_by: list[str]) -> None:
    seen = visit(page_of(tmp_path), SEEN + f"for(const place of {pressed})press(place);return seen()").result
    assert seen["rows"][: len(first)] == first
    assert len(seen["rows"]) == 5
    assert seen["sorted"] == sorted_by


@pytest.mark.full
@needs_browser
@pytest.mark.parametrize("dark", [False, True])
def test_every_text_colour_has_contrast_on_both_backgrounds(tmp_path: Path, dark: bool) -> None:
    ask = """const style=getComputedStyle(document.documentElement),probe=document.createElement('p');document.body.append(probe);
        const light=name=>{probe.style.color=style.getPropertyValue(name);
        const parts=getComputedStyle(probe).color.match(/\\d+/g).slice(0,3).map(part=>part/255)
        .map(part=>part<=.04045?part/12.92:((part+.055)/1.055)**2.4);return .2126*parts[0]+.7152*parts[1]+.0722*parts[2]};
        const found={};for(const ink of ['ink','quiet','link','good','warn','bad'])for(const ground of ['paper','raised']){
        const [low,high]=[light('--'+ink),light('--'+ground)].sort((a,b)=>a-b);found[ink+' on '+ground]=(high+.05)/(low+.05)}
        return found"""
    found = visit(page_of(tmp_path), ask, dark=dark).result
    assert len(found) == 12
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}
