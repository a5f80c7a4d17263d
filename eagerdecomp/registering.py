"""Kernels in torch's dispatcher, registered for one device and taken away again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._dispatcher import close_library, forget_dispatch, has_computed_kernel, overriding_in_silence
from eagerdecomp._torch import OpOverload, has_kernel, is_dispatched, op_names, overload
from eagerdecomp.schema import facts_of

__all__ = ["DeviceKernels", "tensor_places", "without_numbers"]


class DeviceKernels:
    """What is registered for one device, to be taken away at once.

    Args:
        key: the device's dispatch key, such as ``"CPU"`` or ``"PrivateUse1"``.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._libraries: dict[str, torch.library.Library] = {}
        self._ops: list[OpOverload] = []
        self._by_out = _written_by_out()  # before anything is registered

    def has_own(self, op: OpOverload) -> bool:
        """Whether the device has a kernel of its own for an op; what torch composes for every device is none."""
        return has_kernel(op, self._key)

    def runs(self, op: OpOverload) -> bool:
        """Whether a call of an op finds something to run on this device."""
        return has_computed_kernel(op, self._key)

    def lacks(self, op: OpOverload) -> bool:
        """Whether nothing runs an op on this device: neither a kernel of its own, nor torch's for every device. Torch's for a
        functional op that is written by its ``out=`` form is none, since that is another op of the device."""
        return not self.has_own(op) and (op in self._by_out or not self.runs(op))

    def native(self, op: OpOverload) -> Callable[..., Any] | None:
        """What runs an op on this device so far, to be called still when it is overridden; None where nothing does.

        It runs below autograd, and must be called with tensors of this device.
        """
        if self.lacks(op):
            return None
        call = torch.library.get_kernel(op, self._key).call_boxed
        keys = torch._C.DispatchKeySet(getattr(torch.DispatchKey, self._key))
        places = tensor_places(op)

        def native(*args: Any, **kwargs: Any) -> Any:
            return call(keys, *without_numbers(places, args), **kwargs)

        return native

    def register(self, op: OpOverload, kernel: Callable[..., Any]) -> None:
        """Make a function the op's kernel."""
        with overriding_in_silence():
            self._library(op.namespace).impl(op, kernel, self._key)  # type: ignore[no-untyped-call]
        self._ops.append(op)
        forget_dispatch(op)

    def register_fallback(self, fallback: Callable[..., Any]) -> None:
        """Run what has no kernel at all by ``fallback(op, *args, **kwargs)``."""
        self._library("_").fallback(fallback, self._key)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Take all of it away."""
        while self._libraries:
            close_library(self._libraries.popitem()[1])
        while self._ops:
            forget_dispatch(self._ops.pop())

    def _library(self, namespace: str) -> torch.library.Library:
        found = self._libraries.get(namespace)
        if found is None:
            found = self._libraries[namespace] = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
        return found


@functools.cache
def _written_by_out() -> frozenset[OpOverload]:
    """Functional and in-place ops that torch runs on a device by their ``out=`` form there, unless it has a kernel for them: the
    structured ones, which the CPU has. Others of that key are compositions."""
    ops = (op for op in map(overload, op_names()) if op is not None and is_dispatched(op))
    return frozenset(op for op in ops if has_kernel(op, "CompositeExplicitAutogradNonFunctional") and has_kernel(op, "CPU"))


def tensor_places(op: OpOverload) -> tuple[int, ...]:
    """The places of an op's tensors, lists of tensors aside, among its positional arguments."""
    arguments = facts_of(op).arguments
    return tuple(number for number, one in enumerate(arguments) if one.kind == "Tensor" and not (one.is_list or one.kwarg_only))


def without_numbers(places: Sequence[int], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """The arguments with numbers in tensors' places made tensors.

    C++ hands over a number as a tensor that says it stands for one, and the dispatcher makes a number of that for Python.
    """
    for place in places:
        if place < len(args) and isinstance(args[place], (int, float, complex)):
            return tuple([_tensor_of(one, args) if number in places else one for number, one in enumerate(args)])
    return args


def _tensor_of(value: Any, args: Sequence[Any]) -> Any:
    """A number as a tensor that takes part in promotion as the number would."""
    if isinstance(value, Tensor) or value is None:
        return value
    tensors = [one for one in args if isinstance(one, Tensor)]
    wide = torch.complex128 if isinstance(value, complex) else torch.float64 if isinstance(value, float) else torch.int64
    if isinstance(value, bool):
        wide = torch.bool
    if not tensors:
        return torch.scalar_tensor(value, dtype=wide)
    common = functools.reduce(torch.promote_types, [torch.result_type(one, value) for one in tensors])
    kept = any(one.dim() and one.dtype is common for one in tensors)
    return torch.scalar_tensor(value, dtype=wide if kept and _category(wide) <= _category(common) else common)


def _category(dtype: torch.dtype) -> int:
    """Bool, integer, floating, complex: a 0-dim tensor of no higher one than another tensor's does not promote it."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1
