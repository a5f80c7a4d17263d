"""Kernels in torch's dispatcher, registered for one device and taken away again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.dispatcher import (
    boxed_kernel,
    close_library,
    forget_dispatch_of,
    has_computed_kernel,
    names_with_kernel,
    takes_numbers,
)
from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.promotion import computed_in, promote_types
from eagerdecomp.ops.schema import facts_of

__all__ = ["NUMBERS", "DeviceKernels", "number_places", "taking_numbers", "tensor_places", "without_numbers"]

NUMBERS = frozenset({bool, int, float, complex})

#: Integer dtypes narrower than int64, and of how many bits they are.
_BITS = {dtype: torch.iinfo(dtype).bits for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32)}

#: Dtypes of tensors made of numbers, by the number's type, the default dtype, and of each other tensor its dtype and whether it has
#: dimensions.
_dtypes: dict[Any, torch.dtype] = {}


class DeviceKernels:
    """The registrations for one device, removed together.

    Ops go by the dispatcher's names, such as ``"aten::add.Tensor"``: to make the overloads of thousands of ops takes a second.

    Args:
        key: the device's dispatch key, such as ``"CPU"`` or ``"PrivateUse1"``.
    """

    def __init__(self, key: str) -> None:
        self._key = key
        self._libraries: dict[str, torch.library.Library] = {}
        self._own = names_with_kernel(key)  # before anything is registered
        self._by_out = _written_by_out()

    def has_own(self, name: str) -> bool:
        """Whether the device has a kernel of its own for an op; what torch composes for every device is none."""
        return name in self._own

    def runs(self, name: str) -> bool:
        """Whether a call of an op finds something to run on this device."""
        return name in self._own or has_computed_kernel(name, self._key)

    def lacks(self, name: str) -> bool:
        """Whether nothing runs an op on this device: neither a kernel of its own, nor torch's for every device. Torch's for a
        functional op that is written by its ``out=`` form is none, since that is another op of the device."""
        return not self.has_own(name) and (name in self._by_out or not self.runs(name))

    def native(self, name: str) -> Callable[..., Any] | None:
        """Return the op's current kernel on this device, callable after it is overridden; None where there is none.

        It runs below autograd, and must be called with tensors of this device, and without numbers in their places
        (`without_numbers`).
        """
        return None if self.lacks(name) else boxed_kernel(name, self._key)

    def register(self, name: str, kernel: Callable[..., Any]) -> None:
        """Make a function the op's kernel. Within `overriding_silently`, where the device has one already."""
        self._library(name.partition("::")[0]).impl(name, kernel, self._key)  # type: ignore[no-untyped-call]

    def register_fallback(self, fallback: Callable[..., Any]) -> None:
        """Run what has no kernel at all by ``fallback(op, *args, **kwargs)``."""
        self._library("_").fallback(fallback, self._key)  # type: ignore[no-untyped-call]

    def remove(self) -> None:
        """Take all of it away."""
        namespaces = list(self._libraries)
        while self._libraries:
            close_library(self._libraries.popitem()[1])
        forget_dispatch_of(namespaces)

    def registered(self) -> None:
        """Make Python's dispatcher look kernels up again; call it once all are registered."""
        forget_dispatch_of(self._libraries)

    def _library(self, namespace: str) -> torch.library.Library:
        found = self._libraries.get(namespace)
        if found is None:
            found = self._libraries[namespace] = torch.library.Library(namespace, "IMPL")  # type: ignore[no-untyped-call]
        return found


@functools.cache
def _written_by_out() -> frozenset[str]:
    """Functional and in-place ops that torch runs on a device by their ``out=`` form there, unless it has a kernel for them: the
    structured ones, which the CPU has. Others of that key are compositions."""
    return names_with_kernel("CompositeExplicitAutogradNonFunctional") & names_with_kernel("CPU")


