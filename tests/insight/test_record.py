"""Records as values: they survive JSON, and other JSON raises."""

from __future__ import annotations

import json
from typing import Any

import pytest

from eagerdecomp import EagerDecompError, FileError
from eagerdecomp.profile import Record
from eagerdecomp.profile.record import Line
from eagerdecomp.profile.rows import Bucket, Bypass, Event, Flow, KernelEvent, Metadata, Miss, Site, Unsupported

RECORD = Record(
    Metadata(
        "train.py",
        ("--epochs", "1"),
        "Core ATen",
        exit_code=1,
        error="ValueError: no\nwords",
        devices=("cpu",),
        threads=("MainThread",),
    ),
    lines=(Line("/a/train.py", 3, "step", 'y = gelu(x)  # "é"'), Line("", 0, "", "", "GeluBackward0")),
    sites=(Site("aten.gelu.default", 0, 5, 0.5, 0.25, 12, direct=1, hits=1, misses=1, bypassed=1, fell_back=1),),
    flows=(Flow("aten.gelu.default", "aten.mul.Tensor", 9, 0.2), Flow("aten.x.default", "aten.x.default", 1, 0.1, supported=False)),
    buckets=(Bucket(0.0, 3, 5, direct=2, failed=1),),
    bucket_seconds=0.01,
    misses=(Miss("aten.gelu.default", 0, 0.5, 0.1, "aten.gelu.default(f32[2])", "the first call of this op"),),
    misses_left_out=7,
    bypasses=(Bypass("aten.nonzero.default", 1, 2, "reads data"),),
    unsupported=(
        Unsupported("aten.a.b", 0, 1, True, "aten.a.b()", "no route", ("aten.a.b",), ("aten.c.d",), (("aten.a.b",), ("aten.c.d",))),
    ),
    events=(
        Event("aten.gelu.default", 0, 0, 1.5, 7.25, "hit", "gelu(f32[2])", (KernelEvent("aten.mul.Tensor", 2.0, 1.0),) * 2),
        Event("aten.gelu.default", 1, 0, 9.0, 0.5, "direct", "gelu(f32[2])"),
    ),
    events_left_out=11,
    notes=("a note",),
)


def test_a_record_survives_json() -> None:
    assert Record.from_json(RECORD.to_json()) == RECORD


def without(name: str) -> str:
    data = json.loads(RECORD.to_json())
    del data[name]
    return json.dumps(data)


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(RECORD.to_json()), **values})


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("{", "this is not a record"),
        (changed(version=99), "version 99"),
        (without("metadata"), "damaged .KeyError: 'metadata'"),
        (changed(metadata={"nonsense": 1}), "damaged .TypeError"),
        (changed(sites={"columns": ["op"], "rows": [[]]}), "damaged .ValueError"),
        (changed(lines={"columns": [], "rows": []}), "refers to line 0 of 0"),
        (changed(notes=[3]), "damaged .TypeError: notes is"),
        (changed(bucket_seconds=float("nan")), "damaged .TypeError: bucket_seconds is nan"),
        (changed(lines={"columns": ["file", "number", "function", "text"], "rows": [["a", "b", "c", "d"]]}), "number is 'b'"),
    ],
)
def test_json_that_is_not_a_record_raises_with_one_line(text: str, fault: str) -> None:
    with pytest.raises(FileError, match=fault) as caught:
        Record.from_json(text)
    assert isinstance(caught.value, (EagerDecompError, ValueError))
    assert "\n" not in str(caught.value)
