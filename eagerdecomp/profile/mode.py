"""The mode that records a run."""

from __future__ import annotations

import functools
import platform
import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from datetime import datetime, timezone
from time import perf_counter_ns as now
from typing import TYPE_CHECKING, Any

import torch
from torch.profiler import record_function

from eagerdecomp._torch.autograd import profiler_is_on
from eagerdecomp._torch.higher_order import AmbientMode
from eagerdecomp._torch.modes import mode_stack
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import desugars_first
from eagerdecomp._version import __version__
from eagerdecomp.diagnosis.no_route import unsupported_error
from eagerdecomp.errors import ArgumentError, UnsupportedOpError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import UserLines
from eagerdecomp.ops.backend import Backend, Kernel, as_backend
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.opset import OpLike, OpSet
from eagerdecomp.profile.counters import OUTCOMES, RunningCall, Tally, Timeline, buckets_of, bypasses_of, flows_of, sites_of
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.rows import Metadata, Miss, Unsupported
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.runtime.entry import Entry

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["RecordingMode"]

_DIRECT, _HIT, _MISS, _BYPASSED, _FELL_BACK, _REFUSED, _FAILED = range(len(OUTCOMES))

_MISSES = 1000
_UNSUPPORTED = 200
_TEXT = 300


class RecordingMode(EagerDecompMode):
    """An `EagerDecompMode` that also records its calls: ``with RecordingMode(ops) as mode: train()``, then ``mode.record()``.

    Recording costs time, mostly for each kernel call; `Record.metadata` has the measured part of it. A step of a small net took 2.5
    times as long as in an `EagerDecompMode` with tensors of a hundred floats, and 1.6 times with sixty thousand. An
    `EagerDecompMode` itself has no such cost. The size of a record is bounded, also for long runs.

    Args:
        supported_ops: as for `EagerDecompMode`.
        kernels: as for `EagerDecompMode`. A backend's own kernels are wrapped to time them, so this mode does not share programs
            with modes that do not record.
        timeline: maximum number of calls and kernel calls that are stored one by one; later ones are only counted.
        **options: the other arguments of `EagerDecompMode`.

    Raises:
        ArgumentError: for a `timeline` that is not an integer from 0 up; the other errors are those of `EagerDecompMode`.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> x = torch.ones(2)
        >>> with RecordingMode(ed.core_aten()) as mode:
        ...     y = torch.nn.functional.silu(x)
        >>> [site.op for site in mode.record().sites]
        ['aten.silu.default']
    """

    def __init__(
        self,
        supported_ops: Backend | OpSet | Iterable[OpLike],
        *,
        kernels: Mapping[OpLike, Kernel] | None = None,
        timeline: int = 20_000,
        **options: Any,
    ) -> None:
        if type(timeline) is not int or timeline < 0:
            raise ArgumentError(f"timeline must be an integer from 0 up, not {timeline!r}")
        self._notes = notes = _Notes(timeline)
        super().__init__(notes.timed(as_backend(supported_ops, kernels)), **options)
        self._watch = _Watch(notes)
        self._watching = _Watching()
        self._engine.on_no_route = self._goes_native

    def __enter__(self) -> Self:
        notes = self._notes
        if not notes.begun:
            notes.begun, notes.started = now(), datetime.now(timezone.utc).isoformat(timespec="seconds")
            notes.programs = self.cache.info().programs
        # The body of a higher-order op enters the mode again; the watch may be active already.
        watching = self._watching.stack
        watching.append(not any(mode is self._watch for mode in mode_stack()))
        if watching[-1]:
            self._watch.__enter__()
        try:
            super().__enter__()
        except BaseException:
            if watching.pop():
                self._watch.__exit__()
            raise
        notes.inside += 1
        return self

    def __exit__(self, *exc: object) -> None:
        super().__exit__(*exc)
        notes = self._notes
        notes.inside -= 1
        if self._watching.stack.pop():
            self._watch.__exit__(*exc)
        notes.ended = now()
        error = exc[1] if len(exc) > 1 else None
        if error is not None and not isinstance(error, SystemExit):
            notes.error = f"{type(error).__name__}: {error}".partition("\n")[0].removesuffix(": ")

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arrived = now()
        notes = self._notes
        tally = notes.tally()
        # If the mode is entered twice, an inner call is part of the outer one. Ops of a higher-order op are calls of their own.
        if tally.call is not None or not isinstance(func, OpOverload) or (types and desugars_first(types)):
            return super().__torch_dispatch__(func, types, args, kwargs)
        call = tally.call = RunningCall(func)
        outcome = _FAILED
        before: tuple[int | None, int, int, int] = (None, 0, 0, 0)
        started = now()
        try:
            call.line = tally.line_of(sys._getframe().f_back)  # None in a thread of autograd's
            if notes.timeline.takes():
                call.text, call.slices = _call_text(call, args, kwargs), []
            before = _marks(self._entries.get(builtin(func)), tally.ident)
            started = now()
            result = super().__torch_dispatch__(func, types, args, kwargs)
            outcome = _DIRECT
        except UnsupportedOpError as refusal:
            outcome = _REFUSED
            if notes.is_new(call):
                notes.without_route(call, refusal, native=False)
            raise
        finally:
            ended = now()
            tally.call = None
            taken, at = ended - started - call.spent, ended - notes.begun
            if outcome == _DIRECT:
                outcome = self._outcome(call, before, tally, taken, at, args, kwargs)
            tally.settle(call, outcome, taken, at)
            if call.slices is not None:
                notes.timeline.keep(call, tally.number, started, ended, outcome)
            tally.spent += now() - ended + started - arrived + call.spent
        return result

    def _outcome(
        self,
        call: RunningCall,
        before: tuple[int | None, int, int, int],
        tally: Tally,
        taken: int,
        at: int,
        args: Sequence[Any],
        kwargs: dict[str, Any] | None,
    ) -> int:
        """Classify a call that raised nothing by its op's counts before and after; record misses and bypasses."""
        if call.fell_back:
            return _FELL_BACK
        entry = self._entries.get(builtin(call.op))
        if entry is None:  # `torch.export` traced the op, and the mode did not run it
            return _DIRECT
        seen, misses, declined, host_random = _marks(entry, tally.ident)
        if host_random != before[3]:
            return _DIRECT
        if seen == before[0]:
            return _DIRECT if entry.direct and declined == before[2] else _HIT
        if misses == before[1]:
            tally.bypassed(call, entry.why_bypassed)
            return _BYPASSED
        tally.held(self.cache.info().programs, at)
        self._notes.missed(call, entry, at, taken, lambda: call.text or _call_text(call, args, kwargs))
        return _MISS

    def _goes_native(self, entry: Entry, args: Sequence[Any], kwargs: dict[str, Any], failure: NoRoute) -> None:
        call = self._notes.tally().call
        if call is None:
            return
        began = now()
        call.fell_back = call.quiet = True
        if self._notes.is_new(call):
            self._notes.without_route(call, unsupported_error(self._engine.planner, entry.op, args, kwargs, failure), native=True)
        call.quiet = False
        call.spent += now() - began

    def record(self, *, script: str = "", args: Sequence[str] = (), exit_code: int | None = None) -> Record:
        """Return the record so far.

        Args:
            script: what was run, for the record's metadata.
            args: the script's arguments.
            exit_code: the script's exit code.
        """
        notes, tallies = self._notes, self._notes.tallies()
        buckets, bucket_seconds = buckets_of(tallies, notes.programs)
        events = notes.timeline.events_of(notes.begun)
        metadata = Metadata(
            script=script,
            args=tuple(args),
            op_set=repr(self.backend),
            on_unsupported=self.on_unsupported,
            torch=torch.__version__,
            eagerdecomp=__version__,
            python=platform.python_version(),
            started=notes.started,
            seconds=((now() if notes.inside else notes.ended) - notes.begun) / 1e9,
            recorder_seconds=sum(tally.spent for tally in tallies) / 1e9,
            exit_code=exit_code,
            error=notes.error,
            devices=_devices(),
            cpu_threads=torch.get_num_threads(),
            threads=tuple(tally.name for tally in tallies),
        )
        return Record(
            metadata,
            sites=sites_of(tallies),
            flows=flows_of(tallies, self.backend.ops),
            buckets=buckets,
            bucket_seconds=bucket_seconds,
            misses=tuple(notes.misses),
            misses_left_out=notes.missed_in_all - len(notes.misses),
            bypasses=bypasses_of(tallies),
            unsupported=notes.unsupported(),
            events=events,
            events_left_out=max(0, sum(tally.calls for tally in tallies) - len(events)),
            lines=notes.lines.lines(),
            notes=_remarks(metadata),
        )


