"""The front door: what it holds, what importing it costs, and that it changes nothing."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import eagerdecomp

NAMES = (Path(__file__).parents[2] / "docs" / "reference" / "names.md").read_text(encoding="utf-8")


def python(code: str, *flags: str) -> str:
    """Run code in a fresh interpreter; its output. What it complains of fails the test."""
    done = subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not done.stderr
    return done.stdout


def documented() -> list[str]:
    """The names in the table of docs/reference/names.md."""
    table = NAMES.partition("modules of their own")[0]
    return [name for row in re.findall(r"^\| (`[^|]*) \|", table, re.MULTILINE) for name in re.findall(r"`(\w+)", row)]


def test_the_page_of_names_documents_exactly_the_public_names() -> None:
    assert sorted(documented()) == sorted(eagerdecomp.__all__)


@pytest.mark.full
def test_no_name_or_signature_has_changed_unnoticed() -> None:
    """Where one should have: ``python tools/public_api.py --write``, and a line in CHANGELOG.md."""
    here = Path(__file__).parents[1]
    done = subprocess.run([sys.executable, here.parent / "tools" / "public_api.py"], capture_output=True, text=True, check=True)
    assert done.stdout == (here / "public_api.txt").read_text(encoding="utf-8")


@pytest.mark.full
def test_import_pulls_in_no_package_that_torch_does_not() -> None:
    code = """
import sys, torch
before = {name.partition(".")[0] for name in sys.modules}
import eagerdecomp
print(*sorted({name.partition(".")[0] for name in sys.modules} - before - set(sys.stdlib_module_names)))
"""
    assert python(code).split() == ["eagerdecomp"]


def test_names_are_imported_from_where_type_checkers_see_them() -> None:
    stub = Path(eagerdecomp.__file__).with_suffix(".pyi").read_text(encoding="utf-8")
    seen = dict(re.findall(r"^from [\w.]+ import (\w+) as (\w+)$", stub, re.MULTILINE))
    assert sorted(seen) == sorted(seen.values()) == sorted({*eagerdecomp.__all__, "__version__"})
    with pytest.raises(AttributeError, match="has no attribute 'no_such_name'"):
        eagerdecomp.no_such_name  # noqa: B018
    assert dir(eagerdecomp) == sorted(seen)


@pytest.mark.full
def test_import_loads_few_modules_and_a_name_the_module_that_it_is_of() -> None:
    code = """
import sys, eagerdecomp as ed
def loaded(): return sorted({name.split(".")[1] for name in sys.modules if name.startswith("eagerdecomp.")})
print(loaded())
from eagerdecomp import core_aten
print(core_aten is ed.core_aten, loaded())
"""
    few, more = python(code).splitlines()
    assert few == "['_torch', '_version', 'host']"
    assert more.startswith("True")
    assert "'ops'" in more
    assert "runtime" not in more


@pytest.mark.full
def test_import_changes_no_state_of_torch_or_of_the_process() -> None:
    code = """
import os, sys, threading, warnings, torch

def state():
    return {
        "dtype": torch.get_default_dtype(),
        "device": torch.get_default_device(),
        "grad": torch.is_grad_enabled(),
        "threads": (torch.get_num_threads(), torch.get_num_interop_threads()),
        "random": torch.get_rng_state().sum().item(),
        "deterministic": torch.are_deterministic_algorithms_enabled(),
        "precision": torch.get_float32_matmul_precision(),
        "modes": torch._C._len_torch_dispatch_stack(),
        "functions": torch._C._len_torch_function_stack(),
        "ops": len(torch._C._dispatch_get_all_op_names()),
        "registrations": sum(len(torch._C._dispatch_dump(name)) for name in ("aten::add.Tensor", "aten::silu", "aten::mm")),
        "environment": dict(os.environ),
        "filters": list(warnings.filters),
        "python threads": threading.active_count(),
        "hooks": (sys.excepthook, threading.excepthook, threading.Thread.start),
        "path": list(sys.path),
        "recursion": sys.getrecursionlimit(),
    }

before = state()
import eagerdecomp
after = state()
print([name for name in before if before[name] != after[name]])
"""
    assert python(code).strip() == "[]"
