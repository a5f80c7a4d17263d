"""Scorecards: states of kernels, OpInfos and models, files that are read back, changes, and runs that are continued."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.cli.main import main
from eagerdecomp.conformance import scoring
from eagerdecomp.conformance.opinfo_samples import opinfos
from eagerdecomp.conformance.scorecard import SECTIONS, Result, Scorecard
from eagerdecomp.conformance.scoring import Journal, judge_model, judge_opinfo
from eagerdecomp.conformance.small_models import MODELS
from eagerdecomp.errors import EagerDecompError, FileError

GOOD = {name: {"one": Result(section.good[0]), "other": Result(section.good[0])} for name, section in SECTIONS.items()}
CARD = Scorecard("mine", "2.13.0", "0.1.0", "2026-01-02T03:04:05+00:00", False, 12.5, GOOD, (("aten.mul.Tensor", 7),))


def with_states(card: Scorecard, section: str, **states: Result) -> Scorecard:
    return replace(card, sections={**card.sections, section: states})


# -- the value -----------------------------------------------------------------------------------------------------


def test_a_card_is_read_back() -> None:
    bad = with_states(CARD, "kernels", one=Result("wrong", "values: 3, eager 4"), gone=Result("absent"))
    card = replace(bad, history=bad.after(CARD), own=1)
    assert Scorecard.from_json(card.to_json()) == card
    assert json.loads(card.to_json())["counts"]["kernels"] == {"good": 0, "of": 2}
    assert (card.supported, CARD.supported) == (1, 2)


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda data: [], "it has no overloads"),
        (lambda data: {"results": []}, "it has no overloads"),
        (lambda data: {**data, "format": 2}, "has format 2, and this version reads format 1"),
        (lambda data: {**data, "models": {"one": {"state": "flies"}}}, "models has the state 'flies'"),
        (lambda data: {**data, "models": {"one": {"state": "trains"}}}, "its counts are not those of its sections"),
        (lambda data: {**data, "overloads": 3}, "damaged"),
        (lambda data: {**data, "next_kernels": [{"op": "aten.mm", "enables": float("inf")}]}, "damaged"),
        (lambda data: {key: value for key, value in data.items() if key != "date"}, "damaged"),
    ],
)
def test_a_damaged_or_foreign_file_is_refused(damage: Callable[[Any], Any], words: str) -> None:
    with pytest.raises(FileError, match=words):
        Scorecard.from_json(json.dumps(damage(json.loads(CARD.to_json()))))
    with pytest.raises(FileError, match="not a scorecard"):
        Scorecard.from_json(CARD.to_json()[:-20])


def test_the_change_names_what_got_better_and_worse() -> None:
    old = with_states(CARD, "opinfos", one=Result("wrong"), other=Result("passes"), left=Result("passes"))
    new = with_states(with_states(CARD, "opinfos", one=Result("passes"), other=Result("error")), "kernels", one=Result("right"))
    change = new.compare(old)
    assert change.better == (("opinfos", "one", "wrong", "passes"),)
    assert change.worse == (("kernels", "other", "right", "absent"), ("opinfos", "other", "passes", "error"))
    assert replace(new, quick=True).compare(old).notes == ("quick was False",)
    kept = replace(new, history=new.after(replace(old, history=old.after(CARD))))
    assert [row["counts"]["opinfos"] for row in kept.history] == [{"good": 2, "of": 2}, {"good": 2, "of": 3}]
    assert kept.page(change).count("| 2026-01-02 |") == 3
    assert "- opinfos `other`: passes → error" in kept.page(change)


def test_text_of_a_backend_has_no_effect_on_the_page() -> None:
    page = with_states(CARD, "models", one=Result("error", "<b>|\n# no")).page()
    assert "- `one`: error: \\<b\\>\\|" in page
    assert "\n# no" not in page


# -- the judges ----------------------------------------------------------------------------------------------------


def core_with(**kernels: Callable[..., Any]) -> ed.Backend:
    """Return a backend with the kernels of torch, except those given."""
    return ed.Backend("mine", ed.core_aten(), kernels={f"aten.{name.replace('__', '.')}": one for name, one in kernels.items()})


def wrong_mul(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return torch.mul(x, y) + 1


@pytest.mark.full
def test_an_opinfo_has_the_state_of_its_worst_sample() -> None:
    (info,) = opinfos("^mul$")
    assert judge_opinfo(info, core_with(), quick=False) == Result("passes")
    assert judge_opinfo(info, core_with(mul__Tensor=wrong_mul), quick=True).state == "wrong"
    infra = ed.Backend("mine", ed.infra())
    assert judge_opinfo(info, infra, quick=True) == Result("unsupported", "aten.mul.Tensor would run with aten.mul.Tensor")

    def raising(x: Any, y: Any) -> Any:
        raise ValueError("no\nsuch")

    assert judge_opinfo(info, core_with(mul__Tensor=raising), quick=True) == Result("error", "ValueError: no such")


@pytest.mark.full
def test_a_wrong_gradient_is_seen_only_in_a_full_run() -> None:
    (info,) = opinfos("^nn.functional.relu$")
    wrong = core_with(le__Scalar=torch.gt)
    assert judge_opinfo(info, wrong, quick=True).state == "passes"
    assert judge_opinfo(info, wrong, quick=False).state == "wrong"


@pytest.mark.full
@pytest.mark.parametrize("name", MODELS)
def test_each_model_trains_on_core_aten(name: str) -> None:
    assert judge_model(MODELS[name], core_with()) == Result("trains")


@pytest.mark.full
def test_a_model_that_runs_and_does_not_train() -> None:
    mlp = MODELS["MLP"]
    assert judge_model(mlp, core_with(tanh__default=lambda x: torch.tanh(x) + 0.1)) == Result("wrong", "tensors [0] of 1 differ")
    without = ed.Backend("mine", ed.core_aten() - ["aten.rsub.Scalar", "aten.sub.Tensor", "aten.add.Tensor", "aten.mul.Tensor"])
    found = judge_model(mlp, without)
    assert (found.state, "would run with" in found.detail) == ("runs", True)


# -- runs ----------------------------------------------------------------------------------------------------------


def test_a_journal_keeps_results_of_the_same_key_and_drops_a_line_that_was_cut(tmp_path: Path) -> None:
    path = tmp_path / "card.part"
    journal = Journal(path, "key")
    journal.add("models", "b", Result("trains"))
    journal.add("models", "a", Result("wrong", "x"))
    path.write_text(path.read_text() + '["models", "c", "tra')
    again = Journal(path, "key")
    assert list(again.of("models").items()) == [("a", Result("wrong", "x")), ("b", Result("trains"))]
    again.add("models", "c", Result("runs"))
    assert Journal(path, "key").of("models")["c"] == Result("runs")
    assert Journal(path, "other").rows == {}


@pytest.fixture
def small(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Score two OpInfos and one model; return a folder with the module of a backend, whose `wrong` is wrong."""
    monkeypatch.setattr(scoring, "opinfos", lambda: opinfos("^(mul|relu|exp)$"))
    monkeypatch.setattr(scoring, "MODELS", {"MLP": MODELS["MLP"]})
    (tmp_path / "scored.py").write_text(
        """
import torch, eagerdecomp as ed
mul = torch.ops.aten.mul.Tensor
ops = ed.infra() | ['aten.mul.Tensor', 'aten.exp']
right = ed.Backend('mine', ops, kernels={'aten.mul.Tensor': lambda x, y: mul(x, y)})
wrong = ed.Backend('mine', ops - ['aten.exp'], kernels={'aten.mul.Tensor': lambda x, y: mul(x, y) + 1})
"""
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.full
def test_the_command_scores_compares_and_continues(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["scorecard", "scored:right", "--quick", "--json", "old.json"]) == 0
    old = json.loads(Path("old.json").read_text())
    assert old["kernels"]["aten.mul.Tensor"] == {"state": "right"}
    assert old["kernels"]["aten.add.Tensor"] == {"state": "absent"}
    assert old["overloads"]["aten.mul_.Tensor"]["state"] == "closed"
    assert {name: row["state"] for name, row in old["opinfos"].items()} == {"exp": "passes", "mul": "passes"}
    assert old["models"]["MLP"]["state"] == "unsupported"
    assert old["next_kernels"][0]["enables"] > 10
    said = capsys.readouterr()
    assert "models: 1" in said.err
    assert all(text in said.out for text in ("| 2 of 2 |", "25 ops in the set, 1 of them with a kernel of the backend's own"))
    judged: list[str] = []

    def interrupted(make: Any, backend: Any) -> Result:
        raise KeyboardInterrupt

    command = ["scorecard", "scored:wrong", "--quick", "--json", "new.json", "--since", "old.json", "--markdown", "page.md"]
    monkeypatch.setattr(scoring, "can_fork", lambda backend: False)
    with monkeypatch.context() as patched:
        patched.setattr(scoring, "judge_model", interrupted)
        assert main(command) == 130
    assert Path("new.json.part").exists()
    monkeypatch.setattr(scoring, "judge_opinfo", lambda info, backend, quick: judged.append(info.name))
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    assert main(command) == 1
    assert judged == []  # they are in the file
    assert not Path("new.json.part").exists()
    page = Path("page.md").read_text()
    assert ("\\" in page, "\\" in capsys.readouterr().out) == (True, False)
    assert "- kernels `aten.mul.Tensor`: right → wrong" in page
    assert "- opinfos `exp`: passes → unsupported" in page
    assert len(json.loads(Path("new.json").read_text())["history"]) == 1


@pytest.mark.full
def test_a_job_that_ends_its_process_is_counted(small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        scoring, "judge_opinfo", lambda info, backend, quick: os._exit(3) if info.name == "mul" else Result("passes")
    )
    card = scoring.score(ed.Backend("mine", ["aten.exp"]), quick=True)
    assert card.sections["opinfos"]["mul"] == Result("crashed", "the process ended with exit code 3")
    assert card.sections["opinfos"]["exp"] == Result("passes")


@pytest.mark.full
def test_an_old_card_that_is_not_text_is_a_wrong_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Other cards that cannot be read are in `tests/golden_errors.txt`."""
    (tmp_path / "old.json").write_bytes(b"\xff")
    assert main(["scorecard", "eagerdecomp.backends.numpy:BACKEND", "--since", str(tmp_path / "old.json")]) == 2
    assert "utf-8" in capsys.readouterr().err


def test_a_missing_package_is_said_before_the_first_kernel_is_tested(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> None:
        raise EagerDecompError("Run: pip install expecttest")

    monkeypatch.setattr("eagerdecomp.coverage.opinfo_allowlist.opinfos", missing)
    monkeypatch.setattr("eagerdecomp.conformance.scoring.score", lambda *args, **options: pytest.fail("it begins to score"))
    assert main(["scorecard", "eagerdecomp.backends.numpy:BACKEND", "--quick"]) == 2
    assert "pip install expecttest" in capsys.readouterr().err
