"""Kernels of the device. Each counts the call, and runs the CPU's kernel on the tensor's memory; a real device would run its own.

`_kernel_of` makes most kernels, and `_view_kernel_of` those of views. Kernels that copy, resize or sample are written out. torch
has kernels of `_to_copy` and of some views (`detach`, `alias`) for every device.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.device import meta_kernel
from npu.device import NAME, module
from npu.memory import new_storage, on_cpu, resize, view, wrap

__all__ = ["COMPOSED", "TORCHS_OWN", "counts", "drop", "kernel", "register", "reset_counts", "to_cpu"]

aten = torch.ops.aten
_counts: Counter[str] = Counter()

#: Ops that torch decomposes to others, also below autograd. With a kernel of their own they would have no gradient.
COMPOSED = [
    *("aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"),
    *("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec"),
]

#: Ops for which torch has kernels for every device. With Python kernels for `detach` and `alias`, a new tensor would get two Python
#: objects: one from the kernel and one from autograd.
TORCHS_OWN = frozenset(
    {
        aten.detach.default,
        aten.alias.default,
        aten.lift_fresh.default,
        aten._conj.default,
        aten._neg_view.default,
        aten.view.dtype,
        aten._to_copy.default,
        aten.is_pinned.default,
        aten.is_same_size.default,
    }
)


def counts() -> dict[str, int]:
    """Return op -> number of calls of its kernel."""
    return dict(_counts)


def reset_counts() -> None:
    """Set all counts to zero."""
    _counts.clear()


# Autocast has already cast the arguments of a kernel. `torch.autocast("cpu")` must not cast again in the CPU's kernel.
_below = functools.partial(torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def to_cpu(value: Any, op: Any) -> Any:
    """Return an argument for the CPU's kernel: tensors become CPU tensors that share their memory."""
    if isinstance(value, Tensor):
        if value.device.type == NAME:
            return on_cpu(value)
        if value.dim() and value.device.type != "meta" and op not in _ACCEPTS_CPU_INDICES:
            raise RuntimeError(f"{op}: expected all tensors to be on {NAME}:0, but found one {(*value.shape,)} on {value.device}")
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([to_cpu(one, op) for one in value])
    if isinstance(value, torch.device):
        module.check_index(value)
        return torch.device("cpu")
    return value


#: As on other devices, indices may be CPU tensors.
_ACCEPTS_CPU_INDICES = frozenset({aten.index.Tensor, aten.index_put.default})


def _to_device(value: Any) -> Any:
    if isinstance(value, Tensor):
        return wrap(value)
    return type(value)([_to_device(one) for one in value]) if isinstance(value, (list, tuple)) else value


def _kernel_of(op: Any) -> Callable[..., Any]:
    """Return a kernel that runs the CPU's. Results are new; writes to arguments (batch norm's statistics) reach their memory."""
    packet, random = op.overloadpacket, torch.Tag.nondeterministic_seeded in op.tags
    run = packet.generator if random and "generator" in packet.overloads() else op
    has_generator = random and any(one.name == "generator" for one in run._schema.arguments)

    def run_on_cpu(*args: Any, **kwargs: Any) -> Any:
        on_memory, named = to_cpu(list(args), op), {name: to_cpu(value, op) for name, value in kwargs.items()}
        if has_generator and named.get("generator") is None:
            named["generator"] = module.default_generators[0]
        return _to_device(run(*on_memory, **named))

    return run_on_cpu


def _view_kernel_of(op: Any) -> Callable[..., Any]:
    """Return a kernel that makes views of the same memory."""

    def make_views(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        views = op(on_cpu(self), *args, **kwargs)
        return view(self, views) if isinstance(views, Tensor) else [view(self, one) for one in views]

    return make_views


# -- written out ---------------------------------------------------------------------------------------------------------


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Copy between tensors of the device and the CPU."""
    source_here = on_cpu(source) if isinstance(source, Tensor) and source.device.type == NAME else source
    aten.copy_.default(on_cpu(self) if self.device.type == NAME else self, source_here, non_blocking)
    return self


def _local_scalar_dense(self: Tensor) -> Any:
    return on_cpu(self).item()


def resize_(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    like = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    if tuple(size) == self.shape and memory_format is None:
        return self
    return resize(self, self.untyped_storage(), int(self.storage_offset()), like.shape, like.stride())


def set_(self: Tensor) -> Tensor:
    return resize(self, new_storage(torch.UntypedStorage(0, device="cpu")), 0, [0], [1])


def set_storage(self: Tensor, source: torch.UntypedStorage) -> Tensor:
    return set_storage_at(self, source, 0, [source.nbytes() // self.element_size()], [1])


def set_storage_at(
    self: Tensor, source: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    if source.device.type != NAME:
        raise RuntimeError(f"set_ of a tensor on {NAME}:0 to a storage on {source.device}")
    return resize(self, source, offset, size, stride or torch.empty(size, device="meta").stride())


def set_tensor(self: Tensor, source: Tensor) -> Tensor:
    return set_storage_at(self, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """Compute dropout with the device's generator. The op accepts no generator, so the CPU's kernel would use the CPU's."""
    on_host = on_cpu(input)
    if train is False:
        return wrap(on_host.clone()), wrap(torch.ones_like(on_host, dtype=torch.bool))
    dropped, mask = drop(on_host, p)
    return wrap(dropped), wrap(mask)


def drop(tensor: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Set random elements of a CPU tensor to zero, with the device's generator. Return the result and the mask of kept elements."""
    mask = torch.empty_like(tensor, dtype=torch.bool).bernoulli_(1 - p, generator=module.default_generators[0])
    return tensor.mul(mask).mul_(1 / (1 - p) if p < 1 else 0.0), mask


WRITTEN_OUT: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: copy_,
    aten._local_scalar_dense.default: _local_scalar_dense,
    aten.resize_.default: resize_,
    aten.set_.default: set_,
    aten.set_.source_Storage: set_storage,
    aten.set_.source_Storage_storage_offset: set_storage_at,
    aten.set_.source_Tensor: set_tensor,
    aten.native_dropout.default: native_dropout,
    aten.view_as_complex.default: meta_kernel(aten.view_as_complex.default),
    aten.view_as_real.default: meta_kernel(aten.view_as_real.default),
}

_library = torch.library.Library("aten", "IMPL")


def kernel(op: Any, own: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """Return a kernel that counts its calls. It runs `own`, or the CPU's kernel if `own` is None or returns `NotImplemented`."""
    of_cpu = WRITTEN_OUT.get(op) or (_view_kernel_of(op) if op.is_view else _kernel_of(op))

    def run(*args: Any, **kwargs: Any) -> Any:
        _counts[str(op)] += 1
        with _below():
            result = own(*args, **kwargs) if own is not None else NotImplemented
            return of_cpu(*args, **kwargs) if result is NotImplemented else result

    return run


def register(ops: Iterable[Any], own: Mapping[Any, Callable[..., Any]] | None = None) -> None:
    """Register a kernel for each op with torch's dispatcher."""
    for op in ops:
        if op not in TORCHS_OWN and not op._schema.name.startswith("aten::sym_"):
            _library.impl(op, kernel(op, (own or {}).get(op)), "PrivateUse1")
