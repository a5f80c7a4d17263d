"""Lend the state of a generator to kernels of a set, which draw only from the default generator of their device."""

from __future__ import annotations

import functools
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["drawing_again", "drawing_from", "drawing_in_turn", "is_own", "states_of", "takes_generator"]

_exchange = threading.RLock()
if hasattr(os, "register_at_fork"):  # as `host.fork_safe`: a child lacks the thread that held it
    os.register_at_fork(after_in_child=_exchange._at_fork_reinit)  # type: ignore[attr-defined]


@contextmanager
def drawing_from(generator: torch.Generator | None, device: torch.device | str | None) -> Iterator[None]:
    """Make kernels draw from this generator instead of the device's default generator, within the context.

    Kernels that the library calls in other threads (`drawing_in_turn`) wait meanwhile.

    Raises:
        RuntimeError: eager's error, for a generator of another device type.
    """
    if generator is None:
        yield
        return
    asked = torch.device(device if device is not None else "cpu")
    default = _default_generator(asked)
    # A device that is made in Python has CPU generators, because torch makes none for it.
    if generator.device.type != default.device.type:
        raise RuntimeError(f"Expected a '{asked.type}' device type for generator but found '{generator.device.type}'")
    # A generator may arrive as another Python object with the same state.
    if default._cdata == generator._cdata:  # type: ignore[attr-defined]
        yield
        return
    with _exchange:
        kept = default.get_state()
        default.set_state(generator.get_state())
        try:
            yield
        finally:
            generator.set_state(default.get_state())
            default.set_state(kept)


def drawing_in_turn(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a kernel that draws random numbers to wait while another thread has lent a state (`drawing_from`)."""

    @functools.wraps(kernel)
    def run(*args: Any, **kwargs: Any) -> Any:
        with _exchange:
            return kernel(*args, **kwargs)

    return run


def is_own(argument: object) -> bool:
    """Return whether an argument is a generator that the program made: one on the CPU other than the default one."""
    if not isinstance(argument, torch.Generator) or argument.device.type != "cpu":
        return False
    return bool(argument._cdata != torch.default_generator._cdata)  # type: ignore[attr-defined]


def takes_generator(*args: Any, generator: torch.Generator | None = None, **kwargs: Any) -> bool:
    """Return whether a call passes a generator. A recorded program cannot lend the state of a generator."""
    return generator is not None


def states_of(tensors: Iterable[torch.Tensor]) -> list[tuple[torch.Generator, torch.Tensor]]:
    """Return the default generators from which kernels on these tensors may draw, including the CPU's, each with its state."""
    found = {"cpu": torch.default_generator}
    for device in {tensor.device for tensor in tensors}:
        if device.type not in ("cpu", "meta") and getattr(torch.get_device_module(device), "default_generators", None):
            found[str(device)] = _default_generator(device)
    return [(generator, generator.get_state()) for generator in found.values()]


@contextmanager
def drawing_again(states: Sequence[tuple[torch.Generator, torch.Tensor]] | None) -> Iterator[None]:
    """Set default generators to these states, so that they repeat their numbers. Restore the current states after the context."""
    if states is None:
        yield
        return
    with _exchange:
        kept = [(generator, generator.get_state()) for generator, _ in states]
        try:
            for generator, state in states:
                generator.set_state(state)
            yield
        finally:
            for generator, state in kept:
                generator.set_state(state)


def _default_generator(device: torch.device) -> torch.Generator:
    if device.type == "cpu":
        return torch.default_generator
    module = torch.get_device_module(device)
    found: torch.Generator = module.default_generators[module.current_device() if device.index is None else device.index]
    return found
