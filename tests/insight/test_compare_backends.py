"""`compare`: the first op on which two backends differ, ulps by op, and the difference of a program's outputs."""

from __future__ import annotations

import io
import json
import math
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from on_core import CORE
from torch import Tensor, nn
from torch.nn import functional as F

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.host import progress
from eagerdecomp.insight.compare_mode import _drift
from eagerdecomp.insight.comparison import BINS, Comparison, Histogram, comparison_text, counted


def off(x: Tensor) -> Tensor:
    return torch.sigmoid(x) * 1.001


WRONG = ed.Backend("wrong", ed.core_aten(), {"aten.sigmoid.default": off})


def step() -> Any:
    """Two steps of a small net; its loss and an output."""
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.LayerNorm(8), nn.Dropout(0.2), nn.Linear(8, 2))
    optimizer = torch.optim.AdamW(net.parameters(), foreach=True)
    for _ in range(2):
        loss = net(torch.randn(4, 8)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return {"loss": loss, "out": [net(torch.randn(4, 8))]}


@pytest.mark.full
def test_two_right_backends_do_not_diverge() -> None:
    for first, second in (("native", CORE), (CORE, ed.prims() | ed.core_aten()), ("native", "native")):
        found = ed.compare(step, first, second)  # type: ignore[arg-type]
        assert not found, found
        assert found.compared > 50
        assert found.random > 0
        assert [one.op for one in found.drift] == ["outputs"]
    assert found.drift[0].counts[0] == found.drift[0].values == 9


def test_a_table_that_does_not_fit_is_a_list_of_the_same_values() -> None:
    rows = (
        Histogram("aten.silu.default", "float32", 3, [5, 0, 0, 0, 0, 0, 3, 0], "aten.silu.default(f32[2, 4], f32[2, 4], 1, 2)", 7),
        Histogram("aten.mul.Tensor", "float16", 1, [9] + [0] * 7),
    )
    found = Comparison(("native", "mine"), (), rows, compared=4)
    assert comparison_text(found, 200) == comparison_text(found) == str(found)
    widest = max(map(len, str(found).splitlines()))
    assert widest > 120
    for width in (80, 100, widest - 1):
        text = comparison_text(found, width)
        assert max(map(len, text.splitlines())) <= width
        words = set(text.replace(",", " ").split())
        assert {"aten.silu.default", "62.50%", "37.50%", "100.00%", "7", "1", "float16"} <= words
    assert "NaN in one" not in text  # an empty bin


def test_outputs_of_different_dtypes_are_not_compared() -> None:
    ones = torch.ones(2)
    assert list(_drift([ones], [ones.double()])) == []
    assert len(list(_drift([ones], [ones]))) == 1


@pytest.mark.full
def test_the_first_op_that_diverges_is_reported_with_which_of_the_two_is_wrong() -> None:
    for sides in ((CORE, WRONG), (WRONG, "native")):
        found = ed.compare(step, *sides)  # type: ignore[arg-type]
        assert found
        assert found.first is not None
        assert (found.first.op, found.first.wrong, found.first.times) == ("aten.silu.default", ("wrong",), 2)
        assert "test_compare_backends.py" in found.first.where[0]
        assert {one.op for one in found.diverging} == {"aten.silu.default", "aten.silu_backward.default"}
        assert found.histograms[0].op.startswith("aten.silu")
        assert sum(sum(one.counts[1:]) for one in found.drift) > 0
    assert ", wrong " in str(found)
    assert ", eager " not in str(found)


def test_ops_after_a_wrong_op_do_not_diverge() -> None:
    found = ed.compare(lambda: F.silu(torch.ones(3)).exp().sum(), "native", WRONG)
    assert [one.op for one in found.diverging] == ["aten.silu.default"]
    rows = {one.op: one for one in found.histograms}
    assert rows["aten.exp.default"].counts == [3, 0, 0, 0, 0, 0, 0, 0]
    assert rows["aten.exp.default"].worst_ulps is None


def test_ulps_are_counted_in_bins_with_the_worst_call() -> None:
    one = torch.tensor([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.0, math.nan, math.nan, math.inf, math.inf, -1.0])
    other = one.clone()
    for place, ulps in ((1, 1), (2, 2), (3, 4), (4, 5), (5, 2000)):
        other[place] = one[place].view(torch.int32).add(ulps).view(torch.float32)
    other[6], other[8], other[10], other[11] = -0.0, 1.0, 3.0, 1.0
    counts, most = counted(one, other)
    assert dict(zip(BINS, counts, strict=True)) == {
        "exact": 4,
        "1": 1,
        "2-4": 2,
        "5-16": 1,
        "17-64": 0,
        "65-1024": 0,
        "more": 3,
        "NaN in one": 1,
    }
    assert most == 2 * 0x3F800000
    row = Histogram("aten.x", "float32")
    row.take([1] * 8, 7, "first")
    row.take([1] * 8, 3, "second")
    assert (row.values, row.worst, row.worst_ulps) == (16, "first", 7)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64, torch.complex64, torch.int32, torch.bool], ids=str)
def test_every_dtype_is_counted(dtype: torch.dtype) -> None:
    one = torch.tensor([1, 0, 1]).to(dtype)
    parts = 6 if dtype.is_complex else 3
    assert counted(one, one.clone()) == ([parts, 0, 0, 0, 0, 0, 0, 0], None)
    other = torch.tensor([1, 1, 1]).to(dtype)
    assert counted(one, other)[0][-2] == 1
    if dtype.is_floating_point:
        assert counted(one, torch.nextafter(one, one + 1))[0][1] == 3


