"""Compare two recorded runs: the first call whose inputs agree and whose outputs do not, and what follows."""

from __future__ import annotations

import math
import re
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import torch

from eagerdecomp._torch.ops import op_named
from eagerdecomp.eager.compare import is_arbitrary
from eagerdecomp.ops.schema import facts_of
from eagerdecomp.recording.align import aligned, family
from eagerdecomp.recording.digest import distance, relative_distance
from eagerdecomp.recording.rounding import AGREE, allowed_distance, beside_large, distance_of_inputs, distance_of_values, dtype_of
from eagerdecomp.recording.run_folder import RecordedCall, RecordedRun, Value, ranks_of, read_run

__all__ = ["CallDifference", "Changed", "RankDifferences", "RunDifferences", "by_module", "compare_runs", "difference_of_calls"]

# The measured distance of two runs of one program counts this many times, because it differs from run to run.
_NOISE = 8

# Data and weights from outside the recording may be this far apart, relative to their norm, or by roundings to their dtype.
_SAME, _ROUNDINGS = 1e-4, 2

# A member of a list may be so many times farther apart than the list, since distances are estimates.
_OF_LIST = 4

# A tensor in the text of a list.
_MEMBER = re.compile(r"\w+\[[\d, ]*\](?: on \w+(?::\d+)?)?")

# Number of calls that are shown before and after the first difference.
_BEFORE, _AFTER = 3, 2


@dataclass(frozen=True)
class CallDifference:
    """A call whose inputs agree in two runs, and whose outputs do not.

    Attributes:
        kind: ``values``; ``random`` if the call draws random numbers; ``error`` if it raised in one run only.
        first: the call in the first run.
        second: its partner.
        output: the name of the output that differs most.
        relative: the distance of that output, relative to its norm.
        allowed: the allowed relative distance.
        drift: the relative distance of the inputs.
        times: how many calls of this op, module and phase differ.
    """

    kind: str
    first: RecordedCall
    second: RecordedCall
    output: str
    relative: float
    allowed: float
    drift: float
    times: int = 1

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        numbers = {name: _plain(getattr(self, name)) for name in ("relative", "allowed", "drift")}
        return {"kind": self.kind, **_call_dict(self.first, self.second), "output": self.output, **numbers, "times": self.times}


@dataclass(frozen=True)
class Changed:
    """A call whose input differs, though no earlier call made a difference.

    Attributes:
        first: the call in the first run.
        second: its partner.
        input: the name of the input.
        relative: how far apart it is, relative to its norm.
        why: where the two values come from.
        suspect: the call of the second run that may have written the memory, or None.
        partnered: whether no call made the value, or partners did.
    """

    first: RecordedCall
    second: RecordedCall
    input: str
    relative: float
    why: str
    suspect: RecordedCall | None = None
    partnered: bool = True

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        suspect = self.suspect and {"call": self.suspect.number, "op": self.suspect.op, "where": self.suspect.where}
        found = {**_call_dict(self.first, self.second), "input": self.input, "relative": _plain(self.relative), "why": self.why}
        return {"kind": "inputs", **found, "suspect": suspect}


