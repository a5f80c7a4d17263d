"""The checks of each op: calls that eager's kernels reject, and that a decomposition would accept or reject with another error.

A decomposition accepts all that its ops accept: `silu` of integers would return a value, but eager raises. The tables list, for
each op, the dtypes that eager's kernel rejects, the kernel's name in the message, and other checks. A check reads only dtypes and
sizes. It runs while a call is recorded, so it takes no time later.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch
from torch import Tensor

from eagerdecomp.eager.checks.arguments import ARGUMENT_CHECKS, NORM_CHECKS
from eagerdecomp.eager.checks.dtypes import TYPE_CHECKS
from eagerdecomp.eager.checks.matmul import PRODUCT_CHECKS
from eagerdecomp.eager.checks.shapes import SHAPE_CHECKS, check_few
from eagerdecomp.eager.determinism import alerts
from eagerdecomp.eager.messages import cpp_name, dimension_error, not_implemented, scalar_type_name, shape_text
from eagerdecomp.eager.promotion import HALF, RARE, WIDE_UNSIGNED, can_cast, computed_in, floating, promoted, wide_type
from eagerdecomp.eager.scalars import held_number, holding

__all__ = ["CHECKS", "REFUSED", "refusing"]

#: Takes an op's arguments, and raises eager's error if eager rejects them.
Check: TypeAlias = Callable[..., None]

_BOOL = frozenset({torch.bool})
_INTEGERS = WIDE_UNSIGNED | {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_BUT_BYTE = _BOOL | _INTEGERS - {torch.uint8}
_INTEGRAL = _BOOL | _INTEGERS
_COMPLEX = frozenset({torch.complex64, torch.complex128})
_ANY_COMPLEX = _COMPLEX | {torch.complex32}
_FLOATS = HALF | {torch.float32, torch.float64}

#: op -> the kernel's name in eager's message, and the dtypes it refuses.
REFUSED: dict[str, tuple[str, frozenset[torch.dtype]]] = {
    "aten._adaptive_avg_pool2d.default": ("adaptive_avg_pool2d", _INTEGRAL | _COMPLEX),
    "aten._batch_norm_with_update.default": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten._log_softmax.default": ("log_softmax_lastdim_kernel_impl", _INTEGRAL),
    "aten._log_softmax_backward_data.default": ("log_softmax_backward_lastdim_kernel_impl", _INTEGRAL | _COMPLEX),
    "aten._native_batch_norm_legit.default": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten._native_batch_norm_legit.no_stats": ("batch_norm", _INTEGRAL | _COMPLEX),
    "aten._prelu_kernel.default": ("prelu_cpu", _INTEGRAL),
    "aten._prelu_kernel_backward.default": ("prelu_backward_cpu", _INTEGRAL),
    "aten._softmax.default": ("softmax_lastdim_kernel_impl", _INTEGRAL),
    "aten._softmax_backward_data.default": ("softmax_backward_lastdim_kernel_impl", _INTEGRAL | _COMPLEX),
    "aten._upsample_nearest_exact1d.default": ("compute_indices_weights_nearest", _BUT_BYTE | _COMPLEX),
    "aten.aminmax.default": ("aminmax_cpu", _COMPLEX | WIDE_UNSIGNED),
    "aten.batch_norm_backward.default": ("batch_norm_backward_cpu", _INTEGRAL | _COMPLEX),
    "aten.binary_cross_entropy.default": ("binary_cross_entropy", _INTEGRAL | _COMPLEX),
    "aten.binary_cross_entropy_backward.default": ("binary_cross_entropy_backward", _INTEGRAL),
    "aten.binary_cross_entropy_with_logits.default": ("log_sigmoid_cpu", _BOOL),
    **{
        f"aten.bitwise_{side}_shift.{operands}": (f"{side[0]}shift_cpu", dtypes | _FLOATS | _ANY_COMPLEX)
        for side in ("left", "right")
        for operands, dtypes in (("Tensor", _BOOL), ("Tensor_Scalar", frozenset()), ("Scalar_Tensor", frozenset()))
    },
    "aten.celu.default": ("elu_cpu", _INTEGRAL),
    "aten.clamp_max.Tensor": ("minimum_cpu", _ANY_COMPLEX),
    "aten.clamp_min.Tensor": ("maximum_cpu", _ANY_COMPLEX),
    "aten.col2im.default": ("col2im_out_cpu", _INTEGERS),
    "aten.copysign.Tensor": ("copysign_cpu", _ANY_COMPLEX),
    "aten.count_nonzero.default": ("nonzero_count_cpu", WIDE_UNSIGNED),
    "aten.count_nonzero.dim_IntList": ("nonzero_count_cpu", WIDE_UNSIGNED),
    "aten.dot.default": ("dot", _BOOL | WIDE_UNSIGNED),
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
    "aten.kthvalue.default": ("kthvalue_cpu", WIDE_UNSIGNED),
    "aten.lcm.default": ("lcm_cpu", _BOOL | _FLOATS | _ANY_COMPLEX),
    "aten.leaky_relu.default": ("leaky_relu_cpu", _INTEGRAL),
    "aten.leaky_relu_backward.default": ("leaky_relu_backward_cpu", _INTEGRAL),
    "aten.linalg_cross.default": ("cross", _BOOL | WIDE_UNSIGNED),
    "aten.log_sigmoid_backward.default": ("log_sigmoid_backward_cpu", _INTEGRAL),
    "aten.log_sigmoid_forward.default": ("log_sigmoid_cpu", _INTEGERS | _COMPLEX),
    "aten.logaddexp.default": ("logaddexp_cpu", _INTEGRAL | {torch.complex32}),
    "aten.logaddexp2.default": ("logaddexp2_cpu", _INTEGRAL | _ANY_COMPLEX),
    "aten.logit_backward.default": ("logit_backward_cpu", _INTEGRAL),
    "aten.max_unpool2d.default": ("max_unpool2d", _INTEGRAL | _COMPLEX),
    "aten.max_unpool3d.default": ("max_unpool3d", _INTEGRAL | _COMPLEX),
    "aten.median.default": ("median_cpu", WIDE_UNSIGNED),
    "aten.median.dim": ("median_out", WIDE_UNSIGNED),
    "aten.mse_loss.default": ("mse_cpu", _INTEGRAL | _COMPLEX),
    "aten.mse_loss_backward.default": ("mse_backward_cpu_out", _BOOL | _COMPLEX | WIDE_UNSIGNED),
    "aten.multi_margin_loss.default": ("multi_margin_loss_cpu_kernel", _INTEGRAL | HALF),
    "aten.multilabel_margin_loss_forward.default": ("multilabel_margin_loss_forward_out_frame", _INTEGRAL | HALF),
    "aten.nanmedian.default": ("median_cpu", WIDE_UNSIGNED),
    "aten.nanmedian.dim": ("median_out", WIDE_UNSIGNED),
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
    "aten.polar.default": ("polar_cpu", frozenset({torch.float16})),
    "aten.pow.Tensor_Tensor": ("pow", _BOOL | WIDE_UNSIGNED | {torch.complex32}),
    "aten.reflection_pad1d.default": ("reflection_pad1d", _BOOL | WIDE_UNSIGNED),
    "aten.reflection_pad1d_backward.default": ("reflection_pad1d_backward", _INTEGRAL),
    "aten.replication_pad1d.default": ("replication_pad1d", _BOOL | WIDE_UNSIGNED),
    "aten.replication_pad2d.default": ("replication_pad2d", _BOOL | WIDE_UNSIGNED),
    "aten.selu.default": ("elu_cpu", _INTEGRAL),
    "aten.sigmoid_backward.default": ("sigmoid_backward_cpu", _INTEGRAL),
    "aten.silu.default": ("silu_cpu", _INTEGRAL),
    "aten.silu_backward.default": ("silu_backward_cpu", _INTEGRAL),
    "aten.softplus.default": ("softplus_cpu", _INTEGRAL),
    "aten.softplus_backward.default": ("softplus_backward_cpu", _INTEGRAL),
    "aten.softshrink.default": ("softshrink_check", _INTEGRAL | _COMPLEX),
    "aten.special_bessel_j0.default": ("bessel_j0_cpu", HALF),
    "aten.special_bessel_j1.default": ("bessel_j1_cpu", HALF),
    "aten.special_erfcx.default": ("erfcx_cpu", HALF),
    "aten.special_log_ndtr.default": ("log_ndtr_cpu", HALF),
    "aten.special_ndtri.default": ("ndtri_cpu", HALF),
    "aten.special_spherical_bessel_j0.default": ("spherical_bessel_j0_cpu", HALF),
    **{
        f"aten.special_{name}.{sides}": (f"{name}_cpu", dtypes)
        for name, dtypes in (("xlog1py", _ANY_COMPLEX), ("zeta", HALF | _ANY_COMPLEX))
        for sides in ("default", "self_scalar", "other_scalar")
    },
    "aten.tanh_backward.default": ("tanh_backward_cpu", _INTEGRAL),
    "aten.threshold.default": ("threshold_cpu", _BOOL | _COMPLEX | WIDE_UNSIGNED),
    "aten.threshold_backward.default": ("threshold_cpu", _BOOL | WIDE_UNSIGNED),
    "aten.trace.default": ("trace", _BOOL | WIDE_UNSIGNED),
    "aten.upsample_bicubic2d.default": ("compute_indices_weights_cubic", _BUT_BYTE),
    "aten.upsample_bilinear2d.default": ("upsample_bilinear2d_channels_last", _BUT_BYTE),
    "aten.upsample_linear1d.default": ("compute_indices_weights_linear", _INTEGRAL),
    "aten.upsample_nearest1d.default": ("compute_indices_weights_nearest", _BUT_BYTE | _COMPLEX),
    "aten.upsample_trilinear3d.default": ("compute_indices_weights_linear", _INTEGRAL),
    "aten.xlogy.Scalar_Other": ("xlogy_cpu", _ANY_COMPLEX),
    "aten.xlogy.Scalar_Self": ("xlogy_cpu", _ANY_COMPLEX),
    "aten.xlogy.Tensor": ("xlogy_cpu", _ANY_COMPLEX),
}


def _empty_dimension(name: str) -> Check:
    def check(self: Tensor, dim: Sequence[int] = (), keepdim: bool = False) -> None:
        for one in dim:
            if -self.dim() <= one < self.dim() and not self.size(one):
                raise IndexError(f"{name}(): Expected reduction dim {one} to have non-zero size.")

    return check


def _take(self: Tensor, index: Tensor) -> None:
    if index.dtype is not torch.int64:
        raise RuntimeError(f"take(): Expected a long tensor for index, but got {scalar_type_name(index.dtype)}")


def _embedding(weight: Tensor, indices: Tensor, *more: Any) -> None:
    if weight.dim() != 2:
        raise RuntimeError("'weight' must be 2-D")


def _split(self: Tensor, split_size: int, dim: int = 0) -> None:
    if not self.dim():
        raise RuntimeError("split expects at least a 1-dimensional tensor")
    if not -self.dim() <= dim < self.dim():
        raise dimension_error(dim, self.dim())


def _stack(tensors: Sequence[Tensor], dim: int = 0) -> None:
    if not tensors:
        raise RuntimeError("stack expects a non-empty TensorList")
    first = tensors[0].shape
    if not -len(first) - 1 <= dim <= len(first):
        raise dimension_error(dim, len(first) + 1)
    for place, one in enumerate(tensors):
        if one.shape != first:
            raise RuntimeError(
                f"stack expects each tensor to be equal size, but got {shape_text(first)} at entry 0 "
                f"and {shape_text(one.shape)} at entry {place}"
            )


def _logsumexp(self: Tensor, dim: Sequence[int], keepdim: bool = False) -> None:
    if not dim and not keepdim and self.dim() and self.numel():  # what eager keeps of it is no number any more
        raise RuntimeError(f"output with shape [] doesn't match the broadcast shape {shape_text([1] * self.dim())}")


def _upsampled(input: Tensor, output_size: Sequence[int], *more: Any) -> None:
    sizes = input.shape[2:]
    if len(output_size) == len(sizes) and not all(size > 0 for size in (*sizes, *output_size)):
        names = "DHW"[-len(sizes) :]
        given, wanted = (", ".join(f"{n}: {size}" for n, size in zip(names, one, strict=True)) for one in (sizes, output_size))
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input ({given}) and output ({wanted})")


def _round(self: Tensor, *, decimals: int) -> None:
    if self.dtype in _INTEGRAL | _COMPLEX:
        raise not_implemented("round_cpu" if decimals else "round_vml_cpu", self.dtype)


def _celu(self: Tensor, alpha: Any = 1.0) -> None:
    if alpha == 0:
        raise RuntimeError("ZeroDivisionError: alpha cannot be 0 for CELU")
    if self.dtype.is_floating_point:
        for one in (alpha, 1 / alpha):
            held_number(one, wide_type(self.dtype))


def _smooth_l1(self: Tensor, target: Tensor, reduction: int = 1, beta: float = 1.0) -> None:
    if not beta >= 0:  # nor NaN
        raise RuntimeError("smooth_l1_loss does not support negative values for beta.")


def _kind(side: Any) -> int:
    """Return the category of a tensor's dtype or of a scalar in type promotion: bool, integer, floating point, complex."""
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
    if alpha != 1 and (dtype := computed_in((self, other))) is not None:
        held_number(alpha, dtype)


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


