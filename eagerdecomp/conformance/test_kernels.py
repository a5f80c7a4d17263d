"""The suite as pytest tests: one test per kernel, and one for all ops that the backend decomposes.

``pytest --pyargs eagerdecomp.conformance --eagerdecomp-backend MODULE:BACKEND``
"""

from __future__ import annotations

import pytest

from eagerdecomp.conformance.results import Failure, Report
from eagerdecomp.conformance.suite import run_conformance
from eagerdecomp.errors import OpSetError
from eagerdecomp.host.import_path import UsageError, object_of
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import core_aten


@pytest.fixture(scope="session")
def backend(request: pytest.FixtureRequest) -> Backend:
    """Return the backend that the command line names."""
    return _backend(request.config)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Create a test for each kernel of the backend, and for each op of Core ATen that it lacks."""
    if "op_name" in metafunc.fixturenames:
        found = _backend(metafunc.config)
        metafunc.parametrize("op_name", sorted(map(str, {*found.ops, *core_aten()})))


def test_kernel(backend: Backend, op_name: str, request: pytest.FixtureRequest) -> None:
    """Test that a kernel equals eager."""
    report = _run(backend, request.config, [op_name], programs=False)
    verdict = report.verdict(op_name)
    if verdict.state == "absent":
        pytest.skip("absent: the backend has no kernel for it")
    if verdict.state == "not exercised":
        pytest.skip(f"not exercised: {verdict.note}")
    if verdict.state == "wrong":
        pytest.fail("\n\n".join(map(_text, verdict.failures)), pytrace=False)
    assert verdict.cases


def test_programs(backend: Backend, request: pytest.FixtureRequest) -> None:
    """Test that ops without a kernel, decomposed to the backend's kernels, equal eager."""
    report = _run(backend, request.config, [], programs=True)
    if not report.calls:
        pytest.skip("not exercised: no call of an op that the backend decomposes, with kernels of its own")
    if report.failures:
        pytest.fail("\n\n".join(map(_text, report.failures)), pytrace=False)


def _backend(config: pytest.Config) -> Backend:
    spec = config.getoption("--eagerdecomp-backend")
    if not spec:
        raise pytest.UsageError("--eagerdecomp-backend MODULE:BACKEND names the backend whose kernels are tried")
    try:
        found = object_of("--eagerdecomp-backend", spec)
        return as_backend(found() if callable(found) else found)
    except (UsageError, OpSetError) as error:
        raise pytest.UsageError(str(error)) from None


def _run(backend: Backend, config: pytest.Config, ops: list[str], *, programs: bool) -> Report:
    return run_conformance(
        backend,
        ops=ops,
        profile=config.getoption("--eagerdecomp-profile"),
        seed=config.getoption("--eagerdecomp-seed"),
        programs=programs,
        processes=1,
    )


def _text(failure: Failure) -> str:
    return f"{failure.op}: {failure.property}: {failure.message}\n  {failure.example}\n\n{failure.reproducer}"
