"""Run jobs in forked processes. A job that crashes or hangs is reported, and the others continue."""

from __future__ import annotations

import ctypes
import faulthandler
import json
import mmap
import multiprocessing
import os
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import IO, Any, Generic, TypeVar

import torch

__all__ = ["Beat", "Lost", "asked", "cores", "done_in_processes", "has_fork", "survives"]

R = TypeVar("R")

#: Called by a job with a description, in plain values, of its next step, so that the parent knows it if the worker dies. None
#: reports progress within the same step.
Beat = Callable[[Any], None]

_PAGE = 1 << 16
_TICK = 0.25

# Timeout in seconds for `asked`.
_PATIENCE = 30.0


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Lost:
    """A job whose process died or hung.

    Attributes:
        how: ``crash``, ``hang``, or ``error`` if the job raised.
        message: a description: the signal, the exit code, or the timeout.
        last: the job's last description of its next step; None if there was none.
        words: its output.
    """

    how: str
    message: str
    last: Any
    words: str = ""


def has_fork(device: str) -> bool:
    """Return whether fork may be tried with a device; some drivers are known not to support it."""
    return hasattr(os, "fork") and device not in ("cuda", "xpu", "mps", "hpu", "xla", "mtia")


class _Page:
    """Memory that parent and child share: a counter, and the description of the next step."""

    def __init__(self) -> None:
        self._map = mmap.mmap(-1, _PAGE)
        self._count = 0

    def tick(self) -> None:
        self._count += 1
        self._map[0:8] = self._count.to_bytes(8, "little")

    def write(self, value: Any) -> None:
        text = json.dumps(value).encode()[: _PAGE - 16]
        self._map[8 : 16 + len(text)] = len(text).to_bytes(8, "little") + text
        self.tick()

    def clear(self) -> None:
        self._map[0:16] = bytes(16)
        self._count = 0

    def count(self) -> int:
        return int.from_bytes(self._map[0:8], "little")

    def read(self) -> Any:
        length = int.from_bytes(self._map[8:16], "little")
        try:
            return json.loads(self._map[16 : 16 + length]) if length else None
        except ValueError:  # cut short: the process died while it wrote
            return None


class _Worker(Generic[R]):
    """A process that runs jobs, one at a time."""

    def __init__(self, work: Callable[[int, Beat], R]) -> None:
        self._context = multiprocessing.get_context("fork")
        self._work = work
        self.page = _Page()
        self._words = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the worker
        self.job: int | None = None
        self.seen = (0, time.monotonic())
        self._start()

    def _start(self) -> None:
        self.connection, theirs = self._context.Pipe()
        args = (theirs, self.connection, self._work, self.page, self._words)
        self.process = self._context.Process(target=_serve, args=args, daemon=True)
        self.process.start()
        theirs.close()

    def send(self, job: int) -> None:
        """Send a job to the process."""
        self.job = job
        self._words.truncate(0)
        self.page.clear()
        self.seen = (0, time.monotonic())
        self.connection.send(job)

    def idle_for(self) -> float:
        """Return the seconds since the job's last progress."""
        count = self.page.count()
        if count != self.seen[0]:
            self.seen = (count, time.monotonic())
        return time.monotonic() - self.seen[1]

    def last_words(self) -> str:
        """Return the output of the job."""
        self._words.seek(0)
        return self._words.read().decode(errors="replace")

    def stop(self) -> None:
        """Kill the process."""
        if self.process.is_alive():
            self.process.kill()
        self.process.join()
        self.connection.close()

    def close(self) -> None:
        """Kill the process for good."""
        self.stop()
        self._words.close()

    def restart(self) -> None:
        """Replace the process by a new one."""
        self.stop()
        self.job = None
        self._start()


def _serve(connection: Connection, parents: Connection, work: Callable[[int, Beat], Any], page: _Page, words: IO[bytes]) -> None:
    parents.close()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(words.fileno(), 1)
    os.dup2(words.fileno(), 2)
    sys.stdout = sys.stderr = os.fdopen(os.dup(2), "w", buffering=1)
    faulthandler.enable(file=words.fileno(), all_threads=False)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent gets the signal too, and ends this process
    torch.set_num_threads(1)
    torch.set_flush_denormal(False)
    _end_with_parent()
    while True:
        try:
            job = connection.recv()
        except EOFError:
            return
        try:
            result = work(job, lambda value: page.tick() if value is None else page.write(value))
        except Exception as error:  # reported to the parent; the other jobs continue
            result = Lost("error", f"{type(error).__name__}: {error}", page.read(), traceback.format_exc())
        connection.send(result)


def _end_with_parent() -> None:
    """Let Linux kill this process when its parent dies. On other systems it ends when its pipe is closed."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def done_in_processes(
    jobs: Sequence[int], work: Callable[[int, Beat], R], processes: int, patience: float
) -> Iterator[tuple[int, R | Lost]]:
    """Run jobs in forked processes, and yield each job with its result as soon as it is done.

    Args:
        jobs: the numbers of the jobs.
        work: runs a job in a child process; its result is pickled.
        processes: the number of processes.
        patience: seconds without progress after which a job counts as hanging.
    """
    left = list(reversed(jobs))
    workers = [_Worker(work) for _ in range(max(1, min(processes, len(jobs))))]
    try:
        while left or any(worker.job is not None for worker in workers):
            for worker in workers:
                if worker.job is None and left:
                    worker.send(left.pop())
            wait([worker.connection for worker in workers if worker.job is not None], timeout=_TICK)
            for worker in workers:
                job = worker.job
                if job is None:
                    continue
                if worker.connection.poll():  # asked again: the caller may have spent time on the last result
                    result = _result(worker)
                elif worker.idle_for() > patience:
                    result = Lost("hang", f"no end after {patience:.0f} s", worker.page.read(), worker.last_words())
                    worker.restart()
                else:
                    continue
                yield job, result
    finally:
        for worker in workers:
            worker.close()


def _result(worker: _Worker[R]) -> R | Lost:
    try:
        result: R = worker.connection.recv()
    except (EOFError, ConnectionResetError):
        worker.process.join()
        lost = Lost("crash", _death(worker.process.exitcode), worker.page.read(), worker.last_words())
        worker.restart()
        return lost
    worker.job = None
    return result


def survives(work: Callable[[], Any], seconds: float) -> bool:
    """Return whether a function returns within this time in a forked process, without crashing it."""
    process = multiprocessing.get_context("fork").Process(target=_quietly, args=(work,), daemon=True)
    process.start()
    process.join(seconds)
    if process.is_alive():
        process.kill()
        process.join()
        return False
    return process.exitcode == 0


def asked(question: Callable[[], R]) -> R | Lost:
    """Return the result of a function that runs in a forked process, so that it cannot change the state of this one."""
    ((_, result),) = done_in_processes([0], lambda job, beat: question(), 1, _PATIENCE)
    return result


def _quietly(work: Callable[[], Any]) -> None:
    faulthandler.disable()
    torch.set_num_threads(1)
    with open(os.devnull, "w") as nowhere:
        os.dup2(nowhere.fileno(), 1)
        os.dup2(nowhere.fileno(), 2)
    work()


def _death(code: int | None) -> str:
    if code is None:
        return "the process is gone"
    if code < 0:
        return f"the process was killed by {signal.Signals(-code).name}"
    return f"the process ended with exit code {code}"
