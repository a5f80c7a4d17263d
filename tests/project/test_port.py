"""The report on another torch names what changed, and where."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]

#: The module that the fixture `tool` returns.
TOOL = "port"


def test_the_tested_torch_is_the_baseline(tool: Any) -> None:
    # In a process of its own: what tests import may register ops, as Inductor does in prims.
    code = "import json, port; print(json.dumps(port.facts()))"
    found = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tools", capture_output=True, text=True, check=True)
    now, then = json.loads(found.stdout), json.loads(gzip.decompress(tool.BASELINE.read_bytes()))
    changed = [name for name in then if then[name] != now[name]]
    assert changed == [], "run python tools/port.py --baseline"


def test_changes_are_reported_with_their_files(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = tool.facts()
    schemas = dict(now["schemas"])
    schemas["aten.gone.default"] = "aten::gone() -> Tensor"
    schemas["aten._cdist_backward.default"] = "aten::_cdist_backward(Tensor one) -> Tensor"
    del schemas["aten.silu.default"]
    before = {**now, "schemas": schemas, "opinfos": [one for one in now["opinfos"] if one != "nn.functional.silu"]}
    monkeypatch.setattr(tool, "private_names", lambda: {"ops": {"torch._C._no_such_name", "torch._C._len_torch_dispatch_stack"}})
    monkeypatch.setattr(tool, "changed_messages", lambda: iter(()))
    found = dict(tool.sections(before, now))
    assert found["private names that are missing"] == ["torch._C._no_such_name: eagerdecomp/_torch/ops.py"]
    assert found["ops removed"] == ["aten.gone.default"]
    assert found["ops added"] == ["aten.silu.default"]
    assert found["ops added that have no route"] == []
    (line,) = found["schemas changed, of ops that the library names"]
    assert line.startswith(
        "aten._cdist_backward.default: eagerdecomp/decomps/reduce/distances.py\n      was aten::_cdist_backward(Tensor one)"
    )
    assert found["operators of the test database"] == ["new  nn.functional.silu"]
