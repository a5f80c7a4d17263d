"""Modes that note what they are handed or how large results are, and how many modes are entered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

from eagerdecomp._torch.modes import (
    DispatchMode,
)


class Seen(DispatchMode):
    """A mode that notes what it is handed and passes it on."""

    def __init__(self, act: Callable[..., Any] | None = None) -> None:
        super().__init__()
        self.ops: list[Any] = []
        self.types: list[Any] = []
        self.act = act

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.ops.append(func)
        self.types.append(types)
        return (self.act or func)(*args, **(kwargs or {}))


class Sizes(DispatchMode):
    """A mode that notes the number of elements of each result."""

    def __init__(self) -> None:
        super().__init__()
        self.made: list[int] = []

    def __torch_dispatch__(
        self, func: Any, types: Sequence[type], args: Sequence[Any] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        result = func(*args, **(kwargs or {}))
        self.made.extend(one.numel() for one in tree_leaves(result) if isinstance(one, torch.Tensor))
        return result


def depth() -> int:
    return torch._C._len_torch_dispatch_stack()
