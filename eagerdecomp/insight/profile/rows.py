"""The rows of a record: calls, kernels, and times."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Bucket", "Bypass", "Event", "Flow", "Metadata", "KernelEvent", "Miss", "Site", "Unsupported"]


@dataclass(frozen=True)
class Metadata:
    """The metadata of the run.

    Attributes:
        script: what was run: a file, a module's name, or "" where a mode was entered by hand.
        args: the script's own arguments.
        op_set: what the set calls itself.
        on_unsupported: "error" or "fallback".
        torch: torch's version.
        eagerdecomp: this library's.
        python: Python's.
        started: when, in UTC, as ISO 8601 writes it.
        seconds: how long the run took, with all that recording it cost.
        recorder_seconds: of those, what the recorder itself was seen to take; the times of calls and kernels are without it. What
            torch takes to hand the recorder each kernel call is not in it, and is in the times of calls.
        exit_code: the script's; None where there was no script, or where it has not ended.
        error: the exception that ended the run ("ValueError: ..."), or "".
        devices: the devices there were.
        cpu_threads: threads that torch's kernels may use.
        threads: names of the threads that made calls; events refer to them by number.
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
        line: number of the line in `Record.lines`.
        calls: how many calls.
        seconds: time in them, from torch handing over the call to its result.
        kernel_seconds: of that, inside kernels of the backend.
        kernels: how many kernel calls they made.
        direct: calls that the kernel of the backend ran as they were, or passthrough ops.
        hits: decomposed by a linked rule or a stored program.
        misses: decomposed and recorded, as no stored program fitted.
        bypassed: decomposed by a rule that was run again, with neither key nor program.
        fell_back: run natively although unsupported, as `on_unsupported="fallback"` has it.
        refused: without a route to the set: `UnsupportedOpError`.
        failed: ended in any other exception.
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
        calls: how many calls of that kernel.
        seconds: time in them.
        supported: whether the kernel is in the op set; one that is not arrived by a fallback, or is a passthrough op.
    """

    op: str
    kernel: str
    calls: int
    seconds: float
    supported: bool = True


@dataclass(frozen=True)
class Bucket:
    """The counts of one stretch of time. Stretches in which nothing was called are left out.

    Attributes:
        start: where it begins, in seconds from the start of the run; each is `Record.bucket_seconds` long.
        programs: programs that the cache held at its end.
        calls, direct, hits, misses, bypassed, fell_back, refused, failed: the calls that ended in it, as in `Site`.
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
        line: number of the line in `Record.lines`.
        at: when, in seconds from the start of the run.
        seconds: how long the call took.
        call: how it was called: "aten.gelu.default(f32[2, 3])".
        why: which facts were new.
    """

    op: str
    line: int
    at: float
    seconds: float
    call: str
    why: str


@dataclass(frozen=True)
class Bypass:
    """The calls of one op from one line that ran their rule without a program, for one reason."""

    op: str
    line: int
    calls: int
    why: str


@dataclass(frozen=True)
class Unsupported:
    """The calls of one op from one line that have no route to the set.

    Attributes:
        op: the op called.
        line: number of the line in `Record.lines`.
        calls: how many there were.
        native: whether they ran natively (`on_unsupported="fallback"`); else they raised.
        call: how the first was called.
        message: what its error says, or would have said.
        chain: the ops between the call and the op without a route, outermost first.
        missing: the ops at which the routes ended.
        kernels_to_add: the fewest kernels that would give it a route, each entry one alternative.
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
    """A kernel call on the timeline: its op, and its start and length in microseconds."""

    kernel: str
    start: float
    duration: float


@dataclass(frozen=True)
class Event:
    """A call on the timeline.

    Attributes:
        op: the op called.
        line: number of the line in `Record.lines`.
        thread: number of the thread in `Head.threads`.
        start: microseconds from the start of the run.
        duration: microseconds that it took, with what recording it cost.
        outcome: "direct", "hit", "miss", "bypassed", "fell back", "refused" or "failed".
        call: how it was called.
        kernels: the kernel calls in it, in their order.
    """

    op: str
    line: int
    thread: int
    start: float
    duration: float
    outcome: str
    call: str
    kernels: tuple[KernelEvent, ...] = ()
