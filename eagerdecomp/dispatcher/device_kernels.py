"""Register kernels in torch's dispatcher for one device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from eagerdecomp._torch.dispatcher import (
    boxed_kernel,
    close_library,
    forget_dispatch_of,
)
from eagerdecomp.ops.device_ops import device_ops, forget_own, remember_own

__all__ = ["DeviceKernels"]


class DeviceKernels:
    """The registrations for one device, removed together.

    Ops are given by the dispatcher's names, such as ``"aten::add.Tensor"``.

    Args:
        key: the device's dispatch key, such as ``"CPU"`` or ``"PrivateUse1"``.

    Attributes:
        device: what the device can run by itself.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._libraries: dict[str, torch.library.Library] = {}
        self.device = device_ops(key)

    def native(self, name: str) -> Callable[..., Any] | None:
        """Return the op's current kernel on this device, or None. It can still be called after it is overridden.

        It runs below autograd. Call it with tensors of this device; convert scalars first (`eager.scalar_tensors`).
        """
        return None if self.device.lacks(name) else self.fallback(name)

    def fallback(self, name: str) -> Callable[..., Any]:
        """Return what torch runs for an op on this device now, which may be the device's fallback. Call it as `native`'s result."""
        return boxed_kernel(name, self._key)

    def register(self, name: str, kernel: Callable[..., Any]) -> None:
        """Register a function as the op's kernel. If the device has one already, call this in `overriding_silently`."""
        # From torch 2.13 on, an override of a kernel from Python is allowed by default.
        library = self._library(name.partition("::")[0])
        library.impl(name, kernel, self._key, allow_override=True)  # type: ignore[no-untyped-call]

    def register_fallback(self, fallback: Callable[..., Any]) -> None:
        """Register ``fallback(op, *args, **kwargs)`` for all ops without a kernel. The device must not have a fallback."""
        self._library("_").fallback(fallback, self._key)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Remove all registrations."""
        namespaces = list(self._libraries)
        while self._libraries:
            close_library(self._libraries.popitem()[1])
        forget_dispatch_of(namespaces)
        forget_own(self._key)

    def finish_registration(self) -> None:
        """Clear the dispatcher's Python cache of kernels. Call it after the last registration."""
        forget_dispatch_of(self._libraries)

    def _library(self, namespace: str) -> torch.library.Library:
        found = self._libraries.get(namespace)
        if found is None:
            remember_own(self._key, self.device)
            found = self._libraries[namespace] = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
        return found
