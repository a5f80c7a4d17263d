"""Calls for which eager's CPU kernels crash, or use memory that is not theirs. Eager is not asked about them (`eager.verdict`).

PyTorch tracks the whole class in issue #195547. Where a kernel has an issue of its own, its number follows the function's summary.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp.eager.observe import Caught

__all__ = ["CRASHES", "would_crash"]


def _pad_packed_sequence(data: Tensor, batch_sizes: Tensor, *more: Any) -> str:
    """Return whether a batch grows or is negative. The kernel writes outside the result, which has the size of the first batch.

    PyTorch #169213.
    """
    sizes = batch_sizes.tolist() if batch_sizes.dim() == 1 and batch_sizes.is_cpu else []
    wrong = any(before < after <= sizes[0] or after < 0 <= sizes[0] for before, after in itertools.pairwise(sizes))
    return f"batch_sizes must not grow from one step to the next, nor be negative, but are {sizes}" if wrong else ""


def _coo_to_csr(self: Tensor, size: int, **options: Any) -> str:
    """Return whether a row does not exist. The kernel writes a pointer for each row up to it. PyTorch #182064."""
    if self.is_meta or self.dim() != 1 or not self.numel() or self.is_floating_point() or self.is_complex():
        return ""
    least, most = int(self.amin()), int(self.amax())
    return f"index out of bounds: rows are {least} to {most}, of {size}" if least < 0 or most >= size else ""


def _csr_to_coo(crow_indices: Tensor, col_indices: Tensor, **options: Any) -> str:
    """Return whether row pointers are missing, or point beyond the columns. The kernel writes there. PyTorch #141004."""
    places, columns = crow_indices.shape[:-1].numel() * col_indices.shape[-1:].numel(), col_indices.numel()
    if crow_indices.dim() != col_indices.dim() or crow_indices.is_floating_point() or crow_indices.is_complex():
        return ""
    if places == 1 and columns > 1:
        return f"expected one column index, but got {columns} of shape {list(col_indices.shape)}"
    if crow_indices.is_meta or not crow_indices.numel() or not crow_indices.dim():
        return ""
    least, most = int(crow_indices.amin()), int(crow_indices.amax())
    beyond = least < 0 or most > col_indices.size(-1)
    return f"index out of bounds: rows begin at {least} to {most}, of {col_indices.size(-1)} columns" if beyond else ""


def _ldl_solve(LD: Tensor, pivots: Tensor, B: Tensor, **options: Any) -> bool:
    """Return whether one factorization solves several right sides, or pivots are not int32. PyTorch #114121.

    After its checks, the kernel reads past the end of the factorization, and reads all pivots as int32.
    """
    if (LD.shape[:-2] == B.shape[:-2] and pivots.dtype is torch.int32) or LD.dtype.itemsize < 4:
        return False
    with Caught() as caught:
        torch.linalg.ldl_solve(*(one.to("meta") for one in (LD, pivots, B)))
    return caught.error is None


def _eigvals(self: Tensor, **options: Any) -> str:
    """Return whether a number is not finite. LAPACK's kernel crashes, and only `linalg_eig` checks this. PyTorch #121149."""
    return "" if self.isfinite().all() else "torch.linalg.eigvals: input tensor should not contain infs or NaNs."


def _lu_unpack(LU_data: Tensor, LU_pivots: Tensor, unpack_data: bool = True, unpack_pivots: bool = True, **options: Any) -> str:
    """Return whether a matrix lacks pivots. The kernel reads them all the same. PyTorch #177829."""
    if not unpack_pivots or LU_data.dim() < 2 or LU_pivots.dtype is not torch.int32:
        return ""
    fits = LU_pivots.shape[:-1] == LU_data.shape[:-2] and LU_pivots.shape[-1:].numel() >= min(LU_data.shape[-2:])
    return "" if fits else f"lu_unpack: pivots of shape {list(LU_pivots.shape)} for matrices of shape {list(LU_data.shape)}"


