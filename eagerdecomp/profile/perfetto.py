"""Write a timeline in the format of Chrome traces, for https://ui.perfetto.dev and chrome://tracing."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from eagerdecomp.host.source_lines import Line
from eagerdecomp.profile.rows import Bucket, Event, Metadata

__all__ = ["trace_text"]

_PROCESS = 1


def trace_text(
    metadata: Metadata, lines: Sequence[Line], events: Sequence[Event], buckets: Sequence[Bucket], bucket_seconds: float
) -> str:
    """Return a trace with a track for each thread, with calls and the kernels inside them, and counters of the cache."""
    about = {"op set": metadata.op_set, "torch": metadata.torch, "eagerdecomp": metadata.eagerdecomp, "started": metadata.started}
    made = [*_names(metadata), *_calls(lines, events), *_counters(buckets, bucket_seconds)]
    rows = ",\n".join([json.dumps(one, separators=(",", ":")) for one in made])
    return f'{{"displayTimeUnit": "ns", "otherData": {json.dumps(about)}, "traceEvents": [\n{rows}\n]}}\n'


def _names(metadata: Metadata) -> Iterator[dict[str, Any]]:
    named = " ".join(["eagerdecomp", metadata.script, *metadata.args]).strip()
    yield {"ph": "M", "name": "process_name", "pid": _PROCESS, "tid": 0, "args": {"name": named}}
    for number, name in enumerate(metadata.threads):
        yield {"ph": "M", "name": "thread_name", "pid": _PROCESS, "tid": number + 1, "args": {"name": name}}
        yield {"ph": "M", "name": "thread_sort_index", "pid": _PROCESS, "tid": number + 1, "args": {"sort_index": number}}


def _calls(lines: Sequence[Line], events: Sequence[Event]) -> Iterator[dict[str, Any]]:
    """Yield complete slices ("X"). A slice is nested in the slice around it on its thread."""
    places = [_place(line) for line in lines]
    for event in events:
        where = {"pid": _PROCESS, "tid": event.thread + 1}
        args = {"call": event.call, **places[event.line], "outcome": event.outcome}
        yield {"ph": "X", "name": event.op, "cat": "op", "ts": event.start, "dur": event.duration, **where, "args": args}
        for one in event.kernels:
            inside = {"op": event.op}  # the outer slice has the other values
            yield {"ph": "X", "name": one.kernel, "cat": "kernel", "ts": one.start, "dur": one.duration, **where, "args": inside}


def _place(line: Line) -> dict[str, str]:
    place = {"line": f"{line.file}:{line.number} in {line.function}", "source": line.text} if line.file else {}
    return {**place, "backward": line.backward} if line.backward else place


def _counters(buckets: Sequence[Bucket], bucket_seconds: float) -> Iterator[dict[str, Any]]:
    for bucket in buckets:
        at, end = bucket.start * 1e6, (bucket.start + bucket_seconds) * 1e6
        counts = {"hits": bucket.hits, "misses": bucket.misses, "bypassed": bucket.bypassed}
        yield {"ph": "C", "name": "decomposed calls", "pid": _PROCESS, "tid": 0, "ts": at, "args": counts}
        yield {"ph": "C", "name": "programs held", "pid": _PROCESS, "tid": 0, "ts": end, "args": {"programs": bucket.programs}}
