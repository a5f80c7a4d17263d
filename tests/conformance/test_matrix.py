"""The matrix: a rotating part of its cells equals eager or is listed as unsupported; planted faults are found."""

from __future__ import annotations

import functools
import json
import math
import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import part_of
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import eagerdecomp as ed
from eagerdecomp.eager.compare import Difference

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from conformance import matrix, matrix_judge
from conformance.cases import opinfos
from conformance.judge import Observed, observe
from conformance.layouts import in_layout
from conformance.matrix import judged, main, planned
from conformance.matrix_cells import BLOCKS, Cell, cells
from conformance.matrix_judge import FAILED, Result, judge_cell
from conformance.matrix_results import Manifest, SavedResults, page, report
from conformance.ties import INDEX_RESULTS, is_tie

pytestmark = pytest.mark.filterwarnings("ignore")

CORE = ed.core_aten()
PLAIN = Cell("plain", "float32", "contiguous", "value")

#: The default tier runs one cell in this many.
PARTS = 3000


def info_of(name: str) -> Any:
    (info,) = opinfos(f"^{name}$")
    return info


@pytest.mark.full
def test_a_part_of_the_cells_equals_eager_or_is_listed_as_unsupported() -> None:
    manifest = Manifest.read()
    every = [(job, cell) for job, mine in planned().items() for cell in mine]
    held = SavedResults()
    for job, cell in part_of(every, PARTS):
        held.add(job, judged(job, [cell], manifest.samples))
    faults = matrix.faults(held, manifest)
    assert not faults, report(held, faults)
    assert not any(one.status in FAILED for _, _, one in held), report(held, faults)


def test_every_block_has_cells_and_a_cell_is_counted_once() -> None:
    titles = {title for info in opinfos("^add$") for title in cells(info).values()}
    assert titles == {block.title for block in BLOCKS}
    dtypes = {cell.dtype for cell in cells(info_of("add"))}
    assert {"float16", "bfloat16", "complex32", "bool", "uint8"} <= dtypes


def test_layouts_have_the_strides_of_their_names() -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    ((expanded, _), _) = in_layout(((x, y), {}), "expanded")
    assert expanded.shape == x.shape
    assert expanded.stride()[0] == 0
    assert [one.shape for one in in_layout(((x, y), {}), "size-0", 1)[0]] == [(3, 0), (0, 5)]
    assert [one.shape for one in in_layout(((x, y), {}), "size-0", 0)[0]] == [(0, 4), (4, 5)]
    assert [one.dim() for one in in_layout(((x, y), {}), "0-dim")[0]] == [0, 0]


@pytest.mark.parametrize("layout", ["permuted", "size-1"])
def test_images_of_one_channel_are_channels_last_in_permuted_layouts(layout: str) -> None:
    """Both formats are contiguous for them, so a conversion may leave them as they are."""
    ((image, row), _) = in_layout(((torch.randn(2, 1 if layout == "permuted" else 3, 4, 5), torch.randn(5)), {}), layout)
    assert (image.shape, image.stride()) == ((2, 1, 4, 5), (20, 1, 5, 1))
    assert row.shape == (5,)


def test_a_rule_with_other_strides_in_a_dimension_of_size_1_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cell = Cell("plain", "float32", "size-1", "value")
    assert not judge_cell(info_of("tril"), cell, CORE, 4).metadata
    monkeypatch.setattr("eagerdecomp.rules.restride.with_layout", lambda result, strides: result)
    assert "strides" in judge_cell(info_of("tril"), cell, CORE, 4).metadata


