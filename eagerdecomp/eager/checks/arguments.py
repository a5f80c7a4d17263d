"""Eager's checks of arguments that torch's decompositions omit or report differently, in eager's order and with its messages.

They read only sizes, layouts and dtypes. `eager.checks.table` lists the checks of each op.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.messages import cpp_name, dimension_error, not_held, not_implemented, not_true, scalar_type_name, shape_text
from eagerdecomp.eager.promotion import HALF, WIDE_UNSIGNED
from eagerdecomp.eager.scalars import holds

__all__ = ["ARGUMENT_CHECKS", "NORM_CHECKS", "check_topk"]


def _size(x: Tensor, dim: int) -> int:
    """Return a size, after a check of `dim` as in ATen's `size`. Its error comes before the operator's own check of the shape."""
    if not x.dim():
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    return x.size(_wrapped(dim, x.dim()))


def _wrapped(dim: int, rank: int) -> int:
    most = max(1, rank)
    if not -most <= dim < most:
        raise dimension_error(dim, rank)
    return dim % most


def check_topk(self: Tensor, k: int, dim: int) -> None:
    """Run the checks of eager's kernel, for rules that replace `topk` although Core ATen contains it."""
    if self.dtype is torch.bool:
        raise RuntimeError("topk does not support bool dtypes on CPU")
    if self.is_complex():
        raise RuntimeError(" topk does not support complex dtypes on CPU")
    if self.dtype in WIDE_UNSIGNED:
        raise not_implemented("topk_cpu", self.dtype)
    if not 0 <= k <= (self.size(dim) if self.dim() else 1):
        raise RuntimeError("selected index k out of range")


def _dimension(self: Tensor, dim: int = -1, *more: Any, **options: Any) -> None:
    _wrapped(dim, self.dim())


def _narrow_copy(self: Tensor, dim: int, start: int, length: int) -> None:
    rank = self.dim()
    if not rank:
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if dim >= rank:
        raise not_true("dim < static_cast<int64_t>(self_sizes.size())")
    size = self.size(_wrapped(dim, rank))
    if length < 0 and -size <= start <= size:
        raise RuntimeError(f"start ({start + size if start < 0 else start}) + length ({length}) exceeds dimension size ({size}).")


def _aminmax(self: Tensor, *, dim: int | None = None, keepdim: bool = False) -> None:
    if dim is None and not self.numel():
        raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
    if dim is not None and self.dim():
        dim = _wrapped(dim, self.dim())
        if not self.size(dim):
            raise IndexError(f"aminmax: Expected reduction dim {dim} to have non-zero size.")


def _spread_out(
    self: Tensor, dim: Sequence[int] | None = None, *more: Any, out: Tensor, correction: Any = None, keepdim: bool = False
) -> None:
    dims = {_wrapped(one, self.dim()) for one in dim or ()} or set(range(self.dim()))
    single = self.numel() and all(size == 1 for place, size in enumerate(self.shape) if place not in dims)
    if single and self.dtype in HALF and (out.dtype.is_complex or (out.dtype.is_floating_point and out.dtype not in HALF)):
        raise RuntimeError(f"std_var_all: Unsupported dtype {scalar_type_name(self.dtype)}")
    if self.dtype.is_floating_point and out.dtype.is_complex and self.numel() and not single:  # a single number is filled in
        raise not_implemented("std_cpu", out.dtype)


def _im2col(
    self: Tensor, kernel_size: Sequence[int], dilation: Sequence[int], padding: Sequence[int], stride: Sequence[int]
) -> None:
    named = {"kernel_size": kernel_size, "dilation": dilation, "padding": padding, "stride": stride}
    for name, pair in named.items():
        if len(pair) != 2:
            raise RuntimeError(f"It is expected {name} equals to 2, but got size {len(pair)}")
    for name, short, least in (
        ("kernel_size", "kernel", 1),
        ("dilation", "dilation", 1),
        ("padding", "pad", 0),
        ("stride", "stride", 1),
    ):
        if min(named[name]) < least:
            bound = "greater than zero" if least else "non-negative"
            high, wide = named[name]
            raise RuntimeError(f"{name.replace('_', ' ')} should be {bound}, but got {short}_height: {high} {short}_width: {wide}")
    _size(self, 1), _size(self, 2)


