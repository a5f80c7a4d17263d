"""Run the calls of one cell in eager and under the mode, and return the worst result."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch

from conformance.cases import Case
from conformance.judge import Observed, differences, excused, observe, stride_differences, version_differences
from conformance.matrix_calls import Sample, samples
from conformance.matrix_cells import Cell
from conformance.standards import why_no_reference
from conformance.ties import is_tie
from eagerdecomp import BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError
from eagerdecomp.eager.compare import Difference

__all__ = ["FAILED", "STATUSES", "Result", "judge_cell"]

#: From worst to best. A cell has the status of its worst sample. If all samples raise in eager, it is "none", and not counted.
#: "refusal": a sample that eager rejects for its layout raises another type of error in the mode. It is reported, but no failure.
STATUSES = ("wrong", "leak", "died", "error", "unsupported", "refusal", "pass", "none")

#: Statuses that the manifest must not contain.
FAILED = ("wrong", "leak", "died", "error")


class Result(NamedTuple):
    """The result of a cell.

    Attributes:
        detail: the difference of the worst sample.
        missing: the ops without a route, over all samples.
        metadata: differences of strides and version counters, of the first sample that has some.
        count: the number of samples that do not raise in eager; for error inputs, of those that raise.
    """

    status: str
    detail: str = ""
    missing: tuple[str, ...] = ()
    metadata: str = ""
    count: int = 0


@dataclass(frozen=True)
class _Call:
    """How to check a call.

    Attributes:
        name: the OpInfo's name.
        check: the check of the cell.
        message: the pattern for the error message; "" if there is none.
        progress: called with the side (eager or the mode) before it runs.
    """

    name: str
    op_set: OpSet
    mode: EagerDecompMode
    check: str
    message: str
    progress: Callable[[str], None]

    @property
    def backward(self) -> bool:
        return self.check == "reverse"


def judge_cell(info: Any, cell: Cell, op_set: OpSet, count: int, progress: Callable[[str], None] = lambda side: None) -> Result:
    """Run a cell. `progress` gets the side before it runs, in case the call ends the process."""
    dtype = getattr(torch, cell.dtype)
    if why_no_reference(info, "cpu", dtype):
        return Result("none", f"eager is no standard: {why_no_reference(info, 'cpu', dtype)}")
    mode = EagerDecompMode(op_set, cache=ProgramCache())
    found: list[Result] = []
    progress("eager")
    for sample in samples(info, cell, count):
        one = _judge_sample(sample, _Call(info.name, op_set, mode, cell.check, sample.message, progress))
        if one.status != "none":
            found.append(one)
    if not found:
        return Result("none")
    missing = tuple(sorted({op for one in found for op in one.missing}))
    metadata = next((one.metadata for one in found if one.metadata), "")
    worst = min(found, key=lambda one: STATUSES.index(one.status))
    return Result(worst.status, worst.detail, missing, metadata, len(found))


def _judge_sample(sample: Sample, call: _Call) -> Result:
    """Return the worst result of a sample's calls; stop at the first call that does not pass."""
    passed = Result("none")
    known: dict[int, Observed | Exception] = {}
    for turn, case in enumerate(sample.calls):
        if id(case) not in known:
            call.progress("eager")
            known[id(case)] = _in_eager(case, call)
        one = _judge_call(case, known[id(case)], call)
        if one.status != "pass":
            return one._replace(detail=f"call {turn + 1}: {one.detail}") if one.detail else one
        passed = one if one.metadata or passed.status == "none" else passed
    return passed


def _in_eager(case: Case, call: _Call) -> Observed | Exception:
    try:
        return observe(case.function, case.arguments, backward=call.backward)
    except Exception as error:  # the border: then the exception is the expected result
        return error


def _judge_call(case: Case, expected: Observed | Exception, call: _Call) -> Result:
    if isinstance(expected, Exception):
        return _judge_error(case, call, expected)
    if call.check == "errors":
        return Result("none")
    call.progress("the mode")
    recorder = BackendRecorder()
    try:
        got = observe(case.function, case.arguments, (recorder, call.mode), backward=call.backward)
    except UnsupportedOpError as error:
        return Result("unsupported", error.call, error.missing)
    except Exception as error:  # the border: every other failure is a counted result
        return Result("error", _error_text(error))
    if outside := recorder.outside(call.op_set):
        return Result("leak", ", ".join(sorted(map(str, outside))))
    differing = differences(expected, got)
    if differing and not _is_permitted(differing, case, call, expected, got):
        return Result("wrong", "; ".join(map(str, differing)))
    return Result("pass", metadata="; ".join(_metadata_differences(case, call, expected, got)))


def _judge_error(case: Case, call: _Call, expected: Exception) -> Result:
    """Check a call that raises in eager: the mode must raise the same type, with a message that matches the same pattern."""
    call.progress("the mode")
    try:
        observe(case.function, case.arguments, (call.mode,), backward=call.backward)
    except UnsupportedOpError as error:
        # Any error is accepted, except for torch's error inputs, which check the type.
        return Result("unsupported", error.call, error.missing) if call.check == "errors" else Result("none")
    except Exception as error:  # the border: its type is compared
        if type(error) is not type(expected):
            said = f"{_error_text(error)} where eager raises {_error_text(expected)}"
            return Result("error" if call.check == "errors" else "refusal", said)
        if call.message and re.search(call.message, str(expected)) and not re.search(call.message, str(error)):
            return Result("error", f"{_error_text(error)} where eager raises {_error_text(expected)}")
        return Result("pass" if call.check == "errors" else "none")
    return Result("wrong", f"returns where eager raises {_error_text(expected)}")


def _is_permitted(differing: Sequence[Difference], case: Case, call: _Call, expected: Observed, got: Observed) -> bool:
    """Return whether the difference is permitted: rounding, the choice among equal values, or the effect of any mode."""
    if is_tie(call.name, differing, case.arguments, expected, got):
        return True
    if excused(differing, case.function, case.arguments, expected, got, call.backward):
        return True
    return differences(expected, _under_any_mode(case, call)) == differing


def _under_any_mode(case: Case, call: _Call) -> Observed:
    """Run eager under a recorder, because under any mode some of torch's own code takes another branch."""
    return observe(case.function, case.arguments, (BackendRecorder(),), backward=call.backward)


def _metadata_differences(case: Case, call: _Call, expected: Observed, got: Observed) -> Sequence[str]:
    def found(wanted: Observed) -> list[str]:
        return stride_differences(wanted, got) + version_differences(wanted, got)

    return found(expected) and found(_under_any_mode(case, call))


def _error_text(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