@pytest.mark.parametrize(
    "cell",
    [
        PLAIN,
        Cell("method", "float64", "gapped", "value"),
        Cell("inplace", "float32", "contiguous", "reverse"),
        Cell("strided out", "float32", "permuted", "value"),
        Cell("plain", "complex64", "contiguous", "forward"),
        Cell("plain", "float32", "size-0", "reverse"),
        Cell("plain", "float32", "contiguous", "vmap"),
    ],
    ids=str,
)
def test_a_cell_of_a_right_rule_passes_and_one_of_a_broken_rule_is_wrong(cell: Cell, monkeypatch: pytest.MonkeyPatch) -> None:
    info = info_of("rad2deg")
    assert judge_cell(info, cell, CORE, 2)[:2] == ("pass", "")

    def rad2deg(x: Tensor) -> Tensor:
        return (x * 57.0).clone(memory_format=torch.contiguous_format)

    if cell.dtype.startswith("complex"):
        return  # rad2deg has no complex form in eager: nothing to break
    broken = ed.register_decomposition("aten.rad2deg.default")(rad2deg)
    monkeypatch.setattr(matrix_judge, "EagerDecompMode", functools.partial(ed.EagerDecompMode, rules=[broken]))
    assert judge_cell(info, cell, CORE, 2).status == ("pass" if cell.layout == "size-0" else "wrong")


def test_a_call_that_returns_only_in_the_mode_is_wrong(monkeypatch: pytest.MonkeyPatch) -> None:
    info, errors = info_of("kthvalue"), Cell("plain", "float32", "contiguous", "errors")
    assert judge_cell(info, errors, CORE, 2).status == "pass"

    def kthvalue(x: Tensor, k: int, dim: int = -1, keepdim: bool = False) -> tuple[Tensor, Tensor]:
        return x.clone(), x.to(torch.int64)

    broken = ed.register_decomposition("aten.kthvalue.default")(kthvalue)
    monkeypatch.setattr(matrix_judge, "EagerDecompMode", functools.partial(ed.EagerDecompMode, rules=[broken]))
    result = judge_cell(info, errors, CORE, 2)
    assert result.status == "wrong"
    assert "returns where eager raises" in result.detail


def test_another_type_of_error_is_reported_and_fails_only_error_inputs(monkeypatch: pytest.MonkeyPatch) -> None:
    class Broken(TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            raise TypeError("another type of error")

    monkeypatch.setattr(matrix_judge, "EagerDecompMode", lambda op_set, cache: Broken())
    refused = matrix_judge.Sample((matrix_judge.Case(torch.kthvalue, ((torch.ones(2), 3), {})),))
    monkeypatch.setattr(matrix_judge, "samples", lambda info, cell, count: [refused])
    errors = PLAIN._replace(check="errors")
    assert [judge_cell(info_of("kthvalue"), cell, CORE, 1).status for cell in (PLAIN, errors)] == ["refusal", "error"]


def test_an_op_outside_the_set_is_a_leak(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_judge, "EagerDecompMode", lambda op_set, cache: ed.EagerDecompMode(op_set | ["aten.silu.default"]))
    assert judge_cell(info_of("nn.functional.silu"), PLAIN, CORE, 2).status == "leak"


@pytest.mark.parametrize("form", ["plain", "out"])
def test_indices_of_ties_may_differ_but_each_occurs_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matrix_judge, "EagerDecompMode", lambda op_set, cache: ed.EagerDecompMode(op_set, rules=rules))
    x = torch.tensor([3, 1, 3, 1])
    named = {"out": (torch.zeros(2).long(), torch.zeros(2).long())} if form == "out" else {}
    sample = matrix_judge.Sample((matrix_judge.Case(torch.topk, ((x, 2), named)),))
    monkeypatch.setattr(matrix_judge, "samples", lambda info, cell, count: [sample])

    def judged_with(indices: list[int], values: tuple[int, int] = (3, 3)) -> str:
        def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
            return torch.tensor(values), torch.tensor(indices)

        rules[:] = [ed.register_decomposition("aten.topk.default")(topk)]
        return judge_cell(info_of("topk"), PLAIN._replace(form=form), CORE - ["aten.topk.default"], 1).status

    rules: list[Any] = []
    assert [judged_with(indices) for indices in ([0, 2], [2, 0])] == ["pass", "pass"]
    assert [judged_with(indices) for indices in ([0, 0], [0, 1])] == ["wrong", "wrong"]
    assert judged_with([0, 1], (3, 1)) == "wrong"


