"""The report on another torch names what changed, and where."""

from __future__ import annotations

import gzip
import importlib
import json
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.full

ROOT = Path(__file__).parents[2]


@pytest.fixture
def port(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(ROOT / "tools")
    return importlib.import_module("port")


def test_the_tested_torch_is_the_baseline(port: Any) -> None:
    assert json.loads(gzip.decompress(port.BASELINE.read_bytes())) == port.facts(), "run python tools/port.py --baseline"


def test_changes_are_reported_with_their_files(port: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = port.facts()
    schemas = dict(now["schemas"])
    schemas["aten.gone.default"] = "aten::gone() -> Tensor"
    schemas["aten._cdist_backward.default"] = "aten::_cdist_backward(Tensor one) -> Tensor"
    del schemas["aten.silu.default"]
    before = {**now, "schemas": schemas, "opinfos": [one for one in now["opinfos"] if one != "nn.functional.silu"]}
    monkeypatch.setattr(port, "private_names", lambda: {"ops": {"torch._C._no_such_name", "torch._C._len_torch_dispatch_stack"}})
    monkeypatch.setattr(port, "changed_messages", lambda: iter(()))
    found = dict(port.sections(before, now))
    assert found["private names that are missing"] == ["torch._C._no_such_name: eagerdecomp/_torch/ops.py"]
    assert found["ops removed"] == ["aten.gone.default"]
    assert found["ops added"] == ["aten.silu.default"]
    assert found["of those, ops without a route"] == []
    (line,) = found["schemas changed, of ops that the library names"]
    assert line.startswith(
        "aten._cdist_backward.default: eagerdecomp/decomps/reduce/distances.py\n      was aten::_cdist_backward(Tensor one)"
    )
    assert found["operators of the test database"] == ["new  nn.functional.silu"]
