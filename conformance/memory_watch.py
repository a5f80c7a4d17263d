"""A mode that finds work which C++ code does without an op: memory that changes between two calls, or that no op made."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import accepts_scalars
from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.ops import HigherOrderOperator
from eagerdecomp.eager.scalar_tensors import scalars_to_tensors, tensor_positions
from eagerdecomp.ops.schema import facts_of

__all__ = ["UNWRITTEN", "HiddenWork", "MemoryWatch"]

#: Each byte of memory that an op allocated and nothing has written.
UNWRITTEN = 0xA5


class HiddenWork(Exception):
    """Memory was written without an op."""


class MemoryWatch(DispatchMode):
    """Compares all memory that ops have made or used with what it was after the last op. Tensors on the CPU only.

    Memory that an op allocates is filled with bytes of 0xA5, so that it always changes when C++ code writes it.

    Args:
        given: nested arguments: tensors that no op made.
        raises: raise `HiddenWork`. Otherwise collect what was found in `found`, and let Python code pass tensors that it made.

    Attributes:
        calls: the number of calls.
        ops: the names of the ops called.
        found: what was found, if `raises` is False.
    """

    def __init__(self, given: Any = (), *, raises: bool = True) -> None:
        super().__init__()
        self.calls = 0
        self.ops: set[str] = set()
        self.found: list[str] = []
        self._raises = raises
        self._last = "the start"
        #: Address of a storage -> the storage, which is kept alive, and a copy of its content.
        self._known: dict[int, tuple[torch.UntypedStorage, Any]] = {}
        self._remember(_storages(given))

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        if isinstance(func, HigherOrderOperator):
            return func(*args, **kwargs)
        self._compare(f"before {func}")
        given = [*_storages([*args, *kwargs.values()])]
        if self._raises:
            self._expect_known(given, f"an argument of {func}")
        if not accepts_scalars(func):  # C++ code passes wrapped numbers, which reach Python as numbers
            args = scalars_to_tensors(tensor_positions(func), tuple(args), torch.scalar_tensor)
        result = func(*args, **kwargs)
        made = [*_storages(result)]
        if facts_of(func).allocates:
            for storage in made:
                ctypes.memset(storage.data_ptr(), UNWRITTEN, storage.nbytes())
        self._remember((*given, *made))
        self.calls += 1
        self.ops.add(str(func))
        self._last = str(func)
        return result

    def check(self, result: Any) -> None:
        """Check the memory after the last op, and that an op made the memory of a result."""
        self._compare("at the end")
        self._expect_known(_storages(result), "the result")

    def _remember(self, storages: Iterable[torch.UntypedStorage]) -> None:
        for storage in storages:
            size = storage.nbytes()
            before = self._known.get(storage._cdata)
            copy = before[1] if before is not None and len(before[1]) == size else (ctypes.c_char * size)()
            ctypes.memmove(copy, storage.data_ptr(), size)
            self._known[storage._cdata] = storage, copy

    def _compare(self, when: str) -> None:
        for key, (storage, copy) in list(self._known.items()):
            if torch._C._storage_Use_Count(key) == 1:  # only this table holds it
                del self._known[key]
            elif storage.nbytes() != len(copy) or _compare_memory(storage.data_ptr(), copy, len(copy)):
                self._remember([storage])
                self._report(f"memory changed after {self._last} and {when}")

    def _expect_known(self, storages: Iterable[torch.UntypedStorage], what: str) -> None:
        for storage in storages:
            # C++ code makes scalars without an op: wrapped numbers.
            if storage._cdata not in self._known and storage.nbytes() > 16:
                self._report(f"{what} has memory that no op made")

    def _report(self, text: str) -> None:
        if self._raises:
            raise HiddenWork(text)
        self.found.append(text)


def _storages(value: Any) -> Iterable[torch.UntypedStorage]:
    """Yield the storages of all tensors on the CPU in a nested value, and those that it contains."""
    if isinstance(value, torch.UntypedStorage):
        if value.device.type == "cpu":
            yield value
    elif isinstance(value, Tensor):
        if value.layout is torch.strided and not torch._is_zerotensor(value):
            storage = value.untyped_storage()
            if storage.device.type == "cpu":  # a fake tensor says so of its own, but has none there
                yield storage
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _storages(item)


def _compare_memory(address: int, copy: Any, size: int) -> bool:
    """Return whether memory differs from a copy."""
    return bool(size) and bool(ctypes.pythonapi.memcmp(ctypes.c_void_p(address), copy, ctypes.c_size_t(size)))
