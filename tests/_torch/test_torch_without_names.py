"""A torch that lacks ops and private names, as another release may: the import works; using one raises an error that names it."""

from __future__ import annotations

import ast
import json
import random
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

import eagerdecomp
from eagerdecomp._torch.private import MissingNameError, is_missing, private
from eagerdecomp._torch.releases import TESTED
from eagerdecomp.decomps import families

ROOT = Path(__file__).parents[2]

#: Without these torch itself does not run a single op.
NEEDED = {"torch._C"}


def run(script: str, *words: str) -> str:
    """Run a script in a new process, where the library is not imported yet, and return its output."""
    begin = f"import json, sys, warnings; sys.path[:0] = [{str(ROOT)!r}, {str(ROOT / 'tests' / 'support')!r}]\n"
    done = subprocess.run([sys.executable, "-c", begin + script, *words], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


WITHOUT_OPS = """
import torch_without_names, torch
names = set(json.loads(sys.argv[1]))
torch_without_names.hide_ops(names)
import eagerdecomp as ed
nn = torch.nn
model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.SiLU(), nn.Flatten(), nn.Linear(64, 2))
x = torch.randn(2, 3, 6, 6)
def step():
    model.zero_grad()
    model(x).square().mean().backward()
    return [one.grad.clone() for one in model.parameters()]
expected = step()
with ed.EagerDecompMode(ed.core_aten()) as mode:
    found = step()
for one, other in zip(found, expected):
    torch.testing.assert_close(one, other)
print("\\n".join(note for note in ed.plan(ed.core_aten()).notes if "the library has rules for ops that" in note))
"""


@pytest.mark.full
def test_ops_that_a_torch_lacks_drop_their_rules() -> None:
    core = {str(rule.op) for rules in families().values() for rule in rules if torch.Tag.core in rule.op.tags}
    # Every torch has these two: write-backs are calls of `copy_`, and the only route of a `sum` of all is the core op.
    kept = {"aten.copy_.default", "aten.sum.default"}
    named = {str(rule.op) for rules in families().values() for rule in rules if rule.op.namespace == "aten"} - core - kept
    in_tables = ["aten._conj_copy.default", "aten._weight_norm_interface.default"]
    gone = {
        *random.Random(0).sample(sorted(named), 20),
        *in_tables,
        "aten.upsample_nearest1d.vec",
        "aten._efficientzerotensor.default",
    }
    note = run(WITHOUT_OPS, json.dumps(sorted(gone)))
    assert [name for name in gone & named if name not in note] == []


WITHOUT_NAMES = """
import torch_without_names
found = {}
for module, names in torch_without_names.private_names().items():
    names = sorted(names - set(json.loads(sys.argv[1])))
    if torch_without_names.import_error_without(names):  # of which it is one
        found.update({name: words for name in names if (words := torch_without_names.import_error_without([name]))})
print(json.dumps(found))
"""


@pytest.mark.full
def test_no_private_name_is_needed_by_the_import() -> None:
    assert json.loads(run(WITHOUT_NAMES, json.dumps(sorted(NEEDED)))) == {}


def test_a_missing_name_says_what_needs_it_when_it_is_used() -> None:
    gone = private("torch._C._no_such_name", "a test")
    assert is_missing(gone)
    assert not is_missing(private("torch._C._len_torch_dispatch_stack", "a test"))
    assert not isinstance(torch.ones(1), gone)
    assert getattr(gone, "__code__", None) is None

    class Derived(gone):  # type: ignore[misc, valid-type]
        """Derive classes from torch's, as the library does."""

    words = r"has no torch\._C\._no_such_name, which eagerdecomp needs for a test; it is tested with torch 2\."
    for use in (gone, Derived, lambda: gone.attribute):
        with pytest.raises(MissingNameError, match=words):
            use()


@pytest.mark.full
@pytest.mark.parametrize(
    ("release", "warns"), [("2.13.0+cpu", False), ("2.12.9", False), ("2.99.0a0+git123", True), ("3.0.0", True)]
)
def test_a_torch_newer_than_the_tests_warns_once(release: str, warns: bool) -> None:
    script = """
import torch; torch.__version__ = type(torch.__version__)(sys.argv[1])
with warnings.catch_warnings(record=True) as seen:
    warnings.simplefilter("always")
    import eagerdecomp
print(*(str(one.message) for one in seen if "tested with" in str(one.message)), sep="\\n")
"""
    said = run(script, release).splitlines()
    assert [f"is tested with torch {TESTED}" in line for line in said if line] == [True] * warns


def _looked_up(tree: ast.AST) -> Iterator[int]:
    """The lines that name an op while a module is imported: all but those in bodies of functions."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, (ast.FunctionDef, ast.Lambda)):
            outside = [*node.args.defaults, *filter(None, node.args.kw_defaults), *getattr(node, "decorator_list", ())]
            for one in outside:
                yield from _looked_up(ast.Expr(one))
            continue
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Attribute):
            owner = ast.unparse(node.value.value)
            if owner.removeprefix("torch.ops.") in ("aten", "prims"):
                yield node.lineno
        yield from _looked_up(node)


@pytest.mark.full
def test_modules_name_ops_by_strings_while_they_are_imported() -> None:
    package = Path(eagerdecomp.__file__).parent
    lines = {path.relative_to(package): list(_looked_up(ast.parse(path.read_text()))) for path in package.rglob("*.py")}
    del lines[Path("_torch", "ops.py")]  # torch's own classes, found by `aten.add`
    assert {path: found for path, found in lines.items() if found} == {}, 'say rule("aten.op.default"), or op_called of _torch.ops'
