"""Test kernels together: in decomposed ops, and in random programs of views and writes."""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.conformance.decomposed_ops import DecomposedCall, decomposed_calls, run_calls
from eagerdecomp.conformance.results import Consequence, Failure, Verdict
from eagerdecomp.conformance.trial import hash_of
from eagerdecomp.conformance.view_programs import programs_of_views
from eagerdecomp.conformance.workers import Beat, Lost, done_in_processes
from eagerdecomp.ops.backend import Backend
from eagerdecomp.ops.opset import resolve_ops

__all__ = ["Together", "tried_together"]

# Number of calls of decomposed ops, and of random programs, per process.
_CHUNK = 100
_VIEWS = 80

# Factor of the timeout for random programs, which report no progress.
_LONGER = 10


@dataclass(frozen=True)
class Together:
    """How much to test: number of calls of decomposed ops, number of random programs of views, and timeout in seconds."""

    programs: int
    views: int
    patience: float


def tried_together(
    backend: Backend, effort: Together, seed: int, processes: int, verdicts: Mapping[OpOverload, Verdict]
) -> tuple[dict[OpOverload, Verdict], tuple[Consequence, ...], int]:
    """Return the verdicts with failures added, the wrong decomposed ops (each with the kernel to blame), and the number of calls.

    Args:
        backend: the backend, without kernels that end their process.
        effort: how much to test.
        seed: seed of random choices.
        processes: number of processes at a time; 0 runs everything in this process.
        verdicts: the verdict on each kernel alone. A failure that a wrong kernel causes is a consequence.
    """
    changed: dict[OpOverload, Verdict] = {}
    found: list[Consequence] = []
    calls = 0
    if not backend.kernels:
        return {}, (), 0
    wanted = decomposed_calls(backend, hash_of(seed, "programs"), effort.programs)
    chunks = [wanted[start : start + _CHUNK] for start in range(0, len(wanted), _CHUNK)]
    for result in _chunks(backend, chunks, effort.patience, processes, seed):
        if isinstance(result, Failure):
            changed[result.op] = Verdict(result.op, "wrong", failures=(result,), note="decomposed into the backend's kernels")
            continue
        calls += result["calls"]
        for one in result["blamed"]:
            blamed, program = resolve_ops([one["blamed"]])[0], resolve_ops([one["op"]])[0]
            found.append(Consequence(program, one["call"], blamed, one["message"]))
            message = f"{one['message']} where {program} calls it"
            _blame(
                changed, verdicts, Failure(blamed, "program", message, one["kernel_call"], one["expected"], one["got"], "", seed)
            )
    for failure in _views(backend, effort, processes, seed):
        _blame(changed, verdicts, failure)
    return changed, tuple(sorted(found, key=lambda one: (str(one.blamed), str(one.op), one.call))), calls


def _blame(changed: dict[OpOverload, Verdict], verdicts: Mapping[OpOverload, Verdict], failure: Failure) -> None:
    verdict = changed.get(failure.op) or verdicts.get(failure.op) or Verdict(failure.op, "not exercised")
    if verdict.state != "wrong":
        changed[failure.op] = replace(verdict, state="wrong", failures=(failure,))


# -- ops that are decomposed ------------------------------------------------------------------------------------------------


def _chunks(
    backend: Backend, chunks: Sequence[Sequence[DecomposedCall]], patience: float, processes: int, seed: int
) -> Iterable[dict[str, Any] | Failure]:
    """Yield the findings of each chunk; a call that ended its process is a failure, and the rest run in another process."""
    if not processes:
        yield from (_blamed(backend, [chunk], 0, lambda value: None) for chunk in chunks)
    while processes and chunks:
        left: list[Sequence[DecomposedCall]] = []
        for number, result in done_in_processes(
            range(len(chunks)), functools.partial(_blamed, backend, chunks), processes, patience
        ):
            if not isinstance(result, Lost):
                yield result
                continue
            reached = result.last or 0
            program = chunks[number][reached]
            message, call = f"{result.message} in a call of it", f"{program.op}({program.call})"
            yield Failure(program.op, result.how, message, call, "a result", result.message, "", seed)
            left += [part for part in (chunks[number][:reached], chunks[number][reached + 1 :]) if part]
        chunks = left


def _blamed(backend: Backend, chunks: Sequence[Sequence[DecomposedCall]], job: int, beat: Beat) -> dict[str, Any]:
    blamed, calls = [], 0
    for program, found, why in run_calls(backend, chunks[job], beat):
        calls += not why
        if found is None or found.culprit.kind != "kernel" or found.culprit.difference is None:
            continue
        difference = found.culprit.difference
        blamed.append(
            {
                "op": str(program.op),
                "call": program.call,
                "blamed": found.culprit.op,
                "kernel_call": found.culprit.call,
                "message": str(difference),
                "expected": str(difference.expected),
                "got": str(difference.got),
            }
        )
    return {"calls": calls, "blamed": blamed}


# -- programs of views -------------------------------------------------------------------------------------------------------


def _views(backend: Backend, effort: Together, processes: int, seed: int) -> Iterable[Failure]:
    """Run random programs and return their failures."""
    if not effort.views:
        return
    seeds = [hash_of(seed, "views", number) for number in range(-(-effort.views // _VIEWS))]
    if not processes:
        for one in seeds:
            yield from programs_of_views(backend, one, _VIEWS)
        return
    work = functools.partial(_viewed, backend, seeds)
    for _, result in done_in_processes(range(len(seeds)), work, processes, _LONGER * effort.patience):
        if not isinstance(result, Lost):
            yield from (Failure(**{**one, "op": resolve_ops([one["op"]])[0]}) for one in result)


def _viewed(backend: Backend, seeds: Sequence[int], job: int, beat: Beat) -> list[dict[str, Any]]:
    found = programs_of_views(backend, seeds[job], _VIEWS)
    return [{**vars(one), "op": str(one.op)} for one in found]
