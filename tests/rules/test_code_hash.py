"""The hash of a rule's code: what changes it, and what does not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.decomps import families
from eagerdecomp.rules import code_hash as hashing
from eagerdecomp.rules.code_hash import code_hash
from eagerdecomp.rules.rule import Rule, make_rule

aten = torch.ops.aten

SOURCE = '''
import functools
import torch
aten = torch.ops.aten

LIMIT = 3

def helper(x):
    """Documentation."""
    return aten.mul.Tensor(x, x)

def made(by):
    def run(self, alpha=1):
        """Documentation."""
        # a comment
        if by > LIMIT:
            return NotImplemented
        return aten.add.Tensor(helper(self), by, alpha=alpha)
    return run

fn = made(2)
chosen = lambda self: aten.neg.default(self)
around = functools.partial(made, 1)
'''


def module_of(folder: Path, source: str, name: str) -> ModuleType:
    path = folder / f"{name}.py"
    path.write_text(source, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(f"eagerdecomp.decomps.{name}", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def hash_of(folder: Path, source: str, name: str, fn: str = "fn") -> str:
    return code_hash(make_rule(aten.silu.default, getattr(module_of(folder, source, name), fn)))


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("helper(self), by", "self, by"),
        ("aten.mul.Tensor(x, x)", "aten.mul.Tensor(x, 2)"),  # in a helper
        ("LIMIT = 3", "LIMIT = 4"),  # a global constant
        ("made(2)", "made(3)"),  # in a closure
        ("alpha=1)", "alpha=2)"),  # a default
    ],
)
def test_changes_of_code_and_constants_change_the_hash(tmp_path: Path, old: str, new: str) -> None:
    assert old in SOURCE
    assert hash_of(tmp_path, SOURCE, "before") != hash_of(tmp_path, SOURCE.replace(old, new), "after")


@pytest.mark.parametrize(
    ("old", "new"),
    [("# a comment", "# another"), ('"""Documentation."""', '"""Other words.\n\n    More."""'), ("LIMIT = 3", "\n\nLIMIT = 3")],
)
def test_comments_docstrings_and_line_numbers_do_not_change_it(tmp_path: Path, old: str, new: str) -> None:
    assert hash_of(tmp_path, SOURCE, "before") == hash_of(tmp_path, SOURCE.replace(old, new), "after")


def test_hashes_of_mutually_recursive_functions_do_not_depend_on_the_order(tmp_path: Path) -> None:
    source = "def even(n):\n    return n == 0 or odd(n - 1)\n\ndef odd(n):\n    return n != 0 and even(n - 1)\n"
    first, second = (module_of(tmp_path, source, name) for name in ("first", "second"))
    hashes = [
        [code_hash(make_rule(aten.silu.default, getattr(module, name))) for name in names]
        for module, names in ((first, ("even", "odd")), (second, ("odd", "even")))
    ]
    assert hashes[0] == hashes[1][::-1]


@pytest.mark.full
def test_hashes_are_the_same_in_another_process() -> None:
    """In another process, sets of dtypes have another order."""
    script = "import json, test_code_hash as own; print(json.dumps(own.hashes_by_name()))"
    path = os.pathsep.join([str(Path(__file__).parent), *sys.path])
    run = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True, env={**os.environ, "PYTHONPATH": path}
    )
    assert json.loads(run.stdout) == hashes_by_name()


def hashes_by_name() -> dict[str, str]:
    return {f"{rule.op} {rule.key}": code_hash(rule) for family in families().values() for rule in family}


@pytest.mark.full
def test_running_a_rule_does_not_change_its_hash(monkeypatch: pytest.MonkeyPatch) -> None:
    """Values that a rule caches between calls, such as constants per dtype, are not part of its code."""
    rules = [rule for family in families().values() for rule in family]
    before = _hashes(rules, monkeypatch)
    x = torch.rand(4, 4)
    for rule in rules:
        if [argument.name for argument in rule.op._schema.arguments if not argument.has_default_value()] == ["self"]:
            for dtype in (torch.float32, torch.bfloat16):
                try:
                    rule(x.to(dtype))
                except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError):
                    continue
    assert _hashes(rules, monkeypatch) == before


def _hashes(rules: list[Rule], monkeypatch: pytest.MonkeyPatch) -> dict[tuple[OpOverload, str], str]:
    monkeypatch.setattr(hashing, "_known", {})
    return {(rule.op, rule.key): code_hash(rule) for rule in rules}
