"""Specs of views: the result shares memory with the input, and writes to either change both."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.memory import copy_arguments, fill, to_cpu
from eagerdecomp.conformance.samples import ALL, COMPLEX, FLOATS, LAYOUTS, shape, tensor
from eagerdecomp.conformance.spec import EXACT, Call, Fault, Property, Skip, Spec, TestedKernel
from eagerdecomp.conformance.spec_arguments import dim_of, dims_of, wrong, wrong_on_tensor
from eagerdecomp.eager.observe import leaves_of, observe
from eagerdecomp.eager.strides import reach
from eagerdecomp.eager.tolerance import same_bits

__all__ = ["SPECS"]

_FILLS = ("normal", "wide", "special")
_ELEMENTS = 300


def _tensor(draw: Draw, *, least: int = 0, most: int = 8, dtypes: Sequence[torch.dtype] = ALL, empty: bool = True) -> Tensor:
    """Draw a tensor with different values; sometimes with the conj or neg bit set."""
    dtype = draw.pick("dtype", dtypes)
    made = tensor(draw, "self", dtype, shape(draw, least=least, most=most, elements=_ELEMENTS, empty=empty), _FILLS)
    bits = draw.pick("bits", ("none", "none", "conj", "neg"))
    if bits == "conj" and dtype.is_complex:
        return torch._conj(made)
    return torch.ops.aten._neg_view(made) if bits == "neg" and dtype is not torch.bool else made


# -- calls -------------------------------------------------------------------------------------------------------------------


def _alone(draw: Draw) -> Call:
    return Call([_tensor(draw)])


def _as_strided(draw: Draw) -> Call:
    made = _tensor(draw)
    room = made.untyped_storage().nbytes() // made.element_size()
    rank = draw.pick("rank", (2, 1, 3, 0, 4))
    sizes = [draw.pick("size", (2, 3, 1, 4, 0)) for _ in range(rank)]
    strides = [draw.pick("stride", (1, 2, 3, 0, 5, 7)) for _ in range(rank)]
    while reach(sizes, strides) > room and any(strides):
        strides[strides.index(max(strides))] -= 1
    if reach(sizes, strides) > room:
        sizes = [*sizes, 0]
        strides = [*strides, 1]
    left = max(0, room - reach(sizes, strides))
    offset = draw.pick("offset", (None, 0, left, left // 2, "left out"))
    return Call([made, sizes, strides] if offset == "left out" else [made, sizes, strides, offset])


def _diagonal(draw: Draw) -> Call:
    made = _tensor(draw, least=2)
    one = dim_of(draw, "dim1", made.dim())
    other = dim_of(draw, "dim2", made.dim())
    if one % made.dim() == other % made.dim():
        other = (other + 1) % made.dim()
    return Call([made, draw.pick("offset", (0, 1, -1, 2, -2, 9, -9)), one, other])


def _expand(draw: Draw) -> Call:
    made = _tensor(draw)
    sizes = list(made.shape)
    for dim, size in enumerate(sizes):
        if size == 1:
            sizes[dim] = draw.pick("wider", (3, 1, 0, 2, -1))
        elif draw.flag("kept"):
            sizes[dim] = -1
    sizes = [*(draw.pick("new size", (2, 1, 3, 0)) for _ in range(draw.pick("new", (0, 1, 2)))), *sizes]
    return Call([made, sizes], {"implicit": True} if draw.flag("implicit") else {})


def _permute(draw: Draw) -> Call:
    made = _tensor(draw)
    left, order = list(range(made.dim())), []
    while left:
        order.append(left.pop(draw.pick("next", (*range(len(left)),))))
    some = draw.flag("some negative")  # else none, which would be rare for many dims
    return Call([made, [dim - made.dim() if some and draw.flag("negative") else dim for dim in order]])


def _select(draw: Draw) -> Call:
    made = _tensor(draw, least=1, empty=False)
    dim = dim_of(draw, "dim", made.dim())
    size = made.shape[dim]
    return Call([made, dim, draw.pick("index", (0, size - 1, -1, size // 2, -size, -(size // 2) - 1))])


def _slice(draw: Draw) -> Call:
    made = _tensor(draw, least=1)
    dim = dim_of(draw, "dim", made.dim())
    size = made.shape[dim]
    start = draw.pick("start", (None, 1, 0, -1, -2, size, size + 3, -size - 3, size // 2))
    end = draw.pick("end", (None, size, -1, 2, 2**63 - 1, size + 3, 0, -size - 3, 1))
    return Call([made, dim, start, end, draw.pick("step", (1, 2, 3, 7, 2**40))])


def _split(draw: Draw) -> Call:
    made = _tensor(draw, least=1)
    dim = dim_of(draw, "dim", made.dim())
    if draw.flag("equal"):  # as queries, keys and values, or the gates of a recurrent net
        sizes = [draw.pick("part", (2, 1, 5))] * draw.pick("count", (3, 4, 6))
        size = [*made.shape[:dim], sum(sizes), *made.shape[dim:][1:]]
        made = torch.arange(math.prod(size)).reshape(size).to(made.dtype)
    else:
        left, sizes = made.shape[dim], []
        for _ in range(draw.pick("parts", (1, 2, 3, 0))):
            sizes.append(min(left, draw.pick("part", (1, 2, 0, 3, 5))))
            left -= sizes[-1]
        sizes.append(left)
    if draw.flag("default") and dim == 0:
        return Call([made, sizes])
    return Call([made, sizes, dim])


def _squeezed(draw: Draw) -> Tensor:
    """Draw a tensor with some dimensions of size 1."""
    made = _tensor(draw, most=4)
    for _ in range(draw.pick("ones", (1, 0, 2))):
        made = made.unsqueeze(dim_of(draw, "one", made.dim() + 1))
    return made


def _squeeze(draw: Draw) -> Call:
    made = _squeezed(draw)
    return Call([made, dim_of(draw, "dim", made.dim())])


def _squeeze_dims(draw: Draw) -> Call:
    made = _squeezed(draw)
    return Call([made, dims_of(draw, "dims", made.dim())])


def _unsqueeze(draw: Draw) -> Call:
    made = _tensor(draw, most=4)
    return Call([made, dim_of(draw, "dim", made.dim() + 1)])


def _viewed(draw: Draw, made: Tensor) -> tuple[list[int], list[int]]:
    """Draw sizes and strides of a view of the tensor: with dimensions merged, split, and added with size 1."""
    sizes, strides = list(made.shape), list(made.stride())
    if not made.numel():
        sizes = draw.pick("sizes of none", (sizes, [0], [0, 3], [2, 0], [3, 0, 1]))
        return sizes, list(torch.empty(sizes, device="meta").stride())
    place = 0
    while place + 1 < len(sizes):
        if strides[place] == sizes[place + 1] * strides[place + 1] and draw.flag("merged"):
            sizes[place : place + 2] = [sizes[place] * sizes[place + 1]]
            strides[place : place + 2] = [strides[place + 1]]
        else:
            place += 1
    for _ in range(draw.pick("splits", (0, 1, 2))):
        splits = [(dim, by) for dim, size in enumerate(sizes) for by in (2, 3, 5) if size % by == 0]
        if splits:
            dim, by = splits[draw.below(len(splits))]
            outer = sizes[dim] // by
            sizes[dim : dim + 1], strides[dim : dim + 1] = [outer, by], [by * strides[dim], strides[dim]]
    for _ in range(draw.pick("new ones", (0, 1, 2))):
        dim = draw.below(len(sizes) + 1)
        strides.insert(dim, sizes[dim] * strides[dim] if dim < len(sizes) else 1)
        sizes.insert(dim, 1)
    return sizes, strides


def _view(draw: Draw) -> Call:
    made = _tensor(draw)
    sizes, _ = _viewed(draw, made)
    how = draw.pick("how", ("parts", "flat", "rows", "one open"))
    if how == "flat":
        sizes = [-1]
    elif how == "rows" and made.dim() and made.numel():
        sizes = [-1, made.shape[-1]]
    elif how == "one open" and sizes and made.numel():
        sizes[draw.below(len(sizes))] = -1
    return Call([made, sizes])


def _reshape_alias(draw: Draw) -> Call:
    made = _tensor(draw)
    return Call([made, *_viewed(draw, made)])


def _view_dtype(draw: Draw) -> Call:
    dtype = draw.pick("dtype", ALL)
    # A byte other than 0 and 1 is not a valid bool.
    other = draw.pick("other", ALL if dtype is torch.bool else [one for one in ALL if one is not torch.bool])
    sizes = shape(draw, most=4, elements=_ELEMENTS)
    if sizes and other.itemsize > dtype.itemsize and draw.pick("fits", (True, True, False)):
        sizes[-1] *= other.itemsize // dtype.itemsize
    made = tensor(draw, "self", dtype, sizes, _FILLS, ("contiguous", "transposed", "channels_last", "gapped", *LAYOUTS))
    if made.dim() > 1 and draw.flag("rows"):
        made = made[made.shape[0] // 2 :]
    return Call([made, other])


def _view_as_real(draw: Draw) -> Call:
    made = _tensor(draw, dtypes=COMPLEX, most=4)
    return Call([made])


def _view_as_complex(draw: Draw) -> Call:
    dtype = draw.pick("dtype", COMPLEX)
    made = tensor(draw, "self", dtype, shape(draw, most=4, elements=_ELEMENTS), _FILLS)
    made = torch.view_as_real(made)
    return Call([torch.ops.aten._neg_view(made) if draw.flag("neg") else made])


def _conj(draw: Draw) -> Call:
    return Call([_tensor(draw, dtypes=COMPLEX)])


def _neg_view(draw: Draw) -> Call:
    return Call([_tensor(draw, dtypes=(*FLOATS, *COMPLEX, torch.int64, torch.int16))])


# -- writes ------------------------------------------------------------------------------------------------------------------


def _both_ways(kernel: TestedKernel, spec: Spec, draw: Draw) -> Fault | None:
    """Check that a write to a view changes its base, and a write to the base changes the view."""
    call = spec.call(draw)
    kernel.require_claim(call)
    theirs, ours = copy_arguments(call.args, call.kwargs), copy_arguments(call.args, call.kwargs, kernel.device)
    result, want = observe(kernel.native, theirs.args, theirs.kwargs)
    if want.error is not None:
        raise Skip.refused(want.error)
    mine, have = observe(kernel.run, ours.args, ours.kwargs)
    if have.error is not None or [_kind(one) for one in have.leaves] != [_kind(one) for one in want.leaves]:
        raise Skip("found by a single call")
    pairs = [
        (number, one, other)
        for number, (one, other) in enumerate(zip(leaves_of(result), leaves_of(mine), strict=True))
        if isinstance(one, Tensor) and one.numel()
    ]
    for number, one, other in pairs:
        if torch._debug_has_internal_overlap(one) == 1:
            continue
        if one.dtype is not torch.bool and any(base.dtype is torch.bool for base in theirs.memory):
            continue  # other bytes than 0 and 1 are no bools, and a copy need not keep them
        value: complex = 1 + number % 5
        if one.is_complex():  # eager's loops differ in the sign of a zero part if the conj or neg bit is set
            value = complex(value, value)
        fill(one, value)
        refused = _written(other, value)
        if refused:
            return Fault("aliasing", f"the view cannot be written: {refused}", "", "", call)
        for name, (expected, got) in enumerate(zip(theirs.memory, ours.memory, strict=True)):
            if not same_bits(expected, got.cpu()):
                return Fault("aliasing", f"what is written through the view is not in its base (argument {name})", "", "", call)
    for expected, got in zip(theirs.memory, ours.memory, strict=True):
        ramp = _ramp(expected)
        expected.copy_(ramp)
        got.copy_(ramp)
    for _, one, other in pairs:
        if not same_bits(one, to_cpu(other)):
            return Fault(
                "aliasing", "what is written to the base does not show in the view", _text(one), _text(to_cpu(other)), call
            )
    return None


def _kind(value: Any) -> Any:
    return (value.dtype, value.shape) if isinstance(value, Tensor) else type(value)


def _written(view: Tensor, value: complex) -> str:
    """Fill a view; return the error message of eager or of the device's copy, or ""."""
    _, seen = observe(fill, [view, value], {})
    return "" if seen.error is None else str(seen.error)