@dataclass(frozen=True)
class RankDifferences:
    """The differences of one rank.

    Attributes:
        rank: the rank.
        runs: the two runs.
        partners: for each call of the first run, the number of its partner; -1 if it has none.
        found: the first difference of each op, module and phase, in the order of the first run.
        random: the same of random numbers.
        changed: the first input that differs, if nothing was found before it.
        unjudged: the first calls of each op, module and phase whose outputs are far apart, which the rounding of their inputs may
            explain.
        offs: for each call of the first run, the largest relative distance of an output; NaN if it has no partner.
    """

    rank: int
    runs: tuple[RecordedRun, RecordedRun]
    partners: array[int] = field(repr=False)
    found: tuple[CallDifference, ...]
    random: tuple[CallDifference, ...]
    changed: Changed | None
    unjudged: tuple[CallDifference, ...]
    offs: array[float] = field(repr=False)

    def __bool__(self) -> bool:
        return bool(self.found or self.random or self.changed or self.unjudged)

    @property
    def starts_with_inputs(self) -> bool:
        """Whether inputs differ before any call is wrong."""
        return self.changed is not None and not (self.found and self.found[0].first.number < self.changed.first.number)

    @property
    def compared(self) -> int:
        """Number of calls that have a partner."""
        return sum(partner >= 0 for partner in self.partners)

    @property
    def distances(self) -> Iterator[tuple[int, float]]:
        """For each call with a partner, its number and the largest relative distance of an output."""
        return ((number, off) for number, off in enumerate(self.offs) if off == off)

    @cached_property
    def unmatched(self) -> tuple[array[int], array[int]]:
        """The numbers of the calls of each run without a partner."""
        alone = bytearray(b"\1") * len(self.runs[1].calls)
        for partner in self.partners:
            if partner >= 0:
                alone[partner] = False
        firsts = (number for number, partner in enumerate(self.partners) if partner < 0)
        return array("i", firsts), array("i", (number for number, one in enumerate(alone) if one))

    def neighbourhood(self, call: RecordedCall) -> list[tuple[RecordedCall, float | None]]:
        """Return the calls around a call of the first run, each with its distance; None if it has no partner."""
        calls = self.runs[0].calls[max(0, call.number - _BEFORE) : call.number + _AFTER + 1]
        return [(one, None if math.isnan(off := self.offs[one.number]) else off) for one in calls]

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {
            "rank": self.rank,
            "compared": self.compared,
            "calls": [len(run.calls) for run in self.runs],
            "unmatched": [len(calls) for calls in self.unmatched],
            "complete": [run.complete for run in self.runs],
            "notes": [list(run.notes) for run in self.runs],
            "largest_distance": _plain(max((one for _, one in self.distances), default=0.0)),
            "found": [one.as_dict() for one in self.found],
            "random": [one.as_dict() for one in self.random],
            "changed": self.changed and self.changed.as_dict(),
            "unjudged": [one.as_dict() for one in self.unjudged],
        }


@dataclass(frozen=True)
class RunDifferences:
    """The differences of two runs, true if there are any.

    Attributes:
        folders: the folders of the two runs.
        ranks: the differences of each rank that both runs have.
    """

    folders: tuple[str, str]
    ranks: tuple[RankDifferences, ...]

    def __bool__(self) -> bool:
        return any(self.ranks)

    @property
    def compared(self) -> int:
        """Number of calls that have a partner."""
        return sum(one.compared for one in self.ranks)

    @property
    def first(self) -> CallDifference | None:
        """The first wrong call; None if there is none."""
        found = [one.found[0] for one in self.ranks if one.found]
        return min(found, key=lambda one: one.first.number, default=None)

    def as_dict(self) -> dict[str, Any]:
        """Return plain values, for JSON."""
        return {"runs": list(self.folders), "differ": bool(self), "ranks": [one.as_dict() for one in self.ranks]}


def compare_runs(first: str | Path, second: str | Path, noise: str | Path | None = None) -> RunDifferences:
    """Compare two recorded runs.

    Args:
        first: the folder of a run, or of one of its ranks.
        second: the folder of the other run.
        noise: the folder of another run of the first program on the first machine. What differs between the two is allowed.

    Raises:
        FileError: if a folder holds no run, or a damaged one.
    """
    folders = [ranks_of(folder) for folder in (first, second)]
    noisy = ranks_of(noise) if noise is not None else {}
    ranks = sorted(folders[0].keys() & folders[1].keys())
    if len(folders[0]) == len(folders[1]) == 1:
        ranks = list(folders[0])
        folders[1] = dict(zip(ranks, folders[1].values(), strict=True))
    found = []
    for rank in ranks:
        run = read_run(folders[0][rank])
        allowed = _noise_of(run, read_run(noisy[rank])) if rank in noisy else {}
        found.append(_differences(rank, run, read_run(folders[1][rank]), allowed))
    return RunDifferences((str(first), str(second)), tuple(found))


# For each call and output, a measured distance.
_Noise = dict[tuple[int, int], float]


