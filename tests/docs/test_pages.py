"""Pages whose examples run, of docs/ and beside README: what stands behind each as its output is what it prints."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    str(path.relative_to(ROOT))
    for path in [*sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
    if "```python" in path.read_text(encoding="utf-8") and path.name != "tour.md"  # tests/docs/test_readme.py runs that
]


def test_there_are_such_pages_and_readme_leads_to_each() -> None:
    assert {f"docs/{name}.md" for name in ("silu_backward", "core_aten_in_eager", "torch_ir_to_prims")} <= set(PAGES)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if f"]({page})" not in readme] == []


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_stands_behind_it_in_a_script_of_its_own(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", (ROOT / page).read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
    assert blocks[0][0] == "python"
    assert blocks[-1][0] == "text"
    end = "-- the end of an example --\n"
    script = "".join(block if kind == "python" else f"print({end!r}, end='')\n" for kind, block in blocks)
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path("page.py", run_name="__main__")
    shown = [block for kind, block in blocks if kind == "text"]
    assert out.getvalue().split(end) == [*shown, ""], page
