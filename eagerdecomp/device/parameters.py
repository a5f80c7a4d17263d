"""Keep the parameters of a module that moves to the device or from it. For this device, torch would replace them.

Then tied parameters would become two tensors, each with a part of the gradient, and an optimizer would still have the old ones.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from eagerdecomp._torch.python_device import wrap_module_conversion

__all__ = ["keep_parameters"]

#: Function that converts each parameter of a module -> old parameter -> new parameter, for those that had to be replaced.
_replaced: WeakKeyDictionary[Callable[..., Any], dict[Tensor, Tensor]] = WeakKeyDictionary()


def keep_parameters(name: str) -> None:
    """Make ``module.to()`` keep the parameter objects of a module that is or was on the device, and change their contents."""

    def make(original: Callable[..., Any]) -> Callable[..., Any]:
        def apply(self: nn.Module, fn: Callable[..., Any], recurse: bool = True) -> nn.Module:
            parameters = self._parameters
            before = dict(parameters)
            original(self, fn, recurse)
            for key, old in before.items():
                new = parameters[key]
                if old is not None and new is not None and new is not old and name in (old.device.type, new.device.type):
                    parameters[key] = _swap_contents(old, new, _replaced.setdefault(fn, {}))
            return self

        return apply

    wrap_module_conversion(make)


def _swap_contents(old: nn.Parameter, new: nn.Parameter, replaced: dict[Any, Any]) -> nn.Parameter:
    """Return `old` with the contents of `new`; if that is impossible, a replacement, always the same for `old`."""
    if old not in replaced:
        new.__dict__.update(old.__dict__)
        try:
            torch.utils.swap_tensors(old, new)  # type: ignore[no-untyped-call]
        except RuntimeError:  # a graph or a weak reference uses it
            replaced[old] = new
    parameter: nn.Parameter = replaced.get(old, old)
    return parameter