def _noise_of(run: RecordedRun, again: RecordedRun) -> _Noise:
    partners = aligned(run.calls, again.calls)
    found: _Noise = {}
    for number, partner in enumerate(partners):
        if partner >= 0:
            call = run.calls[number]
            for index, off in _distances(call, again.calls[partner]):
                if off:
                    found[number, index] = math.inf if call.random else off
    return found


def _differences(rank: int, first: RecordedRun, second: RecordedRun, noise: _Noise) -> RankDifferences:
    partners = aligned(first.calls, second.calls)
    tf32 = any(_uses_tf32(run) for run in (first, second))
    found: dict[tuple[str, ...], CallDifference] = {}
    random: dict[tuple[str, ...], CallDifference] = {}
    unjudged: dict[tuple[str, ...], CallDifference] = {}
    changed: Changed | None = None
    offs_of = array("d", [math.nan]) * len(first.calls)
    made: set[tuple[int, int]] = set()  # the numbers of digests that partners made as the same output, though they differ
    known = bytearray()  # by the number of a digest: whether a call made it
    # By the text of a tensor that may be a member of a list that differs, or a view of one: how far apart the members are.
    loose: dict[str, float] = {}
    texts: set[str] = set()  # of tensors that calls made
    agreeing = later = 0  # calls after `changed` that read a value which an earlier call made
    for number, partner in enumerate(partners):
        outputs = first.calls.site(number).outputs
        if partner < 0:
            loose.update(dict.fromkeys(_members(outputs), math.inf))
            texts.update([value.text for value in outputs])
            continue
        call, other = first.calls[number], second.calls[partner]
        offs = _distances(call, other)
        offs_of[number] = max((_relative(call, other, index, off) for index, off in offs), default=0.0)
        drift = distance_of_inputs(call, other)
        if changed is not None and any(0 <= value.number < len(known) and known[value.number] for value in call.inputs):
            later += 1
            agreeing += drift <= max(_SAME, changed.relative / 10)
        if _is_view(call.op) and call.inputs[0].text in loose:
            _add(loose, [*_members(outputs), *(value.text for value in outputs)], loose[call.inputs[0].text])
        if drift > _SAME and not (found or random or changed or _are_members(call, other, loose)):
            if _is_view(call.op) and _call_that_made(first, number, call.inputs[0].number) is None:
                continue  # a view of memory that perhaps nothing has written yet; the next reader counts
            changed = _changed(first, second, partners, call, other, made, texts)
        pairs = [(x, y, x.digest, y.digest) for x, y in zip(call.outputs, other.outputs, strict=False)]
        texts.update([value.text for value in outputs])
        tensors = [(x, y, one, beside) for x, y, one, beside in pairs if one is not None and beside is not None]
        # A tensor of a list has no digest of its own, so if lists differ by rounding, or are made by other ops, nobody knows where
        # its values come from.
        for x, _, one, beside in tensors:
            members = _members([x])
            if members and (apart := distance(one, beside)):
                _add(loose, members, _OF_LIST * apart)
        made.update((x.number, y.number) for x, y, one, beside in tensors if relative_distance(one, beside) > _SAME)
        for value in call.outputs:
            if value.number >= 0:
                known.extend(bytes(max(0, value.number + 1 - len(known))))
                known[value.number] = True
        if drift > AGREE or (drift and _is_view(call.op)):  # distances are estimates, in another order of a view's elements too
            continue
        worst = _worst(call, other, offs, drift, noise, tf32)
        if worst is not None:
            rows = unjudged if worst.allowed == math.inf else random if worst.kind == "random" else found
            key = (call.op, call.module, call.phase)
            earlier = rows.get(key)
            rows[key] = worst if earlier is None else replace(earlier, times=earlier.times + 1)
    if changed is not None and not changed.partnered and 2 * agreeing > later:
        changed = None  # the two calls are no partners: what comes after them agrees
    return RankDifferences(
        rank, (first, second), partners, tuple(found.values()), tuple(random.values()), changed, tuple(unjudged.values()), offs_of
    )