_NOT_CUMULATED = _BOOL | WIDE_UNSIGNED


def _cumulated(name: str) -> Check:
    def check(self: Tensor, dim: int, *, dtype: torch.dtype | None = None) -> None:
        if not -self.dim() <= dim < self.dim():
            return  # refused for that first
        if (dtype in _NOT_CUMULATED or (dtype or self.dtype) is torch.complex32) and self.numel():
            raise not_implemented(f"{name}_out_cpu", dtype or self.dtype)

    return check


def _shuffled(kernel: str) -> Check:
    def check(self: Tensor, *more: Any) -> None:
        if self.dtype in RARE and self.numel():
            raise not_implemented(kernel, self.dtype)

    return check


def _isin(elements: Any, test_elements: Any, **options: Any) -> None:
    for side in (elements, test_elements):
        if isinstance(side, (bool, complex)) or (isinstance(side, Tensor) and side.dtype in _BOOL | _COMPLEX):
            dtype = side.dtype if isinstance(side, Tensor) else torch.bool if isinstance(side, bool) else torch.complex64
            raise RuntimeError(f"Unsupported input type encountered for isin(): {scalar_type_name(dtype)}")
    if isinstance(test_elements, Tensor) and not (isinstance(elements, Tensor) and not elements.numel()):
        computed = computed_in((elements, test_elements))
        if computed is not None and computed in RARE:
            raise not_implemented("isin_default_cpu", computed)
    if isinstance(elements, Tensor) and isinstance(test_elements, Tensor) and not test_elements.is_contiguous():
        check_few(elements, test_elements)


