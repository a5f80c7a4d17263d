"""Right kernels that differ from eager where they may. The suite must not report any of them.

They round differently (other formulas, wider dtypes, other orders of summation), or their results have other strides, other orders
of equal elements, other storage offsets or other random numbers.
"""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from conformance.mutants.builder import BoundCall, Mutant, cast_like, column_major, equivalent

__all__ = ["EQUIVALENTS", "shuffled"]

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)


def _in_float64(c: BoundCall) -> Any:
    """Compute in float64 and round once."""
    right = c.eager()
    first = (
        right
        if isinstance(right, Tensor)
        else next((one for one in right if isinstance(one, Tensor)), torch.empty(0, dtype=torch.bool))
    )
    if first.dtype not in _FLOATS:
        return right
    found = c.eager_in(torch.float64)
    if isinstance(right, Tensor):
        return cast_like(found, right)
    # For gradients that the mask does not request, eager returns None or a tensor, depending on the dtype.
    return tuple(
        cast_like(one, due) if isinstance(one, Tensor) and isinstance(due, Tensor) else due
        for one, due in zip(found, right, strict=True)
    )


def _by(formula: Callable[[Tensor], Tensor]) -> Callable[[BoundCall], Any]:
    """Compute a formula in float64 and round once; float64, ints and complex numbers by eager."""
    return lambda c: cast_like(formula(c.self.double()), c.eager()) if c.self.dtype in _FLOATS else c.eager()


def _sigmoid(x: Tensor) -> Tensor:
    return torch.where(x.abs() < 8, (x / 2).tanh() / 2 + 0.5, 1 / (1 + (-x).exp()))


def _in_float32(formula: Callable[[Tensor], Tensor]) -> Callable[[BoundCall], Any]:
    """Compute a formula in float32 and round once; other dtypes by eager."""
    return lambda c: cast_like(formula(c.self.float()), c.eager()) if c.self.dtype in _FLOATS else c.eager()


def _16_bit_in_float32(c: BoundCall) -> Any:
    """Compute float16 and bfloat16 in float32 and round once; other dtypes by eager."""
    right = c.eager()
    return cast_like(c.eager_in(torch.float32), right) if c.self.dtype in (torch.float16, torch.bfloat16) else right


def _gelu(c: BoundCall) -> Any:
    """Compute gelu from exp or erfc in float32, and round once."""
    right = c.eager()
    if c.self.dtype not in _FLOATS:
        return right
    x = c.self.float()
    inner = math.sqrt(2 / math.pi) * (x + 0.044715 * x * x * x)
    found = x / (1 + (-2 * inner).exp()) if c.approximate == "tanh" else 0.5 * x * torch.erfc(-x * math.sqrt(0.5))
    return cast_like(torch.where(x.isfinite(), found, right.float()), right)


def _moderate(*tensors: Tensor) -> Tensor:
    """Return True for numbers that are far from overflow and underflow, as are their reciprocals."""
    found = torch.tensor(True)
    for one in tensors:
        found = found & (one.abs() > 2.0**-40) & (one.abs() < 2.0**40)
    return found


def _times_reciprocal(c: BoundCall) -> Any:
    right = c.eager()
    if not isinstance(c.other, Tensor) or not right.dtype is c.self.dtype is c.other.dtype is torch.float32:
        return right
    return cast_like(torch.where(_moderate(c.self, c.other), c.self * c.other.reciprocal(), right), right)


def _by_number(c: BoundCall) -> Any:
    right = c.eager()
    if right.dtype is not torch.float32 or c.self.dtype is not torch.float32 or not 1e-9 < abs(c.other) < 1e9:
        return right
    return cast_like(torch.where(_moderate(c.self), c.self * (1 / c.other), right), right)


def _squared(c: BoundCall) -> Any:
    return cast_like(c.self * c.self, c.eager()) if c.exponent == 2 and c.self.dtype in (*_FLOATS, torch.float64) else c.eager()


def _other_zero(c: BoundCall) -> Any:
    """Return the other one of two equal zeros, which may have the other sign."""
    right = c.eager()
    if not right.is_floating_point() or c.self.dtype is not c.other.dtype:
        return right
    left, other = c.self.expand(right.shape), c.other.expand(right.shape)
    swapped = torch.where(torch.signbit(right) == torch.signbit(left), other, left)
    return cast_like(torch.where((left == 0) & (other == 0), swapped, right), right)


