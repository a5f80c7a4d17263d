"""Test that a kernel's results depend only on its arguments, not on earlier calls, other threads or cached memory."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import FrameType
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.checks import asked_for, differing, eager_is_steady
from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.memory import CopiedArguments, copy_arguments, to_cpu
from eagerdecomp.conformance.spec import Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.eager.observe import Caught, Observed, observe
from eagerdecomp.eager.tolerance import same_bits, same_values

__all__ = ["REPEATS", "THREADS"]

_ROUNDS = 12
_EQUAL = 5
_OTHERS = 3
_OTHER_CHOICES = 8
_THREADS = 2
_YIELDS = 500
_STRIDE = 101
_TRACING = threading.Lock()


def _calls(kernel: TestedKernel, spec: Spec, draw: Draw) -> tuple[Call, Call]:
    """Draw two calls that differ only in values."""
    one = spec.call(draw)
    other = spec.call(Draw(draw.with_other_values(1)))
    kernel.require_claim(one)
    kernel.require_claim(other)
    return one, other


def _eager(kernel: TestedKernel, call: Call) -> tuple[CopiedArguments, Observed]:
    theirs = copy_arguments(call.args, call.kwargs)
    _, want = observe(kernel.native, theirs.args, theirs.kwargs)
    if want.error is not None:
        raise Skip.refused(want.error)
    return theirs, want


def _again(
    kernel: TestedKernel, spec: Spec, call: Call, eager: tuple[CopiedArguments, Observed], when: str
) -> tuple[Fault | None, Observed]:
    theirs, want = eager
    ours = copy_arguments(call.args, call.kwargs, kernel.device)
    _, have = observe(kernel.run, ours.args, ours.kwargs)
    found = differing(kernel, spec, call, want, theirs, have, ours)
    have = asked_for(spec, call, have)
    return (None if found is None else Fault("state", f"{when}: {found.message}", found.expected, found.got, call)), have


def repeats(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that a call returns the same after other calls, and that later calls do not change its result."""
    one, other = _calls(kernel, spec, draw)
    first, second = _eager(kernel, one), _eager(kernel, other)
    found, before = _again(kernel, spec, one, first, "in a first call")
    if found is not None:
        raise Skip("found by a single call")
    fresh = [leaf for leaf, same, shares in zip(before.leaves, before.same, before.shares, strict=True) if same < 0 and not shares]
    fresh = [leaf for leaf in fresh if isinstance(leaf, Tensor)]
    kept = [_bytes(leaf).clone() for leaf in fresh]
    found, between = _again(kernel, spec, other, second, "in a call after one of the same kind")
    if found is not None:
        return replace(found, drawn=draw.with_other_values(1))
    after = [leaf for leaf in between.leaves if isinstance(leaf, Tensor)]
    shared = {leaf.untyped_storage()._cdata for leaf in fresh if leaf.numel()}
    if any(leaf.numel() and leaf.untyped_storage()._cdata in shared for leaf in after):
        return Fault("state", "returns memory that an earlier result still holds", "memory of its own", "the earlier result's", one)
    if any(not same_bits(to_cpu(_bytes(leaf)), to_cpu(copy)) for leaf, copy in zip(fresh, kept, strict=True)):
        return Fault("state", "a later call changes what an earlier one returned", "", "", one)
    found, again = _again(kernel, spec, one, first, "in a repeated call after another")
    if found is not None:
        return found
    if spec.steady and spec.any_values is not True:
        found = _deterministic(kernel, spec, one) if kernel.nondeterministic else _unlike(spec, one, before, again)
        if found is not None and eager_is_steady(kernel, spec, one):
            return found
    return _by_identity(kernel, spec, one, other) or _among_others(kernel, spec, draw, one, first)


def _unlike(spec: Spec, call: Call, before: Observed, again: Observed) -> Fault | None:
    """Return the fault that two equal calls returned different bits, or None."""
    for number, (leaf, copy) in enumerate(zip(again.leaves, before.leaves, strict=True)):
        alike = isinstance(leaf, Tensor) and leaf.numel() and leaf.shape == copy.shape and leaf.dtype == copy.dtype
        compared = not (isinstance(spec.any_values, tuple) and number in spec.any_values)
        if alike and compared and not _same_but_nan(to_cpu(leaf), to_cpu(copy)):
            return Fault("state", "the same call returns other values the second time", _text(copy), _text(leaf), call)
    return None


def _deterministic(kernel: TestedKernel, spec: Spec, call: Call) -> Fault | None:
    """Return the fault that equal calls differ although deterministic algorithms are on. There a kernel may raise."""
    mode = torch.get_deterministic_debug_mode()
    runs = []
    torch.use_deterministic_algorithms(True)
    try:
        for _ in range(_EQUAL):
            ours = copy_arguments(call.args, call.kwargs, kernel.device)
            runs.append(asked_for(spec, call, observe(kernel.run, ours.args, ours.kwargs)[1]))
    finally:
        torch.set_deterministic_debug_mode(mode)
    if any(one.error is not None for one in runs):
        return None
    found = next((fault for one in runs[1:] if (fault := _unlike(spec, call, runs[0], one)) is not None), None)
    with_it = "under torch.use_deterministic_algorithms(True)"
    return None if found is None else replace(found, message=f"{with_it}, {found.message}")