def _arange(*ends: Any, dtype: torch.dtype | None = None, **options: Any) -> None:
    if dtype is not None and (dtype is torch.bool or dtype.is_complex):
        raise not_implemented("arange_cpu", dtype)


def _heaviside(self: Tensor, values: Tensor, *, out: Tensor | None = None) -> None:
    dtypes = {one.dtype for one in (self, values, out) if one is not None}
    if any(dtype.is_complex for dtype in dtypes):
        raise RuntimeError("heaviside is not yet implemented for complex tensors.")
    if len(dtypes) > 1:
        raise RuntimeError("heaviside is not yet implemented for tensors with different dtypes.")


def _abs_in_place(self: Tensor) -> None:
    if self.dtype.is_complex:
        raise RuntimeError("In-place abs is not supported for complex tensors.")


def _ldexp(self: Tensor, other: Tensor, *, out: Tensor | None = None) -> None:
    target = self if out is None else out
    if not self.dtype.is_complex and not can_cast(floating(self.dtype), target.dtype):
        raise RuntimeError(f"ldexp can't be cast to the desired output type {scalar_type_name(target.dtype)}")


def _lerp(self: Tensor, end: Tensor, weight: Tensor) -> None:
    for name, one in (("end", end), ("weight", weight)):
        if one.dtype is not self.dtype and (name == "end" or one.dim()):  # a weight without dimensions is read as a number
            raise RuntimeError(f"expected dtype {cpp_name(self.dtype)} for `{name}` but got dtype {cpp_name(one.dtype)}")
    if (dtype := promoted((self, end, weight))) in _INTEGRAL or dtype is torch.complex32:
        raise not_implemented("lerp_kernel_tensor", dtype)


