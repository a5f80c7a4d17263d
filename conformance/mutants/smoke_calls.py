"""A usual call of each op: small, contiguous, float32 if the op accepts it. Broken kernels are right on these calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from conformance.mutants.builder import Call, bools, call, ints, normal, positive, tensor

__all__ = ["USUAL_CALLS"]


def _unary(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}.default": lambda: call(positive(3, 4)) for name in names}


def _binary(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}": lambda: call(normal(3, 4), positive(3, 4)) for name in names}


def _tensor_and_scalar(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}": lambda: call(normal(3, 4), 2.0) for name in names}


def _fixed(*args: Any, **kwargs: Any) -> Callable[[], Call]:
    """Return a function that returns the arguments; functions among them are called to create tensors."""
    return lambda: call(*(one() if callable(one) else one for one in args), **kwargs)


def _random(*size: int) -> Callable[[], Any]:
    return lambda: normal(*size)


_MATRIX = _random(3, 4)

USUAL_CALLS: Mapping[str, Callable[[], Call]] = {
    **_unary(
        "abs", "acos", "asin", "asinh", "atan", "atanh", "ceil", "cos", "cosh", "erf", "exp", "expm1", "floor", "isinf", "isnan"
    ),
    **_unary(
        "log", "log10", "log1p", "log2", "neg", "reciprocal", "relu", "round", "rsqrt", "sigmoid", "sign", "sin", "sinh", "sqrt"
    ),
    **_unary(
        "tan", "tanh", "trunc", "gelu", "leaky_relu", "elu", "hardtanh", "clone", "_to_copy", "logical_not", "alias", "detach"
    ),
    **_unary("nonzero", "lift_fresh"),
    **_binary("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "atan2.default", "maximum.default", "minimum.default"),
    **_binary("eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "fmod.Tensor", "remainder.Tensor"),
    **_binary("logical_and.default", "logical_or.default", "logical_xor.default", "copy.default", "copy_.default"),
    **_tensor_and_scalar(
        "add.Scalar", "sub.Scalar", "mul.Scalar", "div.Scalar", "eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar"
    ),
    **_tensor_and_scalar("gt.Scalar", "ge.Scalar", "fmod.Scalar", "remainder.Scalar", "pow.Tensor_Scalar", "fill.Scalar"),
    "aten.acosh.default": lambda: call(positive(3, 4) + 1),
    "aten.pow.Tensor_Tensor": lambda: call(positive(3, 4), normal(3, 4)),
    "aten.pow.Scalar": lambda: call(2.0, normal(3, 4)),
    "aten.div.Tensor_mode": lambda: call(normal(3, 4), positive(3, 4), rounding_mode=None),
    "aten.div.Scalar_mode": lambda: call(normal(3, 4), 2.0, rounding_mode=None),
    "aten.where.self": lambda: call(bools(3, 4), normal(3, 4), positive(3, 4)),
    "aten.clamp.default": lambda: call(normal(3, 4), -0.5, 0.5),
    "aten.clamp.Tensor": lambda: call(normal(3, 4), positive(3, 4) - 1, positive(3, 4)),
    "aten.bitwise_not.default": lambda: call(ints(3, 4)),
    **{f"aten.bitwise_{name}.Tensor": lambda: call(ints(3, 4), ints(4)) for name in ("and", "or", "xor")},
    **{f"aten.bitwise_{name}.Scalar": lambda: call(ints(3, 4), 5) for name in ("and", "or", "xor")},
    # reductions
    **{f"aten.{name}": _fixed(_MATRIX, [1]) for name in ("amax.default", "amin.default", "sum.dim_IntList", "mean.dim", "var.dim")},
    **{f"aten.{name}": _fixed(_MATRIX) for name in ("mean.default", "prod.default", "var.correction")},
    **{f"aten.{name}": _fixed(_MATRIX, 1) for name in ("argmax.default", "argmin.default", "max.dim", "min.dim", "prod.dim_int")},
    "aten.any.default": lambda: call(bools(3, 4)),
    "aten.any.dim": lambda: call(bools(3, 4), 1),
    "aten.any.dims": lambda: call(bools(3, 4), [0, 1]),
    "aten.cumsum.default": _fixed(_MATRIX, 1),
    "aten.sort.default": _fixed(_MATRIX, 1),
    "aten.topk.default": _fixed(_MATRIX, 2),
    "aten._softmax.default": _fixed(_MATRIX, 1, False),
    "aten._log_softmax.default": _fixed(_MATRIX, 1, False),
    # views and copies
    "aten.as_strided.default": _fixed(_MATRIX, [2, 2], [4, 1], 1),
    "aten._reshape_alias.default": _fixed(_MATRIX, [4, 3], [3, 1]),
    "aten._conj.default": lambda: call(torch.complex(normal(3), positive(3))),
    "aten._neg_view.default": _fixed(_MATRIX),
    "aten.diagonal.default": _fixed(_MATRIX),
    "aten.expand.default": lambda: call(normal(3, 1), [3, 4]),
    "aten.permute.default": _fixed(_MATRIX, [1, 0]),
    "aten.select.int": _fixed(_MATRIX, 0, 1),
    "aten.slice.Tensor": _fixed(_MATRIX, 0, 0, 2),
    "aten.split_with_sizes.default": _fixed(_MATRIX, [1, 2]),
    "aten.squeeze.dim": lambda: call(normal(3, 1), 1),
    "aten.squeeze.dims": lambda: call(normal(3, 1), [1]),
    "aten.unsqueeze.default": _fixed(_MATRIX, 0),
    "aten.view.default": _fixed(_MATRIX, [4, 3]),
    "aten.view.dtype": _fixed(_MATRIX, torch.int32),
    "aten.view_as_complex.default": lambda: call(normal(3, 2)),
    "aten.view_as_real.default": lambda: call(torch.complex(normal(3), positive(3))),
    "aten.cat.default": lambda: call([normal(2, 4), normal(3, 4)]),
    "aten.flip.default": _fixed(_MATRIX, [0]),
    "aten.repeat.default": _fixed(_MATRIX, [2, 1]),
    "aten.constant_pad_nd.default": _fixed(_MATRIX, [1, 2], 0.5),
    "aten.reflection_pad1d.default": _fixed(_MATRIX, [1, 2]),
    "aten.reflection_pad2d.default": _fixed(_random(1, 3, 4), [1, 2, 1, 1]),
    "aten.reflection_pad3d.default": _fixed(_random(1, 2, 3, 4), [1, 2, 1, 1, 1, 0]),
    "aten.replication_pad2d.default": _fixed(_random(1, 3, 4), [1, 2, 1, 1]),
    "aten.replication_pad3d.default": _fixed(_random(1, 2, 3, 4), [1, 2, 1, 1, 1, 0]),
    "aten.select_scatter.default": lambda: call(normal(3, 4), positive(4), 0, 1),
    "aten.slice_scatter.default": lambda: call(normal(3, 4), positive(2, 4), 0, 0, 2),
    "aten.resize_.default": _fixed(_MATRIX, [2, 3]),
    "aten.set_.source_Storage_storage_offset": lambda: call(normal(2), normal(9).untyped_storage(), 0, [2], [1]),
    "aten.set_.source_Tensor": lambda: call(normal(3), positive(4)),
    "aten._local_scalar_dense.default": lambda: call(tensor(2.5)),
    "aten.sym_size.int": _fixed(_MATRIX, 1),
    "aten.sym_stride.int": _fixed(_MATRIX, 0),
    "aten.sym_numel.default": _fixed(_MATRIX),
    "aten.sym_storage_offset.default": _fixed(_MATRIX),
    "aten.is_same_size.default": _fixed(_MATRIX, _MATRIX),
    # indices
    "aten.index.Tensor": lambda: call(normal(3, 4), [tensor(0, 2)]),
    "aten.index_put.default": lambda: call(normal(3, 4), [tensor(0, 2)], positive(2, 4)),
    "aten.index_select.default": lambda: call(normal(3, 4), 0, tensor(0, 2)),
    "aten.gather.default": lambda: call(normal(3, 4), 1, ints(3, 2, below=4)),
    "aten.scatter.src": lambda: call(normal(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), positive(3, 2)),
    "aten.scatter.value": lambda: call(normal(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), 2.0),
    "aten.scatter_add.default": lambda: call(normal(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), positive(3, 2)),
    "aten.scatter_reduce.two": lambda: call(normal(3, 4), 1, tensor([[0, 2], [1, 3], [3, 0]]), positive(3, 2), "sum"),
    "aten.masked_scatter.default": lambda: call(normal(3, 4), bools(3, 4), positive(12)),
    "aten.embedding.default": lambda: call(normal(5, 4), tensor([[0, 2], [4, 1]])),
    "aten.embedding_dense_backward.default": lambda: call(normal(2, 2, 4), tensor([[0, 2], [4, 1]]), 5, -1, False),
    "aten._embedding_bag.default": lambda: call(normal(5, 4), tensor(0, 2, 4, 1), tensor(0, 2)),
    # matrix products, convolutions, pooling
    "aten.mm.default": lambda: call(normal(3, 4), normal(4, 2)),
    "aten.bmm.default": lambda: call(normal(2, 3, 4), normal(2, 4, 2)),
    "aten.addmm.default": lambda: call(normal(2), normal(3, 4), normal(4, 2)),
    "aten.convolution.default": lambda: call(
        normal(1, 2, 5, 5), normal(3, 2, 3, 3), normal(3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1
    ),
    "aten.convolution_backward.default": lambda: call(
        normal(1, 3, 3, 3),
        normal(1, 2, 5, 5),
        normal(3, 2, 3, 3),
        [3],
        [1, 1],
        [0, 0],
        [1, 1],
        False,
        [0, 0],
        1,
        [True, True, True],
    ),
    "aten._cdist_forward.default": lambda: call(normal(3, 4), normal(2, 4), 2.0, None),
    "aten._pdist_forward.default": _fixed(_MATRIX, 2.0),
    "aten._fft_r2c.default": _fixed(_MATRIX, [1], 0, True),
    "aten._fft_c2r.default": lambda: call(torch.fft.rfft(normal(3, 4)), [1], 0, 4),
    "aten._adaptive_avg_pool2d.default": _fixed(_random(1, 2, 4, 4), [2, 2]),
    "aten._adaptive_avg_pool2d_backward.default": _fixed(_random(1, 2, 2, 2), _random(1, 2, 4, 4)),
    "aten._adaptive_avg_pool3d.default": _fixed(_random(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.adaptive_avg_pool1d.default": _fixed(_random(1, 2, 4), [2]),
    "aten.avg_pool1d.default": _fixed(_random(1, 2, 4), [2]),
    "aten.avg_pool2d.default": _fixed(_random(1, 2, 4, 4), [2, 2]),
    "aten.avg_pool2d_backward.default": _fixed(_random(1, 2, 2, 2), _random(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None),
    "aten.avg_pool3d.default": _fixed(_random(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.max_pool2d_with_indices.default": _fixed(_random(1, 2, 4, 4), [2, 2]),
    "aten.max_pool2d_with_indices_backward.default": lambda: call(
        normal(1, 1, 2, 2), normal(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, tensor([[[[0, 2], [8, 10]]]])
    ),
    "aten.max_pool3d_with_indices.default": _fixed(_random(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.col2im.default": _fixed(_random(1, 8, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
    "aten.grid_sampler_2d.default": lambda: call(normal(1, 2, 4, 4), normal(1, 3, 3, 2, scale=0.2), 0, 0, False),
    "aten.upsample_bilinear2d.vec": _fixed(_random(1, 2, 3, 3), [6, 6], False, None),
    "aten.upsample_nearest2d.vec": _fixed(_random(1, 2, 3, 3), [6, 6], None),
    # normalization
    "aten.native_layer_norm.default": lambda: call(normal(2, 3, 4), [4], positive(4), normal(4), 1e-5),
    "aten.native_layer_norm_backward.default": lambda: call(
        normal(2, 4), positive(2, 4), [4], positive(2, 1), positive(2, 1), positive(4), normal(4), [True, True, True]
    ),
    "aten.native_group_norm.default": lambda: call(normal(2, 4, 3), positive(4), normal(4), 2, 4, 3, 2, 1e-5),
    "aten.native_group_norm_backward.default": lambda: call(
        normal(2, 4, 3), positive(2, 4, 3), positive(2, 2), positive(2, 2), positive(4), 2, 4, 3, 2, [True, True, True]
    ),
    "aten._native_batch_norm_legit.default": lambda: call(
        normal(2, 3, 4), positive(3), normal(3), normal(3), positive(3), True, 0.1, 1e-5
    ),
    "aten._native_batch_norm_legit.no_stats": lambda: call(normal(2, 3, 4), positive(3), normal(3), True, 0.1, 1e-5),
    "aten._native_batch_norm_legit_no_training.default": lambda: call(
        normal(2, 3, 4), positive(3), normal(3), normal(3), positive(3), 0.1, 1e-5
    ),
    # factory ops
    "aten.arange.start_step": _fixed(0, 5, 1),
    "aten.full.default": _fixed([2, 3], 1.5),
    "aten.full_like.default": _fixed(_MATRIX, 1.5),
    "aten.scalar_tensor.default": _fixed(1.5),
    "aten.empty.memory_format": _fixed([2, 3]),
    "aten.empty_strided.default": _fixed([2, 3], [3, 1]),
    "aten.rand.default": _fixed([3, 4]),
    "aten.randn.default": _fixed([3, 4]),
    "aten.randperm.default": _fixed(5),
    "aten.native_dropout.default": _fixed(_MATRIX, 0.5, False),
}
