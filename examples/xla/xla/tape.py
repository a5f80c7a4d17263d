"""A tape: which compiled functions a call of the user's code ran, on which arrays. `steps` makes one function of it.

While a tape is on, every array is made by `apply`, or is read out of a cell, or comes from the CPU; and it is known to the tape by
its identity, since nothing writes an array. A tape is on in one thread, and in autograd's threads while they work for that one.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import Tensor

if TYPE_CHECKING:
    from xla.memory import Cell

__all__ = ["Call", "Constant", "Tape", "apply", "current", "recording"]

#: What torch hands on to autograd's threads, as it does its modes, under this name.
_KEY = "xla.tape"

_lock = threading.Lock()


@dataclass(frozen=True)
class Constant:
    """An argument that is the same in each replay: a number, or the elements of a CPU tensor."""

    text: str
    value: Any = field(compare=False)


@dataclass(frozen=True)
class Call:
    """A compiled function that ran: its arguments are slots or constants, and its results, in JAX's order of leaves, slots."""

    function: Callable[..., Any]
    static: tuple[Any, ...]
    arguments: tuple[int | Constant, ...]
    results: tuple[int, ...]


class Tape:
    """A record of what ran.

    Attributes:
        calls: the functions, in order.
        inputs: the cells that were there before and were read: slot, cell, and its home layout.
        written: the cells that were there before and were written.
        seeds: the slots of the seeds of random ops, in the order in which the device's generator draws them. A seed is there once
            if it was drawn again from a state that was restored, as activation checkpointing does.
        checks: the slot and the errors of each array of checks.
        cpu: CPU tensors that were read, and their versions.
        refused: why no function can be made of this; None if one can.
    """

    def __init__(self) -> None:
        self.calls: list[Call] = []
        self.inputs: list[tuple[int, Cell, Any]] = []
        self.written: dict[int, Cell] = {}
        self.seeds: list[int] = []
        self.checks: list[tuple[int, Any]] = []
        self.cpu: list[tuple[weakref.ref[Tensor], int]] = []
        self.refused: str | None = None
        self.slots = 0
        self._known: dict[int, int | Constant] = {}
        self._alive: list[Any] = []  # so that no other array gets the identity of one
        self._read: set[int] = set()
        self._born: dict[int, weakref.ref[Cell]] = {}
        self._states = {_state(): 0}

    def refuse(self, why: str) -> None:
        self.refused = self.refused or why

    def _slot(self, array: Any) -> int:
        self._known[id(array)] = found = self.slots
        self._alive.append(array)
        self.slots += 1
        return found

    def born(self, cell: Cell) -> None:
        self._born[id(cell)] = weakref.ref(cell)

    def is_new(self, cell: Cell) -> bool:
        born = self._born.get(id(cell))
        return born is not None and born() is cell  # another thread's may have the identity of one that is gone

    def read(self, cell: Cell) -> None:
        """Note that a cell's array is about to be used."""
        if id(cell) in self._read or id(cell) in self.written or self.is_new(cell):
            return
        self._read.add(id(cell))
        if id(cell.value) in self._known:  # a clone's, say: the next time they may differ
            cell.value = jnp.array(cell.value, copy=True)
        self.inputs.append((self._slot(cell.value), cell, cell.home))

    def wrote(self, cell: Cell) -> None:
        if not self.is_new(cell):
            self.written[id(cell)] = cell

    def seed(self, draw: Callable[[], Any]) -> Any:
        """Draw a seed, and note which one of the generator's it is."""
        at = self._states.get(_state(), -1)
        array = draw()
        if at < 0:
            self.refuse(_OTHER_STATE)
        elif at < len(self.seeds):
            self._known[id(array)] = self.seeds[at]
            self._alive.append(array)
        else:
            self._states[_state()] = at + 1
            self.seeds.append(self._slot(array))
        return array

    def seeds_left(self) -> int:
        """Return after which of the seeds the generator's state is now."""
        found = self._states.get(_state())
        if found is None:
            self.refuse(_OTHER_STATE)
        return found or 0

    def constant(self, array: Any, tensor: Tensor) -> None:
        """Note the copy of a CPU tensor."""
        self._alive.append(array)
        elements = np.asarray(array)
        self._known[id(array)] = Constant(f"{elements.dtype}{elements.shape} {elements.tobytes()!r}", array)
        self.cpu.append((weakref.ref(tensor), tensor._version))

    def slot_of(self, array: Any) -> int | Constant:
        if not isinstance(array, jax.Array):
            return Constant(f"{type(array).__name__} {array!r}", array)
        found = self._known.get(id(array))
        if found is None:
            self.refuse("it uses an array that no recorded function made")
            return Constant("unknown", array)
        return found

    def noted(self, function: Callable[..., Any], static: tuple[Any, ...], given: Sequence[Any], found: Any) -> None:
        arguments = tuple(self.slot_of(one) for one in given)
        self.calls.append(Call(function, static, arguments, tuple(self._slot(leaf) for leaf in jax.tree.leaves(found))))

    def checked(self, failed: Any, errors: Any) -> None:
        slot = self.slot_of(failed)
        assert isinstance(slot, int)
        self.checks.append((slot, errors))

    def survivors(self) -> list[Cell]:
        """The cells that were made on the way and are still there, in the order in which they were made."""
        return [cell for cell in (born() for born in self._born.values()) if cell is not None]

    def finish(self) -> None:
        """Let go of the arrays: nothing is noted any more."""
        self._alive.clear()
        self._states.clear()


_OTHER_STATE = (
    "it seeds a generator, or draws from one that is not the device's own (generator=): do that before the step, and pass what was "
    "drawn as an argument"
)


def _state() -> bytes:
    return torch.get_device_module("jax").get_rng_state().numpy().tobytes()


#: How many tapes are on, in all threads.
_count = 0


def current() -> Tape | None:
    """Return the tape that is on in this thread."""
    if not _count or not torch._C._is_key_in_tls(_KEY):
        return None
    found: Tape = torch._C._get_obj_in_tls(_KEY)
    return found


@contextmanager
def recording() -> Iterator[Tape]:
    """Have a tape on in this thread, in which none is."""
    global _count
    tape = Tape()
    with _lock:
        _count += 1
    torch._C._stash_obj_in_tls(_KEY, tape)
    try:
        yield tape
    finally:
        torch._C._remove_obj_from_tls(_KEY)
        with _lock:
            _count -= 1


def apply(function: Callable[..., Any], *given: Any, static: tuple[Any, ...] = ()) -> Any:
    """Call a function of arrays, which JAX can trace, and note the call. `static` are its last arguments."""
    found = function(*given, *static)
    on = current()
    if on is not None:
        on.noted(function, static, given, found)
    return found
