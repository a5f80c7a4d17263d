"""The page of a plan in a browser: links, families, the search box, and the layout."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from browser import NARROW, needs_browser, visit

import eagerdecomp as ed
from eagerdecomp.coverage.families import OTHER, family

pytestmark = pytest.mark.full

ASKED = ("aten.silu.default", "aten.silu_backward.default", "aten.hardswish.default", "aten.cos.default", "aten.mul.Tensor")
LINALG = [f"aten.linalg_{name}" for name in ("qr", "eigh", "svd", "inv", "det", "solve", "norm", "lu", "cholesky", "pinv")]


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("plan") / "plan.html"
    made = ed.plan(ed.infra() | ["aten.mul.Tensor", "aten.sigmoid.default"], ops=ASKED)
    path.write_text(made.to_html(), encoding="utf-8")
    return path


@needs_browser
def test_the_console_is_empty_and_nothing_is_requested(page: Path) -> None:
    seen = visit(page, "return performance.getEntriesByType('resource').map(one=>one.name)")
    assert seen.console == ()
    assert seen.result == []


@needs_browser
def test_an_address_opens_the_part_of_its_op(page: Path) -> None:
    ask = "return [...document.querySelectorAll('details.op[open]')].map(one=>one.id)"
    assert visit(page, ask, fragment="aten.silu_backward.default").result == ["aten.silu_backward.default"]
    assert visit(page, ask).result == []


@needs_browser
def test_every_internal_link_has_a_target(page: Path) -> None:
    ask = "return [...document.querySelectorAll('a')].map(one=>!!document.getElementById(decodeURIComponent(one.hash.slice(1))))"
    found = visit(page, ask).result
    assert len(found) >= len(ASKED)
    assert all(found)


@needs_browser
@pytest.mark.parametrize(
    ("typed", "left"),
    [
        ("silu", ["aten.silu.default", "aten.silu_backward.default"]),
        ("SUPPORTED", ["aten.mul.Tensor"]),
        ("silu back", ["aten.silu_backward.default"]),
        ("no such op", []),
        ("", sorted(ASKED)),
    ],
)
def test_the_search_box_shows_the_ops_with_all_words(page: Path, typed: str, left: list[str]) -> None:
    ask = f"""const box=document.getElementById('find');box.value={typed!r};box.dispatchEvent(new Event('input'));
        return {{ops:[...document.querySelectorAll('details.op')].filter(one=>one.checkVisibility()).map(one=>one.id),
        count:document.getElementById('found').textContent}}"""
    seen = visit(page, ask)
    assert sorted(seen.result["ops"]) == left
    assert seen.result["count"] == f"{len(left)} of {len(ASKED)} ops"


SHOWN = """const shown=kind=>[...document.querySelectorAll(`details.${kind}`)].filter(one=>one.checkVisibility());
    const type=text=>{const box=document.getElementById('find');box.value=text;box.dispatchEvent(new Event('input'))};
    const names=()=>shown('op').map(one=>one.id);"""


@pytest.fixture(scope="module")
def large(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("large") / "plan.html"
    path.write_text(
        ed.plan(ed.core_aten(), ops=["aten.silu", *LINALG, "aten.add", "aten.mul", "aten.sum"]).to_html(), encoding="utf-8"
    )
    return path


@needs_browser
def test_many_ops_are_folded_by_family_with_counts_of_each_status(large: Path) -> None:
    ask = SHOWN + "return [shown('family').map(one=>one.querySelector('summary').textContent.replace(/\\s+/g,' ')),names()]"
    families, ops = visit(large, ask).result
    assert ops == []
    assert [text.rpartition(" ")[0].partition(":")[0].rstrip(" 0123456789") for text in families] == [
        "activations",
        "elementwise",
        "linear algebra",
        "reductions, scans and sorts",
    ]
    for text in families:
        head, _, counts = text.partition(":")
        assert int(head.rpartition(" ")[2]) == sum(map(int, re.findall(r"\d+", counts)))


@needs_browser
def test_a_search_opens_the_families_of_its_hits_and_closes_them_again(large: Path) -> None:
    ask = """const found=[];for(const text of ['add.tensor','silu.out','']){type(text);
        found.push([shown('family').length,names()])}return found"""
    assert visit(large, SHOWN + ask).result == [[1, ["aten.add.Tensor"]], [1, ["aten.silu.out"]], [4, []]]


def test_every_op_of_core_aten_has_a_family() -> None:
    lost = {str(op) for op in ed.core_aten() if str(op).startswith("aten.") and family(str(op)) == OTHER}
    assert lost == set()
    assert [family(op) for op in ("aten.linalg_qr.default", "aten.sub_.Tensor", "aten.foo.bar", "no name")] == [
        "linear algebra",
        "elementwise",
        OTHER,
        OTHER,
    ]


@needs_browser
@pytest.mark.parametrize("width", [1280, NARROW])
def test_it_fits_its_width(page: Path, width: int) -> None:
    ask = """for(const one of document.querySelectorAll('details'))one.open=true;
        return [innerWidth,document.documentElement.scrollWidth]"""
    assert visit(page, ask, width=width).result == [width, width]