def _unfold(self: Tensor, dimension: int, size: int, step: int) -> None:
    at = _wrapped(dimension, self.dim())
    most = self.size(at) if self.dim() else 1
    if size > most:
        raise RuntimeError(f"maximum size for tensor at dimension {at} is {most} but size is {size}")
    if size < 0:
        raise RuntimeError(f"size is {size} but must be >= 0")
    if step <= 0:
        raise RuntimeError(f"step is {step} but must be > 0")


def _renorm(self: Tensor, p: Any, dim: int, maxnorm: Any) -> None:
    if not isinstance(p, complex) and p <= 0:
        raise RuntimeError("renorm: non-positive-norm not supported")


_FLOATS = (torch.float32, torch.float64, torch.float16, torch.bfloat16)
_WHOLE = (torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64)
_PARTS = (torch.float16, torch.float32, torch.float64)


def _complex(self: Tensor, other: Tensor) -> None:
    first, second = scalar_type_name(self.dtype), scalar_type_name(other.dtype)
    if self.dtype not in _PARTS or other.dtype not in _PARTS:
        raise RuntimeError(f"Expected both inputs to be Half, Float or Double tensors but got {first} and {second}")
    if self.dtype is not other.dtype:
        raise RuntimeError(f"Expected object of scalar type {first} but got scalar type {second} for second argument")


def _dot(self: Tensor, tensor: Tensor) -> None:
    exchanged = tensor.is_conj() and not self.is_conj()  # as eager does, to multiply without the bit
    _two_vectors(*((tensor, self) if exchanged else (self, tensor)))


def _vdot(self: Tensor, other: Tensor) -> None:
    exchanged = self.is_conj() and other.is_conj()
    _two_vectors(*((other, self) if exchanged else (self, other)))


def _two_vectors(self: Tensor, tensor: Tensor) -> None:
    if self.dim() != 1 or tensor.dim() != 1:
        return
    if self.dtype is not tensor.dtype:
        first, second = scalar_type_name(self.dtype), scalar_type_name(tensor.dtype)
        raise RuntimeError(f"dot : expected both vectors to have same dtype, but found {first} and {second}")
    if self.numel() != tensor.numel():
        mine, others = self.numel(), tensor.numel()
        raise RuntimeError(
            f"inconsistent tensor size, expected tensor [{mine}] and src [{others}] to have the same number of elements, "
            f"but got {mine} and {others} elements respectively"
        )


def _steps(name: str) -> Callable[..., None]:
    def check(start: Any, end: Any, steps: int, *more: Any, dtype: torch.dtype | None = None, **options: Any) -> None:
        ranks = {side: x.dim() for side, x in (("start", start), ("end", end)) if isinstance(x, Tensor)}
        if any(ranks.values()):
            got = " and ".join(f"{side} with {rank} dimension(s)" for side, rank in ranks.items())
            raise RuntimeError(f"{name} only supports 0-dimensional start and end tensors, but got {got}.")
        if dtype is None or steps < 0:
            return
        if not dtype.is_complex and any(x.is_complex() if isinstance(x, Tensor) else isinstance(x, complex) for x in (start, end)):
            inferred, given = cpp_name(torch.get_default_dtype().to_complex()), scalar_type_name(dtype)
            raise RuntimeError(f"torch.{name}(): inferred dtype {inferred} can't be safely cast to passed dtype {given}")
        if dtype in (torch.bool, torch.complex32) and steps > 1:
            raise not_implemented(f"{name}_cpu", dtype)

    return check


