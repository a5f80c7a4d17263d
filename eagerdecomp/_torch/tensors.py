"""Kinds of tensors: fake, dense, without memory, with lazy bits."""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from eagerdecomp._torch.ops import OpOverload, has_kernel
from eagerdecomp._torch.private import private

if TYPE_CHECKING:
    from torch._subclasses.fake_tensor import FakeTensor as FakeTensor
    from torch._subclasses.fake_tensor import FakeTensorMode as FakeTensorMode
else:
    FakeTensor = private("torch._subclasses.fake_tensor.FakeTensor", "fake tensors")
    FakeTensorMode = private("torch._subclasses.fake_tensor.FakeTensorMode", "fake tensors")

__all__ = [
    "FakeTensor",
    "FakeTensorMode",
    "NO_TORCH_FUNCTION",
    "PLAIN_TENSORS",
    "PLAIN_TORCH_DISPATCH",
    "WeakStorage",
    "WeakTensor",
    "any_fake",
    "can_be_copied",
    "desugars_first",
    "dispatch_keys",
    "fake_tensor_log_off",
    "has_values",
    "is_dense",
    "is_slow_convolution",
    "is_zero_tensor",
    "lazy_bit_guards",
    "lazy_bits_seen_by_kernels",
    "lazy_bits_visible",
    "same_storage",
    "suggested_memory_format",
]


#: `__torch_dispatch__` of tensors that do not handle ops themselves.
PLAIN_TORCH_DISPATCH = torch.Tensor.__torch_dispatch__


#: `__torch_function__` of a tensor subclass that changes no function. torch treats it as a class without the method.
NO_TORCH_FUNCTION = torch.nn.Parameter.__torch_function__

#: The types of plain tensors.
PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


#: A weak reference to a tensor. It keeps the tensor's address reserved. ``.expired()`` says whether the tensor is gone.
WeakTensor = private("torch._C._WeakTensorRef", "C++ compositions")


#: A weak reference to a storage. It keeps the storage's address reserved, but not its memory.
WeakStorage = private("torch.multiprocessing.reductions.StorageWeakRef", "C++ compositions")


#: Dispatch key of a lazy bit -> the tensor method that returns whether it is set.
_LAZY_BITS = {"Conjugate": "is_conj", "Negative": "is_neg", "ZeroTensor": "_is_zerotensor"}
_LAZY_KEYS = (
    private("torch._C.DispatchKey.Conjugate", "lazy bits"),
    private("torch._C.DispatchKey.Negative", "lazy bits"),
    private("torch._C.DispatchKey.ZeroTensor", "lazy bits"),
)
_ExcludeKey = private("torch._C._SetExcludeDispatchKeyGuard", "lazy bits")


@functools.cache
def lazy_bits_seen_by_kernels(op: OpOverload) -> tuple[str, ...]:
    """Return the `Tensor` methods of the lazy bits (conj, neg, zero-tensor) that reach this op's kernels unresolved.

    torch resolves all other bits before a mode sees the call. For a view op its fallback passes the bit on. Only ops that get such
    bits need `lazy_bits_visible` when they are decomposed.
    """
    is_view = _is_view_by_schema(op)
    return tuple(method for key, method in _LAZY_BITS.items() if is_view or has_kernel(op, key))


def _is_view_by_schema(op: OpOverload) -> bool:
    """Return whether torch's fallbacks for lazy bits treat the op as a view: it aliases an argument and writes none."""
    schema = op._schema
    return not schema.is_mutable and any(argument.alias_info is not None for argument in schema.arguments)


def lazy_bit_guards() -> tuple[Any, Any, Any]:
    """Return guards that enable the fallbacks for conj, neg and zero-tensor bits in a mode's handler, where torch disables them.

    Without them, composites return wrong results for tensors with such bits. Enter them inside the mode; outside they have no
    effect.
    """
    first, second, third = (_ExcludeKey(key, False) for key in _LAZY_KEYS)
    return first, second, third


@contextmanager
def lazy_bits_visible() -> Iterator[None]:
    """Return the guards of `lazy_bit_guards` as one context manager.

    An interrupt may leave it suspended, so do not use it around user code.
    """
    first, second, third = lazy_bit_guards()
    with first, second, third:
        yield


#: Returns a tensor's dispatch keys: its device's type and layout, and wrappers such as those of `torch.func`.
dispatch_keys: Callable[[torch.Tensor], Any] = private("torch._C._dispatch_keys", "recorded values")


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is an efficient zero tensor, which has no memory. Autograd makes them for missing tangents."""
    return bool(torch._is_zerotensor(tensor))


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has strides and readable elements: it `is_dense`, and not on the meta device."""
    return tensor.device.type != "meta" and is_dense(tensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has plain strided memory, or is a meta tensor with strides.

    Fake, sparse, nested and quantized tensors, tensors inside a `torch.func` transform or functionalization, and subclasses with a
    `__torch_dispatch__` are not dense.
    """
    return (
        getattr(type(tensor), "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
    )


def can_be_copied(tensor: torch.Tensor) -> bool:
    """Return whether a call can be repeated on a copy of a tensor: it has memory of its own, in any layout, or is a meta tensor."""
    return (
        getattr(type(tensor), "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
        and not is_zero_tensor(tensor)
    )


def desugars_first(types: Sequence[type]) -> bool:
    """Return whether a call has a tensor subclass that handles ops itself.

    It runs first, and our mode sees the ops that it calls.
    """
    return not all(
        issubclass(kind, FakeTensor) or getattr(kind, "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH for kind in types
    )


def any_fake(types: Sequence[type]) -> bool:
    """Return whether one of these types of tensors is that of fake tensors."""
    return any(issubclass(kind, FakeTensor) for kind in types)


def strides_like_channels_last(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return whether ATen's `suggest_memory_format` is channels last for a tensor of this shape and these strides."""
    from torch._prims_common import are_strides_like_channels_last_or_false

    return are_strides_like_channels_last_or_false(shape, strides)


def convolution_format(input: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> torch.memory_format:
    """Return the memory format of a convolution's results; it depends on the library that torch selects.

    `geometry` is stride, padding, dilation, transposed, output_padding and groups.
    """
    backend = torch._C._select_conv_backend(input, weight, None, *geometry)
    return torch._C._conv_determine_backend_memory_format(input, weight, backend)


def is_slow_convolution(input: torch.Tensor, weight: torch.Tensor, *geometry: Any) -> bool:
    """Return whether eager's own kernel computes a convolution of images: for float64, and with one thread for small images."""
    return "Slow" in str(torch._C._select_conv_backend(input, weight, None, *geometry))


def suggested_memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """Return ATen's `suggest_memory_format`: channels last if all strides are, also of dimensions of size 1, else contiguous."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(tensor)


#: Returns whether two tensors share a storage.
same_storage: Callable[[torch.Tensor, torch.Tensor], bool] = private("torch._C._is_alias_of", "writes")


@contextmanager
def fake_tensor_log_off() -> Iterator[None]:
    """Return a context manager in which torch does not log an error for each op of this thread that cannot run on fake tensors."""
    log, here = logging.getLogger(FakeTensor.__module__), threading.get_ident()
    log.addFilter(elsewhere := lambda record: threading.get_ident() != here)
    try:
        yield
    finally:
        log.removeFilter(elsewhere)
