"""Callbacks of collectives run under the modes of their caller, in any thread; FSDP's copies decompose into the set."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed.fsdp
from dispatch_recorders import mode_depth
from torch import Tensor
from torch.nn import functional as F

import eagerdecomp as ed

CORE = ed.core_aten()
fsdp: Any = torch.ops.fsdp


def in_a_thread(run: Callable[[], object]) -> None:
    thread = threading.Thread(target=run)
    thread.start()
    thread.join()


def completed_elsewhere(given: Callable[[torch.futures.Future[Any]], Any], name: str = "then") -> Any:
    """Return the result of a callback that a thread without modes runs."""
    first: torch.futures.Future[Any] = torch.futures.Future()
    second = getattr(first, name)(given)
    in_a_thread(lambda: first.set_result(torch.linspace(-2, 2, 5)))
    return second.wait() if second is not None else None


def meeting() -> ed.EagerDecompMode:
    """Return a mode under which a collective has run."""
    mode = ed.EagerDecompMode(CORE)
    mode._runtime.callbacks.passing(torch.ops.c10d.allreduce_.default)
    return mode


def test_a_callback_runs_under_the_modes_of_its_caller_in_any_thread() -> None:
    for name in ("then", "add_done_callback"):
        seen_there: list[object] = []

        def callback(done: torch.futures.Future[Any], seen_there: list[object] = seen_there) -> Tensor:
            seen_there.extend((threading.current_thread() is threading.main_thread(), mode_depth()))
            return F.softplus(done.value())

        with ed.BackendRecorder() as seen, meeting() as mode:
            completed_elsewhere(callback, name)
        assert seen_there == [False, 2], name
        assert mode.stats()["aten.softplus.default"].decomposed == 1
        assert not seen.outside(CORE)
        assert seen.ops, "nothing reached the backend"


def test_an_error_of_a_callback_exits_all_modes_and_is_reported() -> None:

    def fails(done: torch.futures.Future[Any]) -> None:
        raise KeyError("so it goes")

    with meeting():
        first: torch.futures.Future[Any] = torch.futures.Future()
        second = first.then(fails)
    depths: list[int] = []

    def complete() -> None:
        first.set_result(None)
        depths.append(mode_depth())

    in_a_thread(complete)
    assert depths == [0]
    with pytest.raises(RuntimeError, match="so it goes"):
        second.wait()


# -- one process with a group of its own -----------------------------------------------------------------------------------------


def methods() -> list[object]:
    return [torch._C.Future.then, torch._C.Future.add_done_callback]


def test_exit_of_the_last_mode_restores_torchs_methods() -> None:
    before, first, second = methods(), meeting(), meeting()
    with first:
        inside = methods()
        assert all(ours is not theirs for ours, theirs in zip(inside, before, strict=True))
        with second, first:
            assert methods() == inside
        with pytest.raises(ZeroDivisionError), second:
            raise ZeroDivisionError
        assert methods() == inside
    assert methods() == before
    with ed.EagerDecompMode(CORE):  # a mode without a collective
        assert methods() == before
    with second:
        assert methods() != before
    assert methods() == before


def test_a_mode_that_cannot_be_entered_leaves_torchs_methods(monkeypatch: pytest.MonkeyPatch) -> None:
    before, mode = methods(), meeting()

    def refused(self: ed.EagerDecompMode) -> ed.EagerDecompMode:
        raise MemoryError

    monkeypatch.setattr(ed.EagerDecompMode.__base__, "__enter__", refused)
    with pytest.raises(MemoryError), mode:
        pass
    assert methods() == before


# -- FSDP's copies ---------------------------------------------------------------------------------------------------------------


def gathered_in() -> tuple[Tensor, ...]:
    buffer = torch.zeros(12)
    mine, whole = fsdp.all_gather_copy_in([torch.arange(2.0), torch.arange(4.0, 8.0)], buffer, [2, 4], 6, 1)
    mine[0] += 7  # a view of the buffer
    return mine, whole, buffer, torch.tensor(whole.data_ptr() == buffer.data_ptr())


def split_out() -> tuple[Tensor, ...]:
    out = [torch.empty(2, 1), torch.empty(2, 4)]
    assert fsdp.split_with_sizes_copy(torch.arange(10.0).view(2, 5), [1, 4], dim=1, out=out) is None
    return tuple(out)


def joined() -> tuple[Tensor, ...]:
    out = torch.full((2, 6), -1.0)
    given = [torch.arange(6.0).view(3, 2), torch.arange(4.0)]
    assert fsdp.chunk_cat(given, 0, 2, out=out) is None
    return (out,)


def copied() -> tuple[Tensor, ...]:
    out = torch.empty(3, dtype=torch.bfloat16)
    assert fsdp.copy_(out, torch.linspace(0, 1, 3)) is None
    return (out,)


@pytest.mark.full
@pytest.mark.parametrize("run", [gathered_in, split_out, joined, copied])
@pytest.mark.parametrize("ops", [CORE, ed.prims()], ids=["core", "prims"])
def test_fsdps_copies_decompose_into_the_set(run: Callable[[], tuple[Tensor, ...]], ops: ed.OpSet) -> None:
    want = run()
    with ed.BackendRecorder() as seen, ed.EagerDecompMode(ops):
        got = [one.clone() for one in run()]
    assert not seen.outside(ops)
    assert not [op for op in seen.ops if op.namespace == "fsdp"]
    with ed.install(CORE, "cpu"):
        installed = run()
    for one in (got, installed):
        assert all(torch.equal(a, b) and a.dtype is b.dtype and a.stride() == b.stride() for a, b in zip(want, one, strict=True))
