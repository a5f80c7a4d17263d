"""The model table: planted faults are found, and models pass. The default tier runs some plain models, the nightly tier all."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from sampled import part_of
from torch import Tensor, nn

import eagerdecomp as ed
from conformance import model_judge, model_table
from conformance.devices import install_target
from conformance.model_judge import Result, judge_entry, judge_entry_compiled, judge_entry_installed, tensor_difference
from conformance.models import FAMILIES, Entry, entries, missing_extras
from conformance.models.entry import loss_of
from conformance.models.plain import plain_entry
from eagerdecomp.frontends import installation

pytestmark = pytest.mark.filterwarnings("ignore")

CORE = ed.core_aten()
WITHOUT_EXPONENTIALS = CORE - ["aten.sigmoid", "aten.tanh", "aten.exp"]
ALL = entries()
PLAIN = [entry for entry in ALL if not entry.needs]

#: The default tier runs one in this many of the entries in plain torch.
PARTS = 5


def faults(results: list[Result]) -> list[str]:
    """Return the results that neither pass nor are unsupported for named ops."""
    return [
        f"{one.name} / {one.column}: {one.status}: {one.detail}" for one in results if one.status not in ("pass", "unsupported")
    ]


@pytest.mark.full
@pytest.mark.parametrize("entry", part_of(PLAIN, PARTS), ids=lambda entry: entry.name)
def test_a_part_of_the_plain_models_passes_or_is_unsupported(entry: Entry) -> None:
    assert not faults(judge_entry(entry, CORE))


@pytest.mark.nightly
@pytest.mark.parametrize("judge", [judge_entry, judge_entry_compiled])
@pytest.mark.parametrize("entry", ALL, ids=lambda entry: f"{entry.family}/{entry.name}")
def test_every_model_passes_or_is_unsupported(entry: Entry, judge: Callable[[Entry, ed.OpSet], list[Result]]) -> None:
    if missing := missing_extras(entry):
        pytest.skip(f"needs {', '.join(missing)}: pip install -c requirements/tested.txt -e .[models]")
    assert not faults(judge(entry, CORE))


# -- the table ----------------------------------------------------------------------------------------------------


def test_names_are_unique_and_every_module_is_listed() -> None:
    names = [(entry.family, entry.name) for entry in ALL]
    assert len(set(names)) == len(names)
    folder = Path(model_judge.__file__).parent / "models"
    assert {path.stem for path in folder.glob("*.py")} == {*FAMILIES, "__init__", "entry", "torchvision_ops"}
    assert {entry.family for entry in ALL} == set(FAMILIES.values())


def test_the_command_writes_results_and_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    threads = torch.get_num_threads()
    facts, document = tmp_path / "models.json", tmp_path / "models.md"
    code = model_table.main(["--match", "Training/SGD, fused", "--json", str(facts), "--markdown", str(document)])
    assert code == 0
    assert "1 models, 1 pass in every column" in capsys.readouterr().out
    assert {row["column"]: row["status"] for row in json.loads(facts.read_text())} == {"make": "pass", "train": "pass"}
    assert "| SGD, fused | pass |  |  | pass |  |" in document.read_text()
    torch.set_num_threads(threads)


# -- the judge ----------------------------------------------------------------------------------------------------


class _Model(nn.Module):
    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function, self.linear = function, nn.Linear(4, 3)

    def forward(self, x: Tensor) -> Tensor:
        return self.function(self.linear(x))


def _entry(function: Callable[[Tensor], Tensor]) -> Entry:
    return plain_entry(
        "one", lambda: _Model(function), lambda: ((torch.randn(2, 4),),), lambda model, batch: loss_of(model(*batch[0]))
    )


def _our_mode_is_off() -> bool:
    modes = torch.utils._python_dispatch._get_current_dispatch_mode_stack()
    return not any(isinstance(mode, ed.EagerDecompMode) for mode in modes)


def _wrong_in_our_mode(x: Tensor) -> Tensor:
    """Return a right result in eager and a slightly wrong one under our mode, as a wrong rule would."""
    return x.sigmoid() * (1.0 if _our_mode_is_off() else 1.01)


def _refused_in_our_mode(x: Tensor) -> Tensor:
    if not _our_mode_is_off():
        raise RuntimeError("no")
    return x


def _leaking(x: Tensor) -> Tensor:
    """Call an op outside the mode, as a rule that disables the mode would."""
    if _our_mode_is_off():
        return nn.functional.hardswish(x)
    with torch.utils._python_dispatch._pop_mode_temporarily():
        return nn.functional.hardswish(x)


@pytest.mark.parametrize(
    ("function", "status"),
    [
        (nn.functional.silu, "pass"),
        (_wrong_in_our_mode, "wrong"),
        (_refused_in_our_mode, "error"),
        (lambda x: x @ x, "broken"),
        (_leaking, "leak"),
    ],
    ids=["right", "wrong values", "an error only in the mode", "fails in eager", "leak"],
)
def test_the_status_of_a_model_is_the_same_in_each_column(function: Callable[[Tensor], Tensor], status: str) -> None:
    assert torch.ops.aten.hardswish.default not in CORE
    statuses = {one.column: one.status for one in judge_entry(_entry(function), CORE)}
    assert statuses == {"make": "pass", "eval": status, "inference_mode": status, "train": status}


# -- compiled -----------------------------------------------------------------------------------------------------


def _compiled_statuses(function: Callable[[Tensor], Tensor], ops: ed.OpSet = CORE) -> set[tuple[str, str]]:
    return {(one.status, one.note) for one in judge_entry_compiled(_entry(function), ops)}


def _off_in_graphs(x: Tensor) -> Tensor:
    return x.sigmoid() * (1.01 if torch.compiler.is_compiling() else 1.0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "ops", "status", "note"),
    [
        (nn.functional.silu, CORE, "pass", ""),
        (_off_in_graphs, CORE, "pass", "as aot_eager, which is not eager"),
        (torch._dynamo.disable(_wrong_in_our_mode), CORE, "wrong", ""),
        (lambda x: x.sigmoid(), WITHOUT_EXPONENTIALS, "unsupported", ""),
    ],
)
def test_a_compiled_model_is_compared(function: Callable[[Tensor], Tensor], ops: ed.OpSet, status: str, note: str) -> None:
    assert _compiled_statuses(function, ops) == {(status, note)}


# -- installed ----------------------------------------------------------------------------------------------------


def _nothing_is_installed(x: Tensor) -> Tensor:
    """Return a right result in eager, and a slightly wrong one where a set is installed."""
    return x.sigmoid() * (1.01 if installation._installed else 1.0)


@pytest.mark.full
@pytest.mark.parametrize(
    ("function", "ops", "status"),
    [
        (nn.functional.silu, CORE, "pass"),
        (_nothing_is_installed, CORE, "wrong"),
        (lambda x: x.sigmoid(), WITHOUT_EXPONENTIALS, "unsupported"),
    ],
)
def test_a_model_on_an_installed_set_is_compared(function: Callable[[Tensor], Tensor], ops: ed.OpSet, status: str) -> None:
    made, *others = judge_entry_installed(_entry(function), install_target("cpu", ops))
    assert (made.column, made.status) == ("make", "pass")
    assert [one.column for one in others] == ["eval", "inference_mode", "train"]
    for one in others:
        assert (one.status, bool(one.missing)) == (status, status == "unsupported")
    assert not installation._installed


@pytest.mark.parametrize(
    ("have", "said"),
    [
        (torch.tensor([1.0, 2.0]), ""),
        (torch.tensor([1.0, 2.0001]), ""),
        (torch.tensor([1.0, 2.1]), "off by 0.1"),
        (torch.tensor([1.0, torch.nan]), "1 of 2 values"),
        (torch.tensor([1.0, 2.0], dtype=torch.float64), "dtype"),
        (torch.tensor([[1.0, 2.0]]), "shape"),
        (torch.tensor([1.0, 2.0], requires_grad=True), "requires_grad"),
        (None, "none where eager has one"),
    ],
)
def test_values_and_metadata_of_tensors_are_compared(have: Tensor | None, said: str) -> None:
    difference = tensor_difference(torch.tensor([1.0, 2.0]), have)
    assert said in difference
    assert bool(difference) == bool(said)
