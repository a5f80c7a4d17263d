"""Refusals: the calls that eager's kernels refuse and that decompositions of the same ops would take, or refuse by another error.

A decomposition takes what its parts take: `silu` of integers would give a value, where eager raises. Here stands, per op, the name
by which eager's kernel refuses, and which dtypes; and what else it asks of its arguments. The questions are asked while a call is
recorded, of dtypes and sizes alone, so they cost nothing later.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp.precision import HALF
from eagerdecomp.spelling import not_implemented, scalar_type_name, shape_text

__all__ = ["CHECKS", "REFUSED", "refusing"]

#: Takes an op's arguments, and raises what eager would.
Check: TypeAlias = Callable[..., None]

_BOOL = frozenset({torch.bool})
_INTEGERS = frozenset({torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64})
_BUT_BYTE = _BOOL | _INTEGERS - {torch.uint8}
_INTEGRAL = _BOOL | _INTEGERS
_COMPLEX = frozenset({torch.complex64, torch.complex128})

#: op -> the kernel's name in eager's message, and the dtypes it refuses.
REFUSED: dict[str, tuple[str, frozenset[torch.dtype]]] = {
    "aten._adaptive_avg_pool2d.default": ("adaptive_avg_pool2d", _INTEGRAL | _COMPLEX),
    "aten._batch_norm_with_update.default": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten._log_softmax.default": ("log_softmax_lastdim_kernel_impl", _INTEGRAL),
    "aten._log_softmax_backward_data.default": ("log_softmax_backward_lastdim_kernel_impl", _INTEGRAL | _COMPLEX),
    "aten._native_batch_norm_legit.default": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten._prelu_kernel.default": ("prelu_cpu", _INTEGRAL),
    "aten._prelu_kernel_backward.default": ("prelu_backward_cpu", _INTEGRAL),
    "aten._softmax.default": ("softmax_lastdim_kernel_impl", _INTEGRAL),
    "aten._softmax_backward_data.default": ("softmax_backward_lastdim_kernel_impl", _INTEGRAL | _COMPLEX),
    "aten._upsample_nearest_exact1d.default": ("compute_indices_weights_nearest", _BUT_BYTE | _COMPLEX),
    "aten.batch_norm_backward.default": ("batch_norm_backward_cpu", _INTEGRAL | _COMPLEX),
    "aten.binary_cross_entropy.default": ("binary_cross_entropy", _INTEGRAL | _COMPLEX),
    "aten.binary_cross_entropy_backward.default": ("binary_cross_entropy_backward", _INTEGRAL),
    "aten.binary_cross_entropy_with_logits.default": ("log_sigmoid_cpu", _BOOL),
    "aten.celu.default": ("elu_cpu", _INTEGRAL),
    "aten.col2im.default": ("col2im_out_cpu", _INTEGERS),
    "aten.dot.default": ("dot", _BOOL),
    "aten.elu.default": ("elu_cpu", _INTEGRAL),
    "aten.elu_backward.default": ("elu_backward_cpu", _INTEGRAL),
    "aten.frac.default": ("frac_cpu", _INTEGERS),
    "aten.gelu.default": ("GeluKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.gelu_backward.default": ("GeluBackwardKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.glu.default": ("glu_cpu", _INTEGRAL | _COMPLEX),
    "aten.glu_backward.default": ("glu_backward_cpu", _COMPLEX),
    "aten.hardshrink.default": ("hardshrink_cpu", _INTEGERS | _COMPLEX),
    "aten.hardsigmoid.default": ("hardsigmoid_cpu", _INTEGRAL),
    "aten.hardsigmoid_backward.default": ("hardsigmoid_backward", _INTEGRAL),
    "aten.hardswish.default": ("hardswish_cpu", _INTEGRAL),
    "aten.hardswish_backward.default": ("hardswish_backward_cpu", _INTEGRAL),
    "aten.hardtanh_backward.default": ("hardshrink_backward_cpu", _INTEGRAL),
    "aten.huber_loss.default": ("huber_cpu", _INTEGRAL | _COMPLEX),
    "aten.huber_loss_backward.default": ("huber_backward_cpu_out", _INTEGRAL),
    "aten.igamma.default": ("igamma_cpu", _INTEGRAL),
    "aten.igammac.default": ("igammac_cpu", _INTEGRAL),
    "aten.im2col.default": ("im2col_out_cpu", _INTEGERS),
    "aten.leaky_relu.default": ("leaky_relu_cpu", _INTEGRAL),
    "aten.leaky_relu_backward.default": ("leaky_relu_backward_cpu", _INTEGRAL),
    "aten.linalg_cross.default": ("cross", _BOOL),
    "aten.log_sigmoid_backward.default": ("log_sigmoid_backward_cpu", _INTEGRAL),
    "aten.log_sigmoid_forward.default": ("log_sigmoid_cpu", _INTEGERS | _COMPLEX),
    "aten.logaddexp.default": ("logaddexp_cpu", _INTEGRAL),
    "aten.logaddexp2.default": ("logaddexp2_cpu", _INTEGRAL | _COMPLEX),
    "aten.logit_backward.default": ("logit_backward_cpu", _INTEGRAL),
    "aten.max_unpool2d.default": ("max_unpool2d", _INTEGRAL | _COMPLEX),
    "aten.max_unpool3d.default": ("max_unpool3d", _INTEGRAL | _COMPLEX),
    "aten.mse_loss.default": ("mse_cpu", _INTEGRAL | _COMPLEX),
    "aten.mse_loss_backward.default": ("mse_backward_cpu_out", _BOOL | _COMPLEX),
    "aten.multi_margin_loss.default": ("multi_margin_loss_cpu_kernel", _INTEGRAL | HALF),
    "aten.multilabel_margin_loss_forward.default": ("multilabel_margin_loss_forward_out_frame", _INTEGRAL | HALF),
    "aten.mv.default": ("addmv_impl_cpu", _BOOL),
    "aten.native_batch_norm.default": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten.native_batch_norm_backward.default": ("batch_norm_backward_cpu", _INTEGRAL | _COMPLEX),
    "aten.native_group_norm.default": ("GroupNormKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.native_group_norm_backward.default": ("GroupNormBackwardKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.native_layer_norm.default": ("LayerNormKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.native_layer_norm_backward.default": ("LayerNormBackwardKernelImpl", _INTEGRAL | _COMPLEX),
    "aten.nll_loss2d_backward.default": ("nll_loss2d_backward_out_frame", _INTEGRAL | _COMPLEX),
    "aten.nll_loss2d_forward.default": ("nll_loss2d_forward_out_frame", _INTEGRAL | _COMPLEX),
    "aten.nll_loss_backward.default": ("nll_loss_backward_out_frame", _INTEGRAL | _COMPLEX),
    "aten.nll_loss_forward.default": ("nll_loss_out_frame", _INTEGRAL | _COMPLEX),
    "aten.pow.Tensor_Tensor": ("pow", _BOOL),
    "aten.reflection_pad1d.default": ("reflection_pad1d", _BOOL),
    "aten.reflection_pad1d_backward.default": ("reflection_pad1d_backward", _INTEGRAL),
    "aten.replication_pad1d.default": ("replication_pad1d", _BOOL),
    "aten.replication_pad2d.default": ("replication_pad2d", _BOOL),
    "aten.sigmoid_backward.default": ("sigmoid_backward_cpu", _INTEGRAL),
    "aten.silu.default": ("silu_cpu", _INTEGRAL),
    "aten.silu_backward.default": ("silu_backward_cpu", _INTEGRAL),
    "aten.softplus.default": ("softplus_cpu", _INTEGRAL),
    "aten.softplus_backward.default": ("softplus_backward_cpu", _INTEGRAL),
    "aten.softshrink.default": ("softshrink_check", _INTEGRAL),
    "aten.special_bessel_j0.default": ("bessel_j0_cpu", HALF),
    "aten.special_bessel_j1.default": ("bessel_j1_cpu", HALF),
    "aten.special_erfcx.default": ("erfcx_cpu", HALF),
    "aten.special_log_ndtr.default": ("log_ndtr_cpu", HALF),
    "aten.special_ndtri.default": ("ndtri_cpu", HALF),
    "aten.special_spherical_bessel_j0.default": ("spherical_bessel_j0_cpu", HALF),
    "aten.special_xlog1py.default": ("xlog1py_cpu", _COMPLEX),
    "aten.special_zeta.default": ("zeta_cpu", HALF),
    "aten.tanh_backward.default": ("tanh_backward_cpu", _INTEGRAL),
    "aten.threshold.default": ("threshold_cpu", _BOOL),
    "aten.threshold_backward.default": ("threshold_cpu", _BOOL),
    "aten.trace.default": ("trace", _BOOL),
    "aten.upsample_bicubic2d.default": ("compute_indices_weights_cubic", _BUT_BYTE),
    "aten.upsample_bilinear2d.default": ("upsample_bilinear2d_channels_last", _BUT_BYTE),
    "aten.upsample_linear1d.default": ("compute_indices_weights_linear", _INTEGRAL),
    "aten.upsample_nearest1d.default": ("compute_indices_weights_nearest", _BUT_BYTE | _COMPLEX),
    "aten.upsample_trilinear3d.default": ("compute_indices_weights_linear", _INTEGRAL),
    "aten.xlogy.Scalar_Other": ("xlogy_cpu", _COMPLEX),
    "aten.xlogy.Scalar_Self": ("xlogy_cpu", _COMPLEX),
    "aten.xlogy.Tensor": ("xlogy_cpu", _COMPLEX),
}


def _empty_dimension(name: str) -> Check:
    def check(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> None:
        for one in dim:
            if -self.dim() <= one < self.dim() and not self.size(one):
                raise IndexError(f"{name}(): Expected reduction dim {one} to have non-zero size.")

    return check


def _index_select(self: Tensor, dim: int, index: Tensor) -> None:
    if index.dim() > 1:
        raise IndexError("index_select(): Index is supposed to be a vector")
    if index.dtype not in (torch.int32, torch.int64):
        raise RuntimeError("index_select(): Expected dtype int32 or int64 for index")


def _take(self: Tensor, index: Tensor) -> None:
    if index.dtype is not torch.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {scalar_type_name(index.dtype)}")


def _embedding(weight: Tensor, indices: Tensor, *more: Any) -> None:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")


def _narrow_copy(self: Tensor, dim: int, start: int, length: int) -> None:
    if not self.dim():
        raise RuntimeError("narrow() cannot be applied to a 0-dim tensor.")
    if not -self.dim() <= dim < self.dim():
        raise RuntimeError(f"narrow_copy(): dimension {dim} is out of range for a tensor of {self.dim()} dimensions")


def _split(self: Tensor, split_size: int, dim: int = 0) -> None:
    if not self.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> None:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")


def _upsampled(input: Tensor, output_size: Sequence[int], *more: Any) -> None:
    sizes = input.shape[2:]
    if len(output_size) == len(sizes) and not all(size > 0 for size in (*sizes, *output_size)):
        names = "DHW"[-len(sizes) :]
        given, wanted = (", ".join(f"{n}: {size}" for n, size in zip(names, one, strict=True)) for one in (sizes, output_size))
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({given}) and output ({wanted})")


def _masked_fill(self: Tensor, mask: Tensor, value: Any) -> None:
    if self.dtype in _INTEGERS and isinstance(value, float) and not math.isfinite(value):
        name = str(self.dtype).removeprefix("torch.")
        raise RuntimeError(f"value cannot be converted to type {name}_t without overflow")


def _smooth_l1(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> None:
    if beta < 0:
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


def _index_add(self: Tensor, dim: int, index: Tensor, source: Tensor, *, alpha: Any = 1) -> None:
    if not self.dim() or self.dim() != source.dim() or not -self.dim() <= dim < self.dim():
        return
    ours, theirs = list(self.shape), list(source.shape)
    del ours[dim], theirs[dim]
    if ours != theirs:
        raise RuntimeError(
            "source tensor shape must match self tensor shape, excluding the specified dimension. "
            f"Got self.shape = {shape_text(self.shape)} source.shape = {shape_text(source.shape)}"
        )


def _kind(side: Any) -> int:
    """The kind of a tensor's dtype, or of a number: bools, integers, floats, complex numbers, as they promote."""
    if isinstance(side, Tensor):
        dtype = side.dtype
        return 0 if dtype is torch.bool else 3 if dtype.is_complex else 2 if dtype.is_floating_point else 1
    return 0 if isinstance(side, bool) else 3 if isinstance(side, complex) else 2 if isinstance(side, float) else 1