# -- sums ------------------------------------------------------------------------------------------------------------------------


def _dims(c: BoundCall) -> list[int]:
    given = [c.dim] if isinstance(c.dim, int) else c.dim
    return list(range(c.self.dim())) if not given else list(given)


def _plain_sum(c: BoundCall) -> bool:
    return c.self.dtype is torch.float32 and c.dtype in (None, torch.float32) and c.self.dim() > 0 and c.self.numel() > 0


def _backwards(c: BoundCall) -> Any:
    return cast_like(c.eager(self=c.self.flip(_dims(c))), c.eager()) if _plain_sum(c) else c.eager()


def _in_chunks(c: BoundCall) -> Any:
    """Add the sums of chunks of seven."""
    right = c.eager()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    parts = [one.sum(_dims(c)[0], c.keepdim) for one in c.self.split(7, _dims(c)[0])]
    total = parts[0]
    for one in parts[1:]:
        total = total + one
    return cast_like(total, right)


def _in_pairs(c: BoundCall) -> Any:
    """Add neighbours until one element is left."""
    right = c.eager()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    x = c.self.movedim(_dims(c)[0], 0)
    while x.shape[0] > 1:
        even = x.shape[0] // 2 * 2
        x = torch.cat([x[0:even:2] + x[1:even:2], x[even:]])
    return cast_like(x[0].reshape(right.shape), right)


def _mean(c: BoundCall) -> Any:
    right = c.eager()
    if not _plain_sum(c) or not _dims(c):
        return right
    count = math.prod(c.self.shape[dim] for dim in _dims(c))
    return cast_like(torch.ops.aten.sum.dim_IntList(c.self, _dims(c), c.keepdim) * (1 / count), right)


def _two_pass(c: BoundCall) -> Any:
    right = c.eager()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    count = math.prod(c.self.shape[dim] for dim in _dims(c))
    correction = 1 if c.correction is None else c.correction
    if count - correction <= 0:
        return right
    mean = c.self.double().mean(_dims(c), True).float()
    return cast_like((c.self - mean).square().sum(_dims(c), c.keepdim) / (count - correction), right)


def _one_by_one(c: BoundCall) -> Any:
    """Add one element after the other, in float32."""
    right = c.eager()
    if not _plain_sum(c) or len(_dims(c)) != 1:
        return right
    rows = c.self.movedim(_dims(c)[0], 0)
    if len(rows) > 5000:
        return right
    total = torch.zeros_like(rows[0])
    for row in rows:
        total = total + row
    return cast_like(total.reshape(right.shape), right)


def _welford(c: BoundCall) -> Any:
    """Update mean and sum of squares with each element (Welford's algorithm)."""
    right = c.eager()
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
    return cast_like((squares / count).reshape(right.shape), right)


def _doubling(c: BoundCall) -> Any:
    """Scan in parallel: add the sum of the preceding block, whose size doubles."""
    right = c.eager()
    if c.self.dtype is not torch.float32 or c.dtype is not None or not c.self.dim() or not c.self.numel():
        return right
    x, step = c.self.movedim(c.dim, 0), 1
    while step < x.shape[0]:
        x = torch.cat([x[:step], x[step:] + x[:-step]])
        step *= 2
    return cast_like(x.movedim(0, c.dim), right)


def _by_logsumexp(c: BoundCall) -> Any:
    right = c.eager()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    return cast_like(torch.where(c.self.amax(c.dim, True).isfinite(), (c.self - c.self.logsumexp(c.dim, True)).exp(), right), right)


def _shifted_log(c: BoundCall) -> Any:
    right = c.eager()
    if c.self.dtype is not torch.float32 or not c.self.dim() or not c.self.numel():
        return right
    high = c.self.amax(c.dim, True)
    less = c.self - high
    return cast_like(torch.where(high.isfinite(), less - less.exp().sum(c.dim, True).log(), right), right)


def _scattered(c: BoundCall) -> Any:
    # Eager accepts int32 indices for some dtypes only.
    if c.self.dtype not in _FLOATS or c.src.dtype is not c.self.dtype:
        return c.eager()
    return cast_like(c.eager(self=c.self.double(), index=c.index.long(), src=c.src.double()), c.eager())