def _transform_bias_rescale_qkv(qkv: Tensor, qkv_bias: Tensor, num_heads: int, **options: Any) -> bool:
    """Return whether there are no heads. The kernel divides by their number. It does not look at the bias's dtype and size."""
    return num_heads == 0 or qkv_bias.dtype is not qkv.dtype or qkv_bias.numel() < qkv.shape[-1:].numel()


def _linear_combination(input: Tensor, coefficients: Tensor, *, out: Tensor | None = None) -> bool:
    """Return whether there is not an input for each coefficient. The kernel looks neither at sizes nor at dtypes."""
    if coefficients.dim() < 2 or not input.numel() or (out is None and not input.dim()):
        return False
    alike = coefficients.dtype is input.dtype.to_real() and (out is None or out.dtype is input.dtype)
    return not alike or coefficients.dim() > 2 or not input.dim() or input.shape[:1].numel() < coefficients.size(1)


def _convolution_backward(grad_output: Tensor, input: Tensor, *more: Any, **options: Any) -> str:
    """Return whether gradients are of fewer images. The kernel reads one for each image."""
    images = [one.size(0) for one in (grad_output, input) if one.dim() > 2]
    return f"gradients are of {images[0]} images, of {images[1]}" if len(images) == 2 and images[0] < images[1] else ""


def _other_kernel_size(self: Tensor, weight: Tensor, kernel_size: Sequence[int], *more: Any, **options: Any) -> bool:
    """Return whether the weights have another size. The kernel multiplies them by patches of `kernel_size`."""
    return len(kernel_size) == weight.dim() - 2 and list(kernel_size) != list(weight.shape[2:])


def _cholesky_solve(self: Tensor, A: Tensor, upper: bool, **options: Any) -> str:
    """Return whether sizes differ. Only `cholesky_solve` checks them."""
    fits = self.shape[:-1] == A.shape[:-1] and A.shape[-1:] == A.shape[-2:-1]
    return "" if fits else f"cholesky_solve: matrices of shape {list(A.shape)} for right sides of shape {list(self.shape)}"


def _flash_attention(query: Tensor, key: Tensor, value: Tensor, *more: Any, **options: Any) -> str | bool:
    """Return whether keys or values are missing, which the kernel would read, or a length is 0, by which it divides."""
    if not query.dim() == key.dim() == value.dim() == 4:
        return False
    groups = key.size(1)
    if query.size(0) != key.size(0) or key.shape[:3] != value.shape[:3] or not groups or query.size(1) % groups:
        return f"query, key and value do not fit: {list(query.shape)}, {list(key.shape)}, {list(value.shape)}"
    return not query.size(2) or not key.size(2)


def _flash_attention_backward(
    grad_out: Tensor | None, query: Tensor, key: Tensor, value: Tensor, out: Tensor, logsumexp: Tensor, *more: Any, **options: Any
) -> str | bool:
    """Return whether the shapes are not those of a forward call, all of which the kernel would read."""
    for one, shape in ((grad_out, query.shape), (out, query.shape), (logsumexp, query.shape[:3])):
        if one is not None and one.shape != shape:
            return f"a query of shape {list(query.shape)} does not fit {list(one.shape)}"
    return _flash_attention(query, key, value)


def _no_heads(num_heads: int) -> str:
    """Return whether the kernel divides by zero. PyTorch #106700."""
    return "" if num_heads else "the number of heads must not be 0"


def _mkldnn_rnn_layer(input: Tensor, w_ih: Tensor, w_hh: Tensor, *rest: Any) -> bool:
    """Return whether weights or states have other sizes than the kernel takes them to have. PyTorch #143485."""
    if input.dim() != 3:
        return False
    _, _, hx, cx, _, _, _, hidden_size, *_ = rest
    weights = w_ih.shape == (4 * hidden_size, input.size(2)) and w_hh.shape == (4 * hidden_size, hidden_size)
    return not weights or not hx.shape[-2:] == cx.shape[-2:] == (input.size(1), hidden_size)


def _masked_softmax(self: Tensor, mask: Tensor, dim: int | None = None, mask_type: int | None = None) -> bool:
    """Return whether rows have no elements. The kernel divides by their size."""
    dim = -1 if dim is None else dim
    return -self.dim() <= dim < self.dim() and not self.size(dim)


