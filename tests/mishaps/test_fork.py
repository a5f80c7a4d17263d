"""`os.fork` inside a mode, and while another thread records, registers kept composites, installs, or holds the cache."""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import state
from on_core import CORE
from opaque import OPAQUE, opaque_rule

import eagerdecomp as ed
from eagerdecomp.backends.numpy import random as drawing
from eagerdecomp.dispatcher import composites
from eagerdecomp.eager import generators
from eagerdecomp.host import source_lines
from eagerdecomp.insight import blame_mode, compare_mode
from eagerdecomp.profile import mode as recording
from eagerdecomp.runtime import collectives

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")

WEIGHT = torch.eye(3)


def forked(run: Callable[[], Any], seconds: float = 60.0) -> str:
    """Run `run` in a child and return its error, "" where it ended well; it is killed where it does not end."""
    read, write = os.pipe()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of threads at hand
        pid = os.fork()
    if pid == 0:
        said = "did not end"
        try:
            run()
            said = ""
        except BaseException as error:
            said = f"{type(error).__name__}: {error}"
        finally:
            os.write(write, said.encode()[:4000])
            os._exit(0)
    os.close(write)
    end = time.monotonic() + seconds
    try:
        while not os.waitpid(pid, os.WNOHANG)[0]:
            if time.monotonic() > end:
                os.kill(pid, 9)
                os.waitpid(pid, 0)
                return "hangs"
            time.sleep(0.01)
        return os.read(read, 4000).decode()
    finally:
        os.close(read)


@contextmanager
def beside(run: Callable[[], None], started: threading.Event, done: threading.Event) -> Iterator[None]:
    """Run `run` on another thread until the block ends; the block begins once it has started."""
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        assert started.wait(60)
        yield
    finally:
        done.set()
        thread.join(60)


def make() -> ed.EagerDecompMode:
    return ed.EagerDecompMode(CORE, rules=[opaque_rule], cache=ed.ProgramCache(), keep={"aten.linear"})


def use(mode: ed.EagerDecompMode, size: int) -> None:
    with mode:
        for _ in range(3):
            assert OPAQUE(torch.full((size,), 2.0)).tolist() == [2.0] * size
            assert F.linear(torch.ones(2, 3), WEIGHT).tolist() == [[1.0] * 3] * 2
            assert torch.rand(2, generator=torch.Generator().manual_seed(3)).shape == (2,)


def test_a_child_process_uses_and_exits_the_mode_and_the_parent_continues() -> None:
    mode, before = make(), state()

    def child() -> None:
        assert F.silu(torch.zeros(3)).tolist() == [0.0] * 3
        use(mode, 4)
        mode.__exit__(None, None, None)
        assert state() == before
        assert not composites._installed
        use(mode, 5)

    with mode:
        OPAQUE(torch.ones(3))
        assert forked(child) == ""
        assert mode.stats()[OPAQUE].calls == 1, "the child's calls are its own"
        use(mode, 6)
    assert state() == before
    use(make(), 3)


LOCKS: dict[str, Callable[[ed.EagerDecompMode], Any]] = {
    "the cache": lambda mode: mode.cache._lock,
    "handlers": lambda mode: mode._runtime._lock,
    "what is kept": lambda mode: composites._lock,
    "generators": lambda mode: generators._exchange,
    "blame": lambda mode: blame_mode.BlameMode(CORE)._lock,
    "compare": lambda mode: compare_mode.Comparing("native", CORE)._lock,
    "verify": lambda mode: ed.EagerDecompMode(CORE, verify="cpu")._verifying._lock,  # type: ignore[union-attr]
    "notes of a recording": lambda mode: recording._Notes(1)._lock,
    "lines of the user's": lambda mode: source_lines.UserLines()._lock,
    "collectives": lambda mode: collectives._lock,
    "random kernels of NumPy": lambda mode: drawing._one_at_a_time,
}


@pytest.mark.parametrize("name", LOCKS)
def test_a_lock_that_a_thread_of_the_parent_held_is_free_in_the_child(name: str) -> None:
    mode, held, done = make(), threading.Event(), threading.Event()
    lock = LOCKS[name](mode)

    def hold() -> None:
        with lock:
            held.set()
            done.wait(120)

    def child() -> None:
        use(mode, 4)
        if hasattr(lock, "acquire"):
            assert lock.acquire(timeout=5)

    with beside(hold, held, done):
        assert forked(child, 30) == ""
    use(mode, 5)


def test_a_child_links_a_rule_that_a_thread_of_the_parent_was_linking() -> None:
    started, done = threading.Event(), threading.Event()
    parent = os.getpid()

    def slow(x: torch.Tensor) -> torch.Tensor:
        if os.getpid() == parent and threading.current_thread() is not threading.main_thread():
            started.set()
            done.wait(120)
        return x * 2

    @ed.register_decomposition(OPAQUE)
    def rule(x: torch.Tensor) -> torch.Tensor:
        return slow(x)

    mode = ed.EagerDecompMode(CORE, rules=[rule], cache=ed.ProgramCache())

    def call() -> list[float]:
        with mode:
            return OPAQUE(torch.ones(2)).tolist()  # type: ignore[no-any-return]

    got: list[Any] = []

    def child() -> None:
        for _ in range(3):
            assert call() == [2.0, 2.0]

    with beside(lambda: got.append(call()), started, done):
        assert forked(child, 30) == ""
    assert got == [[2.0, 2.0]]
    assert call() == [2.0, 2.0]
