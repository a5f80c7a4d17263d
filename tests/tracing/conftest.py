"""A fixture for tests whose rules do not compute their op."""

from __future__ import annotations

import pytest


@pytest.fixture
def rules_are_toys(monkeypatch: pytest.MonkeyPatch) -> None:
    """Disable the check of results."""
    monkeypatch.setattr("eagerdecomp.tracing.recorder.expected_of", lambda *_: None)