def _alpha(self: Any, other: Any, alpha: Any) -> None:
    result, factor = max(_kind(self), _kind(other)), _kind(alpha)
    if factor == 0 and result > 0:
        raise RuntimeError("Boolean alpha only supported for Boolean results.")
    if factor > 1 and result < 2:
        raise RuntimeError("For integral input tensors, argument alpha must not be a floating point number.")
    if factor > 2 and result < 3:
        raise RuntimeError("For non-complex input tensors, argument alpha must not be a complex number.")


def _add(self: Any, other: Any, alpha: Any = 1) -> None:
    _alpha(self, other, alpha)


def _sub(self: Any, other: Any, alpha: Any = 1) -> None:
    bools = [_kind(side) == 0 for side in (self, other)]
    if any(bools):
        raise RuntimeError(
            f"Subtraction, the `-` operator, with {'two bool tensors' if all(bools) else 'a bool tensor'} is not supported. "
            + (
                "Use the `^` or `logical_xor()` operator instead."
                if all(bools)
                else "If you are trying to invert a mask, use the `~` or `logical_not()` operator instead."
            )
        )
    _alpha(self, other, alpha)


def _pow(self: Any, exponent: Tensor) -> None:
    if isinstance(self, bool) and exponent.dtype is torch.bool:
        raise not_implemented("pow", torch.bool)


