"""Blame: run a program on a backend, and compare each call with native eager up to the first difference."""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any, Literal

import torch

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import HigherOrderOperator, OpOverload, builtin
from eagerdecomp._torch.tensors import desugars_first
from eagerdecomp.dispatcher.composites import CompositeMode
from eagerdecomp.eager.compare import Difference
from eagerdecomp.eager.observe import Caught
from eagerdecomp.errors import ArgumentTypeError
from eagerdecomp.frontends.mode import EagerDecompMode
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import ForwardLines, Line, UserLines, places_in_words
from eagerdecomp.ops.backend import Backend, as_backend
from eagerdecomp.ops.opset import OpLike, OpSet
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.rules.rule import Rule
from eagerdecomp.rules.user_rules import index_rules
from eagerdecomp.runtime.cache import ProgramCache
from eagerdecomp.verify.findings import Blame, BlameReport, Culprit
from eagerdecomp.verify.replay import (
    CopiedCall,
    Draws,
    Finding,
    allowed_strides,
    compared,
    culprit_of,
    kernel_for,
    replayed,
    why_not_compared,
)
from eagerdecomp.verify.reproducer import Named, named_backend, reproducer

__all__ = ["BlameMode", "blame"]

# Number of times to repeat a call in a new mode, so that the rule and then its cached program run. With a compile hook more calls
# are needed, until the compiled function runs too.
_REPEATS = 3
_REPEATS_WITH_HOOK = 40


def blame(
    fn: Callable[[], Any],
    supported_ops: Backend | OpSet | Iterable[OpLike],
    *,
    rules: Iterable[Rule] = (),
    every: bool = False,
    on_unsupported: Literal["error", "fallback"] = "error",
    reproducers: bool = True,
) -> BlameReport:
    """Find the first op whose result on a backend is not eager's, and the kernel or rule to blame for it.

    Each call that runs a kernel of the backend or a rule is also run in eager, on copies of its inputs. The results and effects are
    compared: values, dtypes, shapes, strides, views, writes. For random ops only dtypes, shapes and strides are compared. The
    program continues with the backend's results, and stops at the first difference.

    Args:
        fn: the program. If it enters an `EagerDecompMode` itself, that mode decomposes the program's calls first. Then only the
            kernel calls of that mode are compared; `BlameReport.inside` is their number.
        supported_ops: as for `EagerDecompMode`. Kernels and rules are compared with eager, torch's own kernels are not.
        rules: as for `EagerDecompMode`.
        every: run the program to its end, and find every op and line that differs.
        on_unsupported: as for `EagerDecompMode`.
        reproducers: write a script for each difference that reproduces it without the program.

    Returns:
        A report, true if a difference was found. It prints as text; `BlameReport.as_dict` gives plain values.

    Raises:
        OpSetError: for an unknown op name.
        RuleError: for two rules for one op.
        ArgumentTypeError: if `fn` is not a function.
        UnsupportedOpError: for a call without a route, unless `on_unsupported` is ``"fallback"``.

    An error of `fn` is raised too. If a difference was found before it, it is in `BlameReport.error` instead.

    Examples:
        >>> import torch
        >>> import eagerdecomp as ed
        >>> def wrong(x):
        ...     return torch.ops.aten.sigmoid(x) * 1.01
        >>> x = torch.ones(2)
        >>> backend = ed.Backend("mine", ed.core_aten(), kernels={"aten.sigmoid.default": wrong})
        >>> report = ed.blame(lambda: torch.nn.functional.silu(x), backend)
        >>> report.found[0].culprit.kind, report.found[0].culprit.op
        ('kernel', 'aten.sigmoid.default')
    """
    if not callable(fn):
        raise ArgumentTypeError(
            f"blame takes a function without arguments, as in blame(lambda: f(x), ops), not {type(fn).__name__}"
        )
    watch = BlameMode(supported_ops, rules=rules, every=every, on_unsupported=on_unsupported, reproducers=reproducers)
    with Caught() as caught, watch.watching():
        fn()
    if caught.error is not None and not watch.report():
        raise caught.error
    return watch.report(caught.error)


class _StopProgram(BaseException):
    """Raised to end a program after its first difference. It is no `Exception`, so that the program does not catch it."""


