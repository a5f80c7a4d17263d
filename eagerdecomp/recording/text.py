"""The differences of two runs as text."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Sequence

from eagerdecomp.host.html import counted
from eagerdecomp.recording.differences import CallDifference, Changed, RankDifferences, RunDifferences, by_module
from eagerdecomp.recording.run_folder import RecordedCall, RecordedRun, Value

__all__ = ["differences_text", "off_text", "record_again", "verdict"]

# Maximum number of later differences in the text; the page and the JSON have all.
_LATER = 12


def differences_text(found: RunDifferences) -> str:
    """Return the differences as text."""
    lines: list[str] = []
    for one in found.ranks:
        lines += [f"rank {one.rank}:"] if len(found.ranks) > 1 else []
        lines += _rank(one)
    if not found.ranks:
        lines.append("no rank is in both runs")
    return "\n".join(lines)


def verdict(one: RankDifferences) -> str:
    """Return the result in one sentence."""
    if not one.compared:
        return "no call of one run has a partner in the other"
    earlier_random = one.random and (not one.found or one.random[0].first.number < one.found[0].first.number)
    if one.changed and one.starts_with_inputs:
        call = one.changed.first
        return f"`{one.changed.input}` of {call.op}{_in(call)} differs first: {one.changed.why}"
    if one.found:
        first = one.found[0]
        after = " (random numbers differ before it)" if earlier_random else ""
        what = f"raises an error in one run only: {first.output}" if first.kind == "error" else "differs"
        return f"{first.first.op}{_in(first.first)} {what}, though its inputs agree{after}"
    if one.random:
        first_random = one.random[0].first
        return f"random numbers differ, first those of {first_random.op}{_in(first_random)}: no kernel is wrong before it"
    if one.unjudged:
        call = one.unjudged[0].first
        return f"no wrong call is found, but {call.op}{_in(call)} is not judged, and its outputs are far apart"
    return "no call differs by more than rounding"


def _in(call: RecordedCall) -> str:
    return f" in {call.module}" if call.module else ""


def _rank(one: RankDifferences) -> Iterator[str]:
    yield f"{verdict(one)}: {counted(one.compared, 'call')} compared"
    for name, run in zip("AB", one.runs, strict=True):
        yield from _about(name, run)
    for name, run, calls in zip("AB", one.runs, one.unmatched, strict=True):
        if calls:
            shown = ", ".join(dict.fromkeys(run.calls.site(number).op for number in calls[:40]))
            yield f"  {counted(len(calls), 'call')} of run {name} without a partner: {shown[:120]}"
    if one.changed and one.starts_with_inputs:
        yield from _inputs(one.changed)
    if one.found:
        yield from _first(one, one.found[0])
    if one.random:
        yield from _random(one.random)
    for unjudged in one.unjudged[:_LATER] if not one.found else ():
        often = f", and {unjudged.times - 1} more" if unjudged.times > 1 else ""
        yield f"  not judged: call {unjudged.first.number}, {unjudged.first} in {unjudged.first.module or '(no module)'}{often}:"
        apart = f"{off_text(unjudged.relative)} of its norm apart, and its inputs {off_text(unjudged.drift)}"
        yield f"    {unjudged.output} is {apart}, which may explain it"
        yield f"    to know, make this call on equal inputs: {record_again(one.runs[0], unjudged.first)}"
    if not one:
        yield f"  the largest distance of an output is {off_text(max((off for _, off in one.distances), default=0.0))} of its norm"
    rest = [later for later in one.found[1:] if later.first.module != one.found[0].first.module]
    later = list(by_module(rest))
    if later:
        yield ""
        yield "later first differences, by module:"
        for row in later[:_LATER]:
            place = f"{row.first.module or '(no module)'}, {row.first.phase}"
            yield f"  call {row.first.number:<8} {place:40} {row.first.op}: {off_text(row.relative)} of its norm"
        if len(later) > _LATER:
            yield f"  and {len(later) - _LATER} more: see --json or --html"


def _about(name: str, run: RecordedRun) -> Iterator[str]:
    header = run.header
    facts = f"torch {header.get('torch')}, {counted(len(run.calls), 'call')}"
    yield f"  run {name}: {run.folder} ({facts}{', on ' + str(header['machine']) if header.get('machine') else ''})"
    if not run.complete:
        yield f"    run {name} has no last row: it crashed, or it is still running"
    yield from (f"    run {name}: {note}" for note in run.notes)


def _first(one: RankDifferences, found: CallDifference) -> Iterator[str]:
    yield ""
    numbers = f"call {found.first.number} of run A, {found.second.number} of run B"
    often = f", and {found.times - 1} more calls of this op there" if found.times > 1 else ""
    what = "call with inputs that agree" if one.starts_with_inputs else "difference"
    yield f"first {what}: {numbers}, {found.first.phase}{often}"
    yield f"  {'at':10} {found.first.where}"
    yield f"  {'module':10} {found.first.module or '(none)'}"
    yield f"  {'call':10} {found.first}"
    yield f"  {'inputs':10} {'equal' if not found.drift else f'agree: at most {off_text(found.drift)} of their norm apart'}"
    if found.kind != "error":
        yield f"  {'differs':10} {found.output}: {off_text(found.relative)} of its norm, {off_text(found.allowed)} allowed"
        yield f"  {'':10} {'':4}{'norm':>14}{'min':>14}{'max':>14}{'mean':>14}{'NaN':>8}{'inf':>8}"
        for name, call in (("A", found.first), ("B", found.second)):
            yield from _statistics(name, next((value for value in call.outputs if value.name == found.output), None))
    yield f"  {'around it':10} distances of the outputs of run A's calls:"
    for call, off in one.neighbourhood(found.first):
        mark = ">" if call.number == found.first.number else " "
        distance = "no partner" if off is None else off_text(off)
        yield f"  {'':8} {mark} {call.number:<7} {distance:>10}  {call.op} {call.module}"
    yield f"  {'reproduce':10} {_reproduce(one, found)}"


def _statistics(name: str, value: Value | None) -> Iterator[str]:
    if value is not None and value.digest is not None:
        digest = value.digest
        numbers = "".join(f"{number:>14.6g}" for number in (digest.norm, digest.min, digest.max, digest.mean))
        yield f"  {'':10} {name:4}{numbers}{digest.nan:>8}{digest.inf:>8}"


def _reproduce(one: RankDifferences, found: CallDifference) -> str:
    if found.first.saved:
        runs = " ".join(shlex.quote(str(run.folder)) for run in one.runs)
        return f"eagerdecomp diff {runs} --reproduce reproduce.py"
    return f"save this call's tensors: {record_again(one.runs[0], found.first)}"


def record_again(run: RecordedRun, call: RecordedCall) -> str:
    """Return the command that records a run again, and saves the tensors of a call."""
    folder = run.folder.parent if run.folder.name.startswith("rank") else run.folder
    words = [*run.header.get("options", ()), "--save-call", str(call.number), *(run.header.get("command") or ["SCRIPT"])]
    return f"eagerdecomp record --values {shlex.quote(f'{folder}_saved')} {shlex.join(words)}"


def _random(rows: Sequence[CallDifference]) -> Iterator[str]:
    first = rows[0]
    yield ""
    yield f"random numbers differ from call {first.first.number} on: {first.first.op}{_in(first.first)}"
    yield f"  {'at':10} {first.first.where}"
    calls = sum(row.times for row in rows)
    what = "This is no wrong kernel. What is computed from them differs too."
    yield f"  {'':10} {counted(calls, 'random call')} with inputs that agree drew other numbers. {what}"
    what = "set one seed in both runs. Devices and op sets draw different numbers: draw them on the CPU, or turn dropout off"
    yield f"  {'to do':10} {what}"


def _inputs(found: Changed) -> Iterator[str]:
    yield ""
    yield f"first difference: an input of call {found.first.number} of run A, {found.second.number} of run B, {found.first.phase}"
    yield f"  {'at':10} {found.first.where}"
    yield f"  {'call':10} {found.first}"
    yield f"  {'differs':10} `{found.input}`: {off_text(found.relative)} of its norm"
    yield f"  {'because':10} {found.why}"
    if found.suspect is not None:
        yield f"  {'suspect':10} call {found.suspect.number} of run B, which had it as an input: {found.suspect}"


def off_text(relative: float) -> str:
    """Return a relative distance as text."""
    return "infinitely far" if math.isinf(relative) else f"{relative:.2g}"
