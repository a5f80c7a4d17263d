"""The rows of a record: calls, kernels, and times."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bucket", "Bypass", "Event", "Flow", "Metadata", "KernelEvent", "Miss", "Site", "Unsupported"]


@dataclass(frozen=True)
class Metadata:
    """The metadata of the run.

    Attributes:
        script: the path or module of the script; "" if the program entered the mode itself.
        args: the script's arguments.
        op_set: the label of the op set.
        on_unsupported: "error" or "fallback".
        torch: the version of torch.
        eagerdecomp: the version of this library.
        python: the version of Python.
        started: the start time in UTC, in ISO 8601 format.
        seconds: duration of the run, with recording.
        recorder_seconds: the measured part of it that the recorder took. The times of calls and kernels do not contain this part.
            They do contain the time in which torch dispatches each kernel call to the recorder, which is not measured.
        exit_code: the script's exit code; None if there is no script, or it has not ended.
        error: the exception that ended the run ("ValueError: ..."), or "".
        devices: the names of the devices.
        cpu_threads: maximum number of threads of torch's CPU kernels.
        threads: names of the threads that made calls; events refer to them by index.
    """

    script: str = ""
    args: tuple[str, ...] = ()
    op_set: str = ""
    on_unsupported: str = "error"
    torch: str = ""
    eagerdecomp: str = ""
    python: str = ""
    started: str = ""
    seconds: float = 0.0
    recorder_seconds: float = 0.0
    exit_code: int | None = None
    error: str = ""
    devices: tuple[str, ...] = ()
    cpu_threads: int = 0
    threads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Site:
    """The calls of one op from one line. A call is one of `direct`, `hits`, ..., `failed`.

    Attributes:
        op: the op called: "aten.gelu.default".
        line: index of the line in `Record.lines`.
        calls: number of calls.
        seconds: their time, from dispatch to result.
        kernel_seconds: the part of it inside kernels of the backend.
        kernels: number of kernel calls that they made.
        direct: number of calls that a kernel of the backend ran, or of a passthrough op.
        hits: number of calls that a linked rule or a cached program decomposed.
        misses: number of calls that were recorded, because no cached program matched.
        bypassed: number of calls that a rule decomposed without the cache.
        fell_back: number of calls without a route that ran natively (`on_unsupported="fallback"`).
        refused: number of calls without a route that raised `UnsupportedOpError`.
        failed: number of calls that raised another exception.
    """

    op: str
    line: int
    calls: int
    seconds: float
    kernel_seconds: float
    kernels: int
    direct: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Flow:
    """The kernel calls of one kind that the calls of one op made.

    Attributes:
        op: the op called.
        kernel: the op that reached the backend.
        calls: number of calls of that kernel.
        seconds: their time.
        supported: whether the kernel is in the op set. Other kernels are passthrough ops, or were called by a fallback.
    """

    op: str
    kernel: str
    calls: int
    seconds: float
    supported: bool = True


@dataclass(frozen=True)
class Bucket:
    """The counts of one interval of time. A record has no buckets for intervals without calls.

    Attributes:
        start: start of the interval, in seconds from the start of the run; its length is `Record.bucket_seconds`.
        programs: number of cached programs at its end.
        calls, direct, hits, misses, bypassed, fell_back, refused, failed: counts of the calls that ended in it, as in `Site`.
    """

    start: float
    programs: int
    calls: int
    direct: int = 0
    hits: int = 0
    misses: int = 0
    bypassed: int = 0
    fell_back: int = 0
    refused: int = 0
    failed: int = 0


@dataclass(frozen=True)
class Miss:
    """One call that was recorded as a new program.

    Attributes:
        op: the op called.
        line: index of the line in `Record.lines`.
        at: time of the call, in seconds from the start of the run.
        seconds: duration of the call.
        call: the call, as text: "aten.gelu.default(f32[2, 3])".
        why: the guards that no cached program satisfied.
    """

    op: str
    line: int
    at: float
    seconds: float
    call: str
    why: str


@dataclass(frozen=True)
class Bypass:
    """The calls of one op from one line that bypassed the cache, for one reason."""

    op: str
    line: int
    calls: int
    why: str


@dataclass(frozen=True)
class Unsupported:
    """The calls of one op from one line that have no route to the set.

    Attributes:
        op: the op called.
        line: index of the line in `Record.lines`.
        calls: number of calls.
        native: whether they ran natively (`on_unsupported="fallback"`) instead of raising.
        call: the first call, as text.
        message: the message of its error, also if it ran natively.
        chain: the ops from the call to the op without a route, outermost first.
        missing: the ops at which the search for a route ended.
        kernels_to_add: alternatives; the kernels of any one entry give the call a route.
    """

    op: str
    line: int
    calls: int
    native: bool
    call: str
    message: str
    chain: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()
    kernels_to_add: tuple[tuple[str, ...], ...] = ()


@dataclass(frozen=True)
class KernelEvent:
    """A kernel call on the timeline: its op, and its start and duration in microseconds."""

    kernel: str
    start: float
    duration: float


@dataclass(frozen=True)
class Event:
    """A call on the timeline.

    Attributes:
        op: the op called.
        line: index of the line in `Record.lines`.
        thread: index of the thread in `Metadata.threads`.
        start: microseconds from the start of the run.
        duration: microseconds that it took, with the recording of its kernels.
        outcome: "direct", "hit", "miss", "bypassed", "fell back", "refused" or "failed".
        call: the call, as text.
        kernels: its kernel calls, in order.
    """

    op: str
    line: int
    thread: int
    start: float
    duration: float
    outcome: str
    call: str
    kernels: tuple[KernelEvent, ...] = ()
