"""Kernels without a fault that differ from eager's, where eager promises nothing: the suite must find nothing wrong with any.

They round otherwise (other formulas, wider numbers, sums in another order), or have other strides, orders of equal elements, places
in memory, random numbers.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import Bound, Mutant, equivalent, like

__all__ = ["EQUIVALENTS"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _wide(c: Bound) -> Any:
    """Computed in float64, rounded once."""
    right = c.but()
    first = (
        right
        if isinstance(right, Tensor)
        else next((one for one in right if isinstance(one, Tensor)), torch.empty(0, dtype=torch.bool))
    )
    if first.dtype not in _FLOATS:
        return right
    found = c.through(torch.float64)
    if isinstance(right, Tensor):
        return like(found, right)
    # Of gradients that are not asked for, eager leaves some out, depending on the dtype.
    return tuple(
        like(one, due) if isinstance(one, Tensor) and isinstance(due, Tensor) else due
        for one, due in zip(found, right, strict=True)
    )


def _by(formula: Callable[[Tensor], Tensor]) -> Callable[[Bound], Any]:
    """A formula in float64, rounded once; float64 itself, ints and complex numbers stay eager's."""
    return lambda c: like(formula(c.self.double()), c.but()) if c.self.dtype in _FLOATS else c.but()


def _sigmoid(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 8, (x / 2).tanh() / 2 + 0.5, 1 / (1 + (-x).exp()))


def _in_float32(formula: Callable[[Tensor], Tensor]) -> Callable[[Bound], Any]:
    """A formula in float32, rounded once; other dtypes stay eager's."""
    return lambda c: like(formula(c.self.float()), c.but()) if c.self.dtype in _FLOATS else c.but()


def _halves_in_float32(c: Bound) -> Any:
    """Compute in float32 and round once; other dtypes stay eager's."""
    right = c.but()
    return like(c.through(torch.float32), right) if c.self.dtype in (torch.float16, torch.bfloat16) else right


def _gelu(c: Bound) -> Any:
    """Compute gelu from the exponential, or from erfc, in float32, rounded once."""
    right = c.but()
    if c.self.dtype not in _FLOATS:
        return right
    x = c.self.float()
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    found = x / (1 + (-2 * inner).exp()) if c.approximate == "tanh" else 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    return like(torch.where(x.isfinite(), found, right.float()), right)


def _usual(*tensors: Tensor) -> Tensor:
    """True where a number and its reciprocal are far from overflow and underflow."""
    found = torch.tensor(True)
    for one in tensors:
        found = found & (one.abs() > 2.0**-40) & (one.abs() < 2.0**40)
    return found


def _times_reciprocal(c: Bound) -> Any:
    right = c.but()
    if not isinstance(c.other, Tensor) or not right.dtype is c.self.dtype is c.other.dtype is torch.float32:
        return right
    return like(torch.where(_usual(c.self, c.other), c.self * c.other.reciprocal(), right), right)


def _by_number(c: Bound) -> Any:
    right = c.but()
    if right.dtype is not torch.float32 or c.self.dtype is not torch.float32 or not 1e-9 < abs(c.other) < 1e9:
        return right
    return like(torch.where(_usual(c.self), c.self * (1 / c.other), right), right)


def _squared(c: Bound) -> Any:
    return like(c.self * c.self, c.but()) if c.exponent == 2 and c.self.dtype in (*_FLOATS, torch.float64) else c.but()


def _other_zero(c: Bound) -> Any:
    """Take the other one of equal numbers: of two zeros the one of the other sign."""
    right = c.but()
    if not right.is_floating_point() or c.self.dtype is not c.other.dtype:
        return right
    left, other = c.self.expand(right.shape), c.other.expand(right.shape)
    swapped = torch.where(torch.signbit(right) == torch.signbit(left), other, left)
    return like(torch.where((left == 0) & (other == 0), swapped, right), right)


# -- sums ------------------------------------------------------------------------------------------------------------------------


def _dims(c: Bound) -> list[int]:
    given = [c.dim] if isinstance(c.dim, int) else c.dim
    return list(range(c.self.dim())) if not given else list(given)


