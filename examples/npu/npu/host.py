"""Kernels that are the CPU's, run on the memory that tensors carry, all of them counted: a real device would launch its own.

Most are made by `_computing` and `_viewing`; what copies, resizes or draws by rules of its own is written out. Views that only
rename (`detach`, `alias`, ...) and `_to_copy` torch brings for every device.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from npu.device import NAME, check_index, default_generators
from npu.memory import lay, new_storage, on_cpu, on_meta, view, wrap

__all__ = ["COMPOSED", "TORCHS_OWN", "counts", "drop", "given", "kernel", "register", "reset_counts"]

aten = torch.ops.aten
_counts: Counter[str] = Counter()

#: Ops that torch composes of others, below autograd too: a kernel would take their gradient away.
COMPOSED = [
    *("aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"),
    *("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec"),
]

#: What torch brings for every device. For `detach` and `alias`, a kernel in Python would give the new tensor a Python object before
#: autograd gives it another.
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
    """How often each kernel ran, by the op's name."""
    return dict(_counts)


def reset_counts() -> None:
    """Count from zero."""
    _counts.clear()


# Autocast has acted when a kernel runs; what it calls on the CPU is not for `torch.autocast("cpu")`.
_below = functools.partial(torch._C._ExcludeDispatchKeyGuard, torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCPU))


def given(value: Any, op: Any) -> Any:
    """An argument as the CPU's kernel takes it."""
    if isinstance(value, Tensor):
        if value.device.type == NAME:
            return on_cpu(value)
        if value.dim() and value.device.type != "meta" and op not in _TAKES_CPU_INDICES:
            raise RuntimeError(f"{op}: expected all tensors to be on {NAME}:0, but found one {(*value.shape,)} on {value.device}")
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([given(one, op) for one in value])
    if isinstance(value, torch.device):
        check_index(value)
        return torch.device("cpu")
    return value


#: As for other devices, indices may lie on the CPU.
_TAKES_CPU_INDICES = frozenset({aten.index.Tensor, aten.index_put.default})


def _returned(value: Any) -> Any:
    if isinstance(value, Tensor):
        return wrap(value)
    return type(value)([_returned(one) for one in value]) if isinstance(value, (list, tuple)) else value


def _computing(op: Any) -> Callable[..., Any]:
    """Compute into new memory; what an op writes of its arguments, batch norm's statistics, it writes to theirs."""
    packet, random = op.overloadpacket, torch.Tag.nondeterministic_seeded in op.tags
    run = packet.generator if random and "generator" in packet.overloads() else op
    draws = random and any(one.name == "generator" for one in run._schema.arguments)

    def computed(*args: Any, **kwargs: Any) -> Any:
        on_memory, named = given(list(args), op), {name: given(value, op) for name, value in kwargs.items()}
        if draws and named.get("generator") is None:
            named["generator"] = default_generators[0]
        return _returned(run(*on_memory, **named))

    return computed


def _viewing(op: Any) -> Callable[..., Any]:
    """Lay out the same memory again."""

    def laid(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        seen = op(on_cpu(self), *args, **kwargs)
        return view(self, seen) if isinstance(seen, Tensor) else [view(self, one) for one in seen]

    return laid


# -- by hand -------------------------------------------------------------------------------------------------------------


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Between memories, either of which may be the CPU's own."""
    source_here = on_cpu(source) if isinstance(source, Tensor) and source.device.type == NAME else source
    aten.copy_.default(on_cpu(self) if self.device.type == NAME else self, source_here, non_blocking)
    return self


def _local_scalar_dense(self: Tensor) -> Any:
    return on_cpu(self).item()


def resize_(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    like = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    if tuple(size) == self.shape and memory_format is None:
        return self
    return lay(self, self.untyped_storage(), int(self.storage_offset()), like.shape, like.stride())


def set_(self: Tensor) -> Tensor:
    return lay(self, new_storage(torch.UntypedStorage(0, device="cpu")), 0, [0], [1])


def set_storage(self: Tensor, source: torch.UntypedStorage) -> Tensor:
    return set_storage_at(self, source, 0, [source.nbytes() // self.element_size()], [1])


def set_storage_at(
    self: Tensor, source: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    if source.device.type != NAME:
        raise RuntimeError(f"set_ of a tensor on {NAME}:0 to a storage on {source.device}")
    return lay(self, source, offset, size, stride or torch.empty(size, device="meta").stride())


def set_tensor(self: Tensor, source: Tensor) -> Tensor:
    return set_storage_at(self, source.untyped_storage(), int(source.storage_offset()), source.shape, source.stride())


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """The CPU's, from the device's generator: it has no argument for one."""
    here = on_cpu(input)
    if train is False:
        return wrap(here.clone()), wrap(torch.ones_like(here, dtype=torch.bool))
    dropped, mask = drop(here, p)
    return wrap(dropped), wrap(mask)


def drop(here: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """Some elements of a CPU tensor made zero, by the device's generator, and which were not."""
    mask = torch.empty_like(here, dtype=torch.bool).bernoulli_(1 - p, generator=default_generators[0])
    return here.mul(mask).mul_(1 / (1 - p) if p < 1 else 0.0), mask


BY_HAND: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: copy_,
    aten._local_scalar_dense.default: _local_scalar_dense,
    aten.resize_.default: resize_,
    aten.set_.default: set_,
    aten.set_.source_Storage: set_storage,
    aten.set_.source_Storage_storage_offset: set_storage_at,
    aten.set_.source_Tensor: set_tensor,
    aten.native_dropout.default: native_dropout,
    aten.view_as_complex.default: on_meta(aten.view_as_complex.default),
    aten.view_as_real.default: on_meta(aten.view_as_real.default),
}

_library = torch.library.Library("aten", "IMPL")


def kernel(op: Any, own: Callable[..., Any] | None = None) -> Callable[..., Any]:
    """A kernel of the device, counted: one's own, or the CPU's, which also runs what one's own returns `NotImplemented` to."""
    of_the_cpu = BY_HAND.get(op) or (_viewing(op) if op.is_view else _computing(op))

    def run(*args: Any, **kwargs: Any) -> Any:
        _counts[str(op)] += 1
        with _below():
            made = own(*args, **kwargs) if own is not None else NotImplemented
            return of_the_cpu(*args, **kwargs) if made is NotImplemented else made

    return run


def register(ops: Iterable[Any], own: Mapping[Any, Callable[..., Any]] | None = None) -> None:
    """Register a kernel for each op with torch's dispatcher."""
    for op in ops:
        if op not in TORCHS_OWN and not op._schema.name.startswith("aten::sym_"):
            _library.impl(op, kernel(op, (own or {}).get(op)), "PrivateUse1")
