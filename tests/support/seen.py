"""A mode that notes what it is handed, and how many modes are entered."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

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


def depth() -> int:
    return torch._C._len_torch_dispatch_stack()