def _members(values: Iterable[Value]) -> set[str]:
    """Return the texts of the tensors of lists, and "" for those that the text of a long list leaves out."""
    lists = [value.text for value in values if value.is_tensor and value.text.startswith("[")]
    return {text for one in lists for text in _MEMBER.findall(one)} | {"" for one in lists if "..." in one}


def _add(loose: dict[str, float], texts: Iterable[str], apart: float) -> None:
    loose.update({text: max(apart, loose.get(text, 0.0)) for text in texts})


def _are_members(call: RecordedCall, other: RecordedCall, loose: Mapping[str, float]) -> bool:
    """Return whether inputs that differ may be members of lists, or lists of such."""
    found = False
    for x, y in zip(call.inputs, other.inputs, strict=False):
        if x.digest is None or y.digest is None or relative_distance(x.digest, y.digest) <= _SAME:
            continue
        found = True
        if distance(x.digest, y.digest) > max(loose.get(text, 0.0) for text in ("", x.text, *_members([x]))):
            return False
    return found


def difference_of_calls(call: RecordedCall, other: RecordedCall, *, tf32: bool) -> CallDifference | None:
    """Return how a call differs in two runs by more than its inputs and rounding explain, or None."""
    found = _worst(call, other, _distances(call, other), distance_of_inputs(call, other), {}, tf32)
    return None if found is None or found.allowed == math.inf else found


def _worst(
    call: RecordedCall, other: RecordedCall, offs: Sequence[tuple[int, float]], drift: float, noise: _Noise, tf32: bool
) -> CallDifference | None:
    """Return how a call whose inputs agree differs, or None. If its inputs may explain it, the allowed distance is infinite."""
    if bool(call.error) != bool(other.error):
        return CallDifference("error", call, other, call.error or other.error, math.inf, 0.0, drift)
    worst: CallDifference | None = None
    unjudged: CallDifference | None = None
    badness = 1.0
    for index, off in offs:
        if not off:
            continue
        measured = noise.get((call.number, index), 0.0)
        allowed = allowed_distance(call, other, index, drift, tf32) + _NOISE * measured
        relative = _relative(call, other, index, off)
        part = relative / off if math.isfinite(off) else 1.0
        pairs = [(relative, allowed * part)] if measured else [(relative, allowed * part), beside_large(call, other, index, drift)]
        for found, limit in pairs:
            if found > limit and found / max(limit, 1e-300) > badness:
                badness = found / max(limit, 1e-300)
                draws = (call.random or other.random) and not _drew_the_same(call, other)
                kind = "random" if draws else "values"
                worst = CallDifference(kind, call, other, call.outputs[index].name, found, limit, drift)
        if worst is None and allowed == math.inf and not measured and AGREE < relative < math.inf:
            unjudged = CallDifference("values", call, other, call.outputs[index].name, relative, allowed, drift)
    return worst or unjudged


def _drew_the_same(call: RecordedCall, other: RecordedCall) -> bool:
    """Return whether one of the outputs, such as the mask of a dropout, shows that two random calls drew the same numbers."""
    return any(x.digest and y.digest and x.digest.hash == y.digest.hash for x, y in zip(call.outputs, other.outputs, strict=False))


def _distances(call: RecordedCall, other: RecordedCall) -> list[tuple[int, float]]:
    """Return the index and the distance of each output whose values are defined and comparable."""
    op = op_named(call.op)
    ties = op is not None and facts_of(op).finds_ties
    results = len(call.outputs) if call.packet == other.packet else 3 if family(call.packet) == "attention backward" else 1
    found = []
    for index, (x, y) in enumerate(zip(call.outputs[:results], other.outputs[:results], strict=False)):
        tie = ties and index == 1
        if x.digest is None or y.digest is None or tie or (op is not None and is_arbitrary(op, index)):
            continue
        found.append((index, distance_of_values(x, y)))
    return found


def _relative(call: RecordedCall, other: RecordedCall, index: int, off: float) -> float:
    norms = [one.digest.norm for one in (call.outputs[index], other.outputs[index]) if one.digest is not None]
    return off / max(*norms, 1e-300) if math.isfinite(off) else off


