"""Align the calls of two runs. Calls may be missing, repeated or in another order.

Calls are matched per kind, so the order of kinds does not matter: first by op, module, phase and sizes, then the rest by less. The
calls of a kind are matched in order. If one run has more of them, those are skipped whose inputs fit worst.

A wrong match does no harm: two calls of one op with the same inputs must have the same outputs, wherever they are. So only calls
whose inputs agree are judged.
"""

from __future__ import annotations

import re
from array import array
from collections import defaultdict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence

from eagerdecomp.recording.rounding import distance_of_inputs, shape_of
from eagerdecomp.recording.run_folder import Calls, RecordedCall

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
    # Also of tensors that are not read, as by `zeros_like`, and lists of numbers, such as the sizes of `ones`.
    sized = (value for value in call.inputs if value.is_tensor or isinstance(value.constant, list))
    return tuple(_SIZED.sub("", value.text) for value in sized)


def _shapes(call: RecordedCall) -> Hashable:
    return tuple(shape_of(value.text) for value in call.inputs if value.is_tensor)


# What calls must have in common, in the order in which it is tried.
_KINDS: Sequence[Callable[[RecordedCall], Hashable]] = (
    lambda call: (call.packet, call.module, call.phase, _sizes(call)),
    lambda call: (family(call.packet), call.phase, call.module.partition(".")[2], _shapes(call)),
    lambda call: (family(call.packet), call.phase, _shapes(call)),
)


def aligned(first: Calls, second: Calls) -> array[int]:
    """Return for each call of the first run the number of its partner in the second; -1 if it has none."""
    found = array("i", [-1]) * len(first)
    left: tuple[Sequence[int], Sequence[int]] = (range(len(first)), range(len(second)))
    for kind in _KINDS:
        groups: dict[Hashable, tuple[array[int], array[int]]] = defaultdict(lambda: (array("i"), array("i")))
        for side, calls in enumerate((first, second)):
            kinds: dict[int, tuple[array[int], array[int]]] = {}  # by site
            for number in left[side]:
                site = calls.site_number(number)
                if site not in kinds:
                    kinds[site] = groups[kind(calls.site(number))]
                kinds[site][side].append(number)
        matched = bytearray(len(second))
        for one, other in groups.values():
            for x, y in _matched(one, other, first, second):
                found[x] = y
                matched[y] = True
        left = (array("i", (x for x in left[0] if found[x] < 0)), array("i", (y for y in left[1] if not matched[y])))
    return found


def _matched(one: Sequence[int], other: Sequence[int], first: Calls, second: Calls) -> Iterable[tuple[int, int]]:
    """Match all calls of the shorter list, in order."""
    if len(one) > len(other):
        return [(y, x) for x, y in _matched(other, one, second, first)]
    extra = len(other) - len(one)
    if not one or not extra:
        return zip(one, other, strict=False)
    if len(one) * (extra + 1) > _COMPARISONS:
        return zip(one, other[_best_shift(one, other, first, second) :], strict=False)
    # Dynamic programming over the number of calls of `other` that are skipped so far.
    costs = [0.0] * (extra + 1)
    choices: list[list[int]] = []
    others = deque((second[number] for number in other[:extra]), extra + 1)
    for place, number in enumerate(one):
        call = first[number]
        others.append(second[other[place + extra]])
        best, chosen = float("inf"), 0
        row: list[float] = []
        choice: list[int] = []
        for skipped, beside in enumerate(others):
            if costs[skipped] < best:
                best, chosen = costs[skipped], skipped
            row.append(best + _unlikeness(call, beside))
            choice.append(chosen)
        costs = row
        choices.append(choice)
    skipped = min(range(extra + 1), key=costs.__getitem__)
    pairs = []
    for place in range(len(one) - 1, -1, -1):
        pairs.append((one[place], other[place + skipped]))
        skipped = choices[place][skipped]
    return pairs[::-1]


def _best_shift(one: Sequence[int], other: Sequence[int], first: Calls, second: Calls) -> int:
    extra = len(other) - len(one)
    places = range(0, len(one), max(1, len(one) // _SAMPLES))
    shifts = range(0, extra + 1, max(1, (extra + 1) * len(places) // _COMPARISONS))
    return min(shifts, key=lambda shift: sum(_unlikeness(first[one[place]], second[other[place + shift]]) for place in places))


def _unlikeness(one: RecordedCall, other: RecordedCall) -> float:
    # Outputs break ties: random calls may have no inputs.
    same = all(
        x.digest is None or y.digest is None or x.digest.hash == y.digest.hash
        for x, y in zip(one.outputs, other.outputs, strict=False)
    )
    return min(1.0, distance_of_inputs(one, other)) + (0.0 if same else 0.01)
