"""Op sets from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.ops.opset import NAMED_SETS
from eagerdecomp.ops.opset_file import op_set_from, parse_ops

aten = torch.ops.aten


def test_a_line_is_an_overload_or_a_packet() -> None:
    ops = parse_ops(["aten.add.Tensor", "aten.mul", "  aten::relu  "], source="f")
    assert aten.add.Tensor in ops
    assert aten.add.Scalar not in ops
    assert {aten.mul.Tensor, aten.mul.Scalar, aten.mul.out} <= set(ops)
    assert aten.relu.default in ops


def test_comments_and_empty_lines_are_ignored() -> None:
    assert list(parse_ops(["# all of it", "", "aten.add.Tensor # the one", "   "], source="f")) == [aten.add.Tensor]


@pytest.mark.parametrize("name", sorted(NAMED_SETS))
def test_a_set_is_included_by_name(name: str) -> None:
    ops = parse_ops([f"@{name}", "aten.sort.stable"], source="f")
    assert set(ops) == {*NAMED_SETS[name](), aten.sort.stable}


@pytest.mark.full
def test_every_wrong_line_is_reported() -> None:
    with pytest.raises(ed.OpSetError) as caught:
        parse_ops(["aten.add.Tensro", "aten.mul", "aten.mull", "@cores"], source="ops.txt")
    reported = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in reported] == ["ops.txt:1", "ops.txt:3", "ops.txt:4"]
    assert "aten.add.Tensor" in reported[0].partition("Did you mean")[2]
    assert "aten.mul" in reported[1].partition("Did you mean")[2]


def test_a_file_is_read_and_names_the_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("aten.add.Tensor\n", encoding="utf-8")
    ops = op_set_from(str(file))
    assert list(ops) == [aten.add.Tensor]
    assert "mine.txt" in repr(ops)
