"""Private parts of torch's dispatcher: device keys, kernels registered for a while, what is on in this thread.

As in `_torch`, each name has a test in ``tests/_torch``.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd import forward_ad

from eagerdecomp._torch.ops import OpOverload, OpOverloadPacket
from eagerdecomp._torch.private import private

__all__ = [
    "autocast_is_on",
    "below_autograd",
    "boxed_kernel",
    "close_library",
    "device_key",
    "falls_through",
    "forget_dispatch",
    "forget_dispatch_of",
    "functional_trace_active",
    "has_computed_kernel",
    "is_available",
    "is_transforming",
    "names_with_kernel",
    "overriding_silently",
    "own_device_types",
    "registered",
    "takes_numbers",
    "views_unknown_to_autograd",
    "without_autocast",
]

#: Calls of ops made while it is held go past autograd, to modes and kernels.
below_autograd = private("torch._C._AutoDispatchBelowAutograd", "calls below autograd")

#: Whether autocast, for any device, would cast what is called here; below the key at which it has cast an op it would not.
autocast_is_on: Callable[[], bool] = private("torch._C._is_any_autocast_enabled", "autocast")


#: Turns autocast off, for all devices, while it is held: ``with without_autocast():``.
without_autocast = private("torch._C._DisableAutocast", "autocast")


def views_unknown_to_autograd() -> Any:
    """Return a guard: views that are made while it is held are plain results for autograd."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView))


def device_key(device_type: str) -> str | None:
    """Return the dispatch key of a device type such as ``"cpu"``; None where torch knows no such device."""
    try:
        return str(torch._C._dispatch_key_for_device(device_type))
    except RuntimeError:
        return None


def is_available(device_type: str) -> bool:
    """Return whether there is a device of a type to run on, as far as torch's module for it says so."""
    return bool(getattr(getattr(torch, device_type, None), "is_available", lambda: True)())


def has_computed_kernel(name: str, key: str) -> bool:
    """Return whether a call of an op, by its dispatcher's name, that reaches a dispatch key finds a kernel there: one registered at
    it, or a composition for every device."""
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key))


def names_with_kernel(key: str) -> frozenset[str]:
    """Return the dispatcher's names of the ops that a kernel is registered for directly at this dispatch key or alias key: what
    `has_kernel` asks of one op, in a thousandth of the time that all of them take."""
    return frozenset(torch._C._dispatch_get_registrations_for_dispatch_key(key))


def boxed_kernel(name: str, key: str) -> Callable[..., Any]:
    """Return the kernel of an op, by its dispatcher's name, at a dispatch key now, whatever is registered there later. Only where
    `has_computed_kernel` holds."""
    found = torch._C._dispatch_get_computed_kernel_for_dispatch_key(name, getattr(torch.DispatchKey, key))
    return functools.partial(found.call_boxed, torch._C.DispatchKeySet(getattr(torch.DispatchKey, key)))


def falls_through(op: OpOverload, key: str) -> bool:
    """Return whether something is registered for the op at a dispatch key that only passes on to the next one."""
    name: str = op.name()  # type: ignore[no-untyped-call]
    found = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    return bool(found) and bool(torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key))


@contextmanager
def overriding_silently() -> Iterator[None]:
    """While it is held, torch does not warn of a kernel that is registered over another."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*[Oo]verriding a previously registered kernel")
        yield


def close_library(library: torch.library.Library) -> None:
    """Take back all that a library registered: what was overridden acts again."""
    library._destroy()  # type: ignore[no-untyped-call]


def forget_dispatch(op: OpOverload) -> None:
    """Let Python's dispatcher, which is used with symbolic sizes, look an op's kernels up again."""
    op._dispatch_cache.clear()


def forget_dispatch_of(namespaces: Iterable[str]) -> None:
    """`forget_dispatch` of every op of these namespaces that Python has made an overload of."""
    for namespace in namespaces:
        for packet in vars(getattr(torch.ops, namespace)).values():
            if isinstance(packet, OpOverloadPacket):
                for op in vars(packet).values():
                    if isinstance(op, OpOverload):
                        forget_dispatch(op)


def takes_numbers(op: OpOverload) -> bool:
    """Return whether Python code may call an op with numbers in the place of tensors."""
    name = op._schema.name.partition("::")[2]
    return op.namespace == "prims" or bool(torch._C._should_allow_numbers_as_tensors(name))


def own_device_types() -> tuple[str, ...]:
    """Return the types of the devices at hand: the CPU, and an accelerator if there is one."""
    accelerator = torch.accelerator.current_accelerator()
    own = torch._C._get_privateuse1_backend_name()
    found = ["cpu", accelerator.type if accelerator is not None else "cpu", own if own != "privateuseone" else "cpu"]
    return tuple(dict.fromkeys(found))


def registered(op: OpOverload, kernels: Mapping[str, Callable[..., Any]]) -> Callable[[], None]:
    """Register kernels for an op, by dispatch key; what is returned takes them away again. One that passes on they override.

    Raises:
        RuntimeError: where Python code has registered a kernel that does not pass on.
    """
    library: Any = torch.library.Library(op.namespace, "IMPL")  # type: ignore[no-untyped-call]

    def undo() -> None:
        close_library(library)
        forget_dispatch(op)

    try:
        for key, kernel in kernels.items():
            with overriding_silently():
                library.impl(op, kernel, key, allow_override=falls_through(op, key))
    except BaseException:
        undo()
        raise
    forget_dispatch(op)
    return undo


def is_transforming() -> bool:
    """Return whether a `torch.func` transform or forward-mode differentiation is under way in this thread."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def functional_trace_active() -> bool:
    """Return whether what runs in this thread is traced by `make_fx` or AOTAutograd."""
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(key) is not None for key in (keys.PROXY, keys.FUNCTIONAL))
