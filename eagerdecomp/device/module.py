"""``torch.NAME``: the module that torch requires of a device. There is one device; calls are synchronous."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

import torch

__all__ = ["DeviceModule"]


class DeviceModule(ModuleType):
    """The functions of ``torch.NAME``, for one device with the index 0.

    Kernels draw random numbers from ``default_generators[0]``. This is a generator of the CPU, because only C++ can make one of
    another device.

    Args:
        name: the name of the device.
        functions: further attributes, or replacements of those below.
    """

    # Activation checkpointing saves a device's random state only if this is true.
    _initialized = True

    def __init__(self, name: str, functions: Mapping[str, Any]) -> None:
        super().__init__(f"torch.{name}", self.__doc__)
        self.__spec__ = ModuleSpec(self.__name__, None)
        self.device_type = name
        self.default_generators: tuple[torch.Generator, ...] = (torch.Generator(device="cpu"),)
        vars(self).update(functions)

    def is_available(self) -> bool:
        return True

    def is_initialized(self) -> bool:
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        return 1

    def current_device(self) -> int:
        return 0

    def set_device(self, index: torch.device | str | int) -> None:
        self.check_index(index)

    def synchronize(self, index: torch.device | str | int | None = None) -> None:
        self.check_index(index)

    def device(self, index: torch.device | str | int | None) -> AbstractContextManager[None]:
        """Return a context manager that does nothing: there is only one device."""
        self.check_index(index)
        return nullcontext()

    def check_index(self, index: torch.device | str | int | None) -> None:
        """Raise for any index except 0, as torch does for a device that is not there."""
        if not isinstance(index, int | None):
            index = torch.device(index).index
        if index not in (None, 0):
            raise RuntimeError(f"{self.device_type}:{index}: there is one {self.device_type}, {self.device_type}:0")

    # -- random numbers ------------------------------------------------------------------------------------------------

    def manual_seed(self, seed: int) -> None:
        self.default_generators[0].manual_seed(seed)

    def manual_seed_all(self, seed: int) -> None:
        """Call `manual_seed`. `torch.manual_seed` calls this."""
        self.manual_seed(seed)

    def seed(self) -> int:
        return self.default_generators[0].seed()

    def seed_all(self) -> int:
        return self.seed()

    def initial_seed(self) -> int:
        return self.default_generators[0].initial_seed()

    def get_rng_state(self, index: torch.device | str | int = 0) -> torch.Tensor:
        self.check_index(index)
        return self.default_generators[0].get_state()

    def set_rng_state(self, state: torch.Tensor, index: torch.device | str | int = 0) -> None:
        self.check_index(index)
        self.default_generators[0].set_state(state)

    # -- autocast ------------------------------------------------------------------------------------------------------

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        return [torch.bfloat16, torch.float16]