# -- products --------------------------------------------------------------------------------------------------------------------


def _product(c: BoundCall, compute: Callable[[Tensor, Tensor], Tensor]) -> Any:
    right = c.eager()
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


def _added(c: BoundCall) -> Any:
    right = c.eager()
    if right.dtype is not torch.float32 or not c.mat1.shape[1] or not right.numel():
        return right
    product = torch.mm(c.mat1, c.mat2) * c.alpha if c.alpha else torch.zeros_like(right)
    return product if c.beta == 0 else product + c.self * c.beta


def _im2col(c: BoundCall) -> Any:
    right = c.eager()
    plain = c.input.dim() == 4 and c.groups == 1 and not c.transposed and right.dtype is torch.float32 and right.numel()
    if not plain or len(c.stride) != 2 or len(c.padding) != 2 or len(c.dilation) != 2:
        return right
    columns = torch.nn.functional.unfold(c.input, c.weight.shape[2:], c.dilation, c.padding, c.stride)
    found = (c.weight.flatten(1) @ columns).reshape(right.shape)
    return cast_like(found if c.bias is None else found + c.bias.reshape(-1, 1, 1), right)


def _dft(c: BoundCall) -> Any:
    """Multiply by the matrix of the Fourier transform, in float64."""
    right = c.eager()
    if c.self.dtype is not torch.float32 or len(c.dim) != 1 or not c.self.numel():
        return right
    size = c.self.shape[c.dim[0]]
    turns = torch.outer(torch.arange(right.shape[c.dim[0]]), torch.arange(size)).remainder(size).double() * (-2 * math.pi / size)
    scale = {0: 1.0, 1: 1 / math.sqrt(size), 2: 1 / size}[c.normalization]
    x = c.self.double().movedim(c.dim[0], -1)
    found = torch.complex(x @ turns.cos().t(), x @ turns.sin().t()) * scale
    return cast_like(found.movedim(-1, c.dim[0]), right) if bool(x.isfinite().all()) else right


# -- norms -----------------------------------------------------------------------------------------------------------------------


def _folded(c: BoundCall) -> Any:
    """Multiply by one factor and add one summand per channel."""
    right = c.eager()
    if c.input.dtype is not torch.float32:
        return right
    factor = (c.running_var + c.eps).rsqrt() * (1 if c.weight is None else c.weight)
    summand = (0 if c.bias is None else c.bias) - c.running_mean * factor
    each = [1, -1, *[1] * (c.input.dim() - 2)]
    return cast_like(c.input * factor.view(each) + summand.view(each), right[0]), *right[1:]


def _layer_norm(c: BoundCall) -> Any:
    """Normalize in two passes, then apply weight and bias."""
    right = c.eager()
    if c.input.dtype is not torch.float32 or not c.input.numel() or not bool(c.input.isfinite().all()):
        return right
    dims = list(range(-len(c.normalized_shape), 0))
    mean = c.input.double().mean(dims, True)
    less = c.input.double() - mean
    rstd = (less.square().mean(dims, True) + c.eps).rsqrt()
    found = less * rstd
    found = found if c.weight is None else found * c.weight
    found = found if c.bias is None else found + c.bias
    return cast_like(found, right[0]), cast_like(mean, right[1]), cast_like(rstd, right[2])


# -- layout, ties, memory --------------------------------------------------------------------------------------------------------


def _column_major_if_strided(c: BoundCall) -> Any:
    """Return column-major results for tensors that are not all contiguous; for others, the strides are specified."""
    return c.eager() if all(one.is_contiguous() for one in c.dense_arguments) else column_major(c)


def _reversed_ties(c: BoundCall) -> Any:
    """Sort, with equal elements in reversed order."""
    if not c.self.dim() or c.self.dtype is torch.bool:
        return c.eager()
    values, indices = c.eager(self=c.self.flip([c.dim]))
    return values, c.self.shape[c.dim] - 1 - indices


def _other_ties(c: BoundCall) -> Any:
    if not c.self.dim():
        return c.eager()
    right, (values, indices) = c.eager(), c.eager(self=c.self.flip([c.dim]))
    return (values, c.self.shape[c.dim] - 1 - indices) if right[0].numel() else right