class BlameMode(CompositeMode):
    """The mode under which a program is compared with eager; arguments as for `blame`.

    Args:
        named: the code that names the backend in a reproducer; by default it is derived from `supported_ops` and `rules`.
    """

    def __init__(
        self,
        supported_ops: Backend | OpSet | Iterable[OpLike],
        *,
        rules: Iterable[Rule] = (),
        every: bool = False,
        on_unsupported: Literal["error", "fallback"] = "error",
        reproducers: bool = True,
        named: Named | None = None,
    ) -> None:
        super().__init__()
        backend = as_backend(supported_ops)
        given, rules = rules, tuple(index_rules(rules).values())
        self._named = named or named_backend(backend, rules, supported_ops, given)
        self._planner = planner_of(backend, rules)
        self._backend = backend
        self._options: dict[str, Any] = {"rules": rules, "on_unsupported": on_unsupported}
        self._mode = self._new_mode()
        self.kept = self._mode.kept  # keep the composites that the mode keeps
        self._every = every
        self._repeat = _REPEATS if backend.compile is None else _REPEATS_WITH_HOOK
        self._reproducers = reproducers
        self._lock = free_in_child(threading.RLock())
        self._lines = UserLines()
        self._thread = threading.local()
        self._found: dict[tuple[str, Line], Blame] = {}
        self._times: Counter[tuple[str, Line]] = Counter()
        self._skipped: Counter[str] = Counter()
        # Numbers of calls for `BlameReport`; `_drew` is its `random`.
        self._compared = self._native = self._drew = self._inside = 0

    @contextmanager
    def watching(self) -> Iterator[BlameMode]:
        """Return a context manager that enters the mode, and hides the exception that ends the program early."""
        try:
            with self:
                yield self
        except _StopProgram:
            pass

    def report(self, error: Exception | None = None) -> BlameReport:
        """Return the findings so far."""
        found = tuple(Blame(**{**vars(one), "times": self._times[key]}) for key, one in self._found.items())
        counts = (self._compared, self._native, self._drew, dict(self._skipped))
        return BlameReport(found, *counts, repr(self._backend), error, self._inside)

    def _new_mode(self) -> EagerDecompMode:
        # Use a separate cache, so that faults of cached programs are not shared with other modes.
        return EagerDecompMode(self._backend, cache=ProgramCache(), **self._options)

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if types and desugars_first(types):
            return NotImplemented
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*map(self._wrap_function, args), **{name: self._wrap_function(value) for name, value in kwargs.items()})
        if self._found and not self._every:
            raise _StopProgram
        line = self._lines.number_of(sys._getframe(1), self._forward_lines())
        if self._planner.decide(func).passthrough:
            return func(*args, **kwargs)
        self._inside += _called_by_inner_mode(sys._getframe(1))
        why = why_not_compared(self._planner, func, args, kwargs)
        if why or kernel_for(self._planner, func, args, kwargs) is builtin(func):
            self._skipped.update([why] if why else ())
            self._native += not why
            return self._mode.__torch_dispatch__(func, types, args, kwargs)
        with self._lock:
            return self._run_and_compare(func, types, args, kwargs, line)

    def _wrap_function(self, value: Any) -> Any:
        """Wrap a function for a higher-order op to run in this mode."""
        if not callable(value) or isinstance(value, torch.Tensor):
            return value

        def entered(*args: Any, **kwargs: Any) -> Any:
            with self:
                return value(*args, **kwargs)

        return entered

    def _forward_lines(self) -> ForwardLines:
        own: ForwardLines | None = getattr(self._thread, "lines", None)
        if own is None:
            own = self._thread.lines = self._lines.of_thread()
        return own

    def _run_and_compare(
        self, op: OpOverload, types: Sequence[type], args: Sequence[Any], kwargs: dict[str, Any], line: int
    ) -> Any:
        with no_current_modes():
            call, draws = CopiedCall(op, args, kwargs), Draws(op, args, kwargs)
        made = compared(
            call,
            args,
            kwargs,
            lambda: self._mode.__torch_dispatch__(op, types, args, kwargs),
            lambda: allowed_strides(self._planner, call),
        )
        self._compared += made.was_compared
        self._drew += made.random
        if made.difference is not None:
            with no_current_modes():
                after = Draws(op, args, kwargs)
                self._blame(call, draws, made.difference, self._lines.lines()[line])
                after.restore()
            if not self._every:
                raise _StopProgram
        if made.error is not None:
            try:
                raise made.error
            finally:
                del made  # otherwise the frame and the error would keep each other alive
        return made.result

    # -- the kernel or rule to blame --------------------------------------------------------------------------------------

    def _blame(self, call: CopiedCall, draws: Draws, found: Difference, line: Line) -> None:
        key = (str(call.op), line)
        self._times[key] += 1
        if key in self._found:
            return
        draws.restore()
        finding = replayed(self._planner, call)
        draws.restore()
        run = self._mode.__torch_dispatch__
        culprit = culprit_of(call, finding, lambda *a, **k: run(call.op, (), a, k), self._backend.compile)
        script, data = self._script(call, found, finding, culprit) if self._reproducers else ("", b"")
        self._found[key] = Blame(str(call.op), call.text, places_in_words(line), found, culprit, script, data)

    def _script(self, call: CopiedCall, found: Difference, finding: Finding | None, culprit: Culprit) -> tuple[str, bytes]:
        """Return a script and its data file. The script reproduces the culprit's own call.

        If that call does not differ by itself, the script reproduces the program's call. Both are empty if that does not differ.
        """
        for one, wrong in ((finding.call, finding.difference), (call, found)) if finding is not None else ((call, found),):
            fails = self._fails(one.op, wrong)
            args, kwargs = one.kept()
            if fails(args, kwargs):
                about = (
                    f"{one.op} on {self._backend.name}: {wrong}.\n\nTo blame: the {culprit.kind} of {culprit.op}, {culprit.name}."
                )
                return reproducer(one.op, args, kwargs, self._named, about, fails, self._repeat)
        return "", b""

    def _fails(self, op: OpOverload, found: Difference) -> Callable[[Sequence[Any], Mapping[str, Any]], bool]:
        """Return a function that checks whether a call differs in the same way in a new mode."""

        def fails(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
            call, mode = CopiedCall(op, args, kwargs), self._new_mode()
            for _ in range(self._repeat):
                given, named = call.arguments()
                run = functools.partial(mode.__torch_dispatch__, op, (), given, named)
                made = compared(call, given, named, run, lambda: allowed_strides(self._planner, call))
                if made.difference is not None:
                    return made.difference.kind == found.kind and (
                        found.kind != "error" or made.difference.expected == found.expected
                    )
                if isinstance(made.error, Exception):
                    return False
            return False

        return fails


def _called_by_inner_mode(frame: FrameType | None) -> bool:
    """Return whether an inner mode, which the program entered itself, made the call."""
    while frame is not None and frame.f_code is not _MODE_DISPATCH_CODE:
        frame = frame.f_back
    return frame is not None


_MODE_DISPATCH_CODE = EagerDecompMode.__torch_dispatch__.__code__
