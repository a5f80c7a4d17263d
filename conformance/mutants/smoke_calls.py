"""A usual call of each op: small, contiguous, float32 where the op takes it. A kernel that fails there would be noticed at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from conformance.mutants.builder import Call, bits, given, i, n, p, t

__all__ = ["PLAIN"]


def _unary(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}.default": lambda: given(p(3, 4)) for name in names}


def _two(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}": lambda: given(n(3, 4), p(3, 4)) for name in names}


def _with_number(*names: str) -> dict[str, Callable[[], Call]]:
    return {f"aten.{name}": lambda: given(n(3, 4), 2.0) for name in names}


def _call(*args: Any, **kwargs: Any) -> Callable[[], Call]:
    """For arguments that no kernel may write: tensors are made by functions."""
    return lambda: given(*(one() if callable(one) else one for one in args), **kwargs)


def _image(*size: int) -> Callable[[], Any]:
    return lambda: n(*size)


_X = _image(3, 4)

PLAIN: Mapping[str, Callable[[], Call]] = {
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
    **_two("add.Tensor", "sub.Tensor", "mul.Tensor", "div.Tensor", "atan2.default", "maximum.default", "minimum.default"),
    **_two("eq.Tensor", "ne.Tensor", "lt.Tensor", "le.Tensor", "gt.Tensor", "ge.Tensor", "fmod.Tensor", "remainder.Tensor"),
    **_two("logical_and.default", "logical_or.default", "logical_xor.default", "copy.default", "copy_.default"),
    **_with_number("add.Scalar", "sub.Scalar", "mul.Scalar", "div.Scalar", "eq.Scalar", "ne.Scalar", "lt.Scalar", "le.Scalar"),
    **_with_number("gt.Scalar", "ge.Scalar", "fmod.Scalar", "remainder.Scalar", "pow.Tensor_Scalar", "fill.Scalar"),
    "aten.acosh.default": lambda: given(p(3, 4) + 1),
    "aten.pow.Tensor_Tensor": lambda: given(p(3, 4), n(3, 4)),
    "aten.pow.Scalar": lambda: given(2.0, n(3, 4)),
    "aten.div.Tensor_mode": lambda: given(n(3, 4), p(3, 4), rounding_mode=None),
    "aten.div.Scalar_mode": lambda: given(n(3, 4), 2.0, rounding_mode=None),
    "aten.where.self": lambda: given(bits(3, 4), n(3, 4), p(3, 4)),
    "aten.clamp.default": lambda: given(n(3, 4), -0.5, 0.5),
    "aten.clamp.Tensor": lambda: given(n(3, 4), p(3, 4) - 1, p(3, 4)),
    "aten.bitwise_not.default": lambda: given(i(3, 4)),
    **{f"aten.bitwise_{name}.Tensor": lambda: given(i(3, 4), i(4)) for name in ("and", "or", "xor")},
    **{f"aten.bitwise_{name}.Scalar": lambda: given(i(3, 4), 5) for name in ("and", "or", "xor")},
    # reductions
    **{f"aten.{name}": _call(_X, [1]) for name in ("amax.default", "amin.default", "sum.dim_IntList", "mean.dim", "var.dim")},
    **{f"aten.{name}": _call(_X) for name in ("mean.default", "prod.default", "var.correction")},
    **{f"aten.{name}": _call(_X, 1) for name in ("argmax.default", "argmin.default", "max.dim", "min.dim", "prod.dim_int")},
    "aten.any.default": lambda: given(bits(3, 4)),
    "aten.any.dim": lambda: given(bits(3, 4), 1),
    "aten.any.dims": lambda: given(bits(3, 4), [0, 1]),
    "aten.cumsum.default": _call(_X, 1),
    "aten.sort.default": _call(_X, 1),
    "aten.topk.default": _call(_X, 2),
    "aten._softmax.default": _call(_X, 1, False),
    "aten._log_softmax.default": _call(_X, 1, False),
    # views and copies
    "aten.as_strided.default": _call(_X, [2, 2], [4, 1], 1),
    "aten._reshape_alias.default": _call(_X, [4, 3], [3, 1]),
    "aten._conj.default": lambda: given(torch.complex(n(3), p(3))),
    "aten._neg_view.default": _call(_X),
    "aten.diagonal.default": _call(_X),
    "aten.expand.default": lambda: given(n(3, 1), [3, 4]),
    "aten.permute.default": _call(_X, [1, 0]),
    "aten.select.int": _call(_X, 0, 1),
    "aten.slice.Tensor": _call(_X, 0, 0, 2),
    "aten.split_with_sizes.default": _call(_X, [1, 2]),
    "aten.squeeze.dim": lambda: given(n(3, 1), 1),
    "aten.squeeze.dims": lambda: given(n(3, 1), [1]),
    "aten.unsqueeze.default": _call(_X, 0),
    "aten.view.default": _call(_X, [4, 3]),
    "aten.view.dtype": _call(_X, torch.int32),
    "aten.view_as_complex.default": lambda: given(n(3, 2)),
    "aten.view_as_real.default": lambda: given(torch.complex(n(3), p(3))),
    "aten.cat.default": lambda: given([n(2, 4), n(3, 4)]),
    "aten.flip.default": _call(_X, [0]),
    "aten.repeat.default": _call(_X, [2, 1]),
    "aten.constant_pad_nd.default": _call(_X, [1, 2], 0.5),
    "aten.reflection_pad1d.default": _call(_X, [1, 2]),
    "aten.reflection_pad2d.default": _call(_image(1, 3, 4), [1, 2, 1, 1]),
    "aten.reflection_pad3d.default": _call(_image(1, 2, 3, 4), [1, 2, 1, 1, 1, 0]),
    "aten.replication_pad2d.default": _call(_image(1, 3, 4), [1, 2, 1, 1]),
    "aten.replication_pad3d.default": _call(_image(1, 2, 3, 4), [1, 2, 1, 1, 1, 0]),
    "aten.select_scatter.default": lambda: given(n(3, 4), p(4), 0, 1),
    "aten.slice_scatter.default": lambda: given(n(3, 4), p(2, 4), 0, 0, 2),
    "aten.resize_.default": _call(_X, [2, 3]),
    "aten.set_.source_Storage_storage_offset": lambda: given(n(2), n(9).untyped_storage(), 0, [2], [1]),
    "aten.set_.source_Tensor": lambda: given(n(3), p(4)),
    "aten._local_scalar_dense.default": lambda: given(t(2.5)),
    "aten.sym_size.int": _call(_X, 1),
    "aten.sym_stride.int": _call(_X, 0),
    "aten.sym_numel.default": _call(_X),
    "aten.sym_storage_offset.default": _call(_X),
    "aten.is_same_size.default": _call(_X, _X),
    # indices
    "aten.index.Tensor": lambda: given(n(3, 4), [t(0, 2)]),
    "aten.index_put.default": lambda: given(n(3, 4), [t(0, 2)], p(2, 4)),
    "aten.index_select.default": lambda: given(n(3, 4), 0, t(0, 2)),
    "aten.gather.default": lambda: given(n(3, 4), 1, i(3, 2, below=4)),
    "aten.scatter.src": lambda: given(n(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), p(3, 2)),
    "aten.scatter.value": lambda: given(n(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), 2.0),
    "aten.scatter_add.default": lambda: given(n(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), p(3, 2)),
    "aten.scatter_reduce.two": lambda: given(n(3, 4), 1, t([[0, 2], [1, 3], [3, 0]]), p(3, 2), "sum"),
    "aten.masked_scatter.default": lambda: given(n(3, 4), bits(3, 4), p(12)),
    "aten.embedding.default": lambda: given(n(5, 4), t([[0, 2], [4, 1]])),
    "aten.embedding_dense_backward.default": lambda: given(n(2, 2, 4), t([[0, 2], [4, 1]]), 5, -1, False),
    "aten._embedding_bag.default": lambda: given(n(5, 4), t(0, 2, 4, 1), t(0, 2)),
    # products and windows
    "aten.mm.default": lambda: given(n(3, 4), n(4, 2)),
    "aten.bmm.default": lambda: given(n(2, 3, 4), n(2, 4, 2)),
    "aten.addmm.default": lambda: given(n(2), n(3, 4), n(4, 2)),
    "aten.convolution.default": lambda: given(n(1, 2, 5, 5), n(3, 2, 3, 3), n(3), [1, 1], [0, 0], [1, 1], False, [0, 0], 1),
    "aten.convolution_backward.default": lambda: given(
        n(1, 3, 3, 3), n(1, 2, 5, 5), n(3, 2, 3, 3), [3], [1, 1], [0, 0], [1, 1], False, [0, 0], 1, [True, True, True]
    ),
    "aten._cdist_forward.default": lambda: given(n(3, 4), n(2, 4), 2.0, None),
    "aten._pdist_forward.default": _call(_X, 2.0),
    "aten._fft_r2c.default": _call(_X, [1], 0, True),
    "aten._fft_c2r.default": lambda: given(torch.fft.rfft(n(3, 4)), [1], 0, 4),
    "aten._adaptive_avg_pool2d.default": _call(_image(1, 2, 4, 4), [2, 2]),
    "aten._adaptive_avg_pool2d_backward.default": _call(_image(1, 2, 2, 2), _image(1, 2, 4, 4)),
    "aten._adaptive_avg_pool3d.default": _call(_image(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.adaptive_avg_pool1d.default": _call(_image(1, 2, 4), [2]),
    "aten.avg_pool1d.default": _call(_image(1, 2, 4), [2]),
    "aten.avg_pool2d.default": _call(_image(1, 2, 4, 4), [2, 2]),
    "aten.avg_pool2d_backward.default": _call(_image(1, 2, 2, 2), _image(1, 2, 4, 4), [2, 2], [2, 2], [0, 0], False, True, None),
    "aten.avg_pool3d.default": _call(_image(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.max_pool2d_with_indices.default": _call(_image(1, 2, 4, 4), [2, 2]),
    "aten.max_pool2d_with_indices_backward.default": lambda: given(
        n(1, 1, 2, 2), n(1, 1, 4, 4), [2, 2], [2, 2], [0, 0], [1, 1], False, t([[[[0, 2], [8, 10]]]])
    ),
    "aten.max_pool3d_with_indices.default": _call(_image(1, 2, 4, 4, 4), [2, 2, 2]),
    "aten.col2im.default": _call(_image(1, 8, 4), [3, 3], [2, 2], [1, 1], [0, 0], [1, 1]),
    "aten.grid_sampler_2d.default": lambda: given(n(1, 2, 4, 4), n(1, 3, 3, 2, scale=0.2), 0, 0, False),
    "aten.upsample_bilinear2d.vec": _call(_image(1, 2, 3, 3), [6, 6], False, None),
    "aten.upsample_nearest2d.vec": _call(_image(1, 2, 3, 3), [6, 6], None),
    # norms
    "aten.native_layer_norm.default": lambda: given(n(2, 3, 4), [4], p(4), n(4), 1e-5),
    "aten.native_layer_norm_backward.default": lambda: given(
        n(2, 4), p(2, 4), [4], p(2, 1), p(2, 1), p(4), n(4), [True, True, True]
    ),
    "aten.native_group_norm.default": lambda: given(n(2, 4, 3), p(4), n(4), 2, 4, 3, 2, 1e-5),
    "aten.native_group_norm_backward.default": lambda: given(
        n(2, 4, 3), p(2, 4, 3), p(2, 2), p(2, 2), p(4), 2, 4, 3, 2, [True, True, True]
    ),
    "aten._native_batch_norm_legit.default": lambda: given(n(2, 3, 4), p(3), n(3), n(3), p(3), True, 0.1, 1e-5),
    "aten._native_batch_norm_legit.no_stats": lambda: given(n(2, 3, 4), p(3), n(3), True, 0.1, 1e-5),
    "aten._native_batch_norm_legit_no_training.default": lambda: given(n(2, 3, 4), p(3), n(3), n(3), p(3), 0.1, 1e-5),
    # tensors from nothing
    "aten.arange.start_step": _call(0, 5, 1),
    "aten.full.default": _call([2, 3], 1.5),
    "aten.full_like.default": _call(_X, 1.5),
    "aten.scalar_tensor.default": _call(1.5),
    "aten.empty.memory_format": _call([2, 3]),
    "aten.empty_strided.default": _call([2, 3], [3, 1]),
    "aten.rand.default": _call([3, 4]),
    "aten.randn.default": _call([3, 4]),
    "aten.randperm.default": _call(5),
    "aten.native_dropout.default": _call(_X, 0.5, False),
}
