"""The tool that finds calls whose work in Python grows faster than eager's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from conformance.cases import opinfos

pytestmark = pytest.mark.full

#: The module that the fixture `tool` returns.
TOOL = "python_growth"


@ed.register_decomposition("aten.linspace.default")
def by_a_list(start: Any, end: Any, steps: int, **options: Any) -> torch.Tensor:
    return torch.tensor([start + (end - start) * place / max(1, steps - 1) for place in range(steps)])


def test_a_list_as_long_as_the_result_grows_and_our_rules_do_not(tool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (linspace,) = opinfos("^linspace$")
    assert {text for _, text in tool.measured_in_process(linspace)} == {""}
    mode = ed.EagerDecompMode
    monkeypatch.setattr(tool, "EagerDecompMode", lambda ops, **options: mode(ops, rules=[by_a_list], **options))
    assert any("bytes of Python" in text for _, text in tool.measured_in_process(linspace))


def test_lists_may_grow_linearly_and_not_quadratically(tool: Any) -> None:
    def found(power: int) -> list[str]:
        lengths = [tool.Length(n, (tool.Work(1000 + n**power, 0),) * 3, 1) for n in tool.LISTS]
        return [*tool.growth(lengths, lists=True)]

    assert found(1) == []
    assert found(2) == [f"{one} call, calls of Python: 1,100, 11,000, 1,001,000" for one in tool.CALLS]


def test_a_run_continues_from_its_results(
    tool: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = tmp_path / "results.jsonl"
    monkeypatch.setattr(tool, "measured_in_process", lambda info: [("0", ""), ("1", "third call, calls of Python: 1, 2, 9")])
    options = ["--match", "^(linspace|cat)$", "--resume", str(results)]
    assert tool.main(options) == 1
    first = capsys.readouterr().out
    assert first.endswith("2 operators, 4 ways to grow, 2 too fast\n")
    monkeypatch.delattr(tool, "measured_in_process")
    assert tool.main(options) == 1
    assert capsys.readouterr().out == first