def _powsum(self: Tensor, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: torch.dtype | None = None) -> None:
    if dtype is None and self.dtype in _INTEGRAL and self.numel():
        raise not_implemented("powsum_cpu", torch.int64)


def _unfold_backward(grad_in: Tensor, input_sizes: Sequence[int], dim: int, size: int, step: int) -> None:
    if grad_in.dtype is torch.complex32 and step < size:  # windows that do not overlap are copied
        raise not_implemented("unfold_backward_cpu", grad_in.dtype)


#: op -> other checks: a function of its arguments that raises eager's error.
CHECKS: dict[str, Check] = {
    **ARGUMENT_CHECKS,
    **NORM_CHECKS,
    **PRODUCT_CHECKS,
    **SHAPE_CHECKS,
    **TYPE_CHECKS,
    "aten.abs_.default": _abs_in_place,
    "aten.add.Scalar": _add,
    "aten.add.Tensor": _add,
    "aten.amax.default": _empty_dimension("amax"),
    "aten.amin.default": _empty_dimension("amin"),
    "aten.arange.start_step": _arange,
    "aten.celu.default": _celu,
    "aten.cumprod.default": _cumulated("cumprod"),
    "aten.cumsum.default": _cumulated("cumsum"),
    "aten.embedding.default": _embedding,
    "aten.heaviside.default": _heaviside,
    "aten.heaviside.out": _heaviside,
    "aten.isin.Scalar_Tensor": _isin,
    "aten.isin.Tensor_Scalar": _isin,
    "aten.isin.Tensor_Tensor": _isin,
    "aten.ldexp.out": _ldexp,
    "aten.ldexp_.default": _ldexp,
    "aten.lerp.Tensor": _lerp,
    "aten.logsumexp.default": _logsumexp,
    "aten.linalg__powsum.default": _powsum,
    "aten.round.decimals": _round,
    **{f"aten.{name}.default": _shuffled(name) for name in ("channel_shuffle", "pixel_shuffle", "pixel_unshuffle")},
    "aten.smooth_l1_loss.default": _smooth_l1,
    "aten.split.Tensor": _split,
    "aten.stack.default": _stack,
    "aten.sub.Scalar": _sub,
    "aten.sub.Tensor": _sub,
    "aten.take.default": _take,
    "aten.unfold_backward.default": _unfold_backward,
    **{
        f"aten.{name}.default": _upsampled
        for name in (
            *(f"{kind}{dims}d" for kind in ("upsample_nearest", "_upsample_nearest_exact") for dims in (1, 2, 3)),
            *("upsample_linear1d", "upsample_bilinear2d", "upsample_bicubic2d", "upsample_trilinear3d"),
        )
    },
}


