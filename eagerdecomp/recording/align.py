"""Align the calls of two runs. Calls may be missing, repeated or in another order.

Calls are matched per kind, so the order of kinds does not matter: first by op, module, phase and sizes, then the rest by less. The
calls of a kind are matched in order. If one run has more of them, those are skipped whose inputs fit worst.

A wrong match does no harm: two calls of one op with the same inputs must have the same outputs, wherever they are. So only calls
whose inputs agree are judged.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence

from eagerdecomp.recording.rounding import distance_of_inputs, shape_of
from eagerdecomp.recording.run_folder import RecordedCall

__all__ = ["aligned", "family"]

# Maximum number of comparisons for the calls of one kind. Above it, only whole shifts are tried, on samples.
_COMPARISONS = 200_000
_SAMPLES = 64

# Ops with which devices compute one function of torch -> a common name. Only their first results have one meaning.
_FAMILIES = [
    (re.compile(r"aten\._scaled_dot_product_.*(?<!backward)"), "attention"),
    (re.compile(r"aten\._scaled_dot_product_.*backward"), "attention backward"),
    (
        re.compile(r"aten\.(cudnn_|miopen_|mkldnn_)?convolution(_overrideable)?|aten\.(_|slow_|thnn_)?conv.*(?<!backward)"),
        "convolution",
    ),
    (re.compile(r"aten\.(cudnn_|miopen_|native_|_native_)?batch_norm(_legit.*)?"), "batch norm"),
]

_SIZED = re.compile(r" on \w+(:\d+)?")


def family(packet: str) -> str:
    """Return the common name of the ops that compute one function of torch; that of an op without such a family is its own."""
    return next((name for pattern, name in _FAMILIES if pattern.fullmatch(packet)), packet)


def _sizes(call: RecordedCall) -> Hashable:
    return tuple(_SIZED.sub("", value.text) for value in call.inputs if value.digest is not None)


def _shapes(call: RecordedCall) -> Hashable:
    return tuple(shape_of(value.text) for value in call.inputs if value.digest is not None)


# What calls must have in common, in the order in which it is tried.
_KINDS: Sequence[Callable[[RecordedCall], Hashable]] = (
    lambda call: (call.packet, call.module, call.phase, _sizes(call)),
    lambda call: (family(call.packet), call.phase, call.module.partition(".")[2], _shapes(call)),
    lambda call: (family(call.packet), call.phase, _shapes(call)),
)


def aligned(first: Sequence[RecordedCall], second: Sequence[RecordedCall]) -> dict[int, int]:
    """Return the number of each call of the first run -> the number of its partner in the second."""
    found: dict[int, int] = {}
    left: tuple[Sequence[RecordedCall], Sequence[RecordedCall]] = (first, second)
    for kind in _KINDS:
        groups: dict[Hashable, tuple[list[RecordedCall], list[RecordedCall]]] = defaultdict(lambda: ([], []))
        for side, calls in enumerate(left):
            for call in calls:
                groups[kind(call)][side].append(call)
        matched: set[int] = set()
        for one, other in groups.values():
            for x, y in _matched(one, other):
                found[x.number] = y.number
                matched.add(y.number)
        left = ([x for x in left[0] if x.number not in found], [y for y in left[1] if y.number not in matched])
    return found


def _matched(one: Sequence[RecordedCall], other: Sequence[RecordedCall]) -> list[tuple[RecordedCall, RecordedCall]]:
    """Match all calls of the shorter list, in order."""
    if len(one) > len(other):
        return [(y, x) for x, y in _matched(other, one)]
    extra = len(other) - len(one)
    if not one or not extra:
        return list(zip(one, other, strict=False))
    if len(one) * (extra + 1) > _COMPARISONS:
        shift = _best_shift(one, other, extra)
        return list(zip(one, other[shift:], strict=False))
    # Dynamic programming over the number of calls of `other` that are skipped so far.
    costs = [0.0] * (extra + 1)
    choices: list[list[int]] = []
    for place, call in enumerate(one):
        best, chosen = float("inf"), 0
        row: list[float] = []
        choice: list[int] = []
        for skipped in range(extra + 1):
            if costs[skipped] < best:
                best, chosen = costs[skipped], skipped
            row.append(best + _unlikeness(call, other[place + skipped]))
            choice.append(chosen)
        costs = row
        choices.append(choice)
    skipped = min(range(extra + 1), key=costs.__getitem__)
    pairs = []
    for place in range(len(one) - 1, -1, -1):
        pairs.append((one[place], other[place + skipped]))
        skipped = choices[place][skipped]
    return pairs[::-1]


def _best_shift(one: Sequence[RecordedCall], other: Sequence[RecordedCall], extra: int) -> int:
    step = max(1, len(one) // _SAMPLES)
    places = range(0, len(one), step)
    shifts = range(0, extra + 1, max(1, (extra + 1) * len(places) // _COMPARISONS))
    return min(shifts, key=lambda shift: sum(_unlikeness(one[place], other[place + shift]) for place in places))


def _unlikeness(one: RecordedCall, other: RecordedCall) -> float:
    # Outputs break ties: random calls may have no inputs.
    same = all(
        x.digest is None or y.digest is None or x.digest.hash == y.digest.hash
        for x, y in zip(one.outputs, other.outputs, strict=False)
    )
    return min(1.0, distance_of_inputs(one, other)) + (0.0 if same else 0.01)