def _ramp(memory: Tensor) -> Tensor:
    numbers = torch.arange(memory.numel(), device="cpu")
    if memory.dtype is torch.bool:
        return numbers % 3 == 0
    return (numbers % 97 + 1).to(torch.float32).to(memory.dtype)


def _text(value: Tensor) -> str:
    return str(value.tolist()) if value.numel() <= 8 else f"{value.flatten()[:4].tolist()} ..."


_WRITES = Property("writes through", _both_ways, 0.3)


def _spec(call: Callable[[Draw], Call], refused: Callable[[Draw], Call] | None = None, **more: Any) -> Spec:
    return Spec(call, EXACT, refused=refused, properties=(_WRITES,), **more)


def _wrong_views() -> Sequence[Sequence[Any]]:
    made = torch.arange(12.0).view(3, 4)
    return ((made, [5, 2]), (made, [-1, -1]), (made, [-1, 5]), (made, [-2, 6]), (made.t(), [12]), (made[:, 1:], [9]), (made, []))


def _wrong_dtypes() -> Sequence[Sequence[Any]]:
    made = torch.arange(12, dtype=torch.int32).view(3, 4)
    wide, narrow = torch.float64, torch.int16
    return (made[:, 1:], wide), (made[:, :3], wide), (made.t(), wide), (made.t(), narrow), (made[0, 0], narrow)


