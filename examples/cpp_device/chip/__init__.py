"""A device written in C++. `eagerdecomp` decomposes the ops for which it has no kernel to those for which it has one.

    import chip

    model.to("chip")
    print(chip.kernel_calls(), chip.fallback_calls())

If the package is installed with pip, ``import torch`` imports it. As most devices in C++, it has a fallback that runs
ops on the CPU; nothing reaches it. With ``CHIP_FALLBACK=0`` in the environment, it has none.
"""

from __future__ import annotations


def autoload() -> None:
    """Do nothing: torch calls this at the end of ``import torch`` (`pyproject.toml`), after it has imported this module."""


import torch  # noqa: E402 - where this is what first imports torch, `autoload` must be there already

from chip.build import build  # noqa: E402

_C = build()

torch.utils.rename_privateuse1_backend("chip")

from chip import device  # noqa: E402

torch._register_device_module("chip", device)
torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

from chip.decompose import backend, handle  # noqa: E402

__all__ = ["autoload", "backend", "fallback_calls", "handle", "kernel_calls", "reset_calls"]


def kernel_calls() -> dict[str, int]:
    """Return the number of calls of each kernel of the device."""
    return {name: calls for name, calls in _C.kernel_calls().items() if calls}


def fallback_calls() -> dict[str, int]:
    """Return the number of calls of each op that ran on the CPU, by the fallback."""
    calls: dict[str, int] = _C.fallback_calls()
    return calls


def reset_calls() -> None:
    """Set all these numbers to 0."""
    _C.reset_calls()