class _Watching(threading.local):
    """Per-thread state: for each entrance of a mode, whether the watch was entered with it."""

    def __init__(self) -> None:
        self.stack: list[bool] = []


class _Watch(AmbientMode):
    """A mode outside the recording mode, which gets its kernel calls and times them for the current call of the thread."""

    def __init__(self, notes: _Notes) -> None:
        super().__init__()
        self._notes = notes

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        arrived = now()
        tally = self._notes.tally()
        call = tally.call
        if call is None or call.quiet or not isinstance(func, OpOverload):
            return func(*args, **(kwargs or {}))
        started = now()
        try:
            return func(*args, **(kwargs or {}))
        finally:
            ended = now()
            tally.kernel(call, func, started, ended, self._notes.timeline)
            call.spent += now() - ended + started - arrived


class _Notes:
    """The recorded data of one mode, for all threads."""

    def __init__(self, timeline: int) -> None:
        self.lines = UserLines()
        self.timeline = Timeline(timeline)
        self.begun = self.ended = 0
        self.started = ""
        self.inside = 0
        self.error = ""
        self.programs = 0
        self.misses: list[Miss] = []
        self.missed_in_all = 0
        self._unsupported: dict[tuple[OpOverload, int], Unsupported] = {}
        self._lock = free_in_child(threading.Lock())
        self._local = threading.local()
        self._tallies: list[Tally] = []

    def tally(self) -> Tally:
        """Return the counts of this thread."""
        try:
            found: Tally = self._local.tally
        except AttributeError:
            found = self._local.tally = self._new_tally()
        return found

    def _new_tally(self) -> Tally:
        # `current_thread` would add a thread of autograd to Python's list of threads permanently.
        ident = threading.get_ident()
        name = next((thread.name for thread in threading.enumerate() if thread.ident == ident), None)
        with self._lock:
            # A thread that Python did not start loses its thread-local data whenever it leaves Python, so it is found by its name.
            if name is None:
                name = f"thread {threading.get_native_id()}"
                found = next((tally for tally in self._tallies if tally.name == name), None)
                if found is not None:
                    return found
            self._tallies.append(Tally(len(self._tallies), name, ident, self.lines))
            return self._tallies[-1]

    def tallies(self) -> list[Tally]:
        """Return the counts of all threads, ordered by their numbers."""
        with self._lock:
            return list(self._tallies)

    def missed(self, call: RunningCall, entry: Entry, at: int, taken: int, text: Callable[[], str]) -> None:
        """Store a call that was recorded as a program, unless the limit is reached."""
        with self._lock:
            self.missed_in_all += 1
            if len(self.misses) >= _MISSES or entry.last_miss is None:
                return
        table, key = entry.last_miss
        self.misses.append(Miss(str(call.op), call.line, at / 1e9, taken / 1e9, text(), table.why_missed(key)))

    def is_new(self, call: RunningCall) -> bool:
        """Return whether a call without a route is the first of its op and line; others are only counted."""
        with self._lock:
            found = self._unsupported.get((call.op, call.line))
            if found is not None:
                self._unsupported[call.op, call.line] = replace(found, calls=found.calls + 1)
            return found is None and len(self._unsupported) < _UNSUPPORTED

    def without_route(self, call: RunningCall, error: UnsupportedOpError, *, native: bool) -> None:
        """Store a call without a route, with the message of its error."""
        unsupported = Unsupported(
            str(call.op), call.line, 1, native, error.call[:_TEXT], str(error), error.chain, error.missing, error.kernels_to_add
        )
        with self._lock:
            self._unsupported[call.op, call.line] = unsupported

    def unsupported(self) -> tuple[Unsupported, ...]:
        """Return the calls without a route, in the order in which they were seen."""
        with self._lock:
            return tuple(self._unsupported.values())

    def timed(self, backend: Backend) -> Backend:
        """Return the backend with its own kernels and the functions of its compile hook timed. The watch times torch's kernels."""
        hook = backend.compile
        if not backend.kernels and hook is None:
            return backend

        def compile(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Any:
            call = self.tally().call
            with _quiet(call):
                made = hook(graph, inputs)  # type: ignore[misc]  # called only if there is a hook
            name = f"program of {call.op}" if call is not None else "program"
            return self._timed(name, made) if callable(made) else made

        kernels: dict[OpOverload, Kernel] = {op: self._timed(op, kernel) for op, kernel in backend.kernels.items()}
        return replace(backend, kernels=kernels, compile=hook and compile)

    def _timed(self, name: Any, kernel: Kernel) -> Kernel:
        @functools.wraps(kernel)
        def timed(*args: Any, **kwargs: Any) -> Any:
            tally = self.tally()
            call = tally.call
            if call is None or call.quiet:
                return kernel(*args, **kwargs)
            started = now()
            try:
                with _quiet(call), record_function(str(name)) if profiler_is_on() else nullcontext():
                    return kernel(*args, **kwargs)
            finally:
                tally.kernel(call, name, started, now(), self.timeline)

        return timed


@contextmanager
def _quiet(call: RunningCall | None) -> Iterator[None]:
    """Suspend recording while a compile hook, a Python kernel of the backend or the recorder itself calls ops."""
    if call is None or call.quiet:
        yield
        return
    call.quiet = True
    try:
        yield
    finally:
        call.quiet = False


def _marks(entry: Entry | None, thread: int) -> tuple[int | None, int, int, int]:
    """Return counts of an op, whose changes during a call show its outcome. The first count changes unless the call is a hit."""
    return (None, 0, 0, 0) if entry is None else (entry.seen.get(thread), entry.misses, entry.declined, entry.host_random)


def _call_text(call: RunningCall, args: Sequence[Any], kwargs: dict[str, Any] | None) -> str:
    with _quiet(call):  # reading the sizes of a subclass may call an op
        try:
            return describe_call(call.op, args, kwargs or {})[:_TEXT]
        except RuntimeError:  # a tensor without known sizes
            return f"{call.op}(...)"


def _devices() -> tuple[str, ...]:
    started: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # reading a device's name would initialize it
    return ("cpu", *(torch.cuda.get_device_name(one) for one in range(torch.cuda.device_count() if started else 0)))


def _remarks(metadata: Metadata) -> tuple[str, ...]:
    if len(metadata.devices) == 1:
        return ()
    return ("a device may still compute after a kernel call returns, so times of kernels are those of the call on the CPU",)
