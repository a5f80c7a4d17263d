"""The strides of each op's results: eager's, and when the kernel of a backend must return them. One table for all that compare.

- `Layout.results` has eager's strides. The rules of these ops return correct values, with the strides of the ops that they call,
  which for some inputs are others. The mode promises eager's, so `rules.restride` gives them to the results of all rules of the op.
- `Layout.determined` says in which calls they follow from the call, so that any library returns them. The mode does not change the
  strides of a kernel's result. In these calls the conformance suite, `blame` and ``verify=`` require eager's of a kernel. In
  others, such as a softmax of a transposed tensor, a kernel may choose, as torch's own kernels differ between devices.

An op in neither column: its rules return eager's strides without help, and `stride_requirements.of_any_op` says which calls
determine them.

Strides of dimensions of size 1 count too, although no element depends on them: a later op may read a memory format from them
(`suggest_memory_format`). A contiguous tensor may have any strides there, so it does not imply the strides of a result. Of a kernel
they count only if `determined` is in the table, as far as a memory format follows from them: NumPy chooses them in its own way.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor
from torch.overrides import handle_torch_function, has_torch_function_unary

from eagerdecomp._torch.ops import OpOverload
from eagerdecomp._torch.tensors import suggested_memory_format
from eagerdecomp.eager.observe import Strides
from eagerdecomp.eager.promotion import computed_in
from eagerdecomp.eager.stride_requirements import (
    Determined,
    always,
    dense_self,
    explicit_or_dense,
    memory_format_of,
    never,
    of_any_op,
)
from eagerdecomp.eager.strides import in_order, is_channels_last, is_expanded, lies_in_order, like_strides, view_strides
from eagerdecomp.ops.schema import Argument, facts_of

__all__ = [
    "LAYOUTS",
    "Layout",
    "Wanted",
    "as_contiguous",
    "as_operands",
    "has_default_strides",
    "in_format",
    "in_format_of",
    "iterator_strides",
    "keep_strides",
    "layout_of",
    "strides_of_kernel",
]

aten = torch.ops.aten

#: ``wanted(result, *args)`` returns the strides of a result; None if its strides are right. Each fact that it reads becomes a guard
#: of the program, so it first reads facts that most calls share.
Wanted: TypeAlias = Callable[..., "Sequence[int] | None"]


def as_contiguous(x: Tensor) -> Tensor:
    """Return `x` itself if it is contiguous, else a contiguous copy."""
    return x if x.is_contiguous() else aten.clone.default(x, memory_format=torch.contiguous_format)


def in_format_of(result: Tensor, given: Tensor | None) -> Tensor:
    """Return `result` in the memory format that ATen's `suggest_memory_format` returns for `given`; contiguous if that is None."""
    return in_format(result, torch.contiguous_format if given is None else suggested_memory_format(given))


def in_format(result: Tensor, form: torch.memory_format) -> Tensor:
    """Return `result` with the strides of ``torch.empty(result.shape, memory_format=form)``; a view if no element must move."""
    if not result.is_contiguous(memory_format=form):
        return aten.clone.default(result, memory_format=form)  # type: ignore[no-any-return]
    if not _has_size_one(result) or not result.numel():
        return result
    strides = _formatted(result, form is not torch.contiguous_format)
    if list(result.stride()) == strides:
        return result
    return aten._reshape_alias.default(result, result.shape, strides)  # type: ignore[no-any-return]


def _channels_last_order(dims: int) -> list[int]:
    return [0, *range(2, dims), 1]


def _contiguous(result: Tensor, *args: Any) -> Sequence[int] | None:
    return None if keep_strides(args) else _as_empty(result)


def _as_empty(result: Tensor, *args: Any) -> Sequence[int] | None:
    return None if has_default_strides(result) else _formatted(result, False)


def _channels_last_as_input(position: int) -> Wanted:
    """Return channels-last strides if `suggest_memory_format` of this argument is channels last, else contiguous strides."""

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        given, dims = args[position], result.dim()
        if given.dim() == dims and suggested_memory_format(given) in (torch.channels_last, torch.channels_last_3d):
            return _formatted(result, True)
        return _contiguous(result, *args)

    return wanted