def _plain_sum(c: Bound) -> bool:
    return c.self.dtype is torch.float32 and c.dtype in (None, torch.float32) and c.self.dim() > 0 and c.self.numel() > 0


def _backwards(c: Bound) -> Any:
    return like(c.but(self=c.self.flip(_dims(c))), c.but()) if _plain_sum(c) else c.but()


def _in_chunks(c: Bound) -> Any:
    """Sums of seven, added up."""
    right = c.but()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    parts = [one.sum(_dims(c)[0], c.keepdim) for one in c.self.split(7, _dims(c)[0])]
    total = parts[0]
    for one in parts[1:]:
        total = total + one
    return like(total, right)


def _in_pairs(c: Bound) -> Any:
    """Neighbours are added until one is left."""
    right = c.but()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    x = c.self.movedim(_dims(c)[0], 0)
    while x.shape[0] > 1:
        even = x.shape[0] // 2 * 2
        x = torch.cat([x[0:even:2] + x[1:even:2], x[even:]])
    return like(x[0].reshape(right.shape), right)


def _mean(c: Bound) -> Any:
    right = c.but()
    if not _plain_sum(c) or not _dims(c):
        return right
    count = math.prod(c.self.shape[dim] for dim in _dims(c))
    return like(torch.ops.aten.sum.dim_IntList(c.self, _dims(c), c.keepdim) * (1 / count), right)


def _two_pass(c: Bound) -> Any:
    right = c.but()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    count = math.prod(c.self.shape[dim] for dim in _dims(c))
    correction = 1 if c.correction is None else c.correction
    if count - correction <= 0:
        return right
    mean = c.self.double().mean(_dims(c), True).float()
    return like((c.self - mean).square().sum(_dims(c), c.keepdim) / (count - correction), right)


def _one_by_one(c: Bound) -> Any:
    """Each number added to the sum of those before it, in float32."""
    right = c.but()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    rows = c.self.movedim(_dims(c)[0], 0)
    if len(rows) > 5000:
        return right
    total = torch.zeros_like(rows[0])
    for row in rows:
        total = total + row
    return like(total.reshape(right.shape), right)


def _welford(c: Bound) -> Any:
    """Mean and sum of squares brought up to date with each number."""
    right = c.but()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel() or len(_dims(c)) != 1:
        return right
    rows = c.self.movedim(_dims(c)[0], 0)
    count = len(rows) - (1 if c.correction is None else c.correction)
    if count <= 0 or len(rows) > 3000:
        return right
    mean, squares = torch.zeros_like(rows[0]), torch.zeros_like(rows[0])
    for number, row in enumerate(rows, 1):
        less = row - mean
        mean = mean + less / number
        squares = squares + less * (row - mean)
    return like((squares / count).reshape(right.shape), right)


def _doubling(c: Bound) -> Any:
    """A parallel scan: to each sum is added that of the stretch before it, which doubles."""
    right = c.but()
    if c.self.dtype is not torch.float32 or c.dtype is not None or not c.self.dim() or not c.self.numel():
        return right
    x, step = c.self.movedim(c.dim, 0), 1
    while step < x.shape[0]:
        x = torch.cat([x[:step], x[step:] + x[:-step]])
        step *= 2
    return like(x.movedim(0, c.dim), right)


def _by_logsumexp(c: Bound) -> Any:
    right = c.but()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    return like(torch.where(c.self.amax(c.dim, True).isfinite(), (c.self - c.self.logsumexp(c.dim, True)).exp(), right), right)


def _shifted_log(c: Bound) -> Any:
    right = c.but()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    high = c.self.amax(c.dim, True)
    less = c.self - high
    return like(torch.where(high.isfinite(), less - less.exp().sum(c.dim, True).log(), right), right)


def _scattered(c: Bound) -> Any:
    # int32 is taken for an index of some dtypes only.
    if c.self.dtype not in _FLOATS or c.src.dtype is not c.self.dtype:
        return c.but()
    return like(c.but(self=c.self.double(), index=c.index.long(), src=c.src.double()), c.but())


