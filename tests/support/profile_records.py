"""A hand-written record of a run that has every kind of row."""

from __future__ import annotations

from dataclasses import replace

from eagerdecomp.host.source_lines import Line
from eagerdecomp.profile.record import Record
from eagerdecomp.profile.rows import Bucket, Bypass, Event, Flow, KernelEvent, Metadata, Miss, Site, Unsupported

GELU, MUL, ERF, CAT = "aten.gelu.default", "aten.mul.Tensor", "aten.erf.default", "aten.cat.default"

LINES = (
    Line("/home/me/train.py", 7, "step", "y = gelu(x)"),
    Line("/home/me/train.py", 7, "step", "y = gelu(x)", "GeluBackward0"),
    Line("/home/me/train.py", 9, "step", "loss.backward()"),
    Line("", 0, "", "", "AccumulateGrad"),
    Line("", 0, "", "", "SumBackward0"),
)

SITES = (
    Site(GELU, 0, 4, 0.4, 0.3, 20, hits=3, misses=1),
    Site("aten.gelu_backward.default", 1, 2, 0.6, 0.2, 8, hits=2),
    Site(MUL, 1, 3, 0.1, 0.1, 3, direct=3),
    Site(MUL, 2, 1, 0.05, 0.05, 1, direct=1),
    Site(MUL, 3, 1, 0.01, 0.01, 1, direct=1),
    Site(MUL, 4, 1, 0.02, 0.01, 1, direct=1),
    Site("aten.linalg_eig.default", 2, 1, 0.03, 0.02, 1, fell_back=1),
    Site("profiler._record_function_enter_new.default", 2, 5, 0.001, 0.001, 5, direct=5),
)

FLOWS = (
    Flow(GELU, MUL, 12, 0.2),
    Flow(GELU, ERF, 4, 0.1),
    Flow(MUL, MUL, 6, 0.17),
    Flow("aten.gelu_backward.default", MUL, 8, 0.2),
    Flow("aten.linalg_eig.default", "aten.linalg_eig.default", 1, 0.02, supported=False),
    Flow("profiler._record_function_enter_new.default", "profiler._record_function_enter_new.default", 5, 0.001, supported=False),
)

RECORD = Record(
    Metadata("/home/me/train.py", op_set="OpSet(mine: 9 ops)", torch="2.13.0", seconds=2.0),
    LINES,
    SITES,
    FLOWS,
    buckets=(Bucket(0.0, 1, 10, hits=3, misses=1), Bucket(0.5, 2, 8, hits=2)),
    bucket_seconds=0.5,
    misses=(Miss(GELU, 0, 0.01, 0.3, "aten.gelu.default(f32[2])", "the first call of this op"),),
)


def gap(op: str, calls: int, *groups: tuple[str, ...]) -> Unsupported:
    """Return the row of an op without a route; each group is a set of kernels that would give it one."""
    return Unsupported(op, 0, calls, True, f"{op}(f32[2])", "no route", (op,), groups[0] if groups else (), groups)


#: The record with something in every table.
FULL = replace(
    RECORD,
    metadata=Metadata(
        "/home/me/train.py",
        ("--epochs", "1"),
        "OpSet(mine: 9 ops)",
        torch="2.13.0",
        seconds=2.0,
        exit_code=1,
        error="ValueError: no\nwords",
        devices=("cpu",),
        threads=("MainThread",),
    ),
    lines=(*LINES, Line("/home/me/train.py", 11, "step", 'print(x)  # "\u00e9"')),
    buckets=(Bucket(0.0, 1, 10, hits=3, misses=1), Bucket(0.5, 2, 8, hits=2, bypassed=2, fell_back=1)),
    misses_left_out=7,
    bypasses=(Bypass("aten.nonzero.default", 2, 2, "it reads data"),),
    unsupported=(gap("aten.linalg_eig.default", 1, ("aten.linalg_eig.default",), (MUL, GELU)),),
    events=(
        Event(GELU, 0, 0, 1.5, 7.25, "hit", "gelu(f32[2])", (KernelEvent(MUL, 2.0, 1.0),) * 2),
        Event(GELU, 1, 0, 9.0, 0.5, "direct", "gelu(f32[2])"),
    ),
    events_left_out=11,
    notes=("threads of C++ are not in it",),
)
