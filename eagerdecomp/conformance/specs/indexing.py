"""Specs of ops that take indices along one dimension: selecting, gathering, scattering, embedding."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, COMPLEX, FAITHFUL, FLOATS, HALVES, INTEGERS, LAYOUTS, SIZES, TAILS, shape, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, EXACT, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import as_index, dim_of, indices, left_out, roundings, some_sizes, spoilt

__all__ = ["SPECS"]

# Common dtypes are tested more often.
_ALL = (torch.float32, *ALL)
_MOVED = ("normal", "special", "extremes", "lattice", "wide")
_ADDED = ("lattice", "normal", "nonfinite", "positive_lattice", "quarters", "small", "extremes")
# The maximum number of indices.
_MOST = 100_000
_WHOLE = frozenset({"lattice", "positive_lattice", "ties", "ones", "quarters", "units"})

# -- indices -----------------------------------------------------------------------------------------------------------------


def _without_repetition(draw: Draw, name: str, sizes: Sequence[int], dim: int, size: int) -> Tensor:
    """Draw indices into dimension `dim` of this size, without repetition along `dim`."""
    whole = [*sizes]
    if not whole:
        return as_index(draw, name, torch.zeros([], dtype=torch.int64))
    whole[dim] = size
    found = torch.rand(whole, generator=draw.generator()).argsort(dim).narrow(dim, 0, sizes[dim])
    return as_index(draw, name, found, FAITHFUL)


def _sizes(draw: Draw, *, least: int = 0) -> list[int]:
    kind = draw.pick("sizes", ("any", "square", "any", "line", "any", "any", "square", "line", "any", "any", "any", "huge"))
    if kind == "square":
        return [draw.pick("square.size", (3, 2, 4, 8))] * draw.pick("square.rank", (2, 3) if least < 2 else (2,))
    if kind == "line" and least < 2:
        return [draw.pick("line", SIZES)]
    if kind == "huge":
        return list(draw.pick("huge.shape", ([257, 300], [30_011, 3], *(([70_001], [3, 30_011]) if least < 2 else ()))))
    return shape(draw, least=least, most=8 if least < 2 else least)


# -- one dimension -----------------------------------------------------------------------------------------------------------


def _count(draw: Draw, size: int, *, at_most: bool = False) -> int:
    """Draw the number of indices into a dimension of this size."""
    options = [size, 1, 2, size - 1, 0] if at_most else [3, size, 1, 0, 2 * size + 1, 17, 130, 1030]
    found = max(0, draw.pick("count", options))
    return min(found, size) if at_most or not size else found


def _index_select(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _ALL), _sizes(draw), _MOVED)
    dim = dim_of(draw, "dim", self.dim())
    if not self.dim():
        return Call([self, dim, indices(draw, "index", draw.pick("index.sizes", ([1], [])), 1)])
    size = self.shape[dim]
    most = max(_MOST // max(math.prod(self.shape) // max(size, 1), 1), 1)
    sizes: list[int] = [] if size and draw.pick("one index", (False, False, False, True)) else [min(_count(draw, size), most)]
    return Call([self, dim, indices(draw, "index", sizes, size)])


def _index_select_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("out of range", "dim", "out of range", "rank", "out of range", "dtype"))
    self = tensor(draw, "self", draw.pick("dtype", (torch.float32, torch.int64, torch.bool)), some_sizes(draw), ("lattice",))
    if kind == "out of range":
        dim = dim_of(draw, "dim", self.dim())
        index = indices(draw, "index", draw.pick("index.sizes", ([2], [1], [], [130])), self.shape[dim])
        return Call([self, dim, spoilt(draw, index, self.shape[dim])])
    index = torch.tensor([0, self.shape[0] - 1])
    if kind == "rank":
        index = index.reshape(1, 2)
    elif kind == "dtype":
        index = index.to(draw.pick("index.dtype", (torch.int16, torch.float32, torch.uint8)))
    return Call([self, self.dim() if kind == "dim" else 0, index])


def _embedding(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    sizes = _sizes(draw, least=2) if draw.pick("many rows", (False,) * 15 + (True,)) is False else [66_001, 2]
    weight = tensor(draw, "weight", dtype, sizes, _MOVED)
    at = shape(draw, "indices", most=3, elements=600) if sizes[0] else draw.pick("no indices", ([0], [2, 0]))
    index = indices(draw, "indices", at, sizes[0])
    padding = draw.pick("padding_idx", (-1, 0, max(sizes[0] - 1, 0)))
    return Call(left_out(draw, [weight, index, padding, draw.flag("scale_grad_by_freq"), draw.flag("sparse")], [-1, False, False]))


def _embedding_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("out of range", "dtype", "rank"))
    weight = torch.randn([4] if kind == "rank" else [4, 3], generator=draw.generator())
    index = torch.tensor([0, 3, 1])
    if kind == "out of range":
        rows = draw.pick("rows", (4, 1, 5, 300))
        weight = torch.randn([rows, draw.pick("width", (3, 1, 17))], generator=draw.generator())
        index = indices(draw, "indices", draw.pick("index.sizes", ([3], [2, 3], [1], [], [130])), rows)
        return Call([weight, spoilt(draw, index, rows)])
    if kind == "dtype":
        index = index.to(draw.pick("index.dtype", (torch.float32, torch.int16, torch.bool)))
    return Call([weight, index])


def _embedding_backward(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (torch.float32, *FLOATS, *COMPLEX, *INTEGERS))
    scale = draw.flag("scale_grad_by_freq")
    # Eager multiplies each row by a number, which turns complex infinities into NaN; other kernels only add.
    kind = draw.pick("values", tuple(one for one in _ADDED if one != "nonfinite") if dtype.is_complex else _ADDED)
    many = draw.pick("many", (*[False] * 11, True))
    at = [4099] if many else shape(draw, "indices", most=3, elements=600)
    width = draw.pick("width", (3, 1, 2, 8, *TAILS, 64, 0)) if not many else 3
    weights = draw.pick("weights", (5, 1, 2, 40, 300))
    scale = scale and not (dtype.is_complex or not dtype.is_floating_point)
    grad = tensor(draw, "grad", dtype, [*at, width], (kind,))
    index = indices(draw, "indices", at, weights)
    padding = draw.pick("padding_idx", (-1, 0, weights - 1))
    exact = kind in _WHOLE and not scale and not (dtype in HALVES and math.prod(at) > 24)
    return Call([grad, index, weights, padding, scale], exact=exact)


def _near_embedding(call: Call) -> Near:
    grad, index = call.args[:2]
    return Near(4 + roundings(grad.dtype, index.numel()), of="terms", zeros=False)


def _embedding_backward_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("dtype", "shape"))
    index = torch.tensor([0, 1, 1])
    if kind == "dtype":
        index = index.to(draw.pick("index.dtype", (torch.float32, torch.int16)))
    return Call([torch.randn(3 if kind == "dtype" else 4, 2, generator=draw.generator()), index, 3, -1, False])


# -- gather and scatter ------------------------------------------------------------------------------------------------------


def _within(draw: Draw, whole: Sequence[int], dim: int, along: int) -> list[int]:
    """Draw the sizes of an index tensor: at most those of the tensor, except in dimension `dim`."""
    kind = draw.pick("index.sizes", ("same", "smaller", "one"))
    found = [*whole]
    if not found:
        return found
    if kind != "same":
        found = [max(one - 1, min(one, 1)) if kind == "smaller" else min(one, 1) for one in found]
    found[dim] = 1
    found[dim] = min(along, _MOST // max(math.prod(found), 1))
    return found


def _larger(draw: Draw, index: Tensor) -> list[int]:
    """Draw the sizes of a source: those of the index, or larger unless the index is expanded."""
    if not draw.flag("src larger") or 0 in index.stride():
        return [*index.shape]
    return [one + draw.below(3) for one in index.shape]


def _gather(draw: Draw) -> Call:
    self = tensor(draw, "self", draw.pick("dtype", _ALL), _sizes(draw), _MOVED)
    dim = dim_of(draw, "dim", self.dim())
    size = self.shape[dim] if self.dim() else 1
    sizes = _within(draw, self.shape, dim, _count(draw, size)) if self.dim() else draw.pick("index of none", ([], [1], [3]))
    sparse = {"sparse_grad": draw.flag("sparse_grad")} if draw.flag("sparse_grad given") else {}
    layouts = _index_layouts(self, dim, sizes)
    return Call([self, dim, indices(draw, "index", sizes, size, layouts=layouts)], sparse)


def _refused_indices(draw: Draw, call: Callable[[Tensor, int, Tensor], Call]) -> Call:
    """Draw a call with an invalid index: out of range, or with wrong sizes, dtype or dim."""
    outside = "out of range"
    kind = draw.pick("refused", (outside, "dim", outside, "rank", outside, "size", outside, "dtype"))
    dtype = draw.pick("dtype", (torch.float32, torch.int64, torch.bool))
    whole = some_sizes(draw)
    self = tensor(draw, "self", dtype, whole, ("lattice",), ("contiguous", "transposed"))
    dim = dim_of(draw, "dim", self.dim())
    sizes = [*whole]
    sizes[dim] = draw.pick("along", (1, 2, whole[dim], 3))
    if kind == "size":
        sizes = [one + 6 for one in sizes]
    elif kind == "rank":
        sizes = draw.pick("other rank", (sizes[1:] or [1, 1], [1, *sizes]))
    index = indices(draw, "index", sizes, whole[dim], layouts=("contiguous", "guarded"))
    if kind == "out of range":
        index = spoilt(draw, index, whole[dim])
    elif kind == "dtype":
        index = index.to(draw.pick("index.dtype", (torch.float32, torch.int16)))
    return call(self, draw.pick("bad dim", (self.dim(), -self.dim() - 1)) if kind == "dim" else dim, index)


def _gather_refused(draw: Draw) -> Call:
    return _refused_indices(draw, lambda self, dim, index: Call([self, dim, index]))


def _index_layouts(self: Tensor, dim: int, sizes: Sequence[int]) -> Sequence[str]:
    """Return the layouts for an index. It is expanded only if its other sizes are the tensor's, else eager reads out of bounds."""
    wide = [one for place, one in enumerate(self.shape) if place != dim % self.dim()] if self.dim() else []
    return LAYOUTS if self.dim() and wide == [one for place, one in enumerate(sizes) if place != dim % self.dim()] else FAITHFUL


