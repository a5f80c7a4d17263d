"""Make a device: name torch's PrivateUse1 device, and give it what torch requires of a device."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any

from eagerdecomp._torch.python_device import device_name, set_up
from eagerdecomp.device.autocast import FLOAT32, LOWER_PRECISION, register_autocast
from eagerdecomp.device.backward_errors import ErrorGuard, raise_stored_errors
from eagerdecomp.device.module import DeviceModule
from eagerdecomp.device.names import problem_with_name
from eagerdecomp.device.parameters import keep_parameters
from eagerdecomp.device.printing import print_from_cpu
from eagerdecomp.device.storages import NewStorage, replace_storages
from eagerdecomp.errors import ArgumentError, InstallError
from eagerdecomp.ops.opset import OpLike, resolve_ops

__all__ = ["make_device"]


def make_device(
    name: str,
    new_storage: NewStorage | None = None,
    *,
    functions: Mapping[str, Any] = MappingProxyType({}),
    lower_precision: Iterable[OpLike] = LOWER_PRECISION,
    float32: Iterable[OpLike] = FLOAT32,
) -> DeviceModule:
    """Make a device of torch, in Python: ``device="NAME"``, ``tensor.NAME()``, ``torch.NAME``, ``torch.autocast("NAME")``.

    The package of a backend calls this once, when it is imported, and registers its kernels with `torch.library` for the dispatch
    key ``"PrivateUse1"``. A process has one such device. Nothing of this can be undone.

    Args:
        name: the name of the device: lowercase letters, with _ between them.
        new_storage: a function that returns a storage of the device with the bytes of a storage of the CPU, for
            `torch.UntypedStorage`, `copy.deepcopy`, `torch.load` and `pickle`; None if only kernels allocate. A process that
            receives a tensor of the device imports the module of this function, which must make the device there.
        functions: attributes of ``torch.NAME`` that `DeviceModule` lacks, or that replace its own. For example, a device that
            does not draw random numbers from ``default_generators[0]`` replaces ``manual_seed``.
        lower_precision: the ops that autocast runs in the lower precision.
        float32: the ops that autocast runs in float32.

    Returns:
        The module ``torch.NAME``.

    Raises:
        ArgumentError: if torch cannot have a device of this name.
        OpSetError: if this torch lacks one of these ops.
        InstallError: if torch's PrivateUse1 device has a name already: of an earlier call, or of another package.

    Examples:
        >>> import torch
        >>> from eagerdecomp.device import make_device, storage_at
        >>> def new_storage(memory):
        ...     storage = storage_at(memory.data_ptr(), memory.nbytes())
        ...     storage.memory = memory  # keeps it alive
        ...     return storage
        >>> module = make_device("toy", new_storage)
        >>> torch.UntypedStorage(8, device="toy").device
        device(type='toy', index=0)
        >>> torch.toy.device_count()
        1
    """
    _check_unnamed(name)
    problem = problem_with_name(name)
    if problem:
        raise ArgumentError(f"{problem}. Choose another name")
    lower, single = resolve_ops(lower_precision), resolve_ops(float32)
    module = DeviceModule(name, functions)
    set_up(name, module, device_guard=ErrorGuard())
    register_autocast(name, lower, single)
    replace_storages(module, new_storage)
    keep_parameters(name)
    print_from_cpu(name)
    raise_stored_errors()
    return module


def _check_unnamed(name: str) -> None:
    current = device_name()
    if current == "privateuseone":
        return
    if current == name:
        raise InstallError(f"the device {name!r} exists already: make it once, in a module that the rest of the package imports")
    raise InstallError(
        f"torch's PrivateUse1 device is named {current!r} already, and a process has one: {name!r} needs a process of its own"
    )
