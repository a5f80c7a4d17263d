"""Run a program on two backends side by side, each op on the same inputs."""

from __future__ import annotations

import difflib
import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import torch
from torch import Tensor

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload
from eagerdecomp._torch.tensors import desugars_first, lazy_bits_visible
from eagerdecomp.dispatcher.composites import CompositeMode
from eagerdecomp.eager.compare import Difference, difference, is_arbitrary, written_inputs
from eagerdecomp.eager.observe import Caught, Observed, observed
from eagerdecomp.errors import ArgumentError, ArgumentTypeError, UnsupportedOpError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import UserLines, places_in_words
from eagerdecomp.insight.comparison import Comparison, Divergence, Histogram, counted
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet, core_aten
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.verify.replay import CopiedCall, Draws, eager, why_not_compared

__all__ = ["Comparing", "Side", "compare"]

#: A backend, a set of ops, or plain eager.
Side: TypeAlias = "Backend | OpSet | Iterable[OpLike] | Literal['native']"


def compare(
    fn: Callable[[], Any],
    first: Side,
    second: Side,
    *,
    rules: Iterable[Rule] = (),
    on_unsupported: Literal["error", "fallback"] = "error",
) -> Comparison:
    """Run a function on two backends, and say which op diverges first and how far apart the values of each op are.

    Each op that the function calls runs on both backends with the same inputs, so that differences do not add up. The results and
    effects of the two calls are compared. A difference within rounding is not a divergence, but it counts in the histograms of
    ULPs. The function continues with the results of the first backend. Before that, the whole function runs once on each backend,
    to measure how far its outputs drift apart.

    Args:
        fn: the program. It runs three times from the same random state, so it must create its model itself. The drift is measured
            on the tensors that it returns, also in lists, tuples and dicts.
        first: a `Backend` or an op set, on the CPU, or ``"native"`` for plain eager.
        second: the other side, as for `first`.
        rules: as for `EagerDecompMode`, for both sides.
        on_unsupported: as for `EagerDecompMode`, for both sides.

    Returns:
        A comparison, true if the backends diverge. It prints as text; `Comparison.markdown` returns Markdown, and
        `Comparison.as_dict` returns plain values.

    Raises:
        ArgumentTypeError: if `fn` is not a function.
        ArgumentError: for a backend of a device other than the CPU (use `verify=` there), or for an unknown name of a side.
        RuleError: for two rules for one op.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def wrong(x):
        ...     return torch.ops.aten.sigmoid(x) * 1.01
        >>> x = torch.ones(2)
        >>> backend = ed.Backend("mine", ed.core_aten(), kernels={"aten.sigmoid.default": wrong})
        >>> comparison = ed.compare(lambda: torch.nn.functional.silu(x), backend, "native")
        >>> bool(comparison)
        True
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"compare takes a function, as in compare(lambda: model(x), first, second), not {type(fn).__name__}"
        )
    comparing = Comparing(first, second, rules=rules, on_unsupported=on_unsupported)
    state = torch.get_rng_state()
    outputs = []
    for side in comparing.sides():
        torch.set_rng_state(state)
        with side:
            outputs.append(_tensors(fn()))
    torch.set_rng_state(state)
    with Caught() as caught, comparing:
        fn()
    if caught.error is not None and not comparing.report():
        raise caught.error
    return replace(comparing.report(caught.error), drift=tuple(_drift(*outputs)))


def _tensors(value: Any) -> list[Tensor]:
    value = list(value.values()) if isinstance(value, dict) else value
    if isinstance(value, (list, tuple)):
        return [one for item in value for one in _tensors(item)]
    return [value] if isinstance(value, Tensor) else []


def _drift(first: Sequence[Tensor], second: Sequence[Tensor]) -> Iterator[Histogram]:
    found: dict[torch.dtype, Histogram] = {}
    for number, (one, other) in enumerate(zip(first, second, strict=False)):
        if one.dtype is other.dtype and one.shape == other.shape and one.numel():
            made = found.setdefault(one.dtype, Histogram("outputs", str(one.dtype).removeprefix("torch.")))
            made.calls = 1
            made.take(*counted(one, other), f"output {number}")
    yield from found.values()


class Comparing(CompositeMode):
    """The mode under which a program is run on two backends; arguments as for `compare`.

    Args:
        names: the names of the two sides in the report.
        progress: called after each compared call with the number of compared calls and the number of divergences.
    """

    def __init__(
        self,
        first: Side,
        second: Side,
        *,
        rules: Iterable[Rule] = (),
        on_unsupported: Literal["error", "fallback"] = "error",
        names: tuple[str, str] | None = None,
        progress: Callable[[int, int], None] | None = None,
    ) -> None:
        super().__init__()
        rules = tuple(index_rules(rules).values())
        self._backends = [_backend_of(one) for one in (first, second)]
        for backend in self._backends:
            if backend is not None and backend.device_type not in (None, "cpu"):
                raise ArgumentError(
                    f"backend {backend.name!r} is for {backend.device_type!r}, but compare runs both sides on the CPU. To check "
                    'calls on a device, pass verify="cpu" to EagerDecompMode or install()'
                )
        self._modes = [
            None if one is None else EagerDecompMode(one, cache=ProgramCache(), rules=rules, on_unsupported=on_unsupported)
            for one in self._backends
        ]
        self._names = names or _names(self._backends)
        self.kept = next((mode.kept for mode in self._modes if mode is not None and mode.kept is not None), None)
        known = next((one for one in self._backends if one is not None), None) or as_backend(core_aten())
        self._planner = planner_of(known, rules)
        self._lock = free_in_child(threading.RLock())
        self._lines = UserLines()
        self._found: dict[tuple[str, tuple[str, ...]], Divergence] = {}
        self._times: Counter[tuple[str, tuple[str, ...]]] = Counter()
        self._histograms: dict[tuple[str, str], Histogram] = {}
        self._skipped: Counter[str] = Counter()
        self._compared = self._random = 0
        self._progress = progress

    def sides(self) -> list[Any]:
        """Return the mode to enter for each side."""
        return [nullcontext() if mode is None else mode for mode in self._modes]

    def report(self, error: Exception | None = None) -> Comparison:
        """Return the findings so far."""
        found = tuple(replace(one, times=self._times[key]) for key, one in self._found.items())
        rows = sorted(self._histograms.values(), key=lambda one: (-(one.worst_ulps or 0), -one.counts[-1], one.op))
        return Comparison(self._names, found, tuple(rows), self._compared, self._random, dict(self._skipped), error=error)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator) or self._planner.decide(func).passthrough:
            return func(*args, **kwargs)
        why = why_not_compared(self._planner, func, args, kwargs)
        if why:
            self._skipped[why] += 1
            return self._run(0, func, types, args, kwargs)
        with self._lock:
            return self._side_by_side(func, types, args, kwargs)

    def _run(self, side: int, op: OpOverload, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        mode = self._modes[side]
        return eager(op)(*args, **kwargs) if mode is None else mode.__torch_dispatch__(op, types, args, kwargs)

    def _side_by_side(self, op: OpOverload, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        with no_current_modes():
            call, draws = CopiedCall(op, args, kwargs), Draws(op, args, kwargs)
            copies, named = call.arguments()
        with Caught() as second:
            other = self._run(1, op, types, copies, named)
        with no_current_modes():
            drew = draws.moved()
            draws.restore()
        result = None
        with Caught() as caught:
            result = self._run(0, op, types, args, kwargs)
        for error in (caught.error, second.error):
            if isinstance(error, UnsupportedOpError):
                raise error
        with no_current_modes(), lazy_bits_visible():
            drew = drew or draws.moved()
            want = observed(result, args, kwargs, caught.error)
            have = observed(other if second.error is None else None, copies, named, second.error)
            found = _difference_of(call, want, have, not drew)
            self._compared += 1
            self._random += drew
            if not drew and want.error is None and have.error is None:
                self._count(call, want, have)
            if found is not None:
                self._report(call, want, have, found, drew)
            if self._progress is not None:
                self._progress(self._compared, len(self._found))
        if caught.error is not None:
            try:
                raise caught.error
            finally:
                del caught, want  # otherwise the frame and the error would keep each other alive
        return result

    def _count(self, call: CopiedCall, want: Observed, have: Observed) -> None:
        """Add the values of a call's results and written arguments to the histograms."""
        pairs = [pair for place, pair in enumerate(zip(want.leaves, have.leaves, strict=False)) if not is_arbitrary(call.op, place)]
        written = written_inputs(call.op, *call.kept()) - set(want.same)
        pairs += [(want.inputs[place], have.inputs[place]) for place in written]
        seen = set()
        for one, other in pairs:
            fits = isinstance(one, Tensor) and isinstance(other, Tensor) and one.layout is torch.strided
            if fits and one.dtype is other.dtype and one.shape == other.shape and one.numel():
                key = (str(call.op), str(one.dtype).removeprefix("torch."))
                made = self._histograms.setdefault(key, Histogram(*key))
                made.take(*counted(one, other), call.text)
                made.calls += key not in seen
                seen.add(key)

    def _report(self, call: CopiedCall, want: Observed, have: Observed, found: Difference, drew: bool) -> None:
        number = self._lines.number_of(sys._getframe(2), self._lines.of_thread())
        key = (str(call.op), places_in_words(self._lines.lines()[number]))
        self._times[key] += 1
        if key in self._found:
            return
        draws = Draws(call.op, *call.kept())
        native = call.eager()
        draws.restore()
        wrong = [
            name
            for name, made in zip(self._names, (want, have), strict=True)
            if difference(call.op, *call.kept(), native, made, eager(call.op), values=not drew, strides="visible") is not None
        ]
        self._found[key] = Divergence(str(call.op), call.text, key[1], found, tuple(wrong))


def _difference_of(call: CopiedCall, want: Observed, have: Observed, values: bool) -> Difference | None:
    """Return how two results differ, or None. Each result serves as the reference once, so either may have eager's rounding."""
    compare = functools.partial(difference, call.op, *call.kept(), native=eager(call.op), values=values, strides="visible")
    found = compare(want, have)
    if found is not None:
        return found
    found = compare(have, want)
    return None if found is None else replace(found, expected=found.got, got=found.expected)


def _backend_of(side: Side) -> Backend | None:
    """Return the backend of a side; None for plain eager.

    Raises:
        ArgumentError: for a string other than ``"native"``.
    """
    if not isinstance(side, str):
        return as_backend(side)
    if side == "native":
        return None
    close = " Did you mean 'native'?" if difflib.get_close_matches(side, ["native"]) else ""
    raise ArgumentError(f"a side to compare must be a Backend, an op set, or 'native' for plain eager, not {side!r}.{close}")


def _names(made: Sequence[Backend | None]) -> tuple[str, str]:
    first, second = ("native" if one is None else one.name if one.name != "anonymous" else repr(one.ops) for one in made)
    return (first, second) if first != second else (f"{first} (first)", f"{second} (second)")
