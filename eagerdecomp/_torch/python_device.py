"""A device written in Python, at the dispatch key PrivateUse1: set-up, tensors, and the functions of torch that it replaces."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import nn

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.private import private

__all__ = [
    "AUTOCAST_KEY",
    "DEVICE_TYPE",
    "DeviceGuard",
    "below_autocast",
    "call_at_cpu",
    "call_at_meta",
    "current_node",
    "device_name",
    "empty_tensor",
    "load_pickled_storage",
    "nodes_of",
    "reduce_storage",
    "set_up",
    "storage_at",
    "wrap_backward",
    "wrap_module_conversion",
    "wrap_printing",
]

_FEATURE = "devices in Python"

#: Name PrivateUse1, and register its module, hooks and guard: ``set_up(name, module, device_guard=guard)``.
set_up = private("torch.utils.backend_registration._setup_privateuseone_for_python_backend", _FEATURE)

#: The base class of device guards written in Python.
DeviceGuard = private("torch._C._acc.DeviceGuard", _FEATURE)

#: The device type PrivateUse1, as C++ names it.
DEVICE_TYPE = private("torch._C._autograd.DeviceType.PrivateUse1", _FEATURE)

#: Return a tensor of PrivateUse1 with a shape and a dtype, and a storage without memory.
empty_tensor = private("torch._C._acc.create_empty_tensor", _FEATURE)

#: Return the autograd node whose backward runs in this thread; None if none runs.
current_node: Callable[[], Any] = private("torch._C._current_autograd_node", _FEATURE)

#: The function by which `torch.multiprocessing` sends storages to another process.
reduce_storage = private("torch.multiprocessing.reductions.reduce_storage", _FEATURE)

#: Load a storage from the bytes that `torch.save` wrote.
load_pickled_storage = private("torch.storage._load_from_bytes", _FEATURE)

#: The dispatch key of autocast on PrivateUse1.
AUTOCAST_KEY = "AutocastPrivateUse1"

_construct = private("torch._C._construct_storage_from_data_pointer", _FEATURE)

# torch accepts this name after PrivateUse1 got another one, too.
_DEVICE = torch.device("privateuseone", 0)


def device_name() -> str:
    """Return the name of PrivateUse1: "privateuseone" until a device gives it another."""
    return str(torch._C._get_privateuse1_backend_name())


def storage_at(address: int, nbytes: int) -> torch.UntypedStorage:
    """Return a storage of the device in Python. It neither owns nor resizes memory.

    Args:
        address: where the memory is. torch compares addresses to see which storages are the same; only kernels read there.
        nbytes: the size of the memory.

    Returns:
        The storage.
    """
    storage: torch.UntypedStorage = _construct(address, _DEVICE, nbytes)
    return storage


def call_at_cpu(op: OpOverload, *args: Any) -> Any:
    """Call the CPU's kernel of an op, whatever the device of its arguments."""
    return op._op_dk(torch._C.DispatchKey.CPU, *args)


def call_at_meta(op: OpOverload, *args: Any, **kwargs: Any) -> Any:
    """Call the Meta kernel of an op, whatever the device of its arguments."""
    return op._op_dk(torch._C.DispatchKey.Meta, *args, **kwargs)


def below_autocast() -> Any:
    """Return a guard: ops that are called in it skip autocast of PrivateUse1."""
    return torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C._dispatch_key_parse(AUTOCAST_KEY)))


def nodes_of(roots: Iterable[Any]) -> set[Any]:
    """Return the autograd nodes of a backward pass from these tensors or gradient edges."""
    found: set[Any] = set()
    unseen = [root.grad_fn if isinstance(root, torch.Tensor) else root.node for root in roots]
    while unseen:
        node = unseen.pop()
        if node is not None and node not in found:
            found.add(node)
            unseen += [following for following, _ in node.next_functions]
    return found


def wrap_backward(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function that runs backward passes by ``make(it)``."""
    from torch.autograd import graph

    wrapped = make(graph._engine_run_backward)
    graph._engine_run_backward = wrapped
    torch.autograd._engine_run_backward = wrapped  # type: ignore[attr-defined]


def wrap_module_conversion(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the method by which ``module.to()`` converts parameters by ``make(it)``."""
    nn.Module._apply = make(nn.Module._apply)  # type: ignore[method-assign]


def wrap_printing(make: Callable[[Callable[..., Any]], Callable[..., Any]]) -> None:
    """Replace the function that formats the elements of a tensor by ``make(it)``."""
    from torch import _tensor_str

    _tensor_str._tensor_str = make(_tensor_str._tensor_str)