def _not_real() -> Sequence[Sequence[Any]]:
    made = torch.ones(2, dtype=torch.complex64)
    return [torch._conj(made)], [torch.ones(2)], [torch.ones(2, dtype=torch.int64)]


def _not_complex() -> Sequence[Sequence[Any]]:
    made = torch.arange(12.0)
    odd = made.as_strided((3, 2), (3, 1))
    wrong = (made[0], made.view(4, 3), odd, made.view(2, 6).t(), made[1:3], made.view(6, 2).long(), made.view(6, 2).bool())
    return [[one] for one in wrong]


def _wrong_selects() -> Sequence[Sequence[Any]]:
    made = torch.arange(6.0).view(2, 3)
    return (made, 0, 2), (made, 1, -4), (made, 2, 0), (made, -3, 0), (made[0, 0], 0, 0), (made[:0], 0, 0)


def _wrong_slices() -> Sequence[Sequence[Any]]:
    made = torch.arange(6.0).view(2, 3)
    return (made, 0, 0, 2, 0), (made, 1, 0, 2, -1), (made, 2), (made, -3), (made[0, 0], 0)


_WRONG_STRIDES: Sequence[Sequence[Any]] = (
    *(([2, 13], [1, 1]), ([2], [-1]), ([2, 2], [1]), ([2], [1], -1), ([2, 2], [11, 1], 1), ([-1], [1])),
)
_ONES = (1, 2, 3, 1)