def _masked_softmax_backward(grad_output: Tensor, output: Tensor, mask: Tensor, dim: int | None = None) -> str | bool:
    """Return whether rows have no elements, or the output has another shape, beyond which the kernel reads. PyTorch #194801."""
    if output.shape != grad_output.shape:
        return f"expected an output of the shape {list(grad_output.shape)} of its gradient, but got {list(output.shape)}"
    return _masked_softmax(grad_output, mask, dim)


def _pdist_backward(grad: Tensor, self: Tensor, p: float, pdist: Tensor) -> bool:
    """Return whether there is not one distance for each pair of rows, of which it reads one, or no row. PyTorch #197099."""
    pairs = self.size(0) * (self.size(0) - 1) // 2 if self.dim() else 0
    if self.dim() and not self.size(0):
        return True  # the kernel divides by their number
    return self.is_contiguous() and pdist.is_contiguous() and min(grad.numel(), pdist.numel()) < pairs


def _segment_reduce(
    data: Tensor, reduce: str, *, lengths: Tensor | None = None, offsets: Tensor | None = None, axis: int = 0, **options: Any
) -> str:
    """Return why a segment is not within the data. The kernel reads it nevertheless, but refuses what else is wrong.

    PyTorch #141481.
    """
    bounds = lengths if offsets is None else offsets
    if bounds is None or not 0 < bounds.dim() <= data.dim() or axis % data.dim() != bounds.dim() - 1:
        return ""
    if bounds.shape[:-1] != data.shape[: bounds.dim() - 1]:
        return f"segment_reduce(): expected lengths or offsets of shape {list(data.shape[: bounds.dim() - 1])} before the axis"
    if bounds.is_meta or not bounds.numel() or bounds.is_floating_point() or (offsets is None and not options.get("unsafe")):
        return ""
    ends = bounds.cumsum(-1) if offsets is None else bounds
    within = int(ends.amin()) >= 0 and int(ends.amax()) <= data.size(axis)
    return "" if within else f"segment_reduce(): a segment is not within the {data.size(axis)} elements of the axis"


def _segment_reduce_backward(grad: Tensor, output: Tensor, data: Tensor, reduce: str, *, axis: int = 0, **options: Any) -> str:
    """Return why a segment is not within the data, or has no gradient. PyTorch #192452."""
    count = [options[name].size(-1) - extra for name, extra in (("offsets", 1), ("lengths", 0)) if options.get(name) is not None]
    shape = [*data.shape]
    if shape and count and -len(shape) <= axis < len(shape):
        shape[axis] = count[0]
    if list(grad.shape) != shape or list(output.shape) != shape:
        return f"expected gradients and results of shape {shape}, but got {list(grad.shape)} and {list(output.shape)}"
    return _segment_reduce(data, reduce, axis=axis, **{**options, "unsafe": True})


def _range(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, out: Tensor | None = None, **options: Any) -> str:
    """Return whether the step is zero as an integer. The kernel divides by it."""
    dtype = dtype if out is None else out.dtype
    divides = dtype is not None and not (dtype.is_floating_point or dtype.is_complex)
    return "step must be nonzero" if divides and isinstance(step, float) and 0 < abs(step) < 1 else ""


def _adaptive_max_pool_backward(dims: int, grad_output: Tensor, self: Tensor, indices: Tensor, **out: Tensor) -> str:
    """Return whether the gradient has other planes than the input, or an index is out of range. The kernel writes there.

    PyTorch #141099, #141100.
    """
    typed = indices.dtype is torch.int64 and grad_output.dtype is self.dtype and self.dtype.is_floating_point
    if not typed or grad_output.shape != indices.shape or self.dim() != indices.dim():
        return ""
    if grad_output.shape[:-dims] != self.shape[:-dims]:
        return f"expected a gradient with the planes of an input of shape {list(self.shape)}, but got {list(grad_output.shape)}"
    wrong = indices.numel() and (int(indices.amin()) < 0 or int(indices.amax()) >= self.shape[-dims:].numel())
    return f"index out of bounds for an input of shape {list(self.shape)}" if wrong else ""


