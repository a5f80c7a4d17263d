"""Dispatch modes that record ops or result sizes, and the number of active modes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from eagerdecomp._torch.modes import DispatchMode
from eagerdecomp._torch.tensors import WeakStorage
from eagerdecomp.ops.schema import facts_of


class OpRecorder(DispatchMode):
    """A mode that records each op and its types, and then runs it natively, or by ``run``."""

    def __init__(self, run: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.ops: list[Any] = []
        self.types: list[Any] = []
        self.run = run

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        self.types.append(types)
        return (self.run or func)(*args, **(kwargs or {}))


def computes(op: Any) -> bool:
    """Return whether an op makes and fills new tensors."""
    return facts_of(op).is_functional and op is not torch.ops.aten.empty.memory_format


class SizeRecorder(DispatchMode):
    """A mode that records the elements of each result of the ops that count, and the most bytes that all results held at once."""

    def __init__(self, counts: Callable[[Any], bool] = lambda op: True) -> None:
        super().__init__()
        self.sizes: list[int] = []
        self.most_bytes = 0
        self.counts = counts
        self._storages: dict[int, tuple[Any, int]] = {}

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        if self.counts(func):
            tensors = [one for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
            self.sizes.extend(one.numel() for one in tensors)
            for storage in (one.untyped_storage() for one in tensors):
                self._storages[storage._cdata] = WeakStorage(storage), storage.nbytes()
            self._storages = {key: known for key, known in self._storages.items() if not known[0].expired()}
            self.most_bytes = max(self.most_bytes, sum(size for _, size in self._storages.values()))
        return result


def mode_depth() -> int:
    """Return the number of active dispatch modes."""
    return torch._C._len_torch_dispatch_stack()
