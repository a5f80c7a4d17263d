"""Right kernels that other backends have: their results may have other strides, places of equal elements or roundings than eager's,
and they return something where eager refuses a call, leaves a value open or gets it wrong. No kernel must copy that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import EQUIVALENT, Mutant, overload

__all__ = ["EQUIVALENTS"]

aten = torch.ops.aten


def _in_float64(name: str) -> Callable[..., Any]:
    """Eager's kernel in float64, its results brought back: a kernel that rounds once."""
    run = overload(name)

    def rounds_once(*args: Any) -> Any:
        eager = run(*args)
        wide = run(*(one.double() if isinstance(one, Tensor) and one.is_floating_point() else one for one in args))
        return torch.empty_like(eager).copy_(wide)

    return rounds_once


def _max_pool_with_the_first_nan(one: Tensor, *rest: Any) -> Any:
    values, places = aten.max_pool2d_with_indices(one, *rest)
    if one.is_floating_point():
        first = one.isnan().flatten(-2).int().argmax(-1)[..., None, None].expand(places.shape)
        whole = list(rest[0]) in ([one.shape[-2], one.shape[-1]], [one.shape[-1]] if one.shape[-1] == one.shape[-2] else [])
        places = torch.where(values.isnan() & torch.tensor(whole), first, places) if places.numel() else places
    return values, places


def _amax_with_other_zeros(x: Tensor, dims: Any = (), keepdim: bool = False) -> Tensor:
    result = aten.amax(x, dims, keepdim)
    return torch.where(result == 0, torch.zeros_like(result), result)


def _index_put_turned(x: Tensor, indices: Any, values: Tensor, accumulate: bool = False) -> Tensor:
    if not accumulate:
        found: Tensor = aten.index_put(x, indices, values)
        return found if x.is_contiguous() or x.dim() != 2 else found.t().contiguous().t()
    wide = torch.float64 if x.dtype in (torch.float16, torch.bfloat16, torch.float32) else x.dtype
    summed: Tensor = aten.index_put(x.to(wide), indices, values.to(wide), True)
    return summed.to(x.dtype)


def _bag_by_rows(
    weight: Any,
    indices: Any,
    offsets: Any,
    scale: bool = False,
    mode: int = 0,
    sparse: bool = False,
    per_sample: Any = None,
    last: bool = False,
    padding: int = -1,
) -> Any:
    result, _, sizes, places = aten._embedding_bag(weight, indices, offsets, scale, mode, sparse, per_sample, last, padding)
    indices, offsets = indices.flatten(), offsets.long()
    ends = offsets if last else torch.cat([offsets, torch.tensor([len(indices)])])
    bags = torch.repeat_interleave(torch.arange(len(ends) - 1), ends.diff()) if len(ends) > 1 else torch.empty(0, dtype=torch.long)
    return result.clone(), bags.to(sizes.dtype), sizes, places


def _arange_in_float32(start: Any, end: Any, step: Any = 1, **options: Any) -> Any:
    made = aten.arange(start, end, step, **options)
    return torch.arange(made.numel(), dtype=made.dtype) * step + start if made.dtype is torch.float32 else made


def _flip_by_index(x: Any, dims: Any) -> Any:
    for dim in dims if len({dim % max(1, x.dim()) for dim in dims}) == len(dims) else [99]:
        x = x.flip(dim)
    return x.clone(memory_format=torch.contiguous_format)


