"""Every public name has an example in its docstring, and prints what stands there."""

from __future__ import annotations

import doctest
import inspect
import sys

import pytest

import eagerdecomp

pytestmark = pytest.mark.full


@pytest.mark.parametrize("name", sorted(eagerdecomp.__all__))
def test_an_example_prints_its_documented_output(name: str) -> None:
    value = inspect.unwrap(getattr(eagerdecomp, name))
    text = inspect.getdoc(value) or ""
    example = doctest.DocTestParser().get_doctest(text, {"__name__": "__main__"}, name, inspect.getfile(value), 0)
    assert example.examples
    flags = doctest.ELLIPSIS | doctest.REPORT_NDIFF
    assert doctest.DocTestRunner(optionflags=flags).run(example, out=sys.stdout.write).failed == 0