def _into(draw: Draw, dtype: torch.dtype, fills: Sequence[str], repeated: bool) -> tuple[Tensor, int, Tensor]:
    """Draw a tensor, a dimension, and indices along it to write to."""
    self = tensor(draw, "self", dtype, _sizes(draw), fills)
    dim = dim_of(draw, "dim", self.dim())
    size = self.shape[dim] if self.dim() else 1
    sizes = _within(draw, self.shape, dim, _count(draw, size, at_most=not repeated))
    if repeated:
        return self, dim, indices(draw, "index", sizes, size, layouts=_index_layouts(self, dim, sizes))
    return self, dim, _without_repetition(draw, "index", sizes, dim, size)


def _scatter_src(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    self, dim, index = _into(draw, dtype, _MOVED, repeated=False)
    return Call([self, dim, index, tensor(draw, "src", dtype, _larger(draw, index), _MOVED)])


def _with_src(self: Tensor, dim: int, index: Tensor) -> Call:
    return Call([self, dim, index, torch.ones(index.shape, dtype=self.dtype)])


def _scatter_refused(draw: Draw, call: Callable[..., Call] = _with_src) -> Call:
    kind = draw.pick("refused src", ("none", "none", "size", "none", "dtype"))
    if kind == "none":
        return _refused_indices(draw, call)
    found = call(torch.zeros(3, 4), 0, torch.zeros([2, 4], dtype=torch.int64))
    self, dim, index, src = found.args[:4]
    src = src[:1] if kind == "size" else src.double()
    return Call([self, dim, index, src, *found.args[4:]], found.kwargs)


def _numbers(dtype: torch.dtype) -> Sequence[Any]:
    if dtype is torch.bool:
        return (True, 1, 0, 2, 0.5)
    if dtype.is_complex:
        return (1.5, 2, 1.5 - 2j, True, float("nan"))
    if dtype.is_floating_point:
        return (1.5, 2, -0.0, True, float("inf"), 0.1, -3, float("nan"))
    return (2, 1.5, True, -1 if dtype is not torch.uint8 else 255, 0, torch.iinfo(dtype).max)


def _scatter_value(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    self, dim, index = _into(draw, dtype, _MOVED, repeated=True)
    return Call([self, dim, index, draw.pick(f"value of {dtype}", _numbers(dtype))])


def _scatter_value_refused(draw: Draw) -> Call:
    return _refused_indices(draw, lambda self, dim, index: Call([self, dim, index, 1]))


def _scatter_add(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    kind = draw.pick("values", _ADDED)
    self, dim, index = _into(draw, dtype, (kind,), repeated=True)
    src = tensor(draw, "src", dtype, _larger(draw, index), (kind,))
    return Call([self, dim, index, src], exact=kind in _WHOLE and not (dtype in HALVES and index.numel() > 24))


_REDUCED = {
    "sum": _ADDED,
    "prod": ("units", "lattice", "about_one", "ones"),
    "mean": ("lattice", "normal", "nonfinite", "extremes", "positive_lattice"),
    "amax": ("normal", "lattice", "nonfinite", "special", "extremes"),
    "amin": ("normal", "lattice", "nonfinite", "special", "extremes"),
}


def _scatter_reduce(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    reduce = draw.pick("reduce", tuple(_REDUCED))
    include = draw.pick("include_self", (True, False))
    fills = _REDUCED[reduce]
    if dtype.is_complex and reduce == "mean":
        fills = ("lattice", "normal")
    elif reduce == "mean" and not dtype.is_floating_point:
        fills = ("lattice", "positive_lattice", "digits")
    kind = draw.pick("values", fills)
    self, dim, index = _into(draw, dtype, (kind,), repeated=True)
    if kind == "lattice" and reduce == "prod" and index.numel() > 60:
        self, kind = self.clone().fill_(1), "units"
    src = tensor(draw, "src", dtype, _larger(draw, index), (kind,))
    exact = kind in _WHOLE and reduce in ("sum", "prod") and not (dtype in HALVES and index.numel() > 24)
    if reduce == "prod":
        exact = exact and kind != "lattice" and dtype not in HALVES
    given = {} if include and draw.flag("include_self left out") else {"include_self": include}
    return Call([self, dim, index, src, reduce], given, exact=exact)


def _near_reduce(call: Call) -> Near:
    reduce = call.args[4]
    return EITHER_ZERO if reduce in ("amax", "amin") else Near(8, of="terms", zeros=False)


def _scatter_reduce_refused(draw: Draw) -> Call:
    reduce = draw.pick("reduce", (*_REDUCED, "nonsense"))
    return _scatter_refused(draw, lambda self, dim, index: Call([*_with_src(self, dim, index).args, reduce]))


SPECS: dict[str, Spec] = {
    "aten.index_select.default": Spec(_index_select, EXACT, refused=_index_select_refused),
    "aten.embedding.default": Spec(_embedding, EXACT, refused=_embedding_refused),
    "aten.embedding_dense_backward.default": Spec(_embedding_backward, _near_embedding, refused=_embedding_backward_refused),
    "aten.gather.default": Spec(_gather, EXACT, refused=_gather_refused),
    "aten.scatter.src": Spec(_scatter_src, EXACT, refused=_scatter_refused),
    "aten.scatter.value": Spec(_scatter_value, EXACT, refused=_scatter_value_refused),
    "aten.scatter_add.default": Spec(_scatter_add, Near(4, of="terms", zeros=False), refused=_scatter_refused),
    "aten.scatter_reduce.two": Spec(_scatter_reduce, _near_reduce, refused=_scatter_reduce_refused),
}
