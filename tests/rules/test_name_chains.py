"""Which global names and attributes code reads: shipped for this package's functions, disassembled for others."""

from __future__ import annotations

import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from eagerdecomp.rules import name_chains
from eagerdecomp.rules.name_chains import NEWEST_PYTHON

aten = torch.ops.aten
value = [1, 2]


def disassembled(fn: Callable[..., Any]) -> set[str]:
    return {".".join(chain) for chain in name_chains.name_chains(fn.__code__)}


def plain(x: Tensor) -> Tensor:
    return aten.mul.Tensor(x, aten.sigmoid.default(x))


def inner(x: Tensor) -> Tensor:
    def helper() -> Tensor:
        return aten.neg.default(x)

    return [helper, lambda: torch.ops.aten.exp.default][0]()


def in_loops(x: Any) -> Any:
    found = [aten.add.Tensor(one, value) for one in aten.unbind.int(x)]
    found += {aten.abs.default(one) for one in x if aten.any.default(one)}
    return {key: aten.cos(key) for key in found}


def with_locals(x: Any, aten: Any) -> Any:
    return aten.exp.default(x.mul.Tensor, value.pop), x[0].add.Tensor


def stored(x: Any) -> None:
    aten.kept.here = x
    del aten.kept.there


@pytest.mark.parametrize(
    ("fn", "chains"),
    [
        (plain, {"aten.mul.Tensor", "aten.sigmoid.default"}),
        (inner, {"aten.neg.default", "torch.ops.aten.exp.default"}),
        (in_loops, {"aten.add.Tensor", "value", "aten.unbind.int", "aten.abs.default", "aten.any.default", "aten.cos"}),
        (with_locals, {"value.pop"}),
        (stored, {"aten.kept"}),
    ],
)
def test_the_chains_of_a_function(fn: Callable[..., Any], chains: set[str]) -> None:
    assert disassembled(fn) == chains


def test_shipped_chains_are_those_of_the_sources_on_this_python() -> None:
    """Another Python compiles other code, but for the same chains."""
    shipped, found = (
        dict(line.split(" ", 1) for line in text.splitlines()) for text in (name_chains.FILE.read_text(), name_chains.text())
    )
    assert shipped.keys() == found.keys(), "run: python tools/record_rules.py --changed"
    for path, record in found.items():
        assert shipped[path].split(" ")[0] == record.split(" ")[0], (
            f"{path} has changed. Run: python tools/record_rules.py --changed"
        )
        mine, theirs = (dict(zip(text.split(" ")[1::2], text.split(" ")[2::2], strict=True)) for text in (shipped[path], record))
        for name, chains in theirs.items():
            if name in mine:
                assert set(mine[name].split(",")) == set(chains.split(",")), f"{path}, {name}"


def test_a_changed_source_is_disassembled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = Path(name_chains.__file__).parents[1] / "decomps" / "math" / "matrices.py"
    changed = tmp_path / "decomps" / "math" / "matrices.py"
    changed.parent.mkdir(parents=True)
    changed.write_text(path.read_text().replace("aten.permute.default", "aten.permute.other"))
    monkeypatch.setattr(name_chains, "_PACKAGE", f"{tmp_path}/")
    module = types.ModuleType("changed")
    exec(compile(changed.read_text(), str(changed), "exec"), module.__dict__)
    assert disassembled(module.transposed) == {"aten.permute.other", "list", "range"}


def test_this_python_is_one_that_the_tests_know() -> None:
    assert sys.version_info[:2] <= NEWEST_PYTHON, (
        f"Python {sys.version.split()[0]} is newer than {NEWEST_PYTHON}, the newest on which these tests passed. If all other "
        "tests of this file pass, raise NEWEST_PYTHON in eagerdecomp/rules/name_chains.py"
    )


@pytest.mark.full
def test_on_unknown_instructions_rules_are_recorded() -> None:
    """In a process of its own: each instruction has another name there, as on a Python of the future."""
    program = """
import dis, warnings, torch, torch.nn.functional as F
real = dis.get_instructions
dis.get_instructions = lambda code: [one._replace(opname="NEW_" + one.opname) for one in real(code)]
import eagerdecomp as ed
from eagerdecomp.rules import name_chains
name_chains.NEWEST_PYTHON = (3, 9)
torch.manual_seed(0)
x = torch.randn(2, 8, 6, 6)
from torch.nn import *
net = Sequential(Conv2d(8, 8, 3), BatchNorm2d(8), GELU(), Flatten(), Linear(128, 4))
def step():
    net.zero_grad()
    F.cross_entropy(net(x), torch.tensor([1, 2])).backward()
    return [*(one.grad.clone() for one in net.parameters()), torch.linalg.lu_solve(*torch.linalg.lu_factor(x[0, 0]), x[0, 0])]
want = step()
with warnings.catch_warnings(record=True) as caught, ed.EagerDecompMode(ed.core_aten()):
    warnings.simplefilter("always")
    got = step()
for one, other in zip(got, want): torch.testing.assert_close(one, other)
print([str(one.message) for one in caught if "does not know the instructions" in str(one.message)])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("does not know the instructions of Python") == 1