def _linalg_cross(self: Tensor, other: Tensor, *, dim: int = -1) -> None:
    if self.dim() != other.dim() or not -self.dim() <= dim < self.dim():
        return
    mine, others = self.size(dim), other.size(dim)
    if mine != 3 or others != 3:
        raise RuntimeError(f"linalg.cross: inputs dimension {dim} must have length 3. Got {mine} and {others}")
    if self.dtype is torch.bool:
        raise not_implemented("cross", self.dtype)
    if self.dtype is not other.dtype:
        raise RuntimeError(f"expected scalar type {scalar_type_name(self.dtype)} but found {scalar_type_name(other.dtype)}")


def _mvlgamma(self: Tensor, p: int) -> None:
    if self.dtype is torch.bool:
        raise RuntimeError("The input tensor may not be a boolean tensor.")
    if p < 1:
        raise RuntimeError("p has to be greater than or equal to 1")


def _trace(self: Tensor) -> None:
    if self.dim() != 2:
        raise RuntimeError(f"trace: expected a matrix, but got tensor with dim {self.dim()}")


def _bucketize(self: Any, boundaries: Tensor, *, out_int32: bool = False, right: bool = False) -> None:
    if boundaries.dim() != 1:
        raise RuntimeError(f"boundaries tensor must be 1 dimension, but got dim({boundaries.dim()})")


def _index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> None:
    _rows_by_index("index_add_", self, dim, index, source)


def _rows_by_index(name: str, self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    dim = _wrapped(dim, self.dim())
    if index.dim() > 1:
        raise IndexError(
            f"{name}(): Index is supposed to be a vector, but got dim: {index.dim()} "
            f"with type: {scalar_type_name(index.dtype)} and size: {shape_text(index.shape)}"
        )
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError(f"{name}(): Expected dtype int32/int64 for index but got: {scalar_type_name(index.dtype)}")
    if self.dtype is not source.dtype:
        mine, others = scalar_type_name(self.dtype), scalar_type_name(source.dtype)
        raise RuntimeError(f"{name}(): self ({mine}) and source ({others}) must have the same scalar type")
    rank = source.dim()
    if dim and dim >= rank:
        raise RuntimeError(f"{name}(): Indexing dim {dim} is out of bounds of the source tensor with dim {rank}")
    _indices(name, dim, index, source)
    ours, theirs = list(self.shape), list(source.shape)
    if ours and theirs:
        del ours[dim], theirs[dim]
    if ours != theirs:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {shape_text(self.shape)} source.shape = {shape_text(source.shape)}"
        )


def _indices(name: str, dim: int, index: Tensor, source: Tensor) -> None:
    if index.numel() != (source.size(dim) if source.dim() else 1):
        size = _size(source, dim)
        raise RuntimeError(
            f"{name}(): Number of indices ({index.numel()}) should be equal to source.size(dim): ({size}), for dim: {dim}"
        )


def _index_reduce(
    self: Tensor, dim: int, index: Tensor, source: Tensor, reduce: str = "", *, include_self: bool = True, **options: Any
) -> None:
    if reduce not in ("prod", "mean", "amax", "amin"):
        raise RuntimeError(f"index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got {reduce}.")
    _rows_by_index("index_reduce_", self, dim, index, source)
    dim = _wrapped(dim, self.dim())
    if self.dim() and index.numel() and not self.size(dim):
        message = f"select(): index 0 out of range for tensor of size {shape_text(self.shape)} at dimension {dim}"
        raise IndexError(message if self.dim() > 1 else "index out of range in self")


