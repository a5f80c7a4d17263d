"""A pytest plugin that plants the broken rule that the variable BROKEN_RULE names, before any test makes a mode."""

from __future__ import annotations

import contextlib
import os

from conformance.mutants.rules import BROKEN_RULES, planted

__all__: list[str] = []

_LASTING = contextlib.ExitStack()


def pytest_configure() -> None:
    """Plant the broken rule."""
    _LASTING.enter_context(planted({one.name: one for one in BROKEN_RULES}[os.environ["BROKEN_RULE"]]))
