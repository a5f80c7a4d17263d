"""Pages of docs/ whose examples run: what stands behind each as its output is what it prints."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parent.parent / "docs"
PAGES = [path.name for path in sorted(DOCS.glob("*.md")) if "```python" in path.read_text(encoding="utf-8")]


def test_there_are_such_pages_and_readme_leads_to_each() -> None:
    assert {"silu_backward.md", "core_aten_in_eager.md", "torch_ir_to_prims.md"} <= set(PAGES)
    readme = (DOCS.parent / "README.md").read_text(encoding="utf-8")
    assert [page for page in PAGES if f"](docs/{page})" not in readme] == []


@pytest.mark.parametrize("page", PAGES)
def test_every_example_prints_what_stands_behind_it(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = re.findall(r"^```(python|text)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert blocks[0][0] == "python"
    namespace: dict[str, Any] = {}
    printed = ""
    for number, (kind, block) in enumerate(blocks):
        if kind == "text":
            assert printed == block, f"{page}: the output behind example {number} is another"
            continue
        assert not printed or blocks[number - 1][0] == "text", f"{page}: what example {number} prints stands nowhere"
        out = io.StringIO()
        with contextlib.redirect_stdout(out):
            exec(compile(block, f"{page} block {number}", "exec"), namespace)
        printed = out.getvalue()
    assert blocks[-1][0] == "text"
