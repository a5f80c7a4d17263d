"""Kernels: one for each op of Core ATen and of the plumbing that every device needs, all of them counted.

A kernel runs the CPU's on the memory that tensors carry; a real device would launch its own here. Most are made by `_computing` and
`_viewing`; what copies, resizes or draws by rules of its own is written out. Views that only rename (`detach`, `alias`, ...) and
`_to_copy` torch brings for every device. Kernels for composites are made on request: the device does not have them by itself.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

import eagerdecomp as ed
from npu.device import check_index, default_generators
from npu.memory import lay, new_storage, on_cpu, on_meta, view, wrap

__all__ = ["COMPOSITES", "SUPPORTED", "composite_kernels", "counts", "register", "reset_counts"]

aten = torch.ops.aten
_counts: Counter[str] = Counter()

#: Ops that torch composes of others, below autograd too: a kernel would take their gradient away.
COMPOSED = [
    *("aten.adaptive_avg_pool1d", "aten.avg_pool1d", "aten.var.dim"),
    *("aten.upsample_bilinear2d.vec", "aten.upsample_nearest2d.vec"),
]

#: Of the forms with `out=` Core ATen has one, which needs no kernel of its own.
SUPPORTED = ed.core_aten() - COMPOSED - ["aten.atan2.out"]

#: What eager takes apart in C++ before a device sees it, and a device may run in one piece; no part of `SUPPORTED`.
COMPOSITES = [
    *("aten.linear.default", "aten.layer_norm.default", "aten.scaled_dot_product_attention.default"),
    "aten.silu_backward.default",
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


def _given(value: Any, op: Any) -> Any:
    """An argument as the CPU's kernel takes it."""
    if isinstance(value, Tensor):
        if value.device.type == "npu":
            return on_cpu(value)
        if value.dim() and value.device.type != "meta" and op not in _TAKES_CPU_INDICES:
            raise RuntimeError(f"{op}: expected all tensors to be on npu:0, but found one {tuple(value.shape)} on {value.device}")
        return value
    if isinstance(value, (list, tuple)):
        return type(value)([_given(one, op) for one in value])
    if isinstance(value, torch.device):
        check_index(value)
        return torch.device("cpu")
    return value


#: As for other devices, indices may lie on the CPU.
_TAKES_CPU_INDICES = frozenset({aten.index.Tensor, aten.index_put.default})


def _answered(value: Any) -> Any:
    if isinstance(value, Tensor):
        return wrap(value)
    return type(value)([_answered(one) for one in value]) if isinstance(value, (list, tuple)) else value


def _computing(op: Any) -> Callable[..., Any]:
    """Compute into new memory; what an op writes of its arguments, batch norm's statistics, it writes to theirs."""
    random = torch.Tag.nondeterministic_seeded in op.tags
    run = op.overloadpacket.generator if random else op

    def kernel(*args: Any, **kwargs: Any) -> Any:
        _counts[str(op)] += 1
        with _below():
            on_memory, named = _given(list(args), op), {name: _given(value, op) for name, value in kwargs.items()}
            if random:
                named["generator"] = default_generators[0]
            return _answered(run(*on_memory, **named))

    return kernel


def _viewing(op: Any) -> Callable[..., Any]:
    """Lay out the same memory anew."""

    def kernel(self: Tensor, *args: Any, **kwargs: Any) -> Any:
        _counts[str(op)] += 1
        with _below():
            seen = op(on_cpu(self), *args, **kwargs)
        return view(self, seen) if isinstance(seen, Tensor) else [view(self, one) for one in seen]

    return kernel


# -- by hand -------------------------------------------------------------------------------------------------------------


def _counted(op: Any, kernel: Callable[..., Any]) -> Callable[..., Any]:
    def counted(*args: Any, **kwargs: Any) -> Any:
        _counts[str(op)] += 1
        with _below():
            return kernel(*args, **kwargs)

    return counted


def copy_(self: Tensor, source: Any, non_blocking: bool = False) -> Tensor:
    """Between memories, either of which may be the CPU's own."""
    source_here = on_cpu(source) if isinstance(source, Tensor) and source.device.type == "npu" else source
    aten.copy_.default(on_cpu(self) if self.device.type == "npu" else self, source_here, non_blocking)
    return self


def _local_scalar_dense(self: Tensor) -> Any:
    return on_cpu(self).item()