def _fractional_max_pool3d_backward(
    grad_output: Tensor, self: Tensor, kernel_size: Sequence[int], output_size: Sequence[int], indices: Tensor, **out: Tensor
) -> str:
    """Return whether the gradient or the indices have other planes than the input. The kernel reads beyond them.

    PyTorch #142838.
    """
    wanted, first = [*self.shape[:-3], *output_size], 2 if self.dim() == 5 else 1
    typed = indices.dtype is torch.int64 and grad_output.dtype is self.dtype and self.dtype.is_floating_point
    if not typed or list(grad_output.shape[first : first + 3]) != list(output_size):
        return ""
    wrong = not list(grad_output.shape) == list(indices.shape) == wanted
    return f"gradOutput and indices must have the shape {wanted}" if wrong else ""


def _nll_loss_backward(
    grad_output: Tensor, self: Tensor, target: Tensor, weight: Any, reduction: int, ignore_index: int, *more: Any, **out: Tensor
) -> IndexError | bool:
    """Return the error of the forward kernel if a class is out of range. This kernel writes there. PyTorch #194802."""
    classes = self.size(1 if self.dim() > 1 else 0) if self.dim() else 0
    wrong = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
    return IndexError(f"Target {int(wrong[0])} is out of bounds.") if wrong.numel() else False


def _binomial(count: Tensor, prob: Tensor, generator: Any = None) -> bool:
    """Return whether a count is NaN. The kernel does not end."""
    return count.is_floating_point() and bool(count.isnan().any())


def _new_zeros_with_same_feature_meta(self: Tensor, other: Tensor, *, self_num_batch_dims: int = 0) -> str:
    """Return whether there are fewer dimensions than batch dimensions. The kernel reads their sizes."""
    wrong = not 0 <= self_num_batch_dims <= self.dim()
    return f"self_num_batch_dims must be in 0 to {self.dim()}, but got {self_num_batch_dims}" if wrong else ""


def _scaled_mm_out(*args: Any, out: Tensor, **options: Any) -> str:
    """Return whether elements of the result share memory. The kernel writes as if they did not."""
    shared = torch._debug_has_internal_overlap(out) == 1
    return (
        "unsupported operation: more than one element of the written-to tensor refers to a single memory location" if shared else ""
    )


def _batch_norm(
    input: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    *args: Any,
    **options: Any,
) -> str:
    """Return whether a tensor has not one element for each channel. Only `batch_norm` checks that; the kernel reads on."""
    channels = input.size(1) if input.dim() > 1 else 0
    given = {"weight": weight, "bias": bias, "running_mean": running_mean, "running_var": running_var}
    wrong = [f"{name} of {one.numel()} elements" for name, one in given.items() if one is not None and one.numel() != channels]
    return f"batch norm: {wrong[0]} for {channels} channels" if wrong and channels else ""


def _always(*args: Any, **kwargs: Any) -> bool:
    return True


