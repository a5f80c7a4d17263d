"""Kinds of tensors: fake, dense, without memory, with lazy bits."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Sequence
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
    "WeakTensor",
    "desugars_first",
    "fake_tensor_log_off",
    "has_values",
    "is_dense",
    "is_zero_tensor",
    "lazy_bit_guards",
    "lazy_bits_seen_by_kernels",
    "lazy_bits_visible",
    "same_storage",
    "suggested_memory_format",
]


#: What `__torch_dispatch__` is on tensors that do not decompose operators themselves.
PLAIN_TORCH_DISPATCH = torch.Tensor.__torch_dispatch__


#: What `__torch_function__` is on a tensor subclass that leaves torch's functions alone: torch counts it as one without any.
NO_TORCH_FUNCTION = torch.nn.Parameter.__torch_function__

#: The types of tensors that are no subclass of a user or of torch.
PLAIN_TENSORS = frozenset({torch.Tensor, torch.nn.Parameter})


#: A reference that keeps a tensor's address from being used again, and not the tensor alive: ``.expired()`` says that it is gone.
WeakTensor = private("torch._C._WeakTensorRef", "graphs of FX")


#: The dispatch key of each lazy bit, and the tensor's method that says whether it is set.
_LAZY_BITS = {"Conjugate": "is_conj", "Negative": "is_neg", "ZeroTensor": "_is_zerotensor"}
_LAZY_KEYS = (
    private("torch._C.DispatchKey.Conjugate", "lazy bits"),
    private("torch._C.DispatchKey.Negative", "lazy bits"),
    private("torch._C.DispatchKey.ZeroTensor", "lazy bits"),
)
_ExcludeKey = private("torch._C._SetExcludeDispatchKeyGuard", "lazy bits")


def lazy_bits_seen_by_kernels(op: OpOverload) -> tuple[str, ...]:
    """Return the `Tensor` methods of the lazy bits (conj, neg, zero-tensor) that reach this op's kernels unresolved.

    torch resolves every other bit before a mode sees the call. Its fallback resolves nothing for a view op: it passes the bit on.
    Only ops that see a bit need `lazy_bits_visible` when decomposed.
    """
    is_view = _is_view_by_schema(op)
    return tuple(method for key, method in _LAZY_BITS.items() if is_view or has_kernel(op, key))


def _is_view_by_schema(op: OpOverload) -> bool:
    """Return whether torch's conj, neg and zero-tensor fallbacks take the op for a view: it aliases an argument and writes none."""
    schema = op._schema
    return not schema.is_mutable and any(argument.alias_info is not None for argument in schema.arguments)


def lazy_bit_guards() -> tuple[Any, Any, Any]:
    """Guards that let conj, neg and zero-tensor fallbacks act again: inside a mode's handler torch excludes them, so that ops made
    of others are silently wrong there on such inputs. Held around the ``with mode`` they have no effect; they act when entered."""
    first, second, third = (_ExcludeKey(key, False) for key in _LAZY_KEYS)
    return first, second, third


@contextmanager
def lazy_bits_visible() -> Iterator[None]:
    """The same as one, by a generator, which an interrupt may leave suspended: not for where the user's calls run."""
    first, second, third = lazy_bit_guards()
    with first, second, third:
        yield


def is_zero_tensor(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of zeros that has no memory, as autograd makes them for what is not differentiated."""
    return bool(torch._is_zerotensor(tensor))


def has_values(tensor: torch.Tensor) -> bool:
    """Return whether a tensor has strides and elements that can be read: it `is_dense`, and not on the meta device."""
    return tensor.device.type != "meta" and is_dense(tensor)


def is_dense(tensor: torch.Tensor) -> bool:
    """Return whether a tensor is one of plain strided memory, or would be if it were not on the meta device.

    Fake, sparse, nested and quantized tensors, tensors inside a `torch.func` transform or functionalization, and subclasses with a
    `__torch_dispatch__` are not.
    """
    return (
        getattr(type(tensor), "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH
        and tensor.layout is torch.strided
        and not tensor.is_nested
        and not tensor.is_quantized
        and not torch._C._functorch.is_functorch_wrapped_tensor(tensor)
        and not torch._is_functional_tensor(tensor)
    )


def desugars_first(types: Sequence[type]) -> bool:
    """Return whether a call holds a tensor subclass that decomposes operators itself: it goes first, and we see what it calls."""
    return not all(
        issubclass(kind, FakeTensor) or getattr(kind, "__torch_dispatch__", None) is PLAIN_TORCH_DISPATCH for kind in types
    )


def suggested_memory_format(tensor: torch.Tensor) -> torch.memory_format:
    """ATen's `suggest_memory_format`: channels last where the strides look so, dimensions of size 1 aside; else contiguous."""
    from torch._prims_common import suggest_memory_format

    return suggest_memory_format(tensor)


def same_storage(left: torch.Tensor, right: torch.Tensor) -> bool:
    """Return whether two tensors share memory's owner. `torch._C._is_alias_of` says the same at fifteen times the cost."""
    return bool(left.untyped_storage()._cdata == right.untyped_storage()._cdata)


@contextmanager
def fake_tensor_log_off() -> Iterator[None]:
    """Keep torch from logging, as an error, each op of this thread that has no result for fake tensors."""
    log, here = logging.getLogger(FakeTensor.__module__), threading.get_ident()
    log.addFilter(elsewhere := lambda record: threading.get_ident() != here)
    try:
        yield
    finally:
        log.removeFilter(elsewhere)
