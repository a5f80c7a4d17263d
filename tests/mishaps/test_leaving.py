"""Modes that exit in unusual ways: by `sys.exit`, out of order, in the middle of a generator, in interleaved tasks."""

from __future__ import annotations

import asyncio
import functools
import sys
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from moments import in_another_thread, state
from on_core import CORE
from opaque import OPAQUE, opaque_rule
from torch.utils._python_dispatch import TorchDispatchMode

import eagerdecomp as ed
from eagerdecomp.dispatcher import composites

X = torch.arange(6.0).view(2, 3)
WEIGHT = torch.eye(3) * 2


def mode() -> ed.EagerDecompMode:
    return ed.EagerDecompMode(CORE, rules=[opaque_rule], cache=ed.ProgramCache(), keep={"aten.linear"})


def right() -> None:
    torch.testing.assert_close(OPAQUE(X), X)
    torch.testing.assert_close(F.linear(X, WEIGHT), X * 2)
    torch.testing.assert_close(F.mish(X), X * torch.tanh(torch.log1p(torch.exp(X))))


def counted(one: Any) -> int:
    return sum(row.calls for row in one.stats().values())


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = state()
    yield
    assert state() == before
    assert not composites._installed, "a kept op has its kernels still"
    one = mode()
    with one:
        right()
        assert counted(one)
    right()
    assert in_another_thread(lambda: (right(), True)[1])


@pytest.mark.full
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt, GeneratorExit, StopIteration, RecursionError, MemoryError])
def test_any_exception_exits_a_mode_completely(kind: type[BaseException]) -> None:
    outer, inner = mode(), mode()

    def left() -> None:
        right()
        if kind is SystemExit:
            sys.exit(3)
        raise kind

    for _ in range(3):
        with pytest.raises(kind), outer, inner:
            left()
    assert counted(inner) > 0


def test_closing_a_generator_exits_its_mode() -> None:
    one = mode()

    def steps() -> Iterator[int]:
        with one:
            for number in range(10):
                right()
                yield number

    running = steps()
    assert next(running) == 0
    right()  # the generator's mode is entered: its caller runs under it
    running.close()
    before = counted(one)
    right()
    assert counted(one) == before
    dropped = steps()
    next(dropped)
    del dropped
    before = counted(one)
    right()
    assert counted(one) == before


class _Counting(TorchDispatchMode):
    """A mode of torch's that counts the calls that it sees."""

    def __init__(self) -> None:
        super().__init__()
        self.calls = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.calls += 1
        return func(*args, **(kwargs or {}))


def test_exiting_our_mode_below_one_of_torchs_keeps_torchs_active() -> None:
    one, other = mode(), _Counting()
    one.__enter__()
    other.__enter__()
    one.__exit__(None, None, None)
    before = counted(one)
    torch.sigmoid(X)
    assert (counted(one), other.calls) == (before, 1)
    other.__exit__(None, None, None)


def test_a_mode_that_torch_popped_in_place_of_its_own_warns() -> None:
    other, one = _Counting(), mode()
    other.__enter__()
    one.__enter__()
    other.__exit__(None, None, None)  # leaves `one`, which was entered last
    with pytest.warns(UserWarning, match="EagerDecompMode was not entered any more .* the _Counting that was entered last"):
        one.__exit__(None, None, None)


def test_interleaved_tasks_in_modes_are_right_and_exit_them() -> None:
    async def task(number: int) -> None:
        for _ in range(3):
            with mode():
                right()
                await asyncio.sleep(0)
                right()
                if number == 2:
                    raise ValueError("mine")

    async def program() -> list[Any]:
        return await asyncio.gather(*map(task, range(4)), return_exceptions=True)

    got = asyncio.run(program())
    assert [str(one) for one in got if one is not None] == ["mine"]


def test_a_mode_is_active_only_on_its_thread_and_can_be_exited_only_there() -> None:
    one = mode()

    def leave() -> bool:
        before = state()
        with pytest.raises(RuntimeError):
            one.__exit__(None, None, None)
        assert state() == before
        right()
        return True

    with one:
        before = counted(one)
        assert in_another_thread(leave)
        assert counted(one) == before, "it is active on another thread"
        right()
        assert counted(one) > before, "the first thread has left it"


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize("order", ["first", "last"])
def test_modes_exited_in_any_order_are_all_exited(same: bool, order: str) -> None:
    first = mode()
    second = first if same else mode()
    for _ in range(3):
        first.__enter__()
        second.__enter__()
        right()
        left, other = (first, second) if order == "first" else (second, first)
        left.__exit__(None, None, None)
        before = counted(left), counted(other)
        right()
        assert same or counted(left) == before[0]
        assert counted(other) > before[1]
        other.__exit__(None, None, None)
        assert not composites._installed


def test_threads_that_end_inside_a_mode_do_not_affect_others() -> None:
    one = ed.EagerDecompMode(CORE, rules=[opaque_rule], cache=ed.ProgramCache())

    def run(leaves: bool) -> bool:
        one.__enter__()
        right()
        if leaves:
            one.__exit__(None, None, None)
        return True

    for leaves in (True, False, True):
        assert in_another_thread(functools.partial(run, leaves))
    with one:
        right()
