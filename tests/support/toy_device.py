"""A device "toy" in host memory, made by `eagerdecomp.device`. A process that imports this has it for good.

Each kernel runs the CPU's on the memory of the tensors. Ops outside Core ATen need `ed.install(BACKEND)`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from eagerdecomp.device import make_device, meta_kernel, set_layout, storage_at, tensor_in

aten = torch.ops.aten
_as_strided = meta_kernel(aten.as_strided.default)


def new_storage(memory: torch.UntypedStorage) -> torch.UntypedStorage:
    storage = storage_at(memory.data_ptr(), memory.nbytes())
    storage.memory = memory  # type: ignore[attr-defined]
    return storage


MODULE = make_device("toy", new_storage)


def here(value: Any) -> Any:
    """Return tensors of the device as CPU tensors that share their memory."""
    if isinstance(value, Tensor) and value.device.type == "toy":
        memory = getattr(value.untyped_storage(), "memory", None)
        if memory is None:  # torch has made this storage from one of ours, which it keeps alive
            storage = value.untyped_storage()
            memory = torch._C._construct_storage_from_data_pointer(storage.data_ptr(), torch.device("cpu"), storage.nbytes())
        return torch.empty(0, dtype=value.dtype).set_(memory, value.storage_offset(), value.shape, value.stride())
    if isinstance(value, (list, tuple)):
        return type(value)([here(one) for one in value])
    return torch.device("cpu") if isinstance(value, torch.device) else value


def there(value: Any) -> Any:
    """Return CPU tensors as tensors of the device that share their memory."""
    if isinstance(value, Tensor):
        return tensor_in(new_storage(value.untyped_storage()), value.dtype, value.storage_offset(), value.shape, value.stride())
    return type(value)([there(one) for one in value]) if isinstance(value, (list, tuple)) else value


def _kernel(op: Any) -> Callable[..., Any]:
    is_random = torch.Tag.nondeterministic_seeded in op.tags and "generator" in op.overloadpacket.overloads()

    def kernel(*args: Any, **kwargs: Any) -> Any:
        run, extra = (op.overloadpacket.generator, {"generator": MODULE.default_generators[0]}) if is_random else (op, {})
        return there(run(*here(args), **{name: here(value) for name, value in kwargs.items()}, **extra))

    def make_views(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        views = op(here(self), *args, **kwargs)
        given = [views] if isinstance(views, Tensor) else views
        found = [_as_strided(self, one.shape, one.stride(), one.storage_offset()) for one in given]
        return found[0] if isinstance(views, Tensor) else found

    return make_views if op.is_view else kernel


def _copy(self: Tensor, source: Tensor, non_blocking: bool = False) -> Tensor:
    here(self).copy_(here(source))
    return self


def _set_storage(self: Tensor, source: Any, offset: int, size: Any, stride: Any = ()) -> Tensor:
    return set_layout(self, source, offset, size, stride or torch.empty(size, device="meta").stride())


def _resize(self: Tensor, size: Any, *, memory_format: torch.memory_format | None = None) -> Tensor:
    like = torch.empty(size, dtype=self.dtype, memory_format=memory_format or torch.contiguous_format)
    fits = self.untyped_storage().nbytes() >= like.untyped_storage().nbytes()
    return _set_storage(self, self.untyped_storage() if fits else new_storage(like.untyped_storage()), 0, size, like.stride())


_WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: _copy,
    aten._local_scalar_dense.default: lambda self: here(self).item(),
    aten.resize_.default: _resize,
    aten.set_.source_Storage: lambda self, source: _set_storage(self, source, 0, [source.nbytes() // self.element_size()]),
    aten.set_.source_Storage_storage_offset: _set_storage,
    aten.set_.source_Tensor: lambda self, source: _set_storage(
        self, source.untyped_storage(), source.storage_offset(), source.shape, source.stride()
    ),
}

#: Ops for which torch has kernels for every device, ops that resize, and ops that torch decomposes below autograd.
_WITHOUT_KERNEL = [
    *("aten.detach", "aten.alias", "aten.lift_fresh", "aten._conj", "aten._neg_view", "aten.view.dtype", "aten._to_copy"),
    *("aten.is_pinned", "aten.is_same_size", "aten.atan2.out", "aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"),
    *("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec", "aten.resize_", "aten.set_"),
]

_library = torch.library.Library("aten", "IMPL")
for _op in {*(ed.core_aten() - _WITHOUT_KERNEL), *_WRITTEN_OUT}:
    if not _op._schema.name.startswith("aten::sym_"):
        _library.impl(_op, _WRITTEN_OUT.get(_op) or _kernel(_op), "PrivateUse1")

BACKEND = ed.Backend("toy", ed.core_aten() - ["aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"], device_type="toy")
