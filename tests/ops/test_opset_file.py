"""Op sets from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

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


def test_a_file_is_read_and_names_the_set(tmp_path: Path) -> None:
    file = tmp_path / "mine.txt"
    file.write_text("aten.add.Tensor\n", encoding="utf-8")
    ops = op_set_from(str(file))
    assert list(ops) == [aten.add.Tensor]
    assert "mine.txt" in repr(ops)
