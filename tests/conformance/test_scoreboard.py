"""The scoreboard: planted faults are found, and OpInfos pass. The default tier runs a part, the nightly tier all."""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from sampled import part_of
from torch import Tensor

import eagerdecomp as ed
from conformance import scoreboard
from conformance.cases import EAGER_FAULTS, FORMS, LAYOUTS, Case, Selection, opinfos
from conformance.layouts import in_layout
from conformance.scoreboard import Journal, Row, judge_opinfo, main, table
from eagerdecomp.conformance.judge import differences, excused, observe, stride_differences

pytestmark = pytest.mark.filterwarnings("ignore")

aten = torch.ops.aten

CORE = ed.core_aten()

#: The default tier runs one in this many of the OpInfos.
PARTS = 12

SELECTIONS = {
    "forward": Selection(samples=3),
    "gradients, permuted": Selection(samples=2, grad=True, layout="permuted"),
    "in place": Selection(samples=3, form="inplace", layout="gapped"),
    "out=": Selection(samples=3, form="out"),
    "forward-mode AD, complex": Selection(samples=2, form="forward", dtype=torch.complex64),
    "vmap": Selection(samples=2, form="vmap"),
}


#: OpInfos that are known to differ, with the reason.
KNOWN = {"linalg.lstsq": "an out= without elements gets the solution's own strides, in eager those of LAPACK's longer buffer"}


def faults(rows: list[Row]) -> list[str]:
    rows = [row for row in rows if row.name not in KNOWN or row.status in ("leak", "error")]
    shown = [
        f"{row.name} (sample {row.sample}): {row.status}: {row.detail}" for row in rows if row.status in ("wrong", "leak", "error")
    ]
    return shown + [f"{row.name}: strides: {row.strides}" for row in rows if row.strides]


@pytest.mark.full
@pytest.mark.parametrize("name", SELECTIONS)
def test_a_part_of_the_opinfos_passes_or_is_unsupported(name: str) -> None:
    rows = [judge_opinfo(info, CORE, SELECTIONS[name]) for info in part_of(opinfos(), PARTS)]
    assert not faults(rows)


@pytest.mark.nightly
@pytest.mark.parametrize(("grad", "passing", "of"), [(False, 739, 742), (True, 737, 740)])
def test_as_many_opinfos_pass_as_the_docs_say_and_none_is_wrong(grad: bool, passing: int, of: int) -> None:
    rows = [judge_opinfo(info, CORE, Selection(grad=grad)) for info in opinfos()]
    counted = [row for row in rows if row.status != "none"]
    assert not faults(rows)
    assert (sum(row.status == "pass" for row in counted), len(counted)) == (passing, of), table(rows, CORE)


@pytest.mark.nightly
@pytest.mark.parametrize("layout", sorted(LAYOUTS))
def test_no_gradient_is_wrong(layout: str) -> None:
    assert not faults([judge_opinfo(info, CORE, Selection(grad=True, layout=layout)) for info in opinfos()])


@pytest.mark.nightly
@pytest.mark.parametrize("form", FORMS)
def test_no_form_is_wrong(form: str) -> None:
    assert not faults([judge_opinfo(info, CORE, Selection(form=form, layout=layout)) for info in opinfos() for layout in LAYOUTS])


@pytest.mark.parametrize("op", [torch.native_batch_norm, aten._native_batch_norm_legit])
def test_batch_norm_still_misreads_permuted_inputs_in_eager(op: Any) -> None:
    x = torch.randn(5, 5, 5).permute(2, 1, 0)
    args = (x, None, None, *([None, None] if op is torch.native_batch_norm else [torch.zeros(5), torch.ones(5)]), True, 0.1, 1e-5)
    right = op(*args)
    given = tuple(torch.zeros(one.shape) for one in right)
    named = {"out": given} if op is torch.native_batch_norm else dict(zip(("out", "save_mean", "save_invstd"), given, strict=True))
    op(*args, **named)
    assert not torch.allclose(given[0], right[0]), "torch has repaired it: drop the entry of EAGER_FAULTS"


def test_some_ops_still_write_a_permuted_out_wrongly_in_eager() -> None:
    x, pooled = torch.randn(5, 5, 5), torch.randn(2, 5, 5, 5, 1).permute(4, 0, 1, 2, 3)
    calls = {
        "narrow_copy": lambda **out: torch.narrow_copy(x, 1, 2, 2, **out),
        "nn.functional.avg_pool3d": lambda **out: torch._C._nn.avg_pool3d(pooled, 2, **out),
    }
    for name, call in calls.items():
        right = call()
        out = torch.zeros(right.shape[::-1]).permute(*reversed(range(right.dim())))
        assert (name, "strided out", "permuted") in EAGER_FAULTS
        assert not torch.equal(call(out=out), right), "torch has repaired it: drop the entry of EAGER_FAULTS"


# -- the judge ----------------------------------------------------------------------------------------------------


def judged(rule: Callable[..., Any], function: Callable[..., Any], *args: Any, backward: bool = False) -> list[str]:
    """Judge an op under a broken rule."""
    mode = ed.EagerDecompMode(CORE, rules=[rule], cache=ed.ProgramCache())  # type: ignore[list-item]
    expected = observe(function, (args, {}), backward=backward)
    got = observe(function, (args, {}), [mode], backward=backward)
    return [*map(str, differences(expected, got)), *stride_differences(expected, got)]


def silu(fn: Callable[[Tensor], Any]) -> Any:
    """Return a rule in the form of the library's own rules, whose results the mode does not check."""
    return dataclasses.replace(ed.register_decomposition("aten.silu.default")(fn), source="own")


X = torch.randn(4, 3).t()


