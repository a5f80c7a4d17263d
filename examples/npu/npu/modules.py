"""Modules that move to the device or from it: torch makes new parameters for them, as for no device of its own.

Then tied parameters would be two tensors, with half of the gradient each, and an optimizer would go on with the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from npu.device import NAME

__all__ = ["patch"]

#: By what a module is moved with: parameters that had to be replaced, and by what.
_replaced: WeakKeyDictionary[Callable[..., Any], dict[Tensor, Tensor]] = WeakKeyDictionary()


def patch() -> None:
    """Make ``module.to()`` keep the parameters that a module has, and give them the new contents."""
    apply: Any = nn.Module._apply

    def applied(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
        parameters = self._parameters
        before = dict(parameters)
        apply(self, fn, recurse)
        for name, old in before.items():
            new = parameters[name]
            if old is not None and new is not None and new is not old and NAME in (old.device.type, new.device.type):
                parameters[name] = _kept(old, new, _replaced.setdefault(fn, {}))
        return self

    nn.Module._apply = applied  # type: ignore[method-assign]


def _kept(old: nn.Parameter, new: nn.Parameter, replaced: dict[Any, Any]) -> nn.Parameter:
    if old not in replaced:
        new.__dict__.update(old.__dict__)
        try:
            torch.utils.swap_tensors(old, new)
        except RuntimeError:  # a graph or a weak reference holds it: another parameter is in its place, the same wherever it was
            replaced[old] = new
    found: nn.Parameter = replaced.get(old, old)
    return found