def _isin(elements: Any, test_elements: Any, **options: Any) -> None:
    for side in (elements, test_elements):
        if isinstance(side, (bool, complex)) or (isinstance(side, Tensor) and side.dtype in _BOOL | _COMPLEX):
            dtype = side.dtype if isinstance(side, Tensor) else torch.bool if isinstance(side, bool) else torch.complex64
            raise RuntimeError(f"Unsupported input type encountered for isin(): {scalar_type_name(dtype)}")


def _arange(*ends: Any, dtype: torch.dtype | None = None, **options: Any) -> None:
    if dtype is not None and (dtype is torch.bool or dtype.is_complex):
        raise not_implemented("arange_cpu", dtype)


def _steps_of_bools(kernel: str) -> Check:
    def check(start: Any, end: Any, steps: int, *more: Any, dtype: torch.dtype | None = None, **options: Any) -> None:
        if dtype is torch.bool and steps > 1:
            raise not_implemented(kernel, dtype)

    return check


#: What else an op asks of its arguments, as a function of them that raises eager's error.
CHECKS: dict[str, Check] = {
    "aten.add.Scalar": _add,
    "aten.add.Tensor": _add,
    "aten.amax.default": _empty_dimension("amax"),
    "aten.amin.default": _empty_dimension("amin"),
    "aten.arange.start_step": _arange,
    "aten.embedding.default": _embedding,
    "aten.index_add.default": _index_add,
    "aten.index_select.default": _index_select,
    "aten.isin.Scalar_Tensor": _isin,
    "aten.isin.Tensor_Scalar": _isin,
    "aten.isin.Tensor_Tensor": _isin,
    "aten.linspace.default": _steps_of_bools("linspace_cpu"),
    "aten.logspace.default": _steps_of_bools("logspace_cpu"),
    "aten.masked_fill.Scalar": _masked_fill,
    "aten.narrow_copy.default": _narrow_copy,
    "aten.pow.Scalar": _pow,
    "aten.smooth_l1_loss.default": _smooth_l1,
    "aten.split.Tensor": _split,
    "aten.stack.default": _stack,
    "aten.sub.Scalar": _sub,
    "aten.sub.Tensor": _sub,
    "aten.take.default": _take,
    **{
        f"aten.{name}.default": _upsampled
        for name in (
            *(f"{kind}{dims}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)),
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
        )
    },
}


def refusing(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """A rule's function that first refuses what eager's kernel refuses; `fn` itself where that is nothing.

    A dtype is refused when all tensors of the call have refused ones: one of another would promote the rest.
    """
    kernel, dtypes = REFUSED.get(op, ("", frozenset()))
    check = CHECKS.get(op)
    if not dtypes and check is None:
        return fn

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
        if dtypes and tensors and all(tensor.dtype in dtypes for tensor in tensors):
            raise not_implemented(kernel, tensors[0].dtype)
        if check is not None:
            check(*args, **kwargs)
        return fn(*args, **kwargs)

    return run
