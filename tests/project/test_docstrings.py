"""Docstrings of public names have what a reader looks for: parameters, results, errors."""

import ast
import builtins
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import eagerdecomp as ed
from eagerdecomp import device
from eagerdecomp.coverage.plan_report import Plan
from eagerdecomp.diagnosis.explanation import Explanation
from eagerdecomp.frontends.dynamo import DynamoBackend
from eagerdecomp.frontends.installation import Installation
from eagerdecomp.insight.comparison import Comparison
from eagerdecomp.profile import Record, RecordingMode
from eagerdecomp.runtime.stats import OpStats, Stats
from eagerdecomp.verify.findings import BlameReport
from eagerdecomp.verify.policy import Verified

#: What a class inherits or defines for torch's own machinery.
_NOT_OURS = {"ignore_compile_internals", "supports_higher_order_operators"}


#: The public names, and the classes of results that docs/reference/names.md lists.
_RESULTS = (BlameReport, Comparison, DynamoBackend, Explanation, Installation, OpStats, Plan, Stats, Verified)
PUBLIC = {value.__name__: value for value in (*(getattr(ed, name) for name in ed.__all__), Record, RecordingMode, *_RESULTS)}


def _functions() -> Iterator[tuple[str, Callable[..., Any]]]:
    for name, value in PUBLIC.items():
        if inspect.isclass(value):
            for member, inner in vars(value).items():
                function = inner.__func__ if isinstance(inner, (classmethod, staticmethod)) else inner
                if inspect.isfunction(function) and not member.startswith("_") and member not in _NOT_OURS:
                    yield f"{name}.{member}", function
        elif callable(value):
            yield name, inspect.unwrap(value)
    yield from ((name, getattr(device, name)) for name in device.__all__ if name != "DeviceModule")


FUNCTIONS = dict(_functions())
CLASSES = {name: value for name, value in PUBLIC.items() if inspect.isclass(value) and not issubclass(value, Exception)}


#: Those that the library makes for the user, and the one without arguments.
RETURNED = {"BackendRecorder", "DynamoBackend", "Installation", "Stats"}


def section(value: Any, *titles: str) -> str:
    """Return the text of a docstring's section; empty where there is none."""
    found = re.search(rf"^(?:{'|'.join(titles)}):\n((?:[ ].*\n|\n)+)", f"{inspect.getdoc(value) or ''}\n", re.MULTILINE)
    return textwrap.dedent(found[1]) if found else ""


def entries(text: str) -> list[str]:
    """Return the names that a section describes, in its order."""
    return re.findall(r"^\*{0,2}(\w+(?:\.\w+)*)(?:, \w+)*:", text, re.MULTILINE)


def parameters(function: Callable[..., Any]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name not in ("self", "cls")]


@pytest.mark.parametrize("name", FUNCTIONS)
def test_args_name_exactly_the_parameters(name: str) -> None:
    assert entries(section(FUNCTIONS[name], "Args")) == parameters(FUNCTIONS[name])


@pytest.mark.parametrize("name", FUNCTIONS)
def test_a_function_that_returns_something_says_what(name: str) -> None:
    function = FUNCTIONS[name]
    returns = function.__annotations__.get("return", "None") not in ("None", None)
    says = bool(section(function, "Returns"))
    if "." in name or not parameters(function):  # one line may do
        says = says or (inspect.getdoc(function) or "").startswith("Return ")
    assert says is returns


@pytest.mark.parametrize("name", CLASSES)
def test_a_class_describes_what_it_is_made_of(name: str) -> None:
    """Those that a user makes have ``Args``; those that the library returns have ``Attributes``."""
    value = CLASSES[name]
    described = entries(section(value, "Args", "Attributes"))
    if dataclasses.is_dataclass(value):
        wanted = [field.name for field in dataclasses.fields(value) if field.init and field.repr and not field.name.startswith("_")]
        assert [one for one in described if one in wanted] == wanted
    elif name not in RETURNED:
        assert described == parameters(value)


@pytest.mark.parametrize("name", {**FUNCTIONS, **CLASSES})
def test_errors_that_are_named_exist_and_those_raised_are_named(name: str) -> None:
    value = {**FUNCTIONS, **CLASSES}[name]
    named = entries(section(value, "Raises"))
    for one in named:
        error = getattr(ed, one, None) or getattr(builtins, one)
        assert issubclass(error, Exception)
    function = value.__init__ if inspect.isclass(value) else value
    if not inspect.isfunction(function) or dataclasses.is_dataclass(value):
        return
    for node in ast.walk(ast.parse(textwrap.dedent(inspect.getsource(function)))):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and isinstance(node.exc.func, ast.Name):
            assert node.exc.func.id in named
