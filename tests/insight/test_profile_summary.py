"""The summary of a record: sums by op and by line, unsupported ops, and the kernels that would give them routes."""

from __future__ import annotations

from profile_records import CAT, ERF, GELU, LINES, MUL, RECORD, gap

from eagerdecomp.profile.record import Record
from eagerdecomp.profile.summary import Digest


def test_calls_of_an_op_add_up_over_its_lines() -> None:
    rows = {row.op: row for row in Digest(RECORD).ops}
    assert list(rows)[:2] == ["aten.gelu_backward.default", GELU]
    assert (rows[MUL].counts.calls, rows[MUL].lines, rows[MUL].counts.direct) == (6, 4, 6)
    assert round(rows[MUL].counts.seconds, 6) == 0.18
    assert rows[GELU].reached == {MUL: 12, ERF: 4}
    assert (rows[GELU].counts.decomposed, rows[MUL].counts.decomposed) == (4, 0)


def test_a_line_has_its_backward_pass_with_it() -> None:
    rows = Digest(RECORD).lines
    first = rows[0]
    assert (first.line.number, first.line.backward, first.counts.calls) == (7, "", 9)
    assert (round(first.counts.seconds, 6), round(first.backward_seconds, 6)) == (1.1, 0.7)
    assert first.ops == {GELU: 4, MUL: 3, "aten.gelu_backward.default": 2}
    assert [(row.line.number, row.line.backward) for row in rows[1:]] == [(9, ""), (0, "SumBackward0"), (0, "AccumulateGrad")]


def test_kernels_that_give_most_routes_are_first_and_together_give_all() -> None:
    gaps = (
        gap("aten.stack.default", 5, ("aten.stack.default",), (CAT,)),
        gap("aten.gelu.default", 1, ("aten.gelu.default",), (ERF,)),
        gap("aten.hstack.default", 2, ("aten.hstack.default",), (CAT,)),
        gap("aten.vstack.default", 3, ("aten.vstack.default",), (CAT, MUL)),
        gap("aten.igamma.default", 9),
    )
    wanted = Digest(Record(RECORD.metadata, LINES, unsupported=gaps)).wanted
    assert [(one.kernels, one.ops, one.calls) for one in wanted] == [
        ((CAT,), ("aten.stack.default", "aten.hstack.default"), 7),
        ((ERF,), ("aten.gelu.default",), 1),  # of Core ATen, so that it opens more
        (("aten.vstack.default",), ("aten.vstack.default",), 3),
    ]
    kernels = {kernel for one in wanted for kernel in one.kernels}
    assert all(any(kernels.issuperset(way) for way in one.kernels_to_add) for one in gaps if one.kernels_to_add)


def test_a_summary_in_a_few_lines() -> None:
    text = str(Digest(RECORD)).splitlines()
    assert text[0] == "train.py on OpSet(mine: 9 ops), torch 2.13.0: 2.00 s"
    assert text[1:4] == [
        "  4 ops called in 18 calls, 3 reached the backend in 31 kernel calls",
        "  outside the set: 1 op in 1 call: aten.linalg_eig.default",
        "  decomposed: 5 by linked rules or cached programs, 1 recorded (cache misses), 0 bypassed; 2 programs in the cache",
    ]
    assert "longest line: train.py:7, 1.10 s" in text[5]
