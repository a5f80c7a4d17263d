"""Op sets from the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

import eagerdecomp as ed
from eagerdecomp.ops.opset_file import op_set_from, parse_ops


@pytest.mark.full
def test_every_wrong_line_is_reported() -> None:
    with pytest.raises(ed.OpSetError) as caught:
        parse_ops(["aten.add.Tensro", "aten.mul", "aten.mull", "@cores"], source="ops.txt")
    reported = str(caught.value).splitlines()
    assert [line.split(": ")[0] for line in reported] == ["ops.txt:1", "ops.txt:3", "ops.txt:4"]
    assert "aten.add.Tensor" in reported[0].partition("Did you mean")[2]
    assert "aten.mul" in reported[1].partition("Did you mean")[2]


def test_an_unreadable_file_raises_an_error_of_the_library(tmp_path: Path) -> None:
    with pytest.raises(ed.OpSetError, match="cannot read this file"):
        op_set_from(str(tmp_path))
    binary = tmp_path / "binary"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ed.OpSetError, match="not UTF-8"):
        op_set_from(str(binary))
