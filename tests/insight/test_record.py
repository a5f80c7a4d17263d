"""Records as values: they survive JSON, and other JSON raises."""

from __future__ import annotations

import json
from typing import Any

import pytest
from profile_records import FULL

from eagerdecomp import EagerDecompError, FileError
from eagerdecomp.profile import Record


def test_a_record_survives_json() -> None:
    assert Record.from_json(FULL.to_json()) == FULL


def without(name: str) -> str:
    data = json.loads(FULL.to_json())
    del data[name]
    return json.dumps(data)


def changed(**values: Any) -> str:
    return json.dumps({**json.loads(FULL.to_json()), **values})


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
