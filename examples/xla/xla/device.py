"""The device: its name, and the module `torch.jax` that torch requires of it. The import makes the device."""

from __future__ import annotations

from eagerdecomp.device import make_device
from xla.memory import new_storage

__all__ = ["NAME", "module"]

#: The name of the device in torch, instead of PrivateUse1.
NAME = "jax"

module = make_device(NAME, new_storage)
