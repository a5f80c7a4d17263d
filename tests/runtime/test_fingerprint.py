"""Identities: equal for what is equal, different where a rule, kernel or what it reads is, and none where nobody can tell."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

import eagerdecomp as ed
from eagerdecomp.runtime.fingerprint import NoIdentity, Owner, identity_of, owner_identity

aten = torch.ops.aten


def made(source: str, **names: Any) -> Callable[..., Any]:
    """The function `f` of a source text, in a module of its own."""
    namespace: dict[str, Any] = {"__name__": "somebodys", "torch": torch, "aten": aten, **names}
    exec(source, namespace)
    found: Callable[..., Any] = namespace["f"]
    return found


F = "def f(x, k=2):\n    return x * k"


def test_one_source_has_one_identity() -> None:
    assert identity_of(made(F)) == identity_of(made(F))
    assert identity_of(made(F)) == identity_of(made("# a comment\n" + F))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (F, F.replace("*", "+")),
        (F, F.replace("2", "3")),
        (F, F.replace("2", "2.0")),
        (F, F.replace("2", "True")),
        ("def f(x):\n    return x * 0.0", "def f(x):\n    return x * -0.0"),
        ("def f(x):\n    return aten.add(x, 1)", "def f(x):\n    return aten.sub(x, 1)"),
        ("S = 2\ndef f(x):\n    return x * S", "S = 3\ndef f(x):\n    return x * S"),
        ("def g(x):\n    return x\ndef f(x):\n    return g(x)", "def g(x):\n    return -x\ndef f(x):\n    return g(x)"),
        ("def f(x):\n    return [y + 1 for y in x]", "def f(x):\n    return [y + 2 for y in x]"),
        ("def h(n):\n    return lambda x: x * n\nf = h(1)", "def h(n):\n    return lambda x: x * n\nf = h(2)"),
        (
            "import functools\ndef g(x, y): pass\nf = functools.partial(g, 1)",
            "import functools\ndef g(x, y): pass\nf = functools.partial(g, 2)",
        ),
        ("D = {'a': (1, [2])}\ndef f(x):\n    return D", "D = {'a': (1, [3])}\ndef f(x):\n    return D"),
        ("T = torch.float32\ndef f(x):\n    return x.to(T)", "T = torch.float64\ndef f(x):\n    return x.to(T)"),
    ],
)
def test_what_a_function_does_or_reads_is_part_of_its_identity(one: str, other: str) -> None:
    assert identity_of(made(one)) == identity_of(made(one))
    assert identity_of(made(one)) != identity_of(made(other))


def test_functions_that_call_each_other_have_an_identity() -> None:
    source = "def f(x):\n    return g(x)\ndef g(x):\n    return f(x) + {}"
    assert identity_of(made(source.format(1))) == identity_of(made(source.format(1))) != identity_of(made(source.format(2)))


def module(tmp_path: Path, name: str, text: str, **names: Any) -> types.ModuleType:
    file = tmp_path / f"{name}.py"
    file.write_text(text, encoding="utf-8")
    found = types.ModuleType(name)
    found.__file__ = str(file)
    vars(found).update(names)
    return found


def test_a_module_counts_by_its_file_and_those_of_the_modules_it_uses(tmp_path: Path) -> None:
    source = "def f(x):\n    return helpers.scale(x)"
    inner = module(tmp_path, "inner", "K = 1")
    helpers = module(tmp_path, "helpers", "import inner", inner=inner)
    before = identity_of(made(source, helpers=helpers))
    assert identity_of(made(source, helpers=helpers)) == before
    module(tmp_path, "inner", "K = 2")
    assert identity_of(made(source, helpers=helpers)) != before


@pytest.mark.parametrize(
    ("value", "named"),
    [
        (torch.ones(2), "a Tensor"),
        (object(), "a object"),
        (torch.nn.Linear(2, 2), "Linear"),
        (torch.Generator(), "a Generator"),
        (types.ModuleType("nowhere"), "the module nowhere"),
    ],
)
def test_what_reads_an_object_has_no_identity(value: Any, named: str) -> None:
    for reads in (
        made("def f(x):\n    return V", V=value),
        made("def h(v):\n    return lambda x: v\nf = h(V)", V=value),
        made("def f(x, v=V):\n    return v", V=value),
        functools.partial(made(F), k=value),
    ):
        with pytest.raises(NoIdentity, match=named):
            identity_of(reads)


def test_what_is_not_named_does_not_count() -> None:
    assert identity_of(made(F, weight=torch.ones(2), S=1)) == identity_of(made(F, S=2))


def test_an_owner_is_told_by_set_predicates_kernels_hook_and_rules() -> None:
    @ed.register_decomposition(aten.silu.default)
    def silu(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sigmoid(x)

    def when(*args: Any) -> bool:
        return True

    core = ed.core_aten()
    owners = [
        Owner(core, frozenset(), None, frozenset()),
        Owner(core - ["aten.add.Tensor"], frozenset(), None, frozenset()),
        Owner(core.with_predicate("aten.add.Tensor", when), frozenset(), None, frozenset()),
        Owner(core.with_predicate("aten.add.Tensor", bool), frozenset(), None, frozenset()),
        Owner(core, frozenset({(aten.add.Tensor, torch.add)}), None, frozenset()),
        Owner(core, frozenset({(aten.add.Tensor, when)}), None, frozenset()),
        Owner(core, frozenset(), when, frozenset()),
        Owner(core, frozenset(), None, frozenset({silu})),
    ]
    found = [owner_identity(owner) for owner in owners]
    assert found == [owner_identity(owner) for owner in owners]
    assert all(one != other for number, one in enumerate(found) for other in found[:number])


def test_the_bundled_backends_have_identities() -> None:
    pytest.importorskip("numpy")
    from eagerdecomp.backends import numpy, reference

    for one in (numpy.BACKEND, reference.BACKEND):
        owner = Owner(one.ops, frozenset(one.kernels.items()), one.compile, frozenset())
        assert len(owner_identity(owner)["kernels"]) == len(one.kernels)