def test_ties_may_have_any_order() -> None:
    assert INDEX_RESULTS["argsort"] == (0, 1)
    x = torch.tensor([[math.nan, 1.0, math.nan, 1.0]])

    def seen(indices: list[int]) -> Observed:
        return observe(lambda x: torch.tensor([indices]), ((x,), {}))

    wrong = [Difference("values", "result 0", 1, 3, index=(0,))]
    assert is_tie("argsort", wrong, ((x, 1), {}), seen([1, 3, 0, 2]), seen([3, 1, 2, 0]))
    assert not is_tie("argsort", wrong, ((x,), {}), seen([1, 3, 0, 2]), seen([3, 0, 1, 2]))
    assert not is_tie("argsort", wrong, ((x,), {"stable": True}), seen([1, 3, 0, 2]), seen([3, 1, 2, 0]))
    assert not is_tie("argsort", [Difference("dtype", "result 0", torch.int64, torch.int32)], ((x,), {}), seen([1]), seen([1]))


# -- the manifest -------------------------------------------------------------------------------------------------

JOB = ("core", "silu")
PASSED, REFUSED, WRONG = (
    Result("pass", count=1),
    Result("unsupported", "f32[2]", ("aten.x.default",)),
    Result("wrong", "values differ"),
)


def manifest_of(results: dict[str, Result]) -> Manifest:
    made = Manifest(3)
    made.renew(JOB, results)
    return made


def test_the_manifest_reports_new_and_fixed_unsupported_cells() -> None:
    listed = manifest_of({"a": REFUSED, "b": PASSED, "c": Result("none")})
    assert listed.open[JOB] == {"missing": ["aten.x.default"], "cells": ["a"]}
    assert listed.fault(JOB, "a", REFUSED) is listed.fault(JOB, "b", PASSED) is None
    assert "passes, but is listed" in (listed.fault(JOB, "a", PASSED) or "")
    assert "unsupported, but not listed: aten.x.default" in (listed.fault(JOB, "b", REFUSED) or "")


def test_an_opinfo_without_any_route_is_listed_as_one() -> None:
    listed = manifest_of({"a": REFUSED, "b": REFUSED, "c": Result("none")})
    assert listed.open[JOB]["cells"] == "all"
    assert "passes, but is listed" in (listed.fault(JOB, "b", PASSED) or "")
    assert "unsupported, but not listed" in (manifest_of({"a": PASSED}).fault(JOB, "a", REFUSED) or "")


@pytest.mark.parametrize("status", FAILED)
def test_wrong_cells_are_never_listed(status: str) -> None:
    listed = manifest_of({"a": Result(status, "values differ"), "b": REFUSED})
    assert listed.open[JOB]["cells"] == ["b"]


def test_the_manifest_is_written_and_read(tmp_path: Path) -> None:
    listed = manifest_of({"a": REFUSED, "b": PASSED})
    listed.renew(("prims", "exp"), {"a": PASSED})
    listed.write(tmp_path / "manifest.json")
    assert Manifest.read(tmp_path / "manifest.json") == listed


@pytest.mark.full
def test_the_manifest_names_existing_opinfos_and_cells() -> None:
    manifest, plan = Manifest.read(), planned()
    assert manifest.closed | set(manifest.open) <= set(plan)
    for job, entry in manifest.open.items():
        assert entry["cells"] == "all" or set(entry["cells"]) <= set(map(str, plan[job]))


# -- the run ------------------------------------------------------------------------------------------------------

FEW = ["--ops", "core", "--match", "^(rad2deg|positive)$", "--cells", "float32 contiguous (value|reverse)"]


@pytest.mark.full
def test_a_run_is_resumed_and_writes_its_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    resume, written = tmp_path / "held.json", tmp_path / "page.md"
    assert main([*FEW, "--shard", "1/2", "--resume", str(resume)]) == 0
    first = resume.read_text()
    assert main([*FEW, "--resume", str(resume), "--markdown", str(written)]) == 0
    assert resume.read_text().startswith(first)
    assert len(resume.read_text().splitlines()) == 2
    assert "0 differ from the manifest" in capsys.readouterr().out
    assert "| float32 | 2 | 100.0 % | 2 |" in written.read_text()

    monkeypatch.setattr(matrix, "judged", lambda *args: pytest.fail("judged again"))
    assert main([*FEW, "--resume", str(resume)]) == 0


