"""README and the pages of docs/: examples run as pasted from their page alone, and print what the page says they print."""

from __future__ import annotations

import contextlib
import io
import re
import runpy
from pathlib import Path
from typing import Any

import pytest
import torch

from eagerdecomp.backends.inductor import cpp_compiler

ROOT = Path(__file__).parents[2]

#: What README's links begin with: the package index shows README too, and has no other file.
FILES = "https://github.com/eagerdecomp/eagerdecomp/blob/main/"
PICTURES = "https://raw.githubusercontent.com/eagerdecomp/eagerdecomp/main/"

#: One section per task: a reader pastes the first block and that of a section. What a block prints stands in its comments.
TOUR = "docs/tutorial/tour.md"
WITH_CODE = [
    str(path.relative_to(ROOT))
    for path in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md")), ROOT / "CONTRIBUTING.md"]
    if "```python" in path.read_text(encoding="utf-8")
]
PAGES = [page for page in WITH_CODE if page != TOUR]


def blocks(page: str, languages: str) -> list[tuple[str, str]]:
    """The fenced blocks of a page in these languages: language and text."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return re.findall(rf"^```({languages})\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


SETUP, *SECTIONS = [text for _, text in blocks(TOUR, "python")]

#: How comments behind a `print` begin that describe the output. All others are the output, with ... for what is left out.
ABOUT_OUTPUT = ("per op", "ops by status", "the ops that do not decompose to the set", "no call of it was recorded")


def test_readme_links_to_the_contents_and_they_to_each_page() -> None:
    assert {f"docs/explanation/{name}.md" for name in ("silu_backward", "core_aten_in_eager", "torch_ir_to_prims")} <= set(PAGES)
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [page for page in ("docs/contents.md", "CONTRIBUTING.md") if f"]({FILES}{page})" not in readme] == []
    contents = ROOT / "docs" / "contents.md"
    text = contents.read_text(encoding="utf-8")
    pages = [str(path.relative_to(contents.parent)) for path in sorted(contents.parent.rglob("*.md")) if path != contents]
    assert [page for page in pages if f"]({page})" not in text] == []


def test_links_between_pages_are_files() -> None:
    pages = [*(ROOT / "docs").rglob("*.md"), *ROOT.glob("*.md"), *(ROOT / "examples").rglob("*.md")]
    broken = [
        (str(page.relative_to(ROOT)), target)
        for page in pages
        for target in re.findall(
            r"\]\(([^)\s#]+)[^)]*\)", re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
        )
        if "://" not in target and not (page.parent / target).exists()
    ]
    assert broken == []


def test_readmes_links_work_outside_the_repository_and_are_files() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    links = re.findall(r"(!?)\[[^\[\]]*\]\(([^)\s]+)\)", readme)
    assert len(links) > 8
    for picture, target in links:
        base = PICTURES if picture else FILES
        if target.startswith((FILES, PICTURES)):
            assert target.startswith(base), target
            assert (ROOT / target.removeprefix(base).partition("#")[0]).is_file(), target
        else:
            assert target.startswith(("https://", "#")), target


@pytest.mark.full
@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_its_documented_output_in_its_own_script(
    page: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = blocks(page, "python|text")
    assert found[0][0] == "python"
    assert found[-1][0] == "text"
    end = "-- the end of an example --\n"
    script = "".join(block if kind == "python" else f"print({end!r}, end='')\n" for kind, block in found)
    (tmp_path / "page.py").write_text(script, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    out = io.StringIO()
    with contextlib.redirect_stdout(out):
        runpy.run_path("page.py", run_name="__main__")
    shown = [block for kind, block in found if kind == "text"]
    assert out.getvalue().split(end) == [*shown, ""], page


def outputs(block: str) -> list[str]:
    """Return the outputs that the comments after the prints of a block state."""
    found = re.findall(r"print\w*\(.*  # (.*)$", block, re.MULTILINE)
    return [output for output in found if not output.startswith(ABOUT_OUTPUT)]


@pytest.mark.full
@pytest.mark.parametrize("number", range(len(SECTIONS)))
def test_every_block_of_the_tour_runs_after_the_first_one_alone(number: int) -> None:
    block = SECTIONS[number]
    if "inductor_hook" in block and cpp_compiler() is None:
        pytest.skip("there is nothing to compile with")
    namespace: dict[str, Any] = {}
    exec(compile(SETUP, f"the first block of {TOUR}", "exec"), namespace)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(compile(block, f"block {number} of {TOUR}", "exec"), namespace)
    printed = " ".join(out.getvalue().split())
    for output in outputs(block):
        assert [part for part in output.split("...") if part.strip() not in printed] == [], printed
    assert torch._C._len_torch_dispatch_stack() == 0