def _among_others(kernel: TestedKernel, spec: Spec, draw: Draw, one: Call, eager: tuple[CopiedArguments, Observed]) -> Fault | None:
    """Repeat a call after similar calls, each drawn with one other choice."""
    choices = list(draw.choices)
    for _ in range(_OTHERS):
        place = draw.below(len(choices))
        like = [*choices[:place], draw.below(_OTHER_CHOICES), *choices[place + 1 :]]
        other = spec.call(Draw(like))
        try:
            kernel.require_claim(other)
        except Skip:
            continue
        theirs = copy_arguments(other.args, other.kwargs)
        _, want = observe(kernel.native, theirs.args, theirs.kwargs)
        if want.error is not None:
            continue
        found, _ = _again(kernel, spec, other, (theirs, want), "after a call of a like kind")
        if found is not None:
            return replace(found, drawn=like)
        found, _ = _again(kernel, spec, one, eager, "after a call of a like kind")
        if found is not None:
            return found
    return None


def _by_identity(kernel: TestedKernel, spec: Spec, one: Call, other: Call) -> Fault | None:
    """Call the kernel twice with the same tensor objects, with other values the second time."""
    if any(isinstance(value, torch.UntypedStorage) for value in one.args):  # the second call would have another storage
        return None
    ours, later = copy_arguments(one.args, one.kwargs, kernel.device), copy_arguments(other.args, other.kwargs, kernel.device)
    with Caught() as caught:
        kernel.run(*ours.args, **ours.kwargs)
    if caught.error is not None or [_lies(one) for one in ours.tensors] != [_lies(one) for one in later.tensors]:
        return None
    for mine, new in zip(ours.memory, later.memory, strict=True):
        if mine.shape != new.shape or mine.dtype != new.dtype:
            return None
        mine.copy_(new)
    theirs, want = _eager(kernel, other)
    _, have = observe(kernel.run, ours.args, ours.kwargs)
    again = CopiedArguments(ours.args, ours.kwargs, ours.tensors, ours.memory, [one.cpu().clone() for one in later.before])
    found = differing(kernel, spec, other, want, theirs, have, again)
    return (
        None
        if found is None
        else Fault("state", f"with the same tensors holding other values: {found.message}", found.expected, found.got, other)
    )


def _lies(tensor: Tensor) -> object:
    return tensor.shape, tensor.stride(), tensor.storage_offset(), tensor.dtype


def _yielding() -> Any:
    """Return a trace function that lets another thread run before each line of Python.

    A thread switch costs tens of microseconds. A kernel that loops over its elements in Python runs many lines. So after `_YIELDS`
    lines, only every `_STRIDE`-th line lets other threads run.
    """
    lines = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        if lines <= _YIELDS or lines % _STRIDE == 0:
            time.sleep(0)
        return trace

    return trace


def _trace(observed: Any) -> None:
    """Set the trace function under a lock, because Python cannot set it in two threads at once."""
    with _TRACING:
        sys.settrace(observed)


def _between_others(kernel: TestedKernel) -> Callable[..., Any]:
    """Return the kernel, changed to let other threads run between its lines of Python."""

    def run(*args: Any, **kwargs: Any) -> Any:
        before = sys.gettrace()
        _trace(_yielding())
        try:
            return kernel.run(*args, **kwargs)
        finally:
            _trace(before)

    return run


def threads(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that calls from several threads at once return the same as single calls."""
    calls = _calls(kernel, spec, draw)
    eager = [_eager(kernel, call) for call in calls]
    for call, want in zip(calls, eager, strict=True):
        if _again(kernel, spec, call, want, "alone")[0] is not None:
            raise Skip("found by a single call")
    seen: list[list[tuple[Observed, CopiedArguments]]] = [[] for _ in range(_THREADS)]
    barrier = threading.Barrier(_THREADS)
    traced = _between_others(kernel)

    def work(number: int) -> None:
        made = [copy_arguments(calls[number].args, calls[number].kwargs, kernel.device) for _ in range(_ROUNDS)]
        with torch.no_grad():
            for turn, ours in enumerate(made):
                barrier.wait()  # the calls of a turn overlap even if a busy machine starts the threads apart
                run = kernel.run if turn % 2 else traced
                seen[number].append((observe(run, ours.args, ours.kwargs)[1], ours))

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    workers = [threading.Thread(target=work, args=(number,)) for number in range(_THREADS)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    sys.setswitchinterval(interval)
    for number, found in enumerate(seen):
        for have, ours in found:
            fault = differing(kernel, spec, calls[number], eager[number][1], eager[number][0], have, ours)
            if fault is not None:
                return Fault(
                    "threads", f"while another thread calls it too: {fault.message}", fault.expected, fault.got, calls[number]
                )
    return None


def _same_but_nan(one: Tensor, other: Tensor) -> bool:
    return same_bits(one, other) or bool(same_values(one, other).all())


def _bytes(leaf: Tensor) -> Tensor:
    """View bools as bytes, because a copy of a bool tensor changes bytes other than 0 and 1, as in uninitialized memory."""
    return leaf.view(torch.uint8) if leaf.dtype is torch.bool else leaf


def _text(value: Any) -> str:
    return str(value.tolist()) if isinstance(value, Tensor) and value.numel() <= 8 else "..."


REPEATS = Property("state", repeats, 0.15)
THREADS = Property("threads", threads, 0.02)
