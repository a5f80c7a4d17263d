"""Specs of ops that read or write parts of a tensor by several indices, masks or slices, and of embedding bags."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp.conformance.choices import Draw
from eagerdecomp.conformance.samples import ALL, COPIED, FAITHFUL, FLOATS, HALVES, SIZES, in_layout, shape, tensor
from eagerdecomp.conformance.spec import EITHER_ZERO, EXACT, Call, Near, Spec
from eagerdecomp.conformance.spec_arguments import (
    as_index,
    broadcasting,
    dim_of,
    indices,
    left_out,
    roundings,
    several,
    some_sizes,
    spoilt,
)

__all__ = ["SPECS"]

# Common dtypes are tested more often.
_ALL = (torch.float32, *ALL)
_MOVED = ("normal", "special", "extremes", "lattice", "wide")
_ADDED = ("lattice", "normal", "nonfinite", "positive_lattice", "quarters", "extremes")
_WHOLE = frozenset({"lattice", "positive_lattice", "quarters", "ones"})

_HUGE = ([257, 300], [30_011, 3], [70_001])

_aten = torch.ops.aten


def _sizes(draw: Draw, least: int = 0) -> list[int]:
    kind = draw.pick("sizes", ("any", "square", "any", "line", "any", "any", "square", "any", "any", "any", "any", "huge"))
    if kind == "square":
        return [draw.pick("square.size", (3, 2, 4, 8))] * draw.pick("square.rank", (2, 3))
    if kind == "line":
        return [draw.pick("line", SIZES)]
    return list(draw.pick("huge.shape", _HUGE)) if kind == "huge" else shape(draw, least=least, most=4)


# -- several indices ---------------------------------------------------------------------------------------------------------


def _mask(draw: Draw, sizes: Sequence[int], count: int) -> Tensor:
    """Draw a mask with `count` true elements."""
    total = math.prod(sizes)
    found = torch.zeros(total, dtype=torch.bool)
    found[torch.randperm(total, generator=draw.generator())[:count]] = True
    dtype = draw.pick("mask.dtype", (torch.bool, torch.uint8))
    return in_layout(found.to(dtype), list(sizes), draw.pick("mask.layout", FAITHFUL))


#: Indexed dimensions with others between them. The dimensions of the index then come first in the result.
_APART = ((0, 2), (1, 3), (0, 3), (1, 3), (0, 2, 3), (2, 4), (0, 1, 3), (0, 2, 4), (1, 2, 4), (0, 3, 5))


def _indexed(draw: Draw) -> tuple[list[int], Sequence[int] | None]:
    """Draw the sizes of the indexed tensor, and the dimensions to index; None for any."""
    if not draw.flag("apart"):
        return _sizes(draw, 1), None
    dims = draw.pick("dims apart", _APART)
    rank = dims[-1] + 1 + draw.pick("behind", (1, 0) if dims[-1] < 5 else (0,))
    sizes = [[3, 2, 4, 5, 2, 3][(dim + draw.below(2)) % 6] for dim in range(rank)]
    return [draw.pick("square", (2, 3))] * rank if draw.flag("apart alike") else sizes, dims


def _entries(draw: Draw, sizes: Sequence[int], dims: Sequence[int] | None) -> list[tuple[str, Sequence[int]]]:
    """Draw the kinds of the entries of an index list, each with the sizes of its dimensions (a mask may have two)."""
    rank = len(sizes)
    chosen = list(dims or [dim for dim in range(rank) if draw.flag(f"index {dim} of {rank}")]) or [draw.below(rank)]
    mask = draw.pick("mask", ("none", "one", "none", "two"))
    masked = chosen[draw.below(len(chosen))] if mask != "none" else -1
    found: list[tuple[str, Sequence[int]]] = []
    dim = 0
    while dim < rank:
        wide = 2 if dim == masked and mask == "two" and dim + 1 < rank else 1
        found.append(("mask" if dim == masked else "index" if dim in chosen else "none", sizes[dim : dim + wide]))
        dim += wide
    last = max(place for place, (kind, _) in enumerate(found) if kind != "none") + 1
    return found[: last + draw.below(len(found) - last + 1)]


def _by_several(draw: Draw, sizes: Sequence[int], dims: Sequence[int] | None, *, once: bool) -> list[Tensor | None]:
    """Draw indices and masks for these dimensions, or for any. With `once` they select no element twice."""
    entries = _entries(draw, sizes, dims)
    wide = [part[0] for kind, part in entries if kind == "index"]
    mask = next((part for kind, part in entries if kind == "mask"), None)
    if mask is not None:
        count = min(draw.pick("mask.count", (2, 1, 3, 0, 40, math.prod(mask))), math.prod(mask))
        base = [0 if 0 in wide else count]
    else:
        base = [0] if 0 in wide else draw.pick("index.sizes", ([3], [1], [], [2, 3], [0], [4, 1], [130], [2, 1, 3]))
    if once and mask is None:
        given = iter(_apart(draw, wide, base))
    elif len(wide) > 1 and mask is None and 0 not in wide and draw.pick("crossed", (False, True, True)):
        crossed = zip(_crossed(draw, len(wide)), wide, strict=True)
        if draw.pick("crossed.plain", (True, False, True)):  # as programs have them
            given = iter([torch.randint(size, at, generator=draw.generator()) for at, size in crossed])
        else:
            given = iter([indices(draw, "index", at, size, negative=True) for at, size in crossed])
    else:
        exactly = 0 in wide
        given = iter(
            [
                indices(draw, "index", base if exactly else broadcasting(draw, "index.broadcast", base), size, negative=True)
                for size in wide
            ]
        )
    return [next(given) if kind == "index" else _mask(draw, part, base[0]) if kind == "mask" else None for kind, part in entries]


def _crossed(draw: Draw, count: int) -> list[list[int]]:
    """Draw the sizes of indices that broadcast against each other, such as those of ``x[i[:, None], j]``."""
    lengths = several(draw, "crossed.size", count, (3, 2, 4, 17))
    inner = draw.pick("crossed.inner", ([], [2], [], [1]))  # dimensions that all have
    order = list(range(count))
    if draw.flag("crossed.turned"):
        order.reverse()
    sizes = [[*(lengths[place] if place == other else 1 for other in order), *inner] for place in range(count)]
    if draw.flag("crossed.ones left out"):
        sizes = [one[next((at for at, size in enumerate(one) if size > 1), 0) :] for one in sizes]
    return sizes


def _apart(draw: Draw, wide: Sequence[int], base: Sequence[int]) -> list[Tensor]:
    """Draw indices into dimensions of these sizes that select no element twice, as a list of points or as a grid."""
    draws = draw.generator()
    if len(wide) > 1 and 0 not in base and draw.flag("each by each"):
        found = []
        for place, size in enumerate(wide):
            some = torch.randperm(size, generator=draws)[: draw.pick("index.some", (2, 1, size))]
            found.append(some.reshape([-1 if place == other else 1 for other in range(len(wide))]))
    else:
        total: int = math.prod(wide)
        count: int = math.prod(base)
        chosen = torch.randperm(total, generator=draws)[:count]
        base = base if len(chosen) == count else [len(chosen)]
        found = []
        for place in range(len(wide)):
            inner = max(math.prod(wide[place + 1 :]), 1)
            found.append((chosen // inner % max(wide[place], 1)).reshape(list(base)))
    if draw.flag("index.negative"):
        found = [
            torch.where(torch.rand(one.shape, generator=draws) < 0.5, one, one - size)
            for one, size in zip(found, wide, strict=True)
        ]
    return [as_index(draw, "index", one, FAITHFUL) for one in found]


def _index(draw: Draw) -> Call:
    sizes, dims = _indexed(draw)
    self = tensor(draw, "self", draw.pick("dtype", _ALL), sizes, _MOVED)
    return Call([self, _by_several(draw, self.shape, dims, once=False)])


def _refused_index(draw: Draw) -> tuple[Tensor, list[Tensor | None]]:
    dtype = draw.pick("dtype", (torch.float32, torch.int64, torch.bool))
    kind = draw.pick(
        "refused", ("out of range", "mask", "out of range of several", "broadcast", "many", "dtype", "out of range behind")
    )
    if kind.startswith("out of range"):
        sizes = some_sizes(draw)
        self = tensor(draw, "self", dtype, sizes, ("lattice",))
        if kind == "out of range of several":
            shapes = _crossed(draw, len(sizes)) if draw.flag("crossed") else [[7]] * len(sizes)
            found = [indices(draw, "index", at, size) for at, size in zip(shapes, sizes, strict=True)]
            place = draw.below(len(found))
            spoiled = spoilt(draw, found[place], sizes[place], negative=True)
            return self, [spoiled if at == place else one for at, one in enumerate(found)]
        place = draw.below(len(sizes)) if kind == "out of range behind" else 0
        index = indices(draw, "index", draw.pick("index.sizes", ([3], [2, 3], [1], [], [130])), sizes[place])
        return self, [*[None] * place, spoilt(draw, index, sizes[place], negative=True)]
    self = tensor(draw, "self", dtype, [3, 4], ("lattice",))
    if kind == "mask":
        return self, [torch.ones(draw.pick("mask.sizes", ([4], [2], [3, 3], [3, 4, 1])), dtype=torch.bool)]
    if kind == "broadcast":
        return self, [torch.tensor([0, 1]), torch.tensor([0, 1, 2])]
    if kind == "many":
        return self, [torch.tensor([0])] * 3
    return self, [torch.tensor([0, 1]).to(draw.pick("index.dtype", (torch.float32, torch.int16, torch.int8)))]


def _index_refused(draw: Draw) -> Call:
    return Call(_refused_index(draw))


def _index_put(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    mode = draw.pick("mode", ("once", "added", "same value"))
    kind = draw.pick("values", {"once": _MOVED, "added": _ADDED, "same value": ("ones",)}[mode])
    sizes, dims = _indexed(draw)
    self = tensor(draw, "self", dtype, sizes, (kind if mode == "added" else "lattice",))
    named = _by_several(draw, self.shape, dims, once=mode == "once")
    whole = _aten.index.Tensor(self, named).shape
    values = tensor(draw, "source", dtype, broadcasting(draw, "values.sizes", whole), (kind,))
    if values.numel() == 1:  # with a single value, eager only accepts bool masks
        named = [one.to(torch.bool) if one is not None and one.dtype is torch.uint8 else one for one in named]
    exact = mode == "added" and kind in _WHOLE and not (dtype in HALVES and whole.numel() > 24)
    return Call(left_out(draw, [self, named, values, mode == "added"], [False]), exact=exact)


def _index_put_refused(draw: Draw) -> Call:
    kind = draw.pick("refused values", ("none", "dtype", "sizes"))
    if kind == "none":
        self, named = _refused_index(draw)
        return Call([self, named, torch.ones([], dtype=self.dtype), draw.flag("accumulate")])
    values = (
        torch.ones(3, 4, dtype=torch.int64) if kind == "dtype" else torch.ones(draw.pick("values.sizes", ([5], [2, 4], [1, 3, 4])))
    )
    return Call([torch.zeros(5, 4), [torch.tensor([0, 4, 2])], values, draw.flag("accumulate")])


def _near_put(call: Call) -> Near:
    if len(call.args) < 4 or not call.args[3]:
        return EXACT
    named = max(one.numel() for one in call.args[1] if one is not None)
    return Near(4 + roundings(call.args[0].dtype, named), of="terms", zeros=False)


# -- masks -------------------------------------------------------------------------------------------------------------------


def _masked_scatter(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    whole = _sizes(draw)
    smaller = draw.pick("smaller", ("mask", "self"))
    sizes = broadcasting(draw, "sizes", whole)
    self = tensor(draw, "self", dtype, whole if smaller == "mask" else sizes, _MOVED)
    mask = tensor(draw, "mask", torch.bool, sizes if smaller == "mask" else whole, ("lattice", "ones", "zeros", "rare"))
    count = int(mask.expand(whole).sum())
    more = draw.pick("more", (0, 1, 7))
    kind = draw.pick("source.rank", (1, 2, 3))
    length = -(-(count + more) // 2 ** (kind - 1))
    sizes = list(mask.shape) if draw.flag("source like mask") and mask.shape == torch.Size(whole) else [2] * (kind - 1) + [length]
    source = tensor(draw, "source", dtype, sizes, _MOVED)
    return Call([self, mask, source])


def _masked_scatter_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("few", "dtype", "sizes"))
    mask = torch.tensor([True, False, True, True])
    self, source = torch.zeros(2, 4), torch.ones(6)
    if kind == "few":
        source = source[: draw.below(6)]
    elif kind == "dtype":
        source = source.to(draw.pick("source.dtype", (torch.float64, torch.int64)))
    return Call([self, mask[:3] if kind == "sizes" else mask, source])


def _nonzero(draw: Draw) -> Call:
    sizes = _sizes(draw) if draw.pick("deep", (*[False] * 5, True)) is False else [2, 1, 3, 2, 1, 2]
    return Call(
        [tensor(draw, "self", draw.pick("dtype", _ALL), sizes, ("rare", "lattice", "nonfinite", "special", "zeros", "ones"))]
    )


# -- slices ------------------------------------------------------------------------------------------------------------------


def _source_dtypes(dtype: torch.dtype) -> tuple[torch.dtype, ...]:
    """Return dtypes whose cast to this one is well defined in eager."""
    if dtype.is_complex:
        return (dtype, torch.float32)
    if dtype.is_floating_point:
        return (dtype, torch.int32, torch.float64, torch.bfloat16)
    return (dtype, torch.bool, torch.int8) if dtype is not torch.bool else (dtype, torch.int32, torch.float32)


def _source(draw: Draw, dtype: torch.dtype, sizes: Sequence[int]) -> Tensor:
    return tensor(draw, "src", draw.pick(f"src of {dtype}", _source_dtypes(dtype)), sizes, _MOVED)


def _select_scatter(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    self = tensor(
        draw, "self", dtype, [max(one, 1) if not place else one for place, one in enumerate(_sizes(draw, 1))], _MOVED, COPIED
    )
    dim = dim_of(draw, "dim", self.dim())
    if not self.shape[dim]:
        dim = 0
    size = self.shape[dim]
    index = draw.pick("index", (0, -1, size - 1, -size, size // 2, max(-2, -size), -(size // 2), min(1 - size, -1)))
    return Call([self, _source(draw, dtype, self.select(dim, 0).shape), dim, index])


def _select_scatter_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("index", "sizes", "dim", "none"))
    self = torch.zeros(3, 4)
    sizes = draw.pick("src.sizes", ([3], [1], [1, 4], [])) if kind == "sizes" else [4]
    if kind == "none":
        return Call([torch.zeros([]), torch.ones([]), 0, 0])
    index = draw.pick("index", (3, -4, 100)) if kind == "index" else 0
    return Call([self, torch.ones(sizes), draw.pick("dim", (2, -3)) if kind == "dim" else 0, index])


def _slice_scatter(draw: Draw) -> Call:
    dtype = draw.pick("dtype", _ALL)
    self = tensor(draw, "self", dtype, _sizes(draw, 1), _MOVED, COPIED)
    dim = dim_of(draw, "dim", self.dim())
    size = self.shape[dim]
    start = draw.pick("start", (None, 0, 1, -1, -2, size, size + 3, -size - 2, size // 2))
    end = draw.pick("end", (None, size, 2**63 - 1, 1, -1, 0, size - 1, -size - 2, size + 3))
    step = draw.pick("step", (1, 2, 3, 7, size + 1))
    src = _source(draw, dtype, _aten.slice.Tensor(self, dim, start, end, step).shape)
    return Call(left_out(draw, [self, src, dim, start, end, step], [0, None, None, 1]))


def _slice_scatter_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("sizes", "step", "dim", "none"))
    self = torch.zeros(5, 4)
    if kind == "none":
        return Call([torch.zeros([]), torch.ones([]), 0])
    sizes = draw.pick("src.sizes", ([3, 4], [1, 4], [4], [2, 1])) if kind == "sizes" else [2, 4]
    step = draw.pick("step", (0, -1)) if kind == "step" else 1
    return Call([self, torch.ones(sizes), draw.pick("dim", (2, -3)) if kind == "dim" else 0, 1, 3, step])


# -- embedding bags ----------------------------------------------------------------------------------------------------------

_MAX = 2

# With other strides of the indices, eager reads out of bounds.
_IN_A_ROW = ("contiguous", "guarded")


def _bag(draw: Draw) -> Call:
    dtype = draw.pick("dtype", (torch.float32, *FLOATS))
    mode = draw.pick("mode", (0, 1, 2))
    last = draw.flag("include_last_offset")
    padded = draw.pick("padding_idx", (-1, 0, 2))
    kind = draw.pick("values", ("lattice", "normal", "positive_lattice", "nonfinite", "ties"))
    rows, width = draw.pick("weight.rows", (5, 3, 40, 300)), draw.pick("weight.width", (3, 1, 2, 8, 17, 64))
    weight = tensor(draw, "weight", dtype, [rows, width], (kind,))
    sizes = draw.pick("bags", ([2, 2], [1], [0, 2, 1], [3, 0, 0], [], [0], [4, 1, 0, 7, 2], [300], [1] * 40))
    count = sum(sizes)
    index = indices(draw, "indices", [count], rows, layouts=_IN_A_ROW)
    ends = [sum(sizes[:place]) for place in range(len(sizes) + 1)]
    if not sizes and not last:
        ends, index = [0], index[:0]
    offsets = as_index(draw, "offsets", torch.tensor(ends if last or not sizes else ends[:-1]), _IN_A_ROW)
    weighted = mode == 0 and draw.flag("per_sample_weights")
    weights = tensor(draw, "per_sample_weights", dtype, [count], (kind if kind != "nonfinite" else "normal",)) if weighted else None
    args = [weight, index, offsets, draw.flag("scale_grad_by_freq"), mode, draw.flag("sparse"), weights, last, padded]
    exact = kind in ("lattice", "positive_lattice") and not (dtype in HALVES and count > 24) and not weighted
    return Call(left_out(draw, args, [False, 0, False, None, False, -1]), exact=exact)


def _bag_refused(draw: Draw) -> Call:
    kind = draw.pick("refused", ("out of range", "first", "last", "mode", "weights", "dtype", "rank"))
    weight, index, offsets = torch.ones(5, 2), torch.tensor([0, 2, 4, 1]), torch.tensor([0, 2])
    if kind == "out of range":
        rows, count = draw.pick("rows", (5, 1, 300)), draw.pick("count", (4, 3, 130))
        weight, index = torch.ones(rows, draw.pick("width", (2, 1, 17))), indices(draw, "indices", [count], rows, layouts=_IN_A_ROW)
        index, offsets = spoilt(draw, index, rows), offsets.to(index.dtype)
    mode = draw.pick("mode", (0, 1, 2)) if kind != "mode" else draw.pick("bad mode", (3, -1))
    if kind == "first":
        offsets[0] = 1
    elif kind == "last":
        offsets[1] = 9
    elif kind == "dtype":
        weight = weight.to(draw.pick("weight.dtype", (torch.int64, torch.complex64)))
    elif kind == "rank":
        weight = weight[0]
    weights = torch.ones(draw.pick("weights", (3, 5))) if kind == "weights" else None
    return Call([weight, index, offsets, False, mode, False, weights])


def _bag_wrong(call: Call, want: Sequence[Any], have: Sequence[Any]) -> str | None:
    """Return an error in the results that backward uses, or None."""
    given = [*call.args, *[False, 0, False, None, False, -1][len(call.args) - 3 :]]
    weight, index, offsets, _, mode, _, _, last, _ = given
    result, of_bag, counts, places = have
    ends = [*offsets.tolist(), *([] if last else [len(index)])]
    bags = torch.repeat_interleave(torch.arange(len(ends) - 1), torch.tensor(ends).diff()) if len(ends) > 1 else torch.tensor([])
    if of_bag.numel() and not torch.equal(of_bag.to(torch.int64), bags.to(torch.int64)):
        return f"offset2bag is {of_bag.tolist()}, not {bags.tolist()}"
    if mode == 0:
        return None
    if not torch.equal(counts, want[2]):
        return f"bag_size is {counts.tolist()}, eager {want[2].tolist()}"
    if mode != _MAX:
        return None
    if places.shape != want[3].shape:
        return f"max_indices has shape {list(places.shape)}, eager's {list(want[3].shape)}"
    filled_bags = counts > 0
    where, largest = places[filled_bags].to(torch.int64), result[filled_bags]
    if where.numel() and (int(where.min()) < 0 or int(where.max()) >= len(weight)):
        return "max_indices is out of range"
    there = weight.gather(0, where)
    if not bool(((there == largest) | ((there != there) & (largest != largest))).all()):
        return "max_indices does not say where the largest come from"
    for bag, row in zip(filled_bags.nonzero().flatten().tolist(), where, strict=True):
        if not bool(torch.isin(row, index[bags == bag].to(torch.int64)).all()):
            return "max_indices names a row that is not in the bag"
    return None


def _near_bag(call: Call) -> Near:
    mode = call.args[4] if len(call.args) > 4 else 0
    if mode == _MAX:
        return EITHER_ZERO
    return Near(4 + roundings(call.args[0].dtype, call.args[1].numel()), of="terms", zeros=False)


SPECS: dict[str, Spec] = {
    "aten.index.Tensor": Spec(_index, EXACT, refused=_index_refused),
    "aten.index_put.default": Spec(_index_put, _near_put, refused=_index_put_refused),
    "aten.masked_scatter.default": Spec(_masked_scatter, EXACT, refused=_masked_scatter_refused),
    "aten.nonzero.default": Spec(_nonzero, EXACT),
    "aten.select_scatter.default": Spec(_select_scatter, EXACT, refused=_select_scatter_refused),
    "aten.slice_scatter.default": Spec(_slice_scatter, EXACT, refused=_slice_scatter_refused),
    "aten._embedding_bag.default": Spec(
        _bag, _near_bag, refused=_bag_refused, any_values=(1, 2, 3), any_shapes=(1, 2, 3), check_results=_bag_wrong
    ),
}