# -- products --------------------------------------------------------------------------------------------------------------------


def _product(c: Bound, compute: Callable[[Tensor, Tensor], Tensor]) -> Any:
    right = c.but()
    if right.dtype is not torch.float32 or not c.self.shape[-1] or not right.numel():
        return right
    return compute(c.self, c.mat2)


def _tiled(left: Tensor, other: Tensor) -> Tensor:
    parts = [torch.matmul(a, b) for a, b in zip(torch.split(left, 5, -1), torch.split(other, 5, -2), strict=True)]
    return torch.stack(parts).sum(0)


def _outer(left: Tensor, other: Tensor) -> Tensor:
    total = left[..., :1] * other[..., :1, :]
    for place in range(1, left.shape[-1]):
        total = total + left[..., place : place + 1] * other[..., place : place + 1, :]
    return total


def _added(c: Bound) -> Any:
    right = c.but()
    if right.dtype is not torch.float32 or not c.mat1.shape[1] or not right.numel():
        return right
    product = torch.mm(c.mat1, c.mat2) * c.alpha
    return product if c.beta == 0 else product + c.self * c.beta


def _im2col(c: Bound) -> Any:
    right = c.but()
    plain = c.input.dim() == 4 and c.groups == 1 and not c.transposed and right.dtype is torch.float32 and right.numel()
    if not plain or len(c.stride) != 2 or len(c.padding) != 2 or len(c.dilation) != 2:
        return right
    columns = torch.nn.functional.unfold(c.input, c.weight.shape[2:], c.dilation, c.padding, c.stride)
    found = (c.weight.flatten(1) @ columns).reshape(right.shape)
    return like(found if c.bias is None else found + c.bias.reshape(-1, 1, 1), right)


def _dft(c: Bound) -> Any:
    """Multiply by the transform's matrix, in float64."""
    right = c.but()
    if c.self.dtype is not torch.float32 or len(c.dim) != 1 or not c.self.numel():
        return right
    size = c.self.shape[c.dim[0]]
    turns = torch.outer(torch.arange(right.shape[c.dim[0]]), torch.arange(size)).remainder(size).double() * (-2 * math.pi / size)
    scale = {0: 1.0, 1: 1 / math.sqrt(size), 2: 1 / size}[c.normalization]
    x = c.self.double().movedim(c.dim[0], -1)
    found = torch.complex(x @ turns.cos().t(), x @ turns.sin().t()) * scale
    return like(found.movedim(-1, c.dim[0]), right) if bool(x.isfinite().all()) else right


# -- norms -----------------------------------------------------------------------------------------------------------------------


def _folded(c: Bound) -> Any:
    """A factor and a summand for each channel."""
    right = c.but()
    if c.input.dtype is not torch.float32:
        return right
    factor = (c.running_var + c.eps).rsqrt() * (1 if c.weight is None else c.weight)
    summand = (0 if c.bias is None else c.bias) - c.running_mean * factor
    each = [1, -1, *[1] * (c.input.dim() - 2)]
    return like(c.input * factor.view(each) + summand.view(each), right[0]), *right[1:]


def _layer_norm(c: Bound) -> Any:
    """Two passes, then weight and bias."""
    right = c.but()
    if c.input.dtype is not torch.float32 or not c.input.numel() or not bool(c.input.isfinite().all()):
        return right
    dims = list(range(-len(c.normalized_shape), 0))
    mean = c.input.double().mean(dims, True)
    less = c.input.double() - mean
    rstd = (less.square().mean(dims, True) + c.eps).rsqrt()
    found = less * rstd
    found = found if c.weight is None else found * c.weight
    found = found if c.bias is None else found + c.bias
    return like(found, right[0]), like(mean, right[1]), like(rstd, right[2])


# -- layout, ties, memory --------------------------------------------------------------------------------------------------------


def _column_major(c: Bound) -> Any:
    """Results with the last two dims the other way round in memory."""

    def turned(value: Any) -> Any:
        return value.mT.contiguous().mT if isinstance(value, Tensor) and value.dim() > 1 else value

    right = c.but()
    return turned(right) if isinstance(right, Tensor) else tuple(turned(one) for one in right)