def _index_copy(self: Tensor, dim: int, index: Tensor, source: Tensor) -> None:
    said, dim, count, rank = "index_copy_(): ", _wrapped(dim, self.dim()), index.numel(), source.dim()
    if index.dim() > 1:
        raise IndexError(said + f"Index should have dimension 1 or 0 (got {index.dim()})")
    if not rank and count != 1:
        raise IndexError(said + f"When source is scalar, index should have one element (got {count})")
    if rank and self.dim() and rank != self.dim():
        raise IndexError(
            said + "When source and destination are not scalars, their dimensionality must match. "
            f"Source dimensionality ({rank}), destination dimensionality ({self.dim()})"
        )
    if index.dtype is not torch.int64:
        raise RuntimeError(said + f"Expected a long tensor for index, but got {scalar_type_name(index.dtype)}")
    if self.dim() and not self.size(dim) and source.numel():
        raise RuntimeError(f"setStorage: sizes {shape_text(source.shape)} are out of bounds for storage of size 0")
    if self.dtype is not source.dtype or rank != (self.dim() or rank):
        return
    ours, theirs = list(self.shape), list(source.shape)
    if ours and theirs:
        del ours[dim], theirs[dim]
        if ours != theirs:
            return
    if rank == 1 or ours == theirs:
        size = source.size(dim) if rank else count
        if count != size:
            raise IndexError(f"index_copy_(): Number of indices ({count}) should be equal to source.size(dim) ({size})")


def _linalg_lstsq(self: Tensor, b: Tensor, rcond: float | None = None, *, driver: str | None = None) -> None:
    said, beside = "torch.linalg.lstsq: ", self.dim() - b.dim()
    if self.dim() < 2:
        raise RuntimeError(said + "input must have at least 2 dimensions.")
    if not b.dim():
        raise RuntimeError(said + "other must have at least 1 dimension.")
    if self.dtype is not b.dtype:
        mine, others = scalar_type_name(self.dtype), scalar_type_name(b.dtype)
        raise RuntimeError(
            said + f"Expected input and other to have the same dtype, but got input's dtype {mine} and other's dtype {others}"
        )
    if not 0 <= beside <= 1:
        raise RuntimeError(said + "input.dim() must be greater or equal to other.dim() and (input.dim() - other.dim()) <= 1")
    vector = b.dim() == 1 or (beside == 1 and list(b.shape) == list(self.shape[:-1]))
    if self.size(-2) != b.size(-1 if vector else -2):
        raise RuntimeError(said + f"input.size(-2) should match other.size({'-1' if vector else '-2'})")
    if driver not in (None, "gels", "gelsy", "gelsd", "gelss"):
        raise RuntimeError(said + "parameter `driver` should be one of (gels, gelsy, gelsd, gelss)")


def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> None:
    if mask.dtype is not torch.bool:
        raise RuntimeError(f"masked_fill_ only supports boolean masks, but got mask with dtype {cpp_name(mask.dtype)}")
    _masked_fill_kernel(self)
    if self.dtype is not torch.bool and not self.dtype.is_complex and not holds(self.dtype, value):
        raise not_held(self.dtype)


def _masked_fill_tensor(self: Tensor, mask: Tensor, value: Tensor) -> None:
    if value.dim():
        raise RuntimeError(
            f"masked_fill_ only supports a 0-dimensional value tensor, but got tensor with {value.dim()} dimension(s)."
        )
    _masked_fill_kernel(self)


def _masked_fill_kernel(self: Tensor) -> None:
    if self.dtype in WIDE_UNSIGNED:
        raise not_implemented("masked_fill", self.dtype)


def _max_unpool(dims: int) -> Callable[..., None]:
    def check(self: Tensor, indices: Tensor, output_size: Sequence[int], *more: Any) -> None:
        if indices.dtype is not torch.int64:
            raise RuntimeError(f"elements in indices should be type int64 but got: {scalar_type_name(indices.dtype)}")
        if len(output_size) == dims and indices.shape != self.shape:
            raise RuntimeError(
                f"Expected shape of indices to be same as that of the input tensor ({shape_text(self.shape)}) "
                f"but got indices tensor with shape: {shape_text(indices.shape)}"
            )

    return check


def _histogram_out(self: Tensor, *more: Any, hist: Tensor, bin_edges: Tensor, **options: Any) -> None:
    for name, out, where in (("hist", hist, ""), ("bin_edges", bin_edges, " for dimension 0")):
        if out.dtype is not self.dtype:
            raise RuntimeError(
                f"torch.histogram: input tensor and {name} tensor should have the same dtype, but got input "
                f"{cpp_name(self.dtype)} and {name} {cpp_name(out.dtype)}{where}"
            )