#: op -> a function of a call's arguments: the error that stands for eager's crash, or the message of a `RuntimeError`; True if the
#: call is valid, or valid as far as a rule finds out; "" or False if eager can be asked.
CRASHES: Mapping[str, Callable[..., Exception | str | bool]] = {
    "aten._convert_indices_from_coo_to_csr.default": _coo_to_csr,
    "aten._convert_indices_from_coo_to_csr.out": _coo_to_csr,
    "aten._convert_indices_from_csr_to_coo.default": _csr_to_coo,
    "aten._convert_indices_from_csr_to_coo.out": _csr_to_coo,
    "aten._masked_softmax.default": _masked_softmax,
    "aten._masked_softmax_backward.default": _masked_softmax_backward,
    "aten._new_zeros_with_same_feature_meta.default": _new_zeros_with_same_feature_meta,
    "aten._pad_packed_sequence.default": _pad_packed_sequence,
    "aten._pdist_backward.default": _pdist_backward,
    "aten._linalg_eigvals.default": _eigvals,
    "aten.linalg_eigvals.default": _eigvals,
    "aten.linalg_eigvals.out": _eigvals,
    "aten._compute_linear_combination.default": _linear_combination,
    "aten._compute_linear_combination.out": _linear_combination,
    "aten._slow_conv2d_backward.grad_input": _convolution_backward,
    "aten._slow_conv2d_backward.output_mask": _convolution_backward,
    "aten._slow_conv2d_backward.output_mask_out": _convolution_backward,
    "aten._scaled_mm.out": _scaled_mm_out,
    "aten._transform_bias_rescale_qkv.default": _transform_bias_rescale_qkv,
    "aten._transform_bias_rescale_qkv.out": _transform_bias_rescale_qkv,
    "aten.convolution_backward.default": _convolution_backward,
    "aten.convolution_backward.out": _convolution_backward,
    "aten.slow_conv3d_forward.default": _other_kernel_size,
    "aten.slow_conv3d_forward.output": _other_kernel_size,
    "aten.slow_conv_transpose2d.default": _other_kernel_size,
    "aten.slow_conv_transpose2d.out": _other_kernel_size,
    "aten.slow_conv_transpose3d.default": _other_kernel_size,
    "aten.slow_conv_transpose3d.out": _other_kernel_size,
    "aten._cholesky_solve_helper.default": _cholesky_solve,
    "aten._cholesky_solve_helper.out": _cholesky_solve,
    "aten._native_multi_head_attention.default": lambda q, k, v, embed_dim, num_head, *more, **options: _no_heads(num_head),
    "aten._scaled_dot_product_flash_attention_for_cpu.default": _flash_attention,
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": _flash_attention_backward,
    "aten._transformer_encoder_layer_fwd.default": lambda src, embed_dim, num_heads, *more, **options: _no_heads(num_heads),
    "aten.mkldnn_rnn_layer.default": _mkldnn_rnn_layer,
    "aten.lu_unpack.default": _lu_unpack,
    "aten.lu_unpack.out": _lu_unpack,
    "aten.adaptive_max_pool2d_backward.default": functools.partial(_adaptive_max_pool_backward, 2),
    "aten.adaptive_max_pool2d_backward.grad_input": functools.partial(_adaptive_max_pool_backward, 2),
    "aten.adaptive_max_pool3d_backward.default": functools.partial(_adaptive_max_pool_backward, 3),
    "aten.adaptive_max_pool3d_backward.grad_input": functools.partial(_adaptive_max_pool_backward, 3),
    "aten.binomial.default": _binomial,
    "aten.fractional_max_pool3d_backward.default": _fractional_max_pool3d_backward,
    "aten.fractional_max_pool3d_backward.grad_input": _fractional_max_pool3d_backward,
    "aten.linalg_ldl_solve.default": _ldl_solve,
    "aten.linalg_ldl_solve.out": _ldl_solve,
    "aten._segment_reduce_backward.default": _segment_reduce_backward,
    "aten.range.step": _range,
    "aten.range.out": _range,
    "aten.segment_reduce.default": _segment_reduce,
    "aten.native_batch_norm.default": _batch_norm,
    "aten._native_batch_norm_legit.default": _batch_norm,
    "aten._native_batch_norm_legit_no_training.default": _batch_norm,
    "aten._batch_norm_with_update.default": _batch_norm,
    "aten._batch_norm_with_update_functional.default": _batch_norm,
    # They take indices that only their own caller makes.
    "aten._cummax_helper.default": _always,
    "aten._cummin_helper.default": _always,
    **dict.fromkeys(
        (
            "aten.nll_loss_backward.default",
            "aten.nll_loss_backward.grad_input",
            "aten.nll_loss2d_backward.default",
            "aten.nll_loss2d_backward.grad_input",
        ),
        _nll_loss_backward,
    ),
}


def would_crash(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Exception | str | bool:
    """Return what `CRASHES` has for a call: whether eager must not be asked.

    Raises whatever odd arguments raise in Python. Eager must not be asked then either.
    """
    crashes = CRASHES.get(str(op))
    return crashes is not None and crashes(*args, **kwargs)