def _last_first(c: Bound) -> Any:
    """Sorted, equal ones in the other order."""
    if not c.self.dim() or c.self.dtype is torch.bool:
        return c.but()
    values, indices = c.but(self=c.self.flip([c.dim]))
    return values, c.self.shape[c.dim] - 1 - indices


def _other_ties(c: Bound) -> Any:
    if not c.self.dim():
        return c.but()
    right, (values, indices) = c.but(), c.but(self=c.self.flip([c.dim]))
    return (values, c.self.shape[c.dim] - 1 - indices) if right[0].numel() else right


def _any_order(c: Bound) -> Any:
    """The largest in an order that nobody asked for."""
    values, indices = c.but()
    return (values, indices) if c.sorted or not values.dim() else (values.flip([c.dim]), indices.flip([c.dim]))


def _placed(c: Bound) -> Any:
    """A result somewhere in memory of its own."""
    right = c.but()
    if not right.is_contiguous():
        return right
    return torch.empty(right.numel() + 5, dtype=right.dtype)[3 : 3 + right.numel()].view(right.shape).copy_(right)


_LOCAL = threading.local()


def _scratch(c: Bound) -> Any:
    """Compute in a buffer per thread; the result has its own memory."""
    right = c.but()
    if not right.numel():
        return right
    buffers = _LOCAL.__dict__.setdefault("buffers", {})
    buffer = buffers.setdefault((right.dtype, right.shape), torch.empty(right.shape, dtype=right.dtype))
    return like(buffer.copy_(right), right)


def _slow(c: Bound) -> Any:
    time.sleep(0.002)
    return c.but()


def _worded(c: Bound) -> Any:
    """Refuses in words of its own."""
    try:
        return c.but()
    except (RuntimeError, IndexError) as error:
        raise type(error)("these arguments do not fit each other") from None


def _strided_view(c: Bound) -> Any:
    right = c.but()
    return torch.as_strided(c.self, right.shape, right.stride(), right.storage_offset())


# -- chance ----------------------------------------------------------------------------------------------------------------------

_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def _numpy_draws() -> Any:
    """A generator of NumPy's, begun by a number from torch's."""
    import numpy as np

    return np.random.Generator(np.random.Philox(int(torch.randint(2**62, ()))))


def _uniform(shape: Any, bits: int) -> Tensor:
    whole = _numpy_draws().integers(0, 2**bits, size=tuple(shape))
    found: Tensor = torch.as_tensor(whole, dtype=torch.float64) / 2**bits
    return found


def _rand(c: Bound) -> Any:
    right = c.but()
    return like(_uniform(right.shape, _BITS[right.dtype]), right) if right.dtype in _BITS else right


def _polar(c: Bound) -> Any:
    """Box and Muller."""
    right = c.but()
    if right.dtype not in _BITS:
        return right
    radius = (-2 * torch.log1p(-_uniform(right.shape, 53))).sqrt()
    return like(radius * (2 * math.pi * _uniform(right.shape, 53)).cos(), right)


def _ziggurat(c: Bound) -> Any:
    right = c.but()
    return like(torch.as_tensor(_numpy_draws().standard_normal(tuple(right.shape))), right) if right.dtype in _BITS else right


def _by_sorting(c: Bound) -> Any:
    right = c.but()
    return like(_uniform(right.shape, 53).argsort(), right)


def _dropout(c: Bound) -> Any:
    if c.train is False or not 0 < c.p < 1 or c.input.dtype not in _BITS:
        return c.but()
    right, mask = c.but()
    kept = like(_uniform(right.shape, 53) >= c.p, mask)
    return like(c.input * kept * (1 / (1 - c.p)), right), kept


# -- NumPy -----------------------------------------------------------------------------------------------------------------------


def _numpy(name: str) -> Callable[[Bound], Any]:
    """A function of NumPy's of one argument, in float64."""

    def run(c: Bound) -> Any:
        import numpy as np

        right = c.but()
        if c.self.dtype not in _FLOATS:
            return right
        with np.errstate(all="ignore"):
            return like(torch.as_tensor(getattr(np, name)(c.self.detach().resolve_neg().double().numpy())), right)

    return run


