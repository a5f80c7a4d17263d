"""Shared settings: one thread, since tests are spread over processes; hypothesis without deadlines, since machines are noisy."""

from __future__ import annotations

import gc

import pytest
import torch
from hypothesis import HealthCheck, settings

torch.set_num_threads(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there before the first test stays: the many tests that collect garbage need not look through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def same_sources(monkeypatch: pytest.MonkeyPatch) -> None:
    """The library counts as unchanged while a test runs, whoever edits it: files of programs stay good."""
    monkeypatch.setattr("eagerdecomp.cachefile._library", lambda: "these")


settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")