def _infinite(name: str) -> Callable[..., None]:
    def check(self: Tensor) -> None:
        if self.is_complex():
            raise RuntimeError(f"{name} does not support complex inputs.")

    return check


def _taking(kernel: str, *dtypes: torch.dtype) -> Callable[..., None]:
    def check(self: Tensor, *more: Any, **options: Any) -> None:
        if self.dtype not in dtypes:
            raise not_implemented(kernel, self.dtype)

    return check


def _max_pool3d(self: Tensor, *more: Any, **options: Any) -> None:
    if self.dim() == 4 and suggested_memory_format(self) is torch.channels_last:
        raise RuntimeError("Unsupported memory format. Supports only ChannelsLast3d, Contiguous")
    _taking("max_pool3d", *_FLOATS, *_WHOLE)(self)


def _extreme(name: str) -> Callable[..., None]:
    def check(self: Tensor, *more: Any, **options: Any) -> None:
        for kind, unsupported in (("bool", self.dtype is torch.bool), ("complex", self.dtype.is_complex)):
            if unsupported:
                raise RuntimeError(f"{name}(): does not support {kind} input")

    return check


def _clamp(self: Tensor, min: Tensor | None = None, max: Tensor | None = None) -> None:
    if all(one is None or one.dtype is torch.bool for one in (self, min, max)) and None not in (min, max):
        raise not_implemented("clamp_cpu", torch.bool)


def _native_dropout(input: Tensor, p: float, train: bool | None) -> None:
    if train is False or not input.numel():
        return
    if not 0 <= p <= 1:
        raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={1 - p:g}")
    if not (input.dtype.is_floating_point or input.dtype.is_complex):
        raise RuntimeError(f"result type Float can't be cast to the desired output type {scalar_type_name(input.dtype)}")


def _relu(self: Tensor) -> None:
    if self.dtype is torch.bool:
        raise RuntimeError("Boolean inputs not supported for relu")


def _nansum(self: Tensor, *more: Any, dtype: torch.dtype | None = None) -> None:
    if self.is_complex() and self.is_cpu:
        raise RuntimeError("nansum on CPU does not support complex inputs")
    if self.is_floating_point() and dtype is not None and dtype.is_complex:
        raise not_implemented("nansum_cpu", dtype)


def _divided(self: Any, other: Any, *, rounding_mode: str | None) -> None:
    bools = (one.dtype is torch.bool if isinstance(one, Tensor) else isinstance(one, bool) for one in (self, other))
    if rounding_mode in ("trunc", "floor") and all(bools):
        raise not_implemented(f"div_{rounding_mode}_cpu", torch.bool)