def _numpy_matmul(c: Bound) -> Any:
    import numpy as np

    right = c.but()
    if right.dtype not in _FLOATS:
        return right
    with np.errstate(all="ignore"):
        return torch.as_tensor(np.matmul(*(one.detach().resolve_neg().double().numpy() for one in (c.self, c.mat2)))).to(
            right.dtype
        )


# -- the tables --------------------------------------------------------------------------------------------------------------------

_ONCE = "float64 is nearer to the truth than eager is"
_OF_ONE = "many accelerators compute it so: right to some units of one"
_ORDER = "sums may be taken in any order"
_DENSE = "eager says nothing of the strides"
_TIES = "eager says nothing of the order of equals"
_DISTRIBUTION = "the distribution and the seed are what is promised"

# fmt: off
_IN_FLOAT64 = (
    "exp", "log", "log2", "log10", "log1p", "expm1", "sin", "cos", "tan", "tanh", "sinh", "cosh", "asin", "acos", "atan",
    "asinh", "acosh", "atanh", "erf", "sigmoid", "gelu", "rsqrt", "reciprocal", "sqrt", "elu", "pow.Tensor_Scalar",
    "pow.Tensor_Tensor", "atan2", "div.Tensor", "mm", "bmm", "addmm", "sum.dim_IntList", "mean.dim", "mean", "var.correction",
    "prod", "prod.dim_int", "cumsum", "_softmax", "_log_softmax", "native_layer_norm", "native_group_norm",
    "_native_batch_norm_legit.no_stats", "native_layer_norm_backward", "native_group_norm_backward", "convolution",
    "convolution_backward", "avg_pool2d", "avg_pool3d", "_adaptive_avg_pool2d", "avg_pool2d_backward", "upsample_bilinear2d.vec",
    "_cdist_forward", "_pdist_forward", "col2im", "embedding_dense_backward", "add.Tensor", "sub.Tensor",
)
_COLUMN_MAJOR = (
    "mm", "addmm", "bmm", "sum.dim_IntList", "_softmax", "_log_softmax", "sort", "gather", "cumsum", "index_select", "topk",
)
# fmt: on