def resize_(self: Tensor, size: Sequence[int], *, memory_format: torch.memory_format | None = None) -> Tensor:
    like = torch.empty(size, dtype=self.dtype, device="meta", memory_format=memory_format or torch.contiguous_format)
    if tuple(size) == self.shape and memory_format is None:
        return self
    return lay(self, self.untyped_storage(), self.storage_offset(), like.shape, like.stride())


def set_(self: Tensor) -> Tensor:
    return lay(self, new_storage(torch.UntypedStorage(0, device="cpu")), 0, [0], [1])


def set_storage(self: Tensor, source: torch.UntypedStorage) -> Tensor:
    return set_storage_at(self, source, 0, [source.nbytes() // self.element_size()], [1])


def set_storage_at(
    self: Tensor, source: torch.UntypedStorage, offset: int, size: Sequence[int], stride: Sequence[int] = ()
) -> Tensor:
    if source.device.type != "npu":
        raise RuntimeError(f"set_ of a tensor on npu:0 to a storage on {source.device}")
    return lay(self, source, offset, size, stride or torch.empty(size, device="meta").stride())


def set_tensor(self: Tensor, source: Tensor) -> Tensor:
    return set_storage_at(self, source.untyped_storage(), source.storage_offset(), source.shape, source.stride())


def native_dropout(input: Tensor, p: float, train: bool | None) -> tuple[Tensor, Tensor]:
    """The CPU's, from the device's generator: it has no argument for one."""
    given = on_cpu(input)
    if train is False:
        return wrap(given.clone()), wrap(torch.ones_like(given, dtype=torch.bool))
    dropped, mask = _dropped(given, p)
    return wrap(dropped), wrap(mask)


def _dropped(given: Tensor, p: float) -> tuple[Tensor, Tensor]:
    mask = torch.empty_like(given, dtype=torch.bool).bernoulli_(1 - p, generator=default_generators[0])
    return given.mul(mask).mul_(1 / (1 - p) if p < 1 else 0.0), mask


def scaled_dot_product_attention(
    query: Tensor, key: Tensor, value: Tensor, attn_mask: Tensor | None = None, dropout_p: float = 0.0, *args: Any, **options: Any
) -> Tensor:
    """The CPU's. It drops what torch's composition of it drops, which backward runs anew."""
    op = aten.scaled_dot_product_attention.default
    query, key, value, attn_mask = (_given(one, op) for one in (query, key, value, attn_mask))
    if not dropout_p:
        return wrap(op(query, key, value, attn_mask, 0.0, *args, **options))
    one_each = torch.eye(key.shape[-2], dtype=key.dtype).expand(*key.shape[:-1], -1)
    weights, _ = _dropped(op(query, key, one_each, attn_mask, 0.0, *args, **options).contiguous(), dropout_p)
    if options.get("enable_gqa"):
        value = value.repeat_interleave(query.shape[-3] // value.shape[-3], -3)
    return wrap(weights @ value)


BY_HAND: dict[Any, Callable[..., Any]] = {
    aten.copy_.default: copy_,
    aten._local_scalar_dense.default: _local_scalar_dense,
    aten.resize_.default: resize_,
    aten.set_.default: set_,
    aten.set_.source_Storage: set_storage,
    aten.set_.source_Storage_storage_offset: set_storage_at,
    aten.set_.source_Tensor: set_tensor,
    aten.native_dropout.default: native_dropout,
    aten.scaled_dot_product_attention.default: scaled_dot_product_attention,
    aten.view_as_complex.default: on_meta(aten.view_as_complex.default),
    aten.view_as_real.default: on_meta(aten.view_as_real.default),
}

_library = torch.library.Library("aten", "IMPL")


def register() -> None:
    """Register the kernels with torch's dispatcher."""
    for op in SUPPORTED:
        if op not in TORCHS_OWN and not op._schema.name.startswith("aten::sym_"):
            _library.impl(op, _kernel(op), "PrivateUse1")


def composite_kernels() -> dict[Any, Callable[..., Any]]:
    """A kernel for each of `COMPOSITES`, for a `Backend` that has them reach the device whole."""
    return {op: _kernel(op) for op in ed.OpSet(COMPOSITES)}


def _kernel(op: Any) -> Callable[..., Any]:
    by_hand = BY_HAND.get(op)
    return _counted(op, by_hand) if by_hand else _viewing(op) if op.is_view else _computing(op)
