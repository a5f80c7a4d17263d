"""Compare some calls of a running program with native eager on the CPU, by wrapping handlers and kernels.

A mode without `verify=` has none of these wrappers: they are added when a handler or a backend is made.
"""

from __future__ import annotations

import functools
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import CodeType, FrameType
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from eagerdecomp._torch.modes import no_current_modes
from eagerdecomp._torch.ops import OpOverload, builtin
from eagerdecomp._torch.tensors import has_values, lazy_bits_visible
from eagerdecomp.eager.compare import Difference, difference
from eagerdecomp.eager.layouts import strides_of_kernel
from eagerdecomp.eager.observe import Caught, Observed, Strides, copied, leaves_of, observed
from eagerdecomp.errors import DifferenceError, UnsupportedOpError
from eagerdecomp.host.fork_safe import free_in_child
from eagerdecomp.host.source_lines import UserLines, places_in_words
from eagerdecomp.ops.backend import Backend, Kernel
from eagerdecomp.ops.call_text import describe_call
from eagerdecomp.ops.fast_calls import native
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, is_composite
from eagerdecomp.planner.planner import planner_of
from eagerdecomp.program.symbolic_sizes import plain
from eagerdecomp.rules.no_route import NoRoute
from eagerdecomp.rules.rule import Rule, place_of
from eagerdecomp.runtime.runtime import Watch
from eagerdecomp.verify.findings import Blame, Culprit
from eagerdecomp.verify.policy import Verified, Verify
from eagerdecomp.verify.replay import CopiedCall, Draws, culprit_of, eager, is_of_predicate, kernel_for, replayed, why_not_compared

__all__ = ["Verifying", "watch_of"]

# Maximum number of kinds of calls per op or kernel (see `Verify`).
_MAX_KINDS = 64

# Maximum number of differences that are stored; others are only counted.
_MAX_STORED = 1000

# The tensor types whose dtype, shape and strides are part of the kind of a call; see `_kind`.
_PLAIN = (Tensor, Parameter)

# Parts of error messages of CPU kernels for dtypes that another device may support.
_NO_KERNEL_MESSAGES = ("not implemented for", "not supported", "unsupported", "expected scalar type")


class _VerifierState(threading.local):
    """Per-thread state of the verifier."""

    checking = False  # a verified call is running: its kernels are verified too
    suspended = False  # the verifier itself makes calls: nothing is verified
    found = 0  # number of differences in the running calls
    other_strides = 0  # number of kernel results with other strides than eager's, from ops that may have other strides


