"""One cell judged: its calls made eagerly and in the mode, and the worst that came of them."""

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
from conformance.standards import no_standard
from conformance.ties import of_equals
from eagerdecomp import BackendRecorder, EagerDecompMode, OpSet, ProgramCache, UnsupportedOpError
from eagerdecomp.eager.compare import Difference

__all__ = ["FAILED", "STATUSES", "Result", "judge_cell"]

#: From worst to best. A cell is what its worst sample is; one of which eager takes no sample is "none", and not
#: counted. Of a sample that eager refuses by its layout alone "refusal" is another type of error: reported, and no failure.
STATUSES = ("wrong", "leak", "died", "error", "unsupported", "refusal", "pass", "none")

#: What no manifest may list.
FAILED = ("wrong", "leak", "died", "error")


class Result(NamedTuple):
    """The result of a cell.

    Attributes:
        detail: of the worst sample, what differs.
        missing: of all samples, the ops without a route.
        places: differences that are of no value: strides and version counters, of the first sample that has some.
        count: of samples that eager takes, or refuses where error inputs are asked for.
    """

    status: str
    detail: str = ""
    missing: tuple[str, ...] = ()
    places: str = ""
    count: int = 0


@dataclass(frozen=True)
class _Call:
    """How a call is to be judged."""

    name: str
    op_set: OpSet
    mode: EagerDecompMode
    asked: str
    words: str
    progress: Callable[[str], None]

    @property
    def backward(self) -> bool:
        return self.asked == "reverse"


def judge_cell(info: Any, cell: Cell, op_set: OpSet, count: int, progress: Callable[[str], None] = lambda side: None) -> Result:
    """Judge a cell; `progress` hears which side is about to run, should it end the process."""
    dtype = getattr(torch, cell.dtype)
    if no_standard(info, "cpu", dtype):
        return Result("none", f"eager is no standard: {no_standard(info, 'cpu', dtype)}")
    mode = EagerDecompMode(op_set, cache=ProgramCache())
    found: list[Result] = []
    progress("eager")
    for sample in samples(info, cell, count):
        one = _judge_sample(sample, _Call(info.name, op_set, mode, cell.asked, sample.words, progress))
        if one.status != "none":
            found.append(one)
    if not found:
        return Result("none")
    missing = tuple(sorted({op for one in found for op in one.missing}))
    places = next((one.places for one in found if one.places), "")
    worst = min(found, key=lambda one: STATUSES.index(one.status))
    return Result(worst.status, worst.detail, missing, places, len(found))


def _judge_sample(sample: Sample, call: _Call) -> Result:
    """The worst of its calls; the first that does not pass is the last one made."""
    passed = Result("none")
    known: dict[int, Observed | Exception] = {}
    for turn, case in enumerate(sample.calls):
        if id(case) not in known:
            call.progress("eager")
            known[id(case)] = _in_eager(case, call)
        one = _judge_call(case, known[id(case)], call)
        if one.status != "pass":
            return one._replace(detail=f"call {turn + 1}: {one.detail}") if one.detail else one
        passed = one if one.places or passed.status == "none" else passed
    return passed


def _in_eager(case: Case, call: _Call) -> Observed | Exception:
    try:
        return observe(case.function, case.arguments, backward=call.backward)
    except Exception as error:  # the border: that eager refuses a call is what is expected then
        return error


def _judge_call(case: Case, expected: Observed | Exception, call: _Call) -> Result:
    if isinstance(expected, Exception):
        return _judge_refusal(case, call, expected)
    if call.asked == "errors":
        return Result("none")
    call.progress("the mode")
    recorder = BackendRecorder()
    try:
        got = observe(case.function, case.arguments, (recorder, call.mode), backward=call.backward)
    except UnsupportedOpError as error:
        return Result("unsupported", error.call, error.missing)
    except Exception as error:  # the border: every other failure is a counted result
        return Result("error", _said(error))
    if outside := recorder.outside(call.op_set):
        return Result("leak", ", ".join(sorted(map(str, outside))))
    differing = differences(expected, got)
    if differing and not _forgiven(differing, case, call, expected, got):
        return Result("wrong", "; ".join(map(str, differing)))
    return Result("pass", places="; ".join(_place_differences(case, call, expected, got)))


def _judge_refusal(case: Case, call: _Call, expected: Exception) -> Result:
    """A call that eager refuses: the mode's error is of the same type, and says what users match on."""
    call.progress("the mode")
    try:
        observe(case.function, case.arguments, (call.mode,), backward=call.backward)
    except UnsupportedOpError as error:
        # Refused is refused; of torch's own error inputs the type is asked for.
        return Result("unsupported", error.call, error.missing) if call.asked == "errors" else Result("none")
    except Exception as error:  # the border: its type is what is judged
        if type(error) is not type(expected):
            said = f"{_said(error)} where eager raises {_said(expected)}"
            return Result("error" if call.asked == "errors" else "refusal", said)
        if call.words and re.search(call.words, str(expected)) and not re.search(call.words, str(error)):
            return Result("error", f"{_said(error)} where eager says {_said(expected)}")
        return Result("pass" if call.asked == "errors" else "none")
    return Result("wrong", f"returns where eager raises {_said(expected)}")


def _forgiven(differing: Sequence[Difference], case: Case, call: _Call, expected: Observed, got: Observed) -> bool:
    """Rounding alone, which of equals is picked, or what any mode brings about: of all three eager is no standard."""
    if of_equals(call.name, differing, case.arguments, expected, got):
        return True
    if excused(differing, case.function, case.arguments, expected, got, call.backward):
        return True
    return differences(expected, _under_any_mode(case, call)) == differing


def _under_any_mode(case: Case, call: _Call) -> Observed:
    """Run eager under a mode that does nothing: some of torch's own code then takes another way."""
    return observe(case.function, case.arguments, (BackendRecorder(),), backward=call.backward)


def _place_differences(case: Case, call: _Call, expected: Observed, got: Observed) -> Sequence[str]:
    def found(wanted: Observed) -> list[str]:
        return stride_differences(wanted, got) + version_differences(wanted, got)

    return found(expected) and found(_under_any_mode(case, call))


def _said(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:160]}"
