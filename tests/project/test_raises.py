"""The package raises its own errors, and builtin ones only where eager, Python or a caller inside the package expects them."""

from __future__ import annotations

import ast
import builtins
from collections.abc import Iterator
from pathlib import Path

import pytest

import eagerdecomp
from eagerdecomp import errors

PACKAGE = Path(eagerdecomp.__file__).parent

#: Code that raises what eager raises: a user's program catches `ValueError` there, and not `EagerDecompError`.
IMITATES_EAGER = ("decomps/", "eager/", "backends/numpy/", "device/module.py", "device/storages.py", "rules/writeback.py")

#: Functions elsewhere that raise a builtin error, and why.
ALLOWED = {
    "__init__.py:__getattr__": "Python's protocol: `hasattr` and `from eagerdecomp import ...` expect AttributeError",
    "_torch/ops.py:__call__": "Python's protocol: an op that this torch lacks is an attribute that is missing",
    "_torch/dynamo.py:_refuse_guard": "as torch raises it from 2.12 on; callers catch it",
    "_torch/sizes.py:fake": "caught by the caller, which raises ArgumentError",
    "cli/demo.py:source_text": "the demo: a Python without the source of its standard library",
    "conformance/results.py:__post_init__": "a bug of the suite, not of its caller",
    "host/atomic_file.py:_check_regular": "an OSError, as the file system raises it",
    "host/atomic_file.py:_naming_path": "the OSError of the file system, with the path that the user gave",
    "host/atomic_file.py:check_writable": "an OSError, as the file system raises it",
    "profile/record.py:_checked": "caught by `Record.from_json`, which raises FileError",
    **dict.fromkeys(
        [f"recording/run_folder.py:{name}" for name in ("read_run", "add", "add_site", "add_digests", "check_end", "_site")],
        "caught by `read_run`, which raises FileError",
    ),
    "program/key.py:key_of": "caught by the caller, which records the call without a key",
    "program/symbolic_sizes.py:__class__": "Python's protocol: `__class__` is read-only",
}


def builtin_raises(source: str) -> Iterator[str]:
    """The functions that raise a builtin error, by name."""
    for function in ast.walk(ast.parse(source)):
        if isinstance(function, (ast.FunctionDef, ast.AsyncFunctionDef)):
            for node in _own(function):
                called = node.exc.func if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) else None
                called = node.exc if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Name) else called
                found = getattr(builtins, called.id, None) if isinstance(called, ast.Name) else None
                if isinstance(found, type) and issubclass(found, Exception):
                    yield function.name


def _own(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node
            yield from _own(node)


@pytest.mark.full
def test_outside_the_code_that_imitates_eager_no_builtin_error_is_raised() -> None:
    found = {
        f"{name}:{function}"
        for path in PACKAGE.rglob("*.py")
        if not (name := path.relative_to(PACKAGE).as_posix()).startswith(IMITATES_EAGER)
        for function in builtin_raises(path.read_text(encoding="utf-8"))
    }
    assert found == set(ALLOWED)


def classes() -> list[type[Exception]]:
    found = [getattr(errors, name) for name in errors.__all__ if name.endswith("Error")]
    assert len(found) > 12
    return found


def test_every_error_that_a_user_may_cause_is_public_and_all_have_the_one_root() -> None:
    for kind in classes():
        assert issubclass(kind, eagerdecomp.EagerDecompError), kind
    assert [kind.__name__ for kind in classes() if kind.__name__ not in eagerdecomp.__all__] == ["ProgramError"]


def test_the_page_of_errors_has_each_class_with_its_builtin() -> None:
    page = (PACKAGE.parent / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    for kind in classes():
        caught_as = next(one.__name__ for one in (TypeError, KeyError, ValueError, RuntimeError) if issubclass(kind, one))
        assert f"| `{kind.__name__}` | `{caught_as}`" in page, (kind, caught_as)
