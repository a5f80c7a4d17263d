"""Shared settings: one thread, since tests are spread over processes; hypothesis without deadlines, since machines are noisy.
And the rules of the default tier: each test is short, and none starts a process. Failures print as they happen."""

from __future__ import annotations

import gc
import importlib
import os
import platform
import sys
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.internal.conjecture import providers
from hypothesis.internal.conjecture.providers import HypothesisProvider

import eagerdecomp as ed
from eagerdecomp._torch.releases import BASELINE, torch_release

torch.set_num_threads(1)
if "COLUMNS" not in os.environ:
    os.unsetenv("COLUMNS")  # pytest imports readline, which sets it for other processes, whose tables would wrap
platform.platform()  # torch.testing asks for it when it is imported, and Python starts a process the first time


#: What a test of the default tier may take, in seconds of CPU time, which other work on the machine changes little.
CPU_LIMIT = 0.5
TIERS = {"full", "nightly"}
_running: list[pytest.Item] = []


def tier(item: pytest.Item) -> str:
    """The last tier of an item's marks: a nightly case of a test of the full tier is nightly."""
    marks = {mark.name for mark in item.iter_markers()} & TIERS
    return max(marks, default="default")


def known_differences(release: str) -> dict[str, str]:
    """Return the known failures with a release of torch: node ids, by their heading (the reason) in ``tests/releases``."""
    file, reason, found = Path(__file__).parent / "releases" / f"torch-{release}.txt", "", {}
    for line in file.read_text(encoding="utf-8").splitlines() if file.exists() else ():
        if line.startswith("# "):
            reason = line.removeprefix("# ")
        elif line:
            found[line] = reason
    return found


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    known = known_differences(torch_release())
    for item in items:
        reason = known.get(item.nodeid)
        if reason is not None:  # what kills the process cannot be run to see that it still does
            fails = pytest.mark.xfail(reason=reason, run="crashes" not in reason, strict=not reason.startswith("sometimes"))
            item.add_marker(fails)
    if config.option.markexpr == "full":
        config.hook.pytest_deselected(items=[item for item in items if tier(item) == "nightly"])
        items[:] = [item for item in items if tier(item) != "nightly"]


class _Clock:
    """CPU time less that of the garbage collector, which any test may have to pay for all before it."""

    def __init__(self) -> None:
        self.collecting = self.since = 0.0
        gc.callbacks.append(self._on_collection)

    def _on_collection(self, phase: str, info: dict[str, int]) -> None:
        if phase == "start":
            self.since = time.process_time()
        else:
            self.collecting += time.process_time() - self.since

    def __call__(self) -> float:
        return time.process_time() - self.collecting


_clock = _Clock()


def _measured(item: pytest.Item, when: str) -> Generator[None, Any, Any]:
    start = _clock()
    _running.append(item)
    try:
        return (yield)
    finally:
        _running.pop()
        if tier(item) == "default":
            item.user_properties.append((f"CPU time of {when}", _clock() - start))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measured(item, "setup"))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, Any, Any]:
    return (yield from _measured(item, "call"))


def _no_process(event: str, arguments: tuple[Any, ...]) -> None:
    if event == "subprocess.Popen" and _running and tier(_running[-1]) == "default":
        raise RuntimeError(f"{arguments[1]} is started by a test of the default tier, which starts no process: mark the test full")


sys.addaudithook(_no_process)


class Failures:
    """Prints failures as they happen, and fails a run of the whole default tier by the tests of it that take too long."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.whole = config.args_source is pytest.Config.ArgsSource.TESTPATHS
        self.slow: dict[str, float] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        terminal = self.config.pluginmanager.get_plugin("terminalreporter")
        if report.failed and terminal is not None:
            terminal.ensure_newline()
            terminal.line(f"FAILED {report.nodeid}")
            terminal.line(report.longreprtext)
        taken = dict(report.user_properties).get(f"CPU time of {report.when}", 0.0)
        if self.whole and torch_release() == BASELINE and isinstance(taken, float) and taken > CPU_LIMIT:
            self.slow[report.nodeid] = taken

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        for name, taken in self.slow.items():
            terminalreporter.line(
                f"slow: {name} took {taken:.2f} s of CPU time. A test of the default tier should take at most {CPU_LIMIT} s: "
                "make it smaller, or mark it full."
            )


def pytest_configure(config: pytest.Config) -> None:
    if not hasattr(config, "workerinput"):
        config.pluginmanager.register(Failures(config), "eagerdecomp_failures")


def pytest_collection_finish(session: pytest.Session) -> None:
    """Freeze the objects that exist before the first test, so that tests that collect garbage do not walk them each time."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> None:
    """Load what a process reads or makes once before a worker's first test, so that no test pays for its place in the order."""
    if hasattr(session.config, "workerinput"):
        core = ed.core_aten()
        x = torch.ones(1, requires_grad=True)
        with ed.EagerDecompMode(core):
            torch.nn.functional.silu(x).backward()
        ed.plan(core, ops=["aten.silu.default"])
        torch.optim.SGD([x])  # imports Dynamo
        ed.explain("aten.silu.default", x)
        st.text().validate()  # in a fresh checkout, hypothesis makes its table of characters first, for a second


@pytest.fixture
def tool(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """The module of `tools/` that the test's file names as ``TOOL``."""
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "tools")
    return importlib.import_module(request.module.TOOL)


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
