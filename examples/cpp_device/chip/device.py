"""`torch.chip`: the module that torch requires of a device. There is one device. What `torch.accelerator` has is in C++."""

from __future__ import annotations

import torch

from chip import _C

__all__ = ["default_generators", "device", "manual_seed", "memory_allocated"]

default_generators = (_C.default_generator(),)

# Activation checkpointing saves a device's random state only if this is true.
_initialized = True

memory_allocated = _C.memory_allocated


def is_available() -> bool:
    return True


def is_initialized() -> bool:
    return True


def _is_in_bad_fork() -> bool:
    return False


def device_count() -> int:
    return 1


def current_device() -> int:
    return 0


def set_device(index: torch.device | str | int) -> None:
    torch.accelerator.set_device_index(index)


def synchronize(index: torch.device | str | int | None = None) -> None:
    torch.accelerator.synchronize(index)


class device(torch.accelerator.device_index):
    """A context manager for the current device."""

    def __init__(self, index: torch.device | str | int) -> None:
        super().__init__(index if isinstance(index, int) else torch.device(index).index or 0)


# -- random numbers ----------------------------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    default_generators[0].manual_seed(seed)


manual_seed_all = manual_seed  # `torch.manual_seed` calls it


def seed() -> int:
    return default_generators[0].seed()


seed_all = seed


def initial_seed() -> int:
    return default_generators[0].initial_seed()


def get_rng_state(index: torch.device | str | int = 0) -> torch.Tensor:
    return default_generators[0].get_state()


def set_rng_state(state: torch.Tensor, index: torch.device | str | int = 0) -> None:
    default_generators[0].set_state(state)


# -- autocast ----------------------------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]