_RIGHT: list[tuple[str, Callable[..., Any]]] = [
    *(
        (f"aten.{op}", _in_float64(f"aten.{op}"))
        for op in ("avg_pool1d.default", "max_pool2d_with_indices_backward.default", "_adaptive_avg_pool2d_backward.default")
    ),
    *(
        (f"aten.{op}", _in_float64(f"aten.{op}"))
        for op in ("_adaptive_avg_pool3d.default", "grid_sampler_2d.default", "upsample_nearest2d.vec")
    ),
    ("aten.max_pool2d_with_indices.default", _max_pool_with_the_first_nan),
    ("aten.amax.default", _amax_with_other_zeros),
    ("aten.index_put.default", _index_put_turned),
    ("aten._embedding_bag.default", _bag_by_rows),
    ("aten.nonzero.default", lambda x: aten.nonzero(x).contiguous()),
    ("aten.index.Tensor", lambda x, indices: aten.index.Tensor(x, indices).contiguous()),
    ("aten.arange.start_step", _arange_in_float32),
    ("aten.constant_pad_nd.default", lambda x, pad, value=0: aten.constant_pad_nd(x.contiguous(), pad, value).contiguous()),
    ("aten.flip.default", _flip_by_index),
    ("aten.lift_fresh.default", lambda x: aten.alias(x)),
    ("aten.empty.memory_format", lambda size, **options: aten.empty(size, **options).fill_(7)),
    ("aten.repeat.default", lambda x, times: aten.repeat(x.contiguous(), times)),
    ("aten.reflection_pad2d.default", lambda x, pad: aten.reflection_pad2d(x, pad).contiguous()),
]


def _pool_that_keeps_its_place(x: Tensor, *args: Any) -> Any:
    """In channels_last too, where in windows of negative infinity eager's kernel loses it."""
    values, places = aten.max_pool3d_with_indices(x, *args)
    right = aten.max_pool3d_with_indices(x.contiguous(), *args)[1]
    return values, places.copy_(torch.where(values.isnan(), places, right))


def _norm_backward_of_what_is_there(name: str) -> Callable[..., Any]:
    run = overload(name)

    def kernel(grad: Tensor, *args: Any) -> Any:
        try:
            return run(grad, *args)
        except RuntimeError:
            return grad, None, None

    return kernel


def _embedding_backward_that_only_adds(grad: Tensor, *args: Any) -> Tensor:
    made: Tensor = aten.embedding_dense_backward(grad, *args)
    parts = (aten.embedding_dense_backward(one, *args) for one in (grad.real, grad.imag)) if grad.is_complex() else ()
    return torch.complex(*parts) if grad.is_complex() else made


def _log2_by_a_complex_quotient(x: Tensor) -> Tensor:
    """Return what eager's kernel does on processors without vectors: NaN beside infinity."""
    made: Tensor = aten.log2(x)
    return torch.where(made.real.isinf(), torch.complex(made.real, made.real * 0), made) if x.is_complex() else made


#: No kernel must copy what eager refuses, leaves open or gets wrong.
_ACCIDENTS: dict[str, Callable[..., Any]] = {
    "aten.max_pool3d_with_indices.default": _pool_that_keeps_its_place,
    **{
        f"aten.native_{name}_norm_backward.default": _norm_backward_of_what_is_there(f"aten.native_{name}_norm_backward.default")
        for name in ("layer", "group")
    },
    "aten.embedding_dense_backward.default": _embedding_backward_that_only_adds,
    "aten.log2.default": _log2_by_a_complex_quotient,
}


def _with_eager_errors(name: str, run: Callable[..., Any]) -> Callable[..., Any]:
    """Return the kernel with eager's errors: only its results differ."""
    op = overload(name)

    def kernel(*args: Any, **kwargs: Any) -> Any:
        copies = [one.clone() if isinstance(one, Tensor) and one.numel() and not one.is_conj() else one for one in args]
        op(*copies, **kwargs)
        return run(*args, **kwargs)

    kernel.__name__ = run.__name__
    return kernel


def _equivalent(name: str, run: Callable[..., Any]) -> Mutant:
    about = "unlike eager" if run.__name__ in ("<lambda>", "kernel") else run.__name__.strip("_").replace("_", " ")
    return Mutant(f"{name.removeprefix('aten.')}: {about}", name, EQUIVALENT, lambda: run, "eager's choice is arbitrary", list)


EQUIVALENTS: tuple[Mutant, ...] = (
    *(_equivalent(name, _with_eager_errors(name, run)) for name, run in _RIGHT),
    *(_equivalent(name, run) for name, run in _ACCIDENTS.items()),
)