def test_written_arguments_are_compared() -> None:
    def run() -> None:
        torch._foreach_sigmoid_([torch.ones(2), torch.ones(3)])

    found = ed.compare(run, "native", WRONG)
    (row,) = [one for one in found.histograms if one.op == "aten._foreach_sigmoid_.default"]
    assert (row.calls, row.values, row.counts[-2]) == (1, 5, 5)
    assert found.drift == ()


def test_the_program_runs_from_one_random_state_and_leaves_it_as_one_run_does() -> None:
    torch.manual_seed(4)
    found = ed.compare(lambda: torch.randn(5), "native", CORE)
    after = torch.get_rng_state()
    torch.manual_seed(4)
    torch.randn(5)
    assert torch.equal(after, torch.get_rng_state())
    assert found.drift[0].counts[0] == 5


def test_errors_of_the_program_propagate_and_other_devices_raise() -> None:
    with pytest.raises(RuntimeError, match="must match"):
        ed.compare(lambda: torch.ones(3) + torch.ones(4), "native", CORE)
    with pytest.raises(ed.UnsupportedOpError):
        ed.compare(lambda: torch.ones(3).exp(), "native", ["aten.add.Tensor", "aten.full.default"])
    with pytest.raises(ValueError, match="verify="):
        ed.compare(step, "native", ed.Backend("there", CORE, device_type="cuda"))


@pytest.mark.parametrize(("name", "hint"), [("natve", " Did you mean 'native'?"), ("aten.mul.Tensor", "")])
def test_an_unknown_name_of_a_side_raises_with_the_known_one(name: Any, hint: str) -> None:
    words = f"a side to compare must be a Backend, an op set, or 'native' for plain eager, not {name!r}.{hint}"
    for sides in ((CORE, name), (name, CORE)):
        with pytest.raises(ed.ArgumentError) as caught:
            ed.compare(step, *sides)
        assert str(caught.value) == words


# -- the command --------------------------------------------------------------------------------------------------------------

MODULE = """
import torch, eagerdecomp as ed
backend = ed.Backend("wrong", ed.core_aten(), {"aten.sigmoid.default": lambda x: torch.sigmoid(x) * 1.001})
number = 3
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "two_sides.py").write_text(MODULE)
    (tmp_path / "script.py").write_text("import torch\nprint(torch.nn.functional.silu(torch.ones(3)).shape)\n")
    (tmp_path / "ends.py").write_text("import torch\ntorch.ones(3).exp()\nraise SystemExit(7)\n")
    (tmp_path / "empty.py").write_text("pass\n")
    (tmp_path / "stopped.py").write_text("import torch\ntorch.nn.functional.silu(torch.ones(3))\nraise KeyboardInterrupt\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("words", "code"),
    [
        (["--against", "core", "script.py"], 0),
        (["--backend", "core", "--against", "two_sides:backend", "script.py"], 1),
        (["--against", "two_sides:number", "script.py"], 2),
        (["--against", "nowhere:backend", "script.py"], 2),
        (["--against", "core"], 2),
        (["--against", "core", "ends.py"], 3),
        (["--against", "core", "empty.py"], 4),
    ],
)
def test_the_exit_code_says_what_was_found(folder: Path, words: list[str], code: int, capfd: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", *words]) == code
    printed = capfd.readouterr()
    assert "Traceback" not in printed.err
    assert (len(printed.err.splitlines()) in (1, 2)) == (code == 2)


def test_the_command_writes_json_and_markdown(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "--against", "two_sides:backend", "--json", "found.json", "--markdown", "found.md", "script.py"]
    assert main(words) == 1
    printed = json.loads((folder / "found.json").read_text())
    assert printed["names"] == ["native", "two_sides:backend"]
    assert printed["diverging"][0]["op"] == "aten.silu.default"
    assert printed["diverging"][0]["wrong"] == ["two_sides:backend"]
    assert [row["counts"][printed["bins"].index("more")] for row in printed["histograms"] if row["op"] == "aten.silu.default"] == [
        3
    ]
    page = (folder / "found.md").read_text()
    assert "| aten.silu.default | float32 | 1 | 3 |" in page
    assert "script.py:2" in page
    assert "the first to diverge: aten.silu.default" in capfd.readouterr().out


@pytest.mark.parametrize(("against", "diverging"), [("core", 0), ("two_sides:backend", 1)])
def test_an_interrupted_script_has_a_report_until_there(
    folder: Path, against: str, diverging: int, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["compare", "--against", against, "--json", "found.json", "stopped.py"]) == 130
    printed = json.loads((folder / "found.json").read_text())
    assert (printed["exit_code"], len(printed["diverging"])) == (130, diverging)
    assert ("the first to diverge: aten.silu.default" in capfd.readouterr().out) is bool(diverging)
    assert torch._C._len_torch_dispatch_stack() == 0


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.full
def test_a_terminal_shows_the_progress_of_a_long_script(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = ["compare", "--against", "two_sides:backend", "--json", "found.json", "script.py"]
    for seconds, shown in ((-1.0, True), (1e6, False)):
        monkeypatch.setattr(progress, "_SOON_SECONDS", seconds)
        monkeypatch.setattr(progress, "_REDRAW_SECONDS", 1e6)
        monkeypatch.setattr(sys, "stderr", terminal := Terminal())
        assert main(words) == 1
        line = "calls compared: 1  diverging: 0"
        assert (f"\r{line}  " in terminal.getvalue()) is shown
        assert terminal.getvalue().endswith(" \r") is shown  # and was taken away