def _uses_tf32(run: RecordedRun) -> bool:
    calls = (run.calls.site(number) for number in range(min(1000, len(run.calls))))
    on_cuda = any(" on cuda" in value.text for call in calls for value in call.inputs)
    return on_cuda and any(run.header.get("tf32", ()))


# -- inputs that differ ------------------------------------------------------------------------------------------------------


def _changed(
    first: RecordedRun,
    second: RecordedRun,
    partners: array[int],
    call: RecordedCall,
    other: RecordedCall,
    agreed: set[tuple[int, int]],
    texts: set[str],
) -> Changed | None:
    """Explain why the inputs of a call differ although all earlier calls agree.

    Return None if rounding explains it: partners made the values (`agreed`), but nothing is left of them but their rounding errors,
    such as a gradient that is 0 in exact arithmetic. `texts` are those of the tensors that earlier calls made.
    """
    for x, y in zip(call.inputs, other.inputs, strict=False):
        if x.digest is None or y.digest is None:
            if not x.is_tensor and x.constant != y.constant:
                return Changed(call, other, x.name, math.inf, f"the program passes {x.text} in one run and {y.text} in the other")
            continue
        relative = relative_distance(x.digest, y.digest)
        if relative <= _same(x) or (x.number, y.number) in agreed:
            continue
        made = _call_that_made(first, call.number, x.number)
        beside = _call_that_made(second, other.number, y.number)
        if made is None and x.text.startswith("[") and texts.issuperset(_MEMBER.findall(x.text)):
            continue  # calls made tensors like those of the list, such as gradients, so nothing says that it is from outside
        if made is None:
            suspect = _last_reader(second, other.number, x.digest.hash)
            outside = "no recorded call made it in the first run: it is data or a weight from outside the recording"
            why = outside if suspect is None else "it was changed after it was read, by no call that should write it"
            return Changed(call, other, x.name, relative, why, suspect)
        partner = partners[made.number]
        if partner < 0:
            why = f"call {made.number} ({made.op}) made it, which has no partner"
            return Changed(call, other, x.name, relative, why, partnered=False)
        reader = _last_reader(second, other.number, x.digest.hash)
        if beside is not None and (reader is None or beside.number != reader.number):
            why = f"call {made.number} ({made.op}) made it in the first run, and call {beside.number} ({beside.op}) in the second"
            return Changed(call, other, x.name, relative, why, partnered=False)
        why = f"call {partner} ({made.op}) made it, and it was changed since, by no call that should write it"
        return Changed(call, other, x.name, relative, why, reader)
    return None


def _same(value: Value) -> float:
    dtype = dtype_of(value.text)
    return max(_SAME, _ROUNDINGS * torch.finfo(dtype).eps) if dtype is not None and dtype.is_floating_point else _SAME


def _last_reader(run: RecordedRun, before: int, hash_: int) -> RecordedCall | None:
    """Return the last call before another one that had these values as an input."""
    for call in map(run.calls.__getitem__, range(before - 1, -1, -1)):
        if any(value.digest is not None and value.digest.hash == hash_ for value in call.inputs):
            return call
    return None


def _call_that_made(run: RecordedRun, before: int, digest: int) -> RecordedCall | None:
    """Return the last call before another one that had a digest as an output; for a view, the call that made what it views."""
    for call in map(run.calls.__getitem__, range(before - 1, -1, -1)):
        if digest >= 0 and any(value.number == digest for value in call.outputs):
            if not _is_view(call.op):
                return call
            digest = call.inputs[0].number
    return None


@cache
def _is_view(name: str) -> bool:
    op = op_named(name)
    return op is not None and op.is_view


def _call_dict(first: RecordedCall, second: RecordedCall) -> dict[str, Any]:
    names = {"op": first.op, "module": first.module, "phase": first.phase, "where": first.where, "call": str(first)}
    return {**names, "numbers": [first.number, second.number]}


def _plain(number: float) -> float | str:
    return number if math.isfinite(number) else str(number)


def by_module(differences: Sequence[CallDifference]) -> Iterator[CallDifference]:
    """Yield the first difference in each module."""
    seen = set()
    for one in differences:
        if one.first.module not in seen:
            seen.add(one.first.module)
            yield one