EQUIVALENTS: tuple[Mutant, ...] = (
    *(equivalent(op, "in float64, rounded once", _wide, why=_ONCE) for op in _IN_FLOAT64),
    *(
        equivalent(op, "halves in float32, rounded once", _halves_in_float32)
        for op in ("sinh", "cosh", "gelu", "tanh", "sum.dim_IntList")
    ),
    equivalent("gelu", "by the exponential or erfc", _gelu),
    equivalent("sum.dim_IntList", "one by one", _one_by_one, why=_ORDER),
    equivalent("var.correction", "brought up to date with each", _welford),
    equivalent("_native_batch_norm_legit_no_training", "a factor and a summand for each channel", _folded),
    equivalent("exp", "by powers of two", _by(lambda x: (x * math.log2(math.e)).exp2())),
    equivalent("log2", "by the natural logarithm", _by(lambda x: x.log() / math.log(2))),
    equivalent("tan", "sine by cosine", _by(lambda x: x.sin() / x.cos())),
    equivalent("sigmoid", "by tanh", _by(_sigmoid)),
    equivalent("sigmoid", "by tanh in float32", _in_float32(lambda x: 0.5 * (1 + (x / 2).tanh())), why=_OF_ONE),
    equivalent("sigmoid", "1 - 1 / (1 + e^x)", _in_float32(lambda x: 1 - 1 / (1 + x.exp())), why=_OF_ONE),
    equivalent(
        "sigmoid",
        "1 / (1 + e^-x)",
        lambda c: like(1 / (1 + (-c.self).exp()), c.but()) if c.self.dtype is torch.float32 else c.but(),
    ),
    equivalent("tanh", "by sigmoid", _by(lambda x: torch.where(x.abs() > 0.5, 2 * (2 * x).sigmoid() - 1, x.tanh()))),
    equivalent("rsqrt", "1 / sqrt(x)", lambda c: like(1 / c.self.sqrt(), c.but()) if c.self.dtype is torch.float32 else c.but()),
    equivalent("div.Tensor", "times the reciprocal", _times_reciprocal, why="off by a unit or two"),
    equivalent("div.Scalar", "times the reciprocal", _by_number, why="off by a unit or two"),
    equivalent("pow.Tensor_Scalar", "squares by a product", _squared),
    equivalent("maximum", "of two zeros the other one", _other_zero, why="they are equal"),
    equivalent("minimum", "of two zeros the other one", _other_zero, why="they are equal"),
    equivalent("sum.dim_IntList", "backwards", _backwards, why=_ORDER),
    equivalent(
        "sum.dim_IntList", "backwards, of every type", lambda c: like(c.but(self=c.self.flip(_dims(c))), c.but()), why=_ORDER
    ),
    equivalent("sum.dim_IntList", "in chunks of seven", _in_chunks, why=_ORDER),
    equivalent("sum.dim_IntList", "in pairs", _in_pairs, why=_ORDER),
    equivalent("mean.dim", "times one by the count", _mean, why="off by a unit"),
    equivalent("var.correction", "in two passes", _two_pass),
    equivalent("cumsum", "by doubling", _doubling, why=_ORDER),
    equivalent("_softmax", "exp(x - logsumexp(x))", _by_logsumexp),
    equivalent("_log_softmax", "maximum first, then the logarithm", _shifted_log),
    equivalent("mm", "in tiles of five", lambda c: _product(c, _tiled), why=_ORDER),
    equivalent("mm", "outer products", lambda c: _product(c, _outer), why=_ORDER),
    equivalent("mm", "backwards", lambda c: _product(c, lambda left, other: left.flip(-1) @ other.flip(-2)), why=_ORDER),
    equivalent("bmm", "in tiles of five", lambda c: _product(c, _tiled), why=_ORDER),
    equivalent("addmm", "the product, then the sum", _added),
    equivalent("convolution", "by columns and a product", _im2col, why=_ORDER),
    equivalent("_fft_r2c", "by the matrix of the transform", _dft),
    equivalent("native_layer_norm", "in two passes", _layer_norm),
    equivalent("scatter_add", "in float64, rounded once", _scattered, why=_ONCE),
    # What eager promises nothing about.
    *(equivalent(op, "column-major results", _column_major, why=_DENSE) for op in _COLUMN_MAJOR),
    equivalent("sort", "equals the other way round", _last_first, why=_TIES),
    equivalent("topk", "other ones of equals", _other_ties, why=_TIES),
    equivalent("topk", "in no order where none is asked for", _any_order, why=_TIES),
    *(equivalent(op, "somewhere in memory of its own", _placed) for op in ("add.Tensor", "relu", "mm")),
    equivalent("tanh", "by way of a thread's buffer", _scratch),
    equivalent("mul.Tensor", "slowly", _slow),
    *(equivalent(op, "refuses in words of its own", _worded) for op in ("mm", "cat", "gather")),
    *(equivalent(op, "by as_strided", _strided_view) for op in ("permute", "select.int", "expand")),
    equivalent("rand", "by another generator", _rand, why=_DISTRIBUTION),
    equivalent("randn", "by Box and Muller", _polar, why=_DISTRIBUTION),
    equivalent("randn", "by another generator's ziggurat", _ziggurat, why=_DISTRIBUTION),
    equivalent("randperm", "by sorting", _by_sorting, why=_DISTRIBUTION),
    equivalent("native_dropout", "by another generator", _dropout, why=_DISTRIBUTION),
    *(
        equivalent(op, "by NumPy, rounded once", _numpy(op), why=_ONCE)
        for op in ("exp", "sin", "tanh", "log1p", "sqrt", "abs", "floor")
    ),
    equivalent("mm", "by NumPy, rounded once", _numpy_matmul, why=_ONCE),
    equivalent("bmm", "by NumPy, rounded once", _numpy_matmul, why=_ONCE),
)