def _any_order(c: BoundCall) -> Any:
    """Return the largest elements in another order if `sorted` is False."""
    values, indices = c.eager()
    return (values, indices) if c.sorted or not values.dim() else (values.flip([c.dim]), indices.flip([c.dim]))


def _with_storage_offset(c: BoundCall) -> Any:
    """Return a result in the middle of its storage."""
    right = c.eager()
    if not right.is_contiguous():
        return right
    return torch.empty(right.numel() + 5, dtype=right.dtype)[3 : 3 + right.numel()].view(right.shape).copy_(right)


_LOCAL = threading.local()


def _scratch(c: BoundCall) -> Any:
    """Compute in a buffer per thread; the result has new memory."""
    right = c.eager()
    if not right.numel():
        return right
    buffers = _LOCAL.__dict__.setdefault("buffers", {})
    buffer = buffers.setdefault((right.dtype, right.shape), torch.empty(right.shape, dtype=right.dtype))
    return cast_like(buffer.copy_(right), right)


def _slow(c: BoundCall) -> Any:
    time.sleep(0.002)
    return c.eager()


def _other_error_message(c: BoundCall) -> Any:
    """Raise eager's type of error with another message."""
    try:
        return c.eager()
    except (RuntimeError, IndexError) as error:
        raise type(error)("these arguments do not fit each other") from None


def _strided_view(c: BoundCall) -> Any:
    right = c.eager()
    return torch.as_strided(c.self, right.shape, right.stride(), right.storage_offset())


def _last_of_ties(c: BoundCall) -> Any:
    """Return the index of the last maximum of a window, where the windows are tiles of the image."""
    kernel, stride = ([*one] * 2 if len(one) == 1 else [*one] for one in (c.kernel_size, c.stride or c.kernel_size))
    plain = kernel == stride and not any([*c.padding]) and {*c.dilation} == {1} and not bool(c.self.isnan().any())
    if not plain or any(size % step for size, step in zip(c.self.shape[-2:], kernel, strict=True)):
        return c.eager()
    values, places = (one.flip([-2, -1]) for one in c.eager(self=c.self.flip([-2, -1])))
    right = c.eager()
    return cast_like(values, right[0]), cast_like(c.self.shape[-2] * c.self.shape[-1] - 1 - places, right[1])


_ORDERS = random.Random(0)


def shuffled(c: BoundCall) -> Any:
    """Add in another order at each call, as a device with atomic additions does."""
    if not c.index.numel() or not c.self.dim():
        return c.eager()
    order = torch.tensor(_ORDERS.sample(range(c.index.shape[c.dim]), c.index.shape[c.dim]))
    src = c.src[tuple(map(slice, c.index.shape))]
    return c.eager(index=c.index.index_select(c.dim, order), src=src.index_select(c.dim, order))


def _shuffled_rows(c: BoundCall) -> Any:
    count = c.indices.numel()
    if torch.are_deterministic_algorithms_enabled() or not c.grad_output.numel():
        return c.eager()
    order = torch.tensor(_ORDERS.sample(range(count), count))
    rows = c.grad_output.reshape(count, -1)[order]
    return c.eager(grad_output=rows, indices=c.indices.reshape(-1)[order])


def _garbage_unless_asked(c: BoundCall) -> Any:
    """Return memory that nobody has written for gradients that the mask does not request."""
    return tuple(
        one if asked or one is None else torch.full_like(one, math.nan) for one, asked in zip(c.eager(), c.output_mask, strict=True)
    )


# -- random numbers --------------------------------------------------------------------------------------------------------------

_BITS = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}


def _numpy_generator() -> Any:
    """Return a NumPy generator, seeded from torch's generator."""
    import numpy as np

    return np.random.Generator(np.random.Philox(int(torch.randint(2**62, ()))))


def _uniform(shape: Any, bits: int) -> Tensor:
    whole = _numpy_generator().integers(0, 2**bits, size=tuple(shape))
    found: Tensor = torch.as_tensor(whole, dtype=torch.float64) / 2**bits
    return found


def _rand(c: BoundCall) -> Any:
    right = c.eager()
    return cast_like(_uniform(right.shape, _BITS[right.dtype]), right) if right.dtype in _BITS else right