@pytest.mark.parametrize(("result", "code"), [(PASSED, 1), (REFUSED, 0), (WRONG, 1)])
def test_a_result_that_differs_from_the_manifest_fails_the_run(
    result: Result, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    listed = Manifest(matrix.SAMPLES, open={("core", "positive"): {"missing": [], "cells": [str(PLAIN)]}})
    listed.write(tmp_path / "manifest.json")
    monkeypatch.setattr(matrix, "MANIFEST", tmp_path / "manifest.json")
    monkeypatch.setattr(Manifest, "read", functools.partial(Manifest.read, tmp_path / "manifest.json"))
    monkeypatch.setattr(matrix_judge, "judge_cell", lambda *args: result)
    monkeypatch.setattr(matrix, "judge_cell", lambda *args: result)
    assert main(["--ops", "core", "--match", "^positive$", "--cells", f"^{PLAIN}$"]) == code
    assert ("passes, but is listed" in capsys.readouterr().out) == (result is PASSED)


@pytest.mark.full
def test_a_cell_that_ends_its_process_is_recorded_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def judge(info: Any, cell: Cell, op_set: Any, count: int, progress: Any) -> Result:
        progress("the mode")
        if cell.check == "reverse":
            os._exit(7)
        return PASSED

    monkeypatch.setattr(matrix, "judge_cell", judge)
    assert main([*FEW, "--resume", str(tmp_path / "held.json")]) == 1
    held = SavedResults(str(tmp_path / "held.json"))
    assert {cell: one.status for _, cell, one in held} == {
        "plain float32 contiguous value": "pass",
        "plain float32 contiguous reverse": "died",
    } | {cell: one.status for _, cell, one in held if cell.startswith(("inplace", "out", "method", "operator"))}
    assert "exit code 7" in capsys.readouterr().out


def test_the_page_counts_by_block_and_lists_failed_cells() -> None:
    held = SavedResults()
    held.add(JOB, {str(PLAIN): WRONG, "plain bool contiguous value": PASSED._replace(metadata="strides")})
    held.add(JOB, {"strided out bool gapped value": PASSED})
    titles = {
        ("silu", str(PLAIN)): "float32",
        ("silu", "plain bool contiguous value"): "every dtype",
        ("silu", "strided out bool gapped value"): "out=, on each layout",
    }
    text = page(held, titles, 10, 3)
    assert "3 of 10 cells" in text
    assert "| every dtype | 1 | 100.0 % | 1 |" in text
    assert "1 of 2 cells that pass: 50.00 %" in text
    assert "| bool | 2 | 100.0 % | 2 |" in text
    assert "- silu, plain float32 contiguous value: wrong: values differ" in text


@pytest.mark.full
@pytest.mark.parametrize(
    "arguments", [["--shard", "0/2"], ["--part", "3/2"], ["--shard", "x"], ["--samples", "0"], ["--manifest", "--samples", "1"]]
)
def test_invalid_arguments_are_reported(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        raise SystemExit(main(arguments))
    assert stopped.value.code == 2
    assert "matrix.py: " in capsys.readouterr().err


def test_the_file_of_results_is_lines_of_json(tmp_path: Path) -> None:
    held = SavedResults(str(tmp_path / "held.json"))
    held.add(JOB, {"a": REFUSED})
    assert json.loads((tmp_path / "held.json").read_text())["op"] == "silu"
    assert SavedResults(str(tmp_path / "held.json")).results == {JOB: {"a": REFUSED}}

    held.add(JOB, {"b": WRONG, "c": PASSED})
    held.forget(FAILED)
    assert held.results == {JOB: {"a": REFUSED, "c": PASSED}}
    held.add(JOB, {"b": PASSED})
    assert SavedResults(str(tmp_path / "held.json")).results[JOB]["b"] == PASSED


def test_matrices_of_one_row_are_not_factorized() -> None:
    assert not any(cell.layout == "expanded" for cell in cells(info_of("linalg.cond")))
    assert any(cell.layout == "expanded" for cell in cells(info_of("linalg.vector_norm")))
