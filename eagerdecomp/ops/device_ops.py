"""Which ops a device can run by itself: by kernels for its own dispatch key, and by torch's compositions, but not by a fallback."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import torch

from eagerdecomp._torch.dispatcher import device_key, has_fallback, names_with_kernel
from eagerdecomp._torch.ops import OpOverload, dispatcher_name, dotted, has_tag, overload
from eagerdecomp.errors import ArgumentError, InstallError
from eagerdecomp.ops.opset import INFRA_NAMES
from eagerdecomp.ops.passthrough import is_passthrough_name
from eagerdecomp.ops.schema import facts_of, out_variant

__all__ = ["DeviceOps", "device_ops", "forget_own", "key_of_device", "remember_own"]

#: Ops that allocate, resize or copy bytes, besides `INFRA_NAMES` and those that their schema shows: views and ``inplace_view`` ops.
_MEMORY_NAMES = frozenset(
    {
        "aten::_copy_from",
        "aten::_copy_from_and_resize",
        "aten::_pin_memory",
        "aten::_resize_output_",
        "aten::_unsafe_view",
        "aten::empty_like",
        "aten::empty_permuted",
        "aten::new_empty",
        "aten::new_empty_strided",
        "aten::record_stream",
        "aten::resize",
    }
)

#: Compositions that need a kernel of the device for another op -> that op, and ops on the way to it. torch's own kernel of it only
#: raises an error. Devices with a kernel of `_BUILT_IN` do not need it.
_OVERRIDEABLE = {
    "aten::convolution": ("aten::convolution_overrideable", "aten::_convolution"),
    "aten::convolution_backward": ("aten::convolution_backward_overrideable",),
}
_OVERRIDEABLE_OPS = frozenset(names[0] for names in _OVERRIDEABLE.values())
_BUILT_IN = frozenset({"aten::_slow_conv2d_forward", "aten::_mps_convolution"})

#: The alias keys of torch's compositions.
_COMPOSED = ("CompositeExplicitAutogradNonFunctional", "CompositeExplicitAutograd", "CompositeImplicitAutograd")

#: Dispatch key -> what the device had before the library registered kernels for it.
_before: dict[str, DeviceOps] = {}


@dataclass(frozen=True)
class DeviceOps:
    """The ops that a device can run.

    They are given by the dispatcher's names, such as ``"aten::add.Tensor"``, because it takes a second to make the overload objects
    of thousands of ops.

    Attributes:
        own: the ops with a kernel of the device.
        has_fallback: whether the device has a fallback, which runs all other ops, such as on the CPU.
        composed: the ops that torch composes of other ops, on every device.
    """

    own: frozenset[str]
    has_fallback: bool
    composed: frozenset[str]

    def runs(self, name: str) -> bool:
        """Return whether the device has a kernel for an op, or torch composes it of other ops on every device."""
        return name in self.own or name in self.composed

    def lacks(self, name: str) -> bool:
        """Return whether an op has neither a kernel of the device nor a composition that the device can run."""
        if name in self.own:
            return False
        needed = self.relied_on(name)[:1]
        if not needed:
            return name in _OVERRIDEABLE_OPS or name not in self.composed
        return needed[0] not in self.own and (name in _OVERRIDEABLE or needed[0] not in self.composed)

    def relied_on(self, name: str) -> tuple[str, ...]:
        """Return the op that torch's composition of an op needs from the device, and ops that it calls on the way.

        The compositions of structured ops, such as ``add.Tensor`` and ``add_.Tensor``, only call the ``out=`` form. If the device
        has a kernel for the op itself, none is needed.
        """
        if name in self.own:
            return ()
        if name not in _structured():
            return () if self.own & _BUILT_IN else _OVERRIDEABLE.get(name, ())
        op = overload(name)
        out = out_variant(op) if op is not None else None
        return () if out is None else (dispatcher_name(out),)

    def memory(self) -> frozenset[str]:
        """Return the ops that compute nothing, only allocate, resize, view or copy bytes, and that the device runs."""
        views = names_with_kernel("ADInplaceOrView")  # in-place ops too
        found = {name for name in self.own & views if (op := overload(name)) is not None and _keeps_bytes(op)}
        # torch composes in-place ops such as `transpose_` without any kernel.
        found |= {name for name in self.composed & views if has_tag(name, torch.Tag.inplace_view)}
        return frozenset(found) | (self.own & _MEMORY_NAMES) | {name for name in INFRA_NAMES if not self.lacks(name)}

    def all(self) -> frozenset[str]:
        """Return the ops with a kernel of the device, the ops that run by such a kernel of another form, and `infra`'s that run.

        Ops that run natively on every set, such as collectives, are not among them.
        """
        packets = {name.partition(".")[0] for name in self.own}
        forms = [name for name in _structured() if name.partition(".")[0].rstrip("_") in packets]
        found = self.own | {name for name in (*forms, *_OVERRIDEABLE, *INFRA_NAMES) if not self.lacks(name)}
        return frozenset(name for name in found if not is_passthrough_name(dotted(name)))


def key_of_device(device: Any) -> str:
    """Return the dispatch key of a device type, such as ``"CPU"``.

    Raises:
        InstallError: if kernels cannot be registered for such a device.
    """
    key = device_key(device) if isinstance(device, str) and device != "meta" else None
    if key is None:
        raise InstallError(
            f"{device!r} is not a device type that torch can have kernels for. Pass a type without an index, such as 'cuda'. For a "
            "device of your own, import its package first, which calls torch.utils.rename_privateuse1_backend(name)"
        )
    return key


def check_device_type(backend: str, device_type: str | None) -> None:
    """Raise for the device type of a backend that no tensor can have: all calls would run natively.

    It is checked when the backend is used, because a backend may be made before its package renames PrivateUse1.

    Raises:
        ArgumentError: if torch has no such device type.
    """
    if device_type is None or (device_key(device_type) is not None and torch.device(device_type).type == device_type):
        return
    raise ArgumentError(
        f"backend {backend!r}: torch has no device type {device_type!r}. Pass a type without an index, such as 'cuda'. "
        "For a device of your own, import its package first, which calls torch.utils.rename_privateuse1_backend(name)"
    )


def device_ops(key: str) -> DeviceOps:
    """Return what a device can run by itself, without the kernels that an installation has registered.

    Args:
        key: the device's dispatch key, such as ``"CPU"`` or ``"PrivateUse1"``.
    """
    found = _before.get(key)
    if found is not None:
        return found
    return DeviceOps(names_with_kernel(key), has_fallback(key), frozenset().union(*map(names_with_kernel, _COMPOSED)))


def remember_own(key: str, ops: DeviceOps) -> None:
    """Let `device_ops` return this until `forget_own`: what a device can run before kernels are registered."""
    _before[key] = ops


def forget_own(key: str) -> None:
    """End what `remember_own` began, once the kernels are removed."""
    _before.pop(key, None)


def _keeps_bytes(op: OpOverload) -> bool:
    """Return whether an op returns a view, or changes only the sizes, strides or storage of its argument."""
    facts = facts_of(op)
    return facts.changes_metadata or (facts.returns_alias and not facts.mutated)


@functools.cache
def _structured() -> frozenset[str]:
    """Return the functional and in-place ops whose default kernel only calls their ``out=`` form: torch's structured ops.

    Such a kernel is at the dispatch key ``CompositeExplicitAutogradNonFunctional``. Other compositions are at this key too, but
    their ops have no kernel for the CPU.
    """
    return names_with_kernel("CompositeExplicitAutogradNonFunctional") & device_ops("CPU").own