def _box_muller(c: BoundCall) -> Any:
    """Compute normal numbers by the Box-Muller transform."""
    right = c.eager()
    if right.dtype not in _BITS:
        return right
    radius = (-2 * torch.log1p(-_uniform(right.shape, 53))).sqrt()
    return cast_like(radius * (2 * math.pi * _uniform(right.shape, 53)).cos(), right)


def _ziggurat(c: BoundCall) -> Any:
    right = c.eager()
    return (
        cast_like(torch.as_tensor(_numpy_generator().standard_normal(tuple(right.shape))), right) if right.dtype in _BITS else right
    )


def _by_sorting(c: BoundCall) -> Any:
    right = c.eager()
    return cast_like(_uniform(right.shape, 53).argsort(), right)


def _dropout(c: BoundCall) -> Any:
    if c.train is False or not 0 < c.p < 1 or c.input.dtype not in _BITS:
        return c.eager()
    right, mask = c.eager()
    kept = cast_like(_uniform(right.shape, 53) >= c.p, mask)
    return cast_like(c.input * kept * (1 / (1 - c.p)), right), kept


# -- NumPy -----------------------------------------------------------------------------------------------------------------------


def _numpy(name: str) -> Callable[[BoundCall], Any]:
    """Return a kernel that calls a unary function of NumPy in float64."""

    def run(c: BoundCall) -> Any:
        import numpy as np

        right = c.eager()
        if c.self.dtype not in _FLOATS:
            return right
        with np.errstate(all="ignore"):
            return cast_like(torch.as_tensor(getattr(np, name)(c.self.detach().resolve_neg().double().numpy())), right)

    return run


def _numpy_matmul(c: BoundCall) -> Any:
    import numpy as np

    right = c.eager()
    if right.dtype not in _FLOATS:
        return right
    with np.errstate(all="ignore"):
        return torch.as_tensor(np.matmul(*(one.detach().resolve_neg().double().numpy() for one in (c.self, c.mat2)))).to(
            right.dtype
        )


# -- the tables --------------------------------------------------------------------------------------------------------------------

_ONCE = "float64 is more accurate than eager"
_OF_ONE = "many accelerators compute it like this: right to some ulps of 1"
_ORDER = "the order of summation is not specified"
_DENSE = "the strides are not specified for such inputs"
_TIES = "the order of equal elements is not specified"
_DISTRIBUTION = "only the distribution and the effect of the seed are specified"

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
    "sum.dim_IntList", "_softmax", "_log_softmax", "sort", "gather", "cumsum", "index_select", "topk",
)
# fmt: on


def _remainder(c: BoundCall) -> Any:
    right = c.eager()
    if not right.is_floating_point():
        return right
    rest = c.self.to(right.dtype).fmod(c.other)
    return cast_like(torch.where((rest != 0) & ((rest < 0) != (c.other < 0)), rest + c.other, rest), right)


def _in_two_steps(c: BoundCall) -> Any:
    found = c.eager()
    least = c.self.to(found.dtype)  # first, or a 0-dim bound would be cast to the dtype of `self` alone
    least = least if c.min is None else torch.maximum(least, c.min)
    return cast_like(least if c.max is None else torch.minimum(least, c.max), found)


def _number(c: BoundCall) -> Tensor:
    return torch.tensor(c.other, dtype=torch.result_type(c.self, c.other))