def _as_batch_norm(result: Tensor, input: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of eager's batch norm: of two formats that fit the input's strides, contiguous wins."""
    if keep_strides([input]):
        return None
    last = suggested_memory_format(input) is not torch.contiguous_format or is_channels_last(input)
    return _formatted(input, last and not input.is_contiguous())


def _as_batch_norm_backward(result: Tensor, grad: Tensor, input: Tensor, *args: Any) -> Sequence[int] | None:
    if keep_strides([grad, input]):
        return None
    forms = {suggested_memory_format(one) for one in (grad, input)}
    if len(forms) == 1 and all(one.is_contiguous() or is_channels_last(one) for one in (grad, input)):
        return _formatted(input, not input.is_contiguous())
    return _formatted(input, suggested_memory_format(input) is not torch.contiguous_format)


def _formatted(x: Tensor, channels_last: bool) -> list[int]:
    return in_order(x.shape, _channels_last_order(x.dim()) if channels_last else range(x.dim()))


def as_operands(count: int, *, promotes: bool = True) -> Wanted:
    """Return the strides of an elementwise kernel's result.

    Args:
        count: the number of operands, which are the first tensors (or scalars in their place) of the call.
        promotes: whether the operands are first converted to the result's dtype.
    """

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        operands = _operands(args, count)
        if keep_strides(operands):
            return None
        return iterator_strides(result.shape, operands, result.dtype if promotes else None)

    return wanted


def _as_operands_unless_reduced(count: int) -> Wanted:
    wanted = as_operands(count)
    return lambda result, *args: wanted(result, *args) if result.dim() else None


def as_operands_at(*positions: int) -> Wanted:
    """Return the strides of an elementwise kernel's result whose operands are the arguments at these positions, in this order."""

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        operands = _operands([args[position] for position in positions])
        return None if keep_strides(operands) else iterator_strides(result.shape, operands, result.dtype)

    return wanted


def _as_empty_like(position: int) -> Wanted:
    """Return the strides of ``empty_like`` of this argument: its own if it is dense, even for dimensions of size 1."""

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        given = args[position]
        # A loss may be reduced, and an operand of the kernel may be broadcast.
        return None if keep_strides(args) or result.shape != given.shape else like_strides(given)

    return wanted


class _Made(NamedTuple):
    """The facts that an iterator reads of an operand that eager's kernel makes of an argument."""

    shape: Sequence[int]
    strides: Sequence[int]


def _as_ldexp(result: Tensor, self: Tensor, other: Tensor) -> Sequence[int] | None:
    """Return the strides of ``empty_like``, which eager's iterator resizes if the exponents have another shape.

    Exponents that are no integers, and integers to be scaled, take eager's `mul`, by powers that are contiguous if the number 2
    needs no other dtype.
    """
    if other.dtype.is_floating_point or other.dtype.is_complex or not self.dtype.is_floating_point:
        if self.dtype is torch.float32 or not (self.dtype.is_floating_point or self.dtype.is_complex):
            powers = _Made(other.shape, in_order(other.shape, range(other.dim())))
            return iterator_strides(result.shape, [self, powers])
        return None if keep_strides([self, other]) else iterator_strides(result.shape, [self, other])
    alike = result.shape == self.shape
    return _as_empty_like(0)(result, self, other) if alike else as_operands(2, promotes=False)(result, self, other)


def _as_binomial(result: Tensor, count: Tensor, prob: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of a contiguous tensor of the counts' shape, which eager's iterator resizes if the result has another."""
    return None if result.shape == count.shape else as_operands(2)(result, count, prob)


def _as_addr(result: Tensor, self: Tensor, vec1: Tensor, vec2: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of the iterator, of which `self` is an operand even if `beta` is 0."""
    column = _Made((*vec1.shape, 1), [*vec1.stride(), 1])
    return None if keep_strides([self]) else iterator_strides(result.shape, [self, column, vec2])


def _heads_last(result: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of a result of attention in which the heads of a token are neighbours."""
    batches = [arg for arg in args if isinstance(arg, Tensor) and arg.dim() == 4]
    if all(size != 1 for one in batches for size in one.shape[1:3]):  # then the rules return these strides
        return None
    return in_order(result.shape, [0, 2, 1, 3][: result.dim()])


def _as_copied(result: Tensor, self: Tensor, *args: Any) -> Sequence[int]:
    return like_strides(self) if is_expanded(self) else self.stride()


def _as_expanded(result: Tensor, self: Tensor, *args: Any) -> Sequence[int]:
    """Return the strides of `expand` (ATen's ``inferExpandGeometry``)."""
    shape, strides = result.shape, [0] * result.dim()
    if not self.dim():
        return strides
    missing = len(shape) - self.dim()
    for dim in reversed(range(len(shape))):
        if dim < missing:
            size, stride = 1, shape[dim + 1] * strides[dim + 1]
        else:
            size, stride = self.shape[dim - missing], self.stride()[dim - missing]
        strides[dim] = stride if shape[dim] == size else 0
    return strides


def _as_squeezed(result: Tensor, self: Tensor, dims: int | Sequence[int] | None = None) -> Sequence[int]:
    rank = self.dim()
    asked = range(rank) if dims is None else [dim % rank for dim in ([dims] if isinstance(dims, int) else dims) if rank]
    facts = enumerate(zip(self.shape, self.stride(), strict=True))
    return [stride for dim, (size, stride) in facts if size != 1 or dim not in asked]


def _as_viewed(result: Tensor, self: Tensor, *args: Any) -> Sequence[int] | None:
    return view_strides(self, result.shape) if _has_size_one(result) else None


def _operands(args: Sequence[Any], count: int | None = None) -> list[Any]:
    """Return the first `count` operands: tensors, and scalars in their place."""
    return [arg for arg in args if isinstance(arg, (Tensor, int, float, complex))][:count]


def _as_compared(result: Tensor, *args: Any) -> Sequence[int] | None:
    """Return the strides of a bool result, whose operands are first converted to their promoted dtype."""
    operands = _operands(args, 2)
    return None if keep_strides(operands) else iterator_strides(result.shape, operands, computed_in(operands))


def keep_strides(operands: Sequence[Any]) -> bool:
    """Return whether any composition of elementwise kernels on these operands returns the strides that one kernel returns.

    These are contiguous strides. A contiguous operand with other strides in a dimension of size 1 may change the result's: kernels
    with a scalar or a 0-dim operand follow the order of these strides, and kernels of tensors of one shape do not.
    """
    shape = None
    for one in operands:
        if isinstance(one, Tensor):
            if not has_default_strides(one) or (shape is not None and one.dim() and one.shape != shape):
                return False
            shape = one.shape if shape is None else shape
    return True


def has_default_strides(x: Tensor) -> bool:
    """Return whether the strides are those of ``torch.empty(x.shape)``, also in dimensions of size 1.

    A recording observes this call, and adds one guard for it (`tracing.guards`).
    """
    if has_torch_function_unary(x):
        return bool(handle_torch_function(has_default_strides, (x,), x))
    return x.is_contiguous() and (not _has_size_one(x) or list(x.stride()) == in_order(x.shape, range(x.dim())))


def _has_size_one(x: Tensor) -> bool:
    if x.__class__ is Tensor:
        return 1 in x.shape
    return any(size.__class__ is int and size == 1 for size in x.shape)  # symbolic sizes are never 1, and may not be compared


def iterator_strides(shape: Sequence[int], operands: Sequence[Any], computed_in: torch.dtype | None = None) -> Sequence[int]:
    """Return the strides that ATen's ``TensorIterator`` gives a result of `shape`; scalars count as 0-dim operands.

    Operands of one shape that are all contiguous, all channels last, or dense with the same strides need no order. Otherwise
    the first operand that distinguishes two dimensions determines their order. Operands of another dtype than `computed_in` are
    copied first, so their expanded dimensions do not count as expanded.
    """
    known = _strides_of_alike(shape, operands, computed_in)
    if known is not None:
        return known
    dims = len(shape)
    spread = [_spread(operand, shape, computed_in) for operand in operands if isinstance(operand, (Tensor, _Made))]
    order = list(range(dims - 1, -1, -1))  # innermost first; an insertion sort, as in TensorIteratorBase::reorder_dimensions
    for start in range(1, dims):
        here = start
        for other in range(start - 1, -1, -1):
            compared = _compare(order[other], order[here], spread, shape)
            if compared < 0:
                break
            if compared > 0:
                order[other], order[here] = order[here], order[other]
                here = other
    return in_order(shape, order[::-1])


def _strides_of_alike(shape: Sequence[int], operands: Sequence[Any], computed_in: torch.dtype | None) -> Sequence[int] | None:
    """Return the strides for operands that TensorIterator does not order (`TensorIteratorBase::compute_fast_setup_type`)."""
    if not all(isinstance(one, (Tensor, _Made)) and one.shape == shape for one in operands):
        return None
    lies = [_converted(operand, computed_in) for operand in operands]
    dims = len(shape)
    for order in (range(dims), _channels_last_order(dims))[: 2 if dims == 4 else 1]:
        if all(lies_in_order(shape, strides, order) for strides in lies):
            return in_order(shape, order)
    first = lies[0]
    same = all(tuple(strides) == tuple(first) for strides in lies)
    return first if same and lies_in_order(shape, first, sorted(range(dims), key=lambda dim: (-first[dim], -shape[dim]))) else None


def _converted(operand: Tensor | _Made, computed_in: torch.dtype | None) -> Sequence[int]:
    """Return the operand's strides after conversion to the dtype of the computation."""
    if isinstance(operand, _Made):
        return operand.strides
    return operand.stride() if computed_in is None or operand.dtype is computed_in else like_strides(operand)


def _spread(operand: Tensor | _Made, shape: Sequence[int], computed_in: torch.dtype | None) -> list[int]:
    """Return the operand's strides for the whole shape: 0 for broadcast dimensions."""
    missing = len(shape) - len(operand.shape)
    own = zip(operand.shape, _converted(operand, computed_in), shape[missing:], strict=True)
    return [0] * missing + [0 if size == 1 != whole else stride for size, stride, whole in own]


def _compare(left: int, right: int, spread: Sequence[Sequence[int]], shape: Sequence[int]) -> int:
    for strides in spread:
        if not strides[left] or not strides[right]:
            continue
        if strides[left] != strides[right]:
            return -1 if strides[left] < strides[right] else 1
        if shape[left] > shape[right]:
            return 1
    return 0


_POLYNOMIALS = (
    *(f"special_{shifted}chebyshev_polynomial_{kind}" for shifted in ("", "shifted_") for kind in "tuvw"),
    *("special_hermite_polynomial_h", "special_hermite_polynomial_he"),
    *("special_laguerre_polynomial_l", "special_legendre_polynomial_p"),
)

#: The strides of eager's results, and the ops whose first result has them; without an overload, ``default``.
_FIRST_RESULT: tuple[tuple[Wanted, str], ...] = (
    # Elementwise kernels.
    (
        as_operands(1),
        "exp2 sinc sgn hardshrink hardsigmoid special_ndtri threshold logit digamma lgamma erfc erfinv i0 special_i0e special_i1 "
        "special_i1e special_erfcx special_log_ndtr special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 "
        "special_bessel_y1 special_modified_bessel_i0 special_modified_bessel_i1 special_modified_bessel_k0 "
        "special_modified_bessel_k1 special_scaled_modified_bessel_k0 special_scaled_modified_bessel_k1 "
        "special_spherical_bessel_j0",
    ),
    (as_operands(1, promotes=False), "signbit isposinf isneginf"),
    (
        as_operands(2),
        "hardsigmoid_backward hardswish_backward softplus_backward hardtanh_backward logit_backward native_dropout_backward "
        "hardshrink_backward softshrink_backward _add_relu.Tensor _add_relu.Scalar xlogy.Scalar_Self special_xlog1py.self_scalar "
        "xlogy.Tensor copysign.Tensor special_xlog1py div.Tensor_mode floor_divide hypot logaddexp logaddexp2 heaviside lcm gcd "
        "nextafter fmax fmin bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor __rshift__.Tensor "
        "special_zeta igamma igammac",
    ),
    (as_operands(2), " ".join(f"{name}.{kind}" for name in _POLYNOMIALS for kind in ("default", "n_scalar", "x_scalar"))),
    (as_operands(2, promotes=False), "complex polar"),
    (_as_compared, "logical_and logical_or logical_xor"),
    (_as_ldexp, "ldexp.Tensor"),
    (_as_addr, "addr"),
    (_as_operands_unless_reduced(1), "soft_margin_loss"),
    (_as_operands_unless_reduced(2), "mse_loss smooth_l1_loss"),
    (as_operands(3), "lerp.Tensor addcdiv addcmul"),
    (as_operands(3, promotes=False), "where.self"),
    (as_operands_at(1), "polygamma"),
    (as_operands_at(1, 0), "threshold_backward leaky_relu_backward"),
    (as_operands_at(2, 1), "soft_margin_loss_backward"),
    (_as_binomial, "binomial"),
    # Kernels that write to `empty_like` of an operand, or to a copy of its memory.
    (
        _as_empty_like(0),
        "nan_to_num deg2rad rad2deg hardtanh flip put _prelu_kernel binary_cross_entropy huber_loss log_sigmoid_backward "
        "fill.Tensor glu_jvp _conj_physical",
    ),
    (_as_empty_like(1), "binary_cross_entropy_backward binary_cross_entropy_with_logits nll_loss2d_backward"),
    (_as_copied, "select_scatter slice_scatter"),
    # Kernels that always allocate a contiguous result.
    (
        _contiguous,
        "pow.Scalar mse_loss_backward smooth_l1_loss_backward huber_loss_backward nll_loss_backward _softmax _log_softmax "
        "_softmax_backward_data _log_softmax_backward_data _masked_softmax_backward upsample_nearest1d _upsample_nearest_exact1d "
        "mm bmm baddbmm tril triu renorm cumsum cumprod _logcumsumexp masked_fill.Scalar masked_fill.Tensor masked_scatter "
        "index_select take normal.Tensor_Tensor normal.Tensor_float normal.float_Tensor slice_backward select_backward index_copy "
        "isin.Tensor_Scalar isin.Tensor_Tensor scatter.src scatter.value scatter.reduce scatter.value_reduce scatter_add "
        "scatter_reduce.two rrelu_with_noise",
    ),
    (_as_empty, "diag_embed multinomial prod.dim_int all.dims any.dims"),
    # Kernels that return either channels last or contiguous results.
    (_channels_last_as_input(0), "_adaptive_avg_pool2d channel_shuffle max_unpool2d native_group_norm"),
    (_channels_last_as_input(1), "native_group_norm_backward"),
    (
        _as_batch_norm,
        "native_batch_norm _native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training "
        "_native_batch_norm_legit_functional _batch_norm_with_update _batch_norm_with_update_functional",
    ),
    (_as_batch_norm_backward, "batch_norm_backward native_batch_norm_backward"),
    # Views.
    (_as_expanded, "expand"),
    (_as_viewed, "view"),
    (_as_squeezed, "squeeze squeeze.dim squeeze.dims"),
)

#: The calls that determine the strides, so that a kernel must return them; without an overload, ``default``.
_DETERMINED: tuple[tuple[Determined, str], ...] = (
    (explicit_or_dense, "_to_copy clone copy fill.Scalar"),
    (
        always,
        "arange.start_step full full_like scalar_tensor empty.memory_format empty_strided rand randn randperm mm bmm addmm baddbmm",
    ),
    # torch's kernel for CUDA returns places transposed, and each library of transforms has strides of its own.
    (never, "nonzero _fft_c2c _fft_c2r _fft_r2c"),
    (dense_self, "select_scatter slice_scatter"),
    (
        memory_format_of(0),
        "cat _native_batch_norm_legit _native_batch_norm_legit.no_stats _native_batch_norm_legit_no_training native_group_norm "
        "avg_pool1d avg_pool2d max_pool2d_with_indices max_pool3d_with_indices adaptive_avg_pool1d _adaptive_avg_pool2d "
        "upsample_nearest2d.vec upsample_bilinear2d.vec",
    ),
    (
        memory_format_of(0, 1),
        "native_group_norm_backward avg_pool2d_backward max_pool2d_with_indices_backward _adaptive_avg_pool2d_backward",
    ),
    (memory_format_of(0, 1, mixed=True), "convolution"),
    (memory_format_of(0, 1, 2), "convolution_backward"),
)

#: The strides of eager's results, and the ops whose first two results have them.
_BOTH_RESULTS: tuple[tuple[Wanted, str], ...] = (
    (
        _as_empty_like(0),
        "frexp.Tensor sort sort.stable fake_quantize_per_tensor_affine_cachemask fake_quantize_per_channel_affine_cachemask "
        "_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
    ),
    (_contiguous, "log_sigmoid_forward cummax cummin adaptive_max_pool3d"),
    (as_operands_at(1, 2, 0), "_prelu_kernel_backward"),
)


def _named(names: str) -> list[str]:
    return [f"aten.{name}" if "." in name else f"aten.{name}.default" for name in names.split()]


class Layout(NamedTuple):
    """The strides of an op's results.

    Attributes:
        results: result position -> its strides in eager; empty if the rules of the op return them without help.
        determined: returns whether a call determines them; None for `stride_requirements.of_any_op`.
    """

    results: Mapping[int, Wanted]
    determined: Determined | None = None


_RESULTS: dict[str, dict[int, Wanted]] = {
    **{name: {0: wanted} for wanted, names in _FIRST_RESULT for name in _named(names)},
    **{name: {0: wanted, 1: wanted} for wanted, names in _BOTH_RESULTS for name in _named(names)},
    "aten.native_dropout.default": {0: as_operands(1), 1: _as_empty_like(0)},
    "aten._scaled_dot_product_flash_attention_for_cpu.default": {0: _as_empty_like(0), 1: _heads_last},
    "aten._scaled_dot_product_flash_attention_for_cpu_backward.default": dict.fromkeys(range(3), _heads_last),
}
_OF_KERNELS = {name: determined for determined, names in _DETERMINED for name in _named(names)}

#: op -> the strides of its results.
LAYOUTS: dict[str, Layout] = {
    name: Layout(_RESULTS.get(name, {}), _OF_KERNELS.get(name)) for name in sorted(_RESULTS.keys() | _OF_KERNELS.keys())
}


def strides_of_kernel(op: OpOverload, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    """Return which strides of its results a kernel must share with eager's for a call."""
    layout = LAYOUTS.get(str(op))
    if layout is not None and layout.determined is not None:
        return "visible" if layout.determined(args, kwargs) else "any"
    return "significant" if of_any_op(op, args, kwargs) else "any"


@functools.cache
def layout_of(op: OpOverload) -> Mapping[int, Wanted] | None:
    """Return the strides of an op's results in eager, by position; None if its rules return them without help.

    For an elementwise op of Core ATen, which only small sets decompose, they follow from its schema.
    """
    facts = facts_of(op)
    is_kernel = torch.Tag.pointwise in op.tags and torch.Tag.core in op.tags and facts.is_functional
    if facts.name in _RESULTS or not is_kernel or any(argument.name == "memory_format" for argument in facts.arguments):
        return _RESULTS.get(facts.name)
    operands = [number for number, argument in enumerate(facts.arguments) if _is_operand(argument)]

    def wanted(result: Tensor, *args: Any) -> Sequence[int] | None:
        given = _operands([args[number] for number in operands if number < len(args)])
        if keep_strides(given):
            return None
        return iterator_strides(result.shape, given, computed_in(given) if result.dtype is torch.bool else result.dtype)

    return {0: wanted}


def _is_operand(argument: Argument) -> bool:
    """Return whether an elementwise kernel gets an argument as an operand: tensors, and the scalar `other` as a 0-dim tensor."""
    return not argument.kwarg_only and (argument.holds_tensors or argument.name == "other")
