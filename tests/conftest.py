"""Shared settings: one thread, since tests are spread over processes; hypothesis without deadlines, since machines are noisy."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.providers import HypothesisProvider

torch.set_num_threads(1)


def pytest_collection_finish(session: pytest.Session) -> None:
    """What is there before the first test stays: the many tests that collect garbage need not look through it each time."""
    gc.collect()
    gc.freeze()


@pytest.fixture
def dynamo_afresh() -> Iterator[None]:
    """Nothing compiled is there before a test, nor after it: torch compiles what calls higher-order ops eagerly too."""
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# Hypothesis draws constants that it reads in the modules that are loaded when it draws: what a test tries would go by the tests
# that its worker ran before. Without, it tries the same wherever it runs; `test_conftest` fails if hypothesis names them otherwise.
HypothesisProvider._local_constants = providers._local_constants  # type: ignore[assignment]

settings.register_profile("ci", deadline=None, derandomize=True, max_examples=100, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("thorough", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("ci")