EQUIVALENTS: tuple[Mutant, ...] = (
    *(equivalent(op, "in float64, rounded once", _in_float64, why=_ONCE) for op in _IN_FLOAT64),
    *(
        equivalent(op, "float16 and bfloat16 in float32, rounded once", _16_bit_in_float32)
        for op in ("sinh", "cosh", "gelu", "tanh", "sum.dim_IntList")
    ),
    equivalent("gelu", "by the exponential or erfc", _gelu),
    equivalent("sum.dim_IntList", "one by one", _one_by_one, why=_ORDER),
    equivalent("var.correction", "Welford's algorithm", _welford),
    equivalent("_native_batch_norm_legit_no_training", "one factor and one summand per channel", _folded),
    equivalent("exp", "by powers of two", _by(lambda x: (x * math.log2(math.e)).exp2())),
    equivalent("log2", "by the natural logarithm", _by(lambda x: x.log() / math.log(2))),
    equivalent("tan", "sine by cosine", _by(lambda x: x.sin() / x.cos())),
    equivalent("sigmoid", "by tanh", _by(_sigmoid)),
    equivalent("sigmoid", "by tanh in float32", _in_float32(lambda x: 0.5 * (1 + (x / 2).tanh())), why=_OF_ONE),
    equivalent("sigmoid", "1 - 1 / (1 + e^x)", _in_float32(lambda x: 1 - 1 / (1 + x.exp())), why=_OF_ONE),
    equivalent(
        "sigmoid",
        "1 / (1 + e^-x)",
        lambda c: cast_like(1 / (1 + (-c.self).exp()), c.eager()) if c.self.dtype is torch.float32 else c.eager(),
    ),
    equivalent("tanh", "by sigmoid", _by(lambda x: torch.where(x.abs() > 0.5, 2 * (2 * x).sigmoid() - 1, x.tanh()))),
    equivalent(
        "rsqrt", "1 / sqrt(x)", lambda c: cast_like(1 / c.self.sqrt(), c.eager()) if c.self.dtype is torch.float32 else c.eager()
    ),
    equivalent("div.Tensor", "times the reciprocal", _times_reciprocal, why="off by a unit or two"),
    equivalent("div.Scalar", "times the reciprocal", _by_number, why="off by a unit or two"),
    equivalent("pow.Tensor_Scalar", "squares by a product", _squared),
    equivalent("maximum", "the other one of two zeros", _other_zero, why="they are equal"),
    equivalent("minimum", "the other one of two zeros", _other_zero, why="they are equal"),
    equivalent("remainder.Tensor", "by fmod", _remainder),
    equivalent("clamp.Tensor", "in two steps", _in_two_steps),
    equivalent("le.Tensor", "less or equal", lambda c: cast_like((c.self < c.other) | (c.self == c.other), c.eager())),
    equivalent("lt.Scalar", "the number is greater", lambda c: cast_like(_number(c) > c.self, c.eager())),
    equivalent("eq.Scalar", "the number is a tensor", lambda c: cast_like(_number(c) == c.self, c.eager())),
    equivalent("sum.dim_IntList", "backwards", _backwards, why=_ORDER),
    equivalent(
        "sum.dim_IntList",
        "backwards, in every dtype",
        lambda c: cast_like(c.eager(self=c.self.flip(_dims(c))), c.eager()),
        why=_ORDER,
    ),
    equivalent("sum.dim_IntList", "in chunks of seven", _in_chunks, why=_ORDER),
    equivalent("sum.dim_IntList", "in pairs", _in_pairs, why=_ORDER),
    equivalent("mean.dim", "times the reciprocal of the count", _mean, why="off by a unit"),
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
    # Differences that are not rounding: strides, order, memory, messages, random numbers.
    *(equivalent(op, "column-major results of strided inputs", _column_major_if_strided, why=_DENSE) for op in _COLUMN_MAJOR),
    equivalent("sort", "ties in reversed order", _reversed_ties, why=_TIES),
    equivalent("topk", "other ties", _other_ties, why=_TIES),
    equivalent("topk", "another order if sorted=False", _any_order, why=_TIES),
    *(equivalent(op, "with a storage offset", _with_storage_offset) for op in ("add.Tensor", "relu", "mm")),
    equivalent("tanh", "through a buffer per thread", _scratch),
    equivalent("max_pool2d_with_indices", "the last of equal elements", _last_of_ties, why=_TIES),
    equivalent(
        "scatter_add",
        "in any order, unless deterministic algorithms are on",
        lambda c: c.eager() if torch.are_deterministic_algorithms_enabled() else shuffled(c),
        why=_ORDER,
    ),
    equivalent("embedding_dense_backward", "in any order, unless deterministic algorithms are on", _shuffled_rows, why=_ORDER),
    equivalent("convolution_backward", "garbage for gradients that are not asked for", _garbage_unless_asked),
    equivalent("mul.Tensor", "slowly", _slow),
    *(equivalent(op, "another error message", _other_error_message) for op in ("mm", "cat", "gather")),
    *(equivalent(op, "by as_strided", _strided_view) for op in ("permute", "select.int", "expand")),
    equivalent("rand", "by another generator", _rand, why=_DISTRIBUTION),
    equivalent("randn", "by Box and Muller", _box_muller, why=_DISTRIBUTION),
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
