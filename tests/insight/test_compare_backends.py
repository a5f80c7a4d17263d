"""`compare`: the first op on which two backends differ, ulps by op, and the difference of a program's outputs."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from on_core import CORE
from torch import nn
from verify_modes import inexact_sigmoid

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.insight.comparison import BINS, Histogram, counted

WRONG = ed.Backend("wrong", ed.core_aten(), {"aten.sigmoid.default": inexact_sigmoid})


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
    assert "1 call compared" in str(ed.compare(lambda: torch.zeros(2), CORE, "native"))


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