class Verifying:
    """The verifier of one mode or installation, with its findings.

    Args:
        backend: the backend, before its kernels are wrapped.
        rules: the user's rules.
        spec: which calls to check, and what to do about a difference.
    """

    def __init__(self, backend: Backend, rules: Iterable[Rule], spec: Verify) -> None:
        self._backend = backend
        self._spec = spec
        self._planner = planner_of(backend, rules)
        # On a device other than the CPU, torch's own kernels are checked too, and results are compared on the CPU.
        self._on_other_device = backend.device_type not in (None, "cpu")
        self._state = _VerifierState()
        self._watched: set[CodeType] = set()  # the code objects of the wrappers
        self._lock = free_in_child(threading.RLock())
        self._checked: Counter[str] = Counter()
        self._skipped: Counter[str] = Counter()
        self._drew = 0  # number of checked calls that drew random numbers: `Verified.random`
        self._found: dict[tuple[Any, ...], Blame] = {}
        self._times: Counter[tuple[Any, ...]] = Counter()
        #: op, and whether its kernel or its handler is wrapped -> kind -> number of calls; see `_check_some_calls`.
        self._kinds: dict[tuple[OpOverload, bool], dict[Any, int]] = {}
        self._left_out = 0  # number of differences after the first `_MAX_STORED`, which are not stored

    def found(self) -> Verified:
        """Return the results so far."""
        with self._lock:
            blames = tuple(replace(one, times=self._times[key]) for key, one in self._found.items())
            return Verified(dict(self._checked), self._drew, dict(self._skipped), blames, self._left_out)

    def skip(self, why: str) -> None:
        """Count a call that was not checked, with the reason."""
        with self._lock:
            self._skipped[why] += 1

    # -- wrappers ----------------------------------------------------------------------------------------------------------

    def kernels(self) -> Backend:
        """Return the backend with its kernels wrapped."""
        kernels: dict[OpOverload, Kernel] = {op: self._kernel(op, kernel) for op, kernel in self._backend.kernels.items()}
        if self._on_other_device:
            kernels.update({op: self._kernel(op, native(op)) for op in self._backend.ops if op not in kernels and _computes(op)})
        return replace(self._backend, kernels=kernels)

    def watch(self, op: OpOverload, run: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap the handler of an op to check some of its calls.

        Return the handler unchanged if a kernel runs all calls of the op: then the wrapper of the kernel checks them.
        """
        decision = self._planner.decide(op)
        if decision.passthrough or (decision.kernel is not None and decision.when is None):
            return run

        def check(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            if kernel_for(self._planner, op, args, kwargs) is not None:
                return run(*args, **kwargs)
            return self._check(op, run, args, kwargs, "")

        return self._check_some_calls(op, run, check)

    def _kernel(self, op: OpOverload, kernel: Kernel) -> Kernel:
        if kernel in (op, builtin(op)) and not self._on_other_device:
            return kernel

        def check(op: OpOverload, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
            return self._check(op, kernel, args, kwargs, place_of(kernel))

        return functools.wraps(kernel)(self._check_some_calls(op, kernel, check, also_inside_checks=True))

    def _check_some_calls(
        self,
        op: OpOverload,
        run: Callable[..., Any],
        check: Callable[[OpOverload, Sequence[Any], dict[str, Any]], Any],
        *,
        also_inside_checks: bool = False,
    ) -> Callable[..., Any]:
        """Wrap `run` to use `check` for the first calls of each kind, and then for one call in `Verify.every`.

        Args:
            op: the overload.
            run: the handler or kernel.
            check: runs the call and compares it with eager.
            also_inside_checks: also use `check` for each call that is made within a call that is being checked. For kernels.
        """
        state, every, first = self._state, self._spec.every, self._spec.first
        # kind -> number of its calls. Kinds after the first `_MAX_KINDS` share the count of None: one call in `every` is checked.
        # A handler may be wrapped again, when a new one replaces it.
        counts = self._kinds.setdefault((op, also_inside_checks), {None: first})

        def watched(*args: Any, **kwargs: Any) -> Any:
            if state.suspended:
                return run(*args, **kwargs)
            kind = _kind((*args, *kwargs.values()) if kwargs else args)
            count = counts.get(kind)
            if count is None:
                if len(counts) <= _MAX_KINDS:
                    count = 0
                else:
                    kind, count = None, counts[None]
            counts[kind] = count = count + 1
            if count > first and count % every and not (also_inside_checks and state.checking):
                return run(*args, **kwargs)
            return check(op, args, kwargs)

        self._watched.add(watched.__code__)
        return watched

    # -- one call ----------------------------------------------------------------------------------------------------------

    def _check(self, op: OpOverload, run: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any], kernel: str) -> Any:
        """Run a call, run it natively on copies of its arguments, and compare; `kernel` is where its kernel is defined, or ""."""
        plain_args, plain_kwargs = plain(list(args)), {name: plain(value) for name, value in kwargs.items()}
        why = why_not_compared(self._planner, op, plain_args, plain_kwargs) or self._not_on_device(op, plain_args, plain_kwargs)
        if why:
            with self._lock:
                self._skipped.update([why] if why != _NOT_ON_DEVICE else ())
            return run(*args, **kwargs)
        state = self._state
        with self._suspended():
            call = CopiedCall(op, plain_args, plain_kwargs, to_cpu=self._on_other_device)
            draws = Draws(op, plain_args, plain_kwargs)
            want, drew = _native(call, draws)
        before, other_strides, was_checking, state.checking = state.found, state.other_strides, state.checking, True
        result = None
        try:
            with Caught() as caught:
                result = run(*args, **kwargs)
        finally:
            state.checking = was_checking
        found = None
        raised = (NoRoute, UnsupportedOpError, DifferenceError, MemoryError, torch.OutOfMemoryError)
        if not isinstance(caught.error, raised) and not is_of_predicate(caught.error):
            with self._suspended(), lazy_bits_visible():
                have = observed(result, plain_args, plain_kwargs, caught.error)
                drew = drew or draws.moved()
                # If a kernel may return other strides than eager, so may the ops that use its result.
                others: Strides = "any" if state.other_strides > other_strides else "exact"
                allowed = strides_of_kernel(op, *call.kept()) if kernel else others
                found = self._difference(call, want, have, drew, allowed, errors=not kernel)
            why = self._not_verified(want, have)
            with self._lock:
                if why:
                    self._skipped[why] += 1
                else:
                    self._checked[str(op)] += 1
                    self._drew += drew
        try:
            # A wrong kernel within the call has been reported already.
            if found is not None and state.found == before:
                self._report(call, draws, found, run, kernel, caught.error)
            if caught.error is not None:
                raise caught.error
        finally:
            del caught, want  # otherwise the frame and the error would keep each other alive
        return result

    @contextmanager
    def _suspended(self) -> Iterator[None]:
        """Suspend verification for calls that the verifier itself makes."""
        state = self._state
        before, state.suspended = state.suspended, True
        try:
            with no_current_modes():
                yield
        finally:
            state.suspended = before

    def _not_on_device(self, op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> str:
        """Return why a call is not checked if no tensor is on the backend's device; "" if one is."""
        device = self._backend.device_type
        if device is None:
            return ""
        every = list(leaves_of([*args, *kwargs.values()]))
        here = any(_device_type(one) == device for one in every)
        return "" if here or not any(_device_type(one) for one in every) else _NOT_ON_DEVICE

    def _difference(
        self, call: CopiedCall, want: Observed, have: Observed, drew: bool, allowed: Strides, *, errors: bool
    ) -> Difference | None:
        why = self._not_verified(want, have)
        if why == _NO_KERNEL or (why and self._on_other_device):
            return None
        if self._on_other_device:
            strayed = _wrong_device(call, want, have, self._backend.device_type or "")
            if strayed is not None:
                return strayed
            have = _on_cpu(have)
        compare = functools.partial(difference, call.op, *call.kept(), want, have, eager(call.op), values=not drew, errors=errors)
        found = compare(loose=self._spec.tolerance)
        if found is None or found.kind != "strides" or allowed == "exact":
            return found
        found = compare(loose=self._spec.tolerance, strides=allowed)
        self._state.other_strides += found is None or found.kind != "strides"
        return found

    def _not_verified(self, want: Observed, have: Observed) -> str:
        """Return why the values of a call cannot be compared with eager's; "" if they can."""
        tensors = [one for one in (*want.leaves, *want.inputs, *have.leaves, *have.inputs) if isinstance(one, Tensor)]
        other_device = self._on_other_device or any(one.is_meta for one in tensors)
        if other_device and want.error is not None and have.error is None and _is_absent(want.error):
            return _NO_KERNEL
        return "" if all(map(has_values, tensors)) else _NO_VALUES

    # -- a difference ------------------------------------------------------------------------------------------------------

    def _report(
        self, call: CopiedCall, draws: Draws, found: Difference, run: Callable[..., Any], kernel: str, error: Exception | None
    ) -> None:
        """Store a difference, and raise it if `Verify.on_difference` says so."""
        state = self._state
        state.found += 1
        lines = UserLines()
        number = lines.number_of(sys._getframe(2), lines.of_thread())
        where = places_in_words(lines.lines()[number])
        key = (str(call.op), where, found.kind)
        with self._lock:
            known = self._found.get(key)
        if known is None:
            with self._suspended():
                after = Draws(call.op, *call.kept())
                try:
                    culprit = self._culprit(call, draws, found, run, kernel)
                    culprit = replace(culprit, chain=(*self._outer_calls(sys._getframe(2)), *culprit.chain))
                    known = Blame(str(call.op), call.text, where, found, culprit)
                finally:
                    after.restore()
        with self._lock:
            if key in self._found or len(self._found) < _MAX_STORED:
                self._found.setdefault(key, known)
                self._times[key] += 1
            else:
                self._left_out += 1
        if self._spec.on_difference == "raise":
            raise DifferenceError(known) from error

    def _outer_calls(self, frame: FrameType | None) -> tuple[str, ...]:
        """Return the calls that led to the call in a frame, outermost first."""
        way = []
        while frame is not None:
            if frame.f_code in self._watched:
                made = frame.f_locals
                way.append(describe_call(made["op"], made["args"], made["kwargs"]))
            frame = frame.f_back
        return tuple(way[:0:-1])

    def _culprit(self, call: CopiedCall, draws: Draws, found: Difference, run: Callable[..., Any], kernel: str) -> Culprit:
        op = str(call.op)
        if self._on_other_device:  # the stored call is on the CPU, where the device's kernels cannot run; they were checked already
            rules = "its rules, or the program recorded from them: every kernel in it gave eager's result"
            return Culprit("kernel", op, kernel, call.text, found) if kernel else Culprit("program", op, rules, call.text, found)
        draws.restore()
        finding = replayed(self._planner, call)
        draws.restore()
        return culprit_of(call, finding, run, self._backend.compile, kernel)


def watch_of(watch: Watch | None, verifying: Verifying | None) -> Watch | None:
    """Return a wrapper that applies both wrappers to a handler."""
    if watch is None or verifying is None:
        return watch if verifying is None else verifying.watch
    inner, outer = watch, verifying.watch
    return lambda op, run: outer(op, inner(op, run))


_NOT_ON_DEVICE = "no tensor of the backend's device"
_NO_KERNEL = "eager has no kernel for it on the device that it is compared on"
_NO_VALUES = "meta, sparse, nested, fake or subclassed tensors have no values: only dtype, layout, device and shape were compared"


def _computes(op: OpOverload) -> bool:
    return not is_passthrough_name(str(op)) and not is_composite(op)


def _native(call: CopiedCall, draws: Draws) -> tuple[Observed, bool]:
    """Run a call in plain eager. Return its results and effects, and whether it drew random numbers. Restore generator states."""
    facts = facts_of(call.op)
    # Another thread may draw from the default generator meanwhile, so its state is changed only if it must be.
    if facts.is_random and any(argument.kind == "Generator" for argument in facts.arguments):
        generator = torch.Generator()
        before = generator.get_state()
        want = call.eager(generator)
        return want, not torch.equal(generator.get_state(), before)
    want = call.eager()
    drew = draws.moved()
    if drew and facts.is_random:
        draws.restore()
    return want, drew


def _kind(values: Sequence[Any]) -> Any:
    """Return the kind of a call: the dtypes, shapes and strides of its tensors; None if a tensor has no strides."""
    try:
        return tuple(
            [
                (value.dtype, value.shape, value.stride())
                if type(value) in _PLAIN
                else _kind(value)
                if type(value) in (list, tuple)
                else isinstance(value, Tensor)
                for value in values
            ]
        )
    except (RuntimeError, TypeError):  # sparse and nested tensors, and symbolic sizes
        return None


def _device_type(value: Any) -> str:
    return value.device.type if isinstance(value, Tensor) else value.type if isinstance(value, torch.device) else ""


def _is_absent(error: Exception) -> bool:
    """Return whether an error of eager says that it has no kernel for the call's dtype or device."""
    return isinstance(error, NotImplementedError) or any(words in str(error) for words in _NO_KERNEL_MESSAGES)


def _wrong_device(call: CopiedCall, want: Observed, have: Observed, device: str) -> Difference | None:
    """Return a difference if a result is on another device than the arguments, for an op that has no device argument."""
    given = {one.device for one in have.inputs if one.dim()} or {one.device for one in have.inputs}
    if len(given) != 1 or any(argument.kind == "Device" for argument in facts_of(call.op).arguments):
        return None
    (there,) = given
    for leaf in have.leaves:
        if isinstance(leaf, Tensor) and leaf.device != there:
            return Difference("device", "the result", there, leaf.device)
    return None


def _on_cpu(have: Observed) -> Observed:
    """Return the results and effects with tensors copied to the CPU; strides are kept."""
    (leaves, inputs), _ = copied(None, [list(have.leaves), list(have.inputs)], {}, home=True)
    return replace(have, leaves=leaves, inputs=inputs)
