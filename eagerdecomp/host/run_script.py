"""Run a script as Python would, inside a context manager that the threads of the script enter too."""

from __future__ import annotations

import importlib.machinery
import io
import os
import runpy
import signal
import sys
import threading
import time
import types
import zipfile
from collections.abc import Callable, Collection, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from eagerdecomp.errors import EagerDecompError

if TYPE_CHECKING:
    from concurrent.futures import Executor

__all__ = ["Outcome", "Script", "ScriptNotFound", "Terminated", "run_script", "stopping_on_sigterm", "threads_entering"]

Entering: TypeAlias = "Callable[[], AbstractContextManager[object]]"

_PACKAGE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep


class ScriptNotFound(EagerDecompError):
    """The script or module does not exist."""


@dataclass(frozen=True)
class Script:
    """The script to run: a file, a directory or zip with a ``__main__``, or a module; and its arguments."""

    name: str
    args: tuple[str, ...] = ()
    is_module: bool = False


@dataclass(frozen=True)
class Outcome:
    """How a script ended.

    Attributes:
        exit_code: the exit code that Python would return.
        seconds: duration of the run.
        interrupted: whether Ctrl-C ended it.
        in_child: whether this process is a child that the script forked, and the script has ended in it by ``sys.exit``.
        raised: the exception that ended the script and was reported; None for Ctrl-C.
        terminated: whether SIGTERM ended it, inside `stopping_on_sigterm`.
    """

    exit_code: int
    seconds: float
    interrupted: bool = False
    in_child: bool = False
    raised: BaseException | None = None
    terminated: bool = False


class Terminated(SystemExit):
    """The exception that `stopping_on_sigterm` raises in the script."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def stopping_on_sigterm() -> Iterator[None]:
    """Make SIGTERM end the script as Ctrl-C does, so that results of the run can still be written. A second one ends the process.

    If the script or its caller has set a handler, that handler stays. Forked children end as usual. In threads other than the main
    thread, which cannot set handlers, this does nothing.
    """
    owner = os.getpid()

    def stop(number: int, frame: types.FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        if os.getpid() != owner:
            os.kill(os.getpid(), signal.SIGTERM)
        raise Terminated

    main = threading.current_thread() is threading.main_thread()
    if not main or signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        yield
        return
    signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        if signal.getsignal(signal.SIGTERM) is stop:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def run_script(script: Script, entering: Entering, *, full_trace: bool = False) -> Outcome:
    """Run a script as ``__main__``, with the ``sys.argv`` and ``sys.path[0]`` that Python would give it, inside `entering()`.

    An exception is reported as Python would, through ``sys.excepthook``. The report omits frames of this library, unless
    `full_trace`. The function returns when the script's own (non-daemon) threads have ended.

    Raises:
        ScriptNotFound: if the script or module does not exist.
    """
    if not script.is_module and not os.path.exists(script.name):
        raise ScriptNotFound(f"can't open {script.name!r}: no such file. Pass the path of a script, or -m MODULE")
    code, interrupted, terminated, process = 0, False, False, os.getpid()
    raised: BaseException | None = None
    others = frozenset(threading.enumerate())
    started = time.perf_counter()
    with _as_python_would(script), threads_entering(entering):
        try:
            with entering():
                _execute(script)
        except SystemExit as leaving:
            code, terminated = _exit_code(leaving), isinstance(leaving, Terminated)
        except KeyboardInterrupt as error:
            code, interrupted = 130, True
            _report(error, full_trace)
        except ScriptNotFound:
            raise
        except BaseException as error:
            if script.is_module and isinstance(error, ImportError) and _without_our_frames(error.__traceback__) is None:
                where = "Python looks in the current directory and among the installed packages"
                raise ScriptNotFound(f"{error}. Correct the name: {where}") from None
            code, raised = 1, error
            _report(error, full_trace)
        try:
            interrupted = (not terminated and _end_threads(others)) or interrupted
        except Terminated as leaving:
            code, terminated = _exit_code(leaving), True
    seconds = time.perf_counter() - started
    return Outcome(130 if interrupted else code, seconds, interrupted, os.getpid() != process, raised, terminated)


@contextmanager
def threads_entering(entering: Entering) -> Iterator[None]:
    """Make each `threading.Thread` that is started in this context run inside `entering()`, because torch's modes are per thread.

    Threads that run when the context exits stay inside `entering()` until they end.
    """
    plain_start = threading.Thread.start

    def start(self: threading.Thread) -> None:
        thread, run = self, self.run

        def entered() -> None:
            # Restore the original method, so that the thread looks as usual, and to break the cycle thread -> entered -> thread.
            thread.__dict__.pop("run", None)
            with entering():
                run()

        thread.run = entered  # type: ignore[method-assign]
        try:
            plain_start(thread)
        except BaseException:
            thread.__dict__.pop("run", None)
            raise

    threading.Thread.start = start  # type: ignore[method-assign]
    try:
        yield
    finally:
        threading.Thread.start = plain_start  # type: ignore[method-assign]


@contextmanager
def _as_python_would(script: Script) -> Iterator[None]:
    """Set ``sys.argv``, ``sys.path[0]`` and ``sys.modules["__main__"]`` as Python would for the script, and restore them."""
    argv, path, main = sys.argv, list(sys.path), sys.modules.get("__main__")
    sys.argv = [script.name, *script.args]
    if not getattr(sys.flags, "safe_path", False):  # with -P or -I, Python does not change the path
        if script.is_module:
            sys.path[:1] = [os.getcwd()]
        elif _is_source(script.name):
            sys.path[:1] = [os.path.dirname(os.path.realpath(script.name))]
        else:
            sys.path[:1] = [_absolute(script.name)]
    try:
        yield
    finally:
        sys.argv, sys.path[:] = argv, path
        if main is not None:
            sys.modules["__main__"] = main


def _absolute(name: str) -> str:
    """Return an absolute path that keeps ``./``, as Python does in ``__file__``; `os.path.abspath` would remove it."""
    return os.path.join(os.getcwd(), name)


def _is_source(name: str) -> bool:
    return not (os.path.isdir(name) or zipfile.is_zipfile(name))


def _execute(script: Script) -> None:
    """Execute the script. `runpy` is used only for modules, because for a path it would set ``sys.argv[0]`` to ``__file__``."""
    if script.is_module:
        runpy.run_module(script.name, run_name="__main__", alter_sys=True)
        return
    path = _absolute(script.name)
    main = types.ModuleType("__main__")
    if _is_source(script.name):
        with io.open_code(path) as source:
            code = compile(source.read(), path, "exec", dont_inherit=True)
        main.__file__ = path
        main.__loader__ = importlib.machinery.SourceFileLoader("__main__", path)
        main.__dict__["__cached__"] = None
    else:
        spec = importlib.machinery.PathFinder.find_spec("__main__", [path])
        if spec is None or spec.loader is None:
            raise ScriptNotFound(f"can't find '__main__' module in {script.name!r}. Pass the path of a script")
        # Loaders of files and of zip archives have `get_code`, but no common base class with it.
        code = spec.loader.get_code("__main__")  # type: ignore[attr-defined]
        main.__file__ = spec.origin
        main.__loader__, main.__spec__, main.__package__ = spec.loader, spec, ""
        main.__dict__["__cached__"] = spec.cached
    main.__dict__.update(__builtins__=sys.modules["builtins"], __annotations__={})
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def _exit_code(leaving: SystemExit) -> int:
    """Return the exit code that Python derives from a `SystemExit`."""
    if leaving.code is None:
        return 0
    if isinstance(leaving.code, int):
        return leaving.code & 0xFF
    print(leaving.code, file=sys.stderr)
    return 1


def _end_threads(others: Collection[threading.Thread]) -> bool:
    """Wait for the script's threads, all but `others`, as Python does at exit. Return whether Ctrl-C ended the wait."""
    try:
        for executor in {pool for thread in threading.enumerate() if thread not in others and (pool := _executor_of(thread))}:
            executor.shutdown()  # otherwise its threads wait for more work
        while waited := [one for one in threading.enumerate() if one not in others and not one.daemon]:
            for thread in waited:
                thread.join()
    except KeyboardInterrupt:
        return True
    return False


