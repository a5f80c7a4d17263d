"""torch's dispatcher: device keys, temporary registrations, and the state of the current thread."""

from __future__ import annotations

import functools
import warnings
from collections import deque
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
    "has_fallback",
    "is_available",
    "is_transforming",
    "names_with_kernel",
    "overriding_silently",
    "own_device_types",
    "registered",
    "accepts_scalars",
    "views_unknown_to_autograd",
    "without_autocast",
]

#: A guard: calls of ops inside it skip autograd, and go directly to modes and kernels.
below_autograd = private("torch._C._AutoDispatchBelowAutograd", "calls below autograd")

#: Returns whether autocast would cast the arguments of ops that are called now, on any device.
autocast_is_on: Callable[[], bool] = private("torch._C._is_any_autocast_enabled", "autocast")


#: A context manager that disables autocast for all devices: ``with without_autocast():``.
without_autocast = private("torch._C._DisableAutocast", "autocast")


def views_unknown_to_autograd() -> Any:
    """Return a guard: autograd treats views that are made in it as new tensors."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.ADInplaceOrView))


def device_key(device_type: str) -> str | None:
    """Return the dispatch key of a device type such as ``"cpu"``; None if torch has no such device type."""
    try:
        return str(torch._C._dispatch_key_for_device(device_type))
    except RuntimeError:
        return None


def is_available(device_type: str) -> bool:
    """Return whether a device of a type is available, according to torch's module for it."""
    return bool(getattr(getattr(torch, device_type, None), "is_available", lambda: True)())


def has_computed_kernel(name: str, key: str) -> bool:
    """Return whether a call that reaches a dispatch key finds a kernel: one registered for the key, a composition for every
    device, or the key's fallback.

    Args:
        name: the dispatcher's name of the op.
        key: the dispatch key.
    """
    return bool(torch._C._dispatch_has_computed_kernel_for_dispatch_key(name, key))


def has_fallback(key: str) -> bool:
    """Return whether a fallback is registered for a dispatch key: a kernel for all ops that have no other, such as one that
    computes on the CPU.
    """
    return bool(torch._C._dispatch_has_backend_fallback(getattr(torch.DispatchKey, key)))


def names_with_kernel(key: str) -> frozenset[str]:
    """Return the dispatcher's names of all ops that have a kernel registered directly for a dispatch key or alias key.

    This is a thousand times as fast as `has_kernel` for each op.
    """
    return frozenset(torch._C._dispatch_get_registrations_for_dispatch_key(key))


def boxed_kernel(name: str, key: str) -> Callable[..., Any]:
    """Return the current kernel of an op at a dispatch key; it stays the same if another one is registered later.

    Args:
        name: the dispatcher's name of the op, for which a kernel, a composition or a fallback is registered.
        key: the dispatch key.
    """
    found = torch._C._dispatch_get_computed_kernel_for_dispatch_key(name, getattr(torch.DispatchKey, key))
    return functools.partial(found.call_boxed, torch._C.DispatchKeySet(getattr(torch.DispatchKey, key)))


def falls_through(op: OpOverload, key: str) -> bool:
    """Return whether the op has a registration at a dispatch key that only passes calls on to the next key."""
    name: str = op.name()  # type: ignore[no-untyped-call]
    found = torch._C._dispatch_has_kernel_for_dispatch_key(name, key)
    return bool(found) and bool(torch._C._dispatch_kernel_for_dispatch_key_is_fallthrough(name, key))


@contextmanager
def overriding_silently() -> Iterator[None]:
    """Return a context manager in which torch does not warn if a kernel overrides another."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "(?s).*[Oo]verriding a previously registered kernel")
        yield


def close_library(library: torch.library.Library) -> None:
    """Remove all registrations of a library, which restores the kernels that it overrode."""
    library._destroy()  # type: ignore[no-untyped-call]


def forget_dispatch(op: OpOverload) -> None:
    """Clear the op's kernels in the cache of Python's dispatcher, which is used with symbolic sizes."""
    op._dispatch_cache.clear()


def forget_dispatch_of(namespaces: Iterable[str]) -> None:
    """Call `forget_dispatch` for every op of these namespaces for which Python has an overload object."""
    for namespace in namespaces:
        for packet in vars(getattr(torch.ops, namespace)).values():
            if isinstance(packet, OpOverloadPacket):
                for op in vars(packet).values():
                    if isinstance(op, OpOverload):
                        forget_dispatch(op)


def accepts_scalars(op: OpOverload) -> bool:
    """Return whether Python code may call an op with scalars in place of tensors."""
    name = op._schema.name.partition("::")[2]
    return op.namespace == "prims" or bool(torch._C._should_allow_numbers_as_tensors(name))


def own_device_types() -> tuple[str, ...]:
    """Return the types of the available devices: the CPU, and an accelerator if there is one."""
    accelerator = torch.accelerator.current_accelerator()
    own = torch._C._get_privateuse1_backend_name()
    found = ["cpu", accelerator.type if accelerator is not None else "cpu", own if own != "privateuseone" else "cpu"]
    return tuple(dict.fromkeys(found))


#: Kernels that `registered` removed last. torch frees a removed kernel at once, though a thread that has looked it up may still
#: wait for the GIL, and would then call freed memory. 4,096 take 3 MB, and 80 ms to remove.
_removed: deque[Any] = deque(maxlen=4096)


def registered(op: OpOverload, kernels: Mapping[str, Callable[..., Any]]) -> Callable[[], None]:
    """Register kernels for an op by dispatch key, and return a function that removes them.

    The kernels override fallthrough registrations. Removed ones stay alive for a while, for threads that have looked them up.

    Raises:
        RuntimeError: if Python code has registered a kernel, other than a fallthrough, for the op at one of these keys.
    """
    library: Any = torch.library.Library(op.namespace, "IMPL")  # type: ignore[no-untyped-call]
    computed: list[Any] = []

    def undo() -> None:
        close_library(library)
        forget_dispatch(op)
        _removed.extend(computed)

    try:
        for key, kernel in kernels.items():
            with overriding_silently():
                library.impl(op, kernel, key, allow_override=falls_through(op, key))
            computed.append(torch.library.get_kernel(op, key))
    except BaseException:
        undo()
        raise
    forget_dispatch(op)
    return undo


def is_transforming() -> bool:
    """Return whether a `torch.func` transform or forward-mode differentiation is active in this thread."""
    return torch._C._are_functorch_transforms_active() or forward_ad._current_level >= 0


def functional_trace_active() -> bool:
    """Return whether `make_fx` or AOTAutograd is tracing in this thread."""
    keys = torch._C._TorchDispatchModeKey
    return any(torch._C._get_dispatch_mode(key) is not None for key in (keys.PROXY, keys.FUNCTIONAL))