SPECS: dict[str, Spec] = {
    "aten.alias.default": _spec(_alone),
    "aten.as_strided.default": _spec(_as_strided, wrong_on_tensor([3, 4], *_WRONG_STRIDES)),
    "aten.detach.default": _spec(_alone),
    "aten.diagonal.default": _spec(_diagonal, wrong_on_tensor([3, 4], (0, 1, 1), (0, 0, -2), (0, 0, 2), (1, -3, 1))),
    "aten.expand.default": _spec(
        _expand,
        wrong_on_tensor([2, 1, 3], *([one] for one in ([2, 4, 4], [-1, 2, 1, 3], [1, 3], [2, -2, 3], [3, 1, 3], [2, 1, 0]))),
    ),
    "aten.permute.default": _spec(
        _permute, wrong_on_tensor([1, 2, 3], *([one] for one in ([0, 1], [0, 0, 1], [0, 1, 3], [0, 1, -3], [0, 1, 2, 2], [])))
    ),
    "aten.select.int": _spec(_select, wrong(_wrong_selects)),
    "aten.slice.Tensor": _spec(_slice, wrong(_wrong_slices)),
    "aten.split_with_sizes.default": _spec(
        _split, wrong_on_tensor([4, 3], ([1, 2], 0), ([3, 2], 0), ([5, -1], 0), ([], 0), ([4], 2), ([2, 2], 1))
    ),
    "aten.squeeze.dim": _spec(_squeeze, wrong_on_tensor(_ONES, [4], [-5], [9])),
    "aten.squeeze.dims": _spec(_squeeze_dims, wrong_on_tensor(_ONES, [[4]], [[0, 0]], [[0, -4]], [[-5, 0]], [[1, 1]])),
    "aten.unsqueeze.default": _spec(_unsqueeze, wrong_on_tensor([2, 3], [3], [-4], [9])),
    "aten.view.default": _spec(_view, wrong(_wrong_views)),
    "aten.view.dtype": _spec(_view_dtype, wrong(_wrong_dtypes)),
    "aten.view_as_complex.default": _spec(_view_as_complex, wrong(_not_complex)),
    "aten.view_as_real.default": _spec(_view_as_real, wrong(_not_real)),
    "aten._reshape_alias.default": _spec(_reshape_alias),
    "aten._conj.default": _spec(_conj),
    "aten._neg_view.default": _spec(_neg_view),
}