#: Ops whose arguments are all operands.
_PROMOTING = frozenset(
    f"aten.{name}"
    for name in (
        *("xlogy.Scalar_Other", "xlogy.Scalar_Self", "xlogy.Tensor", "pow.Tensor_Tensor"),
        *(f"special_{name}.{sides}" for name in ("xlog1py", "zeta") for sides in ("default", "self_scalar", "other_scalar")),
        *(f"{name}.default" for name in ("igamma", "igammac", "lcm", "logaddexp", "logaddexp2")),
        *(f"{name}.Tensor" for name in ("clamp_max", "clamp_min", "copysign")),
        *(f"bitwise_{side}_shift.{x}" for side in ("left", "right") for x in ("Tensor", "Tensor_Scalar", "Scalar_Tensor")),
    )
)


def refusing(op: str, fn: Callable[..., Any]) -> Callable[..., Any]:
    """Return a rule's function with eager's checks before it, and with scalars converted as eager does (`holding`).

    Return `fn` itself if the op has no checks. A dtype is rejected only if all tensors of the call have rejected dtypes: a tensor
    of another dtype would change the promoted dtype. For ops whose operands promote, the promoted dtype is checked.
    """
    fn = holding(op, fn)
    kernel, dtypes = REFUSED.get(op, ("", frozenset()))
    check = CHECKS.get(op)
    promotes = op in _PROMOTING and bool(dtypes)
    if not dtypes and check is None:
        return alerts(op, fn)

    def run(*args: Any, **kwargs: Any) -> Any:
        tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)] if dtypes else ()
        computed = computed_in(args) if promotes else tensors[0].dtype if tensors else None
        if computed in dtypes and (promotes or all(tensor.dtype in dtypes for tensor in tensors)):
            raise not_implemented(kernel, computed)
        if check is not None:
            check(*args, **kwargs)
        return fn(*args, **kwargs)

    return alerts(op, run)
