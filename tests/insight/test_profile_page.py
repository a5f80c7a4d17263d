"""The page of a record: its content, escaping, and its behaviour in a browser."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
from browser import NARROW, needs_browser, outside_resources, visit
from profile_records import FULL, GELU, MUL, RECORD

from eagerdecomp.cli.main import main
from eagerdecomp.host.source_lines import Line
from eagerdecomp.profile.html import page
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.rows import Bucket, Flow, Metadata, Miss, Site
from eagerdecomp.profile.summary import Digest

NASTY = '</script></title></style></svg><img src=x onerror="window.broken=1">\'&<b>'


def poisoned(value: Any) -> Any:
    """The same record with every text in it hostile, a little differently for each."""
    if isinstance(value, str):
        return f"{value}{NASTY}"
    if isinstance(value, tuple):
        return tuple(map(poisoned, value))
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{one.name: poisoned(getattr(value, one.name)) for one in dataclasses.fields(value)})
    return value


def large() -> Record:
    """Some thousand ops, lines and misses."""
    ops = [f"aten.op{number}.default" for number in range(2000)]
    return Record(
        Metadata("big.py", op_set="OpSet(big)", torch="2.13.0", seconds=60.0),
        tuple(Line("/a/big.py", number, "step", f"x = op{number}(x)") for number in range(2000)),
        tuple(Site(op, number, 9, 0.01 * (number + 1), 0.005, 20, hits=8, misses=1) for number, op in enumerate(ops)),
        tuple(
            Flow(op, f"aten.kernel{(number + more) % 150}.default", 10, 0.001) for number, op in enumerate(ops) for more in (0, 7)
        ),
        buckets=tuple(Bucket(0.05 * number, number, 15, hits=12, misses=3) for number in range(1200)),
        bucket_seconds=0.05,
        misses=tuple(Miss(op, number, 0.03 * number, 0.01, f"{op}(f32[8])", "the first call") for number, op in enumerate(ops)),
        misses_left_out=4321,
    )


def written(record: Record, folder: Path) -> Path:
    path = folder / "page.html"
    path.write_text(page(Digest(record)), encoding="utf-8")
    return path


def words(text: str) -> str:
    """Return the text of a page, without its markup."""
    return re.sub(r"[\s\u00a0]+", " ", re.sub(r"<[^>]*>", " ", re.sub(r"<(script|style)>.*?</\1>", "", text, flags=re.DOTALL)))


# -- what it says ----------------------------------------------------------------------------------------------------


def test_it_shows_the_record() -> None:
    said = words(page(Digest(FULL)))
    for reported in (
        "train.py on OpSet(mine: 9 ops)",
        "1 op outside the set ran natively, in 1 call.",
        "4 → 3",
        "18 → 31",
        "train.py:7 step missed 1\u00d7 y = gelu(x)",
        "aten.mul.Tensor \u00d712",
        "the first call of this op",
        "it reads data",
        "threads of C++ are not in it",
        "Each column is 500 ms.",
    ):
        assert reported in said


def test_a_ribbon_is_of_the_kind_that_its_op_is() -> None:
    flows = (*RECORD.flows, Flow("aten.linalg_eig.default", MUL, 3, 0.01))
    text = page(Digest(dataclasses.replace(FULL, flows=flows)))
    drawn = re.search(r'data-of="all calls">(.*?)</svg>', text, re.DOTALL)
    assert drawn is not None
    found = {way: kind for kind, way in re.findall(r'<path class="ribbon (\w+)"[^>]*><title>(.*?):', drawn[1])}
    eig, entered = "aten.linalg_eig.default", "profiler._record_function_enter_new.default"
    assert found == {
        f"{GELU} \u2192 {MUL}": "apart",
        f"{GELU} \u2192 aten.erf.default": "apart",
        f"{MUL} \u2192 {MUL}": "whole",
        f"aten.gelu_backward.default \u2192 {MUL}": "apart",
        f"{eig} \u2192 {eig}": "native",
        f"{eig} \u2192 {MUL}": "tried",
        f"{entered} \u2192 {entered}": "passed",
    }


@pytest.mark.full
@pytest.mark.parametrize("record", [FULL, poisoned(FULL), Record(Metadata()), large()], ids=["full", "hostile", "empty", "large"])
def test_it_loads_no_other_file_and_its_links_have_targets(record: Record) -> None:
    text = page(Digest(record))
    assert outside_resources(text) == []
    assert text.count("<script>") == text.count("</script>") == 1
    assert text.count("<style>") == text.count("</style>") == 1
    assert "<img" not in text
    ids = re.findall(r'\bid="(.*?)"', text)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'href="#(.*?)"', text)) <= set(ids)


# -- in a browser ----------------------------------------------------------------------------------------------------


@needs_browser
@pytest.mark.parametrize("record", [FULL, poisoned(FULL), Record(Metadata()), large()], ids=["full", "hostile", "empty", "large"])
def test_the_console_is_empty_and_nothing_is_requested(record: Record, tmp_path: Path) -> None:
    ask = """return {asked:performance.getEntriesByType('resource').length,broken:window.broken||0,
        foreign:document.querySelectorAll('img,b,iframe').length,title:document.title,
        sections:[...document.querySelectorAll('section')].filter(one=>one.checkVisibility()).length}"""
    seen = visit(written(record, tmp_path), ask)
    assert seen.console == ()
    title = f"{record.metadata.script.rpartition('/')[2] or 'A run'} on {record.metadata.op_set}"
    assert seen.result == {"asked": 0, "broken": 0, "foreign": 0, "title": title.strip(), "sections": 6}


@needs_browser
@pytest.mark.parametrize("record", [FULL, poisoned(FULL), large()], ids=["full", "hostile", "large"])
@pytest.mark.parametrize("width", [1280, NARROW])
def test_it_fits_its_width(record: Record, width: int, tmp_path: Path) -> None:
    ask = "for(const one of document.querySelectorAll('details'))one.open=true;return document.documentElement.scrollWidth"
    assert visit(written(record, tmp_path), ask, width=width).result == width


@needs_browser
def test_pointing_at_an_op_follows_its_ribbons(tmp_path: Path) -> None:
    ask = """const flow=[...document.querySelectorAll('.flow')].find(one=>one.checkVisibility());
        const node=[...flow.querySelectorAll('.node')].find(one=>one.title.startsWith('aten.gelu.default'));
        const on=()=>[...flow.querySelectorAll('.ribbon.on title')].map(one=>one.textContent.split(':')[0]).sort();
        node.dispatchEvent(new Event('mouseenter'));const during=on();
        node.dispatchEvent(new Event('mouseleave'));return [during,on()]"""
    arrow = f"{GELU} → "
    assert visit(written(FULL, tmp_path), ask).result == [[f"{arrow}aten.erf.default", f"{arrow}{MUL}"], []]


@needs_browser
def test_a_large_table_shows_some_rows_and_sorts_them_all(tmp_path: Path) -> None:
    ask = """const table=document.querySelector('#ops table');
        const rows=()=>[...table.tBodies[0].rows].filter(row=>row.checkVisibility());
        const before=rows().length,first=rows()[0].cells[0].textContent;table.tHead.querySelectorAll('button')[2].click();
        return [before,first,rows().length,rows()[0].cells[0].textContent]"""
    assert visit(written(large(), tmp_path), ask).result == [
        25,
        "aten.op1999.defaultmissed 1\u00d7",
        25,
        "aten.op0.defaultmissed 1\u00d7",
    ]


# -- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "run.json"
    path.write_text(FULL.to_json(), encoding="utf-8")
    return path


def test_the_page_is_written_beside_the_record(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "run.json"]) == 0
    assert (kept.parent / "run.html").read_text(encoding="utf-8") == page(Digest(FULL))
    out = capsys.readouterr().out
    assert out.startswith("train.py on OpSet(mine: 9 ops)")
    assert out.endswith("page: run.html\n")


def test_a_record_is_not_overwritten(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = kept.read_text(encoding="utf-8")
    assert main(["report", "run.json", "--html", str(kept)]) == 2
    assert main(["report", "run.json", "--json", "run.json"]) == 2
    assert "this would overwrite the record" in capsys.readouterr().err
    assert kept.read_text(encoding="utf-8") == before
    kept.rename("page.html")
    assert main(["report", "page.html"]) == 0
    assert Path("page.html").read_text(encoding="utf-8") == before
    assert Path("page.html.html").exists()
