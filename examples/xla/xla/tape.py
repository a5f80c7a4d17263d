"""A tape: which compiled functions a call of the user's code ran, on which arrays. `steps` makes one function of it.

While a tape is on, every array is made by `apply`, or is read out of a cell, or comes from the CPU; and it is known to the tape by
its identity, since nothing writes an array. Autograd's threads run on the same tape. It is on for the whole process.
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
from torch import Tensor

if TYPE_CHECKING:
    from xla.memory import Cell

__all__ = ["Call", "Constant", "Tape", "apply", "current", "recording"]

_lock = threading.RLock()


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
        seeds: the slots of the seeds of random ops, in the order in which they were drawn.
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
        return id(cell) in self._born

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

    def seed(self, array: Any) -> None:
        self.seeds.append(self._slot(array))

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


#: The tape that is on.
_current: Tape | None = None


def current() -> Tape | None:
    return _current


@contextmanager
def recording() -> Iterator[Tape]:
    """Have a tape on."""
    global _current
    with _lock:
        if _current is not None:
            raise RuntimeError("a step is recorded inside a step")
        _current = tape = Tape()
        try:
            yield tape
        finally:
            _current = None


def apply(function: Callable[..., Any], *given: Any, static: tuple[Any, ...] = ()) -> Any:
    """Call a function of arrays, which JAX can trace, and note the call. `static` are its last arguments."""
    found = function(*given, *static)
    if _current is not None:
        _current.noted(function, static, given, found)
    return found