@pytest.mark.parametrize(
    ("rule", "said"),
    [
        (lambda x: (x * torch.sigmoid(x)).contiguous(), "strides"),
        (lambda x: x.copy_(x * torch.sigmoid(x)).clone(), "input 0 afterwards"),
        (lambda x: x.copy_(x * torch.sigmoid(x)), "aliasing"),
    ],
)
def test_a_broken_rule_is_found(rule: Callable[[Tensor], Any], said: str) -> None:
    assert any(said in one for one in judged(silu(rule), torch.nn.functional.silu, X))


def test_rounding_is_distinguished_from_error() -> None:
    def scaled(factor: float) -> Callable[[Tensor], Tensor]:
        return lambda x: (x * 3).sum() / 3 * factor

    x = torch.randn(4096)
    arguments = ((x,), {})
    expected = observe(torch.sum, arguments)
    for factor, reported in ((1.001, False), (1, True)):
        got = observe(scaled(factor), arguments)
        assert excused(differences(expected, got), torch.sum, arguments, expected, got, False) is reported


def test_a_wrong_gradient_is_found() -> None:
    broken = ed.register_decomposition("aten.silu_backward.default")(lambda g, x: g * torch.sigmoid(x))
    found = judged(broken, torch.nn.functional.silu, X.detach().requires_grad_(), backward=True)
    assert any("gradient 0" in one for one in found)


def test_a_leaked_op_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    lenient = functools.partial(ed.EagerDecompMode, on_unsupported="fallback")
    info, op_set = opinfos("^exp$")[0], CORE - ["aten.exp"]
    assert judge_opinfo(info, op_set, Selection()).status == "unsupported"
    monkeypatch.setattr(scoreboard, "EagerDecompMode", lenient)
    row = judge_opinfo(info, op_set, Selection())
    assert (row.status, row.detail) == ("leak", "call 1: aten.exp.default")


# -- forms and layouts --------------------------------------------------------------------------------------------


def test_layouts_have_the_strides_of_their_names() -> None:
    x, y = torch.randn(3, 4), torch.randn(4, 5)
    ((expanded, _), _) = in_layout(((x, y), {}), "expanded")
    assert expanded.shape == x.shape
    assert expanded.stride()[0] == 0
    assert [one.shape for one in in_layout(((x, y), {}), "size-0", 1)[0]] == [(3, 0), (0, 5)]
    assert [one.shape for one in in_layout(((x, y), {}), "size-0", 0)[0]] == [(0, 4), (4, 5)]
    assert [one.dim() for one in in_layout(((x, y), {}), "0-dim")[0]] == [0, 0]


@pytest.mark.parametrize(
    "selection",
    [
        Selection(2, torch.float64, "method", "gapped"),
        Selection(2, form="inplace", grad=True),
        Selection(2, form="strided out", layout="permuted"),
        Selection(2, form="forward"),
        Selection(2, layout="size-0", grad=True),
        Selection(2, form="vmap"),
    ],
    ids=lambda one: f"{one.form} {one.layout}",
)
def test_a_broken_rule_is_wrong_in_every_form(selection: Selection, monkeypatch: pytest.MonkeyPatch) -> None:
    (info,) = opinfos("^rad2deg$")
    assert judge_opinfo(info, CORE, selection).status == "pass"
    broken = ed.register_decomposition("aten.rad2deg.default")(lambda x: (x * 57.0).clone(memory_format=torch.contiguous_format))
    monkeypatch.setattr(scoreboard, "EagerDecompMode", functools.partial(ed.EagerDecompMode, rules=[broken]))
    assert judge_opinfo(info, CORE, selection).status == ("pass" if selection.layout == "size-0" else "wrong")


@pytest.mark.parametrize("form", ["plain", "out"])
def test_indices_of_ties_may_differ_but_each_occurs_once(form: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scoreboard, "EagerDecompMode", lambda op_set, cache, **options: ed.EagerDecompMode(op_set, rules=rules, **options)
    )
    x = torch.tensor([3, 1, 3, 1])
    named = {"out": (torch.zeros(2).long(), torch.zeros(2).long())} if form == "out" else {}
    monkeypatch.setattr(scoreboard, "cases", lambda info, selection, seed: [Case(torch.topk, ((x, 2), named))])
    (topk_info,) = opinfos("^topk$")

    def judged_with(indices: list[int], values: tuple[int, int] = (3, 3)) -> str:
        def topk(x: Tensor, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> tuple[Tensor, Tensor]:
            return torch.tensor(values), torch.tensor(indices)

        rules[:] = [ed.register_decomposition("aten.topk.default")(topk)]
        return judge_opinfo(topk_info, CORE - ["aten.topk.default"], Selection(form=form)).status

    rules: list[Any] = []
    assert [judged_with(indices) for indices in ([0, 2], [2, 0])] == ["pass", "pass"]
    assert [judged_with(indices) for indices in ([0, 0], [0, 1])] == ["wrong", "wrong"]
    assert judged_with([0, 1], (3, 1)) == "wrong"


# -- the command --------------------------------------------------------------------------------------------------


def test_a_run_that_ended_the_process_is_an_error_when_resumed(tmp_path: Path) -> None:
    file = tmp_path / "journal"
    Journal(str(file)).start("add")
    assert Journal(str(file)).rows["add"].status == "error"
    Journal(str(file)).finish(Row("add", "pass"))
    assert Journal(str(file)).rows["add"].status == "pass"


def test_the_command_prints_a_table_and_writes_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "rows.json"
    threads = torch.get_num_threads()
    try:
        assert main(["--match", "^(add|special.i0e)$", "--json", str(file), "--samples", "2"]) == 0
    finally:
        torch.set_num_threads(threads)
    out = capsys.readouterr().out
    assert "pass" in out
    assert {row["name"]: row["status"] for row in json.loads(file.read_text())}["add"] == "pass"
