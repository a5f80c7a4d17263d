"""Run calls on Core ATen and compare them with plain eager. Tests of rules use this module."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from compare import assert_same, outcome

import eagerdecomp as ed
from eagerdecomp.eager.compare import error_text

CORE = ed.core_aten()


def rows(*shape: int) -> torch.Tensor:
    """Return evenly spaced numbers on both sides of zero."""
    return torch.linspace(-2, 2, torch.Size(shape).numel()).reshape(shape)


def on_core(run: Callable[[], Any], ops: ed.OpSet = CORE, *, cache: ed.ProgramCache | None = None) -> Any:
    """Return `run()` under the mode; check that only ops of the set reached the backend."""
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops, cache=cache, host_random="decomposed"):
        result = run()
    assert not seen.outside(ops), f"reached the backend from outside the set: {seen.outside(ops)}"
    return result


def kernel_calls(run: Callable[[], Any], ops: ed.OpSet = CORE) -> int:
    """Return the number of kernel calls of `run` once its programs are cached."""
    on_core(run, ops)
    mode = ed.EagerDecompMode(ops, host_random="decomposed")
    with mode:
        run()
        run()
    with ed.BackendRecorder() as seen, mode:
        run()
    return seen.ops.total()


def check(
    run: Callable[..., Any], *args: Any, ops: ed.OpSet = CORE, strides: bool = True, exact: bool = False, **kwargs: Any
) -> None:
    """Check that three calls of `run(*args, **kwargs)` equal eager: recorded, compiled, and a cache hit.

    Results and arguments after the call are compared. Each call gets copies of the arguments. If eager raises, the same error must
    be raised: its class and its text.
    """
    cache = ed.ProgramCache()
    for _ in range(3):
        (theirs, their_named), (ours, our_named) = _copies(args, kwargs), _copies(args, kwargs)
        kind, want = outcome(lambda: run(*theirs, **their_named))  # noqa: B023 - called at once
        got_kind, got = outcome(lambda: on_core(lambda: run(*ours, **our_named), ops, cache=cache))  # noqa: B023
        assert got_kind == kind, f"eager: {want!r}; ours: {got!r}"
        if kind == "error":
            assert error_text(got) == error_text(want)
        else:
            assert_same(got, want, strides=strides, exact=exact)
            assert_same(list(ours), list(theirs), strides=strides, exact=exact)
            assert _aliases(got, ours) == _aliases(want, theirs), "shares storage with other arguments than eager"


def _copies(args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[list[Any], dict[str, Any]]:
    """Copy the arguments; strides, offsets and shared storages stay (one `deepcopy`, thus one memo, for all)."""
    return copy.deepcopy((list(args), kwargs))


def _flat(value: Any) -> list[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        return [value]
    return [tensor for item in value for tensor in _flat(item)] if isinstance(value, (list, tuple)) else []


def _aliases(result: Any, args: Any) -> list[tuple[bool, bool]]:
    """Return for each pair of a result and an argument whether they are the same object, and whether they share storage."""
    return [(r is a, torch._C._is_alias_of(r, a)) for r in _flat(result) for a in _flat(args) if r.layout is a.layout]


@contextmanager
def on(op_set: ed.OpSet, **options: Any) -> Iterator[tuple[ed.EagerDecompMode, ed.BackendRecorder]]:
    """Enter the mode inside a recorder; at exit, check that only ops of the set reached the backend."""
    with ed.BackendRecorder() as recorder, ed.EagerDecompMode(op_set, **{"host_random": "decomposed", **options}) as mode:
        yield mode, recorder
    assert not recorder.outside(op_set)


def gradient(f: Callable[[torch.Tensor], torch.Tensor], x: torch.Tensor) -> torch.Tensor:
    leaf = x.clone().requires_grad_()
    return torch.autograd.grad(f(leaf), leaf)[0]


def rand(*shape: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    """Return normally distributed numbers, in float64 where nothing else is said."""
    return torch.randn(shape, dtype=dtype)
