"""`torch.npu`: the module that torch requires of a device. There is one device; calls are synchronous."""

from __future__ import annotations

import torch

__all__ = ["NAME", "default_generators", "device", "manual_seed"]

#: The name of the device in torch, instead of PrivateUse1.
NAME = "npu"

# `torch.Generator(device=NAME)` needs a hook that torch has only in C++. So kernels sample from a CPU generator.
default_generators = (torch.Generator(device="cpu"),)

# Activation checkpointing saves a device's random state only if this is true.
_initialized = True


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
    check_index(index)


def synchronize(index: torch.device | str | int | None = None) -> None:
    check_index(index)


def check_index(device_or_index: torch.device | str | int | None) -> None:
    """Raise for any index except 0."""
    index = device_or_index if isinstance(device_or_index, int | None) else torch.device(device_or_index).index
    if index not in (None, 0):
        raise RuntimeError(f"{NAME}:{index}: there is one {NAME}, {NAME}:0")


class device:
    """A context manager that does nothing: there is only one device."""

    def __init__(self, index: torch.device | str | int) -> None:
        check_index(index)

    def __enter__(self) -> None:
        return

    def __exit__(self, *exc: object) -> None:
        return


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
    check_index(index)
    return default_generators[0].get_state()


def set_rng_state(state: torch.Tensor, index: torch.device | str | int = 0) -> None:
    check_index(index)
    default_generators[0].set_state(state)


# -- autocast ----------------------------------------------------------------------------------------------------------


def get_amp_supported_dtype() -> list[torch.dtype]:
    return [torch.bfloat16, torch.float16]
