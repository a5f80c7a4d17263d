"""The closing table, as a function of facts."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.backends.recorder import BackendRecorder
from eagerdecomp.cli.run_table import RunFacts, run_facts, summary_json, summary_table
from eagerdecomp.host.outputs import Outputs
from eagerdecomp.runtime.stats import OpStats, Stats

aten = torch.ops.aten

FACTS = RunFacts(
    op_set="OpSet(mine: 2 ops)",
    called={"aten.silu.default": 3, "aten.add.Tensor": 1},
    reached={"aten.mul.Tensor": 3, "aten.sigmoid.default": 3},
    outside={},
    passthrough={},
    total=OpStats(calls=4, direct=1, decomposed=3, hits=2, misses=1),
    programs=5,
    seconds=3.0,
)


def line(facts: RunFacts, label: str) -> str:
    """Return the text after a label in the table."""
    (found,) = [text for text in summary_table(facts).splitlines() if text.strip().startswith(label)]
    return found.strip().removeprefix(label).strip()


def test_the_table_reports_ops_called_reached_and_outside() -> None:
    assert summary_table(FACTS).splitlines()[0] == "eagerdecomp on OpSet(mine: 2 ops)"
    assert line(FACTS, "distinct ops the program called") == "2"
    assert line(FACTS, "distinct ops that reached the backend") == "2"
    assert line(FACTS, "of those outside the set") == "0"


def test_calls_inside_kernels_are_no_ops_outside_the_set() -> None:
    assert "inside its kernels" not in summary_table(FACTS)
    mine = ed.Backend("mine", ed.infra() | ["aten.square"], {"aten.square": lambda x: x.resolve_conj() * x})
    x, seen = torch.ones(3), BackendRecorder()
    with seen, ed.EagerDecompMode(seen.counting(mine)) as mode:
        torch.square(x)
    facts = run_facts(mine, mode.stats(), seen, seconds=1.0)
    assert summary_table(facts).startswith("eagerdecomp on Backend('mine', OpSet(infra | 2 ops: 24 ops), 2 kernels)\n")
    assert line(facts, "distinct ops that reached the backend") == "1"
    assert line(facts, "of those outside the set") == "0"
    assert line(facts, "distinct ops called inside its kernels") == "2 (aten.mul.Tensor, aten.resolve_conj.default)"
    assert summary_json(facts)["calls"]["in_kernels"] == {"aten.mul.Tensor": 1, "aten.resolve_conj.default": 1}


@pytest.mark.parametrize("width", [50, 72, 100, 140])
def test_the_table_fits_the_width_but_for_lines_to_paste(width: int) -> None:
    names = {f"aten.some_long_name_{n}.default": n + 1 for n in range(9)}
    facts = replace(
        FACTS,
        op_set=f"OpSet({'long ' * 30})",
        outside=names,
        other_numbers=names,
        outputs=Outputs("a " * 90, "b " * 90),
        plain_seconds=1.0,
    )
    paste = f"  eagerdecomp run {'x' * 200}"
    lines = summary_table(replace(facts, notes=["some words " * 30, paste]), width).splitlines()
    compared = [text for text in lines if text[:2] in ("+1", "-1")]  # below 80 columns, lines of output are whole
    assert paste in lines
    assert max(len(text) for text in lines if text != paste and text not in compared) <= width
    wrapped = " ".join(" ".join(lines).replace("-", " ").split())
    assert all(name in wrapped for name in ("9 (aten.some_long_name_0.default,", "see below", "1 recorded (cache misses)"))


def test_random_calls_are_named_by_packet_in_the_table_and_by_op_in_the_json() -> None:
    assert line(FACTS, "random calls with other numbers than eager") == "0"
    assert "run natively" not in summary_table(FACTS)
    other = {"aten.random_.default": 9, "aten.multinomial.default": 2, "aten.random_.to": 1}
    facts = replace(FACTS, other_numbers=other, host_random={"aten.randint.low": 3})
    assert line(facts, "random calls with other numbers than eager") == "12 (aten.random_ 10, aten.multinomial 2)"
    assert line(facts, "random calls for the host, run natively") == "3 (aten.randint 3)"
    assert summary_json(facts)["random"] == {"host_random": {"aten.randint.low": 3}, "other_numbers": other}


def test_host_random_calls_are_not_among_those_outside_the_set() -> None:
    seen = BackendRecorder()
    seen.ops.update({aten.randint.low: 3, aten.exp.default: 1})
    stats = Stats({"aten.randint.low": OpStats(calls=3, host_random=2), "aten.exp.default": OpStats(1, 1)})
    facts = run_facts(ed.infra(), stats, seen, seconds=1.0)
    assert facts.outside == {"aten.randint.low": 1, "aten.exp.default": 1}
    assert facts.host_random == {"aten.randint.low": 2}


def test_the_json_contains_the_facts_of_the_table() -> None:
    facts = replace(FACTS, plain_seconds=1.5, values={"loss": [2.0, 1.0]}, passthrough={"profiler.x.default": 1})
    reported = json.loads(json.dumps(summary_json(facts)))
    assert reported["ops_called"] == 2
    assert reported["ops_reached"] == 2
    assert reported["ops_outside"] == 0
    assert reported["time_ratio"] == 2.0
    assert reported["loss"] == [2.0, 1.0]
    assert reported["cache"] == {"hits": 2, "misses": 1, "bypassed": 0, "programs": 5}
    assert reported["calls"]["reached"] == {"aten.mul.Tensor": 3, "aten.sigmoid.default": 3}
    assert reported["calls"]["passthrough"] == {"profiler.x.default": 1}