def _executor_of(thread: threading.Thread) -> Executor | None:
    """Return the executor of `concurrent.futures` that a thread belongs to, or None. It is found by attributes of the thread."""
    pools = sys.modules.get("concurrent.futures.thread")
    reference = getattr(thread, "executor_reference", None)  # of a pool of processes
    if pools is not None and getattr(thread, "_target", None) is pools._worker:
        reference = next(iter(getattr(thread, "_args", ())), None)
    found: Executor | None = None if reference is None else reference()
    return found


def _report(error: BaseException, full_trace: bool) -> None:
    """Print an exception as Python would, without the frames of this library before and after the script's frames."""
    hidden = False
    if not full_trace:
        seen: set[int] = set()
        chain: list[BaseException | None] = [error]
        while chain:
            one = chain.pop()
            if one is None or id(one) in seen:
                continue
            seen.add(id(one))
            kept = _without_our_frames(one.__traceback__)
            hidden |= _count(kept) < _count(_after_entry(one.__traceback__))
            one.__traceback__ = kept
            chain += [one.__cause__, one.__context__]
    sys.excepthook(type(error), error, error.__traceback__)
    if hidden:
        print("(frames inside eagerdecomp are left out; --full-trace shows them)", file=sys.stderr)


def _without_our_frames(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback without the frames of this library, of the code that it generates, and of what starts a script.

    Frames of torch directly below these are removed too, because they do not exist in plain eager.
    """
    kept: list[types.TracebackType] = []
    below_ours = False
    for step in _steps(_after_entry(trace)):
        below_ours = _is_ours(step) or (below_ours and _is_torch(step))
        if not below_ours:
            kept.append(step)
    linked: types.TracebackType | None = None
    for step in reversed(kept):
        linked = types.TracebackType(linked, step.tb_frame, step.tb_lasti, step.tb_lineno)
    return linked


def _after_entry(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return the traceback from the script's first frame on."""
    while trace is not None and (_is_ours(trace) or _is_starter(trace)):
        trace = trace.tb_next
    return trace


def _is_ours(step: types.TracebackType) -> bool:
    name = step.tb_frame.f_code.co_filename
    return name.startswith((_PACKAGE, "<program of ", "<key of ", "<handler of "))


def _is_torch(step: types.TracebackType) -> bool:
    return str(step.tb_frame.f_globals.get("__name__", "")).partition(".")[0] == "torch"


def _is_starter(step: types.TracebackType) -> bool:
    name = step.tb_frame.f_code.co_filename
    return name in (runpy.__file__, "<frozen runpy>") or name.startswith("<frozen importlib")


def _steps(trace: types.TracebackType | None) -> Iterator[types.TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _count(trace: types.TracebackType | None) -> int:
    return sum(1 for _ in _steps(trace))