#: op -> a function of its arguments that raises eager's error.
ARGUMENT_CHECKS: dict[str, Callable[..., None]] = {
    "aten._adaptive_avg_pool3d.default": _taking("adaptive_avg_pool3d_cpu", *_FLOATS),
    "aten.aminmax.default": _aminmax,
    "aten.argmax.default": _extreme("argmax"),
    "aten.argmin.default": _extreme("argmin"),
    "aten.avg_pool2d.default": _taking("avg_pool2d", torch.int64, *_FLOATS),
    "aten.avg_pool3d.default": _taking("avg_pool3d_out_frame", torch.int64, torch.float32, torch.float64),
    "aten.bucketize.Scalar": _bucketize,
    "aten.bucketize.Tensor": _bucketize,
    "aten.clamp.Tensor": _clamp,
    "aten.complex.default": _complex,
    "aten.div.Scalar_mode": _divided,
    "aten.div.Tensor_mode": _divided,
    "aten.dot.default": _dot,
    "aten.im2col.default": _im2col,
    "aten.index_add.default": _index_add,
    "aten.index_fill.int_Scalar": _dimension,
    "aten.index_fill.int_Tensor": _dimension,
    "aten.index_copy.default": _index_copy,
    "aten.index_reduce.default": _index_reduce,
    "aten.histogram.bin_ct_out": _histogram_out,
    "aten.histogram.bins_tensor_out": _histogram_out,
    "aten.isneginf.default": _infinite("isneginf"),
    "aten.isposinf.default": _infinite("isposinf"),
    "aten.linalg_cross.default": _linalg_cross,
    "aten.linalg_lstsq.default": _linalg_lstsq,
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.masked_fill.Tensor": _masked_fill_tensor,
    "aten.max_pool2d_with_indices.default": _taking("max_pool2d", *_FLOATS, *_WHOLE),
    "aten.max_pool3d_with_indices.default": _max_pool3d,
    "aten.max_unpool2d.default": _max_unpool(2),
    "aten.max_unpool3d.default": _max_unpool(3),
    "aten.mode.default": _dimension,
    "aten.mvlgamma.default": _mvlgamma,
    "aten.narrow_copy.default": _narrow_copy,
    "aten.native_dropout.default": _native_dropout,
    "aten.polar.default": _complex,
    "aten.renorm.default": _renorm,
    "aten.scatter.reduce": _dimension,
    "aten.scatter.value_reduce": _dimension,
    "aten.nansum.default": _nansum,
    "aten.relu.default": _relu,
    "aten.trace.default": _trace,
    "aten.unfold.default": _unfold,
    "aten.vdot.default": _vdot,
    **dict.fromkeys(("aten.std.correction_out", "aten.var.correction_out"), _spread_out),
    **{
        f"aten.{name}.{sides}": _steps(name)
        for name in ("linspace", "logspace")
        for sides in ("default", "Tensor_Tensor", "Tensor_Scalar", "Scalar_Tensor")
    },
}


def _batch(places: Sequence[int], training: int) -> Callable[..., None]:
    """Return the check of batch norm: dtypes as in `_normalized`; in training, the input has at least one element."""
    typed = _normalized(*places)

    def check(input: Tensor, *more: Any) -> None:
        typed(input, *more)
        if more[training] and not input.numel():
            raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {shape_text(input.shape)}")

    return check


def _groups(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int, eps: float) -> None:
    shape = shape_text(input.shape)
    if group < 1:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {group}")
    if C % group:
        raise RuntimeError(
            "Expected number of channels in input to be divisible by num_groups, "
            f"but got input of shape {shape} and num_groups={group}"
        )
    for name, one in (("weight", weight), ("bias", bias)):
        if one is not None and list(one.shape) != [C]:
            message = shape_text([0] if weight is None else weight.shape)  # of the bias too eager says the weight's
            raise RuntimeError(
                f"Expected {name} to be a vector of size equal to the number of channels in input, "
                f"but got {name} of shape {message} and input of shape {shape}"
            )
    if input.numel() != N * C * HxW:
        raise not_true("X.numel() == N * C * HxW")
    _normalized(0, 1)(input, weight, bias)
    if not input.is_contiguous(memory_format=suggested_memory_format(input)):
        raise not_true("X.is_contiguous(memory_format)")


def _normalized(*places: int) -> Callable[..., None]:
    """Return a check of dtypes: norms require one dtype, or float32 parameters (at `places`) for float16 and bfloat16 inputs."""

    def check(input: Tensor, *more: Any) -> None:
        given = [one for one in (more[place] for place in places) if one is not None]
        if not given or given[0].dtype is input.dtype:
            return
        if any(one.dtype is not torch.float32 for one in given):
            raise RuntimeError("mixed dtype (CPU): expect parameter to have scalar type of Float")
        if input.dtype not in HALF:
            raise RuntimeError("mixed dtype (CPU): all inputs must share same datatype.")

    return check


#: op -> a function of its arguments that raises eager's error.
NORM_CHECKS: dict[str, Callable[..., None]] = {
    "aten._native_batch_norm_legit.default": _batch((0, 1, 2, 3), 4),
    "aten._native_batch_norm_legit.no_stats": _batch((0, 1), 2),
    "aten._native_batch_norm_legit_no_training.default": _normalized(0, 1, 2, 3),
    "aten.native_group_norm.default": _groups,
    "aten.native_layer_norm.default": _normalized(1, 2),
}