@functools.cache
def tensor_places(op: OpOverload) -> tuple[int, ...]:
    """The places of an op's tensors, lists of tensors aside, among its positional arguments."""
    arguments = facts_of(op).arguments
    return tuple(number for number, one in enumerate(arguments) if one.kind == "Tensor" and not (one.is_list or one.kwarg_only))


def number_places(op: OpOverload, *, kernel: bool, of_user: bool) -> tuple[int, ...]:
    """The places of tensors at which a mode's handler of an op must make tensors of numbers.

    A tensor that stands for a number (a wrapped number) reaches a mode as the number. torch's kernels of the ops for which it does
    take numbers. Rules of the library do too, but not for the argument that they work on. Code of the user may take tensors alone.

    Args:
        kernel: a kernel runs the op, not rules.
        of_user: the kernel, or a rule, is code of the user.
    """
    if not takes_numbers(op):
        return facts_of(op).given_numbers
    places = tensor_places(op)
    # prims take numbers at each place, and 0-dim tensors of the other tensor's dtype alone
    takes_all = kernel or op.namespace == "prims"
    return places if of_user else () if takes_all else tuple(place for place in places if place == 0)


def taking_numbers(run: Callable[..., Any], places: tuple[int, ...], make: Callable[..., Any]) -> Callable[..., Any]:
    """Return a handler that also takes numbers at these places of tensors, which it makes tensors.

    Args:
        make: `aten.scalar_tensor` as the backend runs it.
    """
    if not places:
        return run
    count = places[-1] + 1

    def handler(*args: Any, **kwargs: Any) -> Any:
        for one in args[:count]:
            if one.__class__ in NUMBERS:
                return run(*without_numbers(places, args, make), **kwargs)
        return run(*args, **kwargs)

    return handler


def without_numbers(
    places: Sequence[int], args: tuple[Any, ...], make: Callable[..., Any] = torch.scalar_tensor
) -> tuple[Any, ...]:
    """The arguments with numbers in tensors' places made tensors.

    C++ hands over a number as a tensor that says it stands for one, and the dispatcher makes a number of that for Python.
    """
    for place in places:
        if place < len(args) and isinstance(args[place], (int, float, complex)):
            return tuple([_tensor_of(one, args, make) if number in places else one for number, one in enumerate(args)])
    return args


def _tensor_of(value: Any, args: Sequence[Any], make: Callable[..., Any]) -> Any:
    """A number as a tensor that takes part in promotion as the number would."""
    if isinstance(value, Tensor) or value is None:
        return value
    tensors = [one for one in args if isinstance(one, Tensor)]
    kind = value.__class__, torch.get_default_dtype(), *[(one.dtype, bool(one.dim())) for one in tensors]
    dtype = _dtypes.get(kind)
    if dtype is None:
        dtype = _dtypes[kind] = _dtype_of(value, tensors)
    if dtype in _BITS and isinstance(value, int):  # a wrapped number is int64, and casts drop the bits above
        low = torch.iinfo(dtype).min
        value = (value - low) % (1 << _BITS[dtype]) + low
    return make(value, dtype=dtype)


def _dtype_of(value: Any, tensors: Sequence[Tensor]) -> torch.dtype:
    wide = torch.complex128 if isinstance(value, complex) else torch.float64 if isinstance(value, float) else torch.int64
    if isinstance(value, bool):
        wide = torch.bool
    if not tensors:
        return wide
    common = functools.reduce(promote_types, filter(None, [computed_in([one, value]) for one in tensors]))
    kept = any(one.dim() and one.dtype is common for one in tensors)
    return wide if kept and _category(wide) <= _category(common) else common


def _category(dtype: torch.dtype) -> int:
    """Bool, integer, floating, complex: a 0-dim tensor of no higher one than another tensor's does not promote it."""
    return 3 if dtype.is_complex else 2 if dtype.is_floating_point else 0 if dtype is torch.bool else 1
